"""Evaluations that rise while the learning rate is above what it was, and those that rise by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import falling, found

from barograph.doctor.rules.evaluation.evaluation import RULES

STEPS, AT = np.arange(1000), np.arange(50, 1000, 50)
UP = np.linspace(1e-4, 1e-3, 1000)
RESTART = 0.1 * (1 + np.cos(np.pi * (STEPS % 510) / 510)) + 1e-3


def severity(rule: str, train: np.ndarray, evaluations: np.ndarray, rate: np.ndarray) -> str:
    """Of what a rule says of evaluations; nothing if it says nothing."""
    series = {"train/loss": (STEPS, train), "eval/loss": (AT, evaluations), "train/lr": (STEPS, rate)}
    return next((one.severity for one in found([made() for made in RULES], series) if one.rule == rule), "")


@pytest.mark.parametrize(
    ("rate", "up", "told"),
    [
        (UP, 0.3, "info"),
        (UP, 0.8, "warning"),  # no rate explains that much
        (np.where(STEPS < 100, UP, 1e-3), 0.3, "warning"),  # it was warmed up, and stays
        (UP[::-1], 0.3, "warning"),
    ],
)
def test_an_evaluation_that_rises_with_the_rate_is_no_overfitting_yet(rate: np.ndarray, up: float, told: str) -> None:
    train = falling(1000, noise=0.005) * np.linspace(1, 0.5, 1000)
    evaluations = falling(1000, noise=0)[AT] * (1 + up * np.clip((AT - 300) / 650, 0, None))
    assert severity("overfitting", train, evaluations, rate) == told


@pytest.mark.parametrize(("rate", "told"), [(RESTART, "info"), (np.full(1000, 1e-3), "warning")])
def test_losses_that_rise_together_behind_a_restart_of_the_rate_inform(rate: np.ndarray, told: str) -> None:
    course = falling(1000, noise=0.003) * (1 + 0.4 * np.clip((STEPS - 500) / 100, 0, 1))
    assert severity("validation_divergence", course, course[AT], rate) == told


def test_a_restart_of_the_rate_is_the_cause_that_is_named() -> None:
    course = falling(1000, noise=0.003) * (1 + 0.4 * np.clip((STEPS - 500) / 100, 0, 1))
    series = {"train/loss": (STEPS, course), "eval/loss": (AT, course[AT]), "train/lr": (STEPS, RESTART)}
    one = next(one for one in found([made() for made in RULES], series) if one.rule == "validation_divergence")
    assert one.causes == ["learning rate too high: it was raised since the best evaluation"]
    assert one.remedies == ["Compare evaluations at one learning rate, as at the end of each cycle."]


@pytest.mark.parametrize(("beside", "told"), [(0.15, "info"), (1.4, "warning")])
def test_losses_that_rise_beside_a_set_whose_loss_falls_inform(beside: float, told: str) -> None:
    """The training's own data are learnt still; where that set rises as well, the model has got worse."""
    course = falling(1000, noise=0.003) * (1 + 0.4 * np.clip((STEPS - 500) / 100, 0, 1))
    near = np.where(AT > 500, beside, 0.7) * falling(1000, noise=0)[AT]
    series = {"train/loss": (STEPS, course), "eval/foggy/loss": (AT, course[AT]), "eval/valid/loss": (AT, near)}
    (one,) = (one for one in found([made() for made in RULES], series) if one.rule == "validation_divergence")
    assert one.severity == told
    assert (one.causes[0] == "evaluation data differ: the loss of another set, eval/valid/loss, does not rise") == (
        told == "info"
    )
