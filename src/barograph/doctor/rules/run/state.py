"""What the first steps after a resume say of the optimizer's state.

In:   the median update of a step, the learning rate, where a new segment begins.
Out:  findings of `OptimizerStateLost`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.doctor.kernel.cursor import known, saved_before
from barograph.doctor.kernel.series import SeriesRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory
    from barograph.doctor.kernel.finding import Finding


class OptimizerStateLost(SeriesRule):
    """The first step after a resume is much longer than the steps before, at the same learning rate.

    Adam's steps are m̂ / √v̂. With moments that begin at zero both are the first gradient, so each weight moves by the
    whole learning rate; with moments of a training under way the directions of many batches cancel, and it moves by a
    tenth to a third of that. The median update ratio over the learning rate, in the first table behind the resume,
    must be twice the largest of the eight before it. Where the learning rate isn't logged it counts as unchanged.

    The loss need not show it: the step is long in a random direction, once.
    """

    name, family, kind, severity = "optimizer_state_lost", "run", "resume", "warning"
    series, waits = "=model/update_p50", False
    needs = ("=model/update_p50",)
    least = 9
    about = "The first step after a resume is far longer than those before."
    sources = ("Adam: bias correction",)
    thresholds: ClassVar = {
        "times": (2.0, "times the largest of eight before; ours"),
        "tables": (8.0, "before the resume; ours"),
    }
    causes = ("optimizer state lost: its moments begin at zero", "learning rate too high: not the one before")

    def reset(self) -> None:
        self._past: list[float] = []  # update ratio over learning rate, of the newest tables
        self._segment: int | None = None
        self._step = 0

    def look(self, history: RunHistory, channel: Channel, rows: ChannelRows) -> Iterator[Finding]:
        rate = history.role("lr")
        cuts = [0, *(numpy.flatnonzero(numpy.diff(rows.segment)) + 1).tolist(), len(rows)]
        for low, high in pairwise(cuts):
            segment = int(rows.segment[low])
            if self._segment is not None and segment != self._segment:
                yield from self._look(history, rate, rows, low)
            self._segment, self._step = segment, int(rows.step[high - 1])
            for at in range(max(low, high - int(self.at["tables"])), high):
                self._past.append(_each(rate, rows, at))
            self._past = self._past[-int(self.at["tables"]) :]

    def _look(self, history: RunHistory, rate: Channel | None, rows: ChannelRows, at: int) -> Iterator[Finding]:
        step, segment = int(rows.step[at]), int(rows.segment[at])
        usual = [item for item in self._past if math.isfinite(item) and item > 0]
        now, largest = _each(rate, rows, at), max(usual, default=math.nan)
        anew = step < 0.5 * self._step  # another stage, or another try
        if anew or len(usual) < self.at["tables"] or not self.at["times"] * largest < now < math.inf:
            return
        times = now / float(numpy.median(usual))
        yield self.finding(
            step, f"The first step after the resume at step {step} moves the weights {times:.3g} times as far as "
            "those before, at the same learning rate.", found=step, segment=segment,
            confidence=0.85, evidence={"times": times, "ratio": float(rows.value[at])},
            remedies=["load the optimizer's state with the weights", "if it is gone, warm the learning rate up again",
                      *saved_before(history, step)],
        )  # fmt: skip


def _each(rate: Channel | None, rows: ChannelRows, at: int) -> float:
    """The median update for a learning rate of 1."""
    value = known(rate, int(rows.step[at]), int(rows.time[at]), int(rows.segment[at]))
    if value == 0:
        return math.nan
    return float(rows.value[at]) / (value if value > 0 else 1.0)
