"""A sketch's percentiles and histograms stay within their bound, and sketches add up exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from barograph.probes.stats.sketch import (
    BUCKETS,
    NEGATIVE,
    NOT_FINITE,
    RELATIVE_ERROR,
    SHIFT,
    Sketches,
    _bounds,
    gather,
    merge_sketches,
    places_of,
    sparse,
)

FINITE = arrays(
    np.float32,
    st.integers(0, 200),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0]),
)
Q = (0, 1, 5, 25, 50, 75, 95, 99, 100)


def sketch_of(*tensors: np.ndarray) -> Sketches:
    rows = [
        sparse(np.bincount(values.astype(np.float32).view(np.uint32) >> SHIFT, minlength=BUCKETS)) for values in tensors
    ]
    finite = [values[np.isfinite(values)].astype(np.float64) for values in tensors]
    low = np.array([values.min() if len(values) else np.nan for values in finite])
    high = np.array([values.max() if len(values) else np.nan for values in finite])
    return gather(rows, low, high)


def order_statistics(values: np.ndarray, q: tuple[float, ...]) -> np.ndarray:
    ordered = np.sort(values.astype(np.float64))
    return ordered[[max(0, int(np.ceil(share * len(ordered) / 100)) - 1) for share in q]]


@given(FINITE)
def test_every_value_lies_in_its_bucket_and_near_its_representative(values: np.ndarray) -> None:
    low, high, middle = (column[places_of(values.view(np.uint32) >> SHIFT)] for column in _bounds())
    wide = values.astype(np.float64)
    least = 2.0**-132  # width of the buckets beside zero, of which -0 has none of its own
    assert ((low - least <= wide) & (wide <= high)).all()
    normal = np.abs(wide) >= 2.0**-126
    assert (np.abs(middle - wide)[normal] <= RELATIVE_ERROR * np.abs(wide)[normal] * (1 + 1e-12)).all()
    assert (np.abs(middle - wide)[~normal] <= least).all()


@given(FINITE)
def test_places_ascend_with_values(values: np.ndarray) -> None:
    ordered = np.sort(values)
    assert (np.diff(places_of(ordered.view(np.uint32) >> SHIFT)) >= 0).all()


@given(st.lists(FINITE, min_size=1, max_size=4))
def test_percentiles_are_within_one_percent_of_the_order_statistic(tensors: list[np.ndarray]) -> None:
    found = sketch_of(*tensors).percentiles(Q)
    for row, values in zip(found, tensors, strict=True):
        if not len(values):
            assert np.isnan(row).all()
            continue
        exact = order_statistics(values, Q)
        assert (np.abs(row - exact) <= np.maximum(RELATIVE_ERROR * np.abs(exact) * (1 + 1e-12), 2.0**-132)).all()
        assert row[0] == exact[0] and row[-1] == exact[-1]
        assert (np.diff(row) >= 0).all()


def test_percentiles_of_a_million_normal_values() -> None:
    values = np.random.default_rng(0).normal(0, 1e-3, 1_000_000).astype(np.float32)
    found, exact = sketch_of(values).percentiles(Q)[0], order_statistics(values, Q)
    assert np.max(np.abs(found - exact) / np.abs(exact)) <= RELATIVE_ERROR
    assert np.max(np.abs(found - exact) / np.abs(exact)) > 1e-5, "exact percentiles would mean that nothing is bucketed"


@given(st.lists(FINITE, min_size=1, max_size=4), st.integers(1, 40))
def test_histograms_hold_every_value_once(tensors: list[np.ndarray], bins: int) -> None:
    sketches = sketch_of(*tensors)
    edges, counts = sketches.histograms(bins)
    for number, values in enumerate(tensors):
        assert np.isclose(counts[number].sum(), len(values)) and (counts[number] >= -1e-9).all()
        one_edges, one_counts = sketches.histogram(number, bins)
        assert (one_edges == edges[number]).all() and (one_counts == counts[number]).all()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50))
def test_a_histogram_is_off_by_no_more_than_the_buckets_its_edges_cut(seed: int, bins: int) -> None:
    values = np.random.default_rng(seed).normal(0.5, 1, 2000).astype(np.float32)
    sketches = sketch_of(values)
    edges, counts = sketches.histogram(0, bins)
    exact, _ = np.histogram(values.astype(np.float64), edges)
    low, high, filled = sketches.buckets(0)
    for edge, got, true in zip(edges[1:-1], np.cumsum(counts), np.cumsum(exact), strict=False):
        assert abs(got - true) <= filled[(low <= edge) & (edge <= high)].sum() + 1e-6


def test_edges_of_ones_own_count_what_lies_between_them() -> None:
    sketches = sketch_of(np.array([-2.0, -1.0, 0.0, 0.0, -0.0, 1.0, 2.0], np.float32))
    _, counts = sketches.histogram(0, [-1.5, -0.5, 0.0, 0.5, 1.5])
    assert counts.tolist() == [1.0, 0.0, 3.0, 1.0]
    with pytest.raises(ValueError, match="ascend"):
        sketches.histogram(0, [1.0, 0.0])
    with pytest.raises(ValueError, match="at least one bin"):
        sketches.histogram(0, 0)
    with pytest.raises(ValueError, match="between 0 and 100"):
        sketches.percentiles([101])


def test_one_value_many_times_is_one_bin_of_its_own() -> None:
    edges, counts = sketch_of(np.full(9, 0.3, np.float32)).histogram(0, 3)
    assert edges[0] < np.float32(0.3) < edges[-1] and counts.tolist() == [0, 9, 0]


def test_what_is_not_finite_is_left_out() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3.0, -np.finfo(np.float32).max, np.finfo(np.float32).max], np.float32)
    sketches = sketch_of(values)
    assert sketches.counts.sum() == 3
    assert sketches.places[0] == NEGATIVE - NOT_FINITE and sketches.places[-1] == NEGATIVE + NOT_FINITE - 1


@given(st.lists(st.tuples(FINITE, FINITE, FINITE), min_size=1, max_size=3))
def test_merged_sketches_are_those_of_all_values(tensors: list[tuple[np.ndarray, ...]]) -> None:
    merged = merge_sketches([sketch_of(*parts) for parts in zip(*tensors, strict=True)])
    whole = sketch_of(*(np.concatenate(parts) for parts in tensors))
    for field in ("starts", "places", "counts", "low", "high"):
        assert np.array_equal(getattr(merged, field), getattr(whole, field), equal_nan=True), field
