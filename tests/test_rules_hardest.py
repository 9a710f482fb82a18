"""A loss of a few examples of each batch, chosen by its size: which of them warn."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from rule_columns import findings

from barograph.doctor.rules.loss.hardest import HardestAlone

EVALUATIONS = numpy.arange(24, 200, 25)


@pytest.mark.parametrize("cuts", [(), (30, 110)])
@pytest.mark.parametrize(
    ("figures", "loss", "told"),
    [
        ({}, 1.9, True),
        ({"hardest_kept": 2.0}, 1.9, True),
        ({"hardest_kept": 3.0}, 1.9, False),
        ({"hardest_kept": 0.0}, 1.9, False),
        ({"hardest_kept": 1.0, "hardest_of": 8.0, "example_rows": 8.0}, 1.9, True),
        ({"hardest_kept": 1.0, "hardest_of": 7.0, "example_rows": 7.0}, 1.9, False),
        ({"hardest_of": 4096.0}, 1.9, False),  # the places of pictures
        ({}, math.log(5) - 0.01, False),  # something is learnt
        ({"output_width": 1.0}, 0.7, True),
        ({"output_width": 1.0}, 0.69, False),
        ({}, [1.9, 1.9, 1.9, 1.5, 1.9, 1.9, 1.5, 1.9], False),
        ({}, math.inf, False),
    ],
)
def test_few_of_the_examples_warn_where_evaluations_are_no_better_than_a_guess(
    figures: dict[str, float], loss: Any, told: bool, cuts: tuple[int, ...]
) -> None:
    known = {"hardest_kept": 1.0, "hardest_of": 16.0, "example_rows": 16.0, "output_width": 5.0} | figures
    columns: dict[str, Any] = {f"model/{name}": ([0], [value]) for name, value in known.items()}
    columns |= {"val/loss": (EVALUATIONS, numpy.broadcast_to(numpy.asarray(loss, float), EVALUATIONS.shape))}
    columns |= {"train/loss": numpy.full(200, 2.0)}
    found = findings([HardestAlone()], columns, cuts=cuts)
    assert [(one.severity, one.step, one.found) for one in found.values()] == [("warning", 0, 124)] * told
