"""Steps: what a loop tells of its steps and phases, and the clock that times them.

In:   `with run.step(...) as step`, `run.phase(...)`, timed steps of the tracker.
Out:  `step` and `speed` records; values of all ranks reduced where there are others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from barograph.core.values import number
from barograph.training.guard import guarded
from barograph.training.recorder import Recorder

if TYPE_CHECKING:
    from barograph.probes.speed.clock import ClockedStep, StepClock
    from barograph.training.probing import RunData, RunRanks

_POSITION = {"pq_idx": "pq", "rg_idx": "rg"}  # picoLLM's names in the loader's state, and in its line


class Step:
    """One step of `with run.step(...) as step`. Its fields are given by `set`, at any time before its end."""

    __slots__ = ("_clock", "_reduced", "_steps", "number", "tokens", "values")

    def __init__(self, steps: Steps, number: int, tokens: Any):
        self._steps, self._clock = steps, steps.clock
        self.number, self.tokens = number, tokens
        self.values: dict[str, Any] = {}
        self._reduced: dict[str, Any] = {}

    def set(self, **values: Any) -> None:
        """`loss`, `norm` (L2 of the gradients), `lr`, `epoch`, `tokens`, `position` (the loader's {pq_idx,
        rg_idx, epoch}), and anything else that belongs into the step's record."""
        self.values.update(values)

    def reduce(self, **values: Any) -> None:
        """More numbers of this rank to compare with the other ranks', beside loss and norm."""
        self._reduced.update(values)

    def __enter__(self) -> Step:
        self._clock.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: Any) -> None:
        if problem is not None:
            self._clock.abandon()
            self._steps.gave_up(problem)
            return
        self._steps.ended(self)


class Steps:
    """The steps of one run. `ranks` and `data` are the run's parts."""

    ranks: RunRanks
    data: RunData

    def __init__(self, recorder: Recorder):
        self._out = recorder
        self.on_problem: list[Any] = []  # called with an exception that leaves a step

    @property
    def clock(self) -> StepClock:
        """Times this run's steps."""
        if self._out.clock is None:
            from barograph.probes.speed.clock import StepClock  # a run without timed steps loads no clock

            clock = self._out.clock = StepClock(self._out)
            self._out.at_finish.append(lambda: clock.poll(wait=True))
        return self._out.clock  # type: ignore[no-any-return]

    def step(self, tokens: Any = None, step: Any = None) -> Step:
        """See `Run.step`."""
        return Step(self, self._out.coming if step is None else self._out.step_of(step), tokens)

    def gave_up(self, problem: BaseException) -> None:
        """An exception is on its way out of a step."""
        for call in self.on_problem:
            call(problem)

    @guarded("timed step")
    def ended(self, step: Step) -> None:
        """The block of a step was left."""
        tokens = step.values.pop("tokens", step.tokens)
        tokens = number(tokens) if tokens is not None else math.nan
        timed = self.clock.end(tokens)
        if step.values:
            self.log_timed_step(step.number, timed, tokens, step.values)
        self.clock.record(step.number, timed, tokens)
        self.compare_ranks(step.number, timed, step.values, step._reduced)

    @guarded("timed step")
    def log_timed_step(
        self, step: int, timed: ClockedStep, tokens: float, values: Mapping[str, Any], draw: bool = True
    ) -> None:
        """A step's record in Surogate's order, of what the clock and the loop know; what nobody knows is left out."""
        given = dict(values)
        position = given.pop("position", None)
        if isinstance(position, Mapping):
            self.data.position = dict(position)
            given |= {short: position[name] for name, short in _POSITION.items() if name in position}
            given.setdefault("epoch", position.get("epoch"))
        fields: dict[str, Any] = {}
        if given.get("epoch") is not None:
            fields["epoch"] = given["epoch"]
        if tokens == tokens:
            fields["step_tokens"] = int(tokens) if tokens % 1 == 0 else tokens
        fields["duration_ms"] = round(timed.seconds * 1000, 3)
        fields |= {name: given[name] for name in ("norm", "loss", "lr") if name in given}
        typed = len(fields)
        fields |= {name: value for name, value in given.items() if name not in fields and name != "epoch"}
        clock = self.clock
        if timed.mfu == timed.mfu:
            fields |= {"mfu": timed.mfu, "formula": clock.formula, "peak_tflops": clock.peak_flops / 1e12}
        if self._out.phase:
            fields["phase"] = self._out.phase
        self._out.typed("step", step, fields, typed, draw)

    def compare_ranks(
        self, step: int, timed: ClockedStep, values: Mapping[str, Any], more: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Reduce a timed step's loss and norm where there are other ranks to compare with."""
        if self._out.world_size > 1 and self._out.settings.ranks:
            named = {name: values[name] for name in ("loss", "norm") if name in values}
            self.ranks.reduce(step, named | dict(more), step_ms=timed.seconds * 1000)
