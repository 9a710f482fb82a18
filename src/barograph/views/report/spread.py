"""A series in a few figures: where it began, ended, was lowest and highest, and what was not finite.

In:   a series.
Out:  `Spread`; None of a series without a point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from barograph.query.stored import Series
from barograph.views.report import figures
from barograph.views.report.content import Figure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

END_PART = 0.05  # the mean of so much stands for a series' begin and end: what a forecast calls the final loss
_BLOCKS = 8  # of which the means' scatter says how sure a mean is: values that follow each other are alike


@dataclass(frozen=True, eq=False)
class Spread:
    """name, source: of the series. points, odd: how many, and how many of them are not finite; odd_step: the first
    of those. begin, end: means of the first and last twentieth of the finite values, over `few` of them."""

    name: str
    series: Series
    value: Floats
    points: int
    odd: int
    odd_step: int | None
    begin: float
    end: float
    few: int
    low: float
    low_step: int
    high: float
    high_step: int
    median: float

    def at(self, value: float, step: int | None = None) -> Figure:
        """A value of the series, with where it stands."""
        return figures.number(value, self.name if step is None else f"{self.name} at step {step:,}")

    def step(self, step: int) -> Figure:
        return figures.count(step, f"step of {self.name}")

    @property
    def finite_until(self) -> int | None:
        """The step of the last finite value, of a series that does not end with one; None else, and of none at all."""
        good = np.flatnonzero(np.isfinite(self.series.value))
        if not self.odd or not len(good) or good[-1] == len(self.series) - 1:
            return None
        return int(self.series.step[good[-1]])

    def means(self, low: float, high: float) -> tuple[float, float] | None:
        """The mean over a part of the finite values (0 to 1), and its standard error; None of too few."""
        part = self.value[int(low * len(self.value)) : int(high * len(self.value))]
        if len(part) < 2 * _BLOCKS:
            return None
        blocks = np.array([float(block.mean()) for block in np.array_split(part, _BLOCKS)])
        return float(blocks.mean()), float(blocks.std(ddof=1)) / math.sqrt(_BLOCKS)


def spread(name: str, series: Series) -> Spread | None:
    """The figures of a series; those of values are NaN where none is finite."""
    if not len(series):
        return None
    good = np.isfinite(series.value)
    value = series.value[good] if not good.all() else series.value
    odd = len(series) - len(value)
    odd_step = int(series.step[np.flatnonzero(~good)[0]]) if odd else None
    if not len(value):
        nothing = math.nan
        return Spread(
            name, series, value, len(series), odd, odd_step, nothing, nothing, 0, nothing, 0, nothing, 0, nothing
        )
    few = max(1, round(END_PART * len(value)))
    step = series.step[good] if odd else series.step
    low, high = int(value.argmin()), int(value.argmax())
    return Spread(
        name, series, value, len(series), odd, odd_step,
        float(value[:few].mean()), float(value[-few:].mean()), few,
        float(value[low]), int(step[low]), float(value[high]), int(step[high]), float(np.median(value)),
    )  # fmt: skip
