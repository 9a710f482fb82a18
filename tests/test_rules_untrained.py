"""Evaluations that stay at the loss of the model before its training, and those that only look so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found, warned

from barograph.doctor.rules.evaluation.untrained import RULES

AT = np.arange(300)
FALLS = 2.0 + 2.7 * np.exp(-AT / 60) + np.random.default_rng(2).normal(0, 0.03, 300)
EVERY = np.arange(29, 300, 30)


def look(evaluated: Any, loss: np.ndarray = FALLS, **more: Any) -> list[Any]:
    columns = {"train/loss": (AT, loss), "eval/loss": (EVERY, np.broadcast_to(evaluated, EVERY.shape))}
    return warned(found([rule() for rule in RULES], columns | more))


@pytest.mark.parametrize("evaluated", [4.7, np.linspace(4.73, 4.5, 10), np.linspace(4.5, 4.9, 10)])
def test_evaluations_at_the_first_loss_are_told_while_the_training_falls(evaluated: Any) -> None:
    (one,) = look(evaluated)
    assert one.step == 29 and one.causes[0].startswith("averaged weights not updated")


@pytest.mark.parametrize(
    "evaluated",
    [
        np.linspace(4.7, 3.9, 10),  # an average that comes slowly
        np.linspace(4.7, 6.5, 10),  # overfitting
        np.interp(EVERY, AT, FALLS),
        2.3,  # another set
        6.0,
        np.r_[3.0, np.full(9, 4.7)],  # it was better once
    ],
)
def test_evaluations_that_move_or_are_elsewhere_are_not(evaluated: Any) -> None:
    assert not look(evaluated)


def test_a_training_that_has_not_fallen_says_nothing_of_its_evaluation() -> None:
    assert not look(4.7, loss=4.7 - 0.001 * AT)


def test_losses_of_policies_and_what_goes_on_from_another_run_are_left_out() -> None:
    assert not look(4.7, **{"train/reward": (AT, AT / 300)})
    columns = {"train/loss": (AT, FALLS, np.where(AT < 20, 1, 2)), "eval/loss": (EVERY, 4.7 + 0 * EVERY, 2 + 0 * EVERY)}
    assert not found([rule() for rule in RULES], columns)


@pytest.mark.parametrize(("width", "told"), [(140.0, False), (48.0, True)])
def test_a_choice_among_a_catalogue_has_other_levels_than_one_among_a_batch_s_pairs(width: float, told: bool) -> None:
    pairs = {"model/loss_pairs": (AT[:1], np.array([48.0])), "model/compared_width": (EVERY + 1, width + 0.0 * EVERY)}
    assert bool(look(4.7, **pairs)) == told
