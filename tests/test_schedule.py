"""Schedules: what is due when, and intervals that keep a budget."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.probes.model.schedule import (
    BUDGET,
    DEFAULTS,
    FAMILIES,
    OPENING,
    OPENING_STEPS,
    PATIENCE,
    WIDEST,
    WatchSchedule,
)


def test_families_are_due_at_multiples_and_never_at_zero() -> None:
    schedule = WatchSchedule({"norms": 1, "gradients": 10, "weights": 0})
    found = {step: schedule.begin(step) for step in range(21)}
    assert [step for step, due in found.items() if "gradients" in due] == [0, 10, 20]
    assert all("norms" in due and "weights" not in due for due in found.values())


def test_a_multiple_that_was_jumped_over_is_made_up_for() -> None:
    schedule = WatchSchedule({"gradients": 100})
    assert "gradients" not in schedule.begin(95)
    assert "gradients" in schedule.begin(105)
    assert "gradients" not in schedule.begin(106)


@pytest.mark.parametrize("intervals, budget", [({"gradients": -1}, None), ({"x": 1}, None), ({}, 0.0), ({}, 1.5)])
def test_what_is_no_interval_is_refused(intervals: dict[str, int], budget: float | None) -> None:
    with pytest.raises(ValueError):
        WatchSchedule(intervals, budget)


def run(schedule: WatchSchedule, costs: dict[str, float], step_seconds: float, steps: int = 2000) -> float:
    """The share of time that a training of so many steps spends."""
    spent = 0.0
    for step in range(steps):
        due = schedule.begin(step)
        now = {family: costs.get(family, 0.0) for family in due}
        if step >= steps // 2:
            spent += sum(now.values())
        schedule.spend(now, step_seconds)
    return spent / (step_seconds * (steps - steps // 2))


def test_dear_families_are_widened_until_the_budget_holds() -> None:
    schedule = WatchSchedule({"norms": 1, "gradients": 10, "updates": 10, "weights": 100}, budget=0.01)
    share = run(schedule, {"norms": 2e-4, "gradients": 0.02, "updates": 0.04, "weights": 0.02}, 0.1)
    assert share <= 0.01
    assert schedule.intervals["norms"] == 1  # the cheap one is left alone
    assert schedule.intervals["updates"] > 10 and schedule.intervals["updates"] % 10 == 0


COSTS = {"norms": 1e-3, "gradients": 2e-3, "updates": 4e-3, "weights": 1e-3, "histograms": 8e-3, "activations": 5e-3,
         "optimizer_state": 6e-3}  # fmt: skip


@pytest.mark.parametrize("step_seconds", [0.003, 0.035, 1.0])
@pytest.mark.parametrize("lag", [0, 1, 7])  # steps after which the schedule is given what a step has cost
def test_a_budget_holds_from_the_first_step_on(step_seconds: float, lag: int) -> None:
    schedule = WatchSchedule(DEFAULTS, BUDGET)
    spent, first, measured, reports = 0.0, 0.0, set(), []
    for step in range(6000):
        due = schedule.begin(step)
        costs = {family: COSTS[family] for family in due}
        spent += sum(costs.values())
        first = first or spent  # nothing is there to pay the first measurement: it is the cheapest one
        measured |= due
        assert spent <= first + BUDGET * step_seconds * (step + 1) + OPENING * min(step + 1, OPENING_STEPS) + 1e-12
        reports.append((costs, due))
        if step >= lag:
            schedule.spend(reports[step - lag][0], step_seconds, reports[step - lag][1])
        schedule.due(step + 1)
    assert first == COSTS["norms"]
    assert measured == COSTS.keys()  # each in its turn
    assert spent >= 0.3 * BUDGET * step_seconds * 6000 or schedule.intervals == schedule.given


@pytest.mark.parametrize("step_seconds", [0.003, 0.035, 1.0])
@pytest.mark.parametrize("quiet", [0.0, 2e-5])  # what a step without measurements costs
@pytest.mark.parametrize("loud", [0.0, 5e-4, 5e-3])  # what one with measurements costs besides them
def test_a_budget_is_of_all_that_the_watch_does(step_seconds: float, quiet: float, loud: float) -> None:
    schedule = WatchSchedule(DEFAULTS, BUDGET)
    spent, first, measured = 0.0, 0.0, set()
    for step in range(20_000):
        due = schedule.begin(step)
        costs, besides = {family: COSTS[family] for family in due}, loud if due else quiet
        if due:
            spent += sum(costs.values()) + besides
        first = first or spent
        measured |= due
        # the second time it does not know yet what a step with measurements costs besides
        opening = OPENING * min(step + 1, OPENING_STEPS)
        assert spent <= first + loud + BUDGET * step_seconds * (step + 1) - quiet * step / 2 + opening + 1e-12
        schedule.spend(costs, step_seconds, due, besides)
    assert len(measured) >= (7 if step_seconds > 0.01 else 3)


def test_what_all_ranks_measure_together_is_neither_postponed_nor_widened() -> None:
    schedule = WatchSchedule({"norms": 1, "moe": 10}, 0.001, {"moe"})
    steps = []
    for step in range(200):
        due = schedule.begin(step)
        steps += [step] * ("moe" in due)
        schedule.spend(dict.fromkeys(due, 0.5), 0.01, due)
    assert steps == list(range(0, 200, 10)) and schedule.intervals["moe"] == 10


def test_what_is_not_measured_after_all_is_not_paid() -> None:
    schedule = WatchSchedule({"norms": 1, "gradients": 10}, 0.01)
    for step in range(3):  # the ranks don't watch alike: nothing is measured, and nothing is known of its cost
        assert schedule.begin(step) == {"norms"}
        schedule.refund({"norms"})


def test_nothing_is_widened_where_it_fits() -> None:
    schedule = WatchSchedule({"norms": 1, "gradients": 10}, budget=0.01)
    run(schedule, {"norms": 1e-5, "gradients": 1e-4}, 0.1)
    assert schedule.intervals == schedule.given


def test_intervals_come_back_when_it_gets_cheap_and_stay_within_what_was_given() -> None:
    schedule = WatchSchedule({"gradients": 10}, budget=0.01)
    run(schedule, {"gradients": 0.1}, 0.1, 500)
    widened = schedule.intervals["gradients"]
    assert widened > 10
    run(schedule, {"gradients": 1e-4}, 0.1, 40 * PATIENCE)
    assert schedule.intervals["gradients"] == 10


def test_an_interval_at_the_edge_does_not_swing() -> None:
    schedule = WatchSchedule({"gradients": 10}, budget=0.01)
    seen = []
    for step in range(4000):
        due = schedule.begin(step)
        # 20% more or less: the share at interval 10 is now above and now below the budget
        cost = 0.0102 * (1.2 if step % 300 < 150 else 0.8)
        schedule.spend(dict.fromkeys(due, cost), 0.1)
        seen.append(schedule.intervals["gradients"])
    assert sum(one != other for one, other in itertools.pairwise(seen)) <= 1


def test_an_evaluation_between_steps_is_no_step() -> None:
    schedule = WatchSchedule({"gradients": 1}, budget=0.5)
    for step in range(40):
        schedule.begin(step)
        schedule.spend({"gradients": 0.01}, 60.0 if step % 10 == 0 else 0.1)
    assert schedule.share() == pytest.approx(0.1)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(FAMILIES), st.integers(1, 1000)),
    st.lists(st.tuples(st.floats(0, 1) | st.just(math.nan), st.floats(0, 10) | st.just(math.nan)), max_size=60),
    st.floats(0.001, 0.5),
)
def test_intervals_stay_between_the_given_and_the_widest(
    intervals: dict[str, int], told: list[tuple[float, float]], budget: float
) -> None:
    schedule = WatchSchedule(intervals, budget)
    twin = WatchSchedule(intervals, budget)
    for step, (cost, seconds) in enumerate(told):
        due = schedule.begin(step)
        assert twin.begin(step) == due  # ranks that are told the same do the same
        schedule.spend(dict.fromkeys(due, cost), seconds)
        twin.spend(dict.fromkeys(due, cost), seconds)
    for family, interval in schedule.intervals.items():
        assert schedule.given[family] <= interval <= max(WIDEST, schedule.given[family])
        assert (interval == 0) == (schedule.given[family] == 0)
