"""Run: what a training loop holds.

In:   all that a `Recorder` takes; steps and phases to time; checkpoints, rewinds, the end.
Out:  records, and a manifest that says what the run was.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph import manifest, place, segments
from barograph.config import Settings
from barograph.jsonlog import JsonLog
from barograph.processes import LazyLog, LazyPump, open_runs
from barograph.record import format_time
from barograph.recorder import Recorder
from barograph.shapes import Shapes
from barograph.values import number, text

if TYPE_CHECKING:
    from barograph.probes.clock import Phase, StepClock, StepTime

_POSITION = {"pq_idx": "pq", "rg_idx": "rg"}  # S4's names in the loader's state, and in its line
_CHECKPOINT_FIELDS = {"val_loss", "val_bpb", "config", "loader_state", "loop_state"}


class Step:
    """One step of `with run.step(...) as step`. What it was is told by `set`, at any time before its end."""

    __slots__ = ("_clock", "_run", "number", "tokens", "values")

    def __init__(self, run: Run, number: int, tokens: Any):
        self._run, self._clock = run, run.clock
        self.number, self.tokens = number, tokens
        self.values: dict[str, Any] = {}

    def set(self, **values: Any) -> None:
        """`loss`, `norm` (L2 of the gradients), `lr`, `epoch`, `tokens`, `position` (the loader's {pq_idx,
        rg_idx, epoch}), and anything else that is to stand in the step's record."""
        self.values.update(values)

    def __enter__(self) -> Step:
        self._clock.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: Any) -> None:
        if problem is not None:
            self._clock.abandon()
            self._run.ended_by(problem)
            return
        try:
            self.tokens = self.values.pop("tokens", self.tokens)
            tokens = number(self.tokens) if self.tokens is not None else math.nan
            timed = self._clock.end(tokens)
            if self.values:
                self._run.log_timed_step(self.number, timed, tokens, self.values)
            self._clock.record(self.number, timed, tokens)
        except Exception as error:
            self._run._failed("timed step", error)


class Run(Recorder):
    """One run, made by `barograph.init`. No call raises after that, unless `strict`.

    Attributes: `dir` (the run's folder), `id`, `name`, `project`, `config`, `rank`.
    """

    # -- steps and phases ----------------------------------------------------------------------------

    @property
    def clock(self) -> StepClock:
        """Times this run's steps."""
        if self._clock is None:
            from barograph.probes.clock import StepClock

            self._clock = StepClock(self)
            self.at_each_round(self._clock.poll)
            self.at_finish.append(lambda: self._clock.poll(wait=True))
        clock: StepClock = self._clock
        return clock

    def step(self, tokens: int | None = None, step: int | None = None) -> Step:
        """`with run.step(tokens=…) as step:` times one optimizer step and records it.

        tokens: those of all ranks; also by `step.set(tokens=…)`. step: default one more than the last.
        With `step.set(loss=…, norm=…, lr=…)` the step's own record is written too, and shown.
        """
        return Step(self, self._next_step if step is None else self._step(step), tokens)

    def phase(self, name: str) -> Phase:
        """`with run.phase("forward"):` times a part of a step: data, forward, backward, optimizer, or a name
        of yours; or something between steps, such as eval and checkpoint. Phases may stand in phases."""
        return self.clock.phase(name)

    def wrap(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches, with the wait for each of them timed as the next step's phase `data`."""
        return self.clock.wrap(loader)

    def speed_of_light(
        self,
        model: Any,
        *,
        sequence: int | None = None,
        dtypes: Mapping[str, str] | str = "bf16",
        devices: int | None = None,
        device: str | None = None,
        peak_tflops: float | None = None,
        recompute: str = "none",
        show: bool = True,
        **architecture: Any,
    ) -> dict[str, Any] | None:
        """Say what is trained on what: from now on steps have an MFU, and their speed a share of the possible.

        model: a torch model, a configuration (a mapping or object with Hugging Face's or similar names), or
        an `Architecture`; `architecture` gives fields of it that you know better. sequence: tokens of a
        training sequence. dtypes: precision of "blocks", "lm_head", "attention", or one for all. devices: how
        many share the work (default: one a rank). device: its name (default: the one torch uses). peak_tflops:
        of one device, over the table. recompute: "none", "selective" or "full", for the HFU.

        Returns the estimate, which is recorded and (with `show`) drawn; None, with a warning that says what is
        missing, where it can't be made.
        """
        from barograph.probes.expectation import expect

        try:
            return expect(
                self,
                self.clock,
                model,
                {"sequence": sequence, **architecture},
                dtypes=dtypes,
                devices=self.world_size if devices is None else devices,
                device=device,
                peak_tflops=self.settings.peak_tflops if peak_tflops is None else peak_tflops,
                recompute=recompute,
                show=show,
            )
        except ValueError as error:
            if self.strict:
                raise
            self.warn(f"no MFU and no speed of light: {error}")
        except Exception as error:
            self._failed("speed of light", error)
        return None

    def profile_communication(self, every: int = 1000, first: int = 10) -> None:
        """Profile one timed step in `every`, beginning with the `first`: how much of the communication between
        ranks is hidden behind computation, and how much of it the step waits for."""
        from barograph.probes.communication import CommunicationProfile

        self.clock.profile = CommunicationProfile(self, every, first)

    def log_timed_step(
        self, step: int, timed: StepTime, tokens: float, values: Mapping[str, Any], draw: bool = True
    ) -> None:
        """A step's record in S0's order, of what the clock and the loop know; what nobody knows is left out."""
        given = dict(values)
        position = given.pop("position", None)
        if isinstance(position, Mapping):
            self.position = dict(position)
            given |= {short: position[name] for name, short in _POSITION.items() if name in position}
            given.setdefault("epoch", position.get("epoch"))
        fields: dict[str, Any] = {}
        if given.get("epoch") is not None:
            fields["epoch"] = given["epoch"]
        if tokens == tokens:
            fields["step_tokens"] = int(tokens) if tokens % 1 == 0 else tokens
        fields["duration_ms"] = round(timed.seconds * 1000, 3)
        fields |= {name: given[name] for name in ("norm", "loss", "lr") if name in given}
        fields |= {name: value for name, value in given.items() if name not in fields and name != "epoch"}
        if timed.mfu == timed.mfu:
            fields |= {"mfu": timed.mfu, "formula": self.clock.formula, "peak_tflops": self.clock.peak_flops / 1e12}
        if self._phase:
            fields["phase"] = self._phase
        self._typed("step", step, fields, 0, draw)

    def ended_by(self, problem: BaseException) -> None:
        """An exception is on its way out of a step or of the run: what it takes to understand it is recorded."""

    # -- segments ------------------------------------------------------------------------------------

    def rewind(self, step: int) -> None:
        """Go back to `step`: what was logged at it or later becomes an old branch, new records replace it."""
        try:
            self.segment = segments.begin(
                self.dir, kind="rewind", start_step=self._step(step), parent=self.segment.number
            )
            self._next_step = self._step(step)
            self._emit("segment", self._step(step), self.segment.fields() | {"rank": self.rank}, checked=True)
        except Exception as error:
            self._failed("rewind", error)

    # -- checkpoints ----------------------------------------------------------------------------------

    def save_checkpoint(self, path: str | os.PathLike[str], step: int, **about: Any) -> Path | None:
        """Write the metadata of the checkpoint at `path` beside it, atomically, and note it in the run.

        about: `val_loss`, `val_bpb`, `loader_state` ({pq_idx, rg_idx, epoch}; by default the position told
        last), `loop_state` (beside the smoothed and best loss and the training time, which are there already)
        and anything else that is to come back with `restore`.
        """
        try:
            about.setdefault("config", self.config)
            if self.position is not None:
                about.setdefault("loader_state", self.position)
            about["loop_state"] = self._console.state() | dict(about.get("loop_state") or {})
            extra = {name: about.pop(name) for name in set(about) - _CHECKPOINT_FIELDS}
            written = manifest.write_checkpoint(path, step=self._step(step), extra=extra, **about)
            fields = {"path": str(path), "metadata": str(written)}
            fields.update((k, v) for k in ("val_loss", "val_bpb") if (v := about.get(k)) is not None)
            self._emit("checkpoint", step, fields)
            with contextlib.suppress(OSError):
                manifest.add_checkpoint(self.dir, {"step": self._step(step)} | fields)
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

    def _note(self, **changes: Any) -> None:
        with contextlib.suppress(OSError):
            manifest.update(self.dir, **changes)

    # -- the end ---------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = 10.0) -> bool:
        """Have everything logged so far in the store's files; False if the disk did not let it in time."""
        return self._pump.flush(timeout)

    def finish(self, status: str = "finished", timeout: float = 10.0) -> None:
        """End the run: write what waits, seal the store, close the files. Takes at most about `timeout` s."""
        with self._finish_lock:
            if self._finished or os.getpid() != self._owner:
                return
            if isinstance(self._log, LazyLog):  # a forked child that logged nothing
                self._finished = True
                return
            try:
                self._finish(status, timeout)
            except Exception as error:
                self._finished = True
                self._failed("finish", error)

    def _finish(self, status: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout / 2
        while self._waiting and time.monotonic() < deadline:
            self._read_device_values()
            time.sleep(0.001)
        for chore in self.at_finish:
            try:
                chore()
            except Exception as error:
                self._failed("last word of a probe", error)
        took = time.monotonic() - self._began
        last = self._next_step - 1 if self._next_step else 0
        self._emit("end", last, {"status": status, "wall_seconds": round(took, 3)}, checked=True)
        self._finished = True
        self._shapes = Shapes(0)
        if not self._pump.stop(timeout):
            self.warn("the store did not finish in time; the log file has the records, `barograph gc` seals")
        if self._pump.lost_rows:
            self.warn(f"{self._pump.lost_rows} wide rows were not recorded: the store could not keep up")
        self._console.close()
        if self._carrier is not None:
            with contextlib.suppress(OSError, ValueError):
                self._carrier.close()
        self._log.close()
        if self._log.lost:
            self.warn(f"{self._log.lost} records were not written: {self._log.path} had no room")
        if self._is_main:
            before = float(manifest.read(self.dir).get("wall_seconds") or 0.0) if self.segment.number > 1 else 0.0
            spent = manifest.spent(round(before + took, 3), self._gpus(), self.settings.price_per_gpu_hour)
            self._note(status=status, finished=_now(), final_metrics=self._pump.last, **spent)
        open_runs.discard(self)

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
        self._clock = None
        self.at_finish = []  # the parent's probes stop in the parent

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
