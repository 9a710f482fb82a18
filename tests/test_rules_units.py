"""An evaluation that is a multiple of the training loss, by curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import rule_curves

from barograph.doctor.rules.evaluation.running import StatisticsSlow
from barograph.doctor.rules.evaluation.units import EvaluationDivided, EvaluationSummed, EvaluationTotal

STEPS, EVALUATED = np.arange(1, 401), np.arange(50, 401, 50)


def train(start: float = 6.0, end: float = 2.0) -> np.ndarray:
    return rule_curves.falling(400, start, end)


COURSES = {
    "summed over five batches": (5.0, 1.0, True),
    "two of them": (2.2, 1.0, True),
    "mean": (1.03, 1.0, False),
    "harder texts": (1.3, 1.0, False),
    "overfitting": (1.0, 1.9, False),
    "never above a guess": (1.5, 1.0, False),
}


@pytest.mark.parametrize("kind", COURSES)
@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_an_evaluation_that_is_a_multiple_of_the_training_is_found(kind: str, pieces: tuple[int, ...]) -> None:
    times, grows, wrong = COURSES[kind]
    loss = train()
    evaluation = loss[EVALUATED - 1] * times * grows ** np.arange(len(EVALUATED))
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, evaluation)}
    found = rule_curves.found([EvaluationSummed()], series, pieces, vocabulary=100)
    assert bool(found) == wrong
    if wrong:
        assert found[0].found == 200 and found[0].evidence["times"] == pytest.approx(times, rel=0.05)


@pytest.mark.parametrize(
    ("own", "rows", "wrong", "told"), [(0.3, 500, 0.2, False), (0.6, 500, 0.2, True), (0.3, 60, 0.2, True)]
)
def test_an_evaluation_whose_answers_are_wrong_is_no_sum(own: float, rows: float, wrong: float, told: bool) -> None:
    loss = train()
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, 5 * loss[EVALUATED - 1])}
    figures = {"compared_own": own, "compared_rows": rows, "compared_width": 100.0, "wrong_share": wrong}
    looks = EVALUATED + 1
    series |= {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in figures.items()}
    assert bool(rule_curves.found([EvaluationSummed()], series, vocabulary=100)) is told


@pytest.mark.parametrize(
    ("figure", "value", "told"),
    [("class_weight_slope", 0.9, False), ("class_weight_slope", -0.9, True), ("class_weight_slope", 0.0, True),
     ("class_weights_inverted", 1.0, False), ("class_weights_inverted", 0.0, True)],
)  # fmt: skip
def test_a_training_whose_frequent_classes_weigh_more_has_a_lower_loss_by_that(
    figure: str, value: float, told: bool
) -> None:
    loss = train()
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, 5 * loss[EVALUATED - 1])}
    series |= {f"model/{figure}": (EVALUATED + 1, np.full(len(EVALUATED), value))}
    assert bool(rule_curves.found([EvaluationSummed()], series, vocabulary=100)) is told


ANSWERS = {
    "a sum": (40.0, 0.75, 0.3, 500, True),
    "of few rows": (40.0, 0.75, 0.3, 60, False),
    "wrong more often": (40.0, 0.55, 0.3, 500, False),
    "wrong for the most part": (40.0, 0.45, 0.6, 500, False),
    "a loss that weighs what is sure less": (8.5, 0.75, 0.3, 500, False),  # a focal loss is trained
    "seen in the evaluation alone": (40.0, 0.75, math.nan, 500, False),
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_an_evaluation_far_up_whose_answers_are_as_right_as_the_trainings_is_a_sum(
    kind: str, pieces: tuple[int, ...]
) -> None:
    """Its ratio to the training's loss goes up and down."""
    times, own, wrong, rows, told = ANSWERS[kind]
    loss, uneven = train(4.0, 1.0), np.array([1.0, 1.6, 1.0, 1.7, 1.1, 1.8, 1.0, 1.6])
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, times * uneven * loss[EVALUATED - 1])}
    figures = {"compared_own": own, "compared_rows": rows, "compared_width": 100.0}
    series |= {f"model/{name}": (EVALUATED + 1, np.full(len(EVALUATED), value)) for name, value in figures.items()}
    if wrong == wrong:
        series["model/wrong_share"] = (STEPS[::10], np.full(len(STEPS[::10]), wrong))
    found = rule_curves.found([EvaluationSummed()], series, pieces, vocabulary=100)
    assert bool(found) is told
    assert all("answers are right" in one.message for one in found)


@pytest.mark.parametrize(("classes", "recall", "told"), [(4, 0.25, False), (4, 0.45, True), (1, 1.0, True)])
def test_answers_that_are_one_class_whatever_comes_are_not_as_right_as_the_trainings(
    classes: int, recall: float, told: bool
) -> None:
    """Most examples are of that class, as where batch norm's statistics are not those of the model."""
    loss, uneven = train(4.0, 1.0), np.array([1.0, 1.6, 1.0, 1.7, 1.1, 1.8, 1.0, 1.6])
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, 40 * uneven * loss[EVALUATED - 1])}
    figures = {"compared_own": 0.75, "compared_rows": 500, "compared_width": 100.0}
    figures |= {"compared_named": classes, "compared_recall": recall}
    series |= {f"model/{name}": (EVALUATED + 1, np.full(len(EVALUATED), value)) for name, value in figures.items()}
    series["model/wrong_share"] = (STEPS[::10], np.full(len(STEPS[::10]), 0.3))
    assert bool(rule_curves.found([EvaluationSummed()], series, vocabulary=100)) is told


def test_an_evaluation_of_other_texts_that_falls_by_as_much_and_not_in_proportion_is_no_sum() -> None:
    loss = train()
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, loss[EVALUATED - 1] + math.log(100))}
    assert not rule_curves.found([EvaluationSummed()], series, vocabulary=100)


def test_without_the_number_of_classes_nothing_is_said() -> None:
    loss = train()
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, 5 * loss[EVALUATED - 1])}
    assert not rule_curves.found([EvaluationSummed()], series)


FAR = {
    "in squares of units": (lambda loss: 4000 * loss, 0.2, {}, True),
    "falls less, as the training overfits": (lambda loss: 4000 * loss**0.4, 0.2, {}, True),
    "stays": (lambda loss: 4000 + 0 * loss, 0.2, {}, False),  # the model is as bad as before
    "rises": (lambda loss: 4000 / loss, 0.2, {}, False),
    "a hundred times": (lambda loss: 100 * loss, 0.2, {}, False),
    "comes down to the training's": (lambda loss: np.where(loss > 0.5, 4000, 1.2) * loss, 0.2, {}, False),
    "the training has hardly begun": (lambda loss: 4000 * loss, 1.2, {}, False),
    "inputs of another scale": (lambda loss: 4000 * loss, 0.2, {"input_std": 1.0, "eval_input_std": 90.0}, False),
    "inputs of the same scale": (lambda loss: 4000 * loss, 0.2, {"input_std": 1.0, "eval_input_std": 1.1}, True),
}


@pytest.mark.parametrize("kind", FAR)
@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_an_evaluation_in_other_units_is_found_without_a_guess(kind: str, pieces: tuple[int, ...]) -> None:
    evaluated, end, figures, wrong = FAR[kind]
    loss = train(1.5, end)
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, evaluated(loss[EVALUATED - 1]))}
    series |= {f"model/{name}": (EVALUATED, np.full(len(EVALUATED), value)) for name, value in figures.items()}
    found = rule_curves.found([EvaluationSummed()], series, pieces)
    assert bool(found) == wrong
    if wrong:
        assert (found[0].step, found[0].found) == (0, 400)
        assert found[0].causes[0].startswith("units differ")


@pytest.mark.parametrize(
    ("trained", "evaluated", "config", "told"),
    [
        ("train/loss", "val/rmse", {}, True),
        ("train/loss", "val/rmse_usd", {}, False),
        ("train/loss", "val/loss", {"eval_units": "US dollars"}, False),
        ("train/loss", "val/loss", {"hidden_units": 64, "units": "many"}, True),
        ("train/loss_usd", "val/loss_usd", {}, True),  # both should be in them
    ],
)
def test_an_evaluation_whose_unit_is_said_may_be_in_another_than_the_training(
    trained: str, evaluated: str, config: dict[str, Any], told: bool
) -> None:
    loss = train(1.5, 0.2)
    series = {trained: (STEPS, loss), evaluated: (EVALUATED, 4000 * loss[EVALUATED - 1])}
    assert bool(rule_curves.found([EvaluationSummed()], series, config=config)) is told


@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_an_evaluation_that_is_as_far_up_as_a_training_that_blew_up_is_in_its_units(pieces: tuple[int, ...]) -> None:
    loss = np.where(STEPS < 10, 1.5, 4000 * train(1.5, 0.2))
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, loss[EVALUATED - 1])}
    assert not rule_curves.found([EvaluationSummed()], series, pieces)


DIVIDED = {  # ×: the evaluation of the training; how the ratio grows; the number of classes
    "by examples": (1 / 32, 1.0, 100, True),
    "and overfits": (1 / 32, 1.02, 100, True),
    "mean": (0.95, 1.0, 100, False),
    "without dropout": (0.6, 0.9, 100, False),
    "much better, and ever more so": (1 / 10, 0.6, 100, False),
    "half": (0.5, 1.0, 100, False),
    "the training is summed": (1 / 32, 1.0, 3, False),
    "no classes": (1 / 32, 1.0, None, False),
}


@pytest.mark.parametrize("kind", DIVIDED)
@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_an_evaluation_that_is_divided_by_too_much_is_found(kind: str, pieces: tuple[int, ...]) -> None:
    times, grows, classes, wrong = DIVIDED[kind]
    loss = train(4.5, 1.0)
    evaluation = loss[EVALUATED - 1] * times * grows ** np.arange(len(EVALUATED))
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, evaluation)}
    found = rule_curves.found([EvaluationDivided()], series, pieces, vocabulary=classes)
    assert [one.found for one in found] == [200] * wrong
    for right, fits in ((1 - evaluation / 4, True), (100 - 25 * evaluation, True), (1 - evaluation * 4, False)):
        series["val_acc"] = EVALUATED, right
        found = rule_curves.found([EvaluationDivided()], series, pieces, vocabulary=classes)
        assert bool(found) == (wrong and not fits)


@pytest.mark.parametrize(
    ("early", "times", "grows", "wrong"),
    [
        (4.2, 1 / 30, 1.0, True),
        (4.2, 0.9, 1.0, False),
        (4.2, 1 / 30, 0.8, False),  # ever better than the training: no one factor
        (4.2, 1 / 3, 1.0, False),
        (9.0, 1 / 30, 1.0, False),  # the training is above a guess: it is summed, say
    ],
)
@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_a_first_mean_of_a_training_that_falls_fast_is_left_out(
    early: float, times: float, grows: float, wrong: bool, pieces: tuple[int, ...]
) -> None:
    """The mean of the steps before the first evaluation is far above the loss at that evaluation."""
    later = 2.2 * np.exp(-(STEPS - 50) / 900)
    loss = np.where(STEPS < 50, early - (early - 2.2) * np.minimum(1, STEPS / 50) ** 3, later)
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, times * later[EVALUATED - 1] * grows ** np.arange(8))}
    found = rule_curves.found([EvaluationDivided()], series, pieces, vocabulary=64)
    assert [one.found for one in found] == [250] * wrong


SLOW = {  # weight of a batch; the evaluation's loss, of the training's; other figures
    "slow": (0.001, 3.0, {}, True),
    "nearly as good": (0.001, 1.7, {}, True),
    "nearly as good, and half is left": (0.003, 1.7, {}, False),
    "usual": (0.1, 3.0, {}, False),
    "as good": (0.001, 1.1, {}, False),
    "trained before": (0.001, 3.0, {"gains_apart": 1.0}, False),
    "four passes a step": (0.003, 3.0, {"backwards": 4.0}, False),
    "with the batch's statistics": (0.001, 3.0, {"training_in_evaluation": 1.0}, False),
}


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_running_statistics_that_have_hardly_moved_are_found(kind: str, pieces: tuple[int, ...]) -> None:
    weight, times, others, wrong = SLOW[kind]
    loss, first = train(), np.array([1])
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, times * loss[EVALUATED - 1])}
    figures = others | {"norm_momentum": weight}
    series |= {f"model/{name}": (first, np.array([value])) for name, value in figures.items()}
    for looks, told in ((np.array([1, 60, 120, 180]), 150), (np.array([1, 190]), 200), (first, None)):
        seen = series | {"model/passes": (looks, np.ones(len(looks)))}  # nothing is said before the watch has told
        found = rule_curves.found([StatisticsSlow()], seen, pieces)
        assert [one.found for one in found] == [told] * (wrong and told is not None)


TOTALS = {
    "never reset": (lambda each: each.cumsum(), True),
    "harder texts": (lambda each: (1.2 * each).cumsum(), True),
    "summed over four batches, and never reset": (lambda each: (4 * each).cumsum(), False),  # nothing says which
    "reset": (lambda each: each, False),
    "the count goes on, too": (lambda each: each.cumsum() / np.arange(1, len(each) + 1), False),
    "overfitting": (lambda each: each[0] * np.linspace(1, 4, len(each)), False),
    "overfitting fast": (lambda each: each[0] * np.arange(1, len(each) + 1), False),
    "diverging": (lambda each: each[0] * 2.0 ** np.arange(len(each)), False),
    "of epochs": (lambda each: each[0] + np.sqrt(np.arange(len(each))), False),
}


@pytest.mark.parametrize("kind", TOTALS)
@pytest.mark.parametrize("pieces", [(), (77, 200)])
def test_an_evaluation_whose_total_is_never_reset_is_found(kind: str, pieces: tuple[int, ...]) -> None:
    course, wrong = TOTALS[kind]
    loss = train()
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, course(loss[EVALUATED - 1]))}
    assert bool(rule_curves.found([EvaluationTotal()], series, pieces)) == wrong


def test_a_total_that_grows_evenly_beside_a_loss_that_stays_is_not_told_from_another_course() -> None:
    loss = np.full(400, 2.0)
    series = {"loss": (STEPS, loss), "val_loss": (EVALUATED, loss[EVALUATED - 1].cumsum())}
    assert not rule_curves.found([EvaluationTotal()], series)
