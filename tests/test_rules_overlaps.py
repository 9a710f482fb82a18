"""Evaluations of which some rows have something of the training, beside what chance gives."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_objective import FALLS, STEP, every, of_graph, warned

AT = STEP[20::40]


@pytest.mark.parametrize(
    ("share", "chance", "rows", "says"),
    [(0.58, 0.34, 24.0, False), (0.58, 0.34, 100.0, True), (0.9, 0.34, 24.0, True), (0.58, 0.0, 24.0, True)],
)
def test_passages_in_common_are_no_leak_where_chance_may_give_as_many(
    share: float, chance: float, rows: float, says: bool
) -> None:
    figures = {"": share, "_chance": chance, "_rows": rows, "_passes": 1.0}
    columns = {f"model/evaluated_passages{name}": (AT, np.full(len(AT), value)) for name, value in figures.items()}
    columns |= {"train/loss": every(FALLS), "val/loss": (AT, FALLS[AT])}
    assert ("evaluation_overlaps" in warned(columns | of_graph(distinct_rows=400.0, example_rows=16.0))) == says


@pytest.mark.parametrize(("share", "beyond", "says"), [(0.28, 0.1, True), (0.28, 0.88, False), (0.6, 0.88, True)])
def test_batches_of_like_texts_say_less_of_what_chance_gives(share: float, beyond: float, says: bool) -> None:
    figures = {"": share, "_chance": 0.12, "_rows": 128.0, "_passes": 1.0}
    columns = {f"model/evaluated_passages{name}": (AT, np.full(len(AT), value)) for name, value in figures.items()}
    columns |= {"train/loss": every(FALLS), "val/loss": (AT, FALLS[AT])}
    graph = of_graph(distinct_rows=400.0, example_rows=16.0, wording_beyond=beyond)
    assert ("evaluation_overlaps" in warned(columns | graph)) == says
