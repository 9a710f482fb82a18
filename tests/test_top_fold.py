"""A fold in constant memory loses no extreme and no NaN, in whatever order points come."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.views.top.fold import Fold

_VALUES = st.floats(width=32, allow_nan=True, allow_infinity=True)
_POINTS = st.lists(st.tuples(st.integers(0, 3000), _VALUES), min_size=1, max_size=120)


def _folded(points: list[tuple[int, float]], pieces: int) -> Fold:
    fold = Fold(buckets=16, recent=12)
    for piece in np.array_split(np.arange(len(points)), pieces):
        fold.add(np.array([points[at][0] for at in piece], np.int64), np.array([points[at][1] for at in piece]))
    return fold


@given(_POINTS, st.integers(1, 9), st.integers(1, 40))
def test_all_columns_together_have_the_extremes_of_all_points(
    points: list[tuple[int, float]], pieces: int, count: int
) -> None:
    fold = _folded(points, pieces)
    steps = [step for step, _ in points]
    finite = [value for _, value in points if math.isfinite(value)]
    columns = fold.columns(min(steps), max(steps) + 1, count)
    assert int(columns.odd.sum()) == len(points) - len(finite) == fold.odd
    if finite:
        assert float(np.nanmin(columns.low)) == min(finite) == fold.lowest
        assert float(np.nanmax(columns.high)) == max(finite) == fold.highest
    else:
        assert np.isnan(columns.low).all() and math.isnan(fold.lowest)
    assert fold.points == len(points)
    assert fold.last_step == max(steps) and fold.first_step == min(steps)


@given(_POINTS, st.integers(1, 9), st.integers(0, 3000))
def test_a_range_at_the_end_misses_no_point_in_it(points: list[tuple[int, float]], pieces: int, low: int) -> None:
    fold = _folded(points, pieces)
    inside = [value for step, value in points if step >= low and math.isfinite(value)]
    columns = fold.columns(low, 3001, 7)
    if inside:
        assert float(np.nanmin(columns.low)) <= min(inside)
        assert float(np.nanmax(columns.high)) >= max(inside)


def test_a_spike_of_one_step_in_a_million_keeps_its_column_and_height() -> None:
    steps = np.arange(1_000_000)
    values = np.ones(len(steps))
    values[654_321], values[123_456] = 777.0, math.nan
    fold = Fold()
    for low in range(0, len(steps), 70_000):
        fold.add(steps[low : low + 70_000], values[low : low + 70_000])
    columns = fold.columns(0, 1_000_000, 200)
    assert np.flatnonzero(columns.high == 777.0).tolist() == [130]
    assert np.flatnonzero(columns.odd).tolist() == [24]
    assert fold.first_odd is not None and fold.first_odd[0] == 123_456
    assert np.nanmax(np.delete(columns.high, 130)) == 1.0


def test_the_newest_value_is_that_of_the_highest_step_logged_last() -> None:
    fold = Fold()
    fold.add(np.array([5, 9, 9]), np.array([1.0, 2.0, 3.0]))
    assert fold.last == 3.0
    fold.add(np.array([7]), np.array([8.0]))
    assert fold.last == 3.0 and fold.latest(2).tolist() == [3.0, 8.0]


def test_a_narrow_range_at_the_end_is_drawn_from_the_points_themselves() -> None:
    fold = Fold(buckets=4, recent=100)
    fold.add(np.arange(1000), np.arange(1000.0))
    columns = fold.columns(990, 1000, 10)
    assert columns.low.tolist() == columns.high.tolist() == [float(step) for step in range(990, 1000)]


@pytest.mark.parametrize("step", [-(10**15), -5, 0, 10**15])
def test_steps_of_any_size_find_a_place(step: int) -> None:
    fold = Fold(buckets=8, recent=2)
    fold.add(np.array([0, 1, 2, 3]), np.array([1.0, 2.0, 3.0, 4.0]))
    fold.add(np.array([step]), np.array([9.0]))
    low, high = min(0, step), max(3, step) + 1
    assert float(np.nanmax(fold.columns(low, high, 5).high)) == 9.0
    assert float(np.nanmin(fold.columns(low, high, 5).low)) == 1.0
