"""Tests for few seeds: intervals, p values, effect sizes, and how many seeds more it takes.

In:   final values, one a run: a few of A, a few of B.
Out:  a `SignificanceTest`: the difference B − A with its interval, and what decides whether it counts.

The rule is fixed before the values are seen, so that the level holds:

    same seeds on both sides, three or more  → Student's t of the differences, seed by seed
    fewer than four on a side, three sides   → Student's t with the standard deviation of all sides together
        or more with repeats
    two or more on each side                 → Welch's t; with only two on a side, the larger p of his and Student's
    one on a side, repeats elsewhere         → Student's t with the standard deviation of the repeats
    else                                     → no test: nothing can be concluded

Runs of a side that agree to the last digit are copies and not repeats: with no spread at all there is no test.

Where there are enough runs for an exact permutation test to be about as fine as the level (C(10, 5) = 252
arrangements are), it has to agree: it assumes no shape of the distribution.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare.student import quantile, two_sided

Floats = NDArray[np.float64]

LEVEL = 0.05
POWER = 0.8
MOST_ARRANGEMENTS = 50_000  # nine against nine; with more runs than that Welch's t needs no second opinion
MOST_SEEDS = 1_000
FEW = 4  # runs on a side: of fewer their own deviation is known badly
# A permutation test that can reject this part of the level's share of the time is fine enough to be asked.
_FINE = 0.8
# The smallest spread that is one: below it runs are equal but for the last digits of a float.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class SignificanceTest:
    """What a test of B against A found. Values in the metric's unit; `difference` is mean of B − mean of A.

    low, high: the interval at 1 − level. p: two-sided. permutation: the exact test's p, None if it was not asked.
    settled: whether the difference counts at the level. effect: Hedges' g, difference over the common standard
    deviation, corrected for few runs. spread: that standard deviation, from run to run. dof: its degrees of freedom.
    correlation: of the pairs. needed: runs a side that would show a difference and a deviation such as these with a
    power of 0.8, None above 1,000. detectable: the difference that this number of runs would show.
    """

    method: str
    difference: float
    low: float
    high: float
    p: float
    dof: float
    spread: float
    settled: bool
    level: float
    permutation: float | None = None
    effect: float | None = None
    correlation: float | None = None
    needed: int | None = None
    detectable: float | None = None


def mean_interval(
    values: Sequence[float], level: float = LEVEL, pooled: tuple[float, float] | None = None
) -> tuple[float, float] | None:
    """Student's interval of the mean; None for fewer than two values, but where other sides say what seeds do."""
    array = np.asarray(values, np.float64)
    if pooled is not None and 0 < len(values) < FEW:
        reach = quantile(1 - level / 2, pooled[1]) * pooled[0] / math.sqrt(len(array))
        return float(array.mean()) - reach, float(array.mean()) + reach
    if len(values) < 2:
        return None
    reach = quantile(1 - level / 2, len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return float(array.mean()) - reach, float(array.mean()) + reach


def contrast(
    a: Sequence[float],
    b: Sequence[float],
    *,
    paired: bool = False,
    level: float = LEVEL,
    repeats: tuple[float, float] | None = None,
    pooled: tuple[float, float] | None = None,
) -> SignificanceTest | None:
    """Test B against A by the rule above; None if nothing can be concluded from so few.

    paired: a[i] and b[i] are of the same seed. repeats: the spread from run to run and its degrees of freedom, known
    from other runs. pooled: the same from all sides of the comparison, these two among
    them. level: of the test, 0.05 or, with m comparisons, 0.05 / m.
    """
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not len(left) or not len(right):
        return None
    if paired and len(left) == len(right) >= 3:
        return _paired(left, right, level)
    if pooled is not None and min(len(left), len(right)) < FEW:
        return _with_spread(left, right, level, *pooled, "Student's t with the standard deviation of all sides")
    if min(len(left), len(right)) >= 2:
        return _welch(left, right, level) if _deviation(left) or _deviation(right) else None
    return _student(left, right, level, repeats)


def _paired(a: Floats, b: Floats, level: float) -> SignificanceTest | None:
    number, gaps = len(a), b - a
    difference, deviation = float(gaps.mean()), float(gaps.std(ddof=1))
    if deviation <= _ROUNDING * float(np.abs(a).max()):
        return None
    error, dof = deviation / math.sqrt(number), number - 1.0
    p = two_sided(difference / error, dof)
    exact = _flips(gaps) if number <= 15 and _is_fine(2**number, level) else None
    both = math.sqrt((_deviation(a) ** 2 + _deviation(b) ** 2) / 2)
    varied = float(a.std()) > 0 and float(b.std()) > 0
    return _made(
        "Student's t, pairs of the same seed",
        difference, error, dof, p, level,
        spread=both,
        permutation=exact,
        effect=_hedges(difference, both, 2 * dof),
        correlation=float(np.corrcoef(a, b)[0, 1]) if varied else None,
        needed=seeds_needed(difference, deviation, level, paired=True),
        detectable=_detectable(error, dof, level),
    )  # fmt: skip


def _welch(a: Floats, b: Floats, level: float) -> SignificanceTest:
    difference = float(b.mean() - a.mean())
    parts = _deviation(a) ** 2 / len(a), _deviation(b) ** 2 / len(b)
    error = math.sqrt(sum(parts))
    below = parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)
    dof = sum(parts) ** 2 / below if below > 0 else float(len(a) + len(b) - 2)
    p, name = two_sided(difference / error, dof), "Welch's t"
    spread = _pooled(a, b)
    if min(len(a), len(b)) == 2 and len(a) != len(b):
        # two values may lie close by luck, and Welch believes them; Student shares the other side's spread
        shared = spread * math.sqrt(1 / len(a) + 1 / len(b))
        other = two_sided(difference / shared, len(a) + len(b) - 2.0)
        if other > p:
            p, error, dof, name = other, shared, len(a) + len(b) - 2.0, "Student's t"
    arrangements = math.comb(len(a) + len(b), len(a))
    fine = arrangements <= MOST_ARRANGEMENTS and _is_fine(arrangements, level, len(a) == len(b))
    return _made(
        name, difference, error, dof, p, level,
        spread=spread,
        permutation=_permutations(a, b) if fine else None,
        effect=_hedges(difference, spread, len(a) + len(b) - 2.0),
        needed=seeds_needed(difference, spread, level),
        detectable=_detectable(error, dof, level),
    )  # fmt: skip


def _student(a: Floats, b: Floats, level: float, repeats: tuple[float, float] | None) -> SignificanceTest | None:
    """One run on a side: its spread is taken to be that of the runs that there are several of."""
    known = [((len(side) - 1.0), _deviation(side)) for side in (a, b) if len(side) > 1]
    known += [(repeats[1], repeats[0])] if repeats is not None else []
    dof = sum(item for item, _ in known)
    if dof < 2 or not any(deviation for _, deviation in known):
        return None
    spread = math.sqrt(sum(item * deviation**2 for item, deviation in known) / dof)
    return _with_spread(a, b, level, spread, dof, "Student's t with the standard deviation of repeats")


def _with_spread(a: Floats, b: Floats, level: float, spread: float, dof: float, name: str) -> SignificanceTest:
    difference = float(b.mean() - a.mean())
    error = spread * math.sqrt(1 / len(a) + 1 / len(b))
    return _made(
        name,
        difference, error, dof, two_sided(difference / error, dof), level,
        spread=spread,
        effect=_hedges(difference, spread, dof),
        needed=seeds_needed(difference, spread, level),
        detectable=_detectable(error, dof, level),
    )  # fmt: skip


def _made(
    method: str,
    difference: float,
    error: float,
    dof: float,
    p: float,
    level: float,
    *,
    spread: float,
    permutation: float | None = None,
    effect: float | None = None,
    correlation: float | None = None,
    needed: int | None = None,
    detectable: float | None = None,
) -> SignificanceTest:
    reach = quantile(1 - level / 2, dof) * error
    settled = p <= level and (permutation is None or permutation <= level)
    return SignificanceTest(
        method, difference, difference - reach, difference + reach, p, dof, spread, settled, level,
        permutation, effect, correlation, needed, detectable,
    )  # fmt: skip


def seeds_needed(
    difference: float, spread: float, level: float = LEVEL, power: float = POWER, *, paired: bool = False
) -> int | None:
    """Runs a side for which a difference and a spread such as these are settled with the power; None above 1,000.

    The smallest n with |difference| ≥ (t(1 − level/2) + t(power)) · spread · √(2/n), t with 2n − 2 degrees of freedom;
    for pairs √(1/n), n − 1 degrees and the spread of the pairs' differences.
    """
    if not (math.isfinite(difference) and math.isfinite(spread)) or difference == 0:
        return None

    def enough(number: int) -> bool:
        dof = float(number - 1 if paired else 2 * number - 2)
        reach = quantile(1 - level / 2, dof) + quantile(power, dof)
        return abs(difference) >= reach * spread * math.sqrt((1 if paired else 2) / number)

    low, high = 1, 2
    while not enough(high):
        low, high = high, high * 2
        if low >= MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MOST_SEEDS else None


def pooled_spread(groups: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The standard deviation within groups and its degrees of freedom; None if no group has two values."""
    several = [np.asarray(group, np.float64) for group in groups if len(group) > 1]
    dof = float(sum(len(group) - 1 for group in several))
    if dof == 0:
        return None
    return math.sqrt(sum((len(group) - 1) * _deviation(group) ** 2 for group in several) / dof), dof


# -- inside -----------------------------------------------------------------------------------------


def _deviation(values: Floats) -> float:
    """The standard deviation, n − 1; zero where it is only rounding."""
    deviation = float(values.std(ddof=1))
    return deviation if deviation > _ROUNDING * float(np.abs(values).max()) else 0.0


def _pooled(a: Floats, b: Floats) -> float:
    whole = (len(a) - 1) * _deviation(a) ** 2 + (len(b) - 1) * _deviation(b) ** 2
    return math.sqrt(whole / (len(a) + len(b) - 2))


def _hedges(difference: float, spread: float, dof: float) -> float | None:
    """Hedges 1981: d · Γ(f/2) / (√(f/2) · Γ((f−1)/2)); None with dof = 1 or no spread."""
    if spread <= 0 or dof <= 1:
        return None
    correction = math.exp(math.lgamma(dof / 2) - math.lgamma((dof - 1) / 2)) / math.sqrt(dof / 2)
    return difference / spread * correction


def _detectable(error: float, dof: float, level: float) -> float:
    return (quantile(1 - level / 2, dof) + quantile(POWER, dof)) * error


def _is_fine(arrangements: int, level: float, mirrored: bool = True) -> bool:
    """Whether a test of this many arrangements can reject nearly as often as the level allows.

    mirrored: every arrangement has one of the same size and the other sign, so p goes in steps of two.
    """
    step = 2 if mirrored else 1
    return math.floor(level * arrangements / step) * step >= _FINE * level * arrangements


def _permutations(a: Floats, b: Floats) -> float:
    """The share of all arrangements into such groups whose Welch's t is at least as far from zero (Janssen 1997)."""
    values = np.concatenate([a, b])
    values = values - values.mean()
    picked = values[_arrangements(len(values), len(a))]
    number, others = len(a), len(b)
    first, squares = picked.sum(1), (picked**2).sum(1)
    second, rest = values.sum() - first, (values**2).sum() - squares
    variance = (squares - first**2 / number) / (number - 1) / number
    variance += (rest - second**2 / others) / (others - 1) / others
    gap = np.abs(second / others - first / number)
    scale = float(np.abs(values).max()) or 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(gap <= _ROUNDING * scale, 0.0, gap / np.sqrt(np.maximum(variance, 0.0)))
    return float(np.mean(size >= size[0] * (1 - 1e-9)))  # the first arrangement is the one that was seen


@lru_cache(maxsize=8)
def _arrangements(number: int, chosen: int) -> NDArray[np.intp]:
    return np.array(list(itertools.combinations(range(number), chosen)), np.intp)


def _flips(gaps: Floats) -> float:
    """The share of all ways to turn the pairs round whose mean is at least as far from zero."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(gaps))))
    means = np.abs(signs @ gaps)
    return float(np.mean(means >= means[0] * (1 - 1e-9)))
