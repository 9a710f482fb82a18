"""A rise of the loss that is none: it goes round, and comes down as low as ever."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found, warned

from barograph.doctor.rules.loss.progress import RULES


def look(loss: np.ndarray):
    return found([rule() for rule in RULES], {"train/loss": (np.arange(len(loss)), loss)})


@pytest.mark.parametrize("period", [3, 7, 12, 20, 33])
@pytest.mark.parametrize("height", [0.3, 0.6])
@pytest.mark.parametrize("shape", ["saw", "sine", "fall"])
def test_a_loss_that_goes_round_does_not_diverge(period: int, height: float, shape: str) -> None:
    along = np.arange(700) % period / period
    course = {"saw": along, "sine": 0.5 + 0.5 * np.sin(2 * np.pi * along), "fall": 1 - along}[shape]
    loss = np.exp(np.log(2) + height * course)
    loss[400] = 99.0
    assert not [one for one in warned(look(loss)) if one.rule == "divergence"]


def test_a_rise_that_turns_out_to_come_round_is_an_info_finding() -> None:
    course = 2.5 * np.where(np.arange(800) // 40 % 2, 1.5, 1.0)
    early = next(one for one in look(course[:70]) if one.rule == "divergence")
    late = next(one for one in look(course) if one.rule == "divergence")
    assert (early.severity, late.severity) == ("critical", "info") and early.step == late.step == 40
    assert "come back as far again by step" in late.message


def test_a_loss_that_leaps_from_a_saw_tooth_diverges() -> None:
    loss = 2.0 + np.arange(800) % 7 / 10
    loss[500:] *= 2
    finding = next(one for one in look(loss) if one.rule == "divergence")
    assert finding.severity == "critical" and 495 <= finding.step <= 502


@pytest.mark.parametrize(
    ("width", "asked", "moved", "severity"),
    [
        (64.0, 1.0, 3e-4, "info"),
        (30.0, 1.0, 3e-4, "critical"),  # a guess would be better
        (64.0, 0.0, 3e-4, "critical"),  # the other network is asked for something else
        (64.0, 1.0, 0.0, "critical"),  # and here it stays as it is: the target does not move
    ],
)
def test_a_student_and_its_teacher_begin_alike_and_are_apart_before_they_agree_again(
    width: float, asked: float, moved: float, severity: str
) -> None:
    steps, early = np.arange(60), np.arange(20)
    noise = np.random.default_rng(0).normal(0, 0.01, 60)
    series = {"train/loss": (steps, 3.1 + 0.75 * np.clip(steps - 3, 0, 20) / 20 + noise)}
    series |= {"model/output_width": (early[:1], np.array([width])), "model/other_asked": (early, np.full(20, asked)),
               "model/other_moved": (early, np.full(20, moved))}  # fmt: skip
    (one,) = (one for one in found([rule() for rule in RULES], series) if one.rule == "divergence")
    assert one.severity == severity


@pytest.mark.parametrize(
    ("moves", "ranks", "end", "severity"),
    [
        (True, True, 0.69, "info"),
        (True, True, 0.95, "critical"),  # above a margin of 0
        (False, True, 0.69, "critical"),
        (True, False, 0.69, "critical"),  # another network than a reference
    ],
)
def test_the_loss_of_a_preference_comes_back_where_its_reference_is_set_anew(
    moves: bool, ranks: bool, end: float, severity: str
) -> None:
    steps = np.arange(180)
    noise = np.random.default_rng(0).normal(0, 0.003, 180)
    series = {"train/loss": (steps, np.interp(steps, [0, 3, 50, 180], [0.693, 0.693, 0.45, end]) + noise)}
    series["model/other_moved"] = (steps[::30], np.where(moves & (steps[::30] > 60), 0.02, 0.0))
    series |= {"model/loss_ranks": (steps[:1], np.ones(1))} if ranks else {}
    (one,) = (one for one in found([rule() for rule in RULES], series) if one.rule == "divergence")
    assert one.severity == severity


@pytest.mark.parametrize("better", [True, False])
def test_rows_that_add_up_the_steps_since_the_first_have_not_risen(better: bool) -> None:
    at = np.arange(30)
    loss = np.where(at == 0, 31.0, 900 + 2400 * np.exp(-at / 9)) * (1 + 0.03 * np.sin(7 * at))
    score = 0.9 - 0.8 * np.exp(-at / 6) if better else 0.1 - 0.003 * at
    steps = at * 150
    series = {"train/loss": (steps, loss), "DEV_SCORE": (steps, score)}
    findings = found([rule() for rule in RULES], series)
    assert any(one.rule == "divergence" for one in findings) is not better


def test_a_loss_that_explodes_in_the_first_steps_diverges_whatever_a_score_does() -> None:
    at = np.arange(30)
    loss = np.where(at == 0, 2.3, 40 * np.exp(at / 20))
    series = {"train/loss": (at * 150, loss), "DEV_SCORE": (at * 150, 0.2 + 0.01 * at)}
    assert any(one.rule == "divergence" for one in found([rule() for rule in RULES], series))


@pytest.mark.parametrize(("added", "severity"), [(lambda at: 5 + 9 * 0.8**at, "info"), (lambda at: 4 + at, "critical")])
def test_a_sum_that_is_never_set_back_is_no_divergence(added, severity: str) -> None:
    findings = [one for one in look(np.cumsum(added(np.arange(24.0)))) if one.rule == "divergence"]
    assert [one.severity for one in findings] == [severity]
    assert ("sum of all rows" in findings[0].message) is (severity == "info")
    assert findings[0].causes[0].startswith("loss summed") is (severity == "info")


MEANS_THAT_BEGIN_LOW = (2, 8, 9, 14)


def means(seed: int, rises: float) -> np.ndarray:
    """Means of all losses so far, the first of which are low by chance; the losses may rise by much from row 150 on."""
    single = 0.09 * np.exp(np.random.default_rng(seed).normal(0, 0.8, 400))
    single[150:] *= rises
    return np.cumsum(single) / np.arange(1, 401)


@pytest.mark.parametrize("seed", MEANS_THAT_BEGIN_LOW)
def test_means_of_all_rows_may_begin_low(seed: int) -> None:
    assert not [one for one in look(means(seed, 1.0)) if one.rule == "divergence" and one.severity != "info"]
    tenth = found([rule() for rule in RULES], {"train/loss": (np.arange(10, 401, 10), means(seed, 1.0)[9::10])})
    assert not [one for one in tenth if one.rule == "divergence" and one.severity != "info"]
    assert [one for one in warned(look(means(seed, 5.0))) if one.rule == "divergence"]


def test_a_loss_that_is_no_mean_and_rises_from_a_low_begin_diverges() -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, 300)
    loss = (2 + np.minimum(np.arange(300), 60) / 20) * np.exp(noise)
    assert [one for one in warned(look(loss)) if one.rule == "divergence"]


@pytest.mark.parametrize("seed", range(3))
def test_a_leap_after_many_even_rows_is_none_of_means(seed: int) -> None:
    loss = 2 * np.exp(np.random.default_rng(seed).normal(0, 0.002, 600))
    loss[350:] *= 1.4
    assert [one for one in warned(look(loss)) if one.rule == "divergence"]
