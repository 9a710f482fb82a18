"""Recorder: the typed logger, with any names and numbers, and a store.

In:   `run.log({...})`, wide data, histograms and all the logger's calls.
Out:  records in the run's log file before a call returns, their numbers in the columnar store a
      moment later.
"""

from __future__ import annotations

import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from barograph import place, segments, spool
from barograph.config import Settings
from barograph.logtext import LogFileBusy
from barograph.record import HAS_NUMBERS, Record, encode
from barograph.segments import Segment
from barograph.values import DeviceValues, flatten, on_device, text
from barograph.writing.jsonlog import JsonLog
from barograph.writing.logger import TrainingRunLogger
from barograph.writing.processes import open_runs
from barograph.writing.pump import LONG_QUEUE, Histogram, Logged, Pump, Row
from barograph.writing.shapes import Shapes

_encode = msgspec.json.Encoder().encode
_LAST_STEP = (1 << 63) - 1


class Recorder(TrainingRunLogger):
    """What a `Run` records with: one log file, one pump, one folder in the store."""

    def __init__(
        self, folder: Path, settings: Settings, config: Mapping[str, Any], segment: Segment, callback: Any = None
    ):
        self.dir = folder
        self.id = folder.name
        self.name = settings.name or folder.name
        self.project = settings.project
        self.config = dict(config)
        self.settings = settings
        self.segment = segment
        rank, self.world_size, _ = place.rank()
        self._writer_name = f"r{rank}-{place.host()}-{os.getpid()}-{time.time_ns():x}"
        self._shapes = Shapes(settings.wide_threshold)
        self._next_step = 0
        self._second, self._head = -1, b""
        self._waiting: deque[tuple[DeviceValues, str, int, int]] = deque()  # values, kind, step, moment
        self._finished = False  # its last record is written
        self._ended = False  # and its files are closed
        self.at_finish: list[Callable[[], Any]] = []  # called when the run ends, before its last record
        self.at_end: list[Callable[[], Any]] = []  # called when all is written
        self._finish_lock = threading.RLock()
        self._began = time.monotonic()
        self._clock: Any = None  # a StepClock, once steps or phases are timed
        self._beat: Callable[[int], None] | None = None  # a watchdog's
        self._recorded_problem: BaseException | None = None
        self.watches: list[Any] = []  # of models
        self.position: dict[str, Any] | None = None  # of the data loader, as told last
        log_file = Path(settings.log_file) if settings.log_file else folder / "training.json"
        super().__init__(
            log_file if rank == 0 else log_file.with_name(f"training-{self._writer_name}.json"),
            callback,
            settings.verbosity,
            console=settings.console,
            rank=rank,
            total_steps=settings.total_steps,
            total_tokens=settings.total_tokens,
            strict=settings.strict,
        )
        self._owner = os.getpid()
        self._is_main = rank == 0 and self._log_path == log_file  # the others are further writers
        self._start()
        open_runs.add(self)

    def _open_log(self, path: Path) -> JsonLog:
        own = path.with_name(f"training-{self._writer_name}.json")
        self._carrier: spool.Carrier | None = None
        if place.is_network_filesystem(path.parent):
            try:
                log = JsonLog(spool.prepare(path), self.warn)
            except LogFileBusy:
                path = own
                log = JsonLog(spool.prepare(path), self.warn)
            self._carrier = spool.Carrier(log, path)
            self._log_path = path
            return log
        try:
            log = JsonLog(path, self.warn)
        except LogFileBusy:  # another process writes to this run: each has a file of its own
            log = JsonLog(own, self.warn)
        self._log_path = log.path
        return log

    @property
    def log_file(self) -> Path:
        """Where the records are (or will be, once they are carried over to a network file system)."""
        return self._log_path

    def _start(self) -> None:
        """The thread, the store, and the record that says whose the following records are."""
        self._introduce_writer()
        self._pump = Pump(
            self._open_writer,
            self._log,
            flush_seconds=self.settings.flush_seconds,
            sync_seconds=self.settings.sync_seconds,
            limit_bytes=self.settings.queue_megabytes << 20,
            trouble=self.warn,
            first_step=lambda segment, step: segments.settle(self.dir, segment, step),
        )
        self._queue = self._pump.queue
        if self._carrier is not None:
            self._pump.chores.append(self._carry)
        self._attach()
        who = {"rank": self.rank, "writer": self._writer_name, "host": place.host(), "pid": os.getpid()}
        self._emit("segment", self.segment.start_step or 0, self.segment.fields() | who, checked=True)

    def _attach(self) -> None:
        """Where a Run has its accounts listen, before the first record."""

    def _carry(self) -> None:
        try:
            assert self._carrier is not None
            self._carrier.carry()
        except (OSError, ValueError) as error:
            self.warn(
                f"could not bring records to {self._log_path} ({error}); they are kept in {self._log.path}",
                key="carry",
            )

    def _open_writer(self) -> Any:
        from barograph.store.writer import Writer

        return Writer(
            self._store_folder,
            rank=self.rank,
            seal_points=self.settings.seal_points,
            log_start=self._log_start,
        )

    def _introduce_writer(self) -> None:
        """Say which log file this process writes and from which byte on: readers need both."""
        self._store_folder = self.dir / "store" / self._writer_name
        self._store_folder.mkdir(parents=True, exist_ok=True)
        self._log_start = self._log.position
        about = {
            "log": os.path.relpath(self._log_path, self.dir),
            "log_start": self._log_start,
            "segment": self.segment.number,
            "rank": self.rank,
            "host": place.host(),
            "pid": os.getpid(),
        }
        (self._store_folder / "writer.json").write_bytes(msgspec.json.encode(about) + b"\n")

    def continue_after(self, step: int | None) -> None:
        """Let `log` without a step count on from here."""
        if step is not None:
            self._next_step = max(self._next_step, step + 1)

    # -- any names and numbers ---------------------------------------------------------------------

    def log(self, values: Mapping[Any, Any], step: int | None = None) -> None:
        """Record named numbers at a step (default: one more than the last).

        Numbers may be Python's, NumPy's or torch's; one on an accelerator is read later, without
        waiting for it. Nested mappings are joined with `/`. Strings and None are kept in the log file.
        More than `wide_threshold` names go to the columnar store alone.
        """
        try:
            shape = self._shapes.find(tuple(values))
            if shape is None or not shape.simple:
                self._log_slowly(values, step)
                return
            if shape.wide:
                packed = shape.pack(*values.values())
                self._queue_row(shape.names, self._at(step), time.time_ns() // 1000, packed, 0)
                return
            body = _encode(values)
            if b":null" in body:  # NaN or infinity among them
                self._log_slowly(values, step)
                return
            if type(step) is not int or not 0 <= step <= _LAST_STEP:
                step = self._at(step)
            else:
                self._next_step = step + 1
            microseconds = time.time_ns() // 1000
            second, fraction = divmod(microseconds, 1_000_000)
            if second != self._second:
                self._head = _head_of(second)
                self._second = second
            data = b'%b%06d","step":%d,%b' % (self._head, fraction, step, body[1:])
            log = self._log
            with log.lock:  # the queue in the log's order: the store says how far it covers the log
                end = log.append_locked(data)
                # in a real training the processor's caches are cold here: the thread unpacks the values
                line = (shape.names, step, microseconds, body, self.segment.number, end)
                if len(self._queue) < LONG_QUEUE and not self._pump.dropping:
                    self._queue.append(line)
                else:
                    self._pump.overflow(line)
            if self._callback is not None:
                self._call_back(self._callback, data)
            if self._clock is not None and self._clock.loose:
                self._clock.mark(step)
            if self._beat is not None:
                self._beat(step)
        except Exception:
            try:
                self._log_slowly(values, step)
            except Exception as error:
                self._failed("set of metrics", error)

    def _log_slowly(self, values: Mapping[Any, Any], step: int | None) -> None:
        """Anything that is not plainly a dictionary of known names to finite numbers."""
        if not isinstance(values, Mapping):
            self._odd(f"run.log takes a mapping of names to numbers, not a {type(values).__name__}")
            return
        if self._finished:
            self._odd(f"run {self.id} is finished; what is logged now is not recorded")
            return
        if on_device(values):
            self._defer("metrics", self._at(step), values)
            return
        flat = flatten(values, self._odd)
        if not flat:
            return
        self._shapes.remember(values)
        if len(flat) > self.settings.wide_threshold:
            named = {name: value for name, value in flat.items() if isinstance(value, (int, float))}
            if len(named) < len(flat):
                self._odd("a wide record holds only numbers; its other values were left out")
            self.log_wide(named, step)
        else:
            self._emit("metrics", self._at(step), flat, checked=True)

    def _defer(self, kind: str, step: int, values: Mapping[Any, Any]) -> bool:
        """Values on an accelerator are copied without waiting, and recorded by the pump once they are here."""
        if not on_device(values):
            return False
        self._waiting.append((DeviceValues(values), kind, step, time.time_ns() // 1000))
        self.at_each_round(self._read_device_values)
        return True

    def _read_device_values(self) -> None:
        """In the pump's thread: record what has arrived from the accelerator, in order."""
        while self._waiting and self._waiting[0][0].ready():
            arrived, kind, step, moment = self._waiting.popleft()
            self._emit(kind, step, flatten(arrived.values, self._odd), checked=True, moment=moment)

    def at_each_round(self, chore: Callable[[], Any]) -> None:
        """Have the pump's thread call `chore` some times a second. It must not wait for anything."""
        if chore not in self._pump.chores:
            self._pump.chores.append(chore)

    def _at(self, step: Any, advance: bool = True) -> int:
        whole: int = self._coming if step is None else self._step(step)
        if advance:
            self._next_step = whole + 1
        return whole

    @property
    def _coming(self) -> int:
        return min(self._next_step, _LAST_STEP)

    @property
    def next_step(self) -> int:
        """The step that `log` without a step would take."""
        return self._next_step

    @property
    def current_step(self) -> int:
        """The step that was begun or logged last; 0 before the first."""
        return max(0, self._next_step - 1)

    # -- wide data: the columnar store alone ---------------------------------------------------------

    def log_wide(self, values: Mapping[str, float], step: int | None = None, *, advance: bool = True) -> None:
        """Thousands of named numbers at a step. They reach the disk within `flush_seconds`.

        advance: `log` without a step counts on from here; not for what comes late, or from another thread."""
        try:
            names = tuple(values)
            shape = self._shapes.find(names)
            if shape is None or not shape.wide:
                if any(type(name) is not str for name in names):
                    values = flatten(values, self._odd)
                    names = tuple(values)
                shape = self._shapes.add(names, False, True)
            packed = shape.pack(*values.values())
            self._queue_row(shape.names, self._at(step, advance), time.time_ns() // 1000, packed, 0)
        except Exception as error:
            if isinstance(values, Mapping):
                self._failed("wide record", error)
            else:
                self._odd(
                    f"run.log_wide takes ({{name: number, …}}, step), and the first is of type {type(values).__name__}"
                )

    def log_layers(
        self, step: int, layers: Mapping[str, Mapping[str, float]], prefix: str = "layers", *, advance: bool = True
    ) -> None:
        """Statistics by layer: `{layer: {statistic: value}}` becomes series `{prefix}/{layer}/{statistic}`.
        advance: as for `log_wide`."""
        try:
            shape = self._shapes.of_table(prefix, layers)
            packed = shape.pack(*[value for statistics in layers.values() for value in statistics.values()])
            self._queue_row(shape.names, self._at(step, advance), time.time_ns() // 1000, packed, 0)
        except Exception as error:
            if isinstance(layers, Mapping) and all(isinstance(row, Mapping) for row in layers.values()):
                self._failed("layer table", error)
            else:
                self._odd("run.log_layers takes (step, {layer: {statistic: number}}); what was given is not recorded")

    def log_expert_loads(
        self, step: int, loads: Mapping[str, Sequence[float]], prefix: str = "moe", *, advance: bool = True
    ) -> None:
        """Tokens by expert: `{layer: [load, …]}` becomes series `{prefix}/{layer}/load/{expert}`.
        advance: as for `log_wide`."""
        try:
            table = {
                f"{layer}/load": {str(expert): float(load) for expert, load in enumerate(row)}
                for layer, row in loads.items()
            }
            self.log_layers(step, table, prefix, advance=advance)
        except Exception as error:
            if isinstance(loads, Mapping) and all(hasattr(row, "__len__") for row in loads.values()):
                self._failed("set of expert loads", error)
            else:
                self._odd("run.log_expert_loads takes (step, {layer: [load, …]}); what was given is not recorded")

    def log_histogram(
        self,
        name: str,
        values: Any,
        step: int | None = None,
        *,
        edges: Any = None,
        bins: int = 64,
        advance: bool = True,
    ) -> None:
        """A distribution: raw `values` of any shape, counted into `bins` later by another thread; or, with
        `edges` (n + 1 of them), n counts. Non-finite values are left out. advance: as for `log_wide`."""
        try:
            import numpy

            if hasattr(values, "detach"):
                values = values.detach().float().cpu().numpy()
            array = numpy.array(values, numpy.float64 if edges is not None else None, copy=True)
            if array.dtype.kind not in "biuf":
                self._odd(f"the histogram {text(name)[:60]!r} takes real numbers; what was given is not recorded")
                return
            bins = operator.index(bins)
            if bins < 1:
                raise ValueError(f"a histogram needs one bin or more, not {bins}")
            borders = None if edges is None else numpy.array(edges, numpy.float64)
            if borders is not None and len(borders) != array.size + 1:
                raise ValueError(f"{array.size} counts need {array.size + 1} edges, not {len(borders)}")
            at, now = self._at(step, advance), time.time_ns() // 1000
            item = Histogram(text(name), at, now, borders, array, self.segment.number)
            self._enqueue(item._replace(edges=bins) if borders is None else item)
        except Exception as error:
            self._failed("histogram", error)

    # -- one way to the store -------------------------------------------------------------------------

    def _collect(self, made: Record, end: int) -> None:
        if made.kind in ("step", "eval", "speed"):
            self._next_step = max(self._next_step, made.step + 1)
            if self._beat is not None and made.kind != "eval":
                self._beat(made.step)
        if made.kind in HAS_NUMBERS or self._pump.listeners:
            self._enqueue(Logged(made, self.segment.number, end))
        if made.kind in ("step", "metrics") and self._clock is not None and self._clock.loose:
            self._clock.mark(made.step)

    def _queue_row(self, names: tuple[str, ...], step: int, microseconds: int, packed: bytes, end: int) -> None:
        self._enqueue(Row(names, step, microseconds, packed, self.segment.number, end))

    def _enqueue(self, item: Row | Histogram | Logged) -> None:
        in_log = type(item) is Logged
        if self._finished and not in_log:
            self._odd(f"run {self.id} is finished; what is logged now is not recorded")
            return
        narrow = in_log or (type(item) is Row and len(item.packed) < 1000)
        if len(self._queue) < (LONG_QUEUE if narrow else 500) and not (in_log and self._pump.dropping):
            self._queue.append(item)
        else:
            self._pump.overflow(item)


def _head_of(second: int) -> bytes:
    return encode(Record("metrics", second * 1_000_000, 0, {})).partition(b".")[0] + b"."
