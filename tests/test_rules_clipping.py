"""Limits of the gradient's norm that do nothing: it is taken of gradients that are not there, or clips none."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from rule_curves import found

from barograph.doctor.rules.gradient.clipping import ClippedEmpty, NeverClipped


@pytest.mark.parametrize(
    ("logged", "own", "told"),
    [
        ([0.0] * 8, 0.5, True),
        ([0.0] * 5, 0.5, False),
        ([0.0] * 8, 0.0, False),  # nothing has a gradient
        ([0.3] + [0.0] * 8, 0.5, False),  # see `zero_gradient`
        ([0.0, 0.3] + [0.0] * 8, 0.5, False),
    ],
)
def test_a_norm_of_gradients_that_are_not_there_when_it_is_taken(logged: list[float], own: float, told: bool) -> None:
    steps = numpy.arange(len(logged))
    columns = {"train/grad_norm": (steps, numpy.array(logged)), "model/grad_norm": (steps, numpy.full(len(steps), own))}
    (*said,) = found([ClippedEmpty()], columns)
    assert [(one.rule, one.step) for one in said] == [("clipped_empty", 0)] * told


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"clip": 0.0}, "info"),
        ({"max_grad_norm": 1.0}, "warning"),
        ({"max_grad_norm": 1.0, "clip": 0}, "warning"),  # one of them is on
        ({}, "warning"),
    ],
)
def test_a_norm_of_0_where_nothing_is_clipped_stands_for_one_that_nobody_measured(
    config: dict[str, Any], told: str
) -> None:
    steps = numpy.arange(8)
    columns = {"train/grad_norm": (steps, numpy.zeros(8)), "model/grad_norm": (steps, numpy.full(8, 0.5))}
    (said,) = found([ClippedEmpty()], columns, config=config)
    assert (said.severity, said.causes[0].startswith("norm not measured")) == (told, told == "info")


@pytest.mark.parametrize(
    ("norms", "coefficients", "config", "told"),
    [
        ([3.0, 4.0], [1.0, 1.0], {"max_grad_norm": 1.0}, True),
        ([3.0, 0.5, 4.0], [1.0, 1.0, 1.0], {"max_grad_norm": 1.0}, False),
        ([1.0, 1.0], [0.4, 0.3], {"max_grad_norm": 1.0}, False),
        ([1.02, 1.02], [1.0, 1.0], {"clip": 1.0}, False),  # rounding
        ([3.0, 4.0], [0.9, 0.8], {"clip": 1.0}, False),  # each group by itself
        ([3.0, 4.0], [1.0, 1.0], {"clip": 0.0}, False),
        ([3.0, 4.0], [1.0, 1.0], {}, False),
        ([3.0, 4.0], [1.0, 1.0], {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}, False),
        ([3.0, 4.0], [1.0, 1.0], {"gradient_clipping": 1.0, "deepspeed": "zero.json"}, False),
    ],
)
def test_gradients_above_the_configured_limit_at_the_step_were_not_clipped(
    norms: list[float], coefficients: list[float], config: dict[str, Any], told: bool
) -> None:
    steps = numpy.arange(0, 40 * len(norms), 40)
    columns = {"model/grad_norm": (steps, norms), "model/clip_coefficient": (steps, coefficients)}
    said = [one.rule for one in found([NeverClipped()], columns, config=config)]
    assert said == ["never_clipped"] * told


@pytest.mark.parametrize(
    ("config", "logged", "told"),
    [
        ({"clip": 0.2}, {"rollout/reward": 1.0}, False),
        ({"clip": 0.5}, {"rollout/reward": 1.0, "train/clip_fraction": 0.1}, False),
        ({"clip": 0.5, "clip_ratio": 0.2}, {"rollout/reward": 1.0, "train/clip_fraction": 0.1}, True),
        ({"clip": 0.5}, {"rollout/reward": 1.0}, True),
        ({"clip": 0.2, "max_grad_norm": 0.5}, {"rollout/reward": 1.0}, True),
        ({"clip": 0.2}, {"train/loss": 1.0}, True),
    ],
)
def test_the_bound_of_a_policys_ratios_is_no_limit_of_gradients(
    config: dict[str, Any], logged: dict[str, float], told: bool
) -> None:
    steps = numpy.arange(0, 80, 40)
    columns: dict[str, Any] = {"model/grad_norm": (steps, [3.0, 4.0]), "model/clip_coefficient": (steps, [1.0, 1.0])}
    columns |= {name: (numpy.arange(80), numpy.full(80, value)) for name, value in logged.items()}
    assert [one.rule for one in found([NeverClipped()], columns, config=config)] == ["never_clipped"] * told
