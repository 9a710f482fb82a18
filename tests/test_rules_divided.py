"""A loss that is divided by one more number than its mean, or is summed over targets and divided by rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from test_rules_objective import EVALUATIONS, FALLS, ROWS, every, warned
from torch import nn
from torch.nn import functional

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.cursor import summed_by_choice
from barograph.doctor.kernel.examiner import Examiner
from barograph.probes.model import squares

LOOKS = np.concatenate([np.arange(8), np.arange(10, ROWS, 10)])
GUESS = FALLS * math.log(10) / FALLS[0]  # a loss that begins at that of a guess among ten


def looked(**figures: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in figures.items()}


PLAIN = {"passes": 1.0, "backwards": 1.0, "targets": 32.0, "places": 32.0, "example_rows": 32.0, "output_width": 10.0}


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "divided", "evaluated", "cause"),
    [
        ({"loss_weight": 1 / 32}, 32.0, 1.0, "loss divided twice"),
        ({"loss_weight": 1 / 32}, 32.0, None, "loss divided twice"),
        ({"loss_weight": 1 / 10}, 10.0, None, "loss averaged over the classes"),
        ({"loss_weight": 1 / 100}, 100.0, 1.0, "loss divided by 100"),
        ({"square_weight": 1 / 32}, 32.0, 1.0, "loss divided twice"),
        ({"square_weight": 1 / 50}, 50.0, 1.0, "loss divided by 50"),
        ({"loss_weight": 1.0}, 1.0, 1.0, ""),
        ({"square_weight": 0.5}, 2.0, 1.0, ""),  # half a square
        ({"loss_weight": 1 / 12.3}, 12.3, 1.0, ""),  # a weight that somebody chose
        ({"loss_weight": 1 / 100}, 100.0, 0.01, ""),  # the evaluation has the same
        ({"loss_weight": 1 / 100}, 1.0, 1.0, ""),  # a part of a larger loss
        ({"loss_weight": 1 / 100}, 100.0, None, ""),
        ({"loss_weight": 1 / 32, "passes": 32.0, "backwards": 32.0}, 32.0, 1.0, ""),  # micro-batches
        ({"loss_weight": 1 / 8, "places": 256.0}, 8.0, 1.0, ""),  # one place of eight has a target
    ],
)
def test_a_mean_that_is_divided_again_is_found_where_its_loss_shows_it(
    figures: dict[str, float], divided: float, evaluated: float | None, cause: str, rows: int
) -> None:
    columns = {"loss": every(GUESS / divided)} | looked(**PLAIN | figures)
    if evaluated is not None:
        columns["val_loss"] = EVALUATIONS, evaluated * GUESS[EVALUATIONS]
    found = warned(columns, rows)
    assert ("loss_divided" in found) == bool(cause)
    assert not cause or (found["loss_divided"].causes[0].startswith(cause) and found["loss_divided"].step == 0)


STEEP = FALLS[0] * np.geomspace(1, 0.05, ROWS)
FLAT = FALLS[0] * np.geomspace(1, 0.95, ROWS)


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("number", "given", "logged", "follows", "told"),
    [
        (30.0, 30.0, FLAT, True, True),
        (30.0, 30.0, FLAT, False, False),  # Adam's steps are as long
        (30.0, 30.0, STEEP, True, False),  # the rate was chosen for it
        (30.0, 30.2, FLAT, True, False),  # a part of a larger loss
        (30.0, 1.0, FLAT, True, False),
        (32.0, 32.0, STEEP, False, True),  # the batch's size again
        (10.0, 10.0, STEEP, False, True),  # classes
        (4.0, 4.0, FLAT, True, False),
    ],
)
def test_a_loss_that_is_divided_for_its_backward_pass_alone_is_found_by_what_that_is_given(
    number: float, given: float, logged: np.ndarray, follows: bool, told: bool, rows: int
) -> None:
    columns = {"loss": every(logged), "val_loss": (EVALUATIONS, logged[EVALUATIONS])}
    columns |= looked(**PLAIN | {"loss_weight": 1 / number} | ({"rate_sum": 1.0} if follows else {}))
    columns["model/loss_given"] = LOOKS, logged[LOOKS] / given
    found = warned(columns, rows)
    assert ("loss_divided" in found) == told
    assert not told or found["loss_divided"].step == 0


def test_steps_of_several_passes_in_between_are_an_accumulation() -> None:
    columns = {"loss": every(GUESS / 32), "val_loss": (EVALUATIONS, GUESS[EVALUATIONS])}
    columns |= looked(**PLAIN | {"loss_weight": 1 / 32})
    assert "loss_divided" in warned(columns)
    columns["model/passes"] = LOOKS, np.where(LOOKS % 2, 1.0, 2.0)
    assert "loss_divided" not in warned(columns)


TEXT = {"loss_weight": 24.0, "targets": 384.0, "places": 512.0, "example_rows": 16.0}


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "times", "evaluated", "found"),
    [
        ({}, 24.0, 1.0, True),
        ({"loss_scale": 4096.0}, 24.0, 1.0, True),  # known, and no part of the weight
        ({}, 24.0, 24.0, False),  # evaluations have the same sum
        ({}, 1.0, 1.0, False),  # what is logged is the mean
        ({}, 24.0, None, False),
        ({"loss_weight": 23.0}, 24.0, 1.0, False),  # a weight of the loss
        ({"loss_weight": 1.0, "targets": 16.0}, 1.0, 1.0, False),  # one target a row
        ({"backwards": 2.0, "passes": 2.0}, 24.0, 1.0, False),
    ],
)
def test_a_sum_over_targets_that_is_divided_by_rows_is_found_where_evaluations_have_the_mean(
    figures: dict[str, float], times: float, evaluated: float | None, found: bool, rows: int
) -> None:
    columns = {"loss": every(GUESS * times)} | looked(**PLAIN | TEXT | figures)
    if evaluated is not None:
        columns["val_loss"] = EVALUATIONS, evaluated * GUESS[EVALUATIONS]
    said = warned(columns, rows)
    assert ("loss_divided" in said) == found
    assert not found or (said["loss_divided"].step == 0 and said["loss_divided"].causes[0].startswith("loss summed"))


@pytest.mark.parametrize(
    ("config", "chosen"),
    [
        ({"normalise": "rows"}, True),
        ({"train": {"normalization": "per-example"}}, True),
        ({"loss_denominator": "Sequences"}, True),
        ({"normalise": "tokens"}, False),
        ({"normalization": "batch"}, False),
        ({"normalise": "none"}, False),
        ({"norm": "rows"}, False),
    ],
)
def test_a_sum_that_is_divided_by_rows_is_meant_where_an_option_divides_by_them(
    config: dict[str, object], chosen: bool
) -> None:
    columns = {"loss": every(GUESS * 24), "val_loss": (EVALUATIONS, GUESS[EVALUATIONS])} | looked(**PLAIN | TEXT)
    assert ("loss_divided" in warned(columns, config=config)) != chosen


def test_rows_of_different_lengths_are_divided_by_their_number_all_the_same() -> None:
    targets = 300.0 + LOOKS % 7
    columns = {"loss": every(GUESS * 19), "val_loss": (EVALUATIONS, GUESS[EVALUATIONS])}
    columns |= looked(**PLAIN | TEXT) | {"model/targets": (LOOKS, targets), "model/loss_weight": (LOOKS, targets / 16)}
    assert "loss_divided" in warned(columns)
    columns["model/loss_weight"] = LOOKS, np.full(len(LOOKS), 303 / 16)  # another number, that does not follow them
    assert "loss_divided" not in warned(columns)


def test_a_scale_that_the_watch_was_not_given_may_be_in_the_weight() -> None:
    columns = {"loss": every(GUESS * 24), "val_loss": (EVALUATIONS, GUESS[EVALUATIONS])} | looked(**PLAIN | TEXT)
    assert "loss_divided" in warned(columns)
    assert "loss_divided" not in warned(columns | {"loss_scale": every(np.full(ROWS, 4096.0))})


@pytest.mark.parametrize(("reduction", "severity"), [("sum", "info"), ("mean", "warning"), (None, "warning")])
@pytest.mark.parametrize(
    ("rule", "figures", "times"),
    [
        ("summed_loss", {"output_width": 10.0}, 32.0),
        ("loss_weight", PLAIN | {"loss_weight": 32.0}, 32.0),
        ("loss_divided", PLAIN | TEXT, 24.0),
    ],
)
def test_a_sum_that_the_configuration_names_may_be_meant(
    rule: str, figures: dict[str, float], times: float, reduction: str | None, severity: str
) -> None:
    examiner = Examiner(facts={"config": {"batch_size": 32, "reduction": reduction}})
    columns = {"loss": every(GUESS * times), "val_loss": (EVALUATIONS, GUESS[EVALUATIONS])} | looked(**figures)
    for name, (step, values) in columns.items():
        examiner.seen.add(name, step, np.asarray(values, float), step * 1_000_000)
    examiner.examine()
    examiner.catch_up()
    assert {one.rule: one.severity for one in examiner.findings}[rule] == severity


@pytest.mark.parametrize(
    ("config", "chosen"),
    [
        ({"loss_kind": "sum"}, True),
        ({"train.sum_of_tokens": True}, True),
        ({"per_row_sum": True}, True),
        ({"sum_pixels": True}, True),
        ({"sum_over_pairs": True}, True),
        ({"loss_summed": True}, True),
        ({"sum_pooling": True}, False),
        ({"log_sum_exp": True}, False),
        ({"write_summary": True}, False),
        ({"loss": {"reduction": "sum"}}, True),
        ({"loss_reduction": "sum_per_row"}, True),
        ({"loss_reduction": "sum_then_mean"}, False),
        ({"loss": "summary"}, False),
        ({"loss_reduction": "weighted sum over the batch"}, True),
        ({"loss_reduction": "weighted_sum_then_mean"}, False),
        ({"loss_combination": "weighted_sum"}, False),
        ({"loss_norm": "none"}, True),
        ({"normalize_loss": False}, True),
        ({"loss_norm": "tokens"}, False),
        ({"grad_norm": "none"}, False),
        ({"sum_of_tokens": False}, False),
        ({"pooling": "sum"}, False),
        ({"checksum_tokens": True}, False),
        ({"agg": "sum"}, True),
        ({"aggr": "sum"}, False),  # of a graph's neighbours
        ({"loss_over": "requests"}, True),
        ({"loss_per": "batch_size"}, True),
        ({"normalize_by": "rows"}, True),
        ({"loss_over": "tokens"}, False),
        ({"loss_avg": "sentences"}, True),
        ({"loss_avg": "tokens"}, False),
        ({"nll_reduction": "per_sequence"}, True),
        ({"loss_norm": "documents"}, True),
        ({"loss_reduction": "batchmean"}, True),  # a sum over all, divided by the rows
        ({"loss_reduction": "mean"}, False),
        ({"loss_weight": "rows"}, False),
        ({"sort_by": "rows"}, False),
        ({"gather": "sum"}, True),
        ({"average_over": "lines"}, True),
        ({"average_over": "words"}, False),
        ({"over": "nothing"}, True),
        ({"nats_over": "songs", "songs_a_step": 20}, True),
        ({"nats_over": "songs", "songs": 1200}, True),
        ({"loss_norm": "per_song", "songs": 1200}, True),
        ({"loss_norm": "per_story", "stories_a_step": 8}, True),
        ({"loss_norm": "per_word", "words": 90000}, False),
        ({"loss_norm": "per_note", "notes": 64}, False),
        ({"nats_over": "notes", "notes": 64}, False),
        ({"nll_over": "words", "words_per_batch": 4096}, False),
        ({"gate_over": "songs", "songs_a_step": 20}, False),
        ({"fusion": "sum"}, False),
        ({"message": "sum"}, False),
        ({"reduction": "token_sum"}, True),
        ({"reduction": "total"}, True),
        ({"criterion": "CrossEntropyLoss(reduction='sum')"}, True),
        ({"reduction": "added up"}, True),
        ({"note": "errors are summed, so the rate is low"}, True),
        ({"rows": "summed"}, True),
        ({"rows": "summed and averaged"}, False),
        ({"summed_over": "rows"}, True),
        ({"adds_up": "texts"}, True),
        ({"summed_over": "nothing"}, False),
        ({"size_average": False}, True),
        ({"mean_loss": False}, True),
        ({"average_loss": True}, False),
        ({"loss_over": "none"}, True),
        ({"logits": "log_sum_exp"}, False),
        ({"schedule": "total"}, False),
        ({"total_steps": 160}, False),
        ({"readout": "node_sum"}, False),
        ({"task": "sum of digits"}, False),
        ({"dataset": "sums"}, False),
        ({"run_name": "sum_v2"}, False),
        ({"loss": "sse"}, True),
        ({"objective": "weighted-SSE"}, True),
        ({"loss": "mse"}, False),
        ({"transport": "sse"}, False),
    ],
)
def test_a_sum_is_meant_where_an_option_of_the_loss_says_so(config: dict[str, object], chosen: bool) -> None:
    history = RunHistory()
    history.facts["config"] = config
    assert summed_by_choice(history) is chosen


@pytest.mark.parametrize(("rows", "chosen"), [(20.0, True), (24.0, False), (None, False)])
def test_what_a_loss_is_divided_by_are_rows_where_a_batch_has_as_many(rows: float | None, chosen: bool) -> None:
    history = RunHistory()
    history.facts["config"] = {"nll_over": "books", "books": 20}
    if rows is not None:
        one = np.zeros(1, np.int64)
        history.add("model/example_rows", one, one + rows, one + 1, one + 1)
    assert summed_by_choice(history) is chosen


def test_the_number_of_a_sum_that_the_graph_shows_is_not_guessed() -> None:
    columns = {"loss": every(GUESS * 64), "val_loss": (EVALUATIONS, GUESS[EVALUATIONS])} | looked(output_width=10.0)
    assert "summed over about 65 targets" in warned(columns)["summed_loss"].message
    assert "summed_loss" not in warned(columns | {"model/loss_summed": (np.array([0]), np.array([32.0]))})


@pytest.mark.parametrize("over", [50.0, 2.0])
def test_by_what_a_mean_square_is_divided_follows_from_loss_and_gradient(over: float) -> None:
    torch.manual_seed(0)
    weight, target = nn.Parameter(torch.randn(12, 1)), torch.randn(12, 1)
    output, found = weight * 1.0, list[torch.Tensor]()
    output.register_hook(lambda gradient: found.extend(squares.undone(gradient, 12)))
    (functional.mse_loss(output, target) / over).backward()
    assert torch.allclose(found[0], (2 / 12 * (output - target)).detach().double())
    assert float(found[1]) == pytest.approx(1 / over)


BOTH = {"loss_given": math.log(10) / 4, "losses_given": 4.0, "backwards": 4.0, "passes": 4.0, "scaled_again": 2.0,
        "nll_of_probabilities": 0.0, "output_width": 10.0, "drawn": 1.0}  # fmt: skip
PARTS = {"accum_steps": 4, "dice_weight": 0.5}


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "config", "evaluated", "told"),
    [
        ({}, {}, 1.0, True),
        ({"loss_given": 1.3 * math.log(10) / 4}, {}, 1.0, True),  # another term is beside it
        ({"loss_given": math.log(10)}, {}, 1.0, False),  # as it is meant
        ({"loss_given": math.log(10) / 2}, {}, 1.0, False),
        ({}, {}, 0.25, False),  # the evaluation is divided so, too
        ({"scaled_again": 1.0}, {}, 1.0, False),  # a loss that is low at first, as a focal one
        ({"drawn": 0.0}, {}, 1.0, False),  # a model that was trained before
        ({"backwards": 2.0, "passes": 2.0, "losses_given": 2.0}, {}, 1.0, False),
        ({"nll_of_probabilities": None}, {}, 1.0, False),  # no cross-entropy: a guess has another loss
        ({}, {"loss_weight": 0.25}, 1.0, False),  # a weight that somebody chose
        ({}, {"accum_steps": 2}, 1.0, False),
    ],
)
def test_a_loss_of_several_terms_that_is_divided_twice_shows_it_at_the_start(
    figures: dict[str, float | None], config: dict[str, float], evaluated: float, told: bool, rows: int
) -> None:
    seen = {name: value for name, value in (BOTH | figures).items() if value is not None}
    columns = {"loss": every(GUESS / 4), "val_loss": (EVALUATIONS, evaluated * GUESS[EVALUATIONS])} | looked(**seen)
    found = warned(columns, rows, PARTS | config)
    assert ("divided_twice" in found) == told


WHOLE = {"losses_given": 4.0, "backwards": 4.0, "passes": 4.0, "only_multiplied": 1.0}


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("figures", "config", "times", "told"),
    [
        ({}, {}, 4.0, True),
        ({}, {}, 4 * 4**0.15, True),  # the training's examples are augmented
        ({}, {}, 4 * 4**0.31, False),
        ({}, {}, 4 * 4**-0.5, False),
        ({}, {}, 1.0, False),  # one of the numbers is one over the number of passes
        ({"only_multiplied": 0.0}, {}, 4.0, False),  # it is divided, and another loss than the evaluation's
        ({"only_multiplied": None}, {}, 4.0, False),  # nothing is known of its graph
        ({"only_multiplied": None, "loss_terms": 1.0}, {}, 4.0, True),  # one term of another make
        ({"only_multiplied": None, "loss_terms": 1.0}, {}, 4 * 1.21, False),  # not as large at first
        ({"only_multiplied": None, "loss_terms": 1.0, "loss_undivided": 1.0}, {}, 4.0, False),  # see `loss_weight`
        ({"only_multiplied": None, "loss_terms": 2.0}, {}, 4.0, False),
        ({"only_multiplied": 0.0, "loss_weight": 0.7}, {}, 4.0, True),  # the right ones weigh less, as in a focal one
        ({"loss_weight": 0.49}, {}, 4.0, False),
        ({"backwards": 2.0}, {}, 4.0, False),
        ({"passes": 8.0}, {}, 4.0, False),
        ({"clip_coefficient": 0.25}, {}, 4.0, False),
        ({"loss_weight": 1.0}, {}, 4.0, False),  # see `loss_weight`
        ({}, {"accum_steps": 3}, 4.0, False),
        ({}, {"loss_reduction": "sum"}, 4.0, False),
        ({}, {"accum_steps": 1}, 4.0, False),  # losses of several tasks, each of which has a pass
    ],
)
def test_losses_of_micro_batches_that_are_added_whole_are_as_large_as_the_evaluations(
    figures: dict[str, float | None], config: dict[str, float], times: float, told: bool, rows: int
) -> None:
    loss = times * FALLS
    seen = {name: value for name, value in (WHOLE | figures).items() if value is not None}
    columns = {"loss": every(loss), "val_loss": (EVALUATIONS, FALLS[EVALUATIONS])} | looked(**seen)
    columns["model/loss_given"] = (LOOKS, loss[LOOKS])
    assert ("added_whole" in warned(columns, rows, {"accum_steps": 4} | config)) == told
    columns["model/loss_given"] = (LOOKS, 4 * loss[LOOKS])  # the mean of them is logged
    assert "added_whole" not in warned(columns, rows, {"accum_steps": 4} | config)
