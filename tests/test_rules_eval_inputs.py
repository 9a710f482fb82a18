"""Evaluations whose inputs are prepared in another way than the training's."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_objective import EVALUATIONS, FALLS, ROWS, STEP, every, warned


@pytest.mark.parametrize(
    ("mean", "deviation", "loss", "told"),
    [
        (0.35, 0.6, 2.0, True),
        (-0.34, 1.03, 2.0, True),
        (0.35, 0.8, 2.0, False),  # a mean alone is that of a later time
        (0.1, 0.6, 2.0, False),
        (0.35, 0.6, 1.2, False),
    ],
)
def test_inputs_that_are_normalised_but_for_padding_are_told_apart_by_mean_and_deviation(
    mean: float, deviation: float, loss: float, told: bool
) -> None:
    looks, ones, after = STEP[::10], np.ones(ROWS // 10), EVALUATIONS + 1
    columns = {"train/loss": every(FALLS), "eval/loss": (EVALUATIONS, loss * FALLS[EVALUATIONS])}
    columns |= {"model/input_mean": (looks, 0.01 * ones), "model/input_std": (looks, 0.83 * ones)}
    columns |= {f"model/eval_input_{name}": (after, value + 0 * after)
                for name, value in (("mean", mean), ("std", deviation))}  # fmt: skip
    assert ("evaluation_inputs" in warned(columns)) == told


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("mean", "deviation", "loss", "told"),
    [
        (-1.9, 4.0, 1.1, "inputs normalised twice"),
        (-0.42, 3.2, 1.1, "inputs normalised twice"),
        (-1.9, 4.0, 0.8, ""),  # the evaluation is better
        (0.5, 0.24, 1.1, ""),  # not normalised, and it makes no difference
        (0.5, 0.24, 2.0, "inputs not normalised"),
        (2.4, 4.0, 1.1, ""),  # what is above 0 is of another kind
    ],
)
def test_evaluations_whose_inputs_are_normalised_twice_are_found(
    mean: float, deviation: float, loss: float, told: str, rows: int
) -> None:
    looks, ones = STEP[::10], np.ones(ROWS // 10)
    after = EVALUATIONS + 1
    columns = {"train/loss": every(FALLS), "eval/loss": (EVALUATIONS, loss * FALLS[EVALUATIONS])}
    columns |= {"model/input_mean": (looks, 0.01 * ones), "model/input_std": (looks, ones)}
    columns |= {f"model/eval_input_{name}": (after, value + 0 * after)
                for name, value in (("mean", mean), ("std", deviation))}  # fmt: skip
    found = warned(columns, rows)
    assert ("evaluation_inputs" in found) == bool(told)
    assert not told or found["evaluation_inputs"].causes[0].startswith(told)


@pytest.mark.parametrize(
    ("mean", "deviation", "here", "told"),
    [
        (10.0, 6.0, 0.02, True),
        (10.0, 2.0, 0.02, False),  # a mean alone
        (2.0, 6.0, 0.02, False),  # a scale alone
        (10.0, 6.0, 3.0, False),  # the evaluation's are not normalised either
    ],
)
def test_evaluations_that_alone_are_normalised_are_found_whatever_the_loss(
    mean: float, deviation: float, here: float, told: bool
) -> None:
    looks, ones, after = STEP[::10], np.ones(ROWS // 10), EVALUATIONS + 1
    columns = {"train/loss": every(FALLS), "eval/loss": (EVALUATIONS, FALLS[EVALUATIONS])}
    columns |= {"model/input_mean": (looks, mean * ones), "model/input_std": (looks, deviation * ones)}
    columns |= {"model/eval_input_mean": (after, here + 0 * after), "model/eval_input_std": (after, 0.83 + 0 * after)}
    assert ("evaluation_inputs" in warned(columns)) == told


@pytest.mark.parametrize(
    ("here", "deviation", "config", "loss", "told"),
    [
        (0.38, 0.37, {}, 3.0, True),
        (0.38, 0.37, {}, 1.2, False),  # it makes little difference
        (0.38, 0.60, {}, 3.0, False),  # a mean alone
        (-0.2, 0.37, {}, 3.0, False),  # a scale alone
        (0.38, 0.37, {"eval_domain": "night"}, 3.0, False),
    ],
)
def test_evaluations_outside_of_all_inputs_of_the_training_in_both_are_found(
    here: float, deviation: float, config: dict[str, str], loss: float, told: bool
) -> None:
    looks, wave, after = STEP[::10], np.sin(np.arange(ROWS // 10)), EVALUATIONS + 1
    columns = {"train/loss": every(FALLS), "eval/loss": (EVALUATIONS, loss * FALLS[EVALUATIONS])}
    columns |= {"model/input_mean": (looks, -0.23 + 0.05 * wave), "model/input_std": (looks, 0.73 + 0.05 * wave)}
    columns |= {
        "model/eval_input_mean": (after, here + 0 * after),
        "model/eval_input_std": (after, deviation + 0 * after),
    }
    assert ("evaluation_inputs" in warned(columns, config=config)) == told


@pytest.mark.parametrize(
    ("here", "deviation", "classes", "config", "told"),
    [
        (2.3, 1.3, 1.0, {}, True),
        (-1.9, 1.0, 1.0, {}, True),
        (1.2, 1.0, 1.0, {}, False),  # as of other years
        (2.3, 1.3, np.nan, {}, False),  # of no classes: a series may be higher in the time that is held out
        (2.3, 1.3, 1.0, {"test_domain": "clinic"}, False),
    ],
)
def test_normalised_inputs_whose_mean_alone_is_far_outside_are_found_whatever_the_loss(
    here: float, deviation: float, classes: float, config: dict[str, str], told: bool
) -> None:
    looks, wave, after = STEP[::10], np.sin(np.arange(ROWS // 10)), EVALUATIONS + 1
    columns = {"train/loss": every(FALLS), "eval/loss": (EVALUATIONS, 0.9 * FALLS[EVALUATIONS])}
    columns |= {"model/input_mean": (looks, 0.15 * wave), "model/input_std": (looks, 0.98 + 0.1 * wave)}
    columns |= {"model/eval_input_mean": (after, here + 0 * after)}
    columns |= {"model/eval_input_std": (after, deviation + 0 * after)}
    if classes == classes:
        columns |= {"model/top_target_share": (looks, 0.4 + 0 * looks)}
    assert ("evaluation_inputs" in warned(columns, config=config)) == told
