"""What is said of the objectives of policies: the weights of their parts, their epsilon, their sign, their rewards."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_objective import EVALUATIONS, ROWS, STEP, every, of_graph, up_to, warned


def policy(entropy_weight: float, value_weight: float, entropy: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    dice = np.random.default_rng(1)
    surrogate, value = 0.01 * dice.normal(size=ROWS), 1 + 0.2 * dice.normal(size=ROWS)
    loss = surrogate + value_weight * value + entropy_weight * entropy
    return {"loss": every(loss), "policy_loss": every(surrogate), "value_loss": every(value), "entropy": every(entropy),
            "reward": every(STEP / ROWS + 0.05 * dice.normal(size=ROWS))}  # fmt: skip


SINKS = 1.6 * np.exp(-STEP / 500) + 0.01 * np.cos(STEP)


@pytest.mark.parametrize("rows", [9, ROWS])
@pytest.mark.parametrize(
    ("entropy_weight", "value_weight", "entropy", "cause"),
    [
        (-0.01, 0.5, SINKS, None),
        (0.05, 0.5, SINKS, "entropy's sign reversed"),
        (-10.0, 0.5, 1.6 + 0.001 * np.cos(STEP), "entropy weight too high"),
        (-0.5, 0.5, SINKS, None),  # it falls all the same
        (-0.01, 500.0, SINKS, "value weight too high"),
    ],
)
def test_the_logged_parts_of_a_loss_tell_their_weights(
    entropy_weight: float, value_weight: float, entropy: np.ndarray, cause: str | None, rows: int
) -> None:
    found = warned(policy(entropy_weight, value_weight, entropy), rows).get("loss_parts")
    assert (found.causes[0].partition(":")[0] if found else None) == cause


@pytest.mark.parametrize(("size", "says"), [(1.0, True), (1e4, False)])
def test_few_rows_are_enough_where_an_entropy_is_far_above_the_policys_loss(size: float, says: bool) -> None:
    columns = policy(-1.0, 0.5, 1.6 + 0.001 * np.cos(STEP))
    columns["loss"] = every(columns["loss"][1] + (0.01 * size - 1) * columns["policy_loss"][1])
    columns["policy_loss"] = every(0.01 * size * columns["policy_loss"][1])
    assert ("loss_parts" in warned(up_to(columns, 80))) == says and "loss_parts" in warned(columns)


def test_a_loss_that_is_no_sum_of_its_logged_parts_has_no_weights() -> None:
    columns = policy(0.05, 0.5, SINKS)
    columns["loss"] = every(columns["loss"][1] + 0.01 * np.sin(STEP * 0.7))
    assert "loss_parts" not in warned(columns)


def test_a_policy_that_gets_surer_of_what_earns_less_is_reversed() -> None:
    columns = policy(-0.01, 0.5, SINKS) | {"reward": every(-0.3 * (1 - np.exp(-STEP / 30)) + 0.01 * np.sin(STEP))}
    assert warned(columns)["policy_reversed"].severity == "critical"
    columns["entropy"] = every(1.6 * np.exp(-STEP / 150))
    assert "policy_reversed" in warned(up_to(columns, 100)) and "policy_reversed" not in warned(up_to(columns, 90))
    columns["entropy"] = every(np.full(ROWS, 1.6))  # it explores, and was lucky at first
    assert "policy_reversed" not in warned(columns)


def test_a_policy_whose_first_returns_were_none_or_that_rises_again_is_not_reversed() -> None:
    returns = np.where(STEP < 30, 0.0, -90 + 40 * np.exp(-STEP / 30) + np.sin(STEP))  # 0 before an episode is over
    columns = policy(-0.01, 0.5, SINKS) | {"reward": every(returns)}
    assert "policy_reversed" not in warned(columns)
    dip = -0.3 * (1 - np.exp(-STEP / 20)) + 0.002 * np.maximum(0, STEP - 40) + 0.002 * np.sin(STEP)
    assert "policy_reversed" not in warned(columns | {"reward": every(dip)})


def test_an_epsilon_that_stays_is_said() -> None:
    columns = policy(-0.01, 0.5, SINKS)
    assert "exploration_stays" in warned(columns | {"epsilon": every(np.ones(ROWS))})
    assert "exploration_stays" not in warned(columns | {"epsilon": every(np.linspace(1, 0.05, ROWS))})


@pytest.mark.parametrize("pieces", [7, ROWS])
@pytest.mark.parametrize(("rows", "epsilon", "told"), [(200, 1 + 0 * STEP, True), (120, 1 + 0 * STEP, False),
                                                       (200, np.where(STEP < 150, 1, 0.5), False),
                                                       (200, np.where(STEP < 20, 0.5, 1), False)])  # fmt: skip
def test_an_epsilon_that_stays_until_a_run_ends_is_said(
    rows: int, epsilon: np.ndarray, told: bool, pieces: int
) -> None:
    columns = up_to(policy(-0.01, 0.5, SINKS) | {"rollout/exploration_rate": every(epsilon)}, rows)
    found = warned(columns, pieces)
    assert ("exploration_stays" in found) is told
    if told:
        one = found["exploration_stays"]
        assert (one.step, one.found, one.kind) == (0, rows - 1, "rl")


@pytest.mark.parametrize(("figure", "value", "says"), [
    ("ratio_clip", 100.0, True), ("ratio_clip", 0.2, False),
    ("ratio_constant", 1.0, True), ("ratio_constant", 0.0, False),
    ("policy_reversed", 1.0, False),  # the reward rises all the same
])  # fmt: skip
def test_a_clipped_objective_that_cannot_be_meant_is_said(figure: str, value: float, says: bool) -> None:
    found = warned(policy(-0.01, 0.5, SINKS) | of_graph(**{figure: value}))
    assert ("policy_objective" in found) == says


@pytest.mark.parametrize(("sign", "says"), [(-1.0, True), (1.0, False)])
def test_margins_of_opposite_signs_mean_swapped_pairs(sign: float, says: bool) -> None:
    margin = 3 * (1 - np.exp(-STEP / 80)) + 0.01
    columns = {"loss": every(np.log1p(np.exp(-margin))), "rewards/margins": every(margin),
               "eval/rewards/margins": (EVALUATIONS, sign * margin[EVALUATIONS])}  # fmt: skip
    assert ("evaluation_swapped" in warned(columns)) == says


@pytest.mark.parametrize(("sign", "other", "says"), [(-1.0, True, True), (1.0, True, False), (-1.0, False, False)])
def test_where_no_margins_are_logged_they_are_one_reward_less_the_other(sign: float, other: bool, says: bool) -> None:
    margin = 3 * (1 - np.exp(-STEP / 80)) + 0.01
    columns = {"loss": every(1 / (1 + np.exp(margin))), "kto/rewards_desirable": every(margin / 2 - 1),
               "val/margin": (EVALUATIONS, sign * margin[EVALUATIONS])}  # fmt: skip
    columns |= {"kto/rewards_undesirable": every(-margin / 2 - 1)} if other else {}
    assert ("evaluation_swapped" in warned(columns)) == says


@pytest.mark.parametrize(
    ("evaluated", "start", "pairs", "says"),
    [(0.1, 0.69, True, True), (0.9, 0.69, True, False), (0.1, 2.3, True, False), (0.1, 0.69, False, False)],
)
def test_an_evaluation_that_orders_pairs_the_other_way_round_has_them_swapped(
    evaluated: float, start: float, pairs: bool, says: bool
) -> None:
    columns = {"loss": every(start * np.exp(-STEP / 100)), "accuracy": every(1 - 0.5 * np.exp(-STEP / 50)),
               "val/accuracy": (EVALUATIONS, np.full(len(EVALUATIONS), evaluated))}  # fmt: skip
    columns |= {"margin": every(STEP / 100)} if pairs else {}
    assert ("evaluation_swapped" in warned(columns)) == says


def test_a_mean_over_episodes_that_waits_for_the_next_is_no_constant_reward() -> None:
    lengths = [5, 19] * 20  # rows until an episode ends
    steps = np.repeat(np.arange(len(lengths)), lengths)[:ROWS]
    found = warned(policy(-0.01, 0.5, SINKS) | {"reward": every(np.sin(steps * 1.3))})
    assert "reward_constant" not in found
