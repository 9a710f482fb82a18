"""DeepSpeed: `add_monitor(engine)` after `deepspeed.initialize`.

In:   the events that an engine writes to its monitor: names, values, counts of samples; the calls of its training loop.
Out:  series of the run at the engine's steps: those of the monitor and the count of samples; the loss, the gradients'
      norm, the steps' times, checkpoints.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barograph.core.values import number, text
from barograph.integrations.shared import begin, open_run
from barograph.training.guard import guarded
from barograph.training.run import Run


class DeepSpeedMonitor:
    """Takes the place of an engine's monitor and passes on to it what it gets."""

    enabled = True

    def __init__(self, engine: Any, run: Run | None = None, **options: Any):
        found = run or open_run()
        self.own = found is None
        self.run: Run = found or begin(**options)
        self._engine, self._before = engine, getattr(engine, "monitor", None)

    def write_events(self, event_list: Iterable[tuple[Any, ...]]) -> None:
        """Events are (name, value, samples so far)."""
        events = list(event_list)
        if self._before is not None and getattr(self._before, "enabled", False):
            self._before.write_events(events)
        values = {text(event[0]): event[1] for event in events}
        counts = [number(event[2]) for event in events if len(event) > 2]
        if counts:
            values["samples"] = max(counts)
        if values:
            self.run.log(values, self._engine.global_steps)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._before, name)


class EngineHooks:
    """Around an engine's `forward`, `backward`, `step`, `train_batch` and `save_checkpoint`."""

    def __init__(self, engine: Any, run: Run):
        self._engine, self._run, self._out = engine, run, run._out
        self._loss: Any = None  # the sum over the step's micro-batches, where it was computed
        self._losses = 0
        self._last = engine.global_steps
        self._step: Any = None
        self._wrap("forward", before=self._begin)
        self._wrap("backward", after=self._keep_loss)
        self._wrap("step", after=self._end)
        self._wrap("train_batch", before=self._begin, after=self._end)
        self._wrap("save_checkpoint", after=self._save)

    def _wrap(self, name: str, before: Any = None, after: Any = None) -> None:
        call = getattr(self._engine, name, None)
        if not callable(call):
            return

        @functools.wraps(call)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if before is not None and self._run._ending.is_here:
                before()
            result = call(*arguments, **named)
            if after is not None and self._run._ending.is_here:
                after(*arguments, **named)
            return result

        setattr(self._engine, name, wrapped)

    @guarded("step of an engine")
    def _begin(self) -> None:
        if self._step is None and self._engine.module.training:
            self._step = self._run.step(step=self._engine.global_steps + 1)
            self._step.__enter__()

    @guarded("loss of an engine")
    def _keep_loss(self, loss: Any = None, *arguments: Any, **named: Any) -> None:
        if callable(getattr(loss, "detach", None)) and loss.numel() == 1:
            loss = loss.detach()
            self._loss = loss if self._loss is None else self._loss + loss
            self._losses += 1

    @guarded("step of an engine")
    def _end(self, *arguments: Any, **named: Any) -> None:
        engine, at = self._engine, self._engine.global_steps
        if at <= self._last:  # a micro-batch, and more of the step are to come
            return
        self._last = at
        values = {} if self._loss is None else {"train/loss": self._loss / self._losses}
        self._loss, self._losses = None, 0
        norm = engine.get_global_grad_norm() if hasattr(engine, "get_global_grad_norm") else None
        if norm is not None:
            values["train/norm"] = norm
        if skipped := getattr(engine, "skipped_steps", 0):  # by an overflow
            values["train/skipped_steps"] = skipped
        if values:
            self._run.log(values, at)
        if self._step is not None:
            step, self._step = self._step, None
            step.__exit__(None, None, None)

    @guarded("checkpoint of an engine")
    def _save(self, save_dir: Any, tag: Any = None, *arguments: Any, **named: Any) -> None:
        at = self._engine.global_steps
        path = Path(save_dir) / (f"global_step{at}" if tag is None else str(tag))
        if path.is_dir():
            self._run.checkpoints.save(path, at)


def add_monitor(engine: Any, run: Run | None = None, **options: Any) -> Run:
    """Record what the engine writes to its monitor, and its steps, on the rank that calls it; its other monitors go on.

    Options are those of `barograph.init`. Returns the run, which `run.finish()` ends.
    """
    if isinstance(engine.monitor, DeepSpeedMonitor) and engine.monitor.run._ending.is_here:
        return engine.monitor.run
    engine.monitor = DeepSpeedMonitor(engine, run, **options)
    found: Run = engine.monitor.run
    EngineHooks(engine, found)
    return found
