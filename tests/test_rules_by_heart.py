"""Accuracies of the training and of the evaluation, side by side, where no model is watched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_rules_objective import STEP, every, of_graph, warned

AT = STEP[19::40]
FALLS = 2.0 * np.exp(-STEP / 40) + 0.01


@pytest.mark.parametrize("rows", [7, len(STEP)])
@pytest.mark.parametrize(
    ("right", "beside", "says"),
    [
        (np.full(10, 0.3), {}, True),
        (np.full(10, 30.0), {}, True),  # percent
        (np.full(10, 0.6), {}, False),
        (np.linspace(0.05, 0.45, 10), {}, False),  # it gets better
        (np.full(10, 0.3), {"train/reward": every(STEP / 400)}, False),
        (np.full(10, 0.3), of_graph(example_rows=16.0), False),  # a watched model's examples say more
    ],
)
def test_answers_that_are_right_in_the_training_alone_are_known_by_heart(
    right: np.ndarray, beside: dict[str, Any], says: bool, rows: int
) -> None:
    percent = 100.0 if right.max() > 1 else 1.0
    columns = {
        "train_loss": every(FALLS), "train_acc": every(percent * (0.99 - 0.5 * np.exp(-STEP / 20))),
        "val_loss": (AT, np.full(10, 3.0)), "val_acc": (AT, right),
    }  # fmt: skip
    assert ("learnt_by_heart" in warned(columns | beside, rows)) == says


def test_accuracies_that_count_something_else_are_not_compared() -> None:
    columns = {
        "train_loss": every(FALLS), "train_acc": every(np.full(len(STEP), 0.99)),
        "val_loss": (AT, np.full(10, 3.0)), "val_recall@1": (AT, np.full(10, 0.3)),
    }  # fmt: skip
    assert "learnt_by_heart" not in warned(columns)
