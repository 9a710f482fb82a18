"""The one background thread: rows of numbers go to the columnar store, files reach the disk.

In:   rows and histograms that log calls leave in a queue, without waiting for anybody.
Out:  the store's files; a log file synced every few seconds; sealing, in a process of its own.

The queue is bounded. Rows that stand in the log file too are dropped when it is full, and read
back from the file once there is time; rows that stand nowhere else (wide ones) are kept as long
as memory allows, and a sentence counts those that were lost.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from barograph.logtext import records_from
from barograph.record import Record, numbers
from barograph.writing.jsonlog import JsonLog

_decode = msgspec.json.Decoder(dict[str, Any]).decode

if TYPE_CHECKING:
    from barograph.store.writer import Writer

LONG_QUEUE = 8192  # rows; more wake the thread before its time
MOST_ROWS = 200_000
SEAL_HERE_POINTS = 500_000  # at the end of a run, more than this is sealed by a process of its own
_POLL_SECONDS = 0.25
_MOST_PAUSE = 60.0
_MOST_LAST = 1000  # series in `last`
_MOST_NAMES = 1000  # sets of names, so that a loop that invents them does not grow the process


class Row(NamedTuple):
    """The numbers of one record: `packed` holds one little-endian double a name."""

    names: tuple[str, ...]
    step: int
    time: int
    packed: bytes
    segment: int
    log_end: int  # byte of the log file behind the record; 0 if the record is not in it


class Histogram(NamedTuple):
    """A distribution: `counts[i]` values between `edges[i]` and `edges[i + 1]`."""

    name: str
    step: int
    time: int
    edges: Any
    counts: Any
    segment: int


class Logged(NamedTuple):
    """A record that stands in the log file up to byte `log_end`; its numbers are taken out by the pump."""

    record: Record
    segment: int
    log_end: int


Line = tuple[tuple[str, ...], int, int, bytes, int, int]
"""A row as `run.log` leaves it: Row's fields, the values as the JSON object that they were encoded to."""


class Listener(Protocol):
    """Gets the records of the log file, in its order, in the pump's thread; and, if it has `take_row`, numbers."""

    def take(self, record: Record) -> None:
        """A record."""

    def settle(self) -> None:
        """All that waited has been given; called about once in `flush_seconds`."""


@runtime_checkable
class RowListener(Listener, Protocol):
    """A listener that wants the numbers too, those of wide rows among them."""

    def take_row(self, names: tuple[str, ...], values: tuple[float, ...], step: int, time: int, segment: int) -> None:
        """The numbers of one record, or of a wide row; `time` in µs since 1970."""


class Pump:
    """Owns the thread and the store's writer. `queue.append` is all that a log call does."""

    def __init__(
        self,
        open_writer: Callable[[], Writer],
        log: JsonLog,
        *,
        flush_seconds: float = 1.0,
        sync_seconds: float = 5.0,
        limit_bytes: int = 256 << 20,
        trouble: Callable[[str], None] = lambda sentence: None,
        first_step: Callable[[int, int], None] = lambda segment, step: None,
    ):
        self.queue: deque[Row | Histogram | Logged | Line] = deque()
        self.chores: list[Callable[[], Any]] = []  # called once a round, such as a spool's carrier
        self.listeners: list[Listener] = []
        self.row_listeners: list[RowListener] = []  # of the listeners, those that want the numbers too
        self.dropping = False  # the queue was full: rows of the log file are read back from it
        self.lost_rows = 0
        self.last: dict[str, float] = {}  # value of each series of steps, evaluations and rows of a few names
        self._open_writer = open_writer
        self._writer: Writer | None = None
        self._log = log
        self._flush_seconds, self._sync_seconds = flush_seconds, sync_seconds
        self._limit_bytes = limit_bytes
        self._trouble = trouble
        self._first_step = first_step  # told each segment's first logged step
        self._held: list[Row | Histogram] = []  # taken from the queue, not yet in the store
        self._segment = 1  # of the last row in the store
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._covered = log.position  # byte of the log file up to which the store has everything
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # unlike an event, safe in a signal handler
        self._told = 0  # byte of the log file up to which the listeners have everything
        self._pause = self._retry_at = 0.0  # seconds until a store that could not be written is tried again, and when
        self._settled: set[int] = set()  # segments whose first step was told
        self._stopping = self._ended = False
        self._round_lock = threading.Lock()
        self._at_work = 0  # the thread that is in a flush
        self._flushed_at = self._synced_at = time.monotonic()
        self._sealers: list[subprocess.Popen[bytes]] = []
        self._complained: set[str] = set()
        self._thread = threading.Thread(target=self._work, name="barograph", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def overflow(self, row: Row | Histogram | Logged | Line) -> None:
        """The queue is long: called by a log call instead of appending."""
        self.wake()
        in_log = isinstance(row, Logged) or (not isinstance(row, Histogram) and row[5] > 0)
        if in_log and len(self.queue) < MOST_ROWS and not self.dropping:
            self.queue.append(row)
        elif in_log:
            self.dropping = True
        elif self._waiting_bytes() < self._limit_bytes:
            self.queue.append(row)
        else:
            self.lost_rows += 1
            self._complain("the store can't keep up; the newest wide rows are being left out")

    def _waiting_bytes(self) -> int:
        first = self.queue[0] if self.queue else None
        return len(self.queue) * (len(first.packed) + 200 if isinstance(first, Row) else 2000)

    def flush(self, timeout: float | None = 10.0) -> bool:
        """Have everything logged so far in the store's files; False if it took longer than `timeout`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self.at_work_here or not self._round_lock.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._at_work = threading.get_ident()
        try:
            self._round(flush=True, forced=True)
            return deadline is None or time.monotonic() <= deadline
        finally:
            self._at_work = 0
            self._round_lock.release()

    @property
    def at_work_here(self) -> bool:
        """Whether this very thread is in a flush, which a signal handler has interrupted."""
        return self._at_work == threading.get_ident()

    def stop(self, timeout: float = 10.0) -> bool:
        """Have the thread write what waits, close the store's file and seal. False if that takes longer: because of
        a stuck disk, or of a flush that waits for this signal handler. The thread does it when it can."""
        self._stopping = True
        self.wake()
        if self.at_work_here:
            atexit.register(self._thread.join, timeout)
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _end(self) -> None:
        self._guard(self._round, True, True)
        self._ended = True
        self.lost_rows += sum(isinstance(row, Histogram) or not row.log_end for row in self._held)
        self._held.clear()
        self._guard(self._close_writer)

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            points = writer.points_in_file
            writer.close()
            from barograph.store.seal import seal

            # nobody comes after the last sealing: while another is at work it needs a process that waits
            if points > SEAL_HERE_POINTS or seal(writer.folder, closed=True) is None:
                self._start_sealer(writer.folder, closed=True)
        except OSError as error:
            self._complain(f"could not close the store ({error.strerror or error}); what was flushed is there")

    # -- the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping:
            woken = False
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=_POLL_SECONDS)
                woken = True
            with self._round_lock:
                try:
                    self._round(flush=woken or time.monotonic() - self._flushed_at >= self._flush_seconds)
                except Exception as error:  # a thread that dies would lose all that follows
                    self._complain(f"the store's thread met {type(error).__name__}: {error}")
        with self._round_lock:
            self._end()

    def _round(self, flush: bool, forced: bool = False) -> None:
        if self._ended:
            return
        for chore in tuple(self.chores):
            self._guard(chore)
        if flush:
            self._flushed_at = time.monotonic()
            if forced or self._flushed_at >= self._retry_at:
                self._take()
                if self._held or self.dropping:
                    self._store()
            for listener in self.listeners if not self._log.closed else ():
                self._guard(listener.settle)
        self._log.retry()
        if time.monotonic() - self._synced_at >= self._sync_seconds or self._stopping:
            self._log.restore_if_deleted()
            self._log.sync()
            if self._writer is not None:
                with contextlib.suppress(OSError):
                    self._writer.sync()
            self._synced_at = time.monotonic()

    def _guard(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._complain(f"a background task met {type(error).__name__}: {error}")

    def wake(self) -> None:
        """Have a round now, with a flush."""
        if self._wake.empty():
            self._wake.put(None)

    def _take(self) -> None:
        """Move the queue's rows to `_held`; read back from the log file what the queue could not hold."""
        waiting, held = self.queue, self._held
        ready = len(waiting)  # before the log is asked: a record that it could not write is not among these
        self.dropping = self.dropping or self._log.waiting
        if self.dropping:
            with self._log.lock:
                # rows that stand, or will stand, in the log file are read from there
                rows = (item for item in waiting if isinstance(item, (Row, Histogram)))
                kept = [item for item in (*held, *rows) if isinstance(item, Histogram) or not item.log_end]
                waiting.clear()
                held[:] = kept
                until = self._log.position
                self.dropping = self._log.waiting
            if not self.dropping:
                held.extend(self._read_back(until))
                ready = len(waiting)
        with contextlib.suppress(IndexError):
            for _ in range(ready):
                item = waiting.popleft()
                row = item if isinstance(item, (Row, Histogram)) else self._row(item, tell=True)
                if row is None:
                    continue
                held.append(row)
                if isinstance(row, Row):
                    self._tell(row)

    def listen(self, listener: Listener) -> None:
        """Give a listener what comes from now on; called before the first record."""
        self.listeners.append(listener)
        if isinstance(listener, RowListener):
            self.row_listeners.append(listener)

    def _tell(self, row: Row) -> None:
        if not self.row_listeners:
            return
        values = struct.unpack(f"<{len(row.names)}d", row.packed)
        for listener in self.row_listeners:
            self._guard(listener.take_row, row.names, values, row.step, row.time, row.segment)

    def _read_back(self, until: int) -> Iterable[Row]:
        segment = self._segment
        for record, end in records_from(self._log.path, self._covered):
            if end > until:
                return
            if record.kind == "segment":
                segment = int(record.fields.get("segment", segment))
            told = end <= self._told  # before the store failed
            row = self._row(Logged(record, segment, end), tell=not told)
            if row is not None:
                if not told:
                    self._tell(row)
                yield row

    def _row(self, item: Logged | Line, tell: bool) -> Row | None:
        """The numbers of what stands in the log file; None if it has none. Equal names are one tuple."""
        if isinstance(item, Logged):
            record, segment, log_end = item
            named = dict(numbers(record))
            step, moment = record.step, record.time
            names, values = tuple(named), list(named.values())
            if record.kind in ("step", "eval", "metrics"):
                self._remember(named)
        else:
            names, step, moment, body, segment, log_end = item
            fields = _decode(body)
            self._remember(fields)
            values = list(fields.values())
            record = Record("metrics", moment, step, fields)
        if tell:
            self._told = max(self._told, log_end)
            for listener in self.listeners:
                self._guard(listener.take, record)
        try:
            packed = struct.pack(f"<{len(names)}d", *values)
        except struct.error:  # a name that held numbers before holds text this time
            kept = {n: v for n, v in zip(names, values, strict=True) if isinstance(v, (int, float))}
            names, packed = tuple(kept), struct.pack(f"<{len(kept)}d", *kept.values())
        if not names:
            return None
        if len(self._names) > _MOST_NAMES:
            self._names.clear()
        return Row(self._names.setdefault(names, names), step, moment, packed, segment, log_end)

    def _remember(self, named: dict[str, float]) -> None:
        if len(named) <= _MOST_LAST - len(self.last) or named.keys() <= self.last.keys():
            self.last.update(named)

    def _store(self) -> None:
        """Hand what is held to the writer, neighbours of the same names in one block."""

        try:
            if self._writer is None:
                self._writer = self._open_writer()
            self._settle_segments()
            try:
                self._write_items(self._writer, self._held)
            except (OSError, MemoryError):
                raise
            except Exception:
                self._write_one_by_one(self._writer)
            del self._held[:]
            if self._writer.sealable:
                self._writer.sealable = 0
                self._start_sealer(self._writer.folder, closed=False)
            self._complained.discard("disk")
            self._pause = self._retry_at = 0.0
        except (OSError, MemoryError) as error:
            if "disk" not in self._complained:
                self._complained.add("disk")
                reason = getattr(error, "strerror", None) or str(error) or "no memory"
                self._trouble(f"could not write the store ({reason}); training goes on, the log file keeps the records")
            if self._writer is not None:
                self._writer.take_back()
            # what is tried again is read back from the log file, all of it: less and less often
            self._pause = min(max(2 * self._pause, self._flush_seconds), _MOST_PAUSE)
            self._retry_at = time.monotonic() + self._pause
            self._let_go()

    def _settle_segments(self) -> None:
        """Tell each new segment's first step; a disk that refuses that is asked again, and holds up no row."""
        with contextlib.suppress(OSError):
            for new in {item.segment for item in self._held} - self._settled:
                self._first_step(new, min(item.step for item in self._held if item.segment == new))
                self._settled.add(new)

    def _write_one_by_one(self, writer: Writer) -> None:
        """After an error that is not the disk's: what the store can't take is left out, and holds up nothing else."""
        writer.take_back()
        while self._held:
            try:
                self._write_items(writer, self._held[:1])
            except (OSError, MemoryError):
                raise
            except Exception as error:
                writer.take_back()
                self.lost_rows += 1
                self._complain(f"the store can't take a row ({type(error).__name__}: {error}); it is left out")
            del self._held[0]

    def _write_items(self, writer: Writer, items: list[Row | Histogram]) -> None:
        """Rows of the same names in one block; the last one says how far the log file is covered.
        The flush makes all of it count, or nothing."""
        import numpy

        groups: dict[tuple[int, int], list[Row]] = {}
        log_end, segment = self._covered, self._segment
        for item in items:
            segment = item.segment
            if isinstance(item, Histogram):
                edges, counts = item.edges, item.counts
                if isinstance(edges, int):
                    counts, edges = _count(counts, edges)
                writer.write_histogram(item.name, item.step, item.time, edges, counts, item.segment)
            else:
                groups.setdefault((id(item.names), item.segment), []).append(item)
                log_end = max(log_end, item.log_end)
        for number, rows in enumerate(groups.values(), 1):
            names = rows[0].names
            writer.write_points(
                names,
                numpy.array([row.step for row in rows], numpy.int64),
                numpy.array([row.time for row in rows], numpy.int64),
                numpy.frombuffer(b"".join([row.packed for row in rows]), "<f8").reshape(len(rows), len(names)),
                segment=rows[0].segment,
                log_end=log_end if number == len(groups) else -1,
            )
        writer.flush()
        self._covered, self._segment = log_end, segment

    def _let_go(self) -> None:
        """After a failed write: keep wide rows while memory allows, leave the others to the log file."""
        kept = [row for row in self._held if isinstance(row, Histogram) or not row.log_end]
        if len(kept) < len(self._held):
            self.dropping = True
        most = max(1, self._limit_bytes // 4000)
        self.lost_rows += max(0, len(kept) - most)
        self._held[:] = kept[-most:]

    def _start_sealer(self, folder: Any, closed: bool) -> None:
        self._sealers = [sealer for sealer in self._sealers if sealer.poll() is None]
        command = [sys.executable, "-m", "barograph.store.seal", str(folder)]
        with contextlib.suppress(OSError):  # no process to be had: `barograph gc` seals later
            self._sealers.append(
                subprocess.Popen(
                    command + (["--closed"] if closed else []),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )

    def _complain(self, sentence: str) -> None:
        if sentence not in self._complained:
            self._complained.add(sentence)
            self._trouble(sentence)


def _count(values: Any, bins: int) -> tuple[Any, Any]:
    """Counts and edges of raw values, the non-finite ones left out. Values between which no edges fit are one bin."""
    import numpy

    flat = numpy.ravel(values).astype(numpy.float64)
    finite = flat[numpy.isfinite(flat)]
    try:
        with numpy.errstate(all="ignore"):
            counts, edges = numpy.histogram(finite, bins)
    except ValueError:  # too near to each other, or so far apart that their distance is no number
        counts, edges = numpy.array([finite.size]), numpy.array([finite.min(), finite.max()])
    return counts, edges
