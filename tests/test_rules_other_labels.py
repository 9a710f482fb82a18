"""Evaluations whose labels are others than the training's, or that are worse than a guess."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_rules_objective import EVALUATIONS, FALLS, ROWS, STEP, every, of_graph, warned


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize("changes", [0.0, 0.3])
def test_an_evaluation_that_never_changes_has_no_other_labels(changes: float, rows: int) -> None:
    dice, steps = np.random.default_rng(4), STEP[::40]
    columns = {
        "train/loss": every(FALLS), "eval/loss": (steps, 6.0123 + changes * dice.normal(size=10)),
        "eval/accuracy": (steps, np.zeros(10)), **of_graph(loss_pairs=64.0, class_targets=1000.0, output_width=64.0),
    }  # fmt: skip
    found = warned(columns, rows)
    assert ("other_labels" in found) == (changes > 0) and ("evaluation_frozen" in found) == (changes == 0)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("right", "first", "theirs", "says"),
    [
        (0.8, 0.15, 3.0, True),  # a smoothed loss stays high, but the answers are learnt
        (0.3, 0.15, 3.0, False),
        (0.8, 0.6, 3.0, False),  # the first evaluation was right: its labels are those of the training
        (0.8, 0.15, 1.2, False),  # better than a guess, by its loss
        (None, 0.15, 3.0, False),
    ],
)
def test_labels_are_others_where_the_answers_are_learnt_and_all_wrong_in_evaluations(
    right: float | None, first: float, theirs: float, says: bool, rows: int
) -> None:
    dice, steps = np.random.default_rng(4), STEP[::40]
    columns = {
        "train_loss": every(1.0 + 0.7 * np.exp(-STEP / 30) + 0.02 * dice.normal(size=ROWS)),
        "val_loss": (steps, theirs + 0.1 * dice.normal(size=10)),
        "val_top1": (steps, np.where(np.arange(10) == 0, first, 0.02)), **of_graph(output_width=6.0),
    }  # fmt: skip
    if right is not None:
        columns["train_top1"] = every(right - 0.6 * right * np.exp(-STEP / 30))
    assert ("other_labels" in warned(columns, rows)) == says


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("recall", "named", "says"),
    [(0.55, 4.0, False), (0.26, 3.0, False), (0.24, 4.0, True), (0.55, 2.0, True), (math.nan, math.nan, True)],
)
def test_labels_are_the_training_s_where_most_classes_are_told_apart(
    recall: float, named: float, says: bool, rows: int
) -> None:
    dice, steps = np.random.default_rng(4), STEP[::40]
    columns = {
        "train_loss": every(1.0 + 0.7 * np.exp(-STEP / 30) + 0.02 * dice.normal(size=ROWS)),
        "val_loss": (steps, 3.0 + 0.1 * dice.normal(size=10)), "val_top1": (steps, np.full(10, 0.05)),
        "train_top1": every(0.8 - 0.5 * np.exp(-STEP / 30)), **of_graph(output_width=6.0),
    }  # fmt: skip
    for name, value in (("recall", recall), ("named", named)):
        if value == value:
            columns[f"model/compared_{name}"] = steps, np.full(10, value)
    assert ("other_labels" in warned(columns, rows)) == says


@pytest.mark.parametrize(
    ("evaluation", "again", "says"),
    [
        (np.linspace(3.0, 3.6, 10), 0.0, True),
        (np.linspace(3.0, 3.6, 10), 1.0, False),  # examples that came often may be memorized
        (np.linspace(2.0, 3.6, 10), 0.0, False),  # it was better than a guess: overfitting
        (np.linspace(30.0, 4.0, 10), 0.0, False),  # another unit
        (np.full(10, 3.61), 0.0, False),  # other weights than those that are trained
    ],
)
def test_an_evaluation_that_was_never_better_than_a_guess_asks_another_question(
    evaluation: np.ndarray, again: float, says: bool
) -> None:
    found = warned(
        {"loss": every(FALLS), "val_loss": (EVALUATIONS, evaluation), "model/rows_again": every(np.full(ROWS, again))}
        | of_graph(loss_reversed=0.0, loss_classes=8.0)
    )
    assert ("evaluation_below_guess" in found) == says


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("last", "own", "recall", "seen", "says"),
    [
        (8.0, 0.03, 0.1, 200, True),
        (8.0, 0.03, 0.3, 200, False),  # most are of one class, and the others are told apart
        (8.0, 0.2, 0.1, 200, False),
        (8.0, 0.03, 0.1, 20, False),
        (8.0, math.nan, 0.1, 200, False),
        (2.2, 0.03, 0.1, 200, False),  # it goes on to fall
    ],
)
def test_an_evaluation_that_fell_at_first_asks_another_question_if_its_answers_are_all_wrong(
    last: float, own: float, recall: float, seen: float, says: bool, rows: int
) -> None:
    """As of a batch norm, whose statistics lag behind in the first steps."""
    course = np.array([14.0, 12.0, 8.1, *np.geomspace(8.0, last, 7)])
    columns = {"loss": every(FALLS), "val_loss": (EVALUATIONS, course), "model/rows_again": every(np.zeros(ROWS))}
    figures = {"compared_own": own, "compared_recall": recall, "compared_rows": seen, "compared_width": 8.0}
    columns |= {f"model/{name}": (EVALUATIONS, np.full(10, value)) for name, value in figures.items() if value == value}
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=8.0), rows)
    assert ("evaluation_below_guess" in found) == says


@pytest.mark.parametrize(("width", "pairs", "says"), [(8.0, 8.0, True), (200.0, 8.0, False), (200.0, 0.0, True)])
def test_an_evaluation_among_more_pairs_has_a_higher_guess(width: float, pairs: float, says: bool) -> None:
    columns = {
        "loss": every(FALLS), "val_loss": (EVALUATIONS, np.linspace(4.0, 4.4, 10)),
        "model/rows_again": every(np.zeros(ROWS)), "model/compared_width": (EVALUATIONS + 1, np.full(10, width)),
    }  # fmt: skip
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=8.0, **({"loss_pairs": pairs} if pairs else {})))
    assert ("evaluation_below_guess" in found) == says


@pytest.mark.parametrize(("recall", "says"), [(0.2, False), (0.01, True)])
def test_pairs_of_which_many_are_found_among_all_are_no_other_labels(recall: float, says: bool) -> None:
    columns = {
        "loss": every(FALLS), "val_loss": (EVALUATIONS, np.linspace(4.6, 4.4, 10)),
        "model/rows_again": every(np.zeros(ROWS)), "val/recall@1": (EVALUATIONS, np.full(10, recall)),
    }  # fmt: skip
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=48.0, loss_pairs=48.0))
    assert ("evaluation_below_guess" in found) == says


@pytest.mark.parametrize(("right", "normed", "says"), [(0.1, True, True), (0.4, True, False), (0.4, False, True)])
def test_statistics_that_lag_are_no_other_labels(right: float, normed: bool, says: bool) -> None:
    columns = {
        "loss": every(FALLS), "val_loss": (EVALUATIONS, np.linspace(3.0, 2.9, 10)),
        "val_accuracy": (EVALUATIONS, np.full(10, right)), "model/rows_again": every(np.zeros(ROWS)),
        **({"model/norm_momentum": every(np.full(ROWS, 0.1))} if normed else {}),
    }  # fmt: skip
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=8.0))
    assert ("evaluation_below_guess" in found) == says


@pytest.mark.parametrize(
    ("name", "stale"), [("stale_statistics", 1.0), ("reset_statistics", 1.0), ("stale_statistics", 0.0)]
)
def test_statistics_that_are_seen_to_stand_still_are_the_proof_and_not_the_labels(name: str, stale: float) -> None:
    columns = {
        "loss": every(FALLS),
        "val_loss": (EVALUATIONS, np.linspace(3.0, 3.6, 10)),
        "model/rows_again": every(np.zeros(ROWS)),
        f"model/{name}": every(np.full(ROWS, stale)),
    }
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=8.0))["evaluation_below_guess"]
    assert (found.confidence >= 0.95) == (stale == 0)


@pytest.mark.parametrize(("unset", "cause"), [(1.0, "running statistics not updated"), (0.0, "labels shifted")])
def test_a_mean_and_a_deviation_that_nothing_moved_explain_evaluations_below_a_guess(unset: float, cause: str) -> None:
    columns = {
        "loss": every(FALLS),
        "val_loss": (EVALUATIONS, np.linspace(3.0, 3.6, 10)),
        "model/rows_again": every(np.zeros(ROWS)),
        "model/unset_buffers": every(np.full(ROWS, unset)),
    }
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=8.0))["evaluation_below_guess"]
    assert found.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("began", "again_from", "says"),
    [(3.3, 130, True), (2.3, 130, False), (3.3, 90, False)],  # memorized, or it may be
)
def test_an_evaluation_that_was_far_above_a_guess_before_examples_came_again_is_not_memorized(
    began: float, again_from: int, says: bool
) -> None:
    at = 120 + 30 * np.arange(9)
    again = every((again_from <= STEP).astype(float))
    columns = {"loss": every(FALLS), "val_loss": (at, np.linspace(began, 3.6, 9)), "model/rows_again": again}
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=8.0))
    assert ("evaluation_below_guess" in found) == says


@pytest.mark.parametrize(
    ("evaluated", "train", "figures", "says"),
    [
        (1.07, 0.85, {}, True),
        (1.005, 0.85, {}, False),  # a guess
        (1.07, 0.95, {}, False),  # little learnt
        (1.07, 0.85, {"target_shift": math.nan}, False),  # classes, whose shares may differ
        (1.07, 0.85, {"passes_without_gradients": math.nan}, False),  # an average that hardly moves
        (1.07, 0.85, {"rows_again": 0.3}, False),  # it may be memorized
    ],
)
def test_new_texts_are_learnt_while_those_of_the_evaluation_stay_above_a_guess(
    evaluated: float, train: float, figures: dict[str, float], says: bool
) -> None:
    guess = math.log(64)
    seen = {"target_shift": 1.0, "rows_again": 0.0, "passes": 1.0, "passes_without_gradients": 1.0} | figures
    columns = {f"model/{name}": every(np.full(ROWS, value)) for name, value in seen.items() if value == value}
    columns["loss"] = every(guess * (train + 0.2 * np.exp(-STEP / 10)))
    columns["val_loss"] = EVALUATIONS, guess * evaluated * np.linspace(1, 1.01, 10)
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=64.0))
    assert ("evaluation_below_guess" in found) is says


@pytest.mark.parametrize("itself", [True, False])
def test_an_evaluation_of_another_model_blames_the_average_first(itself: bool) -> None:
    columns = {"loss": every(FALLS), "val_loss": (EVALUATIONS, np.linspace(3.6, 3.5, 10)),
               "model/rows_again": every(np.zeros(ROWS)), "model/passes": every(np.ones(ROWS))}  # fmt: skip
    columns |= of_graph(loss_reversed=0.0, loss_classes=8.0)
    columns |= of_graph(passes_without_gradients=1.0) if itself else {}
    cause = warned(columns)["evaluation_below_guess"].causes[0]
    assert cause.startswith("averaged weights not updated") != itself


@pytest.mark.parametrize(
    ("times", "classes", "causes"),
    [
        (50.0, 0.0, ["targets not scaled", "labels shifted"]),
        (2.0, 0.0, ["labels shifted", "targets not scaled"]),
        (2.0, 8.0, ["labels shifted"]),
    ],
)
def test_an_evaluation_of_numbers_far_above_the_first_loss_has_them_in_another_scale(
    times: float, classes: float, causes: list[str]
) -> None:
    loss = 2.1 * np.exp(-STEP / 30) + 0.05
    columns = {"loss": every(loss), "val_loss": (EVALUATIONS, times * loss[0] * np.linspace(1, 1.1, 10)),
               "model/rows_again": every(np.zeros(ROWS))}  # fmt: skip
    found = warned(columns | of_graph(loss_reversed=0.0, loss_classes=classes))
    assert [cause.partition(":")[0] for cause in found["evaluation_below_guess"].causes] == causes


@pytest.mark.parametrize(
    ("same", "moved", "pairs", "says"), [(1.0, 0.01, 8.0, True), (0.0, 0.01, 8.0, False), (1.0, 0.0, 8.0, False),
                                         (1.0, 0.01, 1.0, False)],
)  # fmt: skip
def test_keys_of_what_the_queries_are_of_may_be_the_same_views(
    same: float, moved: float, pairs: float, says: bool
) -> None:
    columns = {"loss": every(FALLS), "val_loss": (EVALUATIONS, np.linspace(3.6, 3.5, 10)),
               "model/rows_again": every(np.zeros(ROWS)), "model/other_same_input": every(np.full(ROWS, same)),
               "model/other_moved": every(np.full(ROWS, moved))}  # fmt: skip
    columns |= of_graph(loss_reversed=0.0, loss_classes=8.0, loss_pairs=pairs, passes_without_gradients=1.0)
    cause = warned(columns)["evaluation_below_guess"].causes[0]
    assert cause.startswith("views are the same") == says


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("evaluation", "again", "averaged", "says"),
    [
        (np.linspace(0.76, 1.2, 10), 0.0, 0.0, True),
        (np.linspace(0.76, 1.2, 10), 1.0, 0.0, False),  # pairs that came often may be memorized
        (np.linspace(0.66, 1.2, 10), 0.0, 0.0, False),  # it was better than a guess: overfitting
        (np.r_[0.69, 0.70, np.linspace(0.75, 1.2, 8)], 0.0, 0.0, False),  # no worse, before they came again
        (np.linspace(0.76, 1.2, 10), 0.0, None, False),  # no preference
    ],
)
def test_pairs_that_are_swapped_in_one_of_the_two_are_worse_than_indifference_from_the_first(
    evaluation: np.ndarray, again: float, averaged: float | None, says: bool, rows: int
) -> None:
    falls = np.log(2) * (0.4 + 0.6 * np.exp(-STEP / 60))
    columns = {
        "train/loss": every(falls), "eval/loss": (STEP[19::40], evaluation),
        "model/rows_again": (STEP[1::10], np.where(STEP[1::10] > 100, 0.6, again)),
        **of_graph(softmax_twice=0.0, loss_reversed=0.0, output_width=24.0),
    }  # fmt: skip
    if averaged is not None:
        columns |= of_graph(preference_averaged=averaged)
    found = warned(columns, rows)
    assert ("evaluation_below_guess" in found) == says
    assert not says or found["evaluation_below_guess"].causes[0].startswith("pairs swapped")


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("other", "says"),
    [({}, True), ({"other_asked": 1.0, "other_moved": 0.1}, False), ({"other_asked": 0.0, "other_moved": 0.1}, True),
     ({"other_asked": 1.0, "other_moved": 0.0}, True)],
)  # fmt: skip
def test_what_a_target_network_makes_grows_and_has_no_guess(other: dict, says: bool, rows: int) -> None:
    columns = {
        "train/loss": every(1.0 * (0.12 + 0.88 * np.exp(-STEP / 20))),
        "eval/loss": (STEP[19::40], 3.5 + 0.1 * np.sin(np.arange(10))),
        "model/rows_again": (STEP[1::10], np.zeros(ROWS // 10)), **of_graph(loss_reversed=0.0, **other),
    }  # fmt: skip
    assert ("evaluation_below_guess" in warned(columns, rows)) == says


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("share", "first"), [(-0.6, "sign reversed"), (0.6, "labels shifted")])
def test_targets_that_are_minus_the_noise_are_no_average_that_is_behind(share: float, first: str, rows: int) -> None:
    columns = {
        "train/loss": every(1.0 * (0.12 + 0.88 * np.exp(-STEP / 20))),
        "eval/loss": (STEP[19::40], 3.5 - 1.8 * np.exp(-np.arange(10) / 2)),
        "model/rows_again": (STEP[1::10], np.zeros(ROWS // 10)), "model/passes": (STEP[::10], np.ones(ROWS // 10)),
        "model/noise_target": (STEP[::10], np.ones(ROWS // 10)),
        "model/noise_share": (STEP[::10], np.full(ROWS // 10, share)), **of_graph(loss_reversed=0.0),
    }  # fmt: skip
    found = warned(columns, rows)
    causes = [one for one in found["evaluation_below_guess"].causes if not one.startswith("averaged")]
    assert causes[0].startswith(first) and "average_behind" not in found


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("evaluation", "normed", "first"),
    [
        (np.linspace(3.1, 9.0, 10), True, "batch norm's statistics"),
        (np.linspace(3.1, 9.0, 10), False, "averaged weights not updated"),
        (np.linspace(2.15, 2.2, 10), True, "averaged weights not updated"),  # as it was drawn
    ],
)
def test_an_average_without_the_buffers_is_far_worse_than_one_that_is_as_it_was_drawn(
    evaluation: np.ndarray, normed: bool, first: str, rows: int
) -> None:
    columns = {
        "train_loss": every(FALLS / FALLS[0] * np.log(6)), "val_loss": (STEP[19::40], evaluation),
        "model/rows_again": (STEP[1::10], np.zeros(ROWS // 10)), "model/passes": (STEP[::10], np.ones(ROWS // 10)),
        **of_graph(softmax_twice=0.0, loss_reversed=0.0, loss_classes=6.0),
    }  # fmt: skip
    if normed:
        columns |= of_graph(norm_momentum=0.1)
    assert warned(columns, rows)["evaluation_below_guess"].causes[0].startswith(first)


@pytest.mark.parametrize(("twice", "says"), [(None, True), (0.0, True), (1.0, False)])
def test_a_second_softmax_makes_all_classes_about_as_likely_and_is_no_noise_in_labels(
    twice: float | None, says: bool
) -> None:
    steps = STEP[80::80]
    columns = {
        "train/loss": (STEP, 2.1 + 1.8 * np.exp(-STEP / 80)), "eval/loss": (steps, 1.6 + 1.8 * np.exp(-steps / 80)),
        "model/noise_floor": (STEP[::10], np.full(len(STEP[::10]), 0.2)),
        "model/logit_range": (STEP[::10], np.full(len(STEP[::10]), 6.0)),
        **of_graph(passes=1.0, backwards=1.0, loss_weight=1.0, **({} if twice is None else {"softmax_twice": twice})),
    }  # fmt: skip
    assert ("noisy_labels" in warned(columns)) == says


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("noisy", "passes", "weight"),
    [(True, 1.0, 1.0), (False, 1.0, 1.0), (True, 3.0, 1.0), (False, 1.0, 18.0), (True, 1.0, 18.0)],
)
def test_a_loss_of_every_fifth_step_that_falls_is_above_a_later_evaluation_without_noise_in_its_labels(
    noisy: bool, passes: float, weight: float, rows: int
) -> None:
    """passes: attacks take some, too; weight: a sum over so many targets is no noise in them."""
    steps, logged = STEP[80::80], STEP[::5]
    falls = 1.6 + 1.8 * np.exp(-logged / 80) + (0.5 if noisy else 0.0)
    columns = {
        "train/loss": (logged, weight * falls), "eval/loss": (steps, 1.6 + 1.8 * np.exp(-steps / 80)),
        "model/noise_floor": (STEP[::10], np.full(len(STEP[::10]), 0.2)),
        "model/logit_range": (STEP[::10], np.full(len(STEP[::10]), 6.0)),
        **of_graph(passes=passes, backwards=1.0, loss_weight=weight),
    }  # fmt: skip
    assert ("noisy_labels" in warned(columns, rows)) == (noisy and passes == 1)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("known", "again", "right", "says"),
    [(64.0, 1.0, 0.17, False), (64.0, 0.1, 0.17, True), (4000.0, 1.0, 0.17, True), (64.0, 1.0, 0.02, True)],
)
def test_a_guess_in_evaluations_is_no_other_label_where_a_few_examples_are_known_by_heart(
    known: float, again: float, right: float, says: bool, rows: int
) -> None:
    dice, steps = np.random.default_rng(4), STEP[::40]
    columns = {
        "train_loss": every(FALLS * np.exp(-STEP / 40)),
        "val_loss": (steps, 2.8 + 0.1 * dice.normal(size=10)), "val_accuracy": (steps, np.full(10, right)),
        "model/rows_again": (STEP[::10], np.full(len(STEP[::10]), again)),
        **of_graph(output_width=6.0, class_targets=1.0, distinct_rows=known),
    }  # fmt: skip
    assert ("other_labels" in warned(columns, rows)) == says
