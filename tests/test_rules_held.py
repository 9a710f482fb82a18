"""An optimizer that holds other parameters than those that are trained: what says so, and what looks like it."""

from __future__ import annotations

import numpy
import pytest
from rule_columns import findings

from barograph.doctor.rules.optimizer.held import OptimizerElsewhere

LOOKED = numpy.arange(0, 60, 10)


@pytest.mark.parametrize("cuts", [(), (5, 15, 35)])
@pytest.mark.parametrize(
    ("more", "tells"),
    [
        ({}, True),
        ({"without_gradient": 28.0}, False),
        ({"backwards": 0.0}, False),  # no pass reaches the model
        ({"written": 1.0}, False),  # from master copies
        ({"cleared_gradients": 1.0}, False),
    ],
)
def test_an_optimizer_of_other_parameters_is_told(more: dict[str, float], tells: bool, cuts: tuple[int, ...]) -> None:
    figures = {"without_gradient": 29.0, "trained_parameters": 29.0, "backwards": 1.0} | more
    columns = {f"model/{name}": (LOOKED, numpy.full(6, value)) for name, value in figures.items()}
    found = findings([OptimizerElsewhere()], columns, cuts=cuts)
    assert [(one.step, one.found) for one in found.values()] == [(0, 20)] * tells
