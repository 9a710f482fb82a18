"""Margins of evaluations that are of another size than the training's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.rl.scaled import MarginsOffset, MarginsScaled

STEP, HERE = np.arange(200), np.arange(29, 200, 30)
NAMES = {
    "dots": ("pref.loss", "check.loss", "pref.gap", "check.gap", "pref.wins", "check.wins"),
    "slashes": ("train/loss", "eval/loss", "train/rewards/margins", "eval/rewards/margins", "train/acc", "eval/acc"),
    "prefix": ("loss", "eval_loss", "rewards/margins", "eval_rewards/margins", "rewards/accuracies",
               "eval_rewards/accuracies"),
}  # fmt: skip


def judged(
    pieces: tuple[int, ...] = (), times: Any = 8.0, right: float = 0.9, other: float = 0.88, names: str = "dots",
    figure: str = "judged_shift",
) -> list[Finding]:  # fmt: skip
    loss, evaluation, ours, theirs, mine, here = NAMES[names]
    grown = 4 * STEP / (STEP + 40.0)
    columns = {
        loss: (STEP, 0.7 - 0.08 * grown), evaluation: (HERE, 0.69 - 0.01 * grown[HERE]), ours: (STEP, grown),
        theirs: (HERE, grown[HERE] / times), mine: (STEP, right + 0 * STEP), here: (HERE, other + 0 * HERE),
        f"model/{figure}": (np.array([0, 7]), np.array([0.0, 0.0])),
    }  # fmt: skip
    return found([MarginsScaled()], columns, pieces)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7))])
@pytest.mark.parametrize("names", sorted(NAMES))
def test_margins_that_many_times_apart_are_a_warning_where_as_many_pairs_are_in_order(
    pieces: tuple[int, ...], names: str
) -> None:
    for times in (8.0, 1 / 8):
        assert [(one.severity, one.step) for one in judged(pieces, times, names=names)] == [("warning", 29)]
    assert not judged(pieces, 3.0, names=names)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7))])
def test_pairs_that_are_known_by_heart_and_other_losses_say_nothing(pieces: tuple[int, ...]) -> None:
    assert not judged(pieces, right=1.0, other=0.85)  # more are in order
    assert not judged(pieces, right=0.6, other=0.6)
    assert not judged(pieces, np.linspace(4, 24, len(HERE)))  # further and further apart
    assert not judged(pieces, figure="loss_pairs")  # no preference


def offset(
    pieces: tuple[int, ...] = (), by: Any = 0.7, grown: float = 0.3, figure: str = "judged_shift", dropout: float = 0.0
) -> list[Finding]:
    ours = grown * STEP / (STEP + 100.0) * (STEP / 100) ** 2
    columns = {
        "dpo/loss": (STEP, 0.7 - 0.001 * STEP), "valid/loss": (HERE, 0.6 - 0.0005 * HERE),
        "dpo/margin": (STEP, ours), "valid/margin": (HERE, ours[HERE] + by),
        f"model/{figure}": (np.array([0, 7]), np.array([0.0, 0.0])), "model/dropout": (STEP[:1], np.array([dropout])),
    }  # fmt: skip
    return found([MarginsOffset()], columns, pieces)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7))])
def test_a_margin_of_evaluations_beside_the_trainings_is_a_warning(pieces: tuple[int, ...]) -> None:
    for by in (0.7, -0.7):
        assert [(one.severity, one.step) for one in offset(pieces, by)] == [("warning", 29)]
    assert not offset(pieces, 0.05) and not offset(pieces, 0.0)
    assert not offset(pieces, np.linspace(0.1, 2.0, len(HERE)))  # it grows further and further
    assert not offset(pieces, 0.7, 20.0)  # as large as the training's
    assert not offset(pieces, figure="loss_pairs")
    assert not offset(pieces, dropout=0.1)  # which moves the training's alone


def test_a_margin_that_grew_ahead_of_the_first_evaluation_is_the_same_one() -> None:
    """Labels of the training alone are noisy, so its margin is smaller; rows before were of a model that had begun."""
    ours = 2.2 * np.clip((STEP - 12) / 15, 0, 1) ** 4
    columns = {
        "dpo/loss": (STEP, 0.7 - 0.001 * STEP), "valid/loss": (HERE, 0.6 - 0.0005 * HERE), "dpo/margin": (STEP, ours),
        "valid/margin": (HERE, 0.0 * HERE + 3.9), "model/judged_shift": (np.array([0, 7]), np.array([0.0, 0.0])),
    }  # fmt: skip
    assert not found([MarginsOffset()], columns)
    columns["dpo/margin"] = STEP, np.full(200, 0.1)  # it has not grown, and the evaluation's has
    assert found([MarginsOffset()], columns)
