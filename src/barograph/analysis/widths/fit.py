"""Straight lines with honest intervals: the slope of a power law from a few noisy points.

In:   points x, y (logarithms to base 2, as a rule), and which seed each point is from.
Out:  a `FittedLine`: slope, its standard error, and the interval that Student's distribution gives it.

No library is needed: the points are few.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple


class FittedLine(NamedTuple):
    """A fitted slope; `low` and `high` are infinite where there are too few points for an interval."""

    slope: float
    low: float
    high: float
    error: float  # standard error of the slope
    dof: int  # points less what was fitted


def fit_line(
    x: Sequence[float], y: Sequence[float], seeds: Sequence[Hashable] | None = None, confidence: float = 0.95
) -> FittedLine:
    """Least squares of y against x with one common slope and an intercept for each seed.

    A seed shifts all its points alike (its data, its luck), so it gets an intercept of its own; what is
    left, chance and curvature alike, widens the interval. Slope and interval are NaN without two
    different x in some seed.
    """
    labels = list(seeds) if seeds is not None else [0] * len(x)
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for label, across, up in zip(labels, x, y, strict=True):
        groups.setdefault(label, []).append((across, up))
    centred: list[tuple[float, float]] = []
    for points in groups.values():
        middle = [math.fsum(values) / len(points) for values in zip(*points, strict=True)]
        centred += [(across - middle[0], up - middle[1]) for across, up in points]
    spread = math.fsum(across * across for across, _ in centred)
    if not spread > 0:
        return FittedLine(math.nan, math.nan, math.nan, math.nan, 0)
    slope = math.fsum(across * up for across, up in centred) / spread
    dof = len(centred) - len(groups) - 1
    if dof < 1:
        return FittedLine(slope, -math.inf, math.inf, math.inf, dof)
    left = math.fsum((up - slope * across) ** 2 for across, up in centred)
    error = math.sqrt(left / dof / spread)
    reach = student_quantile(confidence, dof) * error
    return FittedLine(slope, slope - reach, slope + reach, error, dof)


def student_quantile(confidence: float, dof: int) -> float:
    """t such that Student's variable with `dof` degrees lies within ±t with probability `confidence`.

    By bisection of the closed form for whole degrees (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    if not 0 < confidence < 1 or dof < 1:
        raise ValueError(f"a confidence of {confidence} with {dof} degrees of freedom has no quantile")
    low, high = 0.0, math.pi / 2  # of theta, where t = tan(theta) × sqrt(dof)
    for _ in range(80):
        middle = (low + high) / 2
        if _probability(middle, dof) < confidence:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(dof)


def _probability(theta: float, dof: int) -> float:
    sine, cosine = math.sin(theta), math.cos(theta)
    if dof % 2:
        term, total = cosine, 0.0
        for step in range(1, dof, 2):
            total += term
            term *= cosine * cosine * (step + 1) / (step + 2)
        return 2 / math.pi * (theta + sine * total)
    term, total = 1.0, 0.0
    for step in range(0, dof, 2):
        total += term
        term *= cosine * cosine * (step + 1) / (step + 2)
    return sine * total
