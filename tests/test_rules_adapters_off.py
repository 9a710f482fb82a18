"""Adapters that an evaluation switched off, and that are not on again."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.activations.adapters import AdaptersBaseMoves, AdaptersLeftOff

STEP = np.arange(60)


@pytest.mark.parametrize("cuts", [(), (15, 16, 30)])
@pytest.mark.parametrize(
    ("left", "halves", "config", "told"),
    [
        ({15: 6.0}, 6.0, {}, True),
        ({15: 6.0}, 4.0, {}, False),  # others too: a part of the loss that is switched off
        ({18: 6.0}, 6.0, {}, False),  # with no evaluation before it
        ({15: 6.0, 20: 0.0}, 6.0, {}, False),  # put back
        ({15: 6.0, 16: 0.0, 17: 6.0}, 6.0, {}, False),  # by chance
        ({45: 6.0}, 6.0, {}, False),  # not long enough
    ],
)
def test_adapters_without_a_gradient_since_an_evaluation_are_told(
    left: dict[int, float], halves: float, config: dict[str, object], told: bool, cuts: tuple[int, ...]
) -> None:
    steps, values = np.array(list(left)), np.array(list(left.values()))
    columns = {
        "train/loss": 2 - 0.01 * STEP, "eval/loss": (np.array([14, 28, 44, 56]), np.full(4, 1.5)),
        "model/left_out": (steps, values), "model/left_out_adapters": (steps[:1], np.array([halves])),
    }  # fmt: skip
    found = findings([AdaptersLeftOff()], columns, cuts=cuts, facts={"config": config}).values()
    assert [(one.rule, one.step) for one in found] == [("adapters_left_off", 15)] * told


@pytest.mark.parametrize("cuts", [(), (15, 16, 30)])
@pytest.mark.parametrize(
    ("off", "gather", "told"),
    [
        (0.5, {0: 2.0}, True),
        (0.5, {0: 2.0, 10: 0.0}, False),  # put to evaluation mode
        (0.0, {0: 2.0}, False),  # the base alone is never asked
        (1.0, {0: 2.0}, False),  # `adapters_off_in_evaluation` is about that
        (0.5, {}, False),
    ],
)
def test_a_base_whose_batch_norm_gathers_is_told_where_it_is_asked_alone(
    off: float, gather: dict[int, float], told: bool, cuts: tuple[int, ...]
) -> None:
    columns = {"train/loss": 2 - 0.01 * STEP, "model/adapters_off": (np.array([15, 29, 45]), np.full(3, off))}
    if gather:
        columns["model/frozen_norms_gather"] = (np.array(list(gather)), np.array(list(gather.values())))
    found = findings([AdaptersBaseMoves()], columns, cuts=cuts).values()
    assert [one.step for one in found] == [15] * told
