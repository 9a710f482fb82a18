"""Smoothing, ends, noise, reaching a value, spikes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.analysis.compare.curves import ComparisonCurve, first_reach, noise, spike_score, window_of


def straight(number: int = 101, slope: float = 1.0) -> ComparisonCurve:
    x = np.arange(number, dtype=float)
    return ComparisonCurve(x, slope * x)


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(0.5, 20))
def test_the_smoothed_value_is_the_mean_of_the_window(seed: int, number: int, window: float) -> None:
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(0, 50, number))
    curve = ComparisonCurve(x, random.standard_normal(number) * 10)
    for place in np.linspace(x[0], x[-1], 7):
        inside = (x >= place - window / 2) & (x <= place + window / 2)
        if inside.any():
            assert curve.at(np.array([place]), window)[0] == pytest.approx(curve.y[inside].mean(), abs=1e-9)


def test_a_line_stays_a_line_and_nothing_is_made_up_outside() -> None:
    curve = straight()
    assert curve.at(np.array([50.0]), 10)[0] == 50
    assert np.isnan(curve.at(np.array([-1.0, 101.0]), 10)).all()
    assert curve.at(np.array([0.5]), 0.0)[0] == 0.5


def test_one_window_for_runs_that_log_differently_often() -> None:
    dense, sparse = straight(1001), ComparisonCurve(np.arange(0, 1001, 10.0), np.arange(0, 1001, 10.0))
    window = window_of([dense, sparse], 0, 1000)
    assert window == pytest.approx(1000 * 10 / 101, rel=0.01)  # ten points of the sparse one
    assert window_of([dense], 0, 1000) == pytest.approx(20)
    assert window_of([dense, straight(12)], 0, 11) == 0  # too few points to smooth


def test_the_end_is_the_last_windows_mean() -> None:
    assert straight().end(100.0, 10.0) == pytest.approx(95.5)  # 91 … 100
    assert straight().end(100.0, 0.0) == 100


def test_the_noise_of_a_difference_is_found_whatever_its_trend() -> None:
    random = np.random.default_rng(0)
    x = np.arange(20_000, dtype=float)
    a = ComparisonCurve(x, 3 - 1e-4 * x + random.standard_normal(len(x)) * 0.1)
    b = ComparisonCurve(x, 3 - 2e-4 * x + random.standard_normal(len(x)) * 0.1)
    found = noise(a, b, 0, 19_999, 400)
    assert found is not None
    _, errors, dof = found
    wanted = math.sqrt(2) * 0.1 / math.sqrt(400)
    assert np.median(errors) == pytest.approx(wanted, rel=0.3)
    assert 3 < dof < 6
    assert noise(a, b, 0, 19_999, 0.0) is None
    assert noise(a, b, 0, 19_999, 9_000.0) is None


def test_when_a_value_is_reached() -> None:
    x, y = np.array([0.0, 10.0, 20.0]), np.array([4.0, 3.0, 1.0])
    assert first_reach(x, y, 2.0, rising=False) == 15
    assert first_reach(x, y, 5.0, rising=False) == 0
    assert first_reach(x, y, 0.5, rising=False) is None
    assert first_reach(x, np.array([np.nan, 3.0, 1.0]), 3.5, rising=False) == 10
    assert first_reach(x, -y, -2.0, rising=True) == 15


def slow_spikes(y: Any) -> tuple[int, int]:
    y = y[np.isfinite(y)]
    found = 0
    for at in range(100, len(y)):
        before = y[max(0, at - 1000) : at]
        found += abs(y[at] - before.mean()) >= 7 * before.std() and y[at] != before.mean()
    return found, max(0, len(y) - 100)


@pytest.mark.parametrize("number", [3, 100, 101, 999, 1001, 1101, 3000])
def test_the_spike_score_is_that_of_its_definition(number: int) -> None:
    random = np.random.default_rng(number)
    y = 3 * np.exp(-np.arange(number) / 500) + random.standard_normal(number) * 0.03
    places = random.integers(0, number, number // 100)
    y[places] += random.standard_normal(len(places))
    if number > 1000:
        y[number // 2], y[number // 3] = 1e30, np.nan
    found = spike_score(y)
    assert (found.spikes, found.scored) == slow_spikes(y)
    assert found.not_finite == (number > 1000)
    assert found.share == (None if number <= 100 else found.spikes / found.scored)


def test_spikes_at_the_seams_of_blocks_are_counted_once() -> None:
    y = np.random.default_rng(0).standard_normal(70_000) * 0.01
    for place in (32_867, 32_868, 65_636):
        y[place] += 5
    assert spike_score(y).spikes in (2, 3)  # the second of two neighbours lies in the shadow of the first, or not
    assert spike_score(y).spikes == slow_spikes(y[30_000:])[0]


def test_a_constant_has_no_spikes() -> None:
    assert spike_score(np.ones(3000)).spikes == 0
