"""Whether the losses of training and evaluation are of one kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.kinds import both_losses, of_other_kind
from barograph.doctor.rules.evaluation.averages import AverageBehind

STEPS, EVERY = np.arange(320), np.arange(39, 320, 40)
PLACE = (320, 1 << 40, 1)


def recorded(name: str, first: float, evaluated: float, figures: dict[str, float]) -> RunHistory:
    history = RunHistory()
    history.add("train/loss", STEPS, first * np.exp(-STEPS / 400))
    history.add(name, EVERY, np.linspace(evaluated, 0.7 * evaluated, len(EVERY)))
    for figure, value in figures.items():
        history.add(f"model/{figure}", 0, value)
    return history


@pytest.mark.parametrize(
    ("name", "first", "evaluated", "figures", "other"),
    [
        ("eval/loss", 0.69, 2.0, {"loss_logistic": 8.0}, True),
        ("eval/loss", 0.69, 1.4, {"loss_logistic": 8.0}, True),  # behind an epoch
        ("eval/loss", 0.69, 0.6, {"loss_logistic": 8.0}, False),  # the same loss
        ("eval/loss", 0.69, 5.5, {"loss_logistic": 8.0}, False),  # a sum of the same
        ("eval/loss", 0.3, 2.0, {"loss_logistic": 8.0}, False),  # begun from somewhere else
        ("eval/loss", 0.69, 1.0, {"loss_logistic": 2.0}, False),
        ("eval/loss", 0.69, 1.4, {}, False),
        ("eval/bce", 2.1, 0.6, {"loss_classes": 8.0}, True),
        ("eval/ce", 2.1, 0.6, {"loss_classes": 8.0}, False),
        ("eval/ce", 0.69, 0.6, {"loss_logistic": 1.0, "loss_error": 1.0}, False),  # two classes
        ("eval/nll", 1.1, 0.6, {"loss_logistic": 0.0, "loss_error": 1.0}, True),  # squares
        ("eval/mae", 1.1, 0.6, {"loss_logistic": 0.0, "loss_error": 1.0}, False),
    ],
)
def test_losses_are_of_two_kinds_by_names_graph_or_what_they_begin_with(
    name: str, first: float, evaluated: float, figures: dict[str, float], other: bool
) -> None:
    history = recorded(name, first, evaluated, figures)
    assert of_other_kind(history, history.role("eval_loss"), *PLACE) is other
    assert math.isnan(both_losses(history, *PLACE)[0]) is other


@pytest.mark.parametrize(("figures", "warns"), [({}, True), ({"model/loss_logistic": ([0], [8.0])}, False)])
def test_an_average_is_not_behind_where_the_loss_is_of_another_kind(figures: dict[str, Any], warns: bool) -> None:
    rows = {
        "loss": (STEPS, 0.3 + 0.39 * np.exp(-STEPS / 20)),
        "val/loss": (EVERY, np.linspace(2.0, 1.5, len(EVERY))),
        "model/passes": (EVERY, np.full(8, 2.0)),
    } | figures  # fmt: skip
    told = [one for one in findings([AverageBehind()], rows).values() if one.rule == "average_behind"]
    assert bool(told) is warns


@pytest.mark.parametrize(
    ("evaluation", "term", "other"),
    [
        ("val/recon_mse", "parts/recon", True),
        ("val/reconstruction_loss", "train/reconstruction", True),
        ("val/recon_mse", "parts/kl", False),  # it may be what the loss is
        ("val/loss", "parts/recon", False),
    ],
)
def test_an_evaluation_of_the_reconstruction_alone_is_no_measure_of_the_whole_loss(
    evaluation: str, term: str, other: bool
) -> None:
    history = recorded(evaluation, 99.0, 0.2, {})
    history.add(term, STEPS, 80 * np.exp(-STEPS / 400))
    assert history.role("eval_loss").name == evaluation
    assert of_other_kind(history, history.role("eval_loss"), *PLACE) is other


def test_the_whole_loss_of_an_evaluation_comes_before_its_reconstruction() -> None:
    history = recorded("val/recon_mse", 99.0, 0.2, {})
    history.add("val/neg_elbo", EVERY, np.linspace(35, 23, len(EVERY)))
    assert history.role("eval_loss").name == "val/neg_elbo"
