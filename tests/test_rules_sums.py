"""A loss that is summed where the evaluation's is averaged, and one whose inputs are probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.loss.floor import DoubleSoftmax
from barograph.doctor.rules.loss.sums import SummedLoss

AT = numpy.arange(0, 300, 20)
CLASSES = 6


def course(start: float = math.log(CLASSES)) -> Any:
    return 0.3 + (start - 0.3) * numpy.exp(-numpy.arange(300) / 60)


def summed(factor: Any, config: dict[str, Any], noise: float = 0.1, width: bool = True, **facts: Any) -> list[Finding]:
    """What is found where the training loss is so many times the evaluation's."""
    columns: dict[str, Any] = {
        "train/loss": factor * course() * noisy(300, 1, noise),
        "eval/loss": (AT, course()[AT] * noisy(len(AT), 1, 0.02, 4)),
    }
    if width:
        columns["model/output_width"] = (numpy.array([0]), numpy.array([float(CLASSES)]))
    return only(findings([SummedLoss()], columns, facts={"config": config} | facts), "summed_loss")


@pytest.mark.parametrize("width", [True, False])
@pytest.mark.parametrize(
    ("factor", "config", "cause"),
    [
        (4, {"accumulation": 4}, "gradient accumulation"),
        (2, {"trainer.gradient_accumulation_steps": 2}, "gradient accumulation"),
        (48, {"batch_size": 48}, "loss summed"),
        (512, {"micro_batch_size": 16, "seq_len": 32}, "loss summed"),
    ],
)
def test_a_number_of_the_configuration_proves_a_sum(factor: int, config: dict, cause: str, width: bool) -> None:
    (one,) = summed(factor, config, width=width)
    assert (one.severity, one.kind, one.step) == ("warning", "logits", 0) and f"{factor}" in one.message
    assert len(one.causes) == 1 and one.causes[0].startswith(cause)


def test_ranks_count_as_a_number_of_the_configuration() -> None:
    assert summed(8, {}, width=False, world_size=8)[0].causes[0].startswith("gradient accumulation")


def test_a_batch_that_is_noisy_is_no_excuse_where_the_first_loss_agrees() -> None:
    assert summed(48, {"batch_size": 48}, noise=0.6)


def test_a_number_that_is_not_in_the_configuration_needs_the_first_loss_and_four_evaluations() -> None:
    assert summed(37, {"batch_size": 64}, noise=0.02)
    assert not summed(37, {"batch_size": 64}, noise=0.02, width=False)
    assert not summed(3, {"batch_size": 64}, noise=0.02)


@pytest.mark.parametrize("factor", [1.0, 1.5, 1 + numpy.arange(300) / 300, numpy.where(numpy.arange(300) < 15, 1, 4)])
def test_a_training_loss_that_is_higher_for_another_reason_is_silent(factor: Any) -> None:
    """Dropout, augmentation, a better evaluation set: at first both are a guess."""
    assert not summed(factor, {"accumulation": 4, "batch_size": 2, "length": 8}, world_size=2)


def softmax_twice(classes: int, noise: float = 0.0, seed: int = 2) -> dict[str, Any]:
    """Losses and accuracies of batches of 64, of a model that grows sure of itself."""
    dice = numpy.random.default_rng(seed)
    floor = math.log(1 + (classes - 1) / math.e)
    share = 1 / classes + (0.9 - 1 / classes) * (1 - numpy.exp(-numpy.arange(400) / 60))
    right = dice.binomial(64, share) / 64
    unsure = (math.log(classes) - floor - (1 - share[0])) * numpy.exp(-numpy.arange(400) / 40)
    return {
        "train/loss": floor + (1 - right) + unsure + abs(dice.normal(0, 0.01 + noise, 400)),
        "train/accuracy": right,
        "model/output_width": (numpy.array([0]), numpy.array([float(classes)])),
    }


@pytest.mark.parametrize("classes", [2, 6, 100])
def test_a_softmax_that_is_applied_twice_is_known_by_its_floor(classes: int) -> None:
    (one,) = only(findings([DoubleSoftmax()], softmax_twice(classes)), "double_softmax")
    assert (one.severity, one.step) == ("warning", 0) and one.causes[0].startswith("softmax twice")
    assert one.evidence["floor"] == pytest.approx(math.log(1 + (classes - 1) / math.e), rel=1e-3)


def test_a_softmax_that_is_applied_twice_is_known_from_evaluations_and_percentages() -> None:
    columns = softmax_twice(6)
    loss, right = columns.pop("train/loss"), columns.pop("train/accuracy")
    columns |= {"eval/loss": (AT, loss[AT]), "eval/accuracy": (AT, 100 * right[AT])}
    assert only(findings([DoubleSoftmax()], columns), "double_softmax")


def fitting(classes: int, best: float, smoothing: float) -> dict[str, Any]:
    """A classifier whose confidence is its accuracy, with labels that are smoothed."""
    share = 1 / classes + (best - 1 / classes) * (1 - numpy.exp(-numpy.arange(400) / 60))
    right = numpy.random.default_rng(4).binomial(64, share) / 64
    target = numpy.clip(share * (1 - smoothing) + smoothing / classes, 1e-6, 1 - 1e-6)
    loss = -target * numpy.log(target) - (1 - target) * numpy.log((1 - target) / (classes - 1))
    return {
        "train/loss": loss + 0.5 * (share - right),
        "train/accuracy": right,
        "model/output_width": (numpy.array([0]), numpy.array([float(classes)])),
    }


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("best", [0.3, 0.7, 0.99])
@pytest.mark.parametrize("classes", [2, 6, 100])
def test_a_classifier_that_is_as_sure_as_it_is_right_is_silent(classes: int, best: float, smoothing: float) -> None:
    assert not findings([DoubleSoftmax()], fitting(classes, best, smoothing))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_findings_are_the_same_in_pieces_of_any_size(seed: int) -> None:
    names = ("train/loss", "train/accuracy", "model/output_width")
    columns = random_columns(seed, names, ("eval/loss", "eval/accuracy"))
    same_when_cut((SummedLoss, DoubleSoftmax), columns, seed, facts={"config": {"batch_size": 3, "accumulation": 4}})
    same_when_cut((SummedLoss, DoubleSoftmax), softmax_twice(6, seed=seed), seed)
