"""Units that are out of use: dead ones, and ones at the bounds of their function.

In:   tables of activations by layer, at intervals.
Out:  findings of `DeadUnits`, `SaturatedUnits`, of the family `model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import half_rate, newest
from barograph.doctor.kernel.curve import again
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.tables import TableReader, in_order, shown

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory
    from barograph.doctor.kernel.finding import Finding
    from barograph.doctor.kernel.tables import LayerRound, LayerTable


_REWARDS, _LATE = 4096, 16  # rows of a reward that are looked at; the newest ones
_KEPT = 0.9  # of what a reward has risen by, that it still has


class DeadUnits(Rule):
    """Units of an MLP are dead.

    A unit is dead in a table if no token of the batch activated it. Half of a layer's units or more is what SageMaker
    warns of; on small batches, and in models that use few units for each token, that is common, so it is an info
    finding. Nine tenths in two tables in a row are a warning: such a layer does almost nothing. Where a reward is
    logged, and its last 16 rows are higher than those before, it is an info finding all the same, or becomes one later.

    What to do: smaller learning rate, smaller biases at the start, an activation function with a gradient below zero
    (GELU, SiLU, leaky ReLU).
    """

    name, family, kind, severity = "dead_units", "model", "dead", "warning"
    needs = ("activations/*/dead",)
    least = 2
    about = "Units of an MLP are dead."
    sources: ClassVar[tuple[str, ...]] = (
        "SageMaker Debugger: DeadRelu, 50% of a layer",
        "AutoTrainer: 70% without gradient",
    )
    thresholds: ClassVar = {"informs": (0.5, "SageMaker"), "warns": (0.9, "ours"), "tables": (2.0, "in a row; ours")}
    quantity, words = "dead", "dead: inactive for every input"
    reasons = (
        "bad initialisation: biases or weights keep units inactive",
        "learning rate too high",
        "dead units",
    )

    def reset(self) -> None:
        self._reader = TableReader()
        self._row: dict[tuple[str, str], list[int]] = {}
        self._said: set[tuple[int, str]] = set()
        self._told: Finding | None = None  # what warns

    def examine(self, history: RunHistory) -> Iterator[Finding]:
        for table, item in self._reader.new(history, "activations", self.quantity):
            if (item.value > self.at["informs"]).any() or self._row:
                yield from self._look(history, table, item)

    def _look(self, history: RunHistory, table: LayerTable, current: LayerRound) -> Iterator[Finding]:
        names = table.names[: len(current.value)]
        told = self._told
        if told is not None and told.segment == current.segment and _plays_well(history, current):
            told.severity, told.confidence, self._told = "info", 0.3, None
            yield again(told)
        for level in ("warns", "informs"):
            due, began = [], current.step
            for at, name in enumerate(names):
                if not current.there[at]:
                    continue
                high = current.value[at] > self.at[level]
                steps = self._row.get((level, name), [])
                if high:
                    steps = self._row[(level, name)] = [*steps[:3], current.step]
                    if len(steps) >= self.at["tables"]:
                        due.append(name)
                        began = min(began, steps[0])
                elif steps:
                    del self._row[(level, name)]
            if due and (current.segment, level) not in self._said:
                self._said |= {(current.segment, level), (current.segment, "informs")}
                worst = float(numpy.nanmax(current.value))
                warns = level == "warns" and not _plays_well(history, current)
                found = self.finding(
                    began, f"{worst:.0%} of the units of {shown(due)} are {self.words}, since about step {began}.",
                    severity="warning" if warns else "info", found=current.step, key=level,
                    segment=current.segment, evidence={"layers": in_order(due)[:8], "share": worst},
                    causes=list(self.reasons[:2]),
                    remedies=[half_rate(history, current.step, current.time, current.segment), 
                    "start with smaller biases, or use another activation function"],
                    confidence=0.75 if warns else 0.3,
                )  # fmt: skip
                self._told = found if warns else None
                yield again(found)


def _plays_well(history: RunHistory, current: LayerRound) -> bool:
    """Whether a reward is logged and has been higher of late than before: what the layer does is enough for it."""
    reward = history.role("reward")
    if reward is None:
        return False
    rows = newest(reward, current.step, current.time, current.segment, _REWARDS)
    rows = rows[numpy.isfinite(rows)]
    if len(rows) < 2 * _LATE:
        return False
    first, before, late = (float(numpy.median(part)) for part in (rows[:_LATE], rows[:-_LATE], rows[-_LATE:]))
    return late > before or (late > first and late >= first + _KEPT * (before - first))


class SaturatedUnits(DeadUnits):
    """A bounded function (sigmoid, tanh) is at its bounds, where it has no gradient.

    Half of the outputs of a layer or more is what SageMaker warns of, and an info finding here; nine tenths in two
    tables in a row are a warning. Where a reward is logged, and its last 16 rows are higher than those before, or
    than its first 16 and all but as high as those before, it is an info finding all the same, or becomes one later: a
    critic of states that are worth the same needs no more.

    What to do: smaller weights at the start, normalisation before the function, or a function without bounds.
    """

    name, family, kind, severity = "saturated_units", "model", "saturated", "warning"
    needs = ("activations/*/saturated",)
    least = 2
    about = "A bounded activation function is at its bounds."
    sources = ("SageMaker Debugger: SaturatedActivation, 50% of a layer",)
    quantity, words = "saturated", "saturated: at the bounds of their activation function"
    reasons = ("gradients vanish: saturated functions pass none", "bad initialisation", "learning rate too high")
