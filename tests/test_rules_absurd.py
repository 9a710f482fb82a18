"""Losses that are finite and too large, and zeros and accuracies that came at once."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_objective import FALLS, STEP, every, warned

ROWS = len(STEP)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("loss", "says"), [(1e24, "critical"), (-1e24, "critical"), (1e12, None), (np.inf, None), (3.0, None)]
)
def test_a_loss_that_is_finite_and_huge_is_critical(loss: float, says: str | None, rows: int) -> None:
    dice = np.random.default_rng(0)
    found = warned({"train/loss": every(loss * (1 + 0.1 * dice.random(ROWS)))}, rows).get("loss_out_of_range")
    assert (found and found.severity) == says


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("loss", "perplexity", "says"),
    [
        (np.full(ROWS, 18.4), np.exp(18.4), True),
        (np.full(ROWS, 18.4), 300.0, False),  # of something else
        (np.full(ROWS, 11.0), np.exp(11.0), False),
        (18.4 - STEP / 30, None, False),  # it falls
        (np.full(ROWS, 18.4), None, True),
    ],
)
def test_a_loss_above_a_guess_among_any_vocabulary_is_told_by_its_perplexity(
    loss: np.ndarray, perplexity: float | None, says: bool, rows: int
) -> None:
    beside = np.exp(loss) if perplexity is None else np.full(ROWS, perplexity)
    found = warned({"train/loss": every(loss), "train/ppl": every(beside)}, rows)
    assert ("loss_out_of_range" in found) == says


@pytest.mark.parametrize(("first", "says"), [([12.18, 1.8e-6], True), ([1.9, 0.02], False)])
def test_a_loss_that_falls_to_zero_within_a_few_rows_has_learnt_nothing(first: list[float], says: bool) -> None:
    loss, norm = np.zeros(ROWS), np.full(ROWS, 1e-13)
    loss[: len(first)], norm[: len(first)] = first, 1.0
    assert ("zero_loss" in warned({"train/loss": every(loss), "train/norm": every(norm)})) == says


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("ends", "noise", "says"), [(0.5, 0.0, True), (0.5, 0.01, False), (0.85, 0.0, False)])
def test_one_answer_for_all_is_a_collapse_however_high_the_accuracy_began(
    ends: float, noise: float, says: bool, rows: int
) -> None:
    dice, at = np.random.default_rng(1), np.arange(16)
    right = np.where(at < 8, 0.9, ends) + np.where(at < 8, 0.01, noise) * dice.normal(size=16)
    for unit in (1.0, 100.0):
        columns = {"train/loss": every(FALLS), "val/accuracy": (STEP[19 : 19 + 16 * 20 : 20], unit * right)}
        assert ("accuracy_collapse" in warned(columns, rows)) == says


@pytest.mark.parametrize("rows", [2, 7, ROWS])
@pytest.mark.parametrize(
    ("first", "says"),
    [
        ([0.9, 2.1, 5e4, 8e12], True),
        ([0.9, 2.1, 5e4, 8e12, 2e21], True),
        ([2e22, 8e23, 4e25], True),  # whatever went before
        ([0.9, 2.1, 5e4], False),
        ([0.9, 5e4, 8e12], False),  # one row ahead
        ([0.9, 2.1, 1.9, 8e12, 2.0], False),  # one row alone
        ([1e-9, 1e-9, 1e-5, 0.3], False),  # of a loss that is hardly there
        ([-0.9, 2.1, 5e4, 8e12], False),  # of either sign
        ([2e22, 8e23, 3.0, 4e25], False),
        ([*[1.0] * 15, 5e4, 8e12], False),  # later the other rules have rows enough
    ],
)
def test_a_few_first_rows_are_enough_of_a_loss_that_leaps_twice(first: list[float], says: bool, rows: int) -> None:
    found = warned({"train/loss": (STEP[: len(first)], np.array(first))}, rows).get("loss_out_of_range")
    assert (found and found.severity) == ("critical" if says else None)


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize(("gap", "says"), [(0, True), (1, False)])
def test_rows_that_are_passed_over_end_what_had_begun(gap: int, says: bool, rows: int) -> None:
    loss = np.full(ROWS, 2.0)
    loss[100 : 104 + gap], loss[104 + gap : 108 + gap] = 1e16, 1e16
    if gap:
        loss[104] = 2.0  # four rows, a calm one, and four
    found = warned({"train/loss": every(loss)}, rows).get("loss_out_of_range")
    assert (found is not None and found.step == STEP[100]) == says
