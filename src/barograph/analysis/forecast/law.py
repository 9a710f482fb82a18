"""The law of a loss curve under a learning-rate schedule, and its fit.

In:   means of a curve, a schedule.
Out:  the distribution of the loss at later steps, as a mixture of normal ones.

    L(s) = L0 + A · ((T(s) + t0) / (T(now) + t0))^-α − C · M(s)

T is the sum of the learning rate up to s, as parts of its peak (the forward area of arXiv 2408.11029 and 2503.12811).
M is the annealing: every fall of the rate gives its share of C, not at once but as the sum of rates since then grows:

    M(s) = Σ_u (r(u-1) − r(u)) · G(T(s) − T(u)),   G(x) = 1 − (1 + x / τ)^-1

the form of the loss reduction in arXiv 2503.12811 (equation 4) with its β at 1. Before the rate has fallen the data
say nothing of C, and early in a run little of L0 and α. So the fit is Bayesian: L0, A and C are linear and solved
exactly for each (α, t0) of a grid (variable projection, Golub & Pereyra 1973), under normal priors; grid and priors are
weighted by evidence. Noise that is correlated from mean to mean widens the errors by (1 + ρ) / (1 − ρ); outliers get
Huber's weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from barograph.analysis.forecast.calibration import (
    ALPHA_MIDDLE,
    ALPHA_SPREAD,
    ANNEALING_PER_SLOPE,
    ANNEALING_SPREAD,
    FLOOR_MIDDLE,
    FLOOR_SPREAD,
    LATE,
    SKIPS,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.analysis.forecast.curve import LossCurve
    from barograph.analysis.forecast.schedule import RateSchedule

    Floats = NDArray[np.float64]

ALPHAS = np.geomspace(0.05, 2.5, 24)
OFFSETS = np.array([0.003, 0.01, 0.03, 0.1, 0.3])
# τ as a part of the plan's steps: a fall of the rate has had half of its effect after one hundredth of the plan.
RELAXATION = 0.01
# Residuals beyond this many deviations count with less weight.
HUBER = 3.0
ROUNDS = 4
# Log evidence taken off a law whose L0 or A is negative.
NEGATIVE = 10.0
GRID = 480
LEAST_MEANS = 12


@dataclass(frozen=True, eq=False)
class Features:
    """T and M along a plan. step, area, annealing [g]: steps, T in steps at peak, M in parts of the peak.

    warm: the step at which the peak is reached first. falls [g]: of the rate, at each step, as parts of the peak.
    relaxation: τ in steps at peak.
    """

    step: Floats
    area: Floats
    annealing: Floats
    warm: float
    falls: Floats
    relaxation: float

    def to_come(self, now: float, step: Floats) -> Floats:
        """M at later steps of those falls alone that come after `now`."""
        coming = np.where(self.step > now, self.falls, 0.0)
        return np.asarray(np.interp(step, self.step, _annealing(self.area, coming, self.relaxation)))

    def at(self, step: Floats) -> tuple[Floats, Floats]:
        """T and M at any steps."""
        return np.interp(step, self.step, self.area), np.interp(step, self.step, self.annealing)


@dataclass(frozen=True, eq=False)
class Component:
    """One normal law of the loss at the steps asked for. mean, deviation [j]; weight; noise: deviation of one row."""

    mean: Floats
    deviation: Floats
    weight: float
    noise: float


def features(schedule: RateSchedule, last: float) -> Features:
    """T and M of a schedule from step 0 to `last`."""
    bends = np.array([place for knot in schedule.knots for place in (knot, knot + 1) if place < last], np.float64)
    step = np.unique(np.concatenate([np.linspace(0, last, GRID), np.minimum([1.0], last), bends]))
    rate = schedule.lr(step)
    peak = float(rate.max())
    rate = rate / peak if peak > 0 else np.ones_like(rate)
    width = np.diff(step, prepend=0.0)
    area = np.cumsum(np.concatenate([[0.0], (rate[1:] + rate[:-1]) / 2 * width[1:]]))
    settled = rate.copy()
    top = int(np.argmax(rate >= 1 - 1e-9))
    settled[:top] = settled[top]  # the warm-up is not annealing (section 3.4 of arXiv 2408.11029)
    fall = -np.diff(settled, prepend=settled[0])
    relaxation = max(RELAXATION * last, 1e-9)
    return Features(step, area, _annealing(area, fall, relaxation), float(step[top]), fall, relaxation)


def _annealing(area: Floats, fall: Floats, relaxation: float) -> Floats:
    """M along a grid [g] from the falls at its steps [g]."""
    places = np.flatnonzero(np.abs(fall) > 1e-9)
    since = np.maximum(area[:, None] - area[None, np.maximum(places - 1, 0)], 0) / relaxation
    return np.asarray((1 - 1 / (1 + since)) @ fall[places])


def predict(curve: LossCurve, along: Features, ahead: Floats, begin: float) -> list[Component]:
    """The loss at steps `ahead` [j], without batch noise: components for each of `SKIPS`.

    begin: the step from which the curve counts: the end of the warm-up. Each fit leaves out another part of the
    beginning, where no power law holds yet; that they differ is part of the spread. Weights sum to 1; an empty list
    if too little is left.
    """
    area, annealing = along.at(curve.step)
    now = float(area[-1])
    ahead_area, ahead_annealing = along.at(ahead)
    to_come = along.to_come(curve.now, ahead)
    found: list[Component] = []
    for skip in SKIPS:
        keep = (area >= skip * now) & (curve.step > begin)
        if keep.sum() < LEAST_MEANS or not now > 0:
            continue
        level = float(np.median(curve.loss[keep][-max(3, int(keep.sum()) // 10) :]))
        if not level > 0:
            continue
        t, y = area[keep] / now, curve.loss[keep] / level
        gain = ANNEALING_PER_SLOPE * _slope(t, y)
        spread = ANNEALING_SPREAD[0] * gain + ANNEALING_SPREAD[1]
        mine = _fit(t, annealing[keep], y, ahead_area / now, ahead_annealing, gain, spread)
        noise = mine.noise * level * np.sqrt(curve.rows)
        found.append(Component(mine.mean * level, mine.deviation * level, 1.0, float(noise)))
    found = [replace(item, weight=1 / len(found)) for item in found]
    return [both for item in found for both in _late(item, to_come * curve.level)]


def _late(component: Component, to_come: Floats) -> list[Component]:
    """A component, and itself where the falls still ahead gain more than those that were seen, as they often do."""
    share, more, spread = LATE
    mean = component.mean - more * to_come
    deviation = np.sqrt(component.deviation**2 + (spread * to_come) ** 2)
    return [
        replace(component, weight=component.weight * (1 - share)),
        replace(component, mean=mean, deviation=deviation, weight=component.weight * share),
    ]


def _fit(
    t: Floats, m: Floats, y: Floats, t_ahead: Floats, m_ahead: Floats, gain: float, gain_spread: float
) -> Component:
    """y: the loss as a part of the loss now. gain, gain_spread: the prior of C. The noise is that of one mean."""
    middle = np.array([FLOOR_MIDDLE, 1 - FLOOR_MIDDLE, gain])
    spread = np.array([FLOOR_SPREAD, 1.5 * FLOOR_SPREAD, gain_spread])
    prior = np.diag(spread**-2)
    alpha, offset = np.repeat(ALPHAS, len(OFFSETS)), np.tile(OFFSETS, len(ALPHAS))
    power = _power(t, alpha, offset)
    square = power * power
    expected = -0.5 * ((np.log(alpha) - np.log(ALPHA_MIDDLE)) / ALPHA_SPREAD) ** 2
    noise = 1.4826 * float(np.median(np.abs(np.diff(y)))) / np.sqrt(2) + 1e-6
    weight, widened = np.ones(len(y)), 1.0
    for _ in range(ROUNDS):
        scale = noise**2 * widened
        sure = weight / scale
        # the columns are 1, the power and -M, and only the power is another at each place of the grid
        precision = np.empty((len(alpha), 3, 3))
        precision[:, 0, 0], precision[:, 0, 2], precision[:, 2, 2] = sure.sum(), -(sure @ m), sure @ (m * m)
        precision[:, 0, 1], precision[:, 1, 1], precision[:, 1, 2] = power @ sure, square @ sure, -(power @ (sure * m))
        for high, low in ((1, 0), (2, 0), (2, 1)):
            precision[:, high, low] = precision[:, low, high]
        precision += prior
        right = np.stack([np.full(len(alpha), sure @ y), power @ (sure * y), np.full(len(alpha), -(sure @ (m * y)))], 1)
        numbers = np.linalg.solve(precision, (right + prior @ middle)[..., None])[..., 0]
        residual = y - numbers[:, :1] - numbers[:, 1:2] * power + numbers[:, 2:] * m
        misfit = (residual * residual) @ sure + (((numbers - middle) / spread) ** 2).sum(1)
        evidence = -0.5 * misfit - 0.5 * np.linalg.slogdet(precision)[1] + expected
        evidence -= NEGATIVE * ((numbers[:, 0] < 0) | (numbers[:, 1] < 0))
        rest = residual[int(np.argmax(evidence))]
        noise = max(1.4826 * float(np.median(np.abs(rest))), 1e-6)
        weight = np.minimum(1, HUBER * noise / np.maximum(np.abs(rest), 1e-12))
        together = float((rest[1:] * rest[:-1]).sum() / max(float((rest * rest).sum()), 1e-24))
        together = min(max(together, 0.0), 0.9)
        widened = (1 + together) / (1 - together)
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    there = _power(t_ahead, alpha, offset)
    each = numbers[:, :1] + numbers[:, 1:2] * there - numbers[:, 2:] * m_ahead
    error = np.linalg.inv(precision)
    level, steep, gained = error[:, 0, 0, None], error[:, 1, 1, None], error[:, 2, 2, None]
    inside = level + steep * there**2 + gained * m_ahead**2 + 2 * there * error[:, 0, 1, None]
    inside -= 2 * m_ahead * (error[:, 0, 2, None] + there * error[:, 1, 2, None])
    mean = share @ each
    variance = share @ (inside + (each - mean) ** 2)
    return Component(mean, np.sqrt(np.maximum(variance, 0)), 1.0, noise)


def _power(t: Floats, alpha: Floats, offset: Floats) -> Floats:
    """What A is multiplied with: [k, n]."""
    return np.asarray(((t + offset[:, None]) / (1 + offset[:, None])) ** -alpha[:, None])


def _slope(t: Floats, y: Floats) -> float:
    """How much of itself the loss loses now per e-fold of T, at least 0: a robust line over the last three quarters."""
    late = t >= 0.25
    x, values = np.log(t[late]), y[late]
    if len(x) < 4:
        return 0.0
    weight, slope = np.ones(len(x)), 0.0
    for _ in range(ROUNDS):
        centre = float(weight @ x / weight.sum())
        middle = float(weight @ values / weight.sum())
        slope = float((weight * (x - centre)) @ (values - middle) / max(float(weight @ (x - centre) ** 2), 1e-24))
        off = np.abs(values - middle - slope * (x - centre))
        weight = np.minimum(1, 1.5 * float(np.median(off)) / np.maximum(off, 1e-12)) + 1e-9
    return max(-slope, 0.0)
