"""Embeddings of length 1 that come near each other."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.activations.reach import ConstantOutput

PIECES = pytest.mark.parametrize("pieces", [(), (2, 9, 11)])
STEPS = np.arange(1, 200, 10)


@PIECES
@pytest.mark.parametrize(
    ("first", "last", "width", "length", "says"),
    [
        (0.9, 0.1, 24, 1.0, True),
        (0.9, 0.5, 24, 1.0, False),
        (0.2, 0.1, 24, 1.0, False),  # near each other from the start
        (0.9, 0.1, 24, 1.3, False),
        (0.9, 0.1, 4, 1.0, False),  # as of a rotation
    ],
)
def test_embeddings_of_length_one_that_come_near_each_other_are_told(
    first: float, last: float, width: int, length: float, says: bool, pieces: tuple[int, ...]
) -> None:
    spread = np.where(np.arange(20) < 5, first, last)
    series = {
        "model/output_spread": (STEPS, spread),
        "model/output_size": (STEPS, np.full(20, length / width**0.5)),
        "model/output_width": (STEPS[:1], np.full(1, width)),
    }
    some = found([ConstantOutput()], series, pieces)
    assert [one.causes[0].split(":")[0] for one in some] == ["outputs collapsed"] * says


@PIECES
@pytest.mark.parametrize(("apart", "says"), [(1.06, False), (1.01, True), (1.0, True)])
def test_embeddings_that_come_apart_again_have_not_collapsed(apart: float, says: bool, pieces: tuple[int, ...]) -> None:
    """As of a contrastive loss that first draws all near each other."""
    noise = 1 + 0.15 * np.random.default_rng(0).uniform(-1, 1, 20)
    spread = np.where(np.arange(20) < 5, 0.9, 0.1 * noise * apart ** np.clip(np.arange(20) - 5, 0, None))
    series = {
        "model/output_spread": (STEPS, spread),
        "model/output_size": (STEPS, np.full(20, 24**-0.5)),
        "model/output_width": (STEPS[:1], np.full(1, 24)),
    }
    assert bool(found([ConstantOutput()], series, pieces)) == says
