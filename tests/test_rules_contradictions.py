"""Causes that what was measured rules out are left out, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.contradictions import ruled_out
from barograph.doctor.kernel.finding import Finding

STEP = np.array([1, 50, 100, 150])
BEGAN = 40

OF_USUAL_SIZE = {"input_mean": [0.1] * 4, "input_std": [1.0] * 4}
TRAINED = {"frozen_parameters": [0.0] * 4, "unchanged": [0.0] * 4, "update_p5": [1e-4] * 4}


def history(figures: dict[str, list[float]], **facts: object) -> RunHistory:
    seen = RunHistory(dict(facts))
    for name, values in figures.items():
        time = STEP.astype(np.int64) * 1_000_000
        seen.add(f"model/{name}", STEP, np.asarray(values, float), time, np.ones(4, int))
    return seen


def excludes(figures: dict[str, list[float]], cause: str, sure: bool = False, **facts: object) -> bool:
    finding = Finding(rule="x", family="loss", kind="divergence", severity="warning", step=BEGAN, message="", segment=1)
    return ruled_out(history(figures, **facts))(finding, f"{cause}: words", sure)


@pytest.mark.parametrize(
    ("cause", "figures"),
    [
        ("inputs not normalised", OF_USUAL_SIZE),
        ("clipping off", {"clip_coefficient": [1.0, 1.0, 0.3, 1.0]}),
        ("zero_grad missing", {"stale_gradients": [0.0] * 4}),
        ("softmax twice", {"softmax_twice": [0.0] * 4}),
        ("fp16 overflow", {"half_output": [0.0] * 4, "half_parameters": [0.0] * 4}),
        ("learning rate too low", {"update_p50": [2e-3] * 4}),
        ("tokenizer mismatch", OF_USUAL_SIZE),
        ("evaluation mode left on", {"passes": [1.0] * 4}),
        ("overfitting", {"rows_again": [0.0] * 4}),
        ("data exhausted", {"rows_again": [0.0] * 4}),
        ("layer frozen", TRAINED),
        ("gradients vanish", {"flow_first_last": [0.5] * 4}),
        ("epsilon too big", {"epsilon": [1e-8] * 4}),
        ("weight decay too high", {"decay_share": [0.0] * 4}),
    ],
)
def test_a_cause_that_was_measured_not_to_be_is_ruled_out_unless_it_is_proven(
    cause: str, figures: dict[str, list[float]]
) -> None:
    assert excludes(figures, cause)
    assert not excludes(figures, cause, sure=True)
    assert not excludes({}, cause)


@pytest.mark.parametrize(
    ("cause", "figures"),
    [
        ("inputs not normalised", {"input_mean": [0.1] * 4, "input_std": [1.0, 1.0, 80.0, 80.0]}),
        ("inputs not normalised", {**OF_USUAL_SIZE, "eval_input_mean": [120.0] * 4, "eval_input_std": [60.0] * 4}),
        ("clipping off", {"clip_coefficient": [0.3, 1.0, 1.0, 1.0]}),  # it was on before
        ("zero_grad missing", {"stale_gradients": [0.0, 0.0, 1.0, 1.0]}),
        ("fp16 overflow", {"half_output": [1.0] * 4, "half_parameters": [0.0] * 4}),
        ("learning rate too low", {"update_p50": [2e-3, 1e-6, 1e-6, 1e-6]}),  # it was not before
        ("evaluation mode left on", {"passes": [1.0] * 4, "training": [1.0] * 4}),
        ("overfitting", {"rows_again": [0.0, 0.0, 0.0, 0.1]}),
        ("overfitting", {"rows_again": [0.0] * 4, **OF_USUAL_SIZE}),  # pictures are drawn with changes
        ("layer frozen", {**TRAINED, "unchanged": [0.0, 0.0, 2.0, 2.0]}),
        ("layer frozen", {**TRAINED, "frozen_parameters": [3.0] * 4}),
        ("layer frozen", {**TRAINED, "update_p5": [1e-4, 0.0, 0.0, 0.0]}),  # no gradient arrives: nothing is unchanged
        ("gradients vanish", {"flow_first_last": [0.5, 1e-6, 1e-6, 1e-6]}),
        ("epsilon too big", {"epsilon": [1e-3] * 4}),
        ("weight decay too high", {"decay_share": [1e-4] * 4}),
    ],
)
def test_what_was_not_measured_or_was_so_before_rules_nothing_out(cause: str, figures: dict[str, list[float]]) -> None:
    assert not excludes(figures, cause)


def test_what_the_configuration_excludes_is_out_even_where_it_is_proven() -> None:
    assert excludes({}, "fp16 overflow", sure=True, config={"precision": "bf16"})


def test_inputs_of_an_evaluation_that_nobody_saw_may_be_of_another_scale() -> None:
    cause = "inputs not normalised: those of the evaluation in the way of the training's"
    seen = {**OF_USUAL_SIZE, "eval_input_mean": [0.0] * 4, "eval_input_std": [1.0] * 4}
    one = Finding(rule="x", family="loss", kind="divergence", severity="warning", step=BEGAN, message="", segment=1)
    assert not ruled_out(history(OF_USUAL_SIZE))(one, cause, False)
    assert ruled_out(history(seen))(one, cause, False)


@pytest.mark.parametrize(
    ("during", "others"),
    [
        ([127.0, 128.0, 126.0], True),
        ([127.0, 128.0, 81.0], False),  # the third batch is of the usual texts
        ([84.0, 82.0, 83.0], False),  # above what it was, within its width
        ([127.0], False),  # of one batch nothing is known
    ],
)
@pytest.mark.parametrize("name", ["token_mean", "input_std"])
def test_labels_alone_have_not_changed_where_the_inputs_are_others_too(
    name: str, during: list[float], others: bool
) -> None:
    values = np.array([80.0, 81.0, 79.0, 82.0, 80.0, 78.0, 81.0, 80.0, *during])
    steps = np.arange(len(values)) * 10
    seen = RunHistory({})
    seen.add(f"model/{name}", steps, values, steps * 1_000_000, np.ones(len(values), int))
    one = Finding(rule="x", family="loss", kind="divergence", severity="warning", step=75, message="", segment=1)
    one.last_step = 110
    impossible = ruled_out(seen)
    assert impossible(one, "labels shuffled: targets no longer match inputs", False) is others
    assert impossible(one, "labels shifted: targets changed", False) is others
    assert not impossible(one, "bad batch: different data since this step", False)
    assert not impossible(one, "labels shuffled: targets no longer match inputs", True)
