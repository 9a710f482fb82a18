"""Weights of a sum's parts are found where the parts add up to it, and only there."""

from __future__ import annotations

import numpy
import pytest

from barograph.doctor.kernel.sums import weights_of

DICE = numpy.random.default_rng(3)
PARTS = DICE.normal(size=(64, 3)) * (1.0, 1e-3, 50.0)


def test_weights_of_parts_of_any_size_are_found() -> None:
    found = weights_of(PARTS, PARTS @ (0.5, -0.01, 1.0), 1e-3)
    assert found is not None and found == pytest.approx([0.5, -0.01, 1.0])


def test_a_part_that_rounding_hides_has_no_weight() -> None:
    found = weights_of(PARTS, numpy.round(PARTS @ (0.0, 0.0, 1.0), 3), 1e-3)
    assert found is not None and found[:2].tolist() == [0.0, 0.0] and found[2] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("how", ["another part", "the same part twice", "not finite"])
def test_nothing_is_said_of_what_does_not_add_up(how: str) -> None:
    parts, whole = PARTS.copy(), PARTS.sum(1)
    if how == "another part":
        whole += DICE.normal(size=64)
    elif how == "not finite":
        parts[3, 1] = numpy.nan
    else:
        parts[:, 1] = parts[:, 0]
    assert weights_of(parts, whole, 1e-3) is None
