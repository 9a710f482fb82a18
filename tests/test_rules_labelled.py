"""Rows of batches that have one label each, one label after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.data.labelled import SortedLabels

ROWS = 160
STEP = np.arange(ROWS)
DICE = np.random.default_rng(3)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("label", "share", "rows", "change", "config", "told"),
    [
        (STEP // 75 % 2, 1.0, 24, {}, {}, True),
        (STEP // 20 % 3, 1.0, 24, {}, {}, True),
        (STEP // 75 % 2, 0.9, 24, {}, {}, False),  # others are among them
        (DICE.integers(0, 2, ROWS), 1.0, 24, {}, {}, False),  # batches of one label are drawn at random
        (STEP % 2, 1.0, 24, {}, {}, False),  # by turns
        (0 * STEP, 1.0, 24, {}, {}, False),
        (STEP // 75 % 2, 1.0, 4, {}, {}, False),
        (STEP // 150, 1.0, 24, {}, {}, False),  # the second one hardly begins
        (STEP // 75 % 2, 1.0, 24, {}, {"curriculum": True}, False),
        (STEP // 75 % 2, 1.0, 24, {"train/task": STEP // 75}, {}, False),
        (STEP // 75 % 2, 1.0, 24, {"model/state_carried": 1.0}, {}, False),
        (STEP // 75 % 2, 1.0, 24, {"model/targets": 24.0, "model/example_rows": 24.0}, {}, False),  # the model shows it
        (STEP // 75 % 2, 1.0, 24, {"model/targets": 150.0, "model/example_rows": 24.0}, {}, True),
    ],
)
def test_labels_one_after_the_other_are_told(
    label: np.ndarray, share: float, rows: int, change: dict[str, Any], config: dict[str, Any], told: bool,
    pieces: tuple[int, ...],
) -> None:  # fmt: skip
    series = {"data/label": label, "data/label_share": share, "data/label_rows": rows, "train/loss": 0.5} | change
    columns = {name: (STEP, np.full(ROWS, 1.0) * value) for name, value in series.items()}
    findings = found([SortedLabels()], columns, pieces, config=config)
    assert [(one.severity, one.step) for one in findings] == [("warning", 0)] * told
