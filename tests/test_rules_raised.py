"""Losses behind a resume that are higher all together, though no few of them stand out; and those that go on."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.run.raised import ResumeRaised
from barograph.doctor.rules.run.resume import ResumeDiscontinuity

DICE = numpy.random.default_rng(3)
STEPS = numpy.arange(200)
NOISE = 0.25 * DICE.normal(size=200)


def falling(leap: float, noise: float = 1.0, rows: int = 200) -> numpy.ndarray:
    behind = STEPS >= 100
    return numpy.exp(0.5 - 0.004 * STEPS + noise * NOISE + leap * behind * numpy.exp(-(STEPS - 100) / 30))[:rows]


@pytest.mark.parametrize("cuts", [(), (50, 104, 111, 130)])
@pytest.mark.parametrize(
    ("loss", "rate", "told"),
    [
        (falling(0.6), STEPS * 0 + 1e-3, True),
        (falling(0.6), 1e-3 * (1 - STEPS / 200) ** 2, True),
        (falling(0.0), STEPS * 0 + 1e-3, False),
        (falling(0.1), STEPS * 0 + 1e-3, False),
        (falling(-0.6), STEPS * 0 + 1e-3, False),
        (falling(0.6), numpy.where(STEPS < 100, 1e-3, 2e-3), False),  # another rate
        (falling(0.6), numpy.where(STEPS < 100, 1e-3, 1e-5 * (STEPS - 99)), False),  # warmed up once more
        (falling(3.0), STEPS * 0 + 1e-3, False),  # a few rows show it: `resume_discontinuity`
        (falling(0.6, rows=112), STEPS[:112] * 0 + 1e-3, False),
        (falling(0.6) * numpy.exp(0.8 * numpy.sin(STEPS / 5)), STEPS * 0 + 1e-3, False),  # losses that come in waves
    ],
)
def test_eight_losses_above_the_level_before_a_resume_are_told(
    loss: numpy.ndarray, rate: numpy.ndarray, told: bool, cuts: tuple[int, ...]
) -> None:
    columns = {"train/loss": loss, "train/lr": rate}
    found = findings([ResumeRaised()], columns, cuts=cuts, segments={0: 0, 100: 1})
    assert [(one.severity, one.step) for one in only(found, "resume_raised")] == [("warning", 100)] * told


def test_what_a_few_rows_show_is_said_once() -> None:
    columns: dict[str, Any] = {"train/loss": falling(3.0), "train/lr": STEPS * 0 + 1e-3}
    found = findings([ResumeRaised(), ResumeDiscontinuity()], columns, segments={0: 0, 100: 1})
    assert len(only(found, "resume_discontinuity")) == 1 and not only(found, "resume_raised")


def test_a_few_rows_that_are_higher_by_chance_are_no_jump() -> None:
    """Rows that vary evenly are never far off in a mean of eight, and the first behind may be a little higher."""
    dice = numpy.random.default_rng(0)
    loss = numpy.exp(0.3 * numpy.where(STEPS % 2, 1, -1) + 0.02 * dice.normal(size=200))
    for leap, told in ((0.25, False), (0.6, True)):
        columns = {"train/loss": loss * numpy.where((STEPS >= 100) & (STEPS < 108), numpy.exp(leap), 1),
                   "train/lr": STEPS * 0 + 1e-3}  # fmt: skip
        found = findings([ResumeRaised()], columns, segments={0: 0, 100: 1})
        assert bool(only(found, "resume_raised")) == told, (leap, found)


def test_healthy_resumes_are_hardly_ever_told() -> None:
    told = 0
    for seed in range(200):
        dice = numpy.random.default_rng(seed)
        loss = numpy.exp(-0.003 * STEPS + 0.3 * dice.standard_t(4, size=200))
        columns = {"train/loss": loss, "train/lr": STEPS * 0 + 1e-3}
        told += len(only(findings([ResumeRaised()], columns, segments={0: 0, 100: 1}), "resume_raised"))
    assert told == 0
