"""Good and bad answers that come in blocks are known by which rewards are logged."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.rl.in_turn import SidesInTurn

ROWS = 160
STEP = np.arange(ROWS)
NAMES = [("rewards/chosen", "rewards/rejected"), ("kto/good_reward", "kto/bad_reward"),
         ("train/desirable_reward", "train/undesirable_reward")]  # fmt: skip


def said(names: tuple[str, str], good: np.ndarray, bad: np.ndarray, cuts: tuple[int, ...] = ()) -> list[int]:
    columns = {name: (STEP[some], 0.1 * STEP[some]) for name, some in zip(names, (good, bad), strict=True)}
    return [one.step for one in findings([SidesInTurn()], columns, cuts=cuts).values()]


@pytest.mark.parametrize("cuts", [(), tuple(range(0, ROWS, 7)), tuple(range(ROWS))])
@pytest.mark.parametrize("names", NAMES)
def test_blocks_of_one_side_are_found(names: tuple[str, str], cuts: tuple[int, ...]) -> None:
    good = STEP % 45 < 22
    assert said(names, good, ~good, cuts) == [0]
    both = good | (STEP % 45 == 22) | (STEP % 45 == 44)  # the batch at the border has some of each
    assert said(names, both, ~good, cuts) == [0]


@pytest.mark.parametrize("cuts", [(), tuple(range(0, ROWS, 7))])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_shuffled_answers_are_left_alone(most: int, cuts: tuple[int, ...]) -> None:
    for seed in range(20):
        rows = np.random.default_rng(seed).random((ROWS, most)) < 0.5
        assert said(NAMES[0], rows.any(1), ~rows.all(1), cuts) == []


def test_short_blocks_two_blocks_and_steps_with_both_are_left_alone() -> None:
    assert said(NAMES[0], STEP % 12 < 6, STEP % 12 >= 6) == []
    assert said(NAMES[0], STEP < 80, STEP >= 80) == []
    assert said(NAMES[0], (STEP % 45 < 22) | (STEP % 5 < 2), STEP % 45 >= 22) == []
    assert said(NAMES[0], STEP >= 0, STEP >= 0) == []
