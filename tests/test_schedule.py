"""Schedules: what is due when, and intervals that keep a budget."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.probes.model.schedule import FAMILIES, PATIENCE, WIDEST, WatchSchedule


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
