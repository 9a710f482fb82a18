"""What seeds do, from all sides of a comparison together: the standard deviation within sides.

In:   three sides or more of two runs or more.
Out:  the deviation at the ends, and along the axis, with its degrees of freedom.

Two runs say little about their own deviation (dof 1); fifteen pairs of them say it well, if seeds do
about the same in all, which is what the analysis of variance takes too (Tukey 1949, Hsu 1996).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare import statistics
from barograph.analysis.compare.ends import SharedStretch

Floats = NDArray[np.float64]

_FEWEST_SIDES = 3


class PooledDeviation:
    """spread, dof: at the end of each side."""

    def __init__(self, stretch: SharedStretch, spread: float, dof: float):
        self._stretch = stretch
        self.spread, self.dof = spread, dof
        self._along: dict[tuple[float, float, int], Floats] = {}

    def along(self, x: Floats, window: float) -> Floats:
        """The deviation at each place of the axis; NaN where no side has two runs."""
        key = float(x[0]), float(x[-1]), len(x)
        if key not in self._along:
            squares, dof = np.zeros(len(x)), np.zeros(len(x))
            for side in self._stretch.sides:
                if len(side) < 2:
                    continue
                rows = np.array([
                    np.where(x <= item.curve.x[-1], item.curve.at(x, window, float(x[0]), float(x[-1])), np.nan)
                    for item in side
                ])  # fmt: skip
                whole = np.isfinite(rows).all(0)
                with np.errstate(over="ignore"):  # infinite, where values are beyond all squares
                    squares[whole] += rows[:, whole].var(0, ddof=1) * (len(side) - 1)
                dof[whole] += len(side) - 1
            with np.errstate(invalid="ignore", divide="ignore"):
                self._along[key] = np.sqrt(squares / dof)
        return self._along[key]


def pooled_deviation(stretch: SharedStretch) -> PooledDeviation | None:
    """None for fewer than three sides with repeats, or where these agree to the last digit."""
    ends = []
    for side in stretch.sides:
        if len(side) > 1:
            last = min(float(item.curve.x[-1]) for item in side)
            ends.append([item.curve.end(last, stretch.window) for item in side])
    found = statistics.pooled_spread(ends)
    if len(ends) < _FEWEST_SIDES or found is None or found[0] <= 0 or not np.isfinite(found[0]):
        return None
    return PooledDeviation(stretch, *found)
