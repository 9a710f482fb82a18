"""Micro-batches that are one batch, and what only looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.data.batches import MicroBatchesAlike

LOOKS = np.arange(1, 9)


@pytest.mark.parametrize(
    ("figures", "config", "says"),
    [
        ({"loss_weight": 0.5}, {}, True),
        ({"loss_weight": 0.4998}, {}, True),  # half precision
        ({}, {"gradient_accumulation_steps": 2}, True),
        ({"loss_weight": 1.0}, {}, False),  # a second pass on purpose, as of sharpness-aware minimisation
        ({"loss_weight": 1.0}, {"gradient_accumulation_steps": 1}, False),
        ({"loss_weight": 0.5, "beside_copies": 0.5}, {}, False),
        ({"loss_weight": 0.5, "backwards": 1.0}, {}, False),  # two views, and one loss of both
        ({"loss_weight": 0.5, "passes": 4.0}, {}, False),
    ],
)
def test_micro_batches_with_the_same_rows_are_found(
    figures: dict[str, float], config: dict[str, Any], says: bool
) -> None:
    figures = {"beside_copies": 1.0, "passes": 2.0, "backwards": 2.0} | figures
    columns = {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in figures.items()}
    assert bool(found([MicroBatchesAlike()], columns, config=config)) is says
    columns["model/beside_copies"] = LOOKS, np.where(LOOKS % 4 == 0, 0.0, figures["beside_copies"])
    assert not found([MicroBatchesAlike()], columns, config=config)
