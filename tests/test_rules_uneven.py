"""Answers of which one is averaged and the other added up, and a preference whose loss has no bound."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.rl.crossed import AnswersUneven, PreferenceUnbounded
from barograph.doctor.rules.rl.preference_loss import PreferenceAveraged

STEP = np.arange(64)
CUTS = [(), (7, 33, 40)]


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(("share", "told"), [(0.5, True), (0.0, False), (1.0, False)])
def test_one_side_that_is_averaged_is_told(share: float, told: bool, cuts: tuple[int, ...]) -> None:
    columns = {
        "train/loss": 0.69 - 0.005 * STEP,
        "model/preference_averaged": (STEP[:1], np.array([share])),
    }
    found = findings([AnswersUneven()], columns, cuts=cuts).values()
    assert [(one.rule, one.step) for one in found] == [("answers_uneven", 0)] * told


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(("slope", "seen", "told"), [(-0.02, True, True), (-0.02, False, False), (0.001, True, False)])
def test_a_margin_that_is_the_loss_is_told(slope: float, seen: bool, told: bool, cuts: tuple[int, ...]) -> None:
    columns = {"train/loss": slope * STEP}
    columns |= {"model/preference_unbounded": (STEP[:1], np.ones(1))} if seen else {}
    found = findings([PreferenceUnbounded()], columns, cuts=cuts).values()
    assert [one.rule for one in found] == ["preference_unbounded"] * told


@pytest.mark.parametrize(("divided", "end", "told"), [(False, 0.4, True), (True, 0.4, False), (True, 0.68, True)])
def test_a_division_by_what_is_not_known_needs_a_loss_that_stays(divided: bool, end: float, told: bool) -> None:
    columns = {"train/loss": np.linspace(0.6932, end, 64), "model/preference_averaged": (STEP[:1], np.ones(1))}
    columns |= {"model/preference_divided": (STEP[:1], np.ones(1))} if divided else {}
    found = list(findings([PreferenceAveraged()], columns, facts={"config": {"beta": 0.1}}).values())
    assert [one.rule for one in found] == ["preference_averaged"] * told
    assert all((one.confidence >= 0.95) != divided and ("are divided" in one.message) == divided for one in found)
    denied = findings([PreferenceAveraged()], columns, facts={"config": {"beta": 0.1, "per_word": False}}).values()
    assert bool(denied) == (told and not divided)
