"""The rows of a comparison's table: final and best values, time, tokens and money to reach a loss, speed, spikes.

In:   the sides and the stretch that they share.
Out:  `MeasureRow`s with a cell a side; what is not known for any side is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barograph.analysis.compare import statistics
from barograph.analysis.compare.axes import UNITS
from barograph.analysis.compare.curves import GRID, ComparisonCurve, first_reach
from barograph.analysis.compare.ends import Placed, SharedStretch
from barograph.analysis.compare.member import ComparedMember
from barograph.analysis.compare.sides import Side
from barograph.core.text import number
from barograph.query.losses import all_told, losses_by_name

MANY = 40  # with more runs than these, only what is read anyway is measured


@dataclass(frozen=True)
class Cell:
    """The mean over a side's runs; low, high: its interval, None for one run. runs: that have a value, of `of`."""

    value: float
    low: float | None
    high: float | None
    runs: int
    of: int

    def as_dict(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.low, "high": self.high, "runs": self.runs, "of": self.of}


@dataclass(frozen=True)
class MeasureRow:
    """unit: "", "steps", "tokens", "samples", "seconds", "FLOPs", "a second", "share", "money".

    direction: 1 if larger is better, −1 if smaller is, 0 if neither. cells: None where nothing is known.
    """

    name: str
    unit: str
    direction: int
    cells: tuple[Cell | None, ...]

    def percent(self, side: int, baseline: int) -> float | None:
        """A side's value against the baseline's, in percent."""
        one, base = self.cells[side], self.cells[baseline]
        if one is None or base is None or base.value == 0:
            return None
        return 100 * (one.value - base.value) / abs(base.value)

    def as_dict(self) -> dict[str, Any]:
        cells = [cell.as_dict() if cell is not None else None for cell in self.cells]
        return {"name": self.name, "unit": self.unit, "direction": self.direction, "cells": cells}


def measure(
    sides: Sequence[Side], stretch: SharedStretch, target: float | None, pooled: tuple[float, float] | None = None
) -> tuple[list[MeasureRow], float | None]:
    """All rows, and the target value. pooled: the deviation of the metric from run to run, from all sides."""
    few = sum(len(side.members) for side in sides) <= MANY
    rows = _ends(sides, stretch, pooled)
    goal, reached = _reaching(sides, stretch, target, few)
    rows += reached
    rows += _totals(sides, few)
    rows += _spikes(sides, few)
    return [row for row in rows if any(cell is not None for cell in row.cells)], goal


def _cell(values: Sequence[float | None], of: int, pooled: tuple[float, float] | None = None) -> Cell | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return None
    interval = statistics.mean_interval(finite, pooled=pooled)
    low, high = interval if interval is not None else (None, None)
    return Cell(float(np.mean(finite)), low, high, len(finite), of)


def _row(
    name: str, unit: str, way: int, sides: Sequence[Side], value: Callable[[ComparedMember], float | None],
    pooled: tuple[float, float] | None = None,
) -> MeasureRow:  # fmt: skip
    cells = [_cell([value(member) for member in side.members], len(side.members), pooled) for side in sides]
    return MeasureRow(name, unit, way, tuple(cells))


def _ends(sides: Sequence[Side], stretch: SharedStretch, pooled: tuple[float, float] | None) -> list[MeasureRow]:
    metric, way = stretch.metric, stretch.way
    placed = {id(item.member): item for side in stretch.sides for item in side}

    def own_end(member: ComparedMember) -> float | None:
        one = placed.get(id(member))
        return one.curve.end(float(one.curve.x[-1]), stretch.window) if one is not None else None

    rows = [_row(f"{metric}, final", "", way, sides, own_end, pooled)]
    if stretch.is_whole:
        common = tuple(_cell(stretch.values(at), len(side.members), pooled) for at, side in enumerate(sides))
        if any(not _same(item, two) for item, two in zip(common, rows[0].cells, strict=True)):
            unit = UNITS[stretch.axis]
            rows.append(MeasureRow(f"{metric} at {_many(stretch.high, unit)}", "", way, common))
    if way:

        def best(member: ComparedMember) -> float | None:
            one = placed.get(id(member))
            if one is None:
                return None
            values = (
                one.curve.y if stretch.window == 0 else one.curve.at(one.curve.x[:: _every(one.curve)], stretch.window)
            )
            return float(np.nanmax(values) if way > 0 else np.nanmin(values))

        rows.append(_row(f"{metric}, best", "", way, sides, best))
    if stretch.is_held_out:
        loss = _loss_of_all(sides)
        if loss is not None and sum(len(side.members) for side in sides) <= MANY:
            rows.append(_row(f"{loss}, last 2%", "", -1, sides, lambda member: _last_part(member, loss)))
    return rows


def _shared(sides: Sequence[Side]) -> list[str]:
    """The metrics that all runs have."""
    return sorted(set.intersection(*(set(member.names) for side in sides for member in side.members)))


def _loss_of_all(sides: Sequence[Side]) -> str | None:
    """The training's loss, of the metrics that all runs have."""
    shared = _shared(sides)
    told = (member.told.among(shared) for side in sides for member in side.members)
    return losses_by_name(shared).and_told(all_told(told)).loss


def _last_part(member: ComparedMember, metric: str) -> float | None:
    curve = member.curve(metric, "step")
    if curve is None or member.diverged_at(metric) is not None:
        return None
    width = max(0.02, min(0.2, 10 / len(curve))) * float(curve.x[-1] - curve.x[0])
    return curve.end(float(curve.x[-1]), width)


def _every(curve: ComparisonCurve) -> int:
    return max(1, len(curve) // 5_000)


def _reaching(
    sides: Sequence[Side], stretch: SharedStretch, target: float | None, few: bool
) -> tuple[float | None, list[MeasureRow]]:  # fmt: skip
    """Steps, tokens, time and money to the first time that a value is reached.

    Without a target: the worst of the sides' final values, which all sides reach.
    """
    way = stretch.way
    if not stretch.is_whole or not way or stretch.high <= stretch.low:
        return None, []
    if target is None:
        ends = [float(np.mean(stretch.values(at))) for at in range(len(sides)) if stretch.sides[at]]
        target = max(ends) if way < 0 else min(ends)
    goal: float = target
    at = [_reach(side, stretch, goal, way) for side in stretch.sides]
    reached = {id(item.member): x for x, side in zip(at, stretch.sides, strict=True) if x is not None for item in side}
    mark = f"{stretch.metric} {'≤' if way < 0 else '≥'} {number(goal, 4)}"

    def along(axis: str) -> Callable[[ComparedMember], float | None]:
        def value(member: ComparedMember) -> float | None:
            x = reached.get(id(member))
            if x is None or member.axes is None:
                return None
            step = member.axes.step_at(stretch.axis, x)
            moved = member.axes.at(axis, np.array([step])) if step is not None else None
            return float(moved[0]) if moved is not None else None

        return value

    def money(member: ComparedMember) -> float | None:
        seconds = along("time")(member)
        price = member.cost_per_second if seconds is not None else None
        return seconds * price if seconds is not None and price is not None else None

    axes = ("step", "tokens", "time") + ((stretch.axis,) if stretch.axis in ("samples", "flops") else ())
    rows = [
        _row(f"{'time' if axis == 'time' else UNITS[axis]} to {mark}", UNITS[axis], -1, sides, along(axis))
        for axis in axes
    ]
    if few:
        rows.append(_row(f"cost to {mark}", "money", -1, sides, money))
    return goal, rows


def _reach(side: Sequence[Placed], stretch: SharedStretch, target: float, way: int) -> float | None:
    """Where a side's mean curve gets there, within what all its runs have done; smoothed by the shared window.

    The mean curve, and not the mean of the runs' own times: those that never get there would be missing in that.
    """
    if not side:
        return None
    low, high = max(float(item.curve.x[0]) for item in side), min(float(item.curve.x[-1]) for item in side)
    if high <= low:
        return None
    own = [item.curve.x for item in side if len(item.curve) <= GRID] if stretch.window == 0 else []
    x = np.unique(np.concatenate(own)) if len(own) == len(side) else np.linspace(low, high, 5 * GRID)
    x = x[(x >= low) & (x <= high)]
    reached = first_reach(x, np.mean([item.curve.at(x, stretch.window) for item in side], axis=0), target, way > 0)
    if reached is None and way * (float(np.mean([item.value for item in side])) - target) >= 0:
        return stretch.high  # the window of the end looks back alone, and may get there where the others don't
    return reached


def _totals(sides: Sequence[Side], few: bool) -> list[MeasureRow]:
    def end(axis: str) -> Callable[[ComparedMember], float | None]:
        def value(member: ComparedMember) -> float | None:
            main, axes = member.main, member.axes
            if main is None or axes is None:
                return None
            found = axes.at(axis, np.array([main.step[-1]]))
            return float(found[0]) if found is not None else None

        return value

    def speed(what: str) -> Callable[[ComparedMember], float | None]:
        return lambda member: member.throughput.get(what)

    rows = [
        _row("last step", "steps", 0, sides, end("step")),
        _row("tokens", "tokens", 0, sides, end("tokens")),
        _row("training time", "seconds", -1, sides, end("time")),
        _row("steps a second", "a second", 1, sides, speed("steps_per_second")),
        _row("tokens a second", "a second", 1, sides, speed("tokens_per_second")),
    ]
    if few:
        rows.append(_row("MFU", "share", 1, sides, speed("mfu")))
    return rows


def _spikes(sides: Sequence[Side], few: bool) -> list[MeasureRow]:
    """OLMo 2's spike score of loss and gradient norm, as far as all sides log them."""
    rows = []
    shared = _shared(sides)
    for metric in (_loss_of_all(sides), "train/norm") if few else ():
        if metric in shared:

            def share(member: ComparedMember, metric: str = metric) -> float | None:
                spikes = member.spikes(metric)
                return spikes.share if spikes is not None else None

            rows.append(_row(f"spike score of {metric}", "share", -1, sides, share))
    return rows


def _same(cell: Cell | None, other: Cell | None) -> bool:
    if cell is None or other is None:
        return cell is other
    return math.isclose(cell.value, other.value, rel_tol=1e-9)


def _many(value: float, unit: str) -> str:
    return f"{unit[:-1]} {value:,.0f}" if unit == "steps" else f"{number(value, 4)} {unit}"
