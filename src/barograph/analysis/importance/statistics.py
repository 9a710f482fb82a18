"""How much of a metric's variation the levels of a key explain, and whether chance would explain as much.

In:   ranks of n configurations, and for each key the level that each configuration has.
Out:  shares, intervals, p values.

The metric is taken by its ranks, so that a run that diverged counts as the worst one and no more. A key's share is the
larger of two, both corrected for what chance explains: epsilon squared of the levels (the effect size of Kruskal and
Wallis 1952; Kelley 1935 for the correction), which sees an optimum in the middle, and the square of Spearman's
correlation, which is more powerful where the metric follows the key. p comes from permutations of the configurations,
or of those alone that agree in other keys (strata), which is exact whatever those others do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

BOOTSTRAPS = 400
MOST_PERMUTATIONS, FEWEST_PERMUTATIONS = 10_000, 2_000
_FEW = 300  # configurations: of more a permutation takes long, and few are needed
_CELLS = 4_000_000  # of one block of permutations: 32 MB


@dataclass(frozen=True, eq=False)
class Factor:
    """A key as the statistics see it. codes: the level of each configuration [n]; ranks: of its values where they are
    numbers [n], NaN where a configuration lacks it."""

    codes: Codes
    ranks: Floats | None = None

    @property
    def levels(self) -> int:
        return int(self.codes.max()) + 1


def ranked(values: Floats) -> Floats:
    """Ranks from 1, the mean of them for equal values; NaN stays NaN."""
    result = np.full(len(values), np.nan)
    good = np.flatnonzero(~np.isnan(values))
    _, inverse, counts = np.unique(values[good], return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    result[good] = (ends - (counts - 1) / 2)[inverse]
    return result


def shares(factors: list[Factor], ranks: Floats) -> Floats:
    """Of each factor the share of the variation of `ranks` [n, m] that it explains [factors, m], less what chance
    does; below 0 where it explains less than chance."""
    return _shares(factors, ranks, np.ones((len(ranks), 1)))


def _shares(factors: list[Factor], ranks: Floats, weight: Floats) -> Floats:
    """weight [n, 1 or m]: how often each row counts. All that is of the size n by m are products of matrices."""
    weighted = weight * ranks
    total, distinct = weight.sum(0), (weight > 0).sum(0)
    mean = weighted.sum(0) / total
    variance = np.maximum((weighted * ranks).sum(0) / total - mean**2, 0.0)
    sizes = [factor.levels for factor in factors]
    design = np.zeros((sum(sizes), len(ranks)))
    for factor, first in zip(factors, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True):
        design[first + factor.codes, np.arange(len(ranks))] = 1.0
    # one product for all levels of all keys
    count = design @ weight
    sums = design @ weighted - count * mean
    squares = np.where(count > 0, sums**2 / np.where(count > 0, count, 1), 0.0) / total
    values = [_centred_values(factor) for factor in factors if factor.ranks is not None]
    x = np.array(values) if values else np.zeros((0, len(ranks)))
    along, first_moment, second_moment = x @ weighted, x @ weight, (x * x) @ weight
    result = np.zeros((len(factors), weighted.shape[1]))
    row = numbers = 0
    with np.errstate(invalid="ignore", divide="ignore"):
        for at, factor in enumerate(factors):
            rows = slice(row, row + factor.levels)
            row += factor.levels
            found = _beyond_chance(squares[rows].sum(0) / variance, (count[rows] > 0).sum(0) - 1, distinct)
            if factor.ranks is not None:
                both = (along[numbers] - first_moment[numbers] * mean) ** 2
                size = (second_moment[numbers] - first_moment[numbers] ** 2 / total) * variance * total
                found = np.fmax(found, _beyond_chance(both / size, 1, distinct))
                numbers += 1
            result[at] = np.where(variance > 0, found, 0.0)
    return np.nan_to_num(result, nan=0.0)


def _centred_values(factor: Factor) -> Floats:
    """The ranks of a factor's numbers about their mean; who lacks the key is in the middle."""
    assert factor.ranks is not None
    return np.nan_to_num(factor.ranks - np.nanmean(factor.ranks))


def _beyond_chance(share: Floats, dof: NDArray[np.int64] | int, distinct: NDArray[np.int64]) -> Floats:
    chance = np.minimum(dof / np.maximum(distinct - 1, 1), 1.0)
    return np.where(chance < 1, (share - chance) / np.where(chance < 1, 1 - chance, 1), 0.0)


def trend(factor: Factor, ranks: Floats) -> float:
    """Spearman's correlation of a factor of numbers with the metric's ranks."""
    if factor.ranks is None:
        return 0.0
    x, y = _centred_values(factor), ranks - ranks.mean()
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size > 0 else 0.0


def intervals(factors: list[Factor], ranks: Floats, level: float, random: np.random.Generator) -> Floats:
    """The interval of each share [factors, 2], by resampling the configurations (percentiles)."""
    n = len(ranks)
    weight = random.multinomial(n, np.full(n, 1 / n), BOOTSTRAPS).T.astype(np.float64)
    found = _shares(factors, ranks[:, None], weight)
    return np.clip(np.quantile(found, [level / 2, 1 - level / 2], axis=1).T, 0.0, 1.0)


def tests(factors: list[Factor], ranks: Floats, strata: Codes, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Of each factor: its share within the strata, and p, by permutations of the configurations within them."""
    centred = _centred(ranks, strata)
    observed = shares(factors, centred[:, None])[:, 0]
    permutations = MOST_PERMUTATIONS if len(ranks) <= _FEW else FEWEST_PERMUTATIONS
    at_least = np.zeros(len(factors))
    left = permutations
    while left > 0:
        size = min(left, max(1, _CELLS // len(ranks)))
        found = shares(factors, _shuffled(centred, strata, size, random))
        at_least += (found >= observed[:, None] - 1e-9).sum(1)  # equal arrangements differ in their last digits
        left -= size
    return observed, (1 + at_least) / (permutations + 1)


def corrected(p: Sequence[float]) -> list[float]:
    """p values corrected for their number (Holm 1979)."""
    result = [1.0] * len(p)
    largest = 0.0
    for place, at in enumerate(sorted(range(len(p)), key=lambda item: p[item])):
        largest = max(largest, min(1.0, p[at] * (len(p) - place)))
        result[at] = largest
    return result


def _centred(ranks: Floats, strata: Codes) -> Floats:
    count = np.bincount(strata)
    return np.asarray(ranks - (np.bincount(strata, ranks) / np.maximum(count, 1))[strata])


def _shuffled(ranks: Floats, strata: Codes, columns: int, random: np.random.Generator) -> Floats:
    """`columns` arrangements of the ranks [n, columns], each within the strata."""
    if not strata.any():
        return random.permuted(np.tile(ranks, (columns, 1)), axis=1).T.copy()
    rows = np.argsort(strata, kind="stable")
    # a whole part that is the stratum, and a random rest: sorted, the strata stay where they are
    places = np.argsort(strata[rows] + random.random((columns, len(ranks))), axis=1)
    result = np.empty((columns, len(ranks)))
    result[:, rows] = ranks[rows][places]
    return np.ascontiguousarray(result.T)


def smallest_p(factor: Factor, ranks: Floats, strata: Codes) -> float:
    """A bound below which no arrangement of these configurations could bring p: one over the number of arrangements
    that differ. Levels of one size may change places, and equal ranks too."""
    logarithm = 0.0
    groups = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    for rows in groups:
        levels = sorted(Counter(factor.codes[rows].tolist()).values())
        ties = Counter(ranks[rows].tolist()).values()
        sizes = math.lgamma(len(rows) + 1)
        by_level = sizes - sum(math.lgamma(size + 1) for size in levels)
        by_rank = sizes - sum(math.lgamma(size + 1) for size in ties)
        if len(groups) == 1 and factor.ranks is None:
            by_level -= sum(math.lgamma(size + 1) for size in Counter(levels).values())
        logarithm += max(0.0, min(by_level, by_rank))
    return math.exp(-logarithm)


def association(one: Factor, other: Factor) -> float:
    """How far two keys vary together, 0 to 1: the larger of Cramér's V (corrected, Bergsma 2013) and the correlation
    of their ranks."""
    n = len(one.codes)
    table = np.zeros((one.levels, other.levels))
    np.add.at(table, (one.codes, other.codes), 1.0)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / n
    chi = float(np.where(expected > 0, (table - expected) ** 2 / np.where(expected > 0, expected, 1), 0.0).sum()) / n
    r, k = one.levels, other.levels
    chi = max(0.0, chi - (r - 1) * (k - 1) / (n - 1))
    r_, k_ = r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)
    together = math.sqrt(chi / max(min(r_, k_) - 1, 1e-9)) if min(r_, k_) > 1 else 0.0
    if one.ranks is not None and other.ranks is not None:
        both = ~np.isnan(one.ranks) & ~np.isnan(other.ranks)
        x, y = one.ranks[both], other.ranks[both]
        if len(x) > 2 and x.std() > 0 and y.std() > 0:
            together = max(together, abs(float(np.corrcoef(x, y)[0, 1])))
    return min(1.0, together)
