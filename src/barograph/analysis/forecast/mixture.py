"""A mixture of normal laws at many places at once: its quantiles, and how much of it is below a value.

In:   components of a law.
Out:  `Mixture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from barograph.analysis.forecast.law import Component

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HALVINGS = 36


@dataclass(frozen=True, eq=False)
class Mixture:
    """weight [k], mean and deviation [k, j], noise: deviation of one row about the curve."""

    weight: Floats
    mean: Floats
    deviation: Floats
    noise: float

    def window(self, places: slice, rows: float | None = None) -> Mixture:
        """Some of the places; with `rows`, the one mean of that many rows over them, with its batch noise.

        The errors at neighbouring places are taken as the same error, which they nearly are.
        """
        mean, deviation = self.mean[:, places], self.deviation[:, places]
        if rows is None:
            return Mixture(self.weight, mean, deviation, self.noise)
        together = np.hypot(deviation.mean(1, keepdims=True), self.noise / np.sqrt(rows))
        return Mixture(self.weight, mean.mean(1, keepdims=True), together, self.noise)

    def below(self, value: Floats | float) -> Floats:
        """The part of the mixture at or below a value, at each place [j]."""
        return np.asarray(self.weight @ normal_below((value - self.mean) / self.deviation))

    def quantile(self, part: float) -> Floats:
        """The value below which `part` of the mixture is, at each place [j], by halving."""
        low = (self.mean - 9 * self.deviation).min(0)
        high = (self.mean + 9 * self.deviation).max(0)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            under = self.below(middle) < part
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray((low + high) / 2)


def mixture(components: Sequence[Component], missed: float, stretch: float) -> Mixture:
    """Components together. missed: deviation that is added, as a part of the mean; stretch: of all deviations."""
    weight = np.array([component.weight for component in components])
    mean = np.stack([component.mean for component in components])
    deviation = np.hypot(np.stack([component.deviation for component in components]), missed * np.abs(mean)) * stretch
    noise = float(weight @ [component.noise for component in components]) / float(weight.sum())
    return Mixture(weight / weight.sum(), mean, np.maximum(deviation, 1e-12), noise)


def normal_below(x: Floats) -> Floats:
    """The normal law's distribution function, to 1e-7 (Abramowitz & Stegun 26.2.17)."""
    size = np.abs(x)
    t = 1 / (1 + 0.2316419 * size)
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    above = np.exp(-0.5 * np.minimum(size, 38) ** 2) / np.sqrt(2 * np.pi) * series
    return np.asarray(np.where(x >= 0, 1 - above, above))
