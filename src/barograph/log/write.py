"""The log file: a JSON array that a strict parser can read at every instant.

In:   records as bytes, from one process.
Out:  `training.json`. `logtext` reads it.

A record must appear at once or not at all, also to a reader in the middle of a write and after
`kill -9`. The kernel copies a write page by page and may stop between two pages when the process
is killed. So the closing bracket stands ahead of the records, with white space (carriage returns,
which a terminal does not show) in between, and a record is written over that white space:

    [                                  a record never straddles a 4,096-byte page where it fits
    {"log":"step",...},                into one: blanks fill the page and it starts on the next
    {"log":"step",...}\r\r\r\r\r\r     the size of the file does not change with a record
    ]                                  moved on when the white space is used up

Only moving the bracket across a page takes two writes, once in some hundred records: a reader that
comes just then has to read again, and a process that is killed just then leaves two brackets, which
opening the log mends. `close` takes the white space away again.

A record longer than a page would be torn by a kill between two of its pages. Its metrics are written
as several records of the step, anything else as `part` records (see `parts`), which readers join.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barograph.core.record import Record, encode
from barograph.log.parts import split
from barograph.log.read import WHITE, LogFileBusy, is_record, refuse_foreign, scan

PAGE = 4096
LONGEST = PAGE - 2  # bytes of a record that fits a page with the comma and line break before it
_BLANKS = b" " * PAGE
_GROW_LEAST, _GROW_MOST, _GROW_FAST = 4 * PAGE, 32 * PAGE, 256 * PAGE
_SLICE = 8 * PAGE  # white space written at once, ahead of its need
_END = 4 * _GROW_FAST  # at the end of a file, where its last record is looked for first
_GROWN_OFTEN = 1.0  # seconds between two times that the white space was used up
_LOCK_TRIES, _LOCK_SECONDS = 10, 0.01  # who wonders whether a log is written holds its lock for a moment
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
        self._stale = False  # an interrupted append: position and bracket must be looked up
        self._late: list[bytes] = []
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0
        self._retry_at = 0.0
        self._descriptor = -1
        self._interrupted = False  # an append waits for a signal handler that ends the log
        self._successor: JsonLog | None = None  # the log that took this file over
        self._position = self._bracket = 0
        self._easy = 0  # bytes of the file up to which a record is one plain write; 0: look closer
        self._size = 0  # bytes of the file that are known to be white space behind the bracket
        self._ahead: int = 0  # white space is wanted up to this byte,
        self._ahead_from: float = math.inf  # from where `position` is past this one
        self._grown, self._grow_most = -math.inf, _GROW_MOST
        self._open()

    @property
    def position(self) -> int:
        """Bytes of the file up to the end of the last record."""
        return self._position

    @property
    def waiting(self) -> bool:
        """Whether records wait in memory for the disk."""
        return bool(self._backlog)

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def append(self, data: bytes) -> int:
        """Add one record, the bytes of a JSON object; returns `position` after it."""
        with self.lock:
            if self._busy:
                self._late.append(data)
                return self._position
            self._busy = True
            try:
                position = self._position
                end = position + len(data) + 2
                if end <= self._easy and not self._stale:
                    self._stale = True
                    if os.pwrite(self._descriptor, b",\n" + data, position) != end - position:
                        raise OSError(28, "the disk took only part of a record")
                    self._position = end
                    self._stale = False
                elif len(data) > LONGEST:
                    for part in split(data):
                        self._append(part)
                else:
                    self._append(data)
            except OSError as error:
                self._keep(data, error)
            finally:
                self._busy = False
                if self._late:
                    self._append_late()
            return self._position

    def _append(self, data: bytes) -> None:
        try:
            if self._stale or self._backlog:
                self._catch_up(data)
            else:
                self._write(data)
        except OSError as error:
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
        with contextlib.suppress(OSError):
            if self._stale:
                self._look_up()
        self._append_late()
        depth = lock._release_save()  # what a condition does with a lock while it waits
        try:
            yield True
        finally:
            lock._acquire_restore(depth)
            self.close()
            self._busy = busy

    def _append_late(self) -> None:
        late, self._late = self._late, []
        for item in late:
            self.append(item)

    def _write(self, data: bytes) -> None:
        position = self._position
        text = b",\n" + data if position > 1 else b"\n" + data
        size = len(text)
        room = PAGE - position % PAGE
        if room < size <= PAGE:
            text = _BLANKS[:room] + text
            size += room
        self._stale = True
        if position + size >= self._bracket:
            self._grow(position + size)
        if os.pwrite(self._descriptor, text, position) != size:
            raise OSError(28, "the disk took only part of a record")
        self._position = position = position + size
        self._stale = False
        # up to there a record needs no more than one write: the page's end, or the bracket
        self._easy = min(position - position % -PAGE, self._bracket - 1)
        if position > self._ahead_from:
            self._blank_ahead()

    def append_copy(self, text: bytes) -> None:
        """Add the bytes that follow `position` in another log of the same beginning. Raises OSError."""
        with self.lock:
            if self._stale:
                self._look_up()
            self._stale, self._easy = True, 0
            if self._position + len(text) >= self._bracket:
                self._grow(self._position + len(text))
            if os.pwrite(self._descriptor, text, self._position) != len(text):
                raise OSError(28, "the disk took only part of a record")
            self._position += len(text)
            self._stale = False

    def _grow(self, needed: int) -> None:
        """Make room for records up to byte `needed`: white space behind the bracket, then the bracket."""
        now = time.monotonic()
        # often is bad: a reader may come between the two writes that move the bracket
        since = now - self._grown
        if since < _GROWN_OFTEN:
            self._grow_most = min(2 * self._grow_most, _GROW_FAST)
        elif since > 5 * _GROWN_OFTEN:
            self._grow_most = _GROW_MOST
        self._grown = now
        self._easy = 0
        self._blank(-(-(needed + _GROW_LEAST) // PAGE) * PAGE)
        self._move_bracket(self._size - 2)
        extra = min(max(_GROW_LEAST, needed // 8), self._grow_most)
        # the next white space is written in slices before it is needed: a megabyte at once takes a millisecond
        self._ahead = self._size + -(-extra // PAGE) * PAGE
        self._ahead_from = needed + (self._bracket - needed) // 2

    def _blank(self, size: int) -> None:
        """White space up to byte `size` of the file, if there isn't."""
        start = max(self._size, self._bracket + 1)
        if size > start:
            if os.pwrite(self._descriptor, b"\r" * (size - start), start) != size - start:
                raise OSError(28, "the disk is full")
            self._size = size

    def _blank_ahead(self) -> None:
        """A slice of the white space that will be needed next. A full disk is seen when it is needed."""
        self._ahead_from = math.inf
        with contextlib.suppress(OSError):
            self._blank(min(self._ahead, self._size + _SLICE))
            if self._size < self._ahead:
                self._ahead_from = self._position

    def _move_bracket(self, target: int) -> None:
        """The bracket and the line break after it to byte `target`; white space where it was."""
        old, descriptor = self._bracket, self._descriptor
        first, last = min(old, target), max(old, target) + 1
        if first - 1 >= 0 and (first - 1) // PAGE == last // PAGE:
            between = bytearray(os.pread(descriptor, last - first + 2, first - 1).ljust(last - first + 2, b"\r"))
            between[old - first : old - first + 3] = b"\r\r\r"
            between[target - first : target - first + 3] = b"\n]\n"
            os.pwrite(descriptor, between, first - 1)
        else:
            # in between there are two brackets, which is not JSON: no line of Python runs between the writes
            texts = b"\n]\n", b"\r" if old < target + 3 else b"\r\r"
            writes = map(os.pwrite, (descriptor, descriptor), texts, (target - 1, old + 1 - len(texts[1])))
            if list(writes) != [3, len(texts[1])]:
                raise OSError(28, "the disk took only part of a bracket")
        self._bracket = target

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
        if not self._backlog:
            reason = error.strerror or str(error)
            self._trouble(
                f"could not write {self.path} ({reason}); training goes on, records wait in memory until there is room"
            )
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        if self._backlog_bytes + len(data) > _BACKLOG_BYTES:
            self.lost += 1
            return
        self._easy = 0
        self._backlog.append(data)
        self._backlog_bytes += len(data)

    def _catch_up(self, data: bytes | None, force: bool = False) -> None:
        if self._backlog and not force and time.monotonic() < self._retry_at:
            if data is not None:
                self._keep(data, OSError())
            return
        if self._stale:
            self._look_up()
        while self._backlog:
            self._write(self._backlog[0])
            self._backlog_bytes -= len(self._backlog.pop(0))
        if data is not None:
            self._write(data)

    def _look_up(self) -> None:
        """Find out where an interrupted append stopped, and take away what is not whole."""
        self._easy = self._size = 0
        descriptor = self._descriptor
        size = os.fstat(descriptor).st_size
        start = self._position
        body = os.pread(descriptor, size - start, start).rstrip(WHITE)
        if not body.endswith(b"]"):
            raise OSError(5, "the closing bracket is gone")
        text = body.rstrip(b"]" + WHITE)
        if is_record(text.lstrip(WHITE + b",")):
            self._position += len(text)
        elif text:  # half a record: white space again
            os.pwrite(descriptor, b"\r" * len(text), start)
        brackets, at = [], body.find(b"]", len(text))
        while at >= 0:
            brackets.append(start + at)
            at = body.find(b"]", at + 1)
        for bracket in brackets[:-1]:  # the bracket was just being moved
            os.pwrite(descriptor, b"\r", bracket)
        self._bracket = brackets[-1]
        self._stale = False

    def retry(self) -> None:
        """Write what waits in memory, if the disk takes it now; never raises."""
        with self.lock:
            if self._backlog and not self._busy and not self.closed:
                with contextlib.suppress(OSError):
                    self._catch_up(None)

    def sync(self) -> None:
        """Put what was appended on the disk itself; another thread's work, it may take long."""
        if not self.closed:
            with contextlib.suppress(OSError):
                os.fdatasync(self._descriptor)

    def restore_if_deleted(self) -> bool:
        """Write the file again if its folder was deleted under the run (its bytes are still open)."""
        if self.closed:
            return False
        with contextlib.suppress(OSError):
            if os.fstat(self._descriptor).st_nlink > 0:
                return False
            with self.lock:
                old = self._descriptor
                self.path.parent.mkdir(parents=True, exist_ok=True)
                new = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                offset = 0
                while chunk := os.pread(old, 1 << 20, offset):
                    offset += os.pwrite(new, chunk, offset)
                fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._descriptor = new
                os.close(old)
            self._trouble(f"{self.path} was deleted while the run went on; it was written again")
            return True
        return False

    # -- opening and closing -------------------------------------------------------------------

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists() or self.path.stat().st_size == 0:
            _create(self.path)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        state = os.fstat(self._descriptor)
        earlier = _open_logs.get((state.st_dev, state.st_ino))
        if earlier is not None and not earlier.closed:
            earlier.close()
            earlier._successor = self
        try:
            self._take_lock()
            self._find_end()
            _open_logs[state.st_dev, state.st_ino] = self
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise

    def _take_lock(self) -> None:
        for attempt in range(_LOCK_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if attempt < _LOCK_TRIES - 1:
                    time.sleep(_LOCK_SECONDS)
            except OSError:
                return  # a file system without locks
        raise LogFileBusy(f"{self.path} is being written by another process; give this one another log_file")

    def _find_end(self) -> None:
        """Position and bracket of an existing file; a torn tail is repaired, a foreign file refused."""
        descriptor = self._descriptor
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, 1 << 16, 0)
        refuse_foreign(self.path, head, whole=size <= len(head))
        last = max(0, size - _END)
        tail = os.pread(descriptor, size - last, last)
        body = tail.rstrip(WHITE)
        records = body[:-1].rstrip(WHITE) if body.endswith(b"]") else b""
        begin = records.rfind(b"\n{")
        if begin < 0:
            begin = records.rfind(b"[{")
        if records == b"[" and last == 0:
            self._position, self._bracket = 1, len(body) - 1
        elif begin >= 0 and is_record(records[begin + 1 :]):
            self._position, self._bracket = last + len(records), last + len(body) - 1
        else:
            self._repair(descriptor, size)

    def _repair(self, descriptor: int, size: int) -> None:
        text = os.pread(descriptor, size, 0)
        end = 1 + text.index(b"[")
        for _, end in scan(text):  # noqa: B007 - the end of the last whole record
            pass
        rest = text[end:].strip(WHITE + b"]")
        if rest.strip(b","):
            with open(f"{self.path}.torn", "ab") as kept:
                kept.write(rest + b"\n")
        os.pwrite(descriptor, b"\n]\n", end)
        os.ftruncate(descriptor, end + 3)
        self._position, self._bracket = end, end + 1
        if rest.strip(b","):
            note = (
                f"{self.path.name} ended in the middle of a record; what was whole stays, "
                f"the rest ({len(rest)} bytes) is in {self.path.name}.torn"
            )
            self._trouble(note)
            self._write(encode(Record("info", time.time_ns() // 1000, 0, {"type": "repair", "message": note})))

    def close(self) -> None:
        """Write what waits, take the white space away and close the file; never raises."""
        with self.lock:
            if self.closed:
                return
            with contextlib.suppress(OSError):
                if self._stale or self._backlog:
                    self._catch_up(None, force=True)
            with contextlib.suppress(OSError):
                if not self._stale and self._bracket > self._position + 1:
                    self._move_bracket(self._position + 1)
                    os.ftruncate(self._descriptor, self._bracket + 2)
            self.lost += len(self._backlog)
            self._backlog.clear()
            self._release()

    def abandon(self) -> None:
        """Let go of the file without touching it: for a forked child, whose parent goes on writing."""
        self.lock = threading.RLock()
        self._busy = False
        self._backlog, self._late = [], []
        self._release()

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._easy = 0
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                if self._interrupted:  # the append knows the number: it must not become another file's
                    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                    os.dup2(null, descriptor, inheritable=False)
                    descriptor = null
                os.close(descriptor)


def take_waiting(log: JsonLog) -> list[bytes]:
    """The records that still wait for the disk, for who has another place for them."""
    with log.lock:
        waiting, log._backlog, log._backlog_bytes = log._backlog, [], 0
        return waiting


def _create(path: Path) -> None:
    """An empty array, there at once: never a moment without its closing bracket."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # a log holds the command line: it is its owner's to read
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(b"[" + b"\r" * (PAGE - 4) + b"\n]\n")
        if path.exists():  # an empty file somebody made: keep its name, fill it
            os.replace(temporary, path)
            return
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
