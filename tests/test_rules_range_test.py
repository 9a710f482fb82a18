"""A sweep of learning rates: what blows up at its end is what it was made for."""

from __future__ import annotations

import numpy
import pytest

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.finding import Finding

ROWS = 200
STEPS = numpy.arange(ROWS)
SWEEP = 1e-6 * (1e7 ** (STEPS / (ROWS - 1)))


def incidents(rates: numpy.ndarray, size: int = ROWS) -> list[Finding]:
    """Of a loss that falls from step 80 on, and blows up behind step 150."""
    dice = numpy.random.default_rng(1)
    loss = 1.6 * numpy.exp(-numpy.clip(STEPS - 80, 0, 70) / 60) * numpy.exp(dice.normal(0, 0.02, ROWS))
    loss[150:] *= numpy.exp(numpy.arange(ROWS - 150) / 10)
    examiner = Examiner()
    for low in range(0, ROWS, size):
        some = slice(low, low + size)
        for name, values in {"train/loss": loss, "train/lr": rates}.items():
            examiner.seen.add(name, STEPS[some], values[some], 1000 * STEPS[some])
        examiner.examine()
    examiner.seen.facts["finished"] = True
    examiner.examine()
    assert not examiner.failed, examiner.failed
    return examiner.incidents()


@pytest.mark.parametrize(
    ("rates", "sweeps"),
    [
        (SWEEP, True),
        (numpy.full(ROWS, 1e-3), False),
        (numpy.minimum(1, (STEPS + 1) / 100) * 1e-3, False),
        (1e-6 * 1000 ** (STEPS / (ROWS - 1)), False),
    ],
    ids=["sweep", "constant", "linear warm-up", "a warm-up by one factor"],
)
def test_a_loss_that_blows_up_is_no_warning_in_a_sweep_of_rates_alone(rates: numpy.ndarray, sweeps: bool) -> None:
    found = incidents(rates)
    assert all(one.severity == "info" for one in found) == sweeps
    (rise,) = [one for one in found if one.kind == "divergence"]
    assert ("test of a range" in rise.message) == sweeps
    if sweeps:
        assert rise.causes[0].startswith("learning rate too high") and "well below" in rise.remedies[0]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_sweep_is_seen_as_early_row_by_row(size: int) -> None:
    assert [(one.kind, one.severity) for one in incidents(SWEEP, size)] == [
        (one.kind, one.severity) for one in incidents(SWEEP)
    ]
