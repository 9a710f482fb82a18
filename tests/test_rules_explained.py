"""Evaluations whose R² says that the model is no better than the mean of the targets."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.evaluation.explained import EvaluationUnexplained

ROWS, VARIANCE = 40, 3.0
AT = numpy.arange(ROWS)


def made(training: Any, explained: Any, rate: float = 1e-3, epochs: int = 1, name: str = "val_r2") -> dict[str, Any]:
    explained = numpy.broadcast_to(numpy.asarray(explained, float), ROWS)
    return {
        "train_mse": numpy.broadcast_to(training, ROWS) * noisy(ROWS, 1, 0.005),
        "val_mse": VARIANCE * (1 - explained),
        name: explained,
        "lr": numpy.full(ROWS, rate),
        "train/epoch": AT * epochs,
    }


def said(columns: dict[str, Any]) -> list[Finding]:
    return only(findings([EvaluationUnexplained()], columns), "evaluation_unexplained")


FITTED = VARIANCE * numpy.maximum(1e-4, 0.02 ** (AT + 0.3))
BY_HEART = VARIANCE * (1 - 0.01 * AT)


@pytest.mark.parametrize("name", ["val_r2", "eval/r2_score", "r2/test", "validation explained_variance"])
@pytest.mark.parametrize(
    ("training", "explained", "more", "cause", "kind"),
    [
        (FITTED, 0.01, {}, "labels can be seen", "data"),
        (FITTED, 0.01, {"epochs": 10}, "overfitting", "data"),
        (BY_HEART, -0.005 * AT, {}, "labels shuffled", "data"),
        (VARIANCE, 0.005, {}, "targets broadcast", "data"),
        (VARIANCE, -0.003, {"rate": 2e-6}, "learning rate too low", "learning_rate"),
        (VARIANCE / (1 + AT), -900.0, {}, "inputs not normalised", "data"),
        (1e-3 / (1 + AT), -900.0, {}, "targets not scaled", "data"),
    ],
)
def test_what_is_wrong_shows_in_both_losses(
    training: Any, explained: Any, more: dict, cause: str, kind: str, name: str
) -> None:
    (one,) = said(made(training, explained, name=name, **more))
    assert (one.severity, one.kind, one.step) == ("warning", kind, 0) and one.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("deviation", "cause", "sure"),
    [(40.0, "inputs not normalised", True), (1.0, "targets not scaled", False), (None, "inputs not normalised", False)],
)
def test_inputs_are_blamed_for_outputs_far_off_where_they_have_another_scale(
    deviation: float | None, cause: str, sure: bool
) -> None:
    seen = {"input_mean": 0.0, "input_std": 1.0, "eval_input_mean": 0.0, "eval_input_std": deviation}
    figures = {f"model/{name}": numpy.full(ROWS, value) for name, value in seen.items() if deviation is not None}
    (one,) = said(made(VARIANCE / (1 + AT), -900.0) | figures)
    assert one.causes[0].startswith(cause) and (len(one.causes) == 1) == sure


@pytest.mark.parametrize(
    "columns",
    [
        made(VARIANCE * 0.9**AT, 0.7 * (1 - 0.8**AT)),  # it learns
        made(VARIANCE * 0.9**AT, numpy.where(AT < 12, -0.01, 0.3)),  # it learns late
        made(VARIANCE * 0.9**AT, 0.1 - 0.05 * AT),  # it overfits: the first one was better than the mean
        made(VARIANCE, -900.0),  # nothing is learnt at all, of a loss that is another
        {name: column for name, column in made(FITTED, 0.01).items() if name != "train_mse"},
        made(FITTED, 0.01) | {"val_mse": 1 + 0.1 * AT},  # the loss beside it is another one than the mean square
        made(FITTED, 0.01) | {"charts/episodic_return": 1.0 * AT},  # values of a policy
        made(FITTED, 0.01, name="train_r2"),
    ],
)
def test_silence_where_it_does_not_fit(columns: dict[str, Any]) -> None:
    assert [one for one in said(columns) if one.severity != "info"] == []


def test_one_that_learns_after_all_was_no_warning() -> None:
    (one,) = said(made(BY_HEART, numpy.where(AT < 30, -0.01, 0.4)))
    assert one.severity == "info" and "At step 30 it was 0.4" in one.message


@pytest.mark.parametrize("seed", range(8))
def test_where_rows_are_cut_changes_nothing(seed: int) -> None:
    names = ["train_mse", "val_mse", "val_r2", "lr", "train/epoch"]
    same_when_cut([EvaluationUnexplained], random_columns(seed, names), seed)
    same_when_cut([EvaluationUnexplained], made(BY_HEART, numpy.where(AT < 30, -0.01, 0.1 * (seed % 3))), seed)
