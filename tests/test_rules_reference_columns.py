"""Log probabilities of a reference that were made beforehand, beside a policy that begins as it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings as findings_by
from rule_curves import found as findings_of

from barograph.doctor.kernel.registry import make_rules
from barograph.doctor.kernel.story import tell
from barograph.doctor.rules.rl.columns import ReferenceColumns

ROWS = 80
STEP = np.arange(ROWS)
LEVEL = {"model/loss_terms": 1.0, "model/dropout": 0.0, "model/preference_averaged": 0.0, "model/half_parameters": 0.0}


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("begins", "change", "config", "told"),
    [
        (0.7086, {}, {}, True),
        (0.6901, {}, {}, True),
        (0.9970 * np.log(2) - 1e-6, {}, {}, True),
        (0.9971 * np.log(2), {}, {}, False),
        (0.6931, {}, {}, False),
        (1.1, {}, {}, False),  # of another kind
        (0.7086, {"model/loss_terms": 2.0}, {}, True),  # smoothed labels
        (0.7086, {"model/loss_terms": 3.0}, {}, False),  # beside the loss of what was chosen
        (0.7086, {"model/dropout": 0.1}, {}, False),
        (0.7086, {"model/half_parameters": 12.0}, {}, False),
        (0.7086, {"model/preference_averaged": None}, {}, False),  # rewards, or no reference
        (0.7086, {"model/other_apart": 0.0}, {}, False),  # a second network is there: see `reference_apart`
        (0.7086, {}, {"bf16": True}, False),
        (0.7086, {}, {"bf16": False}, True),
        (0.7086, {}, {"dpo.margin": 1.0}, False),
        (0.7086, {}, {"loss_type": "simpo"}, False),
        (0.7086, {}, {"mode": "simpo"}, False),
        (0.7086, {}, {"compared_with": "simpo"}, True),
        (0.7086, {}, {"iteration": 2}, False),
    ],
)
def test_a_preference_with_a_reference_made_beforehand_begins_at_ln_2(
    begins: float, change: dict[str, float | None], config: dict[str, Any], told: bool, pieces: tuple[int, ...]
) -> None:
    columns = {name: (STEP[:1], np.array([value])) for name, value in (LEVEL | change).items() if value is not None} | {
        "train/loss": (STEP, np.r_[begins, 0.69 - 1e-3 * STEP[1:]])
    }
    found = findings_of([ReferenceColumns()], columns, pieces, config=config)
    assert [(one.severity, one.step) for one in found] == [("warning", 0)] * told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13)), tuple(range(ROWS))])
@pytest.mark.parametrize("late", [0, 31, 60])
def test_it_waits_until_the_watch_has_told_of_the_loss(late: int, pieces: tuple[int, ...]) -> None:
    columns: dict[str, Any] = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    columns["train/loss"] = np.r_[0.7086, 0.69 - 1e-3 * STEP[1:]]
    found = findings_by([ReferenceColumns()], columns, cuts=pieces, late=dict.fromkeys(LEVEL, late))
    assert [(one.step, one.found) for one in found.values()] == [(0, max(31, late))]


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("begins", "name", "margin", "told"),
    [
        (0.3044, "trip/margin", 4.4, True),
        (2.4, "trip/margin", -7.0, True),
        (0.3044, "trip/margin", 0.0, False),
        (0.3044, "trip/margin", 0.5, False),  # less than the loss of the margin
        (0.3044, "trip/lead", 4.4, False),
        (0.3044, "val/margin", 4.4, False),
    ],
)
def test_a_loss_far_from_ln_2_is_one_of_the_margin_that_is_logged_beside_it(
    begins: float, name: str, margin: float, told: bool, pieces: tuple[int, ...]
) -> None:
    columns = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()} | {
        "train/loss": (STEP, np.r_[begins, begins - 1e-3 * STEP[1:]]),
        name: (STEP, np.r_[margin, margin + 0.01 * STEP[1:]]),
    }
    found = findings_of([ReferenceColumns()], columns, pieces)
    assert [(one.severity, one.step) for one in found] == [("warning", 0)] * told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("begins", "margin", "change", "config", "told"),
    [
        (26.27, -0.007, {}, {}, True),
        (26.27, -0.007, {"model/preference_compared": 1.0}, {}, False),  # hinges, or no reference
        (26.27, -0.007, {"model/dropout": 0.1}, {}, False),
        (26.27, -0.007, {"model/other_apart": 0.0}, {}, False),
        (26.27, -0.007, {}, {"beta": None}, False),
        (26.27, -0.007, {}, {"beta": 1.0}, False),  # of another kind
        (26.27, 0.0, {}, {}, False),
        (25.0, 0.0, {}, {}, False),
        (25.0, -0.007, {}, {}, False),
    ],
)
def test_squares_of_a_preference_with_a_reference_made_beforehand_begin_at_those_of_half_the_inverse_of_beta(
    begins: float, margin: float, change: dict[str, float], config: dict[str, Any], told: bool, pieces: tuple[int, ...]
) -> None:
    level = {name: value for name, value in LEVEL.items() if name != "model/preference_averaged"}
    figures = level | {"model/preference_compared": 2.0} | change
    columns = {name: (STEP[:1], np.array([value])) for name, value in figures.items()} | {
        "train/loss": (STEP, np.r_[begins, 24 - 0.1 * STEP[1:]]),
        "rewards/margins": (STEP, np.r_[margin, 0.01 * STEP[1:]]),
    }
    found = findings_of([ReferenceColumns()], columns, pieces, config={"beta": 0.1} | config)
    assert [(one.severity, one.step) for one in found] == [("warning", 0)] * told


@pytest.mark.parametrize(
    ("came", "same", "told"), [(21, None, True), (4, None, False), (21, 1.0, False), (21, 0.0, True)]
)
def test_a_network_that_evaluations_alone_ask_is_no_reference_of_the_training(
    came: int, same: float | None, told: bool
) -> None:
    columns = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    columns |= {"train/loss": (STEP, np.r_[0.7086, 0.69 - 1e-3 * STEP[1:]])}
    columns |= {"model/other_apart": (STEP[came:], 0.2 + 1e-3 * STEP[came:])}
    columns |= {} if same is None else {"model/other_same_input": (STEP[came:], same + 0.0 * STEP[came:])}
    assert bool(findings_of([ReferenceColumns()], columns)) == told


def test_a_run_that_begins_later_goes_on_with_a_policy_that_has_learnt() -> None:
    columns = {name: (6 + STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    assert not findings_of([ReferenceColumns()], columns | {"train/loss": (6 + STEP, 0.66 - 1e-3 * STEP)})


@pytest.mark.parametrize(("first", "told"), [(0, True), (1, True), (2, False), (4, False)])
def test_each_fifth_step_that_is_logged_begins_where_the_policy_began_only_with_the_first(
    first: int, told: bool
) -> None:
    columns = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    columns["train/loss"] = (first + 5 * STEP, 0.66 - 1e-3 * STEP)
    assert bool(findings_of([ReferenceColumns()], columns)) == told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("level", "begins", "at", "config", "told"),
    [
        (0.6, 1.0, 0, {}, True),
        (0.6, 1 + 0.9e-6, 0, {}, True),
        (0.6, 1 + 1.2e-6, 0, {}, False),  # some margin is not 0
        (0.899 * np.log(2), 1.0, 0, {}, True),
        (0.901 * np.log(2), 1.0, 0, {}, False),  # nothing was learnt that could be lost
        (0.6, 1.0, -40, {}, False),  # it begins anew
        (0.6, 1.0, 0, {"iteration": 2}, False),  # another round
    ],
)
def test_a_reference_that_is_made_anew_behind_a_resume_is_told(
    level: float, begins: float, at: int, config: dict[str, Any], told: bool, pieces: tuple[int, ...]
) -> None:
    loss = np.where(STEP < 40, level, 0.6)
    loss[0], loss[40] = np.log(2), begins * np.log(2)
    steps, segments = np.where(STEP < 40, STEP, STEP + at), np.where(STEP < 40, 1, 2)
    columns: dict[str, Any] = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    found = findings_of([ReferenceColumns()], columns | {"train/loss": (steps, loss, segments)}, pieces, config=config)
    assert [(one.severity, one.step, one.key) for one in found] == [("warning", 40, "anew")] * told


def test_what_the_loss_does_behind_a_resume_comes_of_its_reference() -> None:
    loss = np.where(STEP < 40, 0.4, 0.69 - 1e-3 * (STEP - 40))
    loss[0], loss[40] = np.log(2), np.log(2)
    columns: dict[str, Any] = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    columns |= {"train/loss": (STEP, loss, np.where(STEP < 40, 1, 2)), "model/adapter_rank": (STEP[:1], np.ones(1))}
    told = tell(findings_of(make_rules(), columns))
    worst = told[0]
    assert (worst.rule, worst.severity) == ("reference_columns", "critical")
    assert worst.causes[0].startswith("reference wrong")
    assert any("merged" in remedy for remedy in worst.remedies)


@pytest.mark.parametrize(
    ("begins", "differ"), [(0.56, True), (0.75, False)]
)  # rows that were mixed give more than ln 2
@pytest.mark.parametrize("adapters", [False, True])
def test_a_policy_without_its_adapters_is_no_column_made_beforehand(
    adapters: bool, begins: float, differ: bool
) -> None:
    columns: dict[str, Any] = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    columns |= {"train/loss": (STEP, np.r_[begins, 0.55 - 1e-3 * STEP[1:]])}
    columns |= {"model/adapter_rank": (STEP[:1], np.ones(1))} if adapters else {}
    (found,) = findings_of([ReferenceColumns()], columns)
    assert ("beforehand" in found.message) != adapters
    assert found.causes[0].startswith("log probabilities differ" if adapters and differ else "reference wrong")


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("before", "begins", "at", "config", "told"),
    [
        (0.3, 0.0, 0, {}, True),
        (0.3, 1e-3, 0, {}, False),
        (1e-4, 0.0, 0, {}, False),  # nothing was learnt that could be lost
        (0.3, 0.0, -40, {}, False),  # it begins anew
        (0.3, 0.0, 0, {"iteration": 2}, False),  # another round
    ],
)
def test_a_reference_that_is_made_anew_is_told_by_margins_where_they_are_compared_by_squares(
    before: float, begins: float, at: int, config: dict[str, Any], told: bool, pieces: tuple[int, ...]
) -> None:
    margins = np.where(STEP < 40, before, 0.01 * (STEP - 40.0))
    margins[0], margins[40] = 0.0, begins
    steps, segments = np.where(STEP < 40, STEP, STEP + at), np.where(STEP < 40, 1, 2)
    columns: dict[str, Any] = {"model/preference_compared": (STEP[:1], np.ones(1))}
    columns |= {"train/loss": (steps, 25 - margins, segments), "rewards/margins": (steps, margins, segments)}
    found = findings_of([ReferenceColumns()], columns, pieces, config=config)
    assert [(one.severity, one.step, one.key) for one in found] == [("warning", 40, "anew")] * told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 13))])
@pytest.mark.parametrize(("begins", "told"), [(0.66, True), (np.log(2), False)])
def test_a_log_of_each_tenth_step_is_enough(begins: float, told: bool, pieces: tuple[int, ...]) -> None:
    steps = 10 * np.arange(12)
    columns = {name: (STEP[:1], np.array([value])) for name, value in LEVEL.items()}
    columns["train/loss"] = (steps, begins - 1e-3 * steps)
    assert bool(findings_of([ReferenceColumns()], columns, pieces)) == told


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("liked", "disliked", "begins", "config", "told"),
    [
        (0.2, -2.0, 0.0, {}, True),
        (0.2, -2.0, 0.1, {}, False),  # it goes on with its reference
        (0.2, -2.0, 0.0, {"iteration": 2}, False),  # another round has another reference
        (0.0, 0.0, 0.0, {}, False),  # it was 0 before
        (0.2, None, 0.0, {}, False),  # one of them may have none in a batch
    ],
)
def test_a_reference_that_is_made_anew_is_told_by_both_rewards_of_answers_judged_one_by_one(
    liked: float, disliked: float | None, begins: float, config: dict[str, Any], told: bool, pieces: tuple[int, ...]
) -> None:
    segments, columns = np.where(STEP < 40, 1, 2), dict[str, Any]()
    for name, level in (("liked", liked), ("disliked", disliked)):
        if level is not None:
            rewards = np.where(STEP < 40, level, 0.01 * level * (STEP - 40.0))
            rewards[0], rewards[40] = 0.0, begins * level
            columns[f"train/rewards_{name}"] = STEP, rewards, segments
    columns["train/loss"] = STEP, np.where(STEP < 40, 0.3, 0.5), segments
    found = findings_of([ReferenceColumns()], columns, pieces, config=config)
    assert [(one.severity, one.step, one.key) for one in found] == [("warning", 40, "anew")] * told
