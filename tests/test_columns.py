"""The maths of drawing, against slow and obvious versions of itself."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barograph.core.columns import align, buckets, smooth, thin, thin_indices

NUMBERS = st.one_of(
    st.floats(-1e6, 1e6),
    st.floats(width=64),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, -1e308, 5e-324]),
)
COLUMNS = st.lists(NUMBERS, max_size=80)
PLACES = st.one_of(st.integers(-(2**40), 2**40), st.sampled_from([0, 1, 2**62, -(2**62)]))
REAL_PLACES = st.one_of(st.floats(-1e9, 1e9), st.sampled_from([math.nan, math.inf, -1e308, 1e308, 0.0]))


@st.composite
def points(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """A column of whole or real x, sorted or not, and a y of the same length."""
    y = np.array(draw(COLUMNS), np.float64)
    real = draw(st.booleans())
    x = draw(st.lists(REAL_PLACES if real else PLACES, min_size=len(y), max_size=len(y)))
    column = np.array(x, np.float64 if real else np.int64)
    return (np.sort(column) if draw(st.booleans()) else column), y


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(np.asarray(a, float), np.asarray(b, float), equal_nan=True))


# -- buckets --------------------------------------------------------------------------------------


@given(points(), st.integers(1, 12), st.booleans())
def test_buckets_hold_every_point_once_and_their_extremes_are_exact(data: Any, number: int, log: bool) -> None:
    x, y = data
    got = buckets(x, y, number, log)
    keep = np.isfinite(x.astype(float))
    order = np.argsort(x[keep], kind="stable")
    xs, ys = x[keep][order].tolist(), y[keep][order].tolist()
    assert len(got.points) <= number and sum(got.points.tolist()) == len(xs)
    at = 0
    for b, size in enumerate(got.points.tolist()):
        assert size > 0
        bx, by = xs[at : at + size], ys[at : at + size]
        at += size
        finite = [(value, place) for value, place in zip(by, bx, strict=True) if math.isfinite(value)]
        low = min(finite, key=lambda p: p[0], default=(math.nan, bx[0]))
        high = max(finite, key=lambda p: p[0], default=(math.nan, bx[0]))
        assert same([got.y_min[b], got.x_min[b]], low) and same([got.y_max[b], got.x_max[b]], high)
        assert (got.x_first[b], got.x_last[b]) == (bx[0], bx[-1]) and same([got.y_last[b]], [by[-1]])
        assert got.nan[b] == sum(math.isnan(v) for v in by)
        assert got.inf[b] == by.count(math.inf) and got.minus_inf[b] == by.count(-math.inf)


@given(st.integers(1, 50), st.integers(1, 12), st.integers(-1000, 1000), st.integers(1, 9))
@example(count=37, number=12, first=0, stride=3)  # a point exactly on the edge of two buckets
@example(count=34, number=11, first=7, stride=9)
def test_buckets_are_equally_wide(count: int, number: int, first: int, stride: int) -> None:
    x = first + np.arange(count) * stride
    got = buckets(x, np.zeros(count), number)
    width = int(x[-1] - x[0])
    ends = [
        [min((int(place) - first) * number // width, number - 1) if width else 0 for place in column]
        for column in (got.x_first, got.x_last)
    ]
    assert ends[0] == ends[1] and len(set(ends[0])) == len(ends[0])


def test_buckets_of_a_logarithmic_axis_are_equally_wide_on_it() -> None:
    x = np.arange(-2, 1_000_001)
    got = buckets(x, x, 601, log=True)
    assert got.x_last[0] == 0 and got.points[0] == 3  # what has no place on the axis
    assert got.x_first[1:5].tolist() == [1, 2, 3, 4]  # the first decade has points of its own
    assert ((got.x_first >= 1000) & (got.x_first < 10_000)).sum() == pytest.approx(100, abs=1)
    assert buckets([-1, 0], [1, 2], 5, log=True).points.tolist() == [2]


def test_an_outlier_in_x_does_not_lose_points_and_an_empty_column_has_no_buckets() -> None:
    got = buckets([1, 2, 3, 10**12], [5.0, -7.0, 6.0, 1.0], 100)
    assert got.points.tolist() == [3, 1] and got.y_min.tolist() == [-7.0, 1.0] and got.x_min.tolist() == [2, 10**12]
    assert all(len(column) == 0 for column in buckets([], [], 5))


def test_columns_of_different_lengths_and_no_buckets_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        buckets([1, 2], [1.0], 3)
    with pytest.raises(ValueError, match="at least one bucket"):
        buckets([1], [1.0], 0)


# -- thin -----------------------------------------------------------------------------------------


@given(points(), st.integers(2, 40))
@example((np.arange(9), np.array([math.nan, math.inf, -math.inf] * 3)), 2)
def test_thinning_keeps_to_the_budget_and_keeps_the_extremes(data: Any, most: int) -> None:
    x, y = data
    places = thin_indices(y, most, x)
    usable = np.isfinite(x.astype(float))
    assert len(places) <= most and len(set(places.tolist())) == len(places) and usable[places].all()
    along = x[places].astype(float)
    assert (along[1:] >= along[:-1]).all()
    if usable.sum() <= most:
        assert len(places) == usable.sum()
        return
    finite = y[usable & np.isfinite(y)]
    if len(finite):
        assert finite.min() in y[places] and finite.max() in y[places]


@given(st.lists(NUMBERS, min_size=30, max_size=200), st.integers(12, 29))
def test_thinning_keeps_each_kind_of_mark_and_both_ends(values: list[float], most: int) -> None:
    y = np.array(values)
    kept = y[thin_indices(y, most)]
    for kind in (np.isnan, np.isposinf, np.isneginf):
        assert kind(y).any() == kind(kept).any()
    assert same([kept[0], kept[-1]], [y[0], y[-1]])


@given(st.lists(NUMBERS, min_size=40, max_size=300), st.integers(12, 39))
def test_no_spike_is_ever_thinned_away(values: list[float], most: int) -> None:
    """Every finite value of the column lies between the extremes kept of its own bucket."""
    y = np.array(values)
    odd = int((~np.isfinite(y)).sum())
    kinds = int(np.isnan(y).any()) + int(np.isposinf(y).any()) + int(np.isneginf(y).any())
    number = max((most - 2 - odd) // 2, (most - 2) // (2 + kinds), 1)
    kept = np.zeros(len(y), bool)
    kept[thin_indices(y, most)] = True
    edges = [next(i for i in range(len(y)) if i * number >= k * (len(y) - 1)) for k in range(number)] + [len(y)]
    for start, stop in itertools.pairwise(edges):
        here, shown = y[start:stop], y[start:stop][kept[start:stop]]
        if np.isfinite(here).any():
            assert here[np.isfinite(here)].min() in shown and here[np.isfinite(here)].max() in shown


def test_a_short_column_is_returned_as_it_is() -> None:
    x, y = np.array([3, 1, 2]), np.array([1.0, math.nan, 2.0])
    assert thin(x, y, 3)[0] is x and thin(x, y, 3)[1] is y


def test_thinning_is_the_same_every_time_and_shows_a_single_spike() -> None:
    y = np.random.default_rng(1).standard_normal(100_000)
    y[54_321] = 99.0
    first, again = thin(np.arange(100_000), y, 100), thin(np.arange(100_000), y, 100)
    assert same(first[1], again[1]) and 54_321 in first[0] and len(first[0]) <= 100


def test_fewer_than_two_points_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 2"):
        thin_indices([1.0, 2.0, 3.0], 1)


# -- align ----------------------------------------------------------------------------------------


@given(points(), st.lists(PLACES, max_size=20))
def test_aligned_values_are_known_ones_or_between_their_neighbours(data: Any, wanted: list[int]) -> None:
    x, y = data
    got = align(np.array(wanted, np.int64), x, y)
    known: dict[float, float] = {}
    for place, value in zip(x.tolist(), y.tolist(), strict=True):
        if math.isfinite(place):
            known[place] = value
    for place, value in zip(wanted, got.tolist(), strict=True):
        below = [k for k in known if k < place]
        above = [k for k in known if k > place]
        if place in known:
            assert same([value], [known[place]])
        elif not below or not above:
            assert math.isnan(value)
        else:
            ends = known[max(below)], known[min(above)]
            if all(map(math.isfinite, ends)):
                slack = 1e-9 * max(map(abs, ends))
                assert min(ends) - slack <= value <= max(ends) + slack
            else:
                assert math.isnan(value)


def test_aligning_interpolates_linearly() -> None:
    assert align([0, 5, 10, 15, 20, 21], [0, 10, 20], [1.0, 3.0, math.inf]).tolist()[:3] == [1.0, 2.0, 3.0]
    assert math.isnan(align([15], [0, 10, 20], [1.0, 3.0, math.inf])[0])
    assert align([20], [0, 10, 20, 20], [1.0, 3.0, math.inf, 4.0]).tolist() == [4.0]
    assert math.isnan(align([1], [], [])[0])


# -- smooth ---------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.floats(-1e300, 1e300), st.sampled_from([math.nan, math.inf, -math.inf])), max_size=300),
    st.one_of(st.floats(0, 0.999999), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1e-12])),
)
@example([5e-324], 0.5)
@settings(max_examples=200)
def test_smoothing_is_the_debiased_average_and_survives_nan(values: list[float], factor: float) -> None:
    got = smooth(values, factor)
    mean, weight = 0.0, 0.0
    for value, smoothed in zip(values, got.tolist(), strict=True):
        if not math.isfinite(value):
            assert same([smoothed], [value])
            continue
        weight = factor * weight + (1 - factor)
        mean = factor * mean + (1 - factor) * value
        largest = max(abs(v) for v in values if math.isfinite(v))
        assert smoothed == pytest.approx(mean / weight, rel=1e-6, abs=1e-8 * largest + 1e-300)  # as exact as a float


def test_smoothing_a_constant_changes_nothing_and_zero_is_the_identity() -> None:
    assert smooth([2.5] * 5000, 0.99) == pytest.approx(np.full(5000, 2.5))
    assert same(smooth([1.0, math.nan, 3.0], 0.0), [1.0, math.nan, 3.0])
    with pytest.raises(ValueError, match="less than 1"):
        smooth([1.0], 1.0)
