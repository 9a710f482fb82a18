"""Sums of squares that clipping cuts at each step, and sums that it leaves."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.rules.loss.squares import SquaresAdded

STEP = np.arange(0, 300, 10)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 300, 7))])
@pytest.mark.parametrize(
    ("added", "of_batch", "left", "says"),
    [
        (256.0, 0.0, 0.004, "over 256 elements of each example"),
        (8192.0, 1.0, 0.0002, "over 8192 elements of a batch"),
        (256.0, 0.0, 0.3, ""),  # clipping leaves the most of it
        (256.0, 0.0, 0.0005, ""),  # it would cut the mean's, too
        (2.0, 0.0, 0.01, ""),  # points of the plane
        (1.0, 0.0, 0.01, ""),
    ],
)
def test_a_sum_is_said_where_clipping_would_leave_the_mean_alone(
    added: float, of_batch: float, left: float, says: str, pieces: tuple[int, ...]
) -> None:
    columns = {
        "model/squares_added": (STEP[:1], np.array([added])),
        "model/squares_of_batch": (STEP[:1], np.array([of_batch])),
        "model/clip_coefficient": (STEP, np.full(len(STEP), left)),
    }
    found = findings_of([SquaresAdded()], columns, pieces)
    assert [(one.step, one.found) for one in found] == [(0, 20)] * bool(says)
    assert not says or found[0].causes == [f"loss summed: {says}, not averaged"]
