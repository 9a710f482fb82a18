"""What a chart is drawn from is exact: every extreme, every mark, only what is in range."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.core.columns import smooth
from barograph.views.server.sampling import sampled

values = st.lists(st.floats(width=64), min_size=1, max_size=300)


@settings(max_examples=150)
@given(values, st.integers(1, 40), st.data())
def test_buckets_are_what_a_slow_loop_finds(column: list[float], most: int, data: st.DataObject) -> None:
    y = np.array(column)
    x = np.cumsum(np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(y), max_size=len(y)))))
    low, high = sorted(data.draw(st.tuples(st.integers(-2, 500), st.integers(-2, 500))))
    made = sampled(x, y, x, None, low, high, most)
    inside = (x >= low) & (x <= high)
    assert made.points == inside.sum()
    assert made.marks_total == (~np.isfinite(y[inside])).sum() == len(made.marks)
    if made.exact:
        assert made.points <= most
        np.testing.assert_array_equal(made.columns["y"], y[inside])
        return
    columns = made.columns
    assert len(columns["x"]) <= most and columns["count"].sum() == made.points
    at = 0
    for place, count in enumerate(columns["count"].tolist()):
        piece, along = y[inside][at : at + count], x[inside][at : at + count]
        finite = piece[np.isfinite(piece)]
        assert columns["x"][place] == along[0]
        same(columns["first"][place], piece[0])
        same(columns["last"][place], piece[-1])
        same(columns["min"][place], finite.min() if len(finite) else math.nan)
        same(columns["max"][place], finite.max() if len(finite) else math.nan)
        if len(finite):
            with np.errstate(over="ignore"):
                mean = float(np.mean(finite / len(finite)) * len(finite))
            assert columns["mean"][place] == pytest.approx(mean, rel=1e-6, abs=1e-6 * np.abs(finite).max())
        at += count


def same(one: float, other: float) -> None:
    np.testing.assert_array_equal(one, other)


def test_a_spike_of_one_step_among_a_million_is_there_at_its_place() -> None:
    x, y = np.arange(1_000_000), np.ones(1_000_000)
    y[654_321] = 99.0
    made = sampled(x, y, x, None, None, None, 400, places=True)
    assert made.columns["max"].max() == 99.0
    assert made.columns["x_max"][made.columns["max"].argmax()] == 654_321


def test_smoothing_is_that_of_the_whole_column_whatever_the_range() -> None:
    x, y = np.arange(1000), np.random.default_rng(1).standard_normal(1000)
    whole = smooth(y, 0.9)
    part = sampled(x, y, x, whole, 500, 899, 1000)
    np.testing.assert_array_equal(part.columns["smooth"], whole[500:900])
    bucketed = sampled(x, y, x, whole, 500, 899, 4)
    np.testing.assert_array_equal(bucketed.columns["smooth"], whole[[599, 699, 799, 899]])


def test_a_bucket_that_ends_with_nan_has_the_smoothed_value_before_it() -> None:
    y = np.array([1.0, 2.0, 3.0, math.nan, math.nan, math.nan, 7.0, math.inf])
    whole = smooth(y, 0.5)
    made = sampled(np.arange(8), y, np.arange(8), whole, None, None, 4)
    np.testing.assert_array_equal(made.columns["smooth"], [whole[1], whole[2], math.nan, whole[6]])
    assert [mark["kind"] for mark in made.marks] == ["nan", "nan", "nan", "+inf"]


def test_points_without_an_x_are_left_out_and_an_x_that_goes_back_is_sorted() -> None:
    x, y = np.array([3.0, math.nan, 1.0, 2.0]), np.array([30.0, 0.0, 10.0, 20.0])
    made = sampled(x, y, np.arange(4), None, None, None, 10)
    assert made.columns["x"].tolist() == [1, 2, 3] and made.columns["y"].tolist() == [10, 20, 30]


def test_the_points_beside_the_range_are_told_so_that_a_line_goes_on() -> None:
    x = np.arange(10)
    y = np.where(x == 3, math.nan, x * 10.0)
    made = sampled(x, y, x, None, 4, 6, 10)
    assert made.before == (2.0, 20.0) and made.after == (7.0, 70.0)
    everything = sampled(x, y, x, None, None, None, 10)
    assert everything.before is None and everything.after is None


def test_marks_are_counted_beyond_those_that_are_listed() -> None:
    y = np.full(1000, math.nan)
    made = sampled(np.arange(1000), y, np.arange(1000), None, None, None, 10)
    assert len(made.marks) == 200 and made.marks_total == 1000


def test_an_empty_range_and_an_empty_column_are_nothing() -> None:
    x = np.arange(5)
    assert sampled(x, x * 1.0, x, None, 100, 200, 10).points == 0
    assert sampled(x[:0], np.empty(0), x[:0], None, None, None, 10).points == 0
