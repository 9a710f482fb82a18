"""The moments of many tensors as columns, and how parts of a tensor add up.

In:   float64 values in segments; columns of parts.
Out:  columns of n tensors: how many values are finite, their mean, standard deviation, extremes and zeros,
      and how many are NaN or infinite.

Parts are combined by Chan, Golub and LeVeque's update (1979): squares are taken of differences from the
mean, never subtracted from one another, and are scaled, so nothing cancels and nothing overflows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]


@dataclass
class Moments:
    """Columns [n]. Without a finite value mean and deviation are 0, the extremes NaN. Deviation divides by n."""

    finite: Counts
    mean: Floats
    deviation: Floats
    low: Floats
    high: Floats
    zeros: Counts
    nans: Counts
    infs: Counts

    def take(self, rows: Any) -> Moments:
        """The columns at these rows."""
        return Moments(*(getattr(self, field.name)[rows] for field in fields(self)))

    def put(self, rows: Any, values: Moments) -> None:
        """Overwrite the columns at these rows."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(values, field.name)


def nothing(size: int) -> Moments:
    """Moments of `size` tensors without an element."""
    whole = [np.zeros(size, np.int64) for _ in range(4)]
    nan = np.full(size, np.nan)
    return Moments(whole[0], np.zeros(size), np.zeros(size), nan, nan.copy(), *whole[1:])


def combine(moments: Moments, two: Moments) -> Moments:
    """Moments of tensors of which `moments` and `two` are disjoint parts."""
    finite = moments.finite + two.finite
    share = two.finite / np.maximum(finite, 1)
    apart = np.where((moments.finite > 0) & (two.finite > 0), two.mean - moments.mean, 0.0)
    mean = np.where(moments.finite > 0, moments.mean + apart * share, two.mean)
    scale = np.maximum(np.maximum(moments.deviation, two.deviation), np.abs(apart))
    unit = np.where(scale > 0, scale, 1.0)
    variance = (1 - share) * (moments.deviation / unit) ** 2 + share * (two.deviation / unit) ** 2
    variance += share * (1 - share) * (apart / unit) ** 2
    return Moments(
        finite,
        mean,
        scale * np.sqrt(variance),
        np.fmin(moments.low, two.low),
        np.fmax(moments.high, two.high),
        moments.zeros + two.zeros,
        moments.nans + two.nans,
        moments.infs + two.infs,
    )


def zeros_only(amounts: Counts) -> Moments:
    """Moments of tensors that hold this many zeros and nothing else."""
    moments = nothing(len(amounts))
    moments.finite, moments.zeros = amounts.copy(), amounts.copy()
    moments.low[amounts > 0] = moments.high[amounts > 0] = 0.0
    return moments


def measure(values: Floats, sizes: Counts) -> Moments:
    """Moments of consecutive segments of float64 values [sum of sizes]; no size may be 0."""
    starts = np.cumsum(sizes) - sizes
    good = np.isfinite(values)
    whole = bool(good.all())
    kept = values if whole else np.where(good, values, 0.0)
    if whole:
        finite, nans = sizes.astype(np.int64), np.zeros(len(sizes), np.int64)
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        zeros = np.add.reduceat(values == 0, starts, dtype=np.int64)
    else:
        finite = np.add.reduceat(good, starts, dtype=np.int64)
        nans = np.add.reduceat(np.isnan(values), starts, dtype=np.int64)
        low = np.minimum.reduceat(np.where(good, values, np.inf), starts)
        high = np.maximum.reduceat(np.where(good, values, -np.inf), starts)
        low[finite == 0] = high[finite == 0] = np.nan
        zeros = np.add.reduceat(values == 0, starts, dtype=np.int64)
    # scaled by a power of two, which is exact: neither the sum nor a square overflows or is lost
    largest = np.fmax(np.abs(np.nan_to_num(low)), np.abs(np.nan_to_num(high)))
    unit = np.ldexp(1.0, np.clip(np.frexp(np.where(largest > 0, largest, 1.0))[1], -1000, 1000))
    scaled = kept / np.repeat(unit, sizes)
    mean = np.add.reduceat(scaled, starts) / np.maximum(finite, 1)
    away = scaled - np.repeat(mean, sizes)
    if not whole:
        away[~good] = 0.0
    deviation = np.sqrt(np.add.reduceat(away * away, starts) / np.maximum(finite, 1))
    return Moments(finite, mean * unit, deviation * unit, low, high, zeros, nans, sizes - finite - nans)
