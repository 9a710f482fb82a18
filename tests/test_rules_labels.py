"""Labels a part of which is random, by the rows that a classifier gets wrong."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.data.labels import NoisyLabels

LOOKS = np.arange(0, 160, 4)


def told(
    level: float, theirs: float = 0.6, rank: float = 0.45, share: float = 0.3, pieces: tuple[int, ...] = ()
) -> int:
    """How many findings. level: of the training's loss."""
    noise = np.sin(np.arange(160))
    full = np.ones(len(LOOKS))
    series = {
        "train/loss": (np.arange(160), level * (1 + 0.02 * noise)),
        "val/loss": (np.arange(19, 160, 20), np.full(8, theirs)),
        "model/output_width": ([0], [6.0]),
    }
    values = {"targets": 32.0, "wrong_share": share, "wrong_rank": rank, "wrong_sure": 0.95, "noise_floor": 0.0}
    series |= {f"model/{name}": (LOOKS, value * full) for name, value in values.items()}
    return len(found([NoisyLabels()], series, pieces))


@pytest.mark.parametrize("pieces", [(), (30, 70)])
def test_wrong_rows_that_have_any_target_are_told_of(pieces: tuple[int, ...]) -> None:
    assert told(1.0, pieces=pieces) == 1


@pytest.mark.parametrize("level", [1.75, 1.8, 2.8])
def test_a_model_that_knows_no_more_than_a_guess_says_nothing_of_labels(level: float) -> None:
    """One whose loss was added up over a batch has diverged, and one of sorted batches forgets."""
    assert told(level, theirs=1.0) == 0


def test_wrong_rows_whose_target_is_the_next_likely_say_nothing() -> None:
    assert told(1.0, rank=0.1) == 0
