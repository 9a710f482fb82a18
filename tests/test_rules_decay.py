"""Weight decay that takes too much of the weights, and what else makes them shrink."""

from __future__ import annotations

import numpy
import pytest
from rule_columns import findings, noisy, only

from barograph.doctor.rules.optimizer.decay import DecayDominates
from barograph.doctor.rules.optimizer.optimizer import (
    WeightDecayTooHigh,
)


def test_weights_that_shrink_beside_a_loss_that_stands_warn() -> None:
    norms = 20 * numpy.exp(-numpy.arange(200) / 20) + 2
    columns = {"model/param_norm": norms, "train/loss": noisy(200, 5.4, 0.005), "train/lr": numpy.full(200, 4e-3)}
    (one,) = only(
        findings([WeightDecayTooHigh()], columns, facts={"config": {"weight_decay": 30.0}}), "weight_decay_too_high"
    )
    assert one.severity == "warning" and one.causes[0] == "weight decay too high" and "to 3" in one.remedies[0]
    falling = {"train/loss": 5 * numpy.exp(-numpy.arange(200) / 50)}
    assert not findings([WeightDecayTooHigh()], columns | falling)
    growing = {"model/param_norm": 20 + numpy.arange(200) / 30}
    assert not findings([WeightDecayTooHigh()], columns | growing)


def test_a_decay_above_the_usual_tenth_is_the_first_cause_of_weights_that_shrink() -> None:
    columns = {"model/param_norm": 20 * numpy.exp(-numpy.arange(200) / 30), "train/loss": noisy(200, 3.0, 0.01),
               "train/lr": numpy.full(200, 0.1)}  # fmt: skip
    for decay, cause in ((0.3, "weight decay too high"), (0.1, "learning rate too high")):
        found = findings([WeightDecayTooHigh()], columns, facts={"config": {"weight_decay": decay}})
        assert only(found, "weight_decay_too_high")[0].causes[0] == cause


@pytest.mark.parametrize(
    ("decay", "rate", "grown", "adam", "cause"),
    [
        (5.0, 0.01, 1.0, True, "weight decay too high"), (0.1, 0.5, 1.0, True, "learning rate too high"),
        (5.0, 0.01, 3.0, True, "learning rate too high"), (0.1, 0.5, 1.0, False, "weight decay too high"),
    ],
)  # fmt: skip
def test_the_rate_is_to_blame_for_a_usual_decay_or_where_weights_had_grown(
    decay: float, rate: float, grown: float, adam: bool, cause: str
) -> None:
    steps = 10 * numpy.arange(20)
    columns = {
        "train/loss": numpy.full(200, 4.0), "train/lr": numpy.full(200, rate),
        "model/param_norm": (steps, numpy.r_[10.0, numpy.linspace(10 * grown, 2, 19)]),
        "model/decay_share": (steps, numpy.full(20, decay * rate)),
    } | ({"model/optimizer_age": (steps, steps.astype(float))} if adam else {})  # fmt: skip
    (one,) = only(findings([DecayDominates()], columns), "decay_dominates")
    assert one.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("each", "left", "last", "found"),
    [(0.019, 0.2, 1.5, False), (0.03, 0.2, 1.5, True), (0.01, 0.2, 1.5, False)],
)
def test_a_decay_that_leaves_little_of_the_weights_is_found_where_the_loss_leapt_at_first(
    each: float, left: float, last: float, found: bool
) -> None:
    steps = 10 * numpy.arange(20)
    columns = {
        "train/loss": numpy.r_[2.1, 3.5, 3.2, numpy.linspace(2.1, last, 197)], "train/lr": numpy.full(200, 0.05),
        "model/param_norm": (steps, numpy.linspace(10.0, 10.0 * left, 20)),
        "model/decay_share": (steps, numpy.full(20, each)),
    }  # fmt: skip
    assert bool(only(findings([DecayDominates()], columns), "decay_dominates")) == found


@pytest.mark.parametrize(
    ("each", "last", "found"), [(0.09, 3.4, True), (0.01, 3.4, False), (0.09, 1.0, True), (0.01, 1.0, False)]
)
def test_a_decay_that_takes_a_fiftieth_a_step_is_found_where_gains_keep_the_norm_up(
    each: float, last: float, found: bool
) -> None:
    steps = 10 * numpy.arange(20)
    columns = {
        "train/loss": numpy.linspace(4.0, last, 200), "train/lr": numpy.full(200, 0.003),
        "model/param_norm": (steps, numpy.full(20, 10.0)), "model/decay_share": (steps, numpy.full(20, each)),
    }  # fmt: skip
    assert bool(only(findings([DecayDominates()], columns), "decay_dominates")) == found


@pytest.mark.parametrize(
    ("decay", "rate", "last", "adam", "found"),
    [
        (5.0, 1e-3, 1.4, True, True),
        (5.0, 1e-3, 0.5, True, False),  # it was learnt all the same
        (1.0, 3e-3, 1.4, True, False),
        (5.0, 1e-3, 1.4, False, False),
        (5.0, 3e-4, 1.4, True, False),  # weights remember the whole run
    ],
)
@pytest.mark.parametrize("falls", [False, True])
def test_a_decay_of_which_weights_remember_little_is_found_where_the_loss_stays_high(
    decay: float, rate: float, last: float, adam: bool, found: bool, falls: bool
) -> None:
    steps = 10 * numpy.arange(80)
    columns = {
        "train/loss": numpy.r_[numpy.linspace(2.3, last, 200), numpy.linspace(last, last * (0.8 if falls else 1), 600)],
        "train/lr": numpy.full(800, rate), "model/param_norm": (steps, numpy.full(80, 7.0)),
        "model/decay_share": (steps, numpy.full(80, decay * rate)),
    } | ({"model/optimizer_age": (steps, steps.astype(float))} if adam else {})  # fmt: skip
    told = only(findings([DecayDominates()], columns), "decay_dominates")
    assert len(told) == (found and not falls)
    assert all(one.causes[0].startswith("weight decay too high") for one in told)


def test_a_decay_that_is_as_high_for_a_few_steps_alone_is_left_alone() -> None:
    steps = 10 * numpy.arange(20)
    columns = {
        "train/loss": numpy.linspace(4.0, 1.0, 200), "train/lr": numpy.full(200, 0.003),
        "model/param_norm": (steps, numpy.full(20, 10.0)),
        "model/decay_share": (steps, numpy.where(steps < 40, 0.09, 0.001)),
    }  # fmt: skip
    assert not only(findings([DecayDominates()], columns), "decay_dominates")


@pytest.mark.parametrize(("last", "found"), [(0.04, False), (0.3, True)])
def test_a_decay_that_costs_next_to_nothing_of_what_was_learnt_is_left_alone(last: float, found: bool) -> None:
    steps = 10 * numpy.arange(20)
    columns = {
        "train/loss": numpy.r_[numpy.linspace(2.0, 0.02, 150), numpy.linspace(0.02, last, 10), numpy.full(40, last)],
        "model/param_norm": (steps, numpy.linspace(10, 6, 20)), "model/decay_share": (steps, numpy.full(20, 2.5e-3)),
    }  # fmt: skip
    assert bool(only(findings([DecayDominates()], columns), "decay_dominates")) == found
