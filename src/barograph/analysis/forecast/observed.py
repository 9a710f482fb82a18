"""The schedule behind a learning-rate column: its kind and its parameters, where its values so far determine them.

In:   step and learning rate of what has been seen, the planned steps if they are known.
Out:  the schedule, or the schedules that it may be with weights that sum to 1, and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from barograph.analysis.forecast.schedule import RateSchedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# A form is the column's if no row is farther off than this part of the peak. Logs print 3 significant digits or more.
MISFIT = 4e-3
# Below the peak by less than this the rate counts as flat.
FLAT = 2e-3
# A decay tells its own end only once this part of the peak is gone.
TOLD_BY = 0.15
ENDS = (0.0, 0.01, 0.05, 0.1)


@dataclass(frozen=True, eq=False)
class ScheduleReading:
    """What a column of rates says. `known`: there is one schedule and it was recognised.

    schedules, weights: what it may be; none if the end of the plan is not known. rising: still warming up.
    """

    schedules: tuple[RateSchedule, ...]
    weights: tuple[float, ...]
    known: bool
    rising: bool
    sentence: str


def recognise(step: Floats, lr: Floats, planned: int | None) -> ScheduleReading:
    """Find the schedule of a column. step, lr [n], finite, in the order of the steps, some rate above 0.

    A column that rises to its end is a warm-up. One that has stayed at its peak may stay, decay or step:
    those are returned together (`known` is False). A falling one is compared with a cosine and a line to the planned
    end, then (with enough of the fall seen) to an end of their own, then with warmup-stable-decay and steps.
    """
    top = int(np.argmax(lr >= lr.max() * (1 - 1e-6)))
    peak, warmup = float(lr[top]), round(float(step[top])) if top else 0
    if top == len(lr) - 1 and len(lr) > 1 and lr[0] < peak * 0.98:
        return ScheduleReading((), (), False, True, "the learning rate is still rising")
    some = np.unique(np.linspace(top, len(lr) - 1, 400).astype(int))
    after, rate = step[some], lr[some] / peak
    if rate.min() > 1 - FLAT:
        if planned is None:
            return ScheduleReading((), (), False, False, "the learning rate has been constant so far")
        return _flat(peak, warmup, planned, float(step[-1]))
    if (schedule := _smooth(after, rate, peak, warmup, planned)) is not None:
        words = f"the learning rate so far is that of a schedule: {schedule.describe()}"
        return ScheduleReading((schedule,), (1.0,), True, False, words)
    if planned is None:
        return ScheduleReading((), (), False, False, "the learning rate decays without a known end")
    if (stable := _stable_then_line(after, rate, peak, warmup, planned)) is not None:
        words = f"the learning rate so far is that of a schedule: {stable.describe()}"
        return ScheduleReading((stable,), (1.0,), True, False, words)
    return _held_or_falling(step, lr, planned)


def unknown(planned: int) -> ScheduleReading:
    """With no rate seen: the schedules in common use, with weights."""
    warmup = max(planned // 50, 1)
    may_be = (
        RateSchedule("cosine", planned, 1.0, warmup, 0.1),
        RateSchedule("linear", planned, 1.0, warmup, 0.0),
        RateSchedule("wsd", planned, 1.0, warmup, 0.0),
        RateSchedule("constant", planned, 1.0, warmup),
    )
    words = "the learning rate is not known; cosine, linear, warmup-stable-decay and constant were all considered"
    return ScheduleReading(may_be, (0.3, 0.25, 0.2, 0.25), False, False, words)


def _flat(peak: float, warmup: int, planned: int, now: float) -> ScheduleReading:
    left = max(planned - int(now), 1)
    late = int(now) + max(left // 2, 1)
    may_be = (
        RateSchedule("constant", planned, peak, warmup),
        RateSchedule("wsd", planned, peak, warmup, 0.0, min(planned // 5, left)),
        RateSchedule("wsd", planned, peak, warmup, 0.0, min(planned // 10, left)),
        RateSchedule("step", planned, peak, warmup, milestones=(late,), factor=0.1),
    )
    words = "the learning rate has been constant so far; constant, decaying at the end and stepped were considered"
    return ScheduleReading(may_be, (0.4, 0.3, 0.15, 0.15), False, False, words)


def _smooth(after: Floats, rate: Floats, peak: float, warmup: int, planned: int | None) -> RateSchedule | None:
    """The cosine or line, to the planned end or to one of its own, that the fall is a part of.

    A line to an end of its own is one to zero: its floor and its end can't be distinguished.
    """
    found = None
    if planned is not None:
        floors = None if rate[-1] < 1 - TOLD_BY else ENDS
        found = _closest(after, rate, warmup, np.array([float(planned)]), {"cosine": floors, "linear": floors})
    if (found is None or found[0] > MISFIT) and rate[-1] < 1 - TOLD_BY:
        own: dict[str, tuple[float, ...] | None] = {"cosine": ENDS if rate[-1] > 0.3 else None, "linear": (0.0,)}
        length = float(after[-1]) - warmup
        found = _closest(after, rate, warmup, warmup + length * np.geomspace(1, 8, 120), own)
        found = _closest(after, rate, warmup, warmup + (found[1] - warmup) * np.linspace(0.98, 1.02, 81), own)
    if found is None or found[0] > MISFIT:
        return None
    _, end, kind, floor = found
    floor = 0.0 if floor < 5e-3 else floor
    total = round(end) if planned is None else planned
    return RateSchedule(
        kind, total, peak, warmup, peak * floor, max(round(end) - warmup, 1), basis="observed learning rate"
    )


def _closest(
    after: Floats, rate: Floats, warmup: int, ends: Floats, floors: dict[str, tuple[float, ...] | None]
) -> tuple[float, float, str, float]:
    """The closest of cosines and lines to these ends, as (how far off, end, kind, floor); floors None: the best one."""
    part = np.clip((after - warmup) / np.maximum(ends - warmup, 1)[:, None], 0, 1)
    tried: list[tuple[float, float, str, float]] = []
    for kind, gap in (("cosine", 0.5 - 0.5 * np.cos(np.pi * part)), ("linear", part)):
        # rate = 1 - (1 - floor) · gap is a line in the floor
        fitted = np.clip(1 - gap @ (1 - rate) / np.maximum((gap * gap).sum(1), 1e-12), 0, 1)
        given = floors[kind]
        for floor in [fitted] if given is None else [np.full(len(ends), item) for item in given]:
            off = np.abs(1 - (1 - floor)[:, None] * gap - rate).max(1)
            best = int(np.argmin(off))
            tried.append((float(off[best]), float(ends[best]), kind, float(floor[best])))
    return min(tried)


_LEAST_SLOPE = 1e-15  # of the peak a step: less is the rounding of a fit


def _stable_then_line(after: Floats, rate: Floats, peak: float, warmup: int, planned: int) -> RateSchedule | None:
    """Flat, then a straight fall that reaches zero near the planned end."""
    falling = np.flatnonzero(rate < 1 - FLAT)
    first = int(falling[0])
    if first == 0 or len(falling) < 3 or (np.diff(rate[first:]) > MISFIT).any():
        return None
    slope, offset = np.polyfit(after[first:], rate[first:], 1)
    if slope > -_LEAST_SLOPE or np.abs(offset + slope * after[first:] - rate[first:]).max() > MISFIT:
        return None
    start = (1 - offset) / slope
    floor = float(np.clip(offset + slope * planned, 0, 1))
    return RateSchedule(
        "wsd", planned, peak, warmup, peak * floor, max(round(planned - start), 1), basis="observed learning rate"
    )


def _held_or_falling(step: Floats, lr: Floats, planned: int) -> ScheduleReading:
    """Continued by two guesses: it stays where it is; it falls in a line to zero."""
    grid = np.unique(
        np.concatenate([np.linspace(1, planned, 4096), [min(step[-1], planned), min(step[-1] + 1, planned)]])
    )
    past = np.interp(grid, step, lr)
    left = np.clip((planned - grid) / max(planned - step[-1], 1), 0, 1)
    peak, basis = float(lr.max()), "observed learning rate, then assumed"
    guesses = [
        RateSchedule("values", planned, peak, values=rates, places=grid, basis=basis)
        for rates in (past, np.where(grid > step[-1], past * left, past))
    ]
    words = "the learning rate follows no known form; constant and falling to zero were considered"
    return ScheduleReading(tuple(guesses), (0.5, 0.5), False, False, words)
