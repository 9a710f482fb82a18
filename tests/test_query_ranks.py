"""However rows are cut, the same series count: by rank, and the first ones where names never end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.query import ranks
from barograph.query.ranks import RankChoice, RankRow, first_series


def row(names: list[str], at: int) -> RankRow:
    return RankRow(tuple(names), struct.pack(f"<{len(names)}d", *range(len(names))), at, at, 1)


@given(st.lists(st.lists(st.integers(0, 60).map(str), min_size=1, max_size=8, unique=True), max_size=40))
def test_the_series_that_count_live_are_those_that_count_in_replay(rows: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "MOST_SERIES", 10)
        choice, began = RankChoice(), {}
        live = {name for at, names in enumerate(rows) for one in choice.take(0, row(names, at)) for name in one.names}
        for at, names in enumerate(rows):
            for name in names:
                began.setdefault(name, at)
        assert live == set(first_series(began))
        assert choice.limit.reached == (live != set(began)) and len(live) < 10 + 8


def test_what_counts_keeps_its_values_where_others_of_the_row_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "MOST_SERIES", 2)
    choice = RankChoice()
    assert choice.take(0, row(["a", "b"], 0)) == [row(["a", "b"], 0)]
    (part,) = choice.take(0, row(["x", "b", "y", "a"], 1))
    assert part.names == ("b", "a") and struct.unpack("<2d", part.values) == (1.0, 3.0)
    assert choice.take(0, row(["x", "y"], 2)) == []


def test_names_without_end_do_not_grow_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "MOST_SERIES", 100)
    choice = RankChoice()
    kept = sum(len(choice.take(0, row([f"sample/{at}/{one}" for one in range(10)], at))) for at in range(5000))
    assert kept == 10 and len(choice._first) == 10 and len(choice.limit._names) == 100
