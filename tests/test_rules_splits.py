"""Labels of training and evaluation that differ: classes that one of them lacks, splits without a shuffle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rule_columns import findings
from test_rules_objective import EVALUATIONS, FALLS, ROWS, STEP, every, of_graph, warned

from barograph.core.roles import plays
from barograph.doctor.rules.data.trained_rows import EvaluationExamples


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("share", "accuracy", "loss", "told"),
    [(1.0, 0.1, 1e-3, True), (1.0, 0.9, 1e-3, False), (1.0, 0.1, 1.0, False), (0.97, 0.1, 1e-3, False)],
    ids=["another part of the file", "one class in both", "not learnt yet", "a few others"],
)
def test_a_training_of_one_class_whose_evaluation_has_others_was_split_without_a_shuffle(
    share: float, accuracy: float, loss: float, told: bool, rows: int
) -> None:
    looks = np.arange(10)  # where the loss is next to 0 nothing follows of it
    columns = {"model/top_target_share": (looks, np.full(10, share)), "model/top_target": (looks, np.full(10, 3.0)),
               "model/class_targets": (looks, 32.0 * np.arange(1, 11)), "loss": every(np.full(ROWS, loss)),
               "test_acc": (EVALUATIONS, np.full(10, accuracy))}  # fmt: skip
    found = warned(columns | of_graph(output_width=5.0), rows)
    assert ("one_class" in found) is told
    assert not told or found["one_class"].causes[0].startswith("split not shuffled")
    assert "one_class" not in warned(columns | of_graph(output_width=5.0, loss_queue=4.0), rows)


@pytest.mark.parametrize(
    ("which", "missing", "accuracy", "cause"),
    [(7, 1, 0.13, "labels shifted"), (7, 1, 0.0, "split not shuffled"), (0, 1, 0.0, "labels shifted"),
     (3, 1, 0.13, "split not shuffled"), (7, 2, 0.2, "split not shuffled"), (7, 1, 0.85, None), (7, 2, 0.7, None)],
)  # fmt: skip
def test_missing_classes_explain_their_own_share_of_an_evaluations_errors_alone(
    which: int, missing: int, accuracy: float, cause: str | None
) -> None:
    looks = np.arange(0, ROWS, 10)
    figures = {"untargeted_classes": missing, "untargeted_class": which, "top_target_share": 0.3}
    columns = {f"model/{name}": (looks, np.full(len(looks), float(value))) for name, value in figures.items()}
    columns |= {"model/class_targets": (looks, 64.0 * np.arange(1, 41)), "loss": every(0.1 * FALLS),
                "test_acc": (EVALUATIONS, np.full(10, accuracy))}  # fmt: skip
    found = warned(columns | of_graph(output_width=8.0))
    assert ("missing_classes" in found) is (cause is not None)
    assert not cause or found["missing_classes"].causes[0].startswith(cause)
    assert "missing_classes" not in warned(columns | of_graph(output_width=8.0), config={"curriculum": "competence"})


@pytest.mark.parametrize(("apart", "told"), [(1.0, False), (1.5, True)])
def test_an_evaluations_loss_is_compared_with_the_trainings_of_that_step(apart: float, told: bool) -> None:
    """An output for each number that may be counted, of which the small ones never are, in data that no epoch ends:
    between two evaluations the training's loss falls by a third."""
    falls = 3 * np.exp(-STEP / 100)
    columns = {"loss": every(falls), "val_loss": (EVALUATIONS, apart * falls[EVALUATIONS])}
    figures = {"untargeted_classes": 4.0, "top_target_share": 0.4}
    looks = np.arange(37, ROWS, 40)
    columns |= {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in figures.items()}
    columns["model/class_targets"] = looks, 512.0 * np.arange(1, len(looks) + 1)
    assert ("missing_classes" in warned(columns | of_graph(output_width=11.0))) is told


@pytest.mark.parametrize(
    ("which", "accuracy", "rises", "cause"),
    [(0, 0.02, 1.0, "labels shifted"), (0, 0.5, 1.0, "rare class missing"), (3, 0.02, 1.0, "split not shuffled"),
     (0, 0.02, 0.0, None)],
)  # fmt: skip
def test_labels_that_begin_at_one_are_seen_before_the_training_has_learnt_half(
    which: int, accuracy: float, rises: float, cause: str | None
) -> None:
    looks = np.arange(0, ROWS, 10)
    figures = {"untargeted_classes": 1.0, "untargeted_class": which, "top_target_share": 0.6}
    columns = {f"model/{name}": (looks, np.full(len(looks), float(value))) for name, value in figures.items()}
    columns |= {"model/class_targets": (looks, 64.0 * np.arange(1, 41)), "loss": every(1.1 * np.ones(ROWS)),
                "val_loss": (EVALUATIONS, 3 + rises * np.linspace(0, 2, 10)),
                "test_acc": (EVALUATIONS, np.full(10, accuracy))}  # fmt: skip
    found = warned(columns | of_graph(output_width=6.0)).get("missing_classes")
    assert (found is not None) is (cause is not None)
    assert not found or not cause or found.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("which", "evaluated", "cause"),
    [(0, 5.0, "labels shifted"), (3, 5.0, "rare class missing"), (0, 0.3, None), (0, 1.5, "rare class missing")],
)
def test_labels_that_begin_at_one_are_told_by_the_evaluations_loss_where_no_accuracy_is_logged(
    which: int, evaluated: float, cause: str | None
) -> None:
    looks = np.arange(0, ROWS, 10)
    figures = {"untargeted_classes": 1.0, "untargeted_class": which, "top_target_share": 0.6}
    columns = {f"model/{name}": (looks, np.full(len(looks), float(value))) for name, value in figures.items()}
    columns |= {"model/class_targets": (looks, 64.0 * np.arange(1, 41)), "loss": every(0.2 * FALLS),
                "val_loss": (EVALUATIONS, evaluated + (evaluated > 1) * np.linspace(0, 0.4, 10)),
                "val_f1": (EVALUATIONS, np.full(10, 0.02))}  # fmt: skip
    found = warned(columns | of_graph(output_width=5.0)).get("missing_classes")
    assert (found is not None) is (cause is not None)
    assert not found or not cause or found.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("first", "accuracy", "told"), [(1.0, None, True), (1.0, 0.05, True), (1.0, 0.6, False), (0.9, None, False)]
)
def test_an_evaluation_that_was_never_better_than_a_guess_may_have_begun_at_one(
    first: float, accuracy: float | None, told: bool
) -> None:
    guess = np.log(6)
    falls = np.where(STEP < 60, guess, 0.5 * guess) + 0.01 * np.sin(STEP)
    evaluated = guess * np.array([first, *np.linspace(1.3, 1.9, len(EVALUATIONS) - 1)])
    looks = np.arange(0, ROWS, 10)
    columns = {"loss": every(falls), "val_loss": (EVALUATIONS, evaluated)}
    columns |= {f"model/{name}": (looks, np.zeros(len(looks))) for name in ("rows_again", "softmax_twice")}
    if accuracy is not None:
        columns["val_top1"] = EVALUATIONS, np.full(len(EVALUATIONS), accuracy)
    assert ("evaluation_below_guess" in warned(columns | of_graph(output_width=6.0))) is told


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("test_acc", True), ("eval/acc", True), ("valid/accuracy", True), ("dev_acc", True), ("val/top1", True),
     ("val_acc@1", True), ("acc/val", True), ("train_acc", False), ("acc", False), ("eval/mean_token_accuracy", False),
     ("eval_rewards/accuracies", False), ("val_acceleration", False), ("test_top5", False)],
)  # fmt: skip
def test_an_accuracy_of_an_evaluation_is_known_by_its_name(name: str, is_one: bool) -> None:
    assert plays("eval_accuracy", name) is is_one


@pytest.mark.parametrize(
    ("config", "norm", "told"),
    [({"mc_dropout_samples": 8}, False, False), ({"uncertainty": {"method": "Monte Carlo dropout"}}, False, False),
     ({"eval": {"use_mc_dropout": True}}, False, False), ({"mc_dropout": False}, False, True),
     ({"mc_dropout": True}, True, True), ({"dropout": 0.2}, False, True)],
)  # fmt: skip
@pytest.mark.parametrize("name", ["training_in_evaluation", "dropout_in_evaluation"])
def test_predictions_that_are_drawn_with_dropout_are_meant_where_the_configuration_says_so(
    config: dict, norm: bool, told: bool, name: str
) -> None:
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS),
               f"model/{name}": (EVALUATIONS + 1, np.ones(10))}  # fmt: skip
    columns |= of_graph(norm_momentum=0.1) if norm else {}
    assert ("model_mode" in warned(columns, config=config)) is told


@pytest.mark.parametrize("metric", ["val_acc", "val_loss"])
def test_an_evaluation_with_an_accuracy_alone_is_one(metric: str) -> None:
    columns = {metric: (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS),
               "model/training_in_evaluation": (EVALUATIONS + 1, np.ones(10))}  # fmt: skip
    figures = {"evaluated_trained": 0.4, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{name}": (EVALUATIONS + 1, np.full(10, value)) for name, value in figures.items()}
    columns |= of_graph(distinct_rows=3200.0, example_rows=32.0)
    assert {"model_mode", "evaluation_examples"} <= warned(columns).keys()


@pytest.mark.parametrize(("share", "severity"), [(0.4, "warning"), (0.08, "info"), (0.03, None)])
def test_few_rows_of_an_evaluation_that_were_trained_on_inform(share: float, severity: str | None) -> None:
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": share, "evaluated_rows": 128.0, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{name}": (EVALUATIONS + 1, np.full(10, value)) for name, value in figures.items()}
    columns |= of_graph(distinct_rows=3200.0, example_rows=32.0)
    told = [one.severity for one in findings([EvaluationExamples()], columns).values()]
    assert told == ([severity] if severity else [])


@pytest.mark.parametrize("cuts", [(), (100, 300)])
@pytest.mark.parametrize(
    ("shares", "rows", "told"),
    [([0.3], 128.0, True), ([0.2], 128.0, False), ([0.3], 32.0, False), ([0.3, 0.0], 128.0, False)],
)
def test_the_only_evaluation_of_a_run_is_enough_where_many_of_its_rows_were_trained_on(
    shares: list[float], rows: float, told: bool, cuts: tuple[int, ...]
) -> None:
    at = EVALUATIONS[: len(shares)]
    columns = {"val_loss": (at, np.full(len(at), 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": shares, "evaluated_rows": rows, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{name}": (at + 1, np.zeros(len(at)) + value) for name, value in figures.items()}
    columns |= of_graph(distinct_rows=3200.0, example_rows=32.0)
    assert [one.severity for one in findings([EvaluationExamples()], columns, cuts=cuts).values()] == ["warning"] * told


@pytest.mark.parametrize(
    ("again", "later", "severity"),
    [(0.0, 0.0, "warning"), (0.0, 0.9, "warning"), (0.04, 0.04, "info"), (0.004, 0.004, "warning")],
)
def test_rows_that_come_in_both_by_chance_inform(again: float, later: float, severity: str) -> None:
    """As in texts so short that the training's own come twice; what repeats in later epochs says nothing of it."""
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.14, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{name}": (EVALUATIONS + 1, np.full(10, value)) for name, value in figures.items()}
    looks = np.arange(1, EVALUATIONS[-1], 5)
    shares = np.where(np.arange(len(looks)) < 8, again, later)
    figures = {"rows_again": shares, "example_rows": 16.0, "distinct_rows": 16.0 * np.arange(1, len(looks) + 1)}
    columns |= {f"model/{name}": (looks, values + 0.0 * looks) for name, values in figures.items()}
    assert [one.severity for one in findings([EvaluationExamples()], columns).values()][:1] == [severity]


@pytest.mark.parametrize(
    ("share", "again", "later", "severity"),
    [(0.14, 0.0, 0.0, "warning"), (0.14, 0.0, 1.0, "warning"), (0.14, 0.1, 0.1, "info"), (0.35, 0.2, 0.2, "info"),
     (0.9, 0.1, 0.1, "warning"), (0.03, 0.0, 0.0, None)],
)  # fmt: skip
def test_rows_that_were_trained_on_in_any_step_are_told_where_chance_does_not_bring_them(
    share: float, again: float, later: float, severity: str | None
) -> None:
    """Also where none of the steps that were looked at had them."""
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.0, "evaluated_rows": 64.0, "evaluated_trained_passes": 0.0,
               "evaluated_known": share, "evaluated_known_passes": 1.0, "evaluated_known_of": 1600.0}  # fmt: skip
    columns |= {f"model/{name}": (EVALUATIONS + 1, np.full(10, value)) for name, value in figures.items()}
    looks = np.arange(10, EVALUATIONS[-1], 10)
    count = np.arange(1, len(looks) + 1)
    figures = {
        "between_rows": 144.0,
        "between_again": np.where(count < 9, again, later),
        "between_known": 144.0 * count,
    }
    columns |= {f"model/{name}": (looks, values + 0.0 * looks) for name, values in figures.items()}
    columns |= of_graph(distinct_rows=320.0, example_rows=16.0)
    assert [one.severity for one in findings([EvaluationExamples()], columns).values()][:1] == [severity] * bool(
        severity
    )


@pytest.mark.parametrize(("again", "severity"), [(0.0, "warning"), (1 / 24, "info")])
def test_rows_of_a_step_s_other_passes_say_what_chance_gives_too(again: float, severity: str) -> None:
    """As of micro-batches of a few rows, of which the first alone hardly ever have one that came before."""
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"evaluated_trained": 0.14, "evaluated_rows": 64.0, "evaluated_trained_passes": 1.0}
    columns |= {f"model/{name}": (EVALUATIONS + 1, np.full(10, value)) for name, value in figures.items()}
    looks = np.arange(0, EVALUATIONS[-1], 5)
    count = np.arange(1, len(looks) + 1)
    figures = {"rows_again": 0.0, "example_rows": 4.0, "distinct_rows": 4.0 * count, "beside_rows": 12.0,
               "beside_again": again, "beside_distinct": 12.0 * count}  # fmt: skip
    columns |= {f"model/{name}": (looks, values + 0.0 * looks) for name, values in figures.items()}
    assert [one.severity for one in findings([EvaluationExamples()], columns).values()][:1] == [severity]


@pytest.mark.parametrize(
    ("dropout", "of_batch", "noise", "cause"),
    [(1.0, 0.0, 0.0, "dropout left on"), (0.0, 1.0, 0.0, "batch norm left in training mode"),
     (0.0, 0.0, 1.0, "randomness in evaluation"), (0.0, 0.0, 0.0, None)],
)  # fmt: skip
def test_functions_of_the_wrong_mode_are_named_as_what_they_are(
    dropout: float, of_batch: float, noise: float, cause: str | None
) -> None:
    columns = {"val_loss": (EVALUATIONS, np.full(10, 0.7)), "loss": every(FALLS)}
    figures = {"dropout_in_evaluation": dropout, "batch_statistics_in_evaluation": of_batch}
    figures |= {"noise_in_evaluation": noise}
    columns |= {f"model/{name}": (EVALUATIONS[:1], np.full(1, value)) for name, value in figures.items()}
    found = warned(columns).get("model_mode")
    assert (found.causes[0].split(":")[0] if found is not None else None) == cause


@pytest.mark.parametrize(
    ("copies", "figures", "cause"),
    [
        (0.5, {"loss_pairs": 64.0}, "views are the same"),
        (0.5, {"loss_pairs": 64.0, "dropout": 0.1}, None),
        (0.5, {}, "copied examples"),
        (0.75, {"loss_pairs": 64.0}, "copied examples"),
        (0.0, {"loss_pairs": 64.0, "beside_copies": 1.0}, "views are the same"),
        (0.0, {"loss_attracts": 1.0, "beside_copies": 1.0}, "views are the same"),
        (0.0, {"loss_attracts": 1.0, "beside_copies": 1.0, "dropout": 0.1}, None),
        (0.0, {"loss_pairs": 64.0, "beside_copies": 0.0}, None),
        (0.0, {"beside_copies": 1.0}, None),  # the same batch twice, as of a step that looks around
    ],
)
def test_views_that_are_the_same_are_told_from_copies(copies: float, figures: dict[str, float], cause: str) -> None:
    looks = np.arange(10)
    found = warned({"model/batch_copies": (looks, np.full(10, copies))} | of_graph(**figures))
    assert ("copied_examples" in found) is (cause is not None)
    assert not cause or found["copied_examples"].causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("figures", "count", "is_found"),
    [
        ({"loss_pairs": 64.0}, 3, True),
        ({"loss_pairs": 64.0}, 2, False),
        ({"loss_pairs": 2.0}, 9, False),
        ({}, 9, False),
    ],
)
def test_a_last_batch_of_one_is_found_where_a_loss_tells_examples_apart(
    figures: dict[str, float], count: int, is_found: bool
) -> None:
    columns = {"model/lone_rows": (20 * np.arange(1, 1 + count), np.full(count, 2.0))} | of_graph(**figures)
    found = warned(columns)
    assert [one.step for one in found.values()] == ([20] if is_found else [])


@pytest.mark.parametrize(
    ("trained", "evaluated", "cause"),
    [((-1.8, 0.02), (-0.2, 0.95), "inputs normalised twice"), ((120.0, 60.0), (0.0, 1.0), "inputs not normalised"),
     ((-0.4, 1.1), (0.4, 0.2), "inputs not normalised")],
)  # fmt: skip
def test_inputs_of_the_training_that_are_normalised_once_more_are_said_to_be(
    trained: tuple[float, float], evaluated: tuple[float, float], cause: str
) -> None:
    looks = np.arange(0, ROWS, 10)
    columns = {"loss": every(0.1 * FALLS), "val_loss": (EVALUATIONS, np.full(10, 2.0))}
    for at, name in enumerate(("mean", "std")):
        columns[f"model/input_{name}"] = looks, np.full(len(looks), trained[at])
        columns[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(10, evaluated[at])
    assert warned(columns)["evaluation_inputs"].causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("low", "lows", "mean", "says"),
    [
        (-2.1, 0.01, -0.65, True),
        (-1.64, 0.01, -0.65, False),  # darker pictures, of the same black
        (-2.1, 0.2, -0.65, False),  # the training's have none in common
        (-2.1, 0.01, -0.1, False),
        (math.nan, 0.01, -0.65, False),  # no pictures
    ],
)
def test_pictures_below_a_black_that_all_of_the_training_share_were_normalised_otherwise(
    low: float, lows: float, mean: float, says: bool
) -> None:
    looks = np.arange(0, ROWS, 10)
    columns = {"loss": every(0.1 * FALLS), "val_loss": (EVALUATIONS, np.full(10, 2.0))}
    ours = {"mean": 0.02, "std": 0.8, "low": -1.64, "high": 2.5}
    for name, value in ours.items():
        shifts = lows * np.random.default_rng(0).random(len(looks)) if name == "low" else 0.0
        columns[f"model/input_{name}"] = looks, value + shifts * np.ones(len(looks))
        theirs = ours | {"mean": mean, "std": 0.7, "low": low, "high": 1.5}
        if theirs[name] == theirs[name]:
            columns[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(10, theirs[name])
    assert ("evaluation_inputs" in warned(columns)) is says


@pytest.mark.parametrize(
    ("first", "last", "worse", "says"),
    [
        (-0.6, 0.45, 2.0, True),
        (-0.6, 0.35, 2.0, False),  # not a deviation apart
        (0.6, 0.45, 2.0, False),  # both the same way, as of another brightness
        (-0.8, 0.3, 2.0, False),
        (-0.6, 0.45, 1.2, False),  # the loss is not worse
        (-0.6, math.nan, 2.0, False),
    ],
)
@pytest.mark.parametrize("names", [("first", "last"), ("red", "blue")])
def test_channels_of_an_evaluation_that_are_moved_opposite_ways(
    first: float, last: float, worse: float, says: bool, names: tuple[str, str]
) -> None:
    looks, dice = np.arange(0, ROWS, 10), np.random.default_rng(2)
    columns = {"loss": every(FALLS), "val_loss": (EVALUATIONS, worse * FALLS[EVALUATIONS])}
    for name, value, theirs in (("mean", 0.0, -0.1), ("std", 0.9, 1.05)):
        columns[f"model/input_{name}"] = looks, value * dice.uniform(0.8, 1.2, len(looks))
        columns[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(10, theirs)
    for name, theirs in zip(names, (first, last), strict=True):
        columns[f"model/input_{name}"] = looks, dice.uniform(-0.1, 0.1, len(looks))
        columns[f"model/input_{name}_std"] = looks, np.full(len(looks), 1.0)
        if theirs == theirs:
            columns[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.full(10, theirs)
    assert ("evaluation_inputs" in warned(columns)) is says


@pytest.mark.parametrize("others", [0, 3])
def test_evaluations_of_other_inputs_begin_with_the_first_that_has_them(others: int) -> None:
    looks, worse = np.arange(0, ROWS, 10), np.where(np.arange(10) < 5, 1.0, 3.0)  # the loss shows it later
    columns = {"loss": every(FALLS), "val_loss": (EVALUATIONS, worse * FALLS[EVALUATIONS])}
    for name, value, other in (("mean", 0.0, 0.3), ("std", 1.0, 0.2)):
        columns[f"model/input_{name}"] = looks, np.full(len(looks), value)
        columns[f"model/eval_input_{name}"] = EVALUATIONS + 1, np.where(np.arange(10) < others, value, other)
    assert warned(columns)["evaluation_inputs"].step == int(EVALUATIONS[others]) + 1


@pytest.mark.parametrize(("far", "says"), [(0.0, True), (0.3, True), (1.0, False)])
def test_a_few_batches_far_from_the_others_do_not_hide_other_inputs(far: float, says: bool) -> None:
    looks = np.arange(0, ROWS, 10)
    deviations = np.ones(len(looks)) + 0.02 * np.sin(looks)
    deviations[5::16] += far if says else 0  # one batch in sixteen
    deviations += 0 if says else far * looks / ROWS  # a curriculum
    columns = {"loss": every(FALLS), "eval/loss": (EVALUATIONS, 2 * FALLS[EVALUATIONS]),
               "model/input_std": (looks, deviations), "model/input_mean": (looks, np.zeros(len(looks))),
               "model/eval_input_std": (EVALUATIONS + 1, np.full(10, 0.6)),
               "model/eval_input_mean": (EVALUATIONS + 1, np.full(10, -0.5))}  # fmt: skip
    assert ("evaluation_inputs" in warned(columns)) is says


@pytest.mark.parametrize(("mean", "worse", "says"), [(-1.2, 1.3, True), (-0.8, 1.3, False), (-1.2, 1.1, False)])
def test_inputs_a_whole_deviation_away_need_a_loss_larger_by_a_fifth_alone(
    mean: float, worse: float, says: bool
) -> None:
    looks = np.arange(0, ROWS, 10)
    columns = {"loss": every(FALLS), "eval/loss": (EVALUATIONS, worse * FALLS[EVALUATIONS]),
               "model/input_std": (looks, np.ones(len(looks))), "model/input_mean": (looks, np.zeros(len(looks))),
               "model/eval_input_std": (EVALUATIONS + 1, np.full(10, 0.6)),
               "model/eval_input_mean": (EVALUATIONS + 1, np.full(10, mean))}  # fmt: skip
    assert ("evaluation_inputs" in warned(columns)) is says


@pytest.mark.parametrize(
    ("channels", "mean", "deviation", "says"),
    [(True, -0.8, 1.6, True), (False, -0.8, 1.6, False), (True, -0.3, 1.6, False), (True, -0.8, 1.1, False)],
)
def test_pictures_of_other_mean_and_scale_are_said_whatever_the_loss(
    channels: bool, mean: float, deviation: float, says: bool
) -> None:
    looks = np.arange(0, ROWS, 10)
    columns = {"loss": every(FALLS), "eval/loss": (EVALUATIONS, 0.9 * FALLS[EVALUATIONS]),
               "model/input_std": (looks, np.ones(len(looks))), "model/input_mean": (looks, np.zeros(len(looks))),
               "model/eval_input_std": (EVALUATIONS + 1, np.full(10, deviation)),
               "model/eval_input_mean": (EVALUATIONS + 1, np.full(10, mean))}  # fmt: skip
    if channels:
        columns["model/eval_input_red"] = EVALUATIONS + 1, np.full(10, mean)
    assert ("evaluation_inputs" in warned(columns)) is says


@pytest.mark.parametrize(("mean", "deviation", "says"), [(-1.7, 2.4, True), (-0.3, 2.4, False), (-1.7, 1.5, False)])
def test_inputs_beyond_all_that_the_training_had_are_other_ones_though_those_vary(
    mean: float, deviation: float, says: bool
) -> None:
    looks = np.arange(0, ROWS, 10)
    varies = 0.9 + 0.25 * np.sin(looks)
    columns = {"loss": every(FALLS), "eval/loss": (EVALUATIONS, 3 * FALLS[EVALUATIONS]),
               "model/input_std": (looks, varies), "model/input_mean": (looks, 0.05 * np.cos(looks)),
               "model/eval_input_std": (EVALUATIONS + 1, np.full(10, deviation)),
               "model/eval_input_mean": (EVALUATIONS + 1, np.full(10, mean))}  # fmt: skip
    assert ("evaluation_inputs" in warned(columns)) is says
