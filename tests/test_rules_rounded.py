"""Weights in 16 bits whose updates are rounded away: while there is something to learn, and behind it."""

from __future__ import annotations

import numpy
import pytest
from rule_curves import found

from barograph.doctor.rules.optimizer.optimizer import UnchangedParameters


@pytest.mark.parametrize(("lost", "told"), [(0.0, "warning"), (0.5, "warning"), (0.98, "warning"), (0.999, "info")])
def test_what_is_rounded_away_when_all_is_learnt_informs(lost: float, told: str) -> None:
    steps = numpy.arange(10)
    series = {
        "model/unchanged": (steps, numpy.full(10, 4.0)),
        "model/half_parameters": (steps, numpy.full(10, 6.0)),
        "model/trained_parameters": (steps, numpy.full(10, 6.0)),
        "model/update_p50": (steps, numpy.zeros(10)),
        "train/loss": (steps, 2 - 2 * lost * (steps > 0)),
    }
    said = found([UnchangedParameters()], series)
    assert {one.severity for one in said} == {told}
    assert all(one.causes[0].startswith("updates lost in rounding") for one in said)
