"""Evaluations whose targets have the other sign: what shows it, and what is bad for other reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.evaluation.reversed import ReversedTargets

STEPS, EVALUATED = np.arange(200), np.arange(0, 200, 20)
LEARNT = 0.6 * (1 - np.exp(-STEPS / 30))  # of the targets' variance of 2, which the outputs explain


def columns(cross: float, **figures: float) -> dict[str, Any]:
    """cross: what part of the training's products of outputs and targets the evaluation has."""
    outputs = 2 * LEARNT
    train, theirs = 2 + outputs - 2 * outputs, 2 + outputs - 2 * outputs * cross
    noise = 1 + 0.03 * np.random.default_rng(3).normal(size=200)
    looks = np.arange(0, 200, 7)
    made: dict[str, Any] = {"loss": train * noise, "eval/loss": (EVALUATED, theirs[EVALUATED])}
    known = {"square_weight": 1.0, "target_std": 2**0.5, "target_mean": 0.0} | figures
    made |= {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in known.items()}
    return made | {"model/output_rms": (looks, np.sqrt(outputs[looks]))}


@pytest.mark.parametrize("pieces", [(), tuple(range(200))])
@pytest.mark.parametrize(("cross", "figures", "found"), [
    (-1.0, {}, True),
    (-1.0, {"square_weight": 0.9999999}, True),
    (-1.0, {"square_weight": 2.0}, False),
    (-1.0, {"input_std": 1.0, "eval_input_std": 30.0, "input_mean": 0.0, "eval_input_mean": 0.0}, False),
    (1.0, {}, False),  # as it should be
    (0.0, {}, False),  # nothing in common, as where examples are known by heart
    (-0.5, {}, False),
    (-2.0, {}, False),  # outputs of another size
])  # fmt: skip
def test_products_with_the_other_sign_are_of_reversed_targets(
    cross: float, figures: dict[str, float], found: bool, pieces: tuple[int, ...]
) -> None:
    said = list(findings([ReversedTargets()], columns(cross, **figures), cuts=pieces).values())
    assert [one.causes[0].partition(":")[0] for one in said] == ["sign reversed"] * found
    assert all(one.step == 0 and 60 < one.found < 140 for one in said)
