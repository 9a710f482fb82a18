"""Policies and preferences in logs of a few rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rule_columns import findings, noisy, only
from rule_curves import warned
from test_rules_short_runs import look, rows, told

from barograph.doctor.rules.gradient.vanished import ZeroGradient
from barograph.doctor.rules.loss.learning import NotLearning
from barograph.doctor.rules.loss.progress import Divergence
from barograph.doctor.rules.loss.stillness import FrozenLoss, ZeroLoss
from barograph.doctor.rules.rl.rl import KlBlowUp, ZeroAdvantage


@pytest.mark.parametrize(("figures", "cause"), [
    ({"preference_averaged": 0.0, "unchanged": 0.0}, "reference is the policy"),
    ({"preference_averaged": 0.0, "unchanged": 1.0}, "optimizer holds other parameters"),
    ({"unchanged": 0.0}, "optimizer holds other parameters"),  # a loss that has no reference
])  # fmt: skip
@pytest.mark.parametrize("seen", [2, 25])  # watch's records come behind the rows of a fast loop
def test_margins_that_never_leave_0_though_weights_change_are_of_a_reference_that_is_the_policy(
    figures: dict[str, float], cause: str, seen: int
) -> None:
    loss = {"loss": np.full(40, math.log(2))} | {
        f"model/{name}": (np.array([seen]), np.array([value])) for name, value in figures.items()
    }
    (one,) = only(findings([FrozenLoss()], loss), "frozen_loss")
    (pieces,) = only(findings([FrozenLoss()], loss, cuts=range(40)), "frozen_loss")
    assert one.causes[0].startswith(cause) and one.causes == pieces.causes


@pytest.mark.parametrize(("figures", "told"), [({"preference_averaged": 0.0, "unchanged": 0.0}, True), ({}, False)])
def test_margins_that_are_0_but_for_rounding_are_of_a_reference_that_is_the_policy(
    figures: dict[str, float], told: bool
) -> None:
    values = math.log(2) + 3e-7 * np.random.default_rng(0).standard_normal(400)
    loss = {"loss": values} | {f"model/{name}": (np.array([2]), np.array([value])) for name, value in figures.items()}
    (one,) = only(findings([NotLearning()], loss), "not_learning")
    assert one.causes[0].startswith("reference is the policy") is told
    assert one.remedies[0].startswith("Copy the policy") is told


def test_a_policy_whose_rewards_are_all_the_same_and_low_learns_nothing() -> None:
    at = np.arange(30)
    norm, loss = np.where(at < 15, noisy(30, 0.4, 0.2), 0.0), np.where(at < 15, 0.01, 0.0)
    low = {"train/norm": norm, "train/loss": loss, "train/reward": np.where(at < 15, noisy(30, 0.6, 0.2), 0.0)}
    (one,) = told(ZeroGradient, low, "zero_gradient")
    assert (one.severity, one.step) == ("warning", 15)
    solved = low | {"train/reward": np.where(at < 15, noisy(30, 0.6, 0.2), 1.0)}
    assert {one.severity for one in told(ZeroGradient, solved, "zero_gradient")} == {"info"}


def test_a_kl_that_grows_from_row_to_row_is_no_odd_batch() -> None:
    at = np.arange(48)
    kl = noisy(48, 0.02, 0.2) * np.where(at < 40, 1.0, 2.0 ** np.maximum(0, at - 39))
    series = {"train/kl": kl, "train/reward": noisy(48, 1, 0.1), "train/loss": 0.01 * noisy(48)}
    (one,) = told(KlBlowUp, series, "kl_blow_up")
    assert 41 <= one.step <= 43 and one.causes[0].startswith("reward hacking")
    single = series | {"train/kl": np.where(at == 44, 3.0, noisy(48, 0.02, 0.2))}
    (one,) = told(KlBlowUp, single, "kl_blow_up")
    assert one.step == 44 and one.causes[0].startswith("bad batch")


def test_groups_without_any_difference_in_reward_are_told_of_eight_rows() -> None:
    def series(share: list[float]) -> dict[str, np.ndarray]:
        return {"train/reward": np.full(len(share), 2.0), "train/frac_reward_zero_std": np.array(share)}

    (one,) = told(ZeroAdvantage, series([1.0] * 14), "zero_advantage")
    assert (one.severity, one.step) == ("warning", 0)
    assert not findings([ZeroAdvantage()], series([1.0] * 7))
    assert not findings([ZeroAdvantage()], series([1.0] * 12 + [0.5]))


def test_a_preference_whose_loss_is_zero_has_run_away_and_no_label_is_masked() -> None:
    loss, margins = [0.69, 0.5, 0.3, 0.1, 0.01, *[0.0] * 7], [0, 2, 5, 9, 14, *[30.0] * 7]
    (one,) = look({"train/loss": rows(loss), "train/rewards/margins": rows(margins)}, ZeroLoss)
    assert one.severity == "warning" and one.causes[0].startswith("learning rate too high")


def test_a_loss_of_rewards_that_only_grows_to_a_hundred_thousand_times_the_first_diverges() -> None:
    grows = [4.0, 60.0, 700.0, 3e3, 2e4, 9e4, 4e5, 1e6]
    (one,) = warned(look({"td_loss": rows(grows)}, Divergence))
    assert (one.severity, one.step) == ("warning", 2)
    assert not warned(look({"td_loss": rows([*grows[:5], 1e4, *grows[5:]])}, Divergence))
    assert not warned(look({"td_loss": rows([one / 100 for one in grows])}, Divergence))


def test_three_zeros_of_a_preference_with_large_margins_are_enough_and_of_small_ones_are_not() -> None:
    loss, learnt = [1.15, 2.11, 0.0076, 3.95, *[0.0] * 3], [0.9, -0.8, 5.2, 0.1]
    (one,) = look({"train/loss": rows(loss), "train/rewards/margins": rows([*learnt, 27.2, 36.3, 39.7])}, ZeroLoss)
    assert (one.severity, one.step) == ("warning", 5)
    assert not look({"train/loss": rows(loss), "train/rewards/margins": rows([*learnt, 7.2, 6.3, 9.7])}, ZeroLoss)
