"""Student's t distribution: exact probabilities and quantiles, from the incomplete beta function.

In:   degrees of freedom (any number above 0), a value or a probability.
Out:  probabilities to about 14 digits, also far out in the tails; quantiles that give them back.

P(|T| > t) = I_x(ν/2, 1/2) with x = ν / (ν + t²), and I the regularised incomplete beta function
(Abramowitz and Stegun 26.7.1). I is its continued fraction (26.5.8), evaluated by Lentz's method from below.
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_ROUNDS = 100_000  # the fraction needs about √max(a, b) rounds; this is for a million degrees of freedom and more


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for a, b > 0 and 0 ≤ x ≤ 1. Raises ValueError outside."""
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"the incomplete beta function has no value at a={a}, b={b}, x={x}")
    if x in (0.0, 1.0):
        return x
    # the fraction converges fast below the mean; above it, the other tail is taken
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _tail(b, a, 1.0 - x)
    return _tail(a, b, x)


def _tail(a: float, b: float, x: float) -> float:
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """1 / (1 + d₁ / (1 + d₂ / …)), with d of odd and even order as in 26.5.8."""
    upper, lower = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    lower = 1.0 / (lower if abs(lower) > _TINY else _TINY)
    value = lower
    for m in range(1, _ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for part in (even, odd):
            lower = 1.0 + part * lower
            upper = 1.0 + part / upper
            lower = 1.0 / (lower if abs(lower) > _TINY else _TINY)
            upper = upper if abs(upper) > _TINY else _TINY
            step = upper * lower
            value *= step
        if abs(step - 1.0) < 1e-16:
            break
    return value


def two_sided(t: float, dof: float) -> float:
    """P(|T| > |t|), the two-sided p value. dof: degrees of freedom, above 0; infinity means the normal."""
    if math.isnan(t) or math.isnan(dof) or dof <= 0:
        return math.nan
    if math.isinf(t):
        return 0.0
    if math.isinf(dof):
        return math.erfc(abs(t) / math.sqrt(2.0))
    square = t * t
    # near t = 0 the complement is the small one, and the exact one
    if square < dof:
        return 1.0 - incomplete_beta(0.5, dof / 2.0, square / (dof + square))
    return incomplete_beta(dof / 2.0, 0.5, dof / (dof + square))


@lru_cache(maxsize=4096)
def quantile(probability: float, dof: float) -> float:
    """t with P(T ≤ t) = probability. Raises ValueError for a probability outside 0 to 1, or no dof."""
    if not (0.0 < probability < 1.0 and dof > 0):
        raise ValueError(f"Student's t has no quantile at probability {probability} with {dof} degrees of freedom")
    if probability < 0.5:
        return -quantile(1.0 - probability, dof)
    wanted = 2.0 * (1.0 - probability)
    low, high = 0.0, 1.0
    while two_sided(high, dof) > wanted and high < 1e300:
        low, high = high, high * 2.0
    # Newton's steps, and the middle where one leads out of the bracket
    t = (low + high) / 2.0
    for _ in range(200):
        gap = two_sided(t, dof) - wanted
        low, high = (t, high) if gap > 0 else (low, t)
        slope = 2.0 * _density(t, dof)
        following = t + gap / slope if slope > 0 else low
        if not low < following < high:
            following = (low + high) / 2.0
        if abs(following - t) <= 4e-16 * abs(t) or following in (low, high):
            return following
        t = following
    return t


def _density(t: float, dof: float) -> float:
    if math.isinf(dof):
        return math.exp(-t * t / 2.0) / math.sqrt(2.0 * math.pi)
    front = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - 0.5 * math.log(dof * math.pi)
    return math.exp(front - (dof + 1) / 2 * math.log1p(t * t / dof))
