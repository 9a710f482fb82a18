"""The writing side of the store: one process, one folder, one live file at a time.

In:   blocks of named numbers and histograms, handed over by one thread.
Out:  live files `NNNNNN.live.arrows` (see `schema`) that other processes may read at any time.

A flush is a transaction. Readers count what was written since the last flush only when the flush
has completed; if `write_points`, `write_histogram` or `flush` raises an OSError, nothing since the
last flush counts and all of it is to be handed over again. The next attempt begins a new file, so
that a torn batch hides nothing behind it, and makes the folder again if somebody deleted it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time as clock
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from barograph.store.live import Array
from barograph.store.schema import WRITING_LOCK, live_name, parse_names, sync_folder
from barograph.store.stream import OpenFile, batch_of

SEAL_POINTS = 2_000_000  # a live file is closed at this many points (16 MB) and sealed


class Writer:
    """Writes one folder `store/<writer>/`; not for use by several threads at once.

    `folder`: made if missing. `rank`: stored with every block. `log_start`: byte of the log file where
    this writer's records begin. `sealable`: number of files closed so far; the caller may set it to 0.
    Raises OSError if the folder can't be made, or if another process writes in it.
    """

    def __init__(self, folder: str | Path, *, rank: int = 0, seal_points: int = SEAL_POINTS, log_start: int = 0):
        self.folder = Path(folder)
        self.rank = rank
        self.sealable = 0
        self._seal_points = max(1, seal_points)
        self._log_end = self._log_committed = log_start
        self._file: OpenFile | None = None
        self._lock = -1
        self._number = 0
        self._folder_synced = True
        self._unsynced: list[int] = []  # descriptors of closed files that wait for `sync`
        self._histograms: dict[int, list[tuple[str, int, int, Array, Array]]] = {}
        self._names_in: tuple[str, ...] = ()  # the last block's names, as given and as written
        self._names_out: tuple[tuple[str, ...], list[int] | None] = ((), None)
        self.closed = False
        self._prepare_folder()
        _writers.add(self)

    @property
    def points_in_file(self) -> int:
        """Points of completed flushes in the file that is open now."""
        return self._file.points if self._file else 0

    def write_points(
        self,
        names: tuple[str, ...],
        steps: Array,
        times_us: Array,
        values: Array,
        *,
        segment: int = 1,
        log_end: int = -1,
    ) -> None:
        """Add n rows of m named values. The arrays must stay as they are until the next `flush`.

        `steps`, `times_us` [n] integers, `values` [n, m] floats. `log_end` >= 0: with this block the store
        has every number of the log file before that byte; a block of no names may say so alone.
        Raises ValueError for other shapes, OSError as the module says.
        """
        value = np.ascontiguousarray(values, np.float64)
        step = np.ascontiguousarray(steps, np.int64)
        time = np.ascontiguousarray(times_us, np.int64)
        if value.shape != (len(step), len(names)) or step.shape != time.shape or step.ndim != 1:
            raise ValueError(
                f"a block of {len(names)} names needs steps [n], times [n] and values [n, {len(names)}], "
                f"got {step.shape}, {time.shape} and {value.shape}"
            )
        written, kept = self._writable(names)
        if kept is not None:
            value = np.ascontiguousarray(value[:, kept])
        meta: dict[str, Any] = {"segment": int(segment), "rank": self.rank}
        if log_end >= 0:
            meta["log"] = self._log_end, max(log_end, self._log_end)
        elif not value.size:
            return
        batch = batch_of(step, time, value.ravel(), len(written), meta)
        with self._transaction() as file:
            file.key_number(written, meta)
            file.add(batch, meta, value.size)
            self._log_end = max(log_end, self._log_end)

    def write_histogram(
        self, name: str, step: int, time_us: int, edges: Array, counts: Array, segment: int = 1
    ) -> None:
        """Add a histogram: `counts[i]` values lie between `edges[i]` and `edges[i + 1]`."""
        edges = np.array(edges, np.float64).ravel()
        counts = np.array(counts, np.float64).ravel()
        if len(edges) != len(counts) + 1:
            raise ValueError(f"a histogram of {len(counts)} counts needs {len(counts) + 1} edges, not {len(edges)}")
        self._open_check()
        self._histograms.setdefault(int(segment), []).append((_text(name), int(step), int(time_us), edges, counts))

    def flush(self) -> None:
        """Have all blocks since the last flush in the operating system's hands, all or none of them."""
        self._open_check()
        if self._file is None and not self._histograms:
            return
        with self._transaction() as file:
            for segment, rows in self._histograms.items():
                names, steps, times, edges, counts = zip(*rows, strict=True)
                pieces = [piece for pair in zip(edges, counts, strict=True) for piece in pair]
                lengths = np.array([len(edge) + len(count) for edge, count in zip(edges, counts, strict=True)])
                meta: dict[str, Any] = {"kind": "histograms", "segment": segment, "rank": self.rank, "names": names}
                step, time = np.array(steps, np.int64), np.array(times, np.int64)
                file.add(batch_of(step, time, np.concatenate(pieces), lengths, meta), meta, int(lengths.sum()))
            file.commit()
        self._histograms.clear()
        self._log_committed = self._log_end
        if file.full or file.points >= self._seal_points:
            self._roll()

    def take_back(self) -> None:
        """Forget what was handed over since the last flush, as after a flush that failed."""
        if self._file is not None:
            self._file.abandon()
        self._file = None
        self._histograms.clear()
        self._log_end = self._log_committed

    def sync(self) -> None:
        """Have everything flushed so far on the disk itself."""
        while self._unsynced:
            descriptor = self._unsynced.pop()
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        if self._file is not None and self._file.descriptor >= 0:
            os.fsync(self._file.descriptor)
        if not self._folder_synced:
            sync_folder(self.folder)
            self._folder_synced = True

    def close(self) -> None:
        """Flush, sync and let go of the folder. Closed even if it raises OSError; twice is fine."""
        if self.closed:
            return
        try:
            self.flush()
            if self._file is not None:
                self._roll()
            self.sync()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Close the files and leave the folder without a flush, as if the process had been killed; never raises."""
        self.closed = True
        held = [*self._unsynced, self._lock, self._file.descriptor if self._file else -1]
        self._file, self._lock, self._unsynced = None, -1, []
        for descriptor in held:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    # -- inside -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Any:
        """The open file; if writing to it fails, none of this flush counts."""
        self._open_check()
        try:
            if self._file is None:
                self._prepare_folder()
                self._number += 1
                self._file = OpenFile(self.folder / live_name(self._number), self.rank)
                self._folder_synced = False
            yield self._file
        except BaseException:
            self.take_back()
            raise

    def _open_check(self) -> None:
        if self.closed:
            raise ValueError("the store's writer is closed")

    def _prepare_folder(self) -> None:
        """Make the folder, hold its lock, find the next number. Again if the folder was deleted."""
        path = self.folder / WRITING_LOCK
        if self._lock >= 0:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(self._lock)):
                    return
            os.close(self._lock)
            self._lock = -1
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        for attempt in range(20):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # a sealer looks at the lock for a moment; a writer keeps it
                if attempt < 19:
                    clock.sleep(0.005)
                    continue
                os.close(self._lock)
                self._lock = -1
                reason = "another process writes in this folder"
                raise BlockingIOError(errno.EAGAIN, reason, str(self.folder)) from None
            except OSError:
                pass  # a file system without locks: sealers then leave the newest file alone
            break
        self._number = max([self._number, *(file.last for file in parse_names(os.listdir(self.folder)))])

    def _roll(self) -> None:
        """Close the file; the next block begins another."""
        file, self._file = self._file, None
        if file is None:
            return
        if not file.committed:
            file.abandon()
            return
        file.finish()
        self._unsynced.append(file.descriptor)
        self.sealable += 1
        if len(self._unsynced) > 4:  # nobody calls `sync`: don't collect descriptors
            os.close(self._unsynced.pop(0))

    def _writable(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], list[int] | None]:
        """The names as text that UTF-8 can hold, and the columns to keep if two became the same."""
        if names is self._names_in:
            return self._names_out
        texts = [_text(name) for name in names]
        last = {text: column for column, text in enumerate(texts)}
        if len(last) == len(texts):
            self._names_out = tuple(texts), None
        else:
            self._names_out = tuple(last), list(last.values())
        self._names_in = names
        return self._names_out


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeError:  # a lone surrogate: JSON can carry it, Parquet can not
        return name.encode("utf-8", "backslashreplace").decode()
    return name


# A forked child (a DataLoader's worker) must not hold its parent's files open or write to them.
_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _close_in_child() -> None:
    for writer in list(_writers):
        writer.let_go()


os.register_at_fork(after_in_child=_close_in_child)
