"""Where the runs of all sides end on one axis: the stretch that they share, the values at its end, who is left out.

In:   sides, a metric, an axis.
Out:  `SharedStretch`: curves, the common end, the window, each run's value there; a sentence for each run without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from barograph.analysis.compare.curves import ComparisonCurve, window_of
from barograph.analysis.compare.member import ComparedMember, direction, is_evaluation
from barograph.analysis.compare.sides import Side
from barograph.core.liveness import DIVERGED, IMPORTED
from barograph.core.text import number, percent
from barograph.query.keys import shown
from barograph.query.losses import RunLosses, all_told

# A run of a group that ended before this part of its group's median end was stopped early, and not by its group's plan
_WHOLE = 0.9
_MOST_ENDS = 4  # sides of which it is said that they end elsewhere
SAME_END = 0.005  # ends that differ by less are one
_SAME_RATE = 0.05  # of the peak: learning rates this close are at one part of their schedules
_SAME_PART = 0.02  # of the plan


@dataclass
class Placed:
    """A run that takes part: its curve on the axis and its value at the common end."""

    member: ComparedMember
    curve: ComparisonCurve
    value: float = math.nan


@dataclass
class SharedStretch:
    """low, high: the common range, `high` NaN if there is none. window: of the smoothing, 0 for none.

    sides: the runs that take part, a list a side. diverged: those of each side whose metric ended not finite.
    """

    metric: str
    axis: str
    low: float = math.nan
    high: float = math.nan
    window: float = 0.0
    sides: list[list[Placed]] = field(default_factory=list)
    diverged: list[list[ComparedMember]] = field(default_factory=list)

    @property
    def way(self) -> int:
        """1 if a larger value is better, −1 if a smaller one is, 0 if neither is known."""
        return direction(self.metric) or direction(self.metric, self._told)

    @property
    def is_held_out(self) -> bool:
        """Whether the metric is measured on data held out."""
        return is_evaluation(self.metric) or self.metric in self._told.evaluations

    @property
    def _told(self) -> RunLosses:
        placed = [item.member for side in self.sides for item in side]
        return all_told(item.told for item in (*placed, *(member for side in self.diverged for member in side)))

    def values(self, side: int) -> list[float]:
        return [item.value for item in self.sides[side]]

    def between(self, *sides: int) -> SharedStretch:
        """What these sides alone share, with their runs' values at the end of that; of the others nothing is in it."""
        lots = [[replace(item) for item in lot] if at in sides else [] for at, lot in enumerate(self.sides)]
        result = SharedStretch(self.metric, self.axis, sides=lots, diverged=self.diverged)
        if all(lots[at] for at in sides):
            result.settle()
        return result

    def settle(self) -> bool:
        """Find the common range and each run's value at its end; False if there is none."""
        everyone = [item for side in self.sides for item in side]
        low, high = max(item.curve.x[0] for item in everyone), min(item.curve.x[-1] for item in everyone)
        single = any(len(item.curve) == 1 for item in everyone)
        if high < low or (single and not _is_one_place(everyone, self.axis)):
            return False
        self.low, self.high = float(low), float(high)
        if not self.is_held_out:
            self.window = window_of([item.curve for item in everyone], self.low, self.high)
        for item in everyone:
            item.value = item.curve.end(self.high, self.window)
        return True

    @property
    def is_whole(self) -> bool:
        return math.isfinite(self.high)


def stretch(sides: Sequence[Side], metric: str, axis: str, notes: list[str]) -> SharedStretch:
    """Lay the runs side by side. Runs that can't take part are named in `notes`."""
    result = SharedStretch(metric, axis)
    for side in sides:
        placed, diverged = _placed(side, metric, axis, notes)
        result.sides.append(placed)
        result.diverged.append(diverged)
    everyone = [item for side in result.sides for item in side]
    if not everyone or sum(bool(side) for side in result.sides) < min(2, len(sides)):
        return result
    _note_differing_ends(sides, result, notes)
    if not result.settle():
        _say_no_stretch(result, everyone, [item for item in everyone if len(item.curve) == 1], notes)
    return result


def _placed(side: Side, metric: str, axis: str, notes: list[str]) -> tuple[list[Placed], list[ComparedMember]]:
    placed, diverged = [], []
    for member in side.members:
        at = member.diverged_at(metric)
        if at is not None:
            diverged.append(member)
            first = member.read(metric).step[0]
            since = "at every step" if at == first else f"from step {at:,} on"
            notes.append(f"{member.name}: {metric} is not a number {since}; it has no final value.")
            continue
        curve = member.curve(metric, axis)
        if curve is not None:
            placed.append(Placed(member, curve))
    steps = {id(item): item.member.last_step(metric) or 0 for item in placed}
    # the middle one of them, the longer one of two
    length = sorted(steps.values())[len(steps) // 2] if len(side.members) > 1 and steps else 0
    longest = max(steps.values(), default=0)
    for item in list(placed):
        # what a run that crashed would have come to nobody knows; of others the half has to agree
        step, lost = steps[id(item)], item.member.was_lost
        end = longest if lost else length
        if step < end * _WHOLE:
            placed.remove(item)
            what = "is" if item.member.is_alive else "ended"
            how = f" ({item.member.status})" if lost else ""
            notes.append(
                f"{item.member.name} {what} at step {step:,}{how}, and {side.label} continues to {end:,}: left out."
            )
    return _without_copies(placed, notes), diverged


def _without_copies(placed: list[Placed], notes: list[str]) -> list[Placed]:
    """Runs of one seed that agree to the last digit say as much as one of them."""
    kept: list[Placed] = []
    for item in placed:
        seeds = item.member.seeds()
        for other in kept:
            if seeds is None or other.member.seeds() != seeds or len(other.curve) != len(item.curve):
                continue
            if np.array_equal(other.curve.y, item.curve.y):
                words = ", ".join(shown(seed) for seed in dict.fromkeys(seeds))
                notes.append(
                    f"{item.member.name} repeats {other.member.name} with the same seed ({words}), digit for digit: "
                    "both count as one run."
                )
                break
        else:
            kept.append(item)
    return kept


def _note_differing_ends(sides: Sequence[Side], found: SharedStretch, notes: list[str]) -> None:
    """Runs at different parts of their plans: the learning rate of one has come down and the other's has not."""
    for placed in found.sides:
        for item in placed:
            last, plan = item.member.last_step(found.metric), item.member.facts.planned_steps
            if item.member.is_alive:
                of = f" of {plan:,.0f}" if plan else ""
                notes.append(f"{item.member.name} is still running (step {last:,}{of}): compared up to there.")
            elif item.member.was_lost and last is not None and (plan is None or last < plan * _WHOLE):
                of = f" of {plan:,.0f}" if plan else ""
                how = f"step {last:,}{of} ({item.member.status})"
                notes.append(f"{item.member.name} ended at {how}: compared up to there.")
    ends = [min((float(item.curve.x[-1]) for item in placed), default=math.nan) for placed in found.sides]
    differing = 0
    for at in range(1, len(sides)):
        short, long = sorted((0, at), key=lambda item: ends[item])
        if not ends[long] > ends[short] * (1 + SAME_END) or ends[short] <= 0:
            continue
        differing += 1
        if differing <= _MOST_ENDS:
            notes.append(
                f"{sides[long].label} continues to {found.axis} {number(ends[long], 6)}, {sides[short].label} ends at "
                f"{number(ends[short], 6)}: the two are compared there."
            )
    if differing > _MOST_ENDS:
        notes.append(f"{differing - _MOST_ENDS} more sides end elsewhere: each is compared where the shorter one ends.")


def _is_one_place(everyone: list[Placed], axis: str) -> bool:
    """Whether runs with one point have it at the same x as the others have theirs."""
    ends = [float(item.curve.x[-1]) for item in everyone]
    return max(ends) - min(ends) <= 0.01 * abs(max(ends)) if axis != "step" else max(ends) == min(ends)


def _say_no_stretch(found: SharedStretch, everyone: list[Placed], single: list[Placed], notes: list[str]) -> None:
    if single:
        names = ", ".join(item.member.name for item in single[:3])
        has = "has" if len(single) == 1 else "have"
        notes.append(f"{names} {has} one point of {found.metric}, the others have none there: no value to compare.")
        return
    first = min(everyone, key=lambda item: float(item.curve.x[-1]))
    last = max(everyone, key=lambda item: float(item.curve.x[0]))
    notes.append(
        f"{first.member.name} ends at {found.axis} {first.curve.x[-1]:,.0f} and {last.member.name} begins at "
        f"{last.curve.x[0]:,.0f}: they have no range in common."
    )


def unlike(found: SharedStretch, baseline: int, side: int, same_plan: bool) -> str | None:
    """Why two sides at their common end are not at the same part of their schedules; None if they may be compared.

    A loss falls by itself where the learning rate comes down, so a run at its end beats one on its way. It counts as
    the same part: both at their own ends; learning rates at one part of their peaks; one plan.
    same_plan: whether the configurations are known and plan the same length.
    """
    lots = found.sides[baseline], found.sides[side]
    ends = [min(float(item.curve.x[-1]) for item in lot) for lot in lots]
    if max(ends) <= min(ends) * (1 + SAME_END):
        return None
    rates = [_rate(lot, found) for lot in lots]
    if rates[0] is not None and rates[1] is not None:
        if abs(rates[0] - rates[1]) <= _SAME_RATE:
            return None
        return f"the learning rate there is {percent(rates[1], 0)} of its peak, and the other's {percent(rates[0], 0)}"
    if same_plan and _on_one_plan(lots, ends):
        return None
    parts = [_part(lot, found) for lot in lots]
    if parts[0] is not None and parts[1] is not None:
        if abs(parts[0] - parts[1]) <= _SAME_PART:
            return None
        return f"that is {percent(parts[1], 0)} of its plan, and {percent(parts[0], 0)} of the other's"
    return "one ends there and the other goes on, and it is not known whether both learning rates have decayed as far"


_AT_THEIR_END = ("finished", DIVERGED, IMPORTED, "log file")


def _on_one_plan(lots: tuple[list[Placed], list[Placed]], ends: list[float]) -> bool:
    """Whether runs of one configuration plan the same: they say so, or the shorter ones did not come to their end."""
    plans = {item.member.facts.planned_steps for lot in lots for item in lot}
    if len(plans) == 1 and None not in plans:
        return True
    shorter = lots[ends.index(min(ends))]
    return None in plans and all(item.member.status not in _AT_THEIR_END for item in shorter)


def _rate(lot: Sequence[Placed], found: SharedStretch) -> float | None:
    """The mean learning rate at the common end, as a part of each run's own peak; None if some run logs none."""
    shares = []
    for item in lot:
        name = next(
            (name for name in ("train/lr", "train/lr_multiplier", "lr_multiplier") if name in item.member.names), ""
        )
        step = item.member.axes.step_at(found.axis, found.high) if name and item.member.axes is not None else None
        if step is None:
            return None
        rates = item.member.read(name)
        good = np.isfinite(rates.value)
        if not good.any() or not rates.value[good].max() > 0:
            return None
        at = float(np.interp(step, rates.step[good], rates.value[good]))
        shares.append(at / float(rates.value[good].max()))
    return float(np.mean(shares))


def _part(lot: Sequence[Placed], found: SharedStretch) -> float | None:
    """How far through their plans the runs are at the common end."""
    parts = []
    for item in lot:
        plan = item.member.facts.planned_steps
        step = item.member.axes.step_at(found.axis, found.high) if item.member.axes is not None else None
        if plan is None or step is None:
            return None
        done = step + (item.member.read(found.metric).step[0] == 0)  # counted from 0, the last of 50 steps is 49
        parts.append(min(done / plan, 1.0) if step < plan else step / plan)
    return float(np.mean(parts))
