"""Rows of a text whose answers are, or seem to be, cut off."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_objective import FALLS, STEP, every, of_graph, warned

LOOKS = STEP[::10]


@pytest.mark.parametrize("rows", [7, len(STEP)])
@pytest.mark.parametrize(
    ("beside", "says"),
    [
        ({}, True),
        ({"train/reward": every(STEP / 400)}, False),  # groups that are worth the same, or answers that are rejected
        ({"rewards/margins": every(STEP / 400)}, False),
        ({"vow_margin": every(STEP / 400)}, False),  # a hinge's pairs that are far enough apart have no gradient
        (of_graph(loss_ranks=1.0), False),
    ],
)
def test_rows_without_a_gradient_are_cut_off_where_no_answers_are_judged(
    beside: dict[str, tuple[np.ndarray, np.ndarray]], says: bool, rows: int
) -> None:
    columns = {"train/loss": every(FALLS), "model/rows_cut": (LOOKS, np.full(len(LOOKS), 0.5))}
    assert ("answers_cut" in warned(columns | of_graph(passes=1.0, backwards=1.0) | beside, rows)) == says
