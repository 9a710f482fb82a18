"""A term of the evaluation's loss that is far from the training's, while the others are like it."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.evaluation.signs import EvaluationBetter, EvaluationGap
from barograph.doctor.rules.evaluation.terms import EvaluationTerm

STEP, AT = np.arange(300), np.arange(19, 300, 20)
DICE = np.random.default_rng(3)
FALLS = np.exp(-STEP / 40) + 0.1
RISES = np.linspace(1.2, 1.4, len(AT))


def noisy(values: np.ndarray) -> np.ndarray:
    return values * np.exp(0.02 * DICE.normal(size=len(values)))


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 300, 13))])
@pytest.mark.parametrize("names", [("box_loss", "val_box_loss"), ("train/box_loss", "val/box_loss")])
@pytest.mark.parametrize(
    ("box", "there", "other", "told"),
    [
        (FALLS, 1.3 * RISES, FALLS[AT], True),  # in another form than the training's
        (FALLS, FALLS[AT] * 1.3, FALLS[AT], False),
        (FALLS, 1.3 * RISES, 1.5 * RISES, False),  # all of them: what is learnt is learnt by heart
        (30 + 0 * STEP, 1.5 + 0 * AT, FALLS[AT], True),  # of other units
        (FALLS, 0.05 * FALLS[AT], FALLS[AT], False),  # a training that is augmented, and learns
        (FALLS, 0.7 + 0 * AT, FALLS[AT], False),  # better than one that knows nothing
    ],
)
def test_a_term_that_is_alone_far_from_the_trainings_is_found(
    box: np.ndarray, there: np.ndarray, other: np.ndarray, told: bool, names: tuple[str, str], pieces: tuple[int, ...]
) -> None:
    mine, theirs = (name.rpartition("box")[0] for name in names)
    series = {
        names[0]: (STEP, noisy(box)), f"{mine}cls_loss": (STEP, noisy(FALLS)),
        f"{mine}loss": (STEP, noisy(box + FALLS)),
        names[1]: (AT, noisy(there)), f"{theirs}cls_loss": (AT, noisy(other)),
        f"{theirs}loss": (AT, noisy(there + other)),
    }  # fmt: skip
    ours = found([EvaluationTerm()], series, pieces)
    assert [one.key for one in ours] == [names[0]] * told


@pytest.mark.parametrize(
    ("evaluated", "terms", "told"),
    [
        ("val/box_loss", ("train/box_loss", "train/cls_loss"), False),
        ("val/reg_mse", ("train/reg", "train/cls"), False),
        ("val/loss", ("train/box_loss", "train/cls_loss"), True),
        ("val/total_loss", ("train/box_loss", "train/cls_loss"), True),
        ("val/loss", (), True),
    ],
)
def test_an_evaluation_of_one_term_is_not_compared_with_the_whole_loss(
    evaluated: str, terms: tuple[str, ...], told: bool
) -> None:
    steps = np.arange(400)
    whole = 1 + 3 * np.exp(-steps / 80)
    seen = steps[20::40]
    columns = {"train/loss": (steps, whole)} | {name: (steps, whole / 4) for name in terms}
    assert bool(found([EvaluationBetter()], columns | {evaluated: (seen, 0.2 * whole[seen])})) is told
    assert bool(found([EvaluationGap()], columns | {evaluated: (seen, 4 * whole[seen])})) is told


@pytest.mark.parametrize(("smoothing", "told"), [(0.0, True), (0.1, False)])
def test_labels_that_are_smoothed_keep_the_training_loss_above_the_evaluations(smoothing: float, told: bool) -> None:
    steps = np.arange(400)
    whole = 1 + 3 * np.exp(-steps / 80)
    series = {"train/loss": (steps, whole), "val/loss": (steps[20::40], 0.2 * whole[20::40])}
    series["model/label_smoothing"] = steps[:1], np.array([smoothing])
    assert bool(found([EvaluationBetter()], series)) is told


@pytest.mark.parametrize(
    ("first", "times", "ends", "says"),
    [(0, 20.0, 1.7, True), (0, 2.5, 1.7, False), (0, 20.0, 0.9, False), (40, 20.0, 1.7, False)],
)
def test_an_evaluation_that_gets_worse_by_a_loss_that_is_not_trained_on_warns(
    first: int, times: float, ends: float, says: bool
) -> None:
    steps, at = np.arange(200), np.arange(first, 200, 20)
    falls = 0.85 * times * (0.4 + 0.6 * np.exp(-steps / 40))
    rises = np.minimum(0.85 + (at - first) / 100, ends)
    said = found([EvaluationBetter()], {"train/loss": (steps, falls), "eval/loss": (at, rises)})
    warned = [one for one in said if one.severity == "warning"]
    assert [one.causes[0].partition(":")[0] for one in warned] == ["loss summed"] * says
