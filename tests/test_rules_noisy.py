"""Trainings that are noisy by nature: no warning of healthy ones, and a fault in them is found all the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from barograph.doctor.kernel.examiner import Examiner

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "doctor"))
import noisy


@pytest.mark.parametrize("seed", range(3 * len(noisy.TRAININGS)))
def test_a_noisy_healthy_training_is_not_warned_of(seed: int) -> None:
    assert noisy.warnings_of(seed) == []


@pytest.mark.parametrize("training", noisy.TRAININGS)
def test_a_loss_that_is_no_number_is_found_in_a_noisy_training(training) -> None:
    columns = training(np.random.default_rng(1))
    columns["train/loss"][1][-60:] = np.nan
    examiner = Examiner()
    for name, (steps, values) in columns.items():
        examiner.seen.add(name, steps, values, steps.astype(np.int64) * 100_000)
    examiner.catch_up()
    worst = examiner.incidents()[0]
    assert worst.severity == "critical" and worst.rule == "non_finite_loss"
