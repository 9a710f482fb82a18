"""Gradients that are clipped while a scaler's factor is in them, and optimizers that are stepped past the scaler."""

from __future__ import annotations

import numpy
import pytest
from rule_columns import findings, only
from rule_curves import found
from test_rules_gradient import falling

from barograph.doctor.rules.gradient.scale import ClippedWhileScaled

NAN = float("nan")


@pytest.mark.parametrize(
    ("norms", "scales", "left", "told"),
    [
        ([1e-5] * 6, [1e5] * 6, 0.01, True),
        ([1e-5] * 5, [1e5] * 5, 0.01, False),
        ([1e-5] * 6, [1e5] * 6, NAN, False),  # nobody saw that it is clipped: it may be the same batch each time
        ([1e-5] * 3 + [5e-6] * 3, [1e5] * 3 + [2e5] * 3, NAN, True),
        ([1e-5] * 16, [1e5] * 16, NAN, True),
        ([1e-5, 1.02e-5] * 8, [1e5] * 16, 0.01, False),
        ([1e-2] * 16, [1e5] * 16, 0.01, False),  # somebody may clip there
    ],
)
def test_few_norms_that_are_a_clip_value_divided_by_the_scale_prove_it(
    norms: list[float], scales: list[float], left: float, told: bool
) -> None:
    steps = numpy.arange(0, 10 * len(norms), 10)
    columns = {"model/grad_norm": (steps, norms), "model/loss_scale": (steps, scales)}
    if left == left:
        columns["model/clip_coefficient"] = steps[:1], [left]
    assert bool(found([ClippedWhileScaled()], columns)) == told


@pytest.mark.parametrize(
    ("many", "limit", "left", "says"),
    [
        (4, 1.0, 1e-5, True),
        (4, 0.5, 1e-5, False),
        (4, None, 1e-5, False),
        (2, 1.0, 1e-5, True),
        (2, 1.0, NAN, True),  # the scale has changed, and the norm with it
        (1, 1.0, 1e-5, False),
        (2, 0.5, 1e-5, False),
    ],
)
def test_of_few_looks_the_configured_clip_value_says_that_gradients_were_scaled(
    many: int, limit: float | None, left: float, says: bool
) -> None:
    looks, scales = numpy.array([0, 66, 88, 94])[:many], numpy.array([16384.0, 32768, 32768, 32768])[:many]
    columns = {
        "model/grad_norm": (looks, 1 / scales), "model/loss_scale": (looks, scales),
        "model/clip_coefficient": (looks, numpy.full(many, left)), "train/loss": falling(160),
    }  # fmt: skip
    facts = {"config": {} if limit is None else {"clip": limit}}
    found = only(findings([ClippedWhileScaled()], columns, facts=facts), "clipped_while_scaled")
    assert bool(found) == says


@pytest.mark.parametrize(
    ("logged", "coefficients", "scale", "says"),
    [
        (4096.0, (0.3, 0.98, 1.2, 1.5), 4096.0, True),
        (4096.0, (0.3, 0.98, 1.0, 1.5), 4096.0, False),  # once
        (4096.0, (0.3, 0.98, 1.0, 1.0), 4096.0, False),  # the scaler divides them itself
        (1.0, (0.3, 0.98, 1.2, 1.5), 4096.0, False),  # made to have one length, without a scale
        (4.0, (0.3, 0.98, 1.2, 1.5), 4.0, False),
    ],
)
def test_an_optimizer_that_is_stepped_past_the_scaler_gets_larger_gradients_than_the_backward_pass(
    logged: float, coefficients: tuple[float, ...], scale: float, says: bool
) -> None:
    steps, before = numpy.array([0, 35, 105, 120]), numpy.array([3.3, 1.02, 0.83, 0.64])
    columns = {
        "kin_norm": (steps, logged * before), "model/grad_norm_before": (steps, before),
        "model/clip_coefficient": (steps, numpy.array(coefficients)), "model/loss_scale": numpy.full(160, scale),
        "model/grad_norm": (steps, before * coefficients), "train/loss": falling(160),
    }  # fmt: skip
    some = only(findings([ClippedWhileScaled()], columns), "clipped_while_scaled")
    assert [one.causes[0].partition(":")[0] for one in some] == ["gradients not unscaled"] * says
