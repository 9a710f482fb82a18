"""Losses that stand still: at what they can't be lowered any more, and because nothing is trained any more."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.loss.stillness import FrozenLoss

LEVEL = 0.16355166


def standing(falls: list[float]) -> np.ndarray:
    """A loss that comes down by these falls, and then is the same in 100 rows."""
    return LEVEL + np.concatenate([np.cumsum(falls[::-1])[::-1], np.zeros(100)])


def look(loss: np.ndarray, pieces: tuple[int, ...] = ()) -> list:
    return found([FrozenLoss()], {"train/loss": (np.arange(len(loss)), loss)}, pieces)


@pytest.mark.parametrize("pieces", [(), (5, 8, 30, 60)])
def test_a_loss_that_ran_into_its_value_by_ever_smaller_changes_is_fitted(pieces: tuple[int, ...]) -> None:
    (one,) = look(standing([0.38, 0.104, 0.01, 1.5e-4, 3.8e-7]), pieces)
    assert one.severity == "info" and one.message.endswith("it is fitted") and not one.causes and not one.remedies


@pytest.mark.parametrize(
    "falls",
    [
        [0.38, 0.104, 0.04, 0.02],  # it stood still in the middle of its way
        [0.05, 0.04, 0.05, 0.03, 1e-5],
        [0.1, 0.09, 0.08, 0.07, 0.06],
        [1e-4],
    ],
)
def test_a_loss_that_stands_still_all_at_once_is_not_trained_any_more(falls: list[float]) -> None:
    (one,) = look(standing(falls))
    assert one.severity == "warning" and one.causes[0].startswith("optimizer holds other parameters")


def test_numbers_that_nobody_rounded_stand_still_though_they_repeated_before() -> None:
    """A sigmoid before a logistic loss: its outputs run to 0, and each of 32 pairs has ln 2."""
    level = 32 * np.log(2)
    falls = np.repeat(level + 1e-5 * np.arange(20, 0, -1), 2)  # by so little that every second one is as before
    loss = np.r_[level + 0.006, falls, np.full(30, level)]
    columns = {"train/loss": (np.arange(len(loss)), loss), "model/unchanged": (np.arange(9, 70, 10), np.zeros(7))}
    (one,) = found([FrozenLoss()], columns)
    assert (one.severity, one.kind) == ("warning", "logits") and one.causes[0].startswith("activation twice")


@pytest.mark.parametrize(
    ("falls", "fitted"),
    [
        ([2.5, 0.014, 0.002, 0.0006, 0.0004], True),  # of a data set in each step
        ([1.9, 0.0066, 0.0004, 1e-5], True),
        ([0.2, 0.02, 0.015, 0.012], False),  # in the middle of its way
        ([0.5, 0.004, -0.3, 0.3, 0.004], False),  # noise
    ],
)
def test_a_loss_that_runs_into_its_minimum_is_fitted_however_its_falls_shrink(falls: list[float], fitted: bool) -> None:
    (one,) = look(standing(falls))
    assert one.severity == ("info" if fitted else "warning")


def test_a_loss_that_goes_round_its_minimum_moves() -> None:
    loss = np.r_[6.5 * np.exp(-np.arange(60) / 6), np.tile(0.08129 + 1e-6 * np.array([0.1, 0.5, 0.3, 0.7]), 30)]
    assert not [one for one in look(loss) if one.severity != "info"]
