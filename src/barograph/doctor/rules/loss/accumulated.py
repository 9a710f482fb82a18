"""Losses that are logged as sums or means of all rows so far.

In:   the series of the loss, and beside it evaluations.
Out:  findings of `AccumulatedLoss`, `MeanOfAll`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from barograph.doctor.kernel.cursor import known
from barograph.doctor.kernel.curve import rounded
from barograph.doctor.rules.data.examples import Place, WatchRule

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory
    from barograph.doctor.kernel.finding import Finding

_PROOF = 0.95


class _OfTheLoss(WatchRule):
    """Asked for each row of the loss of the first launch."""

    def channel(self, history: RunHistory) -> Channel | None:
        return history.role("loss")


class AccumulatedLoss(_OfTheLoss):
    """The logged loss is the sum of all losses so far: it is never set back to 0.

    The loss rises in each of 20 rows or more, by no row more than one and a half times the first row's loss, and by
    less and less: the mean rise of the last quarter of the rows is at most that of the first quarter. It has come to
    five times the first row's loss. Meanwhile the evaluation gets better: its loss falls, or its accuracy rises, and
    what the loss rises by in a row is between a tenth of the evaluation's loss and ten times that. A training that
    diverges does not rise in each row, by less each time, and evaluate better and better. Where the sum is set back
    now and then, as at some epochs' ends, the row behind it is again as small as the first.

    What to do: `running_loss = 0.0` at the beginning of each stretch that is logged; log the mean of its batches.
    """

    name, family, kind, severity = "accumulated_loss", "loss", "logging", "warning"
    needs = ("loss", "eval_loss|eval_accuracy")
    least = 20
    about = "The logged loss is the sum of all losses so far."
    thresholds: ClassVar = {
        "rows": (20.0, "ours"),
        "rise": (1.5, "of the first row's loss, at most, in a row; ours"),
        "times": (5.0, "the first row's loss, what it comes to; ours"),
        "alike": (10.0, "times the evaluation's loss, or a part of it: the rise in a row; ours"),
    }
    causes = ("loss summed: the logged sum is not set back to 0",)
    remedies = ("set the sum back to 0 when it has been logged, and divide it by the number of its batches",)

    def begin(self) -> None:
        self._over = False
        self._first, self._last = math.nan, math.nan
        self._rises: list[float] = []
        self._top = 0.0

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        if self._over:
            return
        if math.isnan(self._first):
            self._first = self._last = value
            self._over = not 0 < value < math.inf
            return
        rise, low = value - self._last, self.at["rise"] * self._first
        again = value <= low and self._last >= 2 * low
        self._last, self._top = value, max(self._top, value)
        self._over = not (0 < rise <= low or again)
        if self._over:
            return
        self._rises.append(value if again else rise)
        part = len(self._rises) // 4
        if len(self._rises) + 1 < self.at["rows"] or self._top < self.at["times"] * self._first:
            return
        late = float(numpy.mean(self._rises[-part:]))
        if late > float(numpy.mean(self._rises[:part])) or not self._better(history, late, place):
            return
        self._over = True
        yield self.finding(
            0, f"The loss rises in each of {len(self._rises) + 1} rows, from {self._first:.4g} to {self._top:.4g}, by "
            f"{late:.3g} at last, while the evaluation gets better: what is logged is a sum of all losses so far.",
            found=place[0], segment=place[2], confidence=_PROOF,
            evidence={"first": rounded(self._first), "rise": rounded(late), "standing": True},
        )  # fmt: skip

    def _better(self, history: RunHistory, rise: float, place: Place) -> bool:
        """Whether the evaluation has got better, and its loss is of the size of the rises."""
        loss, accuracy = history.role("eval_loss"), history.role("eval_accuracy")
        now, right = known(loss, *place), known(accuracy, *place)
        if loss is not None and math.isfinite(now):
            return 0 < now < loss.first and now / self.at["alike"] <= rise <= now * self.at["alike"]
        return accuracy is not None and right > accuracy.first


_OCTAVES = 4


class MeanOfAll(_OfTheLoss):
    """The logged loss is the mean over all rows since the start: what changed of late hardly shows in it.

    In a mean over t rows a new one counts for one t-th: t times the change from row to row is what the new row differs
    from the mean by, and its noise is the same everywhere. A loss that is logged as it is, or an average over the last
    rows, has changes that stay as large, and t times them grows with t. Looked at after 512 rows and each doubling:
    over the last four octaves t times the change, as a share of the loss, has noise that differs by less than a factor
    of two from one to the next, where sixteen would be usual, and the noise is that of single rows, each independent of
    the last. A warning where the log counts epochs and has come to the third; else an info finding, since within an
    epoch some programs show such a mean on purpose.

    What to do: log the loss of the step, or the mean since the last row.
    """

    name, family, kind, severity = "mean_of_all", "loss", "logging", "warning"
    needs = ("loss",)
    least = 512
    about = "The logged loss is the mean over all rows since the start."
    thresholds: ClassVar = {
        "rows": (512.0, "and each doubling; ours"),
        "apart": (2.0, "times: the noise of t times the change, between octaves; usual are 16; ours"),
        "epochs": (2.0, "behind which it is a warning; ours"),
    }
    causes = ("loss averaged over the whole run: the mean is not begun anew",)
    remedies = ("log the loss of the step, or the mean since the last row: begin the sum and its count anew",)

    def reset(self) -> None:
        super().reset()
        self._count, self._next = 0, self.at["rows"]

    def begin(self) -> None:
        self._next = math.inf if self._count else self._next  # a mean is followed from the run's first row

    def look(self, history: RunHistory, value: float, place: Place) -> Iterator[Finding]:
        self._count += 1
        if self._count < self._next:
            return
        self._next = 2 * self._count
        loss = history.role("loss")
        assert loss is not None
        if not self._is_mean(loss, self._count) or not self.first(place[2]):
            return
        values = loss.rows(0, self._count).value
        half = len(values) // 2
        late = float(2 * values[-1] - values[half - 1])  # of the second half alone
        epochs = known(history.role("epoch"), *place)
        yield self.finding(
            0, f"The loss of {self._count} rows is the mean over all rows since the start: it stands at "
            f"{value:.4g}, and the rows of the second half have {late:.4g}.",
            found=place[0], segment=place[2], confidence=_PROOF,
            severity="warning" if epochs >= self.at["epochs"] else "info", evidence={"late": rounded(late)},
        )  # fmt: skip

    def _is_mean(self, loss: Channel, count: int) -> bool:
        rows = loss.rows(0, count)
        values, steps = rows.value, rows.step
        apart = numpy.diff(steps)
        whole = len(values) == count and rows.segment[0] == rows.segment[-1]
        if not whole or not (values > 0).all() or not numpy.isfinite(values).all():
            return False
        if apart.min() <= 0 or apart.max() > 1.5 * apart.min():
            return False
        at = numpy.arange(1, count)
        own = at * numpy.diff(values) / values[1:]  # of each row, its difference from the mean before it
        noise: list[float] = []
        for octave in range(_OCTAVES, 0, -1):
            some = numpy.diff(own[count // 2**octave : count // 2 ** (octave - 1)])
            noise.append(_width(some))
        some = numpy.diff(own[count // 2**_OCTAVES :])
        follows = float(numpy.mean(some[1:] * some[:-1])) / max(float(some.var()), 1e-300)
        low, high = min(noise), max(noise)
        return low > 0 and high <= self.at["apart"] * low and _INDEPENDENT[0] < follows < _INDEPENDENT[1]


_INDEPENDENT = (-0.65, -0.35)  # of differences of independent numbers: one half, below 0


def _width(values: Any) -> float:
    """How wide numbers are about their middle; a few that are far off count little."""
    return float(numpy.median(numpy.abs(values - numpy.median(values)))) if len(values) else math.nan


RULES = (AccumulatedLoss, MeanOfAll)
