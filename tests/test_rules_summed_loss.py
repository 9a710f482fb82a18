"""A training loss that is a sum: is it so where it is differentiated, or where it is logged alone?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.loss.summed import SummedLoss
from barograph.doctor.rules.loss.sums import LossWeight

STEPS = np.arange(160)
EVALUATED = np.arange(0, 160, 20)


def columns(**figures: float) -> dict[str, Any]:
    curve = math.log(6) * np.exp(-STEPS / 90)
    made: dict[str, Any] = {"loss": 2 * curve, "eval/loss": (EVALUATED, curve[EVALUATED])}
    for name, value in ({"output_width": 6.0} | figures).items():
        made[f"model/{name}"] = (np.arange(4), np.full(4, value))
    return made


@pytest.mark.parametrize("pieces", [(), tuple(range(160))])
@pytest.mark.parametrize(("figures", "kind"), [
    ({}, "exploding"),  # not watched
    ({"loss_weight": 2.0, "backwards": 1.0}, "exploding"),
    ({"loss_weight": 1.0, "backwards": 2.0}, "exploding"),  # micro-batches that are added
    ({"loss_weight": 1.0, "backwards": 1.0}, "logging"),
    ({"loss_weight": 0.5, "backwards": 2.0}, "logging"),
])  # fmt: skip
def test_a_sum_over_ranks_is_of_the_log_where_what_is_differentiated_is_a_mean(
    figures: dict[str, float], kind: str, pieces: tuple[int, ...]
) -> None:
    facts = {"config": {"ranks": 2}, "world_size": 2}
    (one,) = findings([SummedLoss()], columns(**figures), facts=facts, cuts=pieces).values()
    assert one.kind == kind and ("logged" in one.message) is (kind == "logging")
    assert one.causes[0].startswith("loss summed") is (kind == "logging")


@pytest.mark.parametrize("pieces", [(), tuple(range(160))])
@pytest.mark.parametrize(("figures", "severity"), [
    ({"loss_ranks": 1.0}, "warning"),  # of answers, whose tokens have other weights
    ({"loss_ranks": 0.0}, "warning"),
    ({}, None),  # what the gradient shows is the loss's own
    ({"loss_ranks": 1.0, "loss_summed": 4.0}, None),
])  # fmt: skip
def test_a_sum_over_the_answers_of_a_preference_is_found_though_tokens_have_weights(
    figures: dict[str, float], severity: str | None, pieces: tuple[int, ...]
) -> None:
    made = {"loss": 16 * math.log(2) * np.exp(-STEPS / 90)}
    for name, value in ({"loss_summed": 16.0, "loss_weight": 4.8, "targets": 96.0} | figures).items():
        made[f"model/{name}"] = (np.arange(4), np.full(4, value))
    found = [one.severity for one in findings([LossWeight()], made, cuts=pieces).values()]
    assert found == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("ranks", "first", "batch", "told"),
    [
        (1.0, 16 * math.log(2), 16, True),
        (1.0, 16 * math.log(2), 12, False),  # nothing has that number
        (1.0, 10 * math.log(2), 16, False),
        (0.0, 16 * math.log(2), 16, False),  # a sum of other losses: a guess among 56 has another
    ],
)
def test_a_sum_over_pairs_begins_as_many_times_a_guess_between_two(
    ranks: float, first: float, batch: int, told: bool
) -> None:
    curve = first * (0.6 + 0.4 * np.exp(-STEPS / 40))  # with dropout, and answers that are the wrong way about
    given: dict[str, Any] = {"loss": curve, "eval/loss": (EVALUATED[1:], np.array([1, 0.85] * 4)[1:] * 0.6)}
    given["eval/loss"] = (EVALUATED[1:], given["eval/loss"][1] * curve[EVALUATED[1:]] / first)
    figures = {"output_width": 56.0, "loss_ranks": ranks, "loss_adds": 1.0}
    given |= {f"model/{name}": (np.arange(4), np.full(4, value)) for name, value in figures.items()}
    found = findings([SummedLoss()], given, facts={"config": {"batch_size": batch}}).values()
    assert ["over 16 examples" in one.causes[0] for one in found] == [True] * told


@pytest.mark.parametrize(("pairs", "first", "said"), [(60.0, 1e4, False), (0.0, 1e4, True), (60.0, 400.0, True)])
def test_a_loss_of_pairs_whose_answers_a_mask_hides_is_not_summed(pairs: float, first: float, said: bool) -> None:
    given = columns(output_width=60.0, loss_pairs=pairs)
    given |= {"loss": first * np.exp(-STEPS / 2000), "eval/loss": (EVALUATED, 4.1 * np.exp(-EVALUATED / 2000))}
    assert bool(findings([SummedLoss()], given)) is said


@pytest.mark.parametrize(
    ("passes", "times", "cause"), [(2.0, 48.0, "loss summed"), (48.0, 48.0, "gradient accumulation")]
)
def test_a_sum_over_more_than_the_passes_that_were_seen_is_not_of_micro_batches(
    passes: float, times: float, cause: str
) -> None:
    given = columns(backwards=passes)
    given |= {"loss": times * given["eval/loss"][1][0] * np.exp(-STEPS / 90)}
    (one,) = findings([SummedLoss()], given).values()
    assert one.causes[0].startswith(cause)


@pytest.mark.parametrize(("first", "told"), [(0, True), (1, True), (9, False)])
def test_a_loss_of_later_steps_is_no_twofold_guess(first: int, told: bool) -> None:
    """Smoothed targets leave the training's loss at twice the evaluation's, which has fallen in ten steps."""
    curve = math.log(6) * np.exp(-STEPS / 90)
    given = columns() | {"loss": (STEPS[first::10], (2 * curve)[first::10])}
    assert bool(findings([SummedLoss()], given, facts={"config": {"ranks": 2}, "world_size": 2})) is told


@pytest.mark.parametrize(
    ("figures", "said"),
    [({}, True), ({"loss_undivided": 1.0}, False), ({"loss_undivided": 0.0}, True),
     ({"loss_undivided": 1.0, "backwards": 2.0}, True), ({"loss_undivided": 1.0, "given": 0.2}, True)],
    ids=["not watched", "a mean", "divided", "micro-batches", "another is logged"],
)  # fmt: skip
def test_a_mean_by_its_graph_is_no_sum_over_a_number_that_nobody_knows(figures: dict[str, float], said: bool) -> None:
    """As of squares that are weighed by one over what is foretold, beside an evaluation without weights."""
    made = columns(**{name: value for name, value in figures.items() if name != "given"})
    made["loss"] = 5 * made["loss"]
    made["model/loss_given"] = (STEPS, figures.get("given", 1.0) * made["loss"])
    assert bool(findings([SummedLoss()], made)) is said


@pytest.mark.parametrize("pieces", [(), tuple(range(160))])
@pytest.mark.parametrize(
    ("figures", "first", "config", "severity"),
    [
        ({}, 24.0, {}, "warning"),
        ({}, 24.0, {"reduction": "sum"}, "info"),
        ({}, 18.0, {}, None),  # another number
        ({"loss_adds": 0.0}, 24.0, {}, None),
        ({"loss_terms": 2.0}, 24.0, {}, None),
        ({"backwards": 2.0}, 24.0, {}, None),
        ({"example_rows": 16.0}, 24.0, {}, None),
    ],
)
def test_a_sum_over_the_rows_that_the_watch_saw_needs_no_setting(
    figures: dict[str, float], first: float, config: dict[str, Any], severity: str | None, pieces: tuple[int, ...]
) -> None:
    curve = math.log(6) * np.exp(-STEPS / 90) * (1 + 0.25 * np.sin(STEPS / 13))  # unsteady, as with weights of classes
    given: dict[str, Any] = {"loss": first * curve, "eval/loss": (EVALUATED[1:], curve[EVALUATED[1:]])}
    given["eval/loss"][1][1::2] *= 0.8
    seen = {"output_width": 6.0, "loss_adds": 1.0, "loss_terms": 1.0, "backwards": 1.0, "example_rows": 24.0} | figures
    given |= {f"model/{name}": (np.arange(4), np.full(4, value)) for name, value in seen.items()}
    found = findings([SummedLoss()], given, facts={"config": config}, cuts=pieces).values()
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all("over 24 examples" in one.causes[0] for one in found)
