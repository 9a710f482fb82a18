"""What the terminal shows of runs: aligned, within the width, and nothing hidden."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from barograph.overview import printable, sparkline, table


def row(**changes: object) -> dict[str, object]:
    base = {
        "project": "gpt",
        "id": "run",
        "status": "running",
        "step": 5,
        "loss": 1.0,
        "eval_loss": None,
        "created": None,
    }
    return base | changes


def test_long_names_lose_their_middle_and_the_table_keeps_its_width() -> None:
    rows = [row(id="a" * 300, project="p" * 200), row(id="b"), row(loss=math.nan, step=10**9)]
    lines = table(rows, width=100).splitlines()
    assert all(len(line) <= 100 for line in lines) and "…" in lines[1] and "NaN" in lines[3]
    assert len({line.index("running") for line in lines[1:]}) == 1


def test_a_spike_and_a_nan_stand_out_in_a_sparkline() -> None:
    values = [1.0] * 500
    values[250] = 50.0
    values[400] = math.nan
    drawn = sparkline(values, 20)
    assert len(drawn) == 20 and "█" in drawn and "×" in drawn


@given(st.lists(st.floats()), st.integers(1, 80))
def test_a_sparkline_never_fails_and_never_grows(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) <= width


@given(st.text())
def test_printable_text_drives_no_terminal(text: str) -> None:
    assert all(char.isprintable() for char in printable(text))
