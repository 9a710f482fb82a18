"""Cells that are numbers or moments, and the columns that count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from barograph.importing.axes import choose, moment, number


@given(some.floats() | some.integers(-(2**60), 2**60) | some.booleans())
def test_a_number_is_itself_also_as_text(value: float) -> None:
    for cell in (value, repr(float(value)), f" {float(value)!r} "):
        assert repr(number(cell)) == repr(float(value))


@given(some.text(max_size=30) | some.none() | some.lists(some.integers()) | some.integers())
def test_no_cell_makes_reading_fail(cell: Any) -> None:
    assert number(cell) is None or isinstance(number(cell), float)
    assert isinstance(moment(cell), int)


def test_thousands_percent_and_decimal_commas() -> None:
    assert (number("1,234,567.5"), number("45.5%"), number("1_000"), number("0x10")) == (1234567.5, 45.5, None, None)
    assert number("2,5", comma=True) == 2.5 and number("2,5") is None


def test_a_step_column_must_count() -> None:
    rows: list[dict[str, Any]] = [
        {"step": "a", "iteration": 3, "epoch": 0.5},
        {"step": "b", "iteration": 4, "epoch": 0.75},
    ]
    assert choose(["step", "iteration", "epoch"], rows).step == "iteration"
    assert choose(["epoch"], rows).x == "row"


@pytest.mark.parametrize("head", ["episode,score,best", "Episode,Avg_Reward_100,Score", "timesteps,reward,length"])
def test_a_table_of_episodes_is_placed_by_them(head: str) -> None:
    columns = head.split(",")
    rows = [dict(zip(columns, (str(at * 10), "1.5", "2.5"), strict=True)) for at in range(1, 9)]
    assert choose(columns, rows).step == columns[0]


@pytest.mark.parametrize("counts", [[18] * 6, [240, 30] * 3])
def test_steps_that_are_the_same_in_each_epoch_do_not_place_rows(counts: list[int]) -> None:
    columns = ["name", "epoch", "iteration", "mean loss"]
    words = ["training", "validation"] * 3
    rows = [
        dict(zip(columns, (words[at], at // 2, counts[at], 3.0 - 0.1 * at), strict=True)) for at in range(len(counts))
    ]
    axes = choose(columns, rows)
    assert (axes.step, axes.x, axes.split) == ("epoch", "epoch", "name")
    for at, row in enumerate(rows):
        row["iteration"] = 18 * (at + 1)
    assert choose(columns, rows).step == "iteration"
