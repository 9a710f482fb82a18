"""Losses of an evaluation that are added up in bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.evaluation.saturates import EvaluationSaturates

AT = np.arange(20, 140, 20)


def judged(losses: Any, training: float = 2.0, pieces: tuple[int, ...] = ()) -> list[Any]:
    columns = {"train/loss": (np.arange(140), np.full(140, training)), "val/loss": (AT, np.array(losses))}
    return found([EvaluationSaturates()], columns, pieces)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 140, 7))])
def test_a_sum_that_stops_growing_is_told(pieces: tuple[int, ...]) -> None:
    unit = 1024 / 2805 / 128
    (one,) = judged(unit * np.array([135, 128, 128, 129, 130, 132]), pieces=pieces)
    assert (one.step, one.causes[0].split(":")[0]) == (20, "sum saturates in bfloat16")
    assert not judged(unit * np.array([135, 128, 128, 128, 128, 128]), pieces=pieces)  # two numbers
    assert not judged(unit * np.array([135, 128, 128.3, 129, 130, 132]), pieces=pieces)
    assert not judged(unit * np.array([200, 128, 128, 129, 130, 190]), pieces=pieces)  # as errors of a thousand rows
    assert not judged(unit * np.array([135, 128, 128, 129, 130, 132]), 0.5, pieces)  # as large as the training's
    assert not judged(np.array([135, 128, 128, 129, 130, 132]) / 256, pieces=pieces)  # rounded, each by itself


def test_losses_of_any_digits_are_silent() -> None:
    dice = np.random.default_rng(1)
    assert not any(judged(dice.uniform(0.36, 0.45, 6)) for _ in range(200))


def test_printed_losses_are_silent() -> None:
    assert not judged([1.35, 1.28, 1.28, 1.29, 1.3, 1.32])
    assert not judged([2.9, 3.0, 3.1, 3.05, 2.95, 3.15], 5.0)
