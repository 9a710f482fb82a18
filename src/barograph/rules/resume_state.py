"""What the first steps after a resume say of the optimizer's state.

In:   the median update of a step, the learning rate, where a new segment begins.
Out:  findings of `OptimizerStateLost`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy

from barograph.rules.cursor import Cursor, known, number, saved_before
from barograph.rules.rule import Rule

if TYPE_CHECKING:
    from barograph.rules.channels import Channel, Rows, Seen
    from barograph.rules.finding import Finding


class OptimizerStateLost(Rule):
    """The first step after a resume is much longer than the steps before, at the same learning rate.

    Adam's steps are m̂ / √v̂. With moments that begin at zero both are the first gradient, so each weight moves by the
    whole learning rate; with moments of a training under way the directions of many batches cancel, and it moves by a
    tenth to a third of that. The median update ratio over the learning rate, in the first table behind the resume,
    must be twice the largest of the eight before it. Where the learning rate isn't logged it counts as unchanged.

    The loss need not show it: the step is long in a random direction, once.
    """

    name, family, kind, severity = "optimizer_state_lost", "run", "resume", "warning"
    needs = ("=model/update_p50",)
    least = 9
    about = "The first step after a resume is far longer than those before."
    source = "R32: optimizer state missing; Adam's bias correction (Kingma & Ba 2015); the factor ours"
    thresholds: ClassVar = {"times": (2.0, "times the largest of eight before; ours"),
                  "tables": (8.0, "before the resume; ours")}  # fmt: skip

    def __init__(self, **changed: float):
        super().__init__(**changed)
        self._cursor = Cursor()
        self._past: list[float] = []  # update ratio over learning rate, of the newest tables
        self._segment: int | None = None
        self._step = 0

    def examine(self, seen: Seen) -> Iterable[Finding]:
        rows = self._cursor.new(seen.channel("model/update_p50"))
        if rows is None:
            return ()
        found: list[Finding] = []
        rate = seen.role("lr")
        cuts = [0, *(numpy.flatnonzero(numpy.diff(rows.segment)) + 1).tolist(), len(rows)]
        for low, high in pairwise(cuts):
            segment = int(rows.segment[low])
            if self._segment is not None and segment != self._segment:
                found += self._look(seen, rate, rows, low)
            self._segment, self._step = segment, int(rows.step[high - 1])
            for at in range(max(low, high - int(self.at["tables"])), high):
                self._past.append(_each(rate, rows, at))
            self._past = self._past[-int(self.at["tables"]) :]
        return found

    def _look(self, seen: Seen, rate: Channel | None, rows: Rows, at: int) -> list[Finding]:
        step, segment = int(rows.step[at]), int(rows.segment[at])
        usual = [one for one in self._past if math.isfinite(one) and one > 0]
        now, largest = _each(rate, rows, at), max(usual, default=math.nan)
        anew = step < 0.5 * self._step  # another stage, or another try
        if anew or len(usual) < self.at["tables"] or not self.at["times"] * largest < now < math.inf:
            return []
        times = now / float(numpy.median(usual))
        return [self.finding(
            step, f"The first step after the resume at step {step} moves the weights {number(times)} times as far as "
            "those before, at the same learning rate.", found=step, segment=segment,
            confidence=0.85, evidence={"times": times, "ratio": float(rows.value[at])},
            causes=["optimizer state lost: its moments begin at zero", "learning rate too high: not the one before"],
            remedies=["load the optimizer's state with the weights", "if it is gone, warm the learning rate up again",
                      *saved_before(seen, step)],
        )]  # fmt: skip


def _each(rate: Channel | None, rows: Rows, at: int) -> float:
    """The median update for a learning rate of 1."""
    value = known(rate, int(rows.step[at]), int(rows.time[at]), int(rows.segment[at]))
    if value == 0:
        return math.nan
    return float(rows.value[at]) / (value if value > 0 else 1.0)
