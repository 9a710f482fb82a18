"""Objectives that can't be meant, a policy's logged parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.finding import Finding

ROWS = 400
STEP = np.arange(ROWS)
DICE = np.random.default_rng(3)
FALLS = 2.3 * np.exp(-STEP / 60) + 0.3 + 0.02 * DICE.normal(size=ROWS)
FLAT = np.log(8) + 0.02 * DICE.normal(size=ROWS)
EVALUATIONS = np.arange(39, ROWS, 40)


def warned(
    columns: Mapping[str, tuple[np.ndarray, np.ndarray]], rows: int = ROWS, config: Mapping[str, Any] | None = None
) -> dict[str, Finding]:
    """Findings by rule of a run that was examined whenever so many steps had come."""
    examiner = Examiner(facts={"config": dict(config)} if config else {})
    for low in range(0, ROWS, rows):
        for name, (step, values) in columns.items():
            here = (step >= low) & (step < low + rows)
            if here.any():
                examiner.seen.add(name, step[here], np.asarray(values, float)[here], step[here] * 1_000_000)
        examiner.examine()
    examiner.seen.facts["finished"] = True
    examiner.catch_up()
    return {finding.rule: finding for finding in examiner.findings if finding.severity != "info"}


def up_to(columns: Mapping[str, tuple[np.ndarray, np.ndarray]], end: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The columns of a run that is over by then."""
    return {name: (step[step < end], np.asarray(values)[step < end]) for name, (step, values) in columns.items()}


def of_graph(**figures: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"model/{name.replace('__', '/')}": (np.array([0]), np.array([value])) for name, value in figures.items()}


def every(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return STEP, values


@pytest.mark.parametrize("evaluation", [None, 4.0, 120.0])
def test_a_sum_of_pairs_is_no_temperature_where_an_evaluation_has_the_mean(evaluation: float | None) -> None:
    columns = {"train/loss": every(120 * FALLS), **of_graph(loss_pairs=64.0)}
    if evaluation is not None:
        columns["eval/loss"] = STEP[::40], np.full(ROWS // 40, evaluation)
    assert ("pair_temperature" in warned(columns)) == (evaluation != 4.0)


@pytest.mark.parametrize("rows", [7, ROWS])
def test_pairs_that_do_not_belong_together_are_known_after_fewer_rows(rows: int) -> None:
    loss = np.log(64) + 0.02 * DICE.normal(size=ROWS)
    here = slice(0, 190)
    columns = {"loss": (STEP[here], loss[here]), **of_graph(loss_pairs=64.0, update_p50=1e-3)}
    found = warned(columns, rows)
    assert found["unrelated_labels"].causes[0].startswith("labels shifted: the two sides")
    columns = {"loss": (STEP[here], loss[here]), **of_graph(loss_classes=64.0, update_p50=1e-3)}
    assert "unrelated_labels" not in warned(columns, rows)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("every_few", "counted", "length", "found"),
    [(2, 1.0, 190, True), (2, None, 190, False), (2, 0.5, 190, False), (2, 1.0, 110, False), (5, 1.0, 190, False),
     (5, 1.0, 400, True)],
)  # fmt: skip
def test_rows_of_several_steps_of_the_optimizer_are_as_many_fewer(
    every_few: int, counted: float | None, length: int, found: bool, rows: int
) -> None:
    step = np.arange(0, length, every_few)
    columns = {"loss": (step, np.log(64) + 0.02 * np.random.default_rng(4).normal(size=len(step)))}
    columns |= of_graph(loss_pairs=64.0, update_p50=1e-3)
    if counted is not None:
        columns["model/optimizer_age"] = STEP[: length - 10 : 10], STEP[: length - 10 : 10] * counted
    assert ("unrelated_labels" in warned(columns, rows)) == found


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("learns", "found"), [(150, False), (260, False), (ROWS, True)])
def test_a_training_that_stays_at_a_guess_and_learns_in_the_end_is_well(learns: int, found: bool, rows: int) -> None:
    loss = np.log(64) - 1.5 * (1 - np.exp(-np.maximum(STEP - learns, 0) / 40)) + 0.02 * DICE.normal(size=ROWS)
    for name in ("loss_pairs", "loss_classes"):
        columns = {"loss": every(loss), **of_graph(**{name: 64.0}, update_p50=1e-3)}
        assert ("unrelated_labels" in warned(columns, rows)) == found


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize("name", ["loss_pairs", "loss_classes"])
@pytest.mark.parametrize(
    ("evaluated", "found"),
    [(np.log(32) + np.linspace(0.08, 0.05, 8), True), (np.log(32) * np.linspace(1, 0.97, 8), False)],
    ids=["guesses", "comes along"],
)
def test_a_loss_that_falls_slowly_is_learnt_by_heart_where_evaluations_guess(
    name: str, evaluated: np.ndarray, found: bool, rows: int
) -> None:
    loss = np.log(32) * (1.0 - 0.06 * np.clip((STEP - 280) / 120, 0, 1)) + 0.02 * np.random.default_rng(8).normal(
        size=ROWS
    )
    columns = {"loss": every(loss), **of_graph(**{name: 32.0}, update_p50=1e-3)}
    columns["eval/loss"] = np.arange(20, 20 + 45 * 8, 45), evaluated
    told = warned(columns, rows).get("unrelated_labels")
    assert (told is not None) == found
    assert told is None or (told.causes[0].startswith("labels s") and "its own examples" in told.message)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("terms", "given", "passes", "looks", "found"),
    [
        (3, "beside", 1.0, 3, False),  # another loss is added
        (3, "beside", 1.0, 2, True),  # too few looks tell so
        (1, "beside", 1.0, 3, True),  # one term, whatever was logged
        (3, "same", 1.0, 8, True),
        (3, "times", 1.0, 8, True),  # by a loss scale
        (3, "passes", 4.0, 8, True),  # added over micro-batches
        (3, "little", 1.0, 8, True),  # a term of a few hundredths
    ],
)
def test_a_loss_that_is_one_of_several_terms_need_not_be_that_of_the_pairs(
    terms: int, given: str, passes: float, looks: int, found: bool, rows: int
) -> None:
    loss = np.log(32) + 0.02 * np.random.default_rng(6).normal(size=ROWS)
    whole = {"beside": loss + 6.5 * np.exp(-STEP / 150), "same": loss, "times": 1024 * loss, "passes": 4 * loss,
             "little": loss + 0.2 * np.exp(-STEP / 150)}[given]  # fmt: skip
    at = np.linspace(0, 60, looks).astype(int)
    columns = {"train/loss": every(loss), **of_graph(loss_pairs=32.0, update_p50=1e-3, loss_terms=float(terms))}
    columns |= {"model/loss_given": (at, whole[at]), "model/losses_given": (at, np.full(looks, passes))}
    assert ("unrelated_labels" in warned(columns, rows)) == found


@pytest.mark.parametrize(("last", "found"), [(4.79, False), (5.24, True)])  # 200 candidates: a guess has 5.3
def test_an_evaluation_of_more_pairs_that_comes_down_does_not_guess(last: float, found: bool) -> None:
    falls = 0.06 * np.clip((STEP - 280) / 120, 0, 1)
    loss = np.log(32) * (1.0 - falls) + 0.02 * np.random.default_rng(8).normal(size=ROWS)
    columns = {"loss": every(loss), **of_graph(loss_pairs=32.0, update_p50=1e-3)}
    columns["eval/loss"] = STEP[39::40], np.linspace(5.25, last, 10)
    assert ("unrelated_labels" in warned(columns)) == found


@pytest.mark.parametrize("name", ["eval/accuracy", "knn_acc", "val/recall@5", "held/i2t_R@1"])
@pytest.mark.parametrize(("rise", "found"), [(0.15, False), (0.0, True)])
def test_pairs_from_which_neighbours_are_learnt_belong_together(rise: float, found: bool, name: str) -> None:
    loss = np.log(8) + 0.02 * DICE.normal(size=ROWS)
    accuracy = 0.15 + rise * (1 - np.exp(-np.arange(20) / 4)) + 0.008 * np.random.default_rng(2).normal(size=20)
    columns = {"loss": every(loss), **of_graph(loss_pairs=8.0, update_p50=1e-3)}
    columns[name] = STEP[19::20], accuracy
    assert ("unrelated_labels" in warned(columns)) == found


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(("below", "first"), [(0.15, "temperature inverted"), (0.01, "labels shifted")])
def test_pairs_a_little_below_a_guess_all_the_time_have_a_wrong_temperature(
    below: float, first: str, rows: int
) -> None:
    loss = np.log(64) - below + 0.02 * np.random.default_rng(5).normal(size=ROWS)
    columns = {"loss": every(loss), **of_graph(loss_pairs=64.0, update_p50=1e-3)}
    assert warned(columns, rows)["unrelated_labels"].causes[0].startswith(first)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("times", "first"),
    [(64.0, "loss summed"), (128.0, "loss summed"), (30.0, "embeddings"), (2e6, "labels shifted: answers")],
)
def test_a_loss_of_pairs_that_begins_at_n_guesses_is_added_up(times: float, first: str, rows: int) -> None:
    columns = {"loss": every(times * np.log(64) * FALLS / FALLS[0]), **of_graph(loss_pairs=64.0)}
    assert warned(columns, rows)["pair_temperature"].causes[0].startswith(first)
    assert ("pair_temperature" in warned(columns, rows, {"reduction": "sum"})) == (first != "loss summed")


@pytest.mark.parametrize(
    ("times", "adds", "first"),
    [(75.0, 1.0, "loss summed"), (150.0, 1.0, "loss summed"), (75.0, math.nan, "embeddings"), (2e6, 1.0, "labels")],
)
def test_a_sum_of_pairs_that_the_graph_shows_is_the_first_cause(times: float, adds: float, first: str) -> None:
    columns = {"loss": every(times * np.log(64) * FALLS / FALLS[0]), **of_graph(loss_pairs=64.0, loss_adds=adds)}
    assert warned(columns)["pair_temperature"].causes[0].startswith(first)


@pytest.mark.parametrize(("times", "first"), [(83.0, "loss summed"), (30.0, "temperature")])
def test_of_embeddings_of_length_one_a_sum_begins_at_one_to_two_guesses_a_pair(times: float, first: str) -> None:
    columns = {"loss": every(times * np.log(64) * FALLS / FALLS[0]), **of_graph(loss_pairs=64.0, pairs_any_length=0.0)}
    assert warned(columns)["pair_temperature"].causes[0].startswith(first)
    assert ("pair_temperature" in warned(columns, config={"ce_over": "sum"})) == (first != "loss summed")


@pytest.mark.parametrize(
    ("any_length", "causes"),
    [(1.0, ["embeddings not normalised"]), (0.0, ["temperature too low"]),
     (math.nan, ["embeddings not normalised", "temperature too low"])],
)  # fmt: skip
def test_similarities_far_apart_are_laid_to_what_the_graph_says_of_the_embeddings(
    any_length: float, causes: list[str]
) -> None:
    figures = of_graph(loss_pairs=64.0, loss_classes=64.0, loss_undivided=1.0, output_width=8.0)
    columns = {"loss": every(30 * FALLS), **figures}
    if any_length == any_length:
        columns |= of_graph(pairs_any_length=any_length)
    found = warned(columns)
    for rule in ("pair_temperature", "initial_loss"):
        assert [one.partition(":")[0] for one in found[rule].causes][: len(causes)] == causes


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "loss", "rule"),
    [
        ({"loss_reversed": 1.0}, -FALLS, "loss_reversed"),
        ({"loss_reversed": 0.0}, FALLS, None),
        ({"loss_multiplied": 1.0}, -FALLS, "loss_reversed"),
        ({"loss_multiplied": 1.0}, FALLS, None),
        ({"loss_multiplied": 1.0, "nll_of_scores": 1.0}, -FALLS, None),  # below 0 with the right sign
        ({"label_smoothing": 0.9}, FALLS, "label_smoothing"),
        ({"label_smoothing": 0.1}, FALLS, None),
        ({"softmax_over_rows": 1.0}, FALLS, "softmax_over_rows"),
        ({"softmax_over_rows": 2.0}, FALLS, "softmax_over_rows"),
        ({"softmax_over_rows": 3.0}, FALLS, "softmax_over_rows"),
        ({"softmax_over_rows": 0.0}, FALLS, None),
        ({"similarity_to_itself": 1.0, "loss_pairs": 64.0}, 0.01 * FALLS, "same_sides"),
        ({"similarity_to_itself": 1.0, "loss_pairs": 64.0}, 2 * FALLS, "same_sides"),
        ({"similarity_to_itself": 0.0, "loss_pairs": 64.0}, 2 * FALLS, None),
        ({"pairs_repelled": 1.0}, FALLS, "pairs_repelled"),
        ({"pairs_repelled": 0.0}, FALLS, None),
        ({"errors_averaged": 32.0}, FALLS, "errors_averaged"),
        ({"errors_averaged": 2.0}, FALLS, None),  # the middle of a box, say
        ({"focal_of_mean": 1.0}, FALLS, "focal_of_mean"),
        ({"margins_joined": 16.0}, FALLS, "margins_joined"),
        ({"margins_joined": -16.0}, FALLS, "margins_joined"),
        ({"margins_joined": 1.0}, FALLS, None),
        ({"loss_pairs": 64.0}, 30 * FALLS, "pair_temperature"),
        ({"loss_pairs": 64.0, "pairs_unscaled": 1.0}, FALLS, "pair_temperature"),
        ({"loss_pairs": 64.0, "pairs_unscaled": 0.0}, FALLS, None),
        ({"loss_pairs": 64.0, "scale_is_logarithm": 1.0}, FALLS, "pair_temperature"),
        ({"loss_pairs": 64.0, "scale_is_logarithm": 0.0}, FALLS, None),
        ({"loss_pairs": 64.0, "scale_at_start": float(np.float32(np.log(1 / 0.07)))}, FALLS, "pair_temperature"),
        ({"loss_pairs": 64.0, "scale_at_start": float(np.float32(np.log(10)))}, FALLS, "pair_temperature"),
        ({"loss_pairs": 64.0, "scale_at_start": 2.66}, FALLS, None),
        ({"loss_pairs": 64.0, "scale_at_start": 5.0}, FALLS, None),
        ({"loss_pairs": 64.0, "scale_at_start": float(np.float32(1 / 0.3))}, FALLS, None),
        ({"loss_pairs": 64.0, "loss_summed": 64.0}, 30 * FALLS, None),
        ({"loss_crossed": 32.0}, FALLS, "broadcast_targets"),
        ({"loss_crossed": 0.0}, FALLS, None),
        ({"rows_crossed": 32.0, "loss_crossed": 0.0, "example_rows": 32.0}, FALLS, "broadcast_targets"),
        ({"rows_crossed": 96.0, "loss_crossed": 0.0, "example_rows": 64.0}, FALLS, "broadcast_targets"),
        ({"rows_crossed": 0.0, "example_rows": 32.0}, FALLS, None),
        ({"rows_crossed": 2.0, "example_rows": 32.0}, FALLS, None),  # views of an example
        ({"rows_crossed": 3.0, "example_rows": 3.0}, FALLS, None),
        ({"rows_crossed": 32.0}, FALLS, None),  # of how many examples is not known
        ({"loss_classes": 8.0, "update_p50": 1e-3}, FLAT, "unrelated_labels"),
        ({"loss_classes": 8.0, "update_p50": 1e-3}, FLAT + 9 * np.exp(-STEP / 20), None),
        ({"loss_classes": 8.0, "update_p50": 1e-3}, FALLS, None),
        ({"loss_classes": 8.0, "update_p50": 1e-7}, FLAT, None),  # nothing is learnt because nothing moves
    ],
)
def test_what_the_graph_proves_is_said(
    figures: dict[str, float], loss: np.ndarray, rule: str | None, rows: int
) -> None:
    found = warned({"loss": every(loss)} | of_graph(**figures), rows)
    ours = {"loss_reversed", "label_smoothing", "softmax_over_rows", "same_sides", "pair_temperature",
            "broadcast_targets", "unrelated_labels", "pairs_repelled", "margins_joined",
            "errors_averaged", "focal_of_mean"}  # fmt: skip
    assert set(found) & ours == ({rule} if rule else set())


def test_a_critic_whose_targets_are_broadcast_is_found_without_a_loss_of_the_whole() -> None:
    columns = {"critic_loss": every(FALLS), "reward": every(np.sin(STEP))}
    assert "broadcast_targets" in warned(columns | of_graph(loss_crossed=32.0))
    assert "broadcast_targets" not in warned(columns | of_graph(loss_crossed=0.0))


def test_labels_are_not_called_unrelated_first_where_no_gradient_reaches_the_first_layers() -> None:
    columns = {"loss": every(FLAT)} | of_graph(loss_classes=8.0, update_p50=1e-3)
    deep = columns | of_graph(flow_first_last=1e-6)
    assert warned(columns)["unrelated_labels"].causes[0].startswith("labels shuffled")
    assert [cause.partition(":")[0] for cause in warned(deep)["unrelated_labels"].causes[:2]] == [
        "gradients vanish", "labels shuffled",
    ]  # fmt: skip
    blown = warned(deep | {"model/param_norm": every(9.0 * np.minimum(1 + STEP, 40))})["unrelated_labels"]
    assert blown.causes[0].startswith("learning rate too high") and "grown 40 times" in blown.message
    grown = warned(deep | {"model/param_norm": every(9.0 * (1 + STEP / 100))})["unrelated_labels"]  # slowly
    assert grown.causes[0].startswith("gradients vanish")


def test_losses_in_turn_say_nothing_of_a_sign() -> None:
    turns = np.arange(12), np.arange(12) % 2
    assert "loss_reversed" not in warned({"loss": every(-FALLS), "model/loss_reversed": turns})


def test_what_a_reversed_loss_comes_to_is_its_consequence() -> None:
    examiner = Examiner(facts={})
    broken = np.where(STEP < 250, -FALLS * 1.1 ** STEP.astype(float), np.nan)
    for name, (step, values) in ({"loss": every(broken)} | of_graph(loss_reversed=1.0)).items():
        examiner.seen.add(name, step, np.asarray(values, float), step * 1_000_000)
    examiner.seen.facts["finished"] = True
    examiner.catch_up()
    first = examiner.incidents()[0]
    assert first.causes[0].startswith("sign reversed") and "NaN" in first.message


def test_nine_in_ten_targets_of_one_class_are_no_shift_of_labels() -> None:
    looks = np.arange(0, ROWS, 10)
    columns = {
        "loss": every(0.1 * FALLS), "val_loss": (EVALUATIONS, np.linspace(3, 5, 10)),
        "val_acc": (EVALUATIONS, np.full(10, 0.12)),
        "model/top_target_share": (looks, np.full(40, 0.97)), "model/top_target": (looks, np.full(40, 2.0)),
        "model/class_targets": (looks, 32.0 * np.arange(1, 41)),
    }  # fmt: skip
    found = warned(columns | of_graph(output_width=8.0))
    assert "one_class" in found and "other_labels" not in found
    columns["val_loss"] = EVALUATIONS, np.full(10, 0.1)  # an evaluation of the same kind
    assert "one_class" not in warned(columns | of_graph(output_width=8.0))


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("passes", "evaluated", "share", "terms", "told"),
    [(1.0, 0.9, 1.0, 1.0, True), (2.0, 0.9, 1.0, 1.0, False), (1.0, 0.4, 1.0, 1.0, False),
     (1.0, 0.9, 0.97, 1.0, False), (1.0, 0.9, 1.0, 2.0, False)],
    ids=["positives alone", "two players", "margins of pairs", "few negatives", "negatives in another term"],
)  # fmt: skip
def test_a_logistic_loss_of_positives_alone_has_nothing_to_tell_apart(
    passes: float, evaluated: float, share: float, terms: float, told: bool, rows: int
) -> None:
    looks = np.arange(0, ROWS, 10)
    figures = {"passes": passes, "sigmoid_twice": 0.0, "top_target": 1.0, "top_target_share": share,
               "loss_terms": terms}  # fmt: skip
    columns = {f"model/{name}": (looks, np.full(len(looks), value)) for name, value in figures.items()}
    columns |= {"loss": every(np.exp(-STEP / 30)), "val_loss": (looks, np.full(len(looks), evaluated))}
    found = warned(columns, rows)
    assert ("one_class" in found) is told
    assert not told or found["one_class"].causes[0].startswith("negatives missing")


@pytest.mark.parametrize(("examples", "finds"), [(8, True), (32, False)])
def test_places_without_gradient_are_padding_only_where_examples_have_several(examples: int, finds: bool) -> None:
    looks = np.arange(0, 60, 10)
    targets = np.array([24.0, 20, 28, 25, 21, 27])
    columns = {
        "train/loss": every(FALLS), "model/places": (looks, np.full(6, 32.0)), "model/targets": (looks, targets),
        "model/example_rows": (looks, np.full(6, float(examples))), "model/loss_weight": (looks, targets / 32),
    }  # fmt: skip
    assert ("loss_weight" in warned(columns)) == finds


@pytest.mark.parametrize(("turns", "figure", "says"), [(200, 1.0, True), (200, 0.0, False), (None, 1.0, False)])
@pytest.mark.parametrize("rows", [7, ROWS])
def test_a_loss_whose_factor_turns_is_reversed_from_then_on(
    turns: int | None, figure: float, says: bool, rows: int
) -> None:
    loss = np.where((ROWS if turns is None else turns) > STEP, FALLS, -FALLS)
    found = warned({"train/loss": every(loss), **of_graph(loss_multiplied=figure)}, rows)
    assert ("loss_reversed" in found) == says
    if says:
        assert found["loss_reversed"].step == turns
        hides = of_graph(loss_multiplied=figure, loss_hides=1.0)  # without its answers a contrast comes below 0
        assert "loss_reversed" not in warned({"train/loss": every(loss), **hides}, rows)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("queue", "end", "told"), [(256.0, 3.2, False), (256.0, 7.5, True), (0.0, 3.2, True), (16.0, 3.2, True)]
)
def test_a_loss_that_rises_while_a_queue_is_filled_is_no_divergence(
    queue: float, end: float, told: bool, rows: int
) -> None:
    loss = 0.5 + (end - 0.5) * np.minimum(1, STEP / 150) + 0.4 * np.exp(-STEP / 3) + 0.03 * DICE.normal(size=ROWS)
    columns = {"loss": every(loss), **(of_graph(loss_queue=queue) if queue else {})}
    assert ("divergence" in warned(columns, rows)) is told


@pytest.mark.parametrize(
    ("right", "theirs", "first"),
    [
        (0.6, 4.8, "labels shifted: the two sides"),  # no better than at first, and worse: nothing was learnt
        (0.9, 4.1, "temperature inverted"),
        (0.6, 4.1, "temperature inverted"),
    ],
)
def test_what_is_alike_without_any_training_shows_no_order_that_was_learnt(
    right: float, theirs: float, first: str
) -> None:
    share = np.linspace(0, 1, len(EVALUATIONS))
    columns = {
        "loss": every(np.log(64) + 0.01 * DICE.normal(size=ROWS)),
        "eval_loss": (EVALUATIONS, 4.6 + (theirs - 4.6) * share),
        "eval_accuracy": (EVALUATIONS, 0.65 + (right - 0.65) * share),
    }
    found = warned(columns | of_graph(loss_pairs=64.0, update_p50=1e-3))
    assert found["unrelated_labels"].causes[0].startswith(first)
    assert (found["unrelated_labels"].kind == "logits") == first.startswith("temperature")


@pytest.mark.parametrize(("drawn", "warns"), [(0.0, False), (1.0, True), (None, True)])
def test_a_trained_model_with_adapters_at_0_may_begin_far_above_a_guess(drawn: float | None, warns: bool) -> None:
    figures = {"output_width": 40.0, "softmax_twice": 0.0, "frozen_parameters": 30.0}
    figures |= {} if drawn is None else {"adapters_drawn": drawn}
    assert ("initial_loss" in warned({"loss": every(4 * FALLS)} | of_graph(**figures))) == warns


@pytest.mark.parametrize(("adapters", "drawn", "warns"), [(28.0, 0.0, False), (28.0, 3.0, True), (0.0, 0.0, True)])
def test_adapters_beside_layers_that_are_not_as_drawn_are_of_a_trained_model(
    adapters: float, drawn: float, warns: bool
) -> None:
    figures = {"output_width": 40.0, "softmax_twice": 0.0, "frozen_parameters": 30.0}
    figures |= {"trained_adapters": adapters, "frozen_as_drawn": drawn}
    assert ("initial_loss" in warned({"loss": every(4 * FALLS)} | of_graph(**figures))) == warns


@pytest.mark.parametrize(("queued", "first"), [(256.0, "labels shifted: they don't name"), (0.0, "labels shuffled")])
def test_of_keys_beside_a_queue_labels_that_stay_at_a_guess_name_another_column(queued: float, first: str) -> None:
    columns = {"loss": every(np.log(257) + 0.02 * DICE.normal(size=ROWS))}
    found = warned(columns | of_graph(loss_classes=257.0, loss_queue=queued, update_p50=1e-3))
    assert found["unrelated_labels"].causes[0].startswith(first)


@pytest.mark.parametrize(
    ("rows", "queued", "fell", "evaluated", "told"),
    [
        (160, 96.0, 0.0, 5.4, True),
        (160, 96.0, 0.15, 5.4, True),  # only its own examples are learnt
        (160, 96.0, 0.15, 5.2, False),  # a slow training: the evaluation has more keys, and so another guess
        (160, 96.0, 0.6, 5.4, False),
        (160, 0.0, 0.0, 5.4, False),  # of classes it takes 200 rows
        (110, 96.0, 0.0, 5.4, False),
    ],
)
def test_keys_beside_a_queue_that_are_not_learnt_take_as_few_rows_as_pairs(
    rows: int, queued: float, fell: float, evaluated: float, told: bool
) -> None:
    steps, at = np.arange(rows), np.arange(19, rows, 20)
    loss = np.log(97) - fell * steps / rows + 0.02 * np.random.default_rng(3).normal(size=rows)
    figures = {"loss_classes": 97.0, "loss_queue": queued, "update_p50": 1e-3}
    columns = {"loss": (steps, loss), "eval_loss": (at, 5.4 + (evaluated - 5.4) * np.linspace(0, 1, len(at)))}
    columns |= {f"model/{name}": (steps[:1], np.full(1, value)) for name, value in figures.items()}
    assert ("unrelated_labels" in warned(columns)) is told


@pytest.mark.parametrize("across", [True, False])
def test_embeddings_that_are_normalised_over_the_batch_are_told(across: bool) -> None:
    columns = {"train/loss": (STEP, FALLS)} | of_graph(loss_pairs=40.0, **({"pairs_across": 1.0} if across else {}))
    found = warned(columns, 37)
    assert ("pairs_across" in found) == across
    assert not across or (found["pairs_across"].step, found["pairs_across"].severity) == (0, "warning")


@pytest.mark.parametrize(("figure", "told"), [(1.0, True), (0.0, False)])
def test_embeddings_of_which_one_side_alone_has_length_one_are_told(figure: float, told: bool) -> None:
    columns = {"train/loss": (STEP, FALLS)} | of_graph(loss_pairs=40.0, pairs_one_length=figure)
    found = warned(columns, 37)
    assert ("pairs_across" in found) == told
    assert not told or found["pairs_across"].causes[0].startswith("embeddings not normalised")
