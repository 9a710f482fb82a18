"""Good and bad answers that come in blocks are known by which rewards are logged."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.rl.added import JudgedSummed
from barograph.doctor.rules.rl.in_turn import SideDetached, SidesInTurn

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


@pytest.mark.parametrize("cuts", [(), tuple(range(0, ROWS, 3))])
@pytest.mark.parametrize(
    ("first", "reward", "adds", "config", "told"),
    [
        (10.0, 0.0, 1.0, {"batch": 20}, True),
        (16.0, 0.0, 1.0, {"per_device_train_batch_size": 32}, True),
        (10.0, 0.0, 1.0, {"batch": 20, "loss_sum": True}, False),
        (0.5, 0.0, 0.0, {"batch": 20}, False),
        (0.5, 0.0, 1.0, {"batch": 1}, False),
        (10.0, 0.3, 1.0, {"batch": 20}, False),
        (10.0, 0.0, 0.0, {"batch": 20}, False),
        (10.0, 0.0, 1.0, {"batch": 16}, False),
    ],
)
def test_a_sum_of_judged_answers_is_known_before_the_first_step(
    first: float, reward: float, adds: float, config: dict[str, object], told: bool, cuts: tuple[int, ...]
) -> None:
    columns = {name: (STEP, reward + sign * 0.01 * STEP) for name, sign in zip(NAMES[1], (1, -1), strict=True)}
    columns |= {"kto/loss": (STEP, first * (1 - 0.002 * STEP)), "model/loss_adds": (STEP[:1], np.array([adds]))}
    for late in (0, 20):  # a fast loop goes on meanwhile
        rows = {"model/loss_adds": late}
        found = findings([JudgedSummed()], columns, facts={"config": config}, cuts=cuts, late=rows)
        assert [(one.step, one.found) for one in found.values()] == [(0, max(7, late))] * told


@pytest.mark.parametrize("cuts", [(), (7, 13, 20, 33)])
@pytest.mark.parametrize(
    ("unused", "ranks", "logged", "told"),
    [
        ({0: 1.0}, 0.0, "rewards/chosen", True),
        ({0: 1.0}, 0.0, "rewards/margins", True),
        ({0: 1.0}, 1.0, "rewards/chosen", False),  # of both sides, and something else is asked beside
        ({0: 1.0}, 0.0, "forget/ratio", False),  # of one answer alone
        ({0: 1.0, 9: 0.0}, 0.0, "rewards/chosen", False),  # at first only
        ({8: 1.0}, 0.0, "rewards/chosen", False),  # since an evaluation
    ],
)
def test_a_side_of_a_pair_without_gradient_is_told(
    unused: dict[int, float], ranks: float, logged: str, told: bool, cuts: tuple[int, ...]
) -> None:
    columns = {
        "train/loss": np.linspace(0.7, 0.5, 40), logged: np.linspace(0.0, 0.3, 40),
        "model/graphs_unused": (np.array(list(unused)), np.array(list(unused.values()))),
        "model/loss_ranks": (np.array([0]), np.array([ranks])),
    }  # fmt: skip
    found = findings([SideDetached()], columns, cuts=cuts)
    assert [one.rule for one in found.values()] == ["side_detached"] * told
