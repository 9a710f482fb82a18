"""Run: what a training loop holds.

In:   all that is recorded and watched; checkpoints, rewinds, the end.
Out:  records, and a manifest that says what the run was.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph import manifest, place, segments
from barograph.config import ConfigError, Settings
from barograph.record import format_time
from barograph.values import text, whole
from barograph.writing.jsonlog import JsonLog
from barograph.writing.processes import LazyLog, LazyPump, open_runs
from barograph.writing.shapes import Shapes
from barograph.writing.watched import Watched

if TYPE_CHECKING:
    from barograph.alerts.skipping import Advice, SkipAdvisor
    from barograph.alerts.stopping import EarlyStopping
    from barograph.blackbox.box import BlackBox
    from barograph.probes.model.watch import ModelWatch
    from barograph.writing.accounts import Accounts
    from barograph.writing.health import Health

_CHECKPOINT_FIELDS = {"val_loss", "val_bpb", "config", "loader_state", "loop_state"}


class Run(Watched):
    """One run, made by `barograph.init`. No call raises after that, unless `strict`.

    Attributes: `dir` (the run's folder), `id`, `name`, `project`, `config`, `rank`.
    """

    def _attach(self) -> None:
        self._accounts: Accounts | None = None
        self.mirrors: Any = None  # `init` sets it where there are any: `mirrors.live.Mirrors`
        self._health: Health | None = None
        self._skipping: SkipAdvisor | None = None
        self._blackbox: BlackBox | None = None
        if self._is_main:
            from barograph.writing.accounts import Accounts

            self._accounts = Accounts(self, self._log.path, self._log_start, self._gpus)
            self._pump.listen(self._accounts)
        from barograph.alerts.alerts import Alerts

        self.alerts: Alerts | None = Alerts(self, show=self._console.say)
        self._pump.listen(self.alerts)
        self.at_end.append(self.alerts.close)
        if self.settings.blackbox:
            from barograph.blackbox.box import BlackBox

            self._blackbox = BlackBox(self, self.settings.blackbox_steps)
            self._pump.listen(self._blackbox)
        if self._is_main and self.settings.doctor:
            from barograph.writing.health import Health

            self._health = Health(self, self.config, self._log.path, self._log_start)
            self._health.tell += [self.alerts.report, self._write_blackbox]
            self._pump.listen(self._health)

    # -- segments ------------------------------------------------------------------------------------

    def rewind(self, step: int) -> None:
        """Go back to `step`: what was logged at it or later becomes an old branch, new records replace it."""
        back = whole(step)
        if back is None or back < 0:
            self._odd(f"run.rewind takes the step to go back to, a whole number from 0, not {text(step)[:60]!r}")
            return
        step = back
        try:
            self._read_what_waits(5.0)
            for watch in self.watches:  # its figures are of the branch that ends here
                watch.flush()
            if self._data is not None:
                self._data.flush()
            launch = place.launch_id()  # the ranks go back together: one segment
            self.segment = segments.begin(
                self.dir,
                kind="rewind",
                start_step=step,
                parent=self.segment.number,
                launch=None if launch is None else f"{launch} back {self.segment.number} {step}",
            )
            self._next_step = step
            self._emit("segment", step, self.segment.fields() | {"rank": self.rank}, checked=True)
        except Exception as error:
            self._failed("rewind", error)

    # -- alerts ----------------------------------------------------------------------------------------

    def alert(self, title: str, text: str = "", level: str = "warning", **about: Any) -> None:
        """Tell people something now, at most once in a while for the same `cause` (default: the same words).

        level: info, warning or critical. about: `cause`, `metric`, `value`, `step`, `cooldown` (seconds).
        """
        try:
            if self.alerts is not None:
                self.alerts.send(title, text, level, **about)
        except Exception as error:
            self._failed("alert", error)

    def alert_if(self, metric: str, **options: Any) -> None:
        """Tell people when a metric is out of bounds: `above`, `below`, `change`, `missing` or `not_finite`, and
        more options: docs/alerts.md. A pattern such as `gpu/*/power` watches each metric that fits."""
        try:
            if self.alerts is not None:
                self.alerts.add(metric, **options)
        except ConfigError as error:
            self._odd(str(error))
        except Exception as error:
            self._failed("alert", error)

    @property
    def stop_requested(self) -> bool:
        """Whether the loop is asked to stop: by `stop_on`, by `stop_early`, or by `request_stop`. To be looked at
        once a step; on several ranks by `alerts.stopping.agreed`, so that all stop at the same one."""
        return self.alerts is not None and bool(self.alerts.stop)

    @property
    def stop_reason(self) -> str:
        """Why the loop is asked to stop; empty if it isn't."""
        return self.alerts.stop.reason if self.alerts is not None else ""

    @property
    def checkpoint_requested(self) -> bool:
        """Whether a checkpoint is asked for before the stop; `save_checkpoint` answers it."""
        return self.alerts is not None and self.alerts.stop.checkpoint_requested

    def request_stop(self, reason: str) -> None:
        """Ask the loop to stop after a checkpoint."""
        if self.alerts is not None:
            self.alerts.stop.ask(reason, self.current_step)

    def stop_early(self, stopper: EarlyStopping | None = None, **criteria: Any) -> EarlyStopping | None:
        """Ask for a stop when a metric has stopped to improve: `patience`, `min_delta`, `metric`, `mode`, `target`."""
        try:
            from barograph.alerts.stopping import EarlyStopping

            made = EarlyStopping(**criteria) if stopper is None else stopper
            return self.alerts.stop_early(made) if self.alerts is not None else made
        except (ValueError, TypeError) as error:
            self._odd(f"no early stopping: {error}")
        return None

    def skip_advice(self, loss: float, norm: float) -> Advice:
        """Whether this step's update had better be left out, judged by the run's own recent losses and norms; a few
        microseconds. Call it once a step, before `optimizer.step`; `if run.skip_advice(loss, norm): continue`."""
        if self._skipping is None:
            from barograph.alerts.skipping import SkipAdvisor

            self._skipping = SkipAdvisor()
        return self._skipping.advise(loss, norm)

    def debug_after_findings(self, **options: Any) -> None:
        """After a critical finding have `watch` look at everything for some steps: `steps`, `severity`, `intervals`."""
        try:
            from barograph.alerts.debugging import DebugMode, WatchIntervals

            if self.alerts is None:
                return
            mode = self.alerts.debug = DebugMode(say=lambda told: self.log_message(self.current_step, told), **options)
            for watch in self.watches:
                mode.watch(WatchIntervals.of(watch, self.world_size))
        except (ValueError, TypeError) as error:
            self._odd(f"no debug mode: {error}")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What Jupyter shows."""
        from importlib import import_module  # the room is further on: a plain import would be a loop

        shown: dict[str, Any] = import_module("barograph.notebook.display").of_folder(self.dir, repr(self))
        return shown

    def _final_metrics(self) -> dict[str, float]:
        last = {name: value for name, value in self._pump.last.items() if isinstance(value, (int, float))}
        return last | {"step": self.current_step} if last else {}

    def _write_blackbox(self, finding: Any) -> None:
        if self._blackbox is not None and finding.severity == "critical":
            self._blackbox.dump(finding.rule, finding)

    def ended_by(self, problem: BaseException | None) -> None:
        """An exception is on its way out of a step or of the run: what it takes to understand it is recorded."""
        super().ended_by(problem)
        if self._blackbox is not None:
            with contextlib.suppress(Exception):
                self._blackbox.ended_by(problem)

    def _made_watch(self, watch: ModelWatch) -> None:
        if self._blackbox is not None:
            self._blackbox.follow(watch)
        if self.alerts is not None and self.alerts.debug is not None:
            from barograph.alerts.debugging import WatchIntervals

            self.alerts.debug.watch(WatchIntervals.of(watch, self.world_size))

    # -- checkpoints ----------------------------------------------------------------------------------

    def save_checkpoint(self, path: str | os.PathLike[str], step: int, **about: Any) -> Path | None:
        """Write the metadata of the checkpoint at `path` beside it, atomically, and note it in the run.

        about: `val_loss`, `val_bpb`, `loader_state` ({pq_idx, rg_idx, epoch}; by default the position told
        last), `loop_state` (beside the smoothed and best loss and the training time, which are there already)
        and anything else that is to come back with `restore`. Kept too: `mirrors`, the run's identity at each
        tracker that gets a copy.
        """
        try:
            about.setdefault("config", self.config)
            if self.position is not None:
                about.setdefault("loader_state", self.position)
            about["loop_state"] = self._console.state() | dict(about.get("loop_state") or {})
            if self.mirrors is not None and (ids := self.mirrors.ids()):
                about.setdefault("mirrors", ids)
            extra = {name: about.pop(name) for name in set(about) - _CHECKPOINT_FIELDS}
            written = manifest.write_checkpoint(path, step=self._step(step), extra=extra, **about)
            fields = {"path": str(path), "metadata": str(written)}
            fields.update((k, v) for k in ("val_loss", "val_bpb") if (v := about.get(k)) is not None)
            self._emit("checkpoint", step, fields)
            with contextlib.suppress(OSError):
                manifest.add_checkpoint(self.dir, {"step": self._step(step)} | fields)
            if self.alerts is not None:
                self.alerts.stop.checkpoint_saved()
            return written
        except Exception as error:
            self._failed("checkpoint", error)
            return None

    def restore(self) -> dict[str, Any] | None:
        """The metadata of the run's last whole checkpoint, or None: where to go on after a resume.

        The console goes on too: its smoothed loss and training time are those of the checkpoint.
        """
        try:
            places = {self.dir / "checkpoints"}
            places.update(Path(item["path"]).parent for item in manifest.read(self.dir).get("checkpoints", []))
            found = [state for folder in places if (state := manifest.last_checkpoint(folder))]
            last = max(found, key=lambda state: state.get("step", 0), default=None)
            if last is not None:
                self._console.restore(last.get("loop_state"), last["step"])
                self.position = last.get("dataloader_state_dict") or None
            return last
        except Exception as error:
            self._failed("restore", error)
            return None

    # -- the end ---------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = 10.0) -> bool:
        """Have everything logged so far in the store's files; False if the disk did not let it in time."""
        return self._pump.flush(timeout)

    def finish(self, status: str = "finished", timeout: float = 10.0) -> None:
        """End the run: write what waits, seal the store, close the files. Takes at most about `timeout` s."""
        with self._finish_lock:
            if self._ended or os.getpid() != self._owner:
                return
            if isinstance(self._log, LazyLog):  # a forked child that logged nothing
                self._finished = self._ended = True
                return
            try:
                with self._log.set_free() as interrupted:
                    # a record of that append may be in the log and not in the queue
                    self._pump.dropping = self._pump.dropping or interrupted
                    self._finish(status, timeout)
            except Exception as error:
                self._finished = self._ended = True
                self._failed("finish", error)

    def _finish(self, status: str, timeout: float) -> None:
        """Each part may be interrupted by a signal whose handler calls `finish` too, and then leaves or returns."""
        if not self._finished:
            self._say_last_words(timeout)
        if not self._finished:
            self._status = status
            last = self._next_step - 1 if self._next_step else 0
            took = round(time.monotonic() - self._began, 3)
            self._emit("end", last, {"status": status, "wall_seconds": took}, checked=True)
            self._finished = True
        self._shapes = Shapes(0)
        stopped = self._pump.stop(timeout)
        if not self._ended:
            self._close_all(stopped)

    def _say_last_words(self, timeout: float) -> None:
        self._read_what_waits(timeout / 2)
        self._call_all(self.at_finish)
        if self._pump.at_work_here:  # a flush waits for us: the pump can't examine anything now
            return
        if self._health is not None:
            self._health.finish(self._pump.wake)
        if self._accounts is not None:
            self._accounts.finish(self._pump.wake)

    def _close_all(self, stopped: bool) -> None:
        if not stopped and not self._pump.at_work_here:
            self.warn("the store did not finish in time; the log file has the records, `barograph gc` seals")
        if self._pump.lost_rows:
            self.warn(f"{self._pump.lost_rows} wide rows or histograms were not recorded: the store did not take them")
        self._console.close()
        if self._carrier is not None:
            with contextlib.suppress(OSError, ValueError):
                self._carrier.close()
        self._log.close()
        if self._log.lost:
            self.warn(f"{self._log.lost} records were not written: {self._log.path} had no room")
        if self._is_main:
            took = time.monotonic() - self._began
            price = self.settings.price_per_gpu_hour
            if self._accounts is not None:
                price = self._accounts.price_per_gpu_hour()
            before = float(manifest.read(self.dir).get("wall_seconds") or 0.0) if self.segment.number > 1 else 0.0
            spent = manifest.spent(round(before + took, 3), self._gpus(), price)
            ended = {"status": self._status, "finished": _now(), "final_metrics": self._final_metrics()}
            try:
                manifest.update(self.dir, **ended, **spent)
            except OSError as error:
                reason = error.strerror or error
                self.warn(f"{self.dir} can't say that the run has ended ({reason}); it will be shown as crashed")
        self._ended = True
        open_runs.discard(self)
        self._call_all(self.at_end)

    def _read_what_waits(self, seconds: float) -> None:
        """Values that are still on a device; waits so long at most."""
        deadline = time.monotonic() + seconds
        while self._waiting and time.monotonic() < deadline:
            self._read_device_values()
            time.sleep(0.001)

    def _call_all(self, chores: list[Callable[[], Any]]) -> None:
        for chore in chores:
            try:
                chore()
            except Exception as error:
                self._failed("last word of a probe", error)

    def _gpus(self) -> int:
        """Accelerators that the run holds: one a rank, if torch has started one."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        return self.world_size if cuda is not None and cuda.is_initialized() else 0

    close = finish

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *problem: object) -> None:
        kind = problem[0] if problem else None
        if not isinstance(kind, type):
            self.finish()
        elif issubclass(kind, KeyboardInterrupt):
            self.finish("interrupted")
        else:
            self.ended_by(problem[1])  # type: ignore[arg-type]
            self.log_message(max(0, self._next_step - 1), f"failed: {kind.__name__}: {text(problem[1])[:2000]}")
            self.finish("failed")

    def __del__(self) -> None:
        """A run is held by `open_runs` until it is finished: nothing to do."""

    # -- other processes -----------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled run is the same run, written by the process that unpickles it."""
        return _attach, (str(self.dir), self.settings, self.config)

    def after_fork(self) -> None:
        """In a forked child: the parent's files are the parent's; ours are opened at the first log call."""
        self._log.abandon()
        path = self._log_path
        self._owner = os.getpid()
        self._is_main = False
        self._console.rank = self.rank
        self._writer_name = f"r{self.rank}-{place.host()}-{os.getpid()}-{time.time_ns():x}"
        path = path.with_name(f"training-{self._writer_name}.json")
        self._log = LazyLog(path, lambda: self._open_after_fork(path))  # type: ignore[assignment]
        self._pump = LazyPump(lambda: self._queue_after_fork(path))  # type: ignore[assignment]
        self._queue = self._pump.queue
        self._shapes = Shapes(self.settings.wide_threshold)
        self._finish_lock = threading.RLock()
        self._waiting.clear()
        self._clock = self._beat = self._ranks = None
        self.alerts = self._health = self._accounts = self._blackbox = None
        self.mirrors = None
        self.at_finish, self.at_end = [], []  # the parent's probes stop in the parent

    def _open_after_fork(self, path: Path) -> JsonLog:
        self._carrier = None
        self._log = self._open_log(path)
        self._start()
        return self._log

    def _queue_after_fork(self, path: Path) -> Any:
        if isinstance(self._log, LazyLog):
            self._open_after_fork(path)
        return self._queue


def _attach(folder: str, settings: Settings, config: Mapping[str, Any]) -> Run:
    """The run in `folder`, written by this process too."""
    path = Path(folder)
    return Run(path, settings, config, segments.join(path))


def _now() -> str:
    return format_time(time.time_ns() // 1000)
