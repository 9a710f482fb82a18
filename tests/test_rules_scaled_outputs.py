"""Logits that are multiplied by a number before the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.data.outputs import ScaledOutputs

PIECES = pytest.mark.parametrize("pieces", [(), (1, 4)])


@PIECES
@pytest.mark.parametrize(
    ("values", "config", "says"),
    [
        ([0.125] * 6, {}, True),
        ([10.0] * 6, {"lr": 1e-3, "mlm_probability": 0.15}, True),
        ([10.0] * 2, {}, False),
        ([1.1] * 6, {}, False),
        ([10.0, 10.5, 11.0, 11.5, 12.0, 12.5], {}, False),  # learnt
        ([14.3] * 6, {"temperature": 0.07}, False),
        ([30.0] * 6, {"arcface_s": 30}, False),
        ([0.25] * 6, {"model": {"logit_multiplier": 0.25}}, False),
        ([0.5] * 6, {"loss": "distillation"}, False),
    ],
)
def test_a_constant_number_before_the_softmax_is_told_where_nothing_says_that_it_is_meant(
    values: list[float], config: dict[str, Any], says: bool, pieces: tuple[int, ...]
) -> None:
    series = {"model/output_scale": (np.arange(1, 1 + len(values)), np.array(values))}
    assert len(found([ScaledOutputs()], series, pieces, config=config)) == says
