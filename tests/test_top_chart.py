"""Charts of characters: nothing sticks out, nothing that matters is left out."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barograph.core.text import narrow, width
from barograph.views.top import chart
from barograph.views.top.fold import FoldColumns
from barograph.views.top.screen import plain


def _columns(values: list[float]) -> FoldColumns:
    column = np.array(values, np.float64)
    finite = np.where(np.isfinite(column), column, np.nan)
    odd = (~np.isfinite(column)).astype(np.int64)
    return FoldColumns(finite, finite, odd)


def _dots(lines: list[str]) -> int:
    return sum(bin(ord(one) - 0x2800).count("1") for line in lines for one in line if one != " ")


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=40, max_size=40), st.booleans(), st.booleans())
def test_a_chart_has_the_size_asked_for_whatever_the_values(values: list[float], log: bool, braille: bool) -> None:
    columns = _columns(values if braille else values[:20])
    scale = chart.scale_of([columns], log)
    rows = chart.chart(columns, None, scale, 20 + chart.LABEL + 1, 6, braille)
    assert len(rows) == 6
    assert all(width(line) <= 20 + chart.LABEL + 1 for line in plain(rows).split("\n"))
    if not log:
        shown = [one for one in values[: len(columns.low)] if math.isfinite(one)]
        assert all(scale.low <= one <= scale.high for one in shown)


def test_a_spike_reaches_the_top_and_a_dip_the_bottom() -> None:
    values = [5.0] * 40
    values[10], values[30] = 10.0, 0.0
    lines = chart.curve(_columns(values), chart.Scale(0.0, 10.0), 20, 5, True)
    assert lines[0][5] != " " and lines[0].count(" ") == 19
    assert lines[4][15] != " " and lines[4].count(" ") == 19


def test_points_far_apart_are_joined_and_nothing_is_drawn_through_a_nan() -> None:
    sparse = _columns([1.0] + [math.nan] * 18 + [1.0])
    gap = FoldColumns(sparse.low, sparse.high, np.zeros(20, np.int64))
    assert _dots(chart.curve(gap, chart.Scale(0.0, 2.0), 10, 2, True)) == 20
    broken = chart.curve(sparse, chart.Scale(0.0, 2.0), 10, 2, True)
    assert _dots(broken) == 2


def test_values_that_are_not_finite_are_marked_below_the_chart_and_in_a_sparkline() -> None:
    row = chart.mark_row(np.array([0, 3, 0, 0]), {2: "critical"}, 4 + chart.LABEL + 1, True)
    assert plain([row])[-4:] == "─×▲─"
    assert plain([chart.sparkline(_columns([1.0, math.inf, 3.0]), True)]) == "▁×█"
    assert plain([chart.sparkline(_columns([math.nan, math.nan]), False)]) == "xx"


def test_a_logarithmic_chart_leaves_out_and_tells_what_is_not_above_zero() -> None:
    scale = chart.scale_of([_columns([-1.0, 0.0, 1.0, 100.0])], True)
    assert scale.log and scale.left_out and (scale.low, scale.high) == (1.0, 100.0)
    assert not chart.scale_of([_columns([-1.0, 0.0])], True).log


@given(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 12), st.booleans())
def test_the_newest_step_is_always_shown(first: int, length: int, window: int, live: bool) -> None:
    last = first + length
    low, high = chart.span_of(first, last, window, live=live)
    assert first <= low < high and last < high


def test_a_live_chart_stands_still_while_points_are_added() -> None:
    spans = {chart.span_of(0, last, 0) for last in range(100_000, 104_000)}
    assert len(spans) <= 2
    assert chart.span_of(0, 999, 0, planned=1000) == (0.0, 1001.0)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_figure_fits_its_column(value: float) -> None:
    assert 1 <= len(narrow(value)) <= 9
