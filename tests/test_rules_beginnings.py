"""Texts in an order by what they are about: whether what is learnt of one part is lost in the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings
from test_rules_alike import STREAM
from test_rules_same_order import LOOKS

from barograph.doctor.rules.data.beginnings import ForgottenTexts


@pytest.mark.parametrize(
    ("changed", "low", "high", "config", "says"),
    [
        ({}, 1.0, 2.4, {}, True),
        ({}, 1.0, 1.4, {}, False),  # what was learnt stays
        ({}, 1.95, 2.4, {}, False),  # never below the evaluations
        ({"wording_beside": 0.6}, 1.0, 2.4, {}, False),
        ({"wording_beyond": 0.7}, 1.0, 2.4, {}, False),
        ({"wording_batches": 15.0}, 1.0, 2.4, {}, False),
        ({"wording_beyond": 0.6, "example_rows": 5.0}, 1.0, 2.4, {}, True),  # the loss jumps where a part begins
        ({"wording_beyond": 0.4, "example_rows": 5.0}, 1.0, 2.4, {}, False),
        ({"wording_beyond": 0.6, "example_rows": 3.0}, 1.0, 2.4, {}, False),
        ({}, 1.0, 2.4, {"curriculum": True}, False),
    ],
)
def test_a_text_that_is_read_on_needs_parts_that_are_lost_in_the_next(
    changed: dict[str, float], low: float, high: float, config: dict[str, Any], says: bool
) -> None:
    names = {"wording_apart": 0.2, "wording_beside": 0.2, "wording_beyond": 0.85, "wording_batches": 16.0,
             "example_rows": 16.0} | STREAM | changed  # fmt: skip
    columns: dict[str, Any] = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in names.items()}
    steps = np.arange(int(LOOKS[-1]) + 8)
    columns["train/loss"] = steps, np.where(steps % 40 < 20, low, high)
    columns["eval/loss"] = steps[9::10], np.linspace(2.5, 2.2, len(steps[9::10]))
    for cuts in ((), (3, 25, 41)):
        found = findings([ForgottenTexts()], columns, cuts=cuts, facts={"config": config})
        assert [one.causes[0][:11] for one in found.values()] == ["data sorted"] * says
