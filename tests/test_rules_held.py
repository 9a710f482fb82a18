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


@pytest.mark.parametrize(
    ("more", "cause"),
    [({}, "optimizer made too early"), ({"optimizer_holds": 0.0, "shards": 2.0}, "optimizer made too early"),
     ({"optimizer_holds": 1.0, "shards": 2.0}, "gradients never synchronised"),
     ({"optimizer_holds": 1.0, "shards": 1.0}, "gradients not there")],
)  # fmt: skip
def test_an_optimizer_that_holds_what_is_trained_is_not_said_to_hold_others(more: dict[str, float], cause: str) -> None:
    figures = {"without_gradient": 29.0, "trained_parameters": 29.0, "backwards": 1.0} | more
    columns = {f"model/{name}": (LOOKED, numpy.full(6, value)) for name, value in figures.items()}
    (found,) = findings([OptimizerElsewhere()], columns).values()
    assert found.causes[0].startswith(cause) and ("holds others" in found.message) == cause.startswith("optimizer")
