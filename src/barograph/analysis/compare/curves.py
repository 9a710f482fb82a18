"""Curves on one axis, smoothed by one rule: their difference, their ends, when they reach a value, their spikes.

In:   columns of one length n: x (never falling) and y, NaN and infinities among them.
Out:  values at given x, means, intervals of the noise within runs.

The rule of smoothing is shared by all runs of a comparison: the mean of the finite values in a window of the axis,
as wide for one as for another, however often each logs. The window is 2% of the range that all have in common, wider
where the sparsest run would have fewer than ten points in it, and never more than a fifth. Evaluations are means
already and stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare.student import quantile
from barograph.core.columns import align

Floats = NDArray[np.float64]

SHARE = 0.02
MOST_SHARE = 0.2
FEWEST = 10
GRID = 200  # points of a curve that is shown

# OLMo 2 (arXiv:2501.00656, section 3.2): seven standard deviations from the mean of the last 1,000 values
SPIKE_SIGMAS = 7.0
SPIKE_WINDOW = 1_000
_SPIKE_BLOCK = 32_768
_SPIKE_FIRST = 100  # values before the first that is scored: fewer give no deviation worth the name
# Second differences of independent values overlap: m of them are worth this part of m (correlations −2/3 and 1/6).
_WORTH = 1 / (1 + 2 * (4 / 9 + 1 / 36))


@dataclass(frozen=True, eq=False)
class ComparisonCurve:
    """x, y [n], finite, x never falling."""

    x: Floats
    y: Floats

    def __len__(self) -> int:
        return len(self.x)

    def at(self, x: Any, window: float, low: float = -math.inf, high: float = math.inf) -> Floats:
        """The smoothed values at x [k]: means over x ± window / 2, a window cut off where the curve ends.

        low, high: the range that is looked at, so that a longer curve is cut off where a shorter one ends.
        With no window, or no point in it: on the line between neighbours; NaN outside the curve.
        """
        wanted = np.asarray(x, np.float64)
        if window <= 0 or not len(self.x):
            return align(wanted, self.x, self.y)
        half = window / 2
        first = np.searchsorted(self.x, np.maximum(wanted - half, low), "left")
        last = np.searchsorted(self.x, np.minimum(wanted + half, high), "right")
        means = self._means(first, last)
        inside = (last > first) & (wanted >= self.x[0]) & (wanted <= self.x[-1])
        if not inside.all():
            means[~inside] = align(wanted[~inside], self.x, self.y)
        return means

    def mean(self, low: float, high: float) -> float:
        """The mean of the values with low < x ≤ high; NaN without any."""
        first, last = (int(np.searchsorted(self.x, edge, "right")) for edge in (low, high))
        return float(self.y[first:last].mean()) if last > first else math.nan

    def end(self, x: float, window: float) -> float:
        """The value at the end x: the mean of the last window before it; on the line where there is no window."""
        if window > 0:
            value = self.mean(x - window, x)
            if not math.isnan(value):
                return value
        return float(self.at(np.array([x]), 0.0)[0])

    @cached_property
    def _sums(self) -> tuple[Floats, float]:
        """Sums of the values before each place, less a middle: sums of small numbers keep their digits."""
        middle = float(self.y.mean())
        sums = np.zeros(len(self.y) + 1)
        np.cumsum(self.y - middle, out=sums[1:])
        return sums, middle

    def _means(self, first: NDArray[Any], last: NDArray[Any]) -> Floats:
        sums, middle = self._sums
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((sums[last] - sums[first]) / (last - first) + middle)


def window_of(curves: list[ComparisonCurve], low: float, high: float) -> float:
    """The width of the shared window for a range of the axis; 0 for curves that are not to be smoothed.

    0 also where some curve has fewer than 20 points in the range.
    """
    whole = high - low
    counts = [int(np.searchsorted(curve.x, high, "right") - np.searchsorted(curve.x, low)) for curve in curves]
    if whole <= 0 or not counts or min(counts) < 2 * FEWEST:
        return 0.0
    return float(min(max(SHARE, FEWEST / min(counts)), MOST_SHARE) * whole)


def noise(
    a: ComparisonCurve, b: ComparisonCurve, low: float, high: float, window: float
) -> tuple[Floats, Floats, float] | None:
    """How far the smoothed difference of two curves scatters by noise within the runs, along the range.

    The range is cut into stretches as wide as the window; the means of the difference in them scatter about a smooth
    line, and their second differences d(k-1) − 2 d(k) + d(k+1) have six times their variance, whatever the line's
    slope. Returns x [k], standard errors [k] (of the nine nearest second differences each) and their
    degrees of freedom; None with fewer than six stretches, or without a window.
    """
    number = int((high - low) / window + 1e-9) if window > 0 else 0
    number = min(number, 500)
    if number < 4:
        return None
    edges = np.linspace(high - number * window, high, number + 1) if number < 500 else np.linspace(low, high, 501)
    means = []
    for curve in (a, b):
        places = np.searchsorted(curve.x, edges, "right")
        if (np.diff(places) == 0).any():
            return None
        means.append(curve._means(places[:-1], places[1:]))
    gaps = means[1] - means[0]
    second = (gaps[:-2] - 2 * gaps[1:-1] + gaps[2:]) ** 2 / 6
    width = min(9, len(second))
    sums = np.concatenate([[0.0], np.cumsum(second)])
    first = np.clip(np.arange(len(second)) - width // 2, 0, len(second) - width)
    errors = np.sqrt(np.maximum((sums[first + width] - sums[first]) / width, 0.0))
    middles = (edges[:-1] + edges[1:]) / 2
    return middles[1:-1], errors, max(1.0, width * _WORTH)


def within_interval(errors: Floats, dof: float, level: float = 0.05) -> Floats:
    """How far an interval of the noise within runs reaches on each side."""
    return errors * quantile(1 - level / 2, dof)


def first_reach(x: Floats, y: Floats, target: float, rising: bool) -> float | None:
    """The first x at which a curve passes a value, on the line between points; None if it never does.

    x, y [n], NaN where there is nothing. rising: whether larger is further.
    """
    there = (y >= target) if rising else (y <= target)
    places = np.flatnonzero(there)
    if not len(places):
        return None
    at = int(places[0])
    before = at - 1
    if before < 0 or not math.isfinite(y[before]) or y[at] == y[before]:
        return float(x[at])
    part = (target - y[before]) / (y[at] - y[before])
    return float(x[before] + (x[at] - x[before]) * part)


@dataclass(frozen=True)
class Spikes:
    """share: of the values that could be scored; None if none could be."""

    share: float | None
    spikes: int
    scored: int
    not_finite: int


def spike_score(y: Floats) -> Spikes:
    """OLMo 2's spike score: the share of values at least 7 standard deviations from the mean of the 1,000 before.

    y [n] in the order logged. Values that are not finite are counted apart. The first 100 values are not scored.
    """
    finite = np.isfinite(y)
    values = y[finite] if not finite.all() else y
    lost = len(y) - len(values)
    number = len(values) - _SPIKE_FIRST
    if number <= 0:
        return Spikes(None, 0, 0, lost)
    found = sum(
        _spikes_in(values, start, min(start + _SPIKE_BLOCK, len(values)))
        for start in range(_SPIKE_FIRST, len(values), _SPIKE_BLOCK)
    )
    return Spikes(found / number, found, number, lost)


def _spikes_in(values: Floats, start: int, stop: int) -> int:
    """Spikes among values[start:stop]. By blocks that stay in the cache, and whose sums keep their digits."""
    before = max(0, start - SPIKE_WINDOW)
    centre = values[before:stop] - np.median(values[before:start])
    # one value of 1e30 would take the digits of all sums behind it; it stays a spike where it is cut
    most = 1e3 * float(np.median(np.abs(centre[::7])))
    if most > 0:
        np.clip(centre, -most, most, out=centre)
    sums, squares = np.zeros(len(centre) + 1), np.zeros(len(centre) + 1)
    np.cumsum(centre, out=sums[1:])
    np.cumsum(centre * centre, out=squares[1:])
    rounding = 1e-15 * float(squares[-1])
    result = 0
    for first, last in _windows(before, start, stop):
        count = last.start - first.start if first.stop - first.start == last.stop - last.start else None
        here = last if count is not None else slice(last.start, last.stop)
        length = np.arange(last.start, last.stop) - first.start if count is None else float(count)
        low = (sums[first], squares[first]) if count is not None else (sums[first.start], squares[first.start])
        mean = (sums[here] - low[0]) / length
        variance = (squares[here] - low[1]) / length
        variance -= mean * mean
        np.maximum(variance, rounding / length, out=variance)
        gaps = centre[here] - mean
        gaps *= gaps
        result += int(np.count_nonzero((gaps >= SPIKE_SIGMAS**2 * variance) & (gaps > 0)))
    return result


def _windows(before: int, start: int, stop: int) -> list[tuple[slice, slice]]:
    """Pairs of slices into a block's sums: where the windows begin, and where their values stand.

    Rows that have not 1,000 values before them yet share the first one's beginning: there the first slice is empty.
    """
    full = max(start, SPIKE_WINDOW) - before  # places in the block from which a whole window lies behind
    result = []
    if start - before < full:
        result.append((slice(0, 0), slice(start - before, min(full, stop - before))))
    if full < stop - before:
        result.append((slice(full - SPIKE_WINDOW, stop - before - SPIKE_WINDOW), slice(full, stop - before)))
    return result
