"""A side against the baseline: the difference at the common end, its test, the difference along the way.

In:   the stretch that the sides share.
Out:  `Contrast`: numbers, an outcome, one sentence.

What one run's loss does from step to step says nothing of what another seed would do. So the noise within runs is
told, and never decides: one run a side is a verdict only where repeats in the project show what seeds do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare import curves, statistics
from barograph.analysis.compare.ends import Placed, SharedStretch, unlike
from barograph.analysis.compare.pooled import PooledDeviation
from barograph.analysis.compare.repeats import Repeats
from barograph.analysis.compare.student import quantile

Floats = NDArray[np.float64]

BETTER, WORSE, DIFFERENT = "better", "worse", "different"
NOT_SHOWN, CANNOT_TELL, REFUSED = "not shown", "cannot tell", "refused"


@dataclass(frozen=True, eq=False)
class DifferenceCurve:
    """x, difference, low, high [k]: the side minus the baseline along the axis, with its interval (NaN: none).

    kind: what the interval is of: "seeds" or "within runs", or "" for none.
    """

    x: Floats
    difference: Floats
    low: Floats
    high: Floats
    kind: str


@dataclass
class Contrast:
    """A side against the baseline. difference: side − baseline at the common end; percent: of the baseline's value.

    outcome: "better", "worse", "different" (a metric whose good direction is not known), "not shown", "cannot tell",
    "refused". unlike: why the sides are not at the same part of their schedules there. doubt: why it is not known that
    both were measured on the same thing. place: the stretch that these two share, whose end is the common end. noise:
    the standard error of the difference from the noise within the runs, one run a side alone.
    """

    side: int
    baseline: int
    runs: tuple[int, int]
    difference: float = math.nan
    percent: float | None = None
    test: statistics.SignificanceTest | None = None
    repeats: Repeats | None = None
    noise: float | None = None
    curve: DifferenceCurve | None = None
    outcome: str = CANNOT_TELL
    sentence: str = ""
    advice: str = ""
    pairs: int = 0
    unlike: str | None = None
    doubt: str | None = None
    place: SharedStretch | None = None


def contrast(
    stretch: SharedStretch,
    baseline: int,
    side: int,
    level: float,
    repeats: Repeats | None,
    same_plan: bool,
    doubt: str | None = None,
    pooled: PooledDeviation | None = None,
) -> Contrast:
    """Compare two sides over what they share (`SharedStretch.between`). level: of the test; repeats: what seeds do
    elsewhere in the project; same_plan: whether the configurations are known to plan the same length; doubt: why no
    verdict may be given; pooled: what seeds do in all sides of the comparison.
    """
    left, right = stretch.sides[baseline], stretch.sides[side]
    result = Contrast(side, baseline, (len(left), len(right)), doubt=doubt, place=stretch)
    if not stretch.is_whole or not left or not right:
        return result
    pairs = _pairs(left, right)
    if pairs is not None:
        left, right = pairs
        result.pairs = len(left)
    a, b = [item.value for item in left], [item.value for item in right]
    if not all(map(math.isfinite, a + b)):
        return result
    before = float(np.mean(a))
    result.difference = float(np.mean(b)) - before
    result.percent = 100 * result.difference / abs(before) if before else None
    spread = (repeats.spread, repeats.dof) if repeats is not None else None
    result.test = statistics.contrast(a, b, paired=pairs is not None, level=level, repeats=spread,
                                       pooled=(pooled.spread, pooled.dof) if pooled is not None else None)  # fmt: skip
    result.repeats = repeats if result.test is not None and min(len(a), len(b)) == 1 else None
    scatter = None
    if len(left) == len(right) == 1:
        scatter = curves.noise(left[0].curve, right[0].curve, stretch.low, stretch.high, stretch.window)
        result.noise = float(scatter[1][-1]) if scatter is not None else None
    result.curve = _curve(stretch, left, right, pairs is not None, level, scatter, pooled)
    result.unlike = unlike(stretch, baseline, side, same_plan)
    if result.unlike is not None or doubt is not None:
        result.outcome = CANNOT_TELL
    elif result.test is not None and result.test.settled:
        result.outcome = _which(stretch.way, result.difference)
    elif result.test is not None:
        result.outcome = NOT_SHOWN
    return result


def _which(way: int, difference: float) -> str:
    if way == 0:
        return DIFFERENT
    return BETTER if difference * way > 0 else WORSE


def _pairs(left: Sequence[Placed], right: Sequence[Placed]) -> tuple[list[Placed], list[Placed]] | None:
    """Both sides in the order of their seeds, where both have the same ones, three or more, each once."""
    seeds = [[item.member.seeds() for item in side] for side in (left, right)]
    if len(left) != len(right) or len(left) < 3 or any(None in side for side in seeds):
        return None
    places = [{str(seed): at for at, seed in enumerate(side)} for side in seeds]
    if places[0].keys() != places[1].keys() or len(places[0]) != len(left):
        return None
    return [left[at] for at in places[0].values()], [right[places[1][seed]] for seed in places[0]]


def _curve(
    stretch: SharedStretch,
    left: Sequence[Placed],
    right: Sequence[Placed],
    paired: bool,
    level: float,
    scatter: tuple[Floats, Floats, float] | None,
    pooled: PooledDeviation | None,
) -> DifferenceCurve | None:
    """The difference on a grid of the common range; where evaluations are compared, at their own places."""
    if stretch.high <= stretch.low:
        return None
    x = np.linspace(stretch.low, stretch.high, curves.GRID)
    if stretch.window == 0:
        places = left[0].curve.x
        places = places[(places >= stretch.low) & (places <= stretch.high)]
        x = places if 1 < len(places) <= curves.GRID else x
    rows = [
        np.array([item.curve.at(x, stretch.window, stretch.low, stretch.high) for item in side])
        for side in (left, right)
    ]
    difference = rows[1].mean(0) - rows[0].mean(0)
    reach, kind = np.full(len(x), np.nan), ""
    if paired:
        gaps, number = rows[1] - rows[0], len(left)
        reach = quantile(1 - level / 2, number - 1) * gaps.std(0, ddof=1) / math.sqrt(number)
        kind = "seeds"
    elif pooled is not None and min(len(left), len(right)) < statistics.FEW:
        error = math.sqrt(1 / len(left) + 1 / len(right))
        reach, kind = quantile(1 - level / 2, pooled.dof) * error * pooled.along(x, stretch.window), "seeds"
    elif min(len(left), len(right)) >= 2:
        reach, kind = _welch_reach(rows[0], rows[1], level), "seeds"
    elif scatter is not None:
        places, errors, dof = scatter
        reach = np.interp(x, places, curves.within_interval(errors, dof, level))
        kind = "within runs"
    return DifferenceCurve(x, difference, difference - reach, difference + reach, kind)


def _welch_reach(a: Floats, b: Floats, level: float) -> Floats:
    """Welch's interval at every place at once. Quantiles by their dof, rounded down to a twentieth."""
    parts = a.var(0, ddof=1) / len(a), b.var(0, ddof=1) / len(b)
    whole = parts[0] + parts[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        dof = whole**2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    rounded = np.floor(np.nan_to_num(dof, nan=len(a) + len(b) - 2.0) * 20) / 20
    table = {value: quantile(1 - level / 2, value) for value in np.unique(rounded).tolist() if value > 0}
    quantiles = np.array([table.get(value, math.nan) for value in rounded.tolist()])
    return np.asarray(quantiles * np.sqrt(whole))
