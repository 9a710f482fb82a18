"""The end of a run in its process: finish, exceptions, signals, the interpreter's exit, forked children.

In:   open runs, which put themselves into `open_runs`; what is on its way when one is finished.
Out:  an `end` record with how it ended, closed files, the manifest's last state.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.core import manifest
from barograph.core.record import format_time, numbers, restore_non_finite
from barograph.core.values import text
from barograph.log import spool
from barograph.log.write import JsonLog, take_waiting
from barograph.training.alerting import RunAlerts
from barograph.training.blackbox import crash
from barograph.training.blackbox.box import BlackBox
from barograph.training.emitter import LazyLog
from barograph.training.probing import RunModel
from barograph.training.recorder import Recorder
from barograph.training.shapes import Shapes

if TYPE_CHECKING:
    from barograph.training.run import Run

_MOST_FINAL = 1000  # series whose last value is in the manifest
_MOST_TRACE = 20_000  # characters
_LAST_VALUES = 0.5  # of the timeout: for values that are still on a device

open_runs: set[Any] = set()


class RunEnding:
    """The end of one run. `guard`ed by `crash`: `ended_by`, `terminated`, `killed`."""

    def __init__(self, run: Run, recorder: Recorder, alerts: RunAlerts, model: RunModel):
        self._run, self._out, self._alerts, self._model = run, recorder, alerts, model
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._began = time.monotonic()
        self._before = sys.exc_info()[1]  # an exception that is being handled already is none of the run's
        self._said = self._ended = False  # the last record is written; the files are closed
        self._final: dict[str, float] = {}
        self._problem: BaseException | None = None
        self._signal: str | None = None
        self._at_exit = False  # the interpreter's exit ends it, whose code is not known here
        self.wall_before = 0.0  # seconds of the run's earlier processes
        self.program: dict[str, Any] = {}  # how the program ended that the run is of
        self.blackbox: Any = None
        self.on_end: list[Any] = []
        if recorder.settings.blackbox:
            self.blackbox = BlackBox(recorder, recorder.settings.blackbox_steps, watches=model.watches)
            self.blackbox.at_crash.append(run.data.flush)  # the batch of the step that failed
            recorder.each_second.append(self.blackbox.settle)
            alerts.on_request("black_box", self.blackbox.asked)
        run._steps.on_problem.append(self.ended_by)
        crash.guard(self)

    @property
    def began(self) -> float:
        """When the run began, by the monotonic clock."""
        return self._began

    @property
    def is_here(self) -> bool:
        """Whether the run is open, and this process's own."""
        return not self._ended and os.getpid() == self._owner

    # -- what ends it --------------------------------------------------------------------------------------

    def ended_by(self, problem: BaseException | None) -> None:
        """An exception is on its way out of a step or of the run: what it takes to understand it is recorded."""
        if problem is None or problem is self._problem or isinstance(problem, (KeyboardInterrupt, SystemExit)):
            return
        self._problem = problem
        self._model.ended_by(problem)
        if self.blackbox is not None:
            with contextlib.suppress(Exception):
                self.blackbox.ended_by(problem)

    def terminated(self, at_rest: bool) -> None:
        """SIGTERM has come; the process may go on, where a handler of the user's own says so. at_rest: nobody trains
        meanwhile."""
        if self.blackbox is not None:
            self.blackbox.terminated(at_rest)

    def killed(self, name: str) -> None:
        """A signal ends the process at once."""
        self._signal = name
        self.finish("terminated", 2.0)

    def leave(self, problem: BaseException | None) -> None:
        """The block of `with run:` is left."""
        if problem is not None:
            self.ended_by(problem)
        self.finish(None, 10.0, problem)

    def exits(self) -> None:
        """The interpreter ends. An exception that ended the program has left its trace in `sys`; of `sys.exit` nothing
        is left there, so the process beside the training says it where the exit code is not 0."""
        problem = getattr(sys, "last_value", None)
        self._at_exit = problem is None
        self.finish(None, 10.0, problem)

    def finish(self, status: str | None, timeout: Any = 10.0, problem: BaseException | None = None) -> None:
        """See `Run.finish`. problem: the exception that ended it; found out where it is not given."""
        with self._lock:
            if self._ended or os.getpid() != self._owner:
                return
            out = self._out
            if isinstance(out.log, LazyLog):  # a forked child that logged nothing
                self._ended = out.finished = out.closed = True
                return
            if problem is None and status is None:
                problem = self._on_its_way()
            seconds = timeout if isinstance(timeout, (int, float)) and timeout == timeout else 10.0
            try:
                with out.log.set_free():
                    self._finish(status or _status_of(problem), float(seconds), problem)
            except Exception as error:
                self._ended = out.finished = out.closed = True
                out.failed("finish", error)

    def _on_its_way(self) -> BaseException | None:
        """The exception in flight, in a `finally` say; not one that was being handled when the run began."""
        found = sys.exc_info()[1]
        return None if found is self._before else found

    # -- the end -------------------------------------------------------------------------------------------

    def _finish(self, status: str, timeout: float, problem: BaseException | None) -> None:
        """Each part may be interrupted by a signal whose handler calls `finish` too, and then leaves or returns."""
        out, deadline = self._out, time.monotonic() + timeout
        if not out.finished:
            out.finished = True  # calls of other threads are refused from here on; what probes still hold is taken
            self._final = self._final_metrics()
            out.shapes = Shapes(0)
            out.flush(timeout * _LAST_VALUES)
            if left := self._run.data.media.left_out():
                out.warn(f"{left} images, sounds or tables were not written before the run ended")
            for chore in out.at_finish:
                if time.monotonic() > deadline:
                    break
                self._guard(chore)
        out.closed = True
        if not self._said:
            self._said = True
            self._run.about.status = status
            took = round(time.monotonic() - self._began, 3)
            fields: dict[str, Any] = {"status": status, "wall_seconds": took, "pid": os.getpid()}
            fields |= _described(problem, self._signal) | self.program
            if self._at_exit:
                fields["at_exit"] = True
            with contextlib.suppress(Exception):
                out.emit("end", out.current_step, fields, checked=True)
        if not self._ended:
            self._close(deadline)

    def _close(self, deadline: float) -> None:
        out = self._out
        out.later.stop()
        out.console.close()
        out.folder.look()
        carrier = out.file.carrier
        if carrier is not None:
            with contextlib.suppress(OSError, ValueError):
                carrier.close()
        log, blocks = out.log, out.wide.blocks
        log.retry()
        left = take_waiting(log) if isinstance(log, JsonLog) else []
        log.close()
        if left:
            self._keep_elsewhere(left)
        blocks.retry()
        if blocks.waiting:
            self._keep_rows_elsewhere()
        blocks.close()
        if isinstance(log, JsonLog) and log.lost:
            out.warn(f"{log.lost} records were not written: {log.path} had no space")
        if blocks.lost:
            out.warn(f"{blocks.lost} wide rows or histograms were not written: {out.dir} had no space")
        beside = self._alerts.beside
        if out.is_main:
            try:
                manifest.update(out.dir, **self._last_state())
            except OSError as error:
                reason = error.strerror or error
                out.warn(f"{out.dir} can't say that the run has ended ({reason}); it will be shown as crashed")
        self._ended = True
        open_runs.discard(self._run)
        crash.release(self)
        if beside is not None:
            owed = blocks.rows > 0 or log.position > _MUCH
            beside.finish(owed, max(0.0, deadline - time.monotonic()))
            self._alerts.last_look()
        for chore in [*out.at_end, *self.on_end]:
            self._guard(chore)

    def _keep_elsewhere(self, records: list[bytes]) -> None:
        """The disk is still full: the log goes on in the temporary folder, where readers of this machine find it."""
        out = self._out
        try:
            local = spool.prepare(out.log_path)
            log = JsonLog(local)
            for record in records:
                log.append(record)
            log.close()
            if log.lost:
                raise OSError(28, "No space left on device")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            out.warn(
                f"{len(records)} records were not written: {out.log_path} and other places had no space ({reason})"
            )
            return
        out.warn(
            f"{out.log_path} had no space for the last {len(records)} records; all of the log is in {local}, and "
            f"`barograph gc` or the next start of the run brings it back"
        )

    def _keep_rows_elsewhere(self) -> None:
        """The same for wide rows and histograms, which readers see once they are brought back."""
        out = self._out
        with contextlib.suppress(OSError):  # said as they are counted as lost
            count, folder = spool.keep_blocks(out.dir / f"{out.stem}.json", out.wide.blocks)
            out.warn(
                f"{out.dir} had no space for the last {count} wide rows or histograms; they are in {folder}, and "
                f"`barograph gc` or the next start of the run brings them back"
            )

    def _last_state(self) -> dict[str, Any]:
        out = self._out
        took = round(self.wall_before + time.monotonic() - self._began, 3)
        state = {
            "status": self._run.about.status,
            "finished": format_time(time.time_ns() // 1000),
            "final_metrics": self._final,
        }
        beside = self._alerts.beside
        if beside is None or not beside.started:
            from barograph.core.surroundings import quick  # only here: its import would hold up the start

            state |= quick(out.settings.git)
        return state | manifest.spent(took, self._gpus(), out.settings.price_per_gpu_hour)

    def _final_metrics(self) -> dict[str, float]:
        """The last value of each series, of at most `most`."""
        last: dict[str, float] = {}
        reached = self._out.current_step  # of the last call; an evaluation of an earlier step may have come late
        for record in sorted(self._out.lasts.values(), key=lambda record: record.step):
            last |= dict(numbers(record))
            reached = max(reached, record.step)
        for step, values in self._out.shapes.lasts():
            reached = max(reached, step)
            with contextlib.suppress(msgspec.DecodeError, ValueError):
                found = msgspec.json.decode(values) if isinstance(values, bytes) else restore_non_finite(dict(values))
                named = {name: value for name, value in found.items() if isinstance(value, (int, float))}
                if len(last) + len(named) <= _MOST_FINAL or named.keys() <= last.keys():
                    last |= named
        return last | {"step": reached} if last else {}

    def _gpus(self) -> int:
        """Accelerators that the run holds: one a rank, if torch has started one."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        return self._out.world_size if cuda is not None and cuda.is_initialized() else 0

    def _guard(self, chore: Any) -> None:
        try:
            chore()
        except Exception as error:
            self._out.failed("last word of a probe", error)

    # -- a forked child ------------------------------------------------------------------------------------

    def forked(self) -> None:
        """In a forked child: what is of the parent ends in the parent."""
        self._owner, self._lock = os.getpid(), threading.RLock()
        self.blackbox = None
        if self._alerts.beside is not None:
            self._alerts.beside.forget()


_MUCH = 1 << 20  # bytes of a log that are worth a process that seals them


def _status_of(problem: BaseException | None) -> str:
    if problem is None or isinstance(problem, GeneratorExit):
        return "finished"
    if isinstance(problem, KeyboardInterrupt):
        return "interrupted"
    if isinstance(problem, SystemExit):
        return "finished" if problem.code in (None, 0) else "failed"
    return "failed"


def _described(problem: BaseException | None, signal: str | None) -> dict[str, Any]:
    """The exception, the exit code and the signal, for an `end` record."""
    fields: dict[str, Any] = {}
    if isinstance(problem, SystemExit):
        code = problem.code
        fields["exit_code"] = code if isinstance(code, int) else 0 if code is None else 1
    elif problem is not None and not isinstance(problem, GeneratorExit):
        trace = "".join(traceback.format_exception(problem, limit=50))
        kind = type(problem).__name__
        fields["exception"] = {"type": kind, "message": text(problem)[:2000], "traceback": trace[-_MOST_TRACE:]}
    if signal is not None:
        fields["signal"] = signal
    return fields


def _finish_open_runs() -> None:
    for run in list(open_runs):
        run._ending.exits()


def _forked() -> None:
    for run in list(open_runs):
        run._ending.forked()


atexit.register(_finish_open_runs)
os.register_at_fork(after_in_child=_forked)
