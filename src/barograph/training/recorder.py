"""Recorder: what a Run records with. One log file, its block files, one segment after another.

In:   records and rows from the run's calls and from probes, on any thread.
Out:  narrow records in the log, wide rows and histograms in the block files, both before a call returns; once a
      second, on the thread that logs, what has to be looked after.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barograph.core import place, segments
from barograph.core.handlers import from_signal_handler
from barograph.core.options import Settings
from barograph.core.record import Record, encode
from barograph.core.segments import Segment
from barograph.core.values import flatten, on_device
from barograph.log.write import JsonLog
from barograph.training.console.console import Console
from barograph.training.emitter import Emitter, LazyLog, NoLog
from barograph.training.keeping import RunFolder
from barograph.training.later import Later
from barograph.training.logfile import OpenLog, open_log
from barograph.training.shapes import Shapes
from barograph.training.wide import WideRows


class Recorder(Emitter):
    """What probes see of a run as well: `probes.recording.Recording`.

    Attributes: `dir`, `id`, `settings`, `segment`, `rank`, `world_size`, `writer` (the process's name in the run),
    `log_path` (where the records are, or will be on a network file system), `stem` (of its files in the folder).
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        segment: Segment,
        callback: Callable[[str], Any] | None = None,
        next_step: int = 0,
        file: OpenLog | None = None,
    ):
        self.dir, self.id = folder, folder.name
        self.settings, self.segment = settings, segment
        self.rank, self.world_size, self.local_rank = place.rank()
        console = Console(
            verbosity=int(settings.verbosity),
            style=settings.console,
            rank=self.rank,
            total_steps=settings.total_steps,
            total_tokens=settings.total_tokens,
        )
        super().__init__(None, console, callback, settings.strict)
        self.shapes = Shapes(settings.wide_threshold, self.warn)
        self.next_step = next_step
        self.after = self._took
        self.second, self.head = -1, b""
        self.lasts: dict[tuple[str, int], Record] = {}  # typed records, the last of each kind and size
        self.clock: Any = None  # a StepClock, once steps or phases are timed
        self.finished = False  # what is logged now is refused, but for what comes late:
        self.closed = False  # the last record is written, so that is refused too
        self.at_finish: list[Callable[[], Any]] = []  # called when the run ends, before its last record
        self.at_end: list[Callable[[], Any]] = []  # called when all is written
        self.waits: list[Callable[[float], bool]] = []  # write what waits, within some seconds
        self.each_second: list[Callable[[], Any]] = []  # called by a log call, about once a second
        self.later = Later(self._write_late, self.warn)
        self.at_each_round = self.later.each_round
        self.writer = _new_writer(self.rank)
        self.file = file = file or open_log(folder, settings, self.rank, self.writer, self.warn)
        self.log, self.log_path, self.stem, self.is_main = file.log, file.path, file.stem, file.main
        if file.carrier is not None:
            self.later.each_round(self._carry)
        self.wide = WideRows(self)
        if isinstance(self.log, NoLog):
            self.wide.blocks.close()
        self.log_layers, self.log_histogram = self.wide.layers, self.wide.histogram
        self.folder = RunFolder(self)
        self.each_second.append(self._look_after)
        self.opening = Opening(self)
        self.opening.introduce()

    # -- files ----------------------------------------------------------------------------------------

    def _carry(self) -> None:
        carrier = self.file.carrier
        try:
            if carrier is not None:
                carrier.carry()
        except (OSError, ValueError) as error:
            self.warn(
                f"could not bring records to {self.log_path} ({error}); they are kept in {self.log.path}", key="carry"
            )

    def begin(self, segment: Segment, step: int) -> None:
        """A new segment of this process: what follows belongs to it."""
        self.segment, self.next_step, self.opening.unsettled = segment, step, False
        self.lasts = {key: record for key, record in self.lasts.items() if record.step < step}
        self.shapes.rewind(step)
        self.routed.clear()
        self.opening.emit(step)

    def ready(self) -> None:
        """Before a block: a forked child's log has to be there, with its segment, first."""
        if isinstance(self.log, LazyLog) and not isinstance(self.log, NoLog):
            self.log.open()

    # -- what every record passes ------------------------------------------------------------------------

    def emit(self, *arguments: Any, **named: Any) -> None:
        """See `Emitter.emit`; after the end of the run it is refused."""
        if self.closed and self.log.closed:
            self.refuse()
        else:
            super().emit(*arguments, **named)

    def _took(self, record: Record, end: int) -> None:
        kind = record.kind
        if kind in ("step", "eval", "speed"):
            self.next_step = max(self.next_step, record.step + 1)
        if kind in ("step", "eval"):
            self.lasts[kind, len(record.fields)] = record
        if kind in ("step", "metrics") and self.clock is not None and self.clock.loose:
            self.clock.mark(record.step)
        if self.opening.unsettled and kind in ("step", "eval", "metrics"):
            self.opening.settle(record.step)  # may be below `next_step`: a loop goes on from its checkpoint
        if not self.opening.unsettled:
            self.tick(record.time // 1_000_000)

    def tick(self, second: int) -> None:
        """A call of this second: the first of it looks after the files and what else there is."""
        if second == self.second:
            return
        self.second = second
        self.head = encode(Record("metrics", second * 1_000_000, 0, {})).partition(b".")[0] + b"."
        if self.finished:
            return
        if self.opening.unsettled:
            self.opening.settle(self.current_step)
        for chore in tuple(self.each_second):
            try:
                chore()
            except Exception as error:
                if from_signal_handler(error):
                    raise
                self.warn(f"a background task failed with {type(error).__name__}: {error}")

    def _look_after(self) -> None:
        """Records that wait for the disk are tried again; files that were deleted are written again."""
        if self.log.waiting:
            self.log.retry()
        if self.wide.blocks.waiting:
            self.wide.blocks.retry()
        self.folder.look()

    # -- steps ----------------------------------------------------------------------------------------------

    def at(self, step: Any, advance: bool = True) -> int:
        """The step that is meant: the one given, or the coming one; the count goes on from there."""
        number: int = self.coming if step is None else self.step_of(step)
        if advance:
            self.next_step = number + 1
        return number

    @property
    def log_file(self) -> Path:
        """The file that is written now; on a network file system a copy of this machine's own."""
        path: Path = self.log.path
        return path

    @property
    def current_step(self) -> int:
        """The step that was begun or logged last; 0 before the first."""
        return max(0, self.next_step - 1)

    def refuse(self) -> None:
        """The run is finished: say that nothing is recorded any more."""
        self.odd(f"run {self.id} is finished; what is logged from now on is not recorded")

    # -- values on an accelerator ------------------------------------------------------------------------------

    def defer(self, kind: str, step: Any, values: Mapping[Any, Any]) -> bool:
        """Whether the record is written later, because some of its values are on an accelerator."""
        if not on_device(values):
            return False
        self.later.values(values, kind, self.step_of(step))
        return True

    def _write_late(self, kind: str, step: int, values: Mapping[Any, Any], moment: int) -> None:
        try:
            flat = flatten(values, self.odd)
            if kind == "metrics" and len(flat) > self.settings.wide_threshold:
                self.wide.row(flat, step, advance=False)
                return
            if kind != "metrics":
                flat = {name: value for name, value in flat.items() if value is not None}
            self.emit(kind, step, flat, checked=True, moment=moment)
        except Exception as error:
            self.failed("value from a device", error)

    def flush(self, timeout: float | None = 10.0) -> bool:
        """Wait for values that are still on a device and for images and tables, at most so long; all else is written
        when a call returns."""
        try:
            deadline = time.monotonic() + (3600.0 if timeout is None else float(timeout))
            done = self.later.wait(deadline - time.monotonic())
            return all([wait(deadline - time.monotonic()) for wait in self.waits]) and done
        except Exception as error:
            self.failed("flush", error)
            return False

    # -- a forked child -------------------------------------------------------------------------------------------

    def forked(self) -> None:
        """In a forked child: the parent's files are the parent's; ours are opened at the first record."""
        self.log.abandon()
        self._owner = os.getpid()
        self.is_main = False
        self.writer = _new_writer(self.rank)
        path = self.dir / f"training-{self.writer}.json"
        self.log_path, self.stem = path, path.stem

        def opened(log: JsonLog) -> None:
            self.log = log
            self.opening.introduce()

        if not isinstance(self.log, NoLog):
            self.log = LazyLog(path, self.warn, opened)
        self.shapes = Shapes(self.settings.wide_threshold, self.warn)
        self.later.forget()
        self.wide.forked()
        self.clock = None
        self.each_second = [self._look_after]
        self.at_finish, self.at_end = [], []  # the parent's probes stop in the parent
        self.lock = threading.RLock()


class Opening:
    """The record with which each process, and each segment of it, begins in a log: whose the following records are.

    Attributes: `unsettled`: the segment goes on with an earlier one, and its first step is not known yet.
    """

    def __init__(self, recorder: Recorder):
        self._out = recorder
        self.unsettled = False

    def introduce(self) -> None:
        """The first record of a process in a log."""
        out, start = self._out, self._out.segment.start_step
        self.unsettled = start is None and out.segment.parent is not None
        self.emit(out.next_step if start is None else start)
        out.second = -1  # so that the first record of a step looks after things

    def emit(self, step: int) -> None:
        """The record of the recorder's segment, with who writes."""
        out = self._out
        writes = {
            "run": out.id,
            "rank": out.rank,
            "world_size": out.world_size,
            "writer": out.writer,
            "host": place.host(),
            "pid": os.getpid(),
            "folder": str(out.dir.absolute()),
        }
        out.emit("segment", step, out.segment.fields() | writes, checked=True)

    def settle(self, step: int) -> None:
        """The first step that a resumed segment logs is where it begins."""
        out = self._out
        self.unsettled = False
        if out.is_main:
            with contextlib.suppress(OSError):
                segments.settle(out.dir, out.segment.number, step)
            out.segment = out.segment._replace(start_step=step)


def _new_writer(rank: int) -> str:
    return f"r{rank}-{place.host()}-{os.getpid()}-{time.time_ns():x}"
