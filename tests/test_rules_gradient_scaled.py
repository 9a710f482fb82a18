"""Loss and gradients that are scaled by one number from a step on, and what looks like it."""

from __future__ import annotations

import numpy
import pytest
from rule_columns import findings, noisy, only

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.rules.gradient import level
from barograph.doctor.rules.gradient.level import GradientScaleJump


@pytest.mark.parametrize(("factor", "kind"), [(8, "exploding"), (1 / 8, "jump_down"), (2, "exploding")])
def test_loss_and_norm_scaled_by_one_whole_number_are_a_scaling_error(factor: float, kind: str) -> None:
    norm, loss = noisy(200, 1, 0.1), noisy(200, 2.5, 0.02, 3)
    norm[120:] *= factor
    loss[120:] *= factor
    (one,) = only(findings([GradientScaleJump()], {"train/norm": norm, "train/loss": loss}), "gradient_scale_jump")
    assert (one.severity, one.step, one.kind) == ("critical", 120, kind) and one.found <= 128
    assert one.causes[0].startswith("gradient accumulation scaled wrongly")


def test_a_loss_that_rises_on_harder_data_is_not_scaled() -> None:
    norm, loss = noisy(200, 1, 0.1), noisy(200, 2.5, 0.02, 3)
    norm[120:] *= 2.2
    loss[120:] *= 1.3
    assert not findings([GradientScaleJump()], {"train/norm": norm, "train/loss": loss})


@pytest.mark.parametrize(("rows", "least", "most"), [(0.1, 18, 20), (10, 0, 2)])
@pytest.mark.parametrize("turn", [1, -1])
def test_a_noisy_loss_that_changes_its_level_row_by_row_is_not_scaled(
    rows: float, least: int, most: int, turn: int
) -> None:
    told = 0
    for seed in range(20):
        dice = numpy.random.default_rng(seed)
        share = 1 / (1 + numpy.exp(numpy.clip((numpy.arange(300) - 149.5) * 4 / rows, -50, 50)))
        loss, norm = (8**share * numpy.exp(dice.normal(0, 0.3, 300)) for _ in range(2))
        columns = {"train/norm": norm[::turn], "train/loss": loss[::turn]}
        told += any(one.severity != "info" for one in findings([GradientScaleJump()], columns).values())
    assert least <= told <= most


@pytest.mark.parametrize(("low", "least", "most"), [(0, 8, 10), (8, 0, 1), (12, 0, 1)])
def test_a_level_that_rows_before_had_come_to_is_no_factor(low: int, least: int, most: int) -> None:
    """A noisy loss that falls over many rows is high once more for four, and low again."""
    told = 0
    for seed in range(10):
        dice = numpy.random.default_rng(seed)
        level = numpy.where(numpy.arange(150) < 130, 1.0, 1 / 6)
        norm = level * numpy.exp(dice.normal(0, 0.25, 150))
        level[126 - low : 126] = 6**-0.8
        loss = level * numpy.exp(dice.normal(0, 0.25, 150))
        found = only(findings([GradientScaleJump()], {"train/norm": norm, "train/loss": loss}), "gradient_scale_jump")
        told += any(one.severity != "info" for one in found)
    assert least <= told <= most


@pytest.mark.parametrize("accuracy", [None, 0.1, 0.9])
def test_a_factor_of_the_loss_that_answers_follow_is_no_factor(accuracy: float | None) -> None:
    loss, norm = noisy(200, 0.3, 0.03), noisy(200, 2.0, 0.05)
    loss[120:] *= 5
    norm[120:] *= 5
    columns = {"loss": loss, "grad_norm": norm}
    if accuracy is not None:
        columns["accuracy"] = numpy.concatenate([noisy(120, 0.9, 0.03), noisy(80, accuracy, 0.03, 1)])
    found = only(findings([GradientScaleJump()], columns), "gradient_scale_jump")
    assert bool(found) == (accuracy != 0.1)


def test_a_policy_whose_loss_and_norm_shift_at_one_step_has_another_objective() -> None:
    dice = numpy.random.default_rng(0)
    loss, norm = dice.normal(0.04, 0.02, 200), noisy(200, 0.3, 0.2)
    columns = {"loss": loss, "grad_norm": norm, "reward": noisy(200, 0.9, 0.02)}
    assert not only(findings([GradientScaleJump()], columns), "gradient_scale_jump")
    loss[120:] -= 0.35
    norm[120:] *= 12
    (one,) = only(findings([GradientScaleJump()], columns), "gradient_scale_jump")
    assert (one.kind, one.severity) == ("rl", "warning") and 119 <= one.step <= 122
    assert one.causes[0].startswith("reward hacking or KL blow-up")


@pytest.mark.parametrize(
    ("size", "accumulated", "number"),
    [
        (2.03, None, 2),
        (7.47, None, 8),  # 7 is as near, and nobody accumulates 7
        (7.47, 7, 7),
        (12.5, None, 0),  # 12 or 13: neither is said
        (12.5, 12, 12),
        (5.02, 4, 5),  # the only one so near, whatever is configured
    ],
)
def test_the_number_of_micro_batches_is_named_where_one_alone_can_be_it(
    size: float, accumulated: int | None, number: int
) -> None:
    config = {} if accumulated is None else {"gradient_accumulation_steps": accumulated}
    assert level._only(RunHistory({"config": config}), size, 0.08) == number


def test_a_loss_that_is_falling_over_many_rows_is_divided_by_nothing() -> None:
    """How rare a class is, as it was learnt with an average of rows that are mixed."""
    loss = [0.656, 0.655, 0.654, 0.653, 0.649, 0.653, 0.644, 0.644, 0.636, 0.637, 0.626, 0.621, 0.613, 0.61, 0.588,
            0.581, 0.564, 0.528, 0.534, 0.504, 0.463, 0.479, 0.391, 0.37, 0.374, 0.322, 0.305, 0.317, 0.221, 0.259,
            0.189, 0.166, 0.161, 0.149, 0.107, 0.152, 0.14, 0.102, 0.346, 0.106, 0.112, 0.111, 0.074, 0.187, 0.062,
            0.147, 0.332, 0.138, 0.014, 0.13, 0.145, 0.116, 0.126, 0.125, 0.148, 0.228, 0.167, 0.093]  # fmt: skip
    norm = [0.545, 0.557, 0.55, 0.575, 0.573, 0.522, 0.561, 0.56, 0.557, 0.55, 0.559, 0.565, 0.552, 0.523, 0.548, 0.533,
            0.566, 0.573, 0.573, 0.552, 0.597, 0.53, 0.586, 0.584, 0.532, 0.514, 0.407, 0.391, 0.401, 0.273, 0.164,
            0.14, 0.189, 0.085, 0.131, 0.102, 0.076, 0.051, 0.211, 0.131, 0.099, 0.045, 0.051, 0.122, 0.049, 0.062,
            0.236, 0.072, 0.042, 0.223, 0.188, 0.081, 0.092, 0.061, 0.06, 0.139, 0.09, 0.077]  # fmt: skip
    columns = {"train/norm": numpy.array(norm), "train/loss": numpy.array(loss)}
    assert not findings([GradientScaleJump()], columns)
    columns = {name: numpy.where(numpy.arange(58) < 29, values[:1], values[:1] / 4) for name, values in columns.items()}
    assert findings([GradientScaleJump()], columns)
