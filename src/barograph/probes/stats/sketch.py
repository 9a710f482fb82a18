"""A distribution in logarithmic buckets: counts from which percentiles and histograms are read.

In:   for each of many tensors, how many of its finite values lie in each bucket.
Out:  percentiles and histograms with a bounded relative error; sketches that add up exactly.

A value's bucket is the upper half of its float32 pattern: the sign, 8 bits of exponent and 6 bits of
mantissa, `bits >> 17`. So there are 2^15 buckets, 64 in each doubling. A bucket from a to b stands for
the harmonic mean 2ab / (a + b): no value in it is farther away than (b − a) / (b + a) of itself, which is
1/129 = 0.78% at most. Values smaller than 2^-126 = 1.2e-38 (float32's denormals) lie in buckets of one
width, 2^-132 = 1.8e-40; there the error is absolute. Values beyond float32's range count in the last bucket.

Buckets are kept in the order of the values they hold: their *place*, 0 for the most negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

SHIFT = 17  # of 32 bits: leaves sign, exponent, 6 bits of mantissa
BUCKETS = 1 << (32 - SHIFT)
NEGATIVE = BUCKETS // 2  # the key of -0.0; smaller keys are positive values
NOT_FINITE = 255 << 6  # keys from here to NEGATIVE hold infinities and NaN
RELATIVE_ERROR = 1 / 129


def places_of(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Keys (`bits >> 17`) as places in the order of the values; -0 has the place of 0."""
    wide = keys.astype(np.int64)
    return np.where(wide > NEGATIVE, BUCKETS - 1 - wide, (wide | NEGATIVE))


@cache
def _bounds() -> tuple[Floats, Floats, Floats]:
    """Lower edge, upper edge and representative of every place [2^15]; those not finite are NaN."""
    magnitudes = (np.arange(NOT_FINITE + 1, dtype=np.uint32) << SHIFT).view(np.float32).astype(np.float64)
    magnitudes[-1] = 2.0**128  # the edge of the last bucket; float32 calls it infinity
    near, far = magnitudes[:-1], magnitudes[1:]
    low, high, value = (np.full(BUCKETS, np.nan) for _ in range(3))
    positive, negative = slice(NEGATIVE, NEGATIVE + NOT_FINITE), slice(NEGATIVE - 1, NEGATIVE - 1 - NOT_FINITE, -1)
    middle = 2 * near / (near + far) * far  # harmonic mean; 0 in the bucket of zero
    low[positive], high[positive], value[positive] = near, far, middle
    low[negative], high[negative], value[negative] = -far, -near, -middle
    for column in (low, high, value):
        column.flags.writeable = False
    return low, high, value


@dataclass(frozen=True)
class Sketches:
    """The sketches of n tensors, empty buckets left out.

    `starts` [n + 1]: tensor i has the entries `starts[i]` to `starts[i + 1]` of `places` (ascending) and
    `counts`. `low`, `high` [n]: exact minimum and maximum of the finite values, NaN if there is none.
    """

    starts: Counts
    places: NDArray[np.int32]
    counts: Counts
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1

    def buckets(self, tensor: int) -> tuple[Floats, Floats, Counts]:
        """Lower edges, upper edges and counts of one tensor's buckets, in ascending order."""
        low, high, _ = _bounds()
        entries = slice(self.starts[tensor], self.starts[tensor + 1])
        places = self.places[entries]
        return low[places], high[places], self.counts[entries]

    def dense(self, tensor: int) -> Counts:
        """All 2^15 counts of one tensor, by place."""
        counts = np.zeros(BUCKETS, np.int64)
        entries = slice(self.starts[tensor], self.starts[tensor + 1])
        counts[self.places[entries]] = self.counts[entries]
        return counts

    def percentiles(self, q: Sequence[float]) -> Floats:
        """n × len(q): the value at rank ⌈q/100 · count⌉ of the finite values, each within 0.78% of the true one.

        The first and the last rank are exact (minimum and maximum). NaN where a tensor has no finite value.
        Raises ValueError for a q outside 0 to 100.
        """
        wanted = np.asarray(q, np.float64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() <= 100):
            raise ValueError("percentiles lie between 0 and 100")
        answer = np.full((len(self), len(wanted)), np.nan)
        total = self._upto[self.starts[1:]] - self._upto[self.starts[:-1]]
        some = np.flatnonzero(total)
        last = total[some, None]
        ranks = np.clip(np.ceil(wanted * last / 100), 1, last).astype(np.int64)
        entry = np.searchsorted(self._upto, self._upto[self.starts[:-1]][some, None] + ranks) - 1
        found = np.clip(_bounds()[2][self.places[entry]], self.low[some, None], self.high[some, None])
        found = np.where(ranks == 1, self.low[some, None], found)
        answer[some] = np.where(ranks == last, self.high[some, None], found)
        return answer

    def histogram(self, tensor: int, bins: int | Sequence[float] | Floats = 64) -> tuple[Floats, Floats]:
        """(edges [b + 1], counts [b]) of one tensor.

        `bins`: how many of equal width between minimum and maximum, or the edges themselves, ascending.
        A bucket that an edge cuts is shared out by width, so counts need not be whole numbers; their sum
        is the number of values between the first and the last edge. Zeros stay together: they fall into
        the bin that begins at or holds zero. Of a tensor without finite values all counts are 0.
        """
        if isinstance(bins, int | np.integer):
            edges = self._edges(np.array([tensor]), int(bins))[0]
        else:
            edges = np.asarray(bins, np.float64)
            if len(edges) < 2 or not (np.diff(edges) > 0).all():
                raise ValueError("edges of bins must ascend, and be two at least")
        return edges, np.diff(self._below(np.full(len(edges), tensor), edges))

    def histograms(self, bins: int = 64) -> tuple[Floats, Floats]:
        """(edges [n, b + 1], counts [n, b]) of all tensors, as `histogram` makes them one by one."""
        owners = np.arange(len(self))
        edges = self._edges(owners, bins)
        return edges, np.diff(self._below(np.broadcast_to(owners[:, None], edges.shape), edges))

    def _edges(self, tensors: Counts, bins: int) -> Floats:
        if bins < 1:
            raise ValueError(f"at least one bin is needed, not {bins}")
        first, last = self.low[tensors], self.high[tensors]
        none, one = np.isnan(first), first == last
        around = np.where(one, np.maximum(np.abs(first) * 2.0**-10, 2.0**-100), 0.0)  # room for one value alone
        first, last = np.where(none, 0.0, first - around), np.where(none, 1.0, last + around)
        share = np.arange(bins + 1) / bins
        return first[:, None] * (1 - share) + last[:, None] * share

    def _below(self, tensors: NDArray[Any], edges: Floats) -> Floats:
        """How many values of a tensor lie below an edge: whole buckets, and a share of the one that it cuts."""
        if not len(self.places):
            return np.zeros(edges.shape)
        lows, highs, _ = _bounds()
        valid = slice(NEGATIVE - NOT_FINITE, NEGATIVE + NOT_FINITE)
        place = np.searchsorted(lows[valid], edges, side="right") - 1 + valid.start
        place = np.clip(place, valid.start, valid.stop - 1)
        owners = np.repeat(np.arange(len(self)), np.diff(self.starts))
        key = tensors * BUCKETS + place
        entries = owners * BUCKETS + self.places
        entry = np.searchsorted(entries, key)
        near = np.minimum(entry, len(entries) - 1)
        low = np.maximum(lows[place], self.low[tensors])
        high = np.minimum(highs[place], self.high[tensors])
        share = np.clip((edges - low) / np.where(high > low, high - low, 1), 0, 1)
        cut = np.where((entries[near] == key) & (high > low), share * self.counts[near], 0)
        first = self._upto[self.starts[tensors]]
        below = self._upto[entry] - first + cut
        below = np.where(edges <= self.low[tensors], 0, below)
        return np.where(edges >= self.high[tensors], self._upto[self.starts[tensors + 1]] - first, below)

    @cached_property
    def _upto(self) -> Counts:
        """Counts added up over all entries of all tensors, from 0."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)


def sparse(dense: Counts) -> tuple[NDArray[np.int64], Counts]:
    """Counts by key [2^15] as (places ascending, counts), without what is not finite; -0 counts as 0."""
    positive, negative = dense[:NOT_FINITE], dense[NEGATIVE : NEGATIVE + NOT_FINITE]
    if negative[0]:
        positive, negative = positive.copy(), negative.copy()
        positive[0] += negative[0]
        negative[0] = 0
    above, below = np.flatnonzero(positive != 0), np.flatnonzero(negative != 0)[::-1]  # fast on booleans alone
    return np.concatenate([NEGATIVE - 1 - below, NEGATIVE + above]), np.concatenate([negative[below], positive[above]])


def gather(rows: Sequence[tuple[NDArray[Any], Counts]], low: Floats, high: Floats) -> Sketches:
    """Sketches from one (places ascending, counts) a tensor, its minimum and its maximum."""
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(places) for places, _ in rows], out=starts[1:])
    places = [np.zeros(0, np.int32), *(places for places, _ in rows)]
    counts = [np.zeros(0, np.int64), *(counts for _, counts in rows)]
    return Sketches(starts, np.concatenate(places, dtype=np.int32), np.concatenate(counts), low, high)


def merge_sketches(parts: Sequence[Sketches]) -> Sketches:
    """One sketch a tensor from several of its parts: counts add up, exactly."""
    size = len(parts[0])
    owners = np.concatenate([np.repeat(np.arange(size), np.diff(part.starts)) for part in parts])
    places = np.concatenate([part.places for part in parts]).astype(np.int64)
    keys, back = np.unique(owners * BUCKETS + places, return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, back, np.concatenate([part.counts for part in parts]))
    starts = np.searchsorted(keys, np.arange(size + 1) * BUCKETS).astype(np.int64)
    low = np.fmin.reduce([part.low for part in parts])
    high = np.fmax.reduce([part.high for part in parts])
    return Sketches(starts, (keys % BUCKETS).astype(np.int32), counts, low, high)
