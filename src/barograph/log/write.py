"""The log file: a JSON array that a strict parser can read at every instant.

In:   records as bytes, from one process.
Out:  `training.json`. `read` reads it.

A record must appear at once or not at all, also to a reader in the middle of a write and after
`kill -9`. The kernel copies a write page by page and may stop between two pages when the process
is killed. So the closing bracket stands ahead of the records, with white space (carriage returns,
which a terminal does not show) in between, and a record is written over that white space:

    [                                  a record never straddles a 4,096-byte page where it fits
    {"log":"step",...},                into one: blanks fill the page and it starts on the next
    {"log":"step",...}\r\r\r\r\r\r     the size of the file does not change with a record
    ]                                  moved on when the white space is used up

Only moving the bracket takes two writes, once in some hundred records: a reader that comes just then
has to read again, and a process that is killed just then leaves two brackets, which `mend` takes away.
`close` takes the white space away again.

A record longer than a page would be torn by a kill between two of its pages. Its metrics are written
as several records of the step, anything else as `part` records (see `parts`), which readers join.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barograph.core.handlers import Refusals, from_signal_handler
from barograph.log.array import PAGE, ArrayFile, end_of, has_hole
from barograph.log.parts import split

LONGEST = PAGE - 2  # bytes of a record that fits a page with the comma and line break before it
_BACKLOG_BYTES = 16 << 20
_RETRY_SECONDS = 0.5

# Logs open in this process, so that opening one again takes it over instead of finding it locked.
_open_logs: weakref.WeakValueDictionary[tuple[int, int], JsonLog] = weakref.WeakValueDictionary()


class JsonLog:
    """A log file open for appending. One process writes it; threads may share it.

    `append` returns once the record is in the operating system's hands. Where the disk refuses
    (full, gone), records wait in memory, at most 16 MB, and are written when there is room again;
    `trouble` is called once with a sentence.
    """

    def __init__(self, path: str | os.PathLike[str], trouble: Callable[[str], None] | None = None):
        self.path = Path(path)
        self.lost = 0  # records that fitted neither the disk nor the backlog
        self._trouble = trouble or (lambda sentence: None)
        self.lock = threading.RLock()  # held by those who must keep something in the records' order
        self._busy = False  # this thread is inside append: a signal handler may enter again
        self._late: list[bytes] = []  # what such a handler logged
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0
        self._refusing = False  # the disk refuses, and that was said
        self._emptied = False  # somebody emptied the file, and that was said
        self._tried = -1  # `position` as the first of the backlog was written, if that was begun
        self._retry_at = 0.0
        self._interrupted = False  # an append waits for a signal handler that ends the log
        self._successor: JsonLog | None = None  # the log that took this file over
        self._file = ArrayFile(self.path, self._trouble)
        self._begin()

    @property
    def position(self) -> int:
        """Bytes of the file up to the end of the last record."""
        return self._file.position

    @property
    def waiting(self) -> bool:
        """Whether records wait in memory for the disk."""
        return bool(self._backlog)

    @property
    def closed(self) -> bool:
        return self._file.descriptor < 0

    def append(self, data: bytes) -> int:
        """Add one record, the bytes of a JSON object; returns `position` after it."""
        with self.lock:
            file = self._file
            if self._busy:
                self._late.append(data)
                return file.position
            self._busy = True
            try:
                position = file.position
                end = position + len(data) + 2
                if end <= file.easy and not file.stale:
                    file.stale = True
                    if os.pwrite(file.descriptor, b",\n" + data, position) != end - position:
                        raise OSError(28, "the disk took only part of a record")
                    file.position = end
                    file.stale = False
                elif len(data) > LONGEST:
                    for part in split(data):
                        self._append(part)
                else:
                    self._append(data)
            except OSError as error:
                if from_signal_handler(error):
                    raise
                self._keep(data, error)
            finally:
                self._busy = False
                if self._late:
                    self._append_late()
            return file.position

    def append_copy(self, text: bytes) -> None:
        """Add the bytes that follow `position` in another log of the same beginning. Raises OSError."""
        with self.lock:
            self._file.write_text(text)

    def _append(self, data: bytes) -> None:
        try:
            if self._file.stale or self._backlog:
                self._catch_up(data)
            else:
                self._file.write(data)
        except OSError as error:
            if from_signal_handler(error):
                raise
            self._keep(data, error)

    @contextlib.contextmanager
    def set_free(self) -> Iterator[bool]:
        """For who ends the log, maybe in a signal handler that interrupted an append of the same thread: other
        threads may write, and the log is closed in the end. Whether there is such an append; what it had not
        written yet goes nowhere."""
        lock: Any = self.lock
        if not lock._is_owned():
            yield False
            return
        busy, self._busy, self._interrupted = self._busy, False, True
        with Refusals():
            if self._file.stale:
                self._file.look_up()
        self._append_late()
        depth = lock._release_save()  # what a condition does with a lock while it waits
        try:
            yield True
        finally:
            lock._acquire_restore(depth)
            self.close()
            self._busy = busy

    def _append_late(self) -> None:
        """Write what signal handlers logged in the middle of another call: their calls have returned."""
        while self._late and not self._busy:
            self._busy = True
            try:
                if not self._late:  # a handler came before `_busy` was set
                    continue
                if self.closed and self._successor is None:
                    self._keep(self._late.pop(0), OSError())
                    continue
                parts = _fitting(self._late[0])
                size = sum(map(len, parts))
                # no call, and so no signal handler, between these
                self._backlog += parts
                self._backlog_bytes += size
                del self._late[0]
                self._catch_up(None, force=True)
            except OSError as error:
                if from_signal_handler(error):
                    raise
                self._refused(error)
            finally:
                self._busy = False

    # -- trouble ------------------------------------------------------------------------------

    def _keep(self, data: bytes, error: OSError) -> None:
        """The disk refused: hold the record and try again later."""
        if self._successor is not None:
            self._successor.append(data)
            return
        if self.closed:
            self.lost += 1
            self._trouble(f"{self.path} is closed; what is logged from now on is not recorded")
            return
        self._refused(error)
        if self._backlog_bytes + len(data) > _BACKLOG_BYTES:
            self.lost += 1
            return
        self._backlog.append(data)
        self._backlog_bytes += len(data)

    def _refused(self, error: OSError) -> None:
        self._file.easy = 0
        if not self._refusing:
            self._refusing = True
            reason = error.strerror or str(error)
            self._trouble(
                f"could not write {self.path} ({reason}); training goes on, records wait in memory until there is room"
            )
        self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _catch_up(self, data: bytes | None, force: bool = False) -> None:
        if self._backlog and not force and time.monotonic() < self._retry_at:
            if data is not None:
                self._keep(data, OSError())
            return
        while self._backlog:
            if self._file.stale:
                self._file.look_up()
            first = self._backlog[0]
            size = len(first)
            if not 0 <= self._tried < self._file.position:  # else it was written before something interrupted
                self._file.easy, self._tried = 0, self._file.position
                self._file.write(first)
            # no call, and so no signal handler, between these
            self._tried = -1
            self._backlog[:1] = ()
            self._backlog_bytes -= size
        self._refusing = False
        if self._file.stale:
            self._file.look_up()
        if data is not None:
            self._file.write(data)

    def retry(self) -> None:
        """Write what waits in memory, if the disk takes it now; never raises."""
        with self.lock:
            if self._backlog and not self._busy and not self.closed:
                self._busy = True
                try:
                    with Refusals():
                        self._catch_up(None)
                finally:
                    self._busy = False
                    if self._late:
                        self._append_late()

    def sync(self) -> None:
        """Put what was appended on the disk itself; another thread's work, it may take long."""
        if not self.closed:
            with Refusals():
                os.fdatasync(self._file.descriptor)

    def restore_if_deleted(self) -> bool:
        """Write the file again if its folder was deleted under the run (its bytes are still open)."""
        if self.closed:
            return False
        with Refusals():
            if os.fstat(self._file.descriptor).st_nlink > 0:
                return False
            with self.lock:
                self._file.copy_to(self.path)
                _open_logs[self._file.identity()] = self
            self._trouble(f"{self.path} was deleted while the run went on; it was written again")
            return True
        return False

    def was_emptied(self) -> bool:
        """Whether somebody has emptied the file, when that is seen for the first time. `close` fills the hole."""
        if self.closed or self._emptied:
            return False
        with Refusals():
            self._emptied = os.pread(self._file.descriptor, 1, 0) != b"["
        if self._emptied:
            self._trouble(f"{self.path} was emptied while the run went on; what it held before is gone")
        return self._emptied

    def moved(self) -> Path | None:
        """Where the file is now, if it was moved with its folder; `path` is that from then on."""
        if self.closed:
            return None
        with Refusals():
            state = os.fstat(self._file.descriptor)
            try:
                if state.st_nlink == 0 or os.path.samestat(state, os.stat(self.path)):
                    return None
            except FileNotFoundError:
                pass
            path = _path_of(self._file.descriptor)
            if path is not None and os.path.samestat(state, os.stat(path)):
                self.path = path
                return path
        return None

    # -- opening and closing -------------------------------------------------------------------

    def _begin(self) -> None:
        file = self._file
        try:
            earlier = _open_logs.get(file.identity())
            if earlier is not None and not earlier.closed:
                earlier.close()
                earlier._successor = self
            file.begin()
            _open_logs[file.identity()] = self
        except BaseException:
            file.release(False)
            raise

    def close(self) -> None:
        """Write what waits, take the white space away and close the file; never raises."""
        with self.lock:
            if self.closed:
                return
            # a signal handler that interrupted an append: that one knows the descriptor's number
            self._interrupted |= self._busy
            busy, self._busy = self._busy, True
            try:
                with Refusals():
                    if self._file.stale or self._backlog:
                        self._catch_up(None, force=True)
                with Refusals():
                    emptied = os.pread(self._file.descriptor, 1, 0) != b"["
                    if not self._file.stale and (emptied or self._file.bracket > self._file.position + 1):
                        self._file.end_here()
                        self._file.fill_hole()
            finally:
                self.lost += len(self._backlog)
                self._backlog.clear()
                self._file.release(self._interrupted)
                self._busy = busy
            if self._late:
                self._append_late()

    def abandon(self) -> None:
        """Let go of the file without touching it: for a forked child, whose parent goes on writing."""
        self.lock = threading.RLock()
        self._busy = False
        self._backlog, self._late = [], []
        self._file.release(self._interrupted)


def mend(path: Path) -> bool:
    """Make a log that a killed process left behind valid JSON again; whether that was needed and could be done.

    A log that is being written is left alone. Never raises.
    """
    with contextlib.suppress(OSError, ValueError):
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            found = end_of(file.fileno(), state.st_size)
            whole = found is not None and len(found[1]) == 1 and not has_hole(file.fileno())
        open_here = _open_logs.get((state.st_dev, state.st_ino))
        if whole or not state.st_size or (open_here is not None and not open_here.closed):
            return False
        JsonLog(path).close()
        return True
    return False


def _fitting(data: bytes) -> list[bytes]:
    """A record's bytes in pieces that fit a page."""
    return [data] if len(data) <= LONGEST else split(data)


def take_waiting(log: JsonLog) -> list[bytes]:
    """The records that still wait for the disk, for who has another place for them."""
    with log.lock:
        waiting, log._backlog, log._backlog_bytes, log._tried = log._backlog, [], 0, -1
        return waiting


def _path_of(descriptor: int) -> Path | None:
    """Where an open file is now; None where the system does not say. Raises OSError."""
    if sys.platform == "darwin":
        import fcntl

        path = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
        return Path(os.fsdecode(path.partition(b"\0")[0]))
    link = f"/proc/self/fd/{descriptor}"
    return Path(os.readlink(link)) if os.path.islink(link) else None
