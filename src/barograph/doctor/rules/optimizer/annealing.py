"""A learning rate that is lowered in stairs, by what evaluations say.

In:   the series of the learning rate, and the evaluations beside it.
Out:  findings of `LoweredWhenBetter`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.cursor import numeric_setting, setting
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.kernel.series import SeriesRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding

_SAME = 0.01  # of the rate: it is what it was
_SCHEDULERS = ("scheduler", "schedule", "lr_scheduler", "lr_schedule", "lr_scheduler_type", "sched", "scheduler_type")
_PATIENCE = ("patience", "lr_patience", "scheduler_patience")
_CHANGES = 4  # that are neither a fall nor none: the schedule has no stairs


class LoweredWhenBetter(SeriesRule):
    """The learning rate is lowered each time that the evaluation has got better, until nothing is learnt any more.

    It falls in stairs, each time to two thirds or less, four times or more, and to a thousandth of its peak; it is
    there before 70% of the planned steps, for eight rows (without a plan: for a quarter of all rows, 16 at least).
    Before each fall the last evaluation was the best so far, and those between two falls, before the first one, had
    made the loss 1% lower. Since the second fall the best evaluation got lower by less than 1%. A scheduler that waits
    for a plateau lowers the rate where evaluations get no better.

    Where the configuration says that the scheduler waits for a plateau, and with a patience of one or more, three falls
    are enough, each behind an evaluation that was the best so far, by a thousandth.

    What to do: `ReduceLROnPlateau(optimizer, mode="min")` of a loss, `mode="max"` of an accuracy.
    """

    name, family, kind, severity = "lowered_when_better", "optimizer", "learning_rate", "warning"
    series = "lr"
    needs = ("lr", "eval_loss")
    least = 24
    about = "The learning rate is lowered each time that the evaluation gets better."
    thresholds: ClassVar = {
        "fall": (2 / 3, "of the row before; ours"),
        "falls": (4.0, "ours"),
        "low": (1e-3, "of the peak; ours"),
        "planned": (0.7, "of the planned steps; ours"),
        "share": (0.25, "of all rows, without a plan; ours"),
        "better": (0.01, "of the loss; ours"),
        "plain": (3.0, "falls right behind the best evaluation, where the configuration names a plateau; ours"),
        "new": (1e-3, "of the loss, by which it is the best; torch's scheduler takes 1e-4; ours"),
    }
    causes = (
        "learning rate too low: it is lowered when the evaluation gets better, as by a scheduler of the wrong mode",
    )

    def reset(self) -> None:
        self._segment = -1
        self._begin()

    def _begin(self) -> None:
        self._peak = self._last = math.nan
        self._rows = self._low = self._changes = self._better = 0
        self._falls: list[tuple[int, Any]] = []  # step, and the evaluations that were known
        self._holds = True

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        evaluation = history.role("eval_loss")
        still = rows.finite and rows.all_of(self._segment) and rows.lowest == rows.highest == self._last
        if still and not self._low:
            self._rows += len(rows)
            return
        for at in range(len(rows)):
            value, step, segment = float(rows.value[at]), int(rows.step[at]), int(rows.segment[at])
            if segment != self._segment:
                self._segment = segment
                self._begin()
            self._rows += 1
            if not value > 0 or not math.isfinite(value):
                continue
            self._step(evaluation, value, step, int(rows.time[at]))
            if self._better >= self.at["plain"] and self._waits_for_plateau(history) and self.first(self._segment):
                yield self.finding(
                    self._falls[0][0], f"The learning rate is to be lowered where evaluations get no better, and it is "
                    f"at {value:.3g} after {len(self._falls)} falls, {self._better} of them right behind the best "
                    "evaluation so far.", found=step, last_step=step, segment=self._segment, confidence=0.9,
                    evidence={"rate": rounded(value), "falls": len(self._falls), "standing": True},
                    remedies=['`ReduceLROnPlateau(optimizer, mode="min")` of a loss, `mode="max"` of an accuracy'],
                )  # fmt: skip
            self._last = value
            self._peak = value if self._peak != self._peak else max(self._peak, value)
            self._low += value <= self.at["low"] * self._peak
            if self._holds and self._low and len(self._falls) >= self.at["falls"]:
                yield from self._tell(history, evaluation, value, step, int(rows.time[at]))

    def _step(self, evaluation: Channel | None, value: float, step: int, time: int) -> None:
        """A row: whether the rate fell, and whether the last evaluation was the best one then."""
        if value <= self.at["fall"] * self._last:
            known = _evaluations(evaluation, self._segment, step, time)
            self._falls.append((step, known))
            self._holds = self._holds and len(known) > 1 and bool(known[-1] < known[:-1].min())
            earlier = _evaluations(evaluation, self._segment, step - 1, time)  # what the fall can have been for
            before = float(earlier[:-1].min()) if len(earlier) > 1 else math.nan
            self._better += len(earlier) > 1 and before - float(earlier[-1]) >= self.at["new"] * abs(before)
        elif self._falls and value > (1 + _SAME) * self._last:  # another cycle
            self._begin()
        elif value < (1 - _SAME) * self._last:
            self._changes += 1
            self._holds = self._holds and self._changes < _CHANGES

    def _waits_for_plateau(self, history: RunHistory) -> bool:
        """Whether the configuration says so."""
        said = str(setting(history, *_SCHEDULERS)).lower()
        return "plateau" in said and not numeric_setting(history, *_PATIENCE) < 1

    def _tell(
        self, history: RunHistory, evaluation: Channel | None, value: float, step: int, time: int
    ) -> Iterator[Finding]:
        planned = history.facts.get("planned_steps")
        if planned:
            early = self._low >= 8 and step < self.at["planned"] * planned
        else:
            early = self._low >= max(16.0, self.at["share"] * self._rows)
        (begun, first), (_, second) = self._falls[:2]
        between = len(second) - len(first)
        if not early or between < 1 or len(first) <= between:
            return
        before, best, now = (float(known.min()) for known in (
            first[:-between], second, _evaluations(evaluation, self._segment, step, time)))  # fmt: skip
        fell = before - float(first[-1]) >= self.at["better"] * abs(before)
        if fell and best - now < self.at["better"] * abs(best) and self.first(self._segment):
            yield self.finding(
                begun, f"The learning rate went from {self._peak:.3g} to {value:.3g} in {len(self._falls)} falls, each "
                "of them behind an evaluation that was the best so far.", found=step, last_step=step,
                segment=self._segment, confidence=0.9,
                evidence={"peak": rounded(self._peak), "rate": rounded(value), "falls": len(self._falls)},
                remedies=['`ReduceLROnPlateau(optimizer, mode="min")` of a loss, `mode="max"` of an accuracy',
                          f"go on from a rate near {self._peak:.3g}"],
            )  # fmt: skip


def _evaluations(channel: Channel | None, segment: int, step: int, time: int) -> Any:
    """Those that were known at a row, in order."""
    if channel is None:
        return numpy.empty(0)
    rows = channel.rows()
    here = (rows.segment == segment) & (rows.step <= step) & (rows.time <= time) & numpy.isfinite(rows.value)
    return rows.value[here]


RULES = (LoweredWhenBetter,)
