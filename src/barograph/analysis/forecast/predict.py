"""The forecast of a run: its final loss with an interval, when a target is reached, and what the rest takes.

In:   columns of step and loss, what is known of the learning rate and of the plan, a target, a step's time and price.
Out:  a `Forecast`; one with a `reason` and no numbers where nothing can be said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from barograph.analysis.forecast import law, plans
from barograph.analysis.forecast.calibration import MISSED, reach
from barograph.analysis.forecast.curve import BEYOND, LEAST_ROWS, LossCurve, bucket, columns, rising, running_median
from barograph.analysis.forecast.mixture import mixture
from barograph.analysis.forecast.observed import ScheduleReading, recognise, unknown
from barograph.analysis.forecast.outlook import Forecast, LossTarget
from barograph.analysis.forecast.schedule import RateSchedule, named
from barograph.core.text import number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

# Before this part of the plan nothing is said: at 5% the law's error is as big as the fall that is left.
EARLIEST = 0.05
# The final loss is the mean over this last part of the plan.
FINAL_PART = 0.05
# A run is out of its warm-up once it is this many times the warm-up's length.
PAST_WARMUP = 1.3
# Without a plan a target is looked for up to this many times the steps logged so far.
FARTHEST = 4
# A observed learning rate and a given schedule are not the same if they differ by this part of the peak, in the median.
CONTRADICTION = 0.05
AHEAD = 120
# The law is tried on the run itself: from this part of what was seen, the loss now is forecast. An interval that would
# have missed is stretched by as much as it missed by; beyond this factor there is no forecast.
HINDCAST_PART = 0.6
MOST_OFF = 4.0

_Plan = list[tuple[RateSchedule, float, law.Features]]
ScheduleLike = RateSchedule | Mapping[str, Any] | str | Sequence[float]


def forecast_columns(
    step: ArrayLike,
    loss: ArrayLike,
    *,
    lr: ArrayLike | None = None,
    schedule: ScheduleLike | ArrayLike | None = None,
    planned_steps: int | None = None,
    target: float | None = None,
    seconds_per_step: float | None = None,
    price_per_hour: float | None = None,
    coverage: float = 0.9,
) -> Forecast:
    """Forecast a run's final loss from what has been seen of it.

    step, loss [n]: the training loss; NaN among them is left out, spikes are drawn in, any order. lr [n]: rates
    at the same rows, NaN where not known. schedule: a `RateSchedule`, a configuration in any of the names of
    `barograph.analysis.forecast.plans`, a schedule's name, or rates of steps 1 … planned; without it `lr` is looked at.
    planned_steps: optimizer steps of the whole run; the schedule's if not given. target: a loss to be reached.
    seconds_per_step, price_per_hour: for hours and cost from now on, the price being of all devices together.
    coverage: of the interval, between 0 and 1.

    Raises ValueError for columns of different lengths, a coverage outside 0 to 1, or a schedule without sense.
    The law and its sources are in `barograph.analysis.forecast.law`, measured coverage in docs/guides/forecast.md.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"a coverage is between 0 and 1, not {coverage}")
    cleaned = columns(step, loss)
    given = _schedule(schedule, planned_steps)
    planned = planned_steps if planned_steps is not None else given.total if given is not None else None
    if isinstance(cleaned, str):
        known = np.asarray(step, np.float64).ravel()
        known = known[np.abs(known) < BEYOND]
        return _silent(cleaned, coverage, int(known.max()) if len(known) else 0, planned, None)
    steps, losses = cleaned
    rates = None if lr is None else _rates(np.asarray(step, np.float64).ravel(), np.asarray(lr, np.float64).ravel())
    reading = _read(given, rates, planned, float(steps[-1]))
    if planned is None and len(reading.schedules) == 1:
        planned = reading.schedules[0].total
    curve = bucket(steps, losses)
    task = _Task(curve, steps, losses, planned, target, seconds_per_step, price_per_hour, coverage)
    if planned is not None and curve.now >= planned * 0.995:
        return task.measured()
    return task.predicted(reading)


def _silent(reason: str, coverage: float, step: int, planned: int | None, level: float | None) -> Forecast:
    return Forecast(None, None, None, coverage, "nothing", False, step, planned, level, reason)


def _schedule(given: Any, planned: int | None) -> RateSchedule | None:
    if given is None or isinstance(given, RateSchedule):
        return given
    if isinstance(given, Mapping):
        return plans.schedule_of(given, planned)
    if isinstance(given, str):
        if planned is None:
            raise ValueError(f"the schedule {given!r} needs planned_steps to say where it ends")
        return named(given, planned)
    return RateSchedule.from_values(given, planned)


def _rates(step: Floats, lr: Floats) -> tuple[Floats, Floats] | None:
    """Steps and rates that are numbers, in order; None if there are none above 0."""
    if len(step) != len(lr):
        raise ValueError(f"step has {len(step)} rows and lr has {len(lr)}")
    good = (step >= 0) & (step < BEYOND) & (lr < BEYOND) & (lr >= 0)
    step, lr = step[good], lr[good]
    if (step[1:] <= step[:-1]).any():
        order = np.argsort(step, kind="stable")
        step, lr = step[order], lr[order]
        last = np.append(step[1:] != step[:-1], True)
        step, lr = step[last], lr[last]
    return None if not len(lr) or lr.max() < 1 / BEYOND else (step, lr)


def _read(
    schedule: RateSchedule | None, rates: tuple[Floats, Floats] | None, planned: int | None, now: float
) -> ScheduleReading:
    """The schedule to reckon with: the given one if the rates seen agree with it, else what they say."""
    if schedule is not None:
        if rates is None or not _contradicts(schedule, *rates):
            words = f"the learning rate is known ({schedule.basis}): {schedule.describe()}"
            return ScheduleReading((schedule,), (1.0,), True, False, words)
        reading = recognise(*rates, planned)
        return replace(
            reading, sentence=f"the observed learning rate is not that of the schedule given; {reading.sentence}"
        )
    if rates is not None:
        return recognise(*rates, planned)
    if planned is None:
        return ScheduleReading((), (), False, False, "neither the learning rate nor the planned steps are known")
    return unknown(planned)


def _contradicts(schedule: RateSchedule, step: Floats, lr: Floats) -> bool:
    expected = schedule.lr(step)
    scale = float(expected.max())
    if scale <= 0:
        return False
    return float(np.median(np.abs(lr / lr.max() - expected / scale))) > CONTRADICTION


@dataclass(frozen=True, eq=False)
class _Task:
    """One forecast's numbers on their way."""

    curve: LossCurve
    steps: Floats
    losses: Floats
    planned: int | None
    target: float | None
    seconds_per_step: float | None
    price_per_hour: float | None
    coverage: float

    def silent(self, reason: str) -> Forecast:
        answer = _silent(reason, self.coverage, int(self.curve.now), self.planned, self.curve.level)
        hours, cost = self.expense(self.planned)
        reached = None if self.target is None else self.reached()
        return replace(answer, hours=hours, cost=cost, target=reached)

    def expense(self, until: float | None) -> tuple[float | None, float | None]:
        """Hours and money from now to a step."""
        if until is None or self.seconds_per_step is None or not self.seconds_per_step >= 0:
            return None, None
        hours = max(until - self.curve.now, 0.0) * self.seconds_per_step / 3600
        return hours, None if self.price_per_hour is None else hours * self.price_per_hour

    def reached(self) -> LossTarget | None:
        """The target, if the smoothed loss has been there."""
        assert self.target is not None
        width = max(3, len(self.curve.loss) // 20)
        below = np.flatnonzero(running_median(self.curve.loss, 2 * width + 1) <= self.target)
        if not len(below):
            return None
        first = int(self.curve.step[below[0]])
        return LossTarget(
            self.target, "reached", 1.0, first, first, first, 0.0, None if self.price_per_hour is None else 0.0
        )

    def measured(self) -> Forecast:
        """The plan has been run: the final loss is what was seen."""
        assert self.planned is not None
        tail = self.losses[self.steps > self.planned * (1 - FINAL_PART)]
        final = float(np.mean(tail)) if len(tail) else self.curve.level
        side = NormalDist().inv_cdf(0.5 + self.coverage / 2) * self.curve.noise / np.sqrt(max(len(tail), 1))
        target = None
        if self.target is not None:
            target = self.reached() or LossTarget(self.target, "no", 0.0)
        words = "the planned steps are done; this is the mean of the last 5%"
        return Forecast(
            final, final - side, final + side, self.coverage, words, True, int(self.curve.now), self.planned,
            self.curve.level, None, 0.0 if self.seconds_per_step is not None else None,
            0.0 if self.price_per_hour is not None and self.seconds_per_step is not None else None, target,
        )  # fmt: skip

    def predicted(self, reading: ScheduleReading) -> Forecast:
        curve, planned = self.curve, self.planned
        if (reason := self._too_little(reading)) is not None:
            return self.silent(reason)
        open_ended = planned is None
        end = float(planned) if planned is not None else curve.now * FARTHEST
        schedules = reading.schedules or (RateSchedule("constant", round(end)),)
        plan = [
            (schedule, part, law.features(schedule, end))
            for schedule, part in zip(schedules, reading.weights or (1.0,), strict=True)
        ]
        warm = plan[0][2].warm
        if reading.known and curve.now < PAST_WARMUP * warm:
            return self.silent(f"The run has only just finished its warm-up of {warm:,.0f} steps.")
        ahead = np.linspace(curve.now, end, AHEAD)
        window = np.linspace(end * (1 - FINAL_PART), end, 11)
        components = _components(curve, plan, np.concatenate([ahead, window]))
        if not components:
            return self.silent("Too few points are left after the warm-up to fit a law.")
        off = self._missed_so_far(plan)
        if off > MOST_OFF:
            return self.silent(
                f"The loss does not follow the law of the forecast: its first {HINDCAST_PART:.0%} would have predicted "
                f"a current loss that is off by {off:.0f} times the interval."
            )
        mixed = mixture(components, MISSED, reach(min(curve.now / end, 1.0), reading.known) * max(off, 1.0))
        rows = max((end * FINAL_PART) / max(curve.spacing, 1e-9), 1.0)
        last = mixed.window(slice(AHEAD, None), rows)
        outside = (1 - self.coverage) / 2
        low, final, high = (float(last.quantile(part)[0]) for part in (outside, 0.5, 1 - outside))
        least = 0.0 if float(self.losses.min()) > 0 else -np.inf
        between = mixed.window(slice(0, AHEAD))
        lower, middle, upper = (between.quantile(part) for part in (outside, 0.5, 1 - outside))
        lower = np.maximum(lower, least)
        hours, cost = self.expense(planned)
        target = None
        if self.target is not None:
            target = self._look(ahead, middle, lower, upper, float(last.below(self.target)[0]))
        if open_ended:
            answer = self.silent("The number of planned steps is not known, so there is no final loss to forecast.")
            words = f"{reading.sentence}; assumed constant up to step {end:,.0f}"
            return replace(answer, basis=words, target=target, ahead=ahead, middle=middle, lower=lower, upper=upper)
        return Forecast(
            final, max(low, least), high, self.coverage, reading.sentence, reading.known, int(curve.now), planned,
            curve.level, None, hours, cost, target, ahead, middle, lower, upper,
        )  # fmt: skip

    def _missed_so_far(self, plan: _Plan) -> float:
        """How far off a forecast of now from the first part of what was seen would have been, in half intervals."""
        early = self.steps <= HINDCAST_PART * self.curve.now
        if early.sum() < LEAST_ROWS:
            return 0.0
        width = max(3, len(self.curve.loss) // 10)
        components = _components(bucket(self.steps[early], self.losses[early]), plan, self.curve.step[-width:])
        if not components:
            return 0.0
        then = mixture(components, MISSED, 1.0).window(slice(None), width * self.curve.rows)
        low, middle, high = (float(then.quantile(part)[0]) for part in (0.05, 0.5, 0.95))
        now = float(self.curve.loss[-width:].mean())
        return (now - middle) / (high - middle) if now > middle else (middle - now) / (middle - low)

    def _too_little(self, reading: ScheduleReading) -> str | None:
        """The reason why nothing can be said yet, if there is one."""
        curve, planned = self.curve, self.planned
        if len(self.losses) < LEAST_ROWS:
            return f"{len(self.losses)} points are too few for a forecast; it needs {LEAST_ROWS}."
        if reading.rising:
            return "The learning rate is still warming up; the loss so far does not predict the final loss."
        if planned is not None and curve.now < EARLIEST * planned:
            seen = curve.now / planned
            return f"{seen:.1%} of the plan is too early for a forecast; it needs {EARLIEST:.0%}."
        if not curve.now > 0:
            return "No step is above zero."
        if not curve.level > 1 / BEYOND:
            return f"The law needs a loss above zero; this one is at {number(curve.level, 4)}."
        return rising(curve)

    def _look(self, ahead: Floats, middle: Floats, lower: Floats, upper: Floats, probability: float) -> LossTarget:
        """When the target is reached, from now on."""
        assert self.target is not None
        target = self.target
        if (before := self.reached()) is not None:
            return before
        step, early, late = (_crossing(ahead, edge, target) for edge in (middle, lower, upper))
        verdict = "expected" if late is not None else "likely" if step is not None else "unlikely"
        verdict = "no" if early is None else verdict
        hours, cost = self.expense(step)
        return LossTarget(target, verdict, probability, step, early, late, hours, cost)


def _components(curve: LossCurve, plan: _Plan, ahead: Floats) -> list[law.Component]:
    """The law's components under each schedule that is reckoned with."""
    result = []
    for _, weight, along in plan:
        begin = along.warm if along.warm < curve.now / PAST_WARMUP else 0.0
        result += [replace(item, weight=weight * item.weight) for item in law.predict(curve, along, ahead, begin)]
    return result


def _crossing(step: Floats, loss: Floats, target: float) -> int | None:
    """The first step at which a curve is at the target or below."""
    below = np.flatnonzero(loss <= target)
    if not len(below):
        return None
    at = int(below[0])
    if at == 0:
        return int(step[0])
    part = (loss[at - 1] - target) / max(loss[at - 1] - loss[at], 1e-300)
    return int(np.ceil(step[at - 1] + part * (step[at] - step[at - 1])))
