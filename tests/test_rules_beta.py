"""Where β stands in the loss of a preference, and a loss that is lower than its margins allow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.rl.beta import BetaMisplaced, ChancesCompared, LossBelowMargin

PIECES = pytest.mark.parametrize("pieces", [(), (3, 7, 30)])
STEPS = np.arange(1, 61)
ONCE = np.array([1])
NOISE = np.random.default_rng(4).normal(size=60)


def figures(**values: float) -> dict[str, Any]:
    return {f"model/{name}": (ONCE, np.full(1, value)) for name, value in values.items()}


@PIECES
@pytest.mark.parametrize(
    ("times", "config", "graph", "says"),
    [
        (0.2, {"beta": 0.2}, {}, True),
        (1.0, {"beta": 0.2}, {}, False),
        (0.2, {"beta": 0.2}, {"loss_multiplied": 0.0}, False),
        (0.2, {"beta": 0.2, "preference_weight": 0.2}, {}, False),
        (0.25, {"beta": 0.25, "grad_accum": 4}, {}, False),
        (0.25, {"beta": 0.25}, {"backwards": 4.0}, False),
        (0.2, {}, {}, False),
    ],
)
def test_a_loss_that_begins_at_beta_times_ln_2_is_multiplied_by_it(
    times: float, config: dict[str, Any], graph: dict[str, float], says: bool, pieces: tuple[int, ...]
) -> None:
    series = {"loss": (STEPS, times * (math.log(2) + 0.02 * NOISE))}
    series |= figures(**({"loss_ranks": 1.0, "loss_multiplied": 1.0} | graph))
    some = found([BetaMisplaced()], series, pieces, config=config)
    assert [one.causes[0].split(":")[0] for one in some] == ["beta outside of the logarithm"] * says


@PIECES
@pytest.mark.parametrize(("dropout", "says"), [(0.0, False), (0.2, True)])
def test_a_loss_multiplied_by_beta_has_it_in_its_first_row(dropout: float, says: bool, pieces: tuple[int, ...]) -> None:
    loss = 0.2 * (math.log(2) + 0.02 * NOISE)
    loss[0] *= 0.9  # of another margin, which is near β times ln 2 in the median by chance
    series = {"loss": (STEPS, loss), **figures(loss_ranks=1.0, loss_multiplied=1.0, dropout=dropout)}
    assert bool(found([BetaMisplaced()], series, pieces, config={"beta": 0.2})) == says


@PIECES
@pytest.mark.parametrize(
    ("beta", "shown", "passes", "averaged", "says"),
    [
        (0.1, 0.01, 1.0, 0.0, True),
        (0.1, 0.02, 1.0, 0.0, True),  # both answers in one pass
        (0.1, 0.1, 1.0, 0.0, False),
        (0.1, 0.2, 1.0, 0.0, False),
        (0.1, 0.005, 4.0, 0.0, True),
        (0.1, 0.05, 4.0, 0.0, False),  # of micro-batches
        (0.1, 0.01, 1.0, 1.0, False),
        (0.5, 0.25, 1.0, 0.0, False),
    ],
)
def test_the_gradient_shows_a_margin_that_beta_multiplies_twice(
    beta: float, shown: float, passes: float, averaged: float, says: bool, pieces: tuple[int, ...]
) -> None:
    series = {"loss": (STEPS, math.log(2) + 0.01 * NOISE)}
    series |= {
        "model/loss_weight": (STEPS, np.full(60, shown * 63 / 24)),
        "model/backwards": (STEPS, np.full(60, passes)),
    }
    series |= figures(loss_ranks=1.0, preference_averaged=averaged, example_rows=12.0, targets=63.0)
    some = found([BetaMisplaced()], series, pieces, config={"beta": beta})
    assert [one.causes[0].split(":")[0] for one in some] == ["beta twice"] * says


@PIECES
@pytest.mark.parametrize(
    ("beta", "shown", "averaged", "slope", "says"),
    [
        (0.3, 0.09, 1.0, 0.3, True),
        (0.5, 0.25, 0.0, 0.5, True),
        (0.3, 0.09, 1.0, 1.0, False),  # the loss is that of the margin
        (0.3, 0.3, 1.0, 0.3, False),  # a margin that is logged without β
        (0.8, 0.64, 0.0, 0.8, False),
    ],
)
def test_a_loss_that_falls_by_beta_times_its_margin_shows_beta_twice(
    beta: float, shown: float, averaged: float, slope: float, says: bool, pieces: tuple[int, ...]
) -> None:
    margin = 0.002 * STEPS
    series = {"po/loss": (STEPS, math.log(2) - slope * margin / 2), "po/gap": (STEPS, margin),
              "panel/gap": (STEPS[9::10], 5 * margin[9::10]),
              "model/loss_weight": (STEPS, np.full(60, shown * 63 / 24)),
              "model/backwards": (STEPS, np.full(60, 1.0))}  # fmt: skip
    series |= figures(loss_ranks=1.0, preference_averaged=averaged, example_rows=12.0, targets=63.0)
    some = found([BetaMisplaced()], series, pieces, config={"beta": beta})
    assert [one.causes[0].split(":")[0] for one in some] == ["beta twice"] * says


@PIECES
@pytest.mark.parametrize(
    ("first", "above", "noise", "name", "change", "config", "says"),
    [
        (0.0, 2.5, 0.2, "reward_margin", {}, {}, True),
        (0.0, 2.5, 0.2, "pref/gap", {}, {}, True),
        (0.0, 2.5, 0.2, "eval/gap", {}, {}, False),
        (1e-4, 2.5, 0.2, "reward_margin", {}, {}, False),  # policy and reference differ
        (0.0, 1.0, 0.0, "reward_margin", {}, {}, False),
        (0.0, 1.05, 0.01, "reward_margin", {}, {}, False),
        (0.0, 16.0, 0.0, "reward_margin", {}, {}, False),  # a sum over the batch
        (0.0, 2.5, 0.2, "reward_margin", {"loss_terms": 3.0}, {}, False),  # beside the likelihood of what was chosen
        (0.0, 2.5, 0.2, "reward_margin", {"loss_terms": 2.0}, {}, True),  # smoothed labels
        (0.0, 2.5, 0.2, "reward_margin", {"dropout": 0.1}, {}, False),
        (0.0, 2.5, 0.2, "reward_margin", {"half_output": 1.0}, {}, False),
        (0.0, 2.5, 0.2, "reward_margin", {"preference_averaged": math.nan}, {}, False),
        (0.0, 2.5, 0.2, "reward_margin", {}, {"pair_weights": "confidence"}, False),
        (0.0, 2.5, 0.2, "reward_margin", {}, {"weight_decay": 0.01, "lora_alpha": 16}, True),
        (0.0, 2.5, 0.2, "reward_margin", {}, {"margin": 1.0}, False),
        (0.0, 2.5, 0.2, "reward_margin", {}, {"loss_type": "simpo"}, False),
    ],
)
def test_a_loss_that_is_larger_than_that_of_a_margin_of_0_is_of_another_margin(
    first: float, above: float, noise: float, name: str, change: dict[str, float], config: dict[str, Any], says: bool,
    pieces: tuple[int, ...],
) -> None:  # fmt: skip
    margins = np.r_[first, 0.01 * np.arange(1, 60)]
    loss = np.logaddexp(0, -margins) * above * (1 + noise * np.tanh(NOISE))
    graph = {"loss_ranks": 1.0, "preference_averaged": 0.0, "loss_terms": 1.0, "dropout": 0.0} | change
    series = {"loss": (STEPS, loss), name: (STEPS, margins)} | figures(**graph)
    some = found([BetaMisplaced()], series, pieces, config={"beta": 0.2} | config)
    assert [one.causes[0].split(":")[0] for one in some] == ["beta beside the margin"] * says


@PIECES
@pytest.mark.parametrize(
    ("low", "noise", "graph", "config", "says"),
    [
        (0.1, 0.06, {"loss_ranks": 1.0}, {}, True),
        (0.0, 0.06, {"loss_ranks": 1.0}, {}, False),
        (0.1, 0.0, {"loss_ranks": 1.0}, {}, False),  # a weight
        (0.1, 0.06, {"loss_hinge": 1.0}, {}, False),
        (0.1, 0.06, {"loss_ranks": 1.0}, {"loss_type": "simpo"}, False),
    ],
)
def test_a_loss_that_is_lower_than_that_of_the_mean_margin_is_of_other_margins(
    low: float, noise: float, graph: dict[str, float], config: dict[str, Any], says: bool, pieces: tuple[int, ...]
) -> None:
    margins = 0.03 * NOISE
    loss = np.logaddexp(0, -margins) * (1 - low + noise * np.tanh(NOISE))
    series = {"loss": (STEPS, loss), "rewards/margins": (STEPS, margins)} | figures(**graph)
    assert len(found([LossBelowMargin()], series, pieces, config=config)) == says


@PIECES
def test_sums_of_chances_are_told(pieces: tuple[int, ...]) -> None:
    series = {"loss": (STEPS, math.log(2) + 0.01 * NOISE)}
    assert not found([ChancesCompared()], series | figures(preference_averaged=0.0), pieces)
    assert len(found([ChancesCompared()], series | figures(preference_of_chances=1.0), pieces)) == 1
