"""Losses that are logged as sums or means of all rows so far, and those that only look so."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.loss.accumulated import AccumulatedLoss, MeanOfAll


def course(rows: int, start: float = 1.2, end: float = 0.3, length: float = 20.0) -> Any:
    return end + (start - end) * numpy.exp(-numpy.arange(rows) / length)


def said(columns: dict[str, Any]) -> list[Finding]:
    found = findings([AccumulatedLoss(), MeanOfAll()], columns)
    return only(found, "accumulated_loss") + only(found, "mean_of_all")


@pytest.mark.parametrize("beside", ["eval/loss", "eval/accuracy"])
def test_a_sum_that_is_never_set_back_is_named_from_its_first_row(beside: str) -> None:
    own = course(60) * noisy(60, 1, 0.04)
    seen = 1.2 * course(60) if beside == "eval/loss" else 1 - course(60) / 2
    (one,) = said({"train/loss": own.cumsum(), beside: seen})
    assert (one.severity, one.step, one.causes[0][:11]) == ("warning", 0, "loss summed")
    assert one.found <= 25


def test_a_sum_that_is_set_back_now_and_then_is_one_too() -> None:
    own = course(120, length=40) * noisy(120, 1, 0.03)
    (one,) = said({"train/loss": numpy.concatenate([own[:70].cumsum(), own[70:].cumsum()]), "eval/loss": course(120)})
    assert one.rule == "accumulated_loss"


@pytest.mark.parametrize(
    "columns",
    [
        {"train/loss": course(60).cumsum(), "eval/loss": 1 + 0.1 * numpy.arange(60)},  # it diverges, slower and slower
        {"train/loss": course(60).cumsum()},  # nobody says how it evaluates
        {"train/loss": 1 + numpy.linspace(0, 30, 60) ** 1.3, "eval/loss": course(60)},  # faster and faster
        {
            "train/loss": 1 + numpy.linspace(0, 6, 60) * noisy(60, 1, 0.02),
            "eval/loss": course(60),
        },  # a penalty
        {"train/loss": course(60).cumsum(), "eval/loss": 1e-4 * course(60)},  # of another unit
        {"train/loss": course(60) * noisy(60, 1, 0.05), "eval/loss": course(60)},
    ],
)
def test_a_loss_that_rises_is_no_sum_unless_all_of_it_fits(columns: dict[str, Any]) -> None:
    assert not said(columns)


def mean(values: Any) -> Any:
    return values.cumsum() / numpy.arange(1, len(values) + 1)


def smoothed(values: Any, share: float) -> Any:
    result = [values[0]]
    for value in values[1:]:
        result.append((1 - share) * result[-1] + share * value)
    return numpy.array(result)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_the_mean_of_all_rows_is_known_by_its_noise(seed: int, noise: float) -> None:
    own = course(1100, 4.0, 1.5, 300) * noisy(1100, 1, noise, seed)
    (one,) = said({"train/loss": mean(own)})
    assert (one.rule, one.severity, one.step) == ("mean_of_all", "info", 0)
    epochs = numpy.arange(1100) // 200
    assert said({"train/loss": mean(own), "train/epoch": epochs})[0].severity == "warning"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "made",
    [
        lambda own: own,
        lambda own: smoothed(own, 0.02),
        lambda own: numpy.convolve(own, numpy.ones(50) / 50, "valid"),
        lambda own: numpy.concatenate([mean(part) for part in numpy.split(own[:1000], 4)]),  # anew at each epoch
        lambda own: own / own * course(len(own), 4.0, 1e-3, 90),  # nothing is drawn: the curve is smooth
        lambda own: own * numpy.arange(1, len(own) + 1) ** -0.9,  # all is fitted
        lambda own: numpy.round(own, 2),
    ],
)
def test_other_averages_are_no_mean_of_all_rows(seed: int, made: Any) -> None:
    own = course(1200, 4.0, 1.5, 300) * noisy(1200, 1, 0.08, seed)
    assert not said({"train/loss": made(own)})


@pytest.mark.parametrize("seed", range(10))
def test_where_rows_are_cut_changes_nothing(seed: int) -> None:
    columns = random_columns(seed, ["train/loss", "eval/loss", "eval/accuracy", "train/epoch"])
    same_when_cut([AccumulatedLoss, MeanOfAll], columns, seed)
    own = course(600) * noisy(600, 1, 0.03, seed)
    same_when_cut([AccumulatedLoss, MeanOfAll], {"train/loss": own.cumsum(), "eval/loss": course(600)}, seed)
