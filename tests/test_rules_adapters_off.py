"""Adapters that an evaluation switched off, and that are not on again."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.activations.adapters import AdaptersLeftOff

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
