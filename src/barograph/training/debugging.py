"""Debug mode (the stability guide, phase 5): after a finding the model is measured closely for some steps.

In:   findings, and the step that the run is at.
Out:  intervals given to hooks, such as those of a model watch, and taken back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_LEVELS = ("info", "warning", "critical")

CLOSELY: dict[str, int] = {
    "norms": 1, "gradients": 1, "updates": 1, "weights": 1, "activations": 1, "optimizer_state": 1, "moe": 1,
    "histograms": 10, "spectral": 10,
}  # fmt: skip
"""Intervals in steps while it is on: everything at each step, and what is dear at each tenth. Ours."""


class Adjustable(Protocol):
    """Something with intervals in steps."""

    def narrow(self, intervals: Mapping[str, int]) -> None:
        """Look at least this often, until `restore`; called again while narrowed, it changes nothing."""

    def restore(self) -> None:
        """Look as often as before."""


class Cause(Protocol):
    """What is needed of a finding."""

    rule: str
    severity: str
    step: int
    key: str
    segment: int


class DebugMode:
    """Turns itself on for `steps` steps after a finding of at least `severity`, and off again.

    A finding starts it once, however often it is reported; another one while it is on makes it last longer. It
    starts at most `most` times in a run and is on for at most `longest` steps in a row: a training that is ill for
    good must not pay for it for ever. say: gets a sentence when it turns on and off.
    """

    def __init__(
        self,
        steps: int = 50,
        severity: str = "critical",
        intervals: Mapping[str, int] | None = None,
        most: int = 5,
        longest: int = 500,
        say: Callable[[str], Any] | None = None,
    ):
        if severity not in _LEVELS:
            raise ValueError(f"severity is info, warning or critical, not {severity!r}")
        if steps < 1 or most < 1 or longest < steps:
            raise ValueError("steps and most are at least 1, and longest is not less than steps")
        self.steps, self.most, self.longest = steps, most, longest
        self.intervals = dict(CLOSELY if intervals is None else intervals)
        self.on = False
        self.started = 0  # times
        self._lowest, self._say = _LEVELS.index(severity), say
        self._hooks: list[Adjustable] = []
        self._known: set[tuple[Any, ...]] = set()
        self._began = self._until = 0
        self._reached = False  # the records that are given have come to where it began
        self._lock = threading.RLock()

    def watch(self, hook: Adjustable) -> None:
        """Have the hook's intervals changed too; at once, if it is on."""
        with self._lock:
            self._hooks.append(hook)
            if self.on:
                hook.narrow(self.intervals)

    def told(self, finding: Cause, step: int) -> bool:
        """A finding, and the step that the run is at; whether debug mode is on after it."""
        with self._lock:
            identity = (finding.rule, finding.key, finding.segment, finding.step)
            if _rank(finding.severity) < self._lowest or identity in self._known:
                return self.on
            if len(self._known) < 10_000:
                self._known.add(identity)
            if self.on:
                self._until = min(step + self.steps, self._began + self.longest)
            elif self.started < self.most:
                self.started += 1
                self.on, self._began, self._until, self._reached = True, step, step + self.steps, False
                for hook in self._hooks:
                    with contextlib.suppress(Exception):
                        hook.narrow(self.intervals)
                self._tell(f"debug mode is on for {self.steps} steps from step {step}: {finding.rule}")
            return self.on

    def at(self, step: int) -> bool:
        """The records are at this step; whether debug mode is on. They may come some steps after the run itself; a
        step before the beginning is a rewind and ends it once they have caught up."""
        if self.on:
            with self._lock:
                if step > self._until or (self._reached and step < self._began):
                    self.end()
                self._reached = self._reached or step >= self._began
        return self.on

    def end(self) -> None:
        """Turn it off now."""
        with self._lock:
            if not self.on:
                return
            self.on = False
            for hook in self._hooks:
                with contextlib.suppress(Exception):
                    hook.restore()
            self._tell("debug mode is off; the model is watched at the usual intervals again")

    def _tell(self, sentence: str) -> None:
        if self._say is not None:
            with contextlib.suppress(Exception):
                self._say(sentence)


class WatchIntervals:
    """A model watch's schedule as a hook. `schedule` has `given` and `intervals` (by family, 0 is off), and `budget`.

    A family that is off stays off: its look has nothing in place. While narrowed the budget does not hold. With
    more than one rank, experts are counted by a collective of all ranks, and a sharded model by one of each family:
    a rank that looks at other steps than the others would stop the training. So `moe` stays as it is there, and a
    sharded model is left alone.
    """

    def __init__(self, schedule: Any, world_size: int = 1, sharded: bool = False):
        self._schedule = schedule
        self._alone, self._sharded = world_size == 1, sharded
        self._before: tuple[dict[str, int], float | None] | None = None

    @classmethod
    def of(cls, watch: Any, world_size: int) -> WatchIntervals:
        """The intervals of a ModelWatch."""
        sharded = any(hasattr(item, "device_mesh") for item in watch.model.parameters())
        return cls(watch.schedule, world_size, sharded)

    def narrow(self, intervals: Mapping[str, int]) -> None:
        if self._before is not None or (self._sharded and not self._alone):
            return
        schedule = self._schedule
        before = dict(schedule.intervals)
        narrowed = dict(before)
        for family, interval in intervals.items():
            if before.get(family, 0) > 0 and interval > 0 and (self._alone or family != "moe"):
                narrowed[family] = min(before[family], interval)
        self._before = before, schedule.budget
        schedule.budget = None
        schedule.intervals = narrowed  # in one go: the training's thread may be reading them

    def restore(self) -> None:
        if self._before is not None:
            self._schedule.intervals, self._schedule.budget = self._before
            self._before = None


def _rank(severity: str) -> int:
    return _LEVELS.index(severity) if severity in _LEVELS else 1
