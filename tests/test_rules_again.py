"""Schedules that begin again and again in one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings
from rule_curves import found

from barograph.doctor.rules.optimizer.again import (
    FewSteps,
    LoweredTwice,
    ScheduleBackwards,
    ScheduleBehind,
    WarmupAgain,
)

RISE = np.linspace(0.05, 1, 12)


def rate(*parts: np.ndarray) -> dict[str, Any]:
    row = 1e-3 * np.concatenate(parts)
    return {"lr": (np.arange(len(row)), row)}


def teeth(count: int, falls_to: float = 0.6, length: int = 40) -> list[np.ndarray]:
    return [np.r_[RISE, np.linspace(1, falls_to, length - len(RISE))] for _ in range(count)]


@pytest.mark.parametrize("pieces", [(), (5, 41, 43, 90)])
def test_a_warm_up_that_comes_back_each_epoch_is_found(pieces: tuple[int, ...]) -> None:
    (one,) = found([WarmupAgain()], rate(*teeth(4)), pieces)
    assert one.step == 40 and "every 40 steps" in one.message and one.causes[0].startswith("schedule restarted")


@pytest.mark.parametrize(
    ("parts", "config"),
    [
        (teeth(2), {}),  # once: a second stage
        (teeth(4), {"lr_cycles": 4}),
        (teeth(4), {"schedule": "warm_restarts"}),
        (teeth(4, falls_to=0.02), {}),  # each comes down smoothly before
        ([np.r_[np.linspace(1, 0.1, 40)] for _ in range(4)], {}),  # jumps up, as usual cycles do
        ([np.r_[RISE, np.ones(28)], np.r_[RISE, np.ones(70)], np.r_[RISE, np.ones(20)]], {}),  # at no even distances
        ([np.tile([1.0, 0.3], 60)], {}),  # two groups' rates by turns
    ],
)
def test_cycles_stages_and_turns_are_no_warm_up_that_comes_back(
    parts: list[np.ndarray], config: dict[str, Any]
) -> None:
    assert not found([WarmupAgain()], rate(*parts), config=config)


@pytest.mark.parametrize(
    ("counts", "config", "says"),
    [
        ([20, 3.4, 13.4, 3.1, 13.1, 2.7], {}, True),
        ([20, 3.4, 13.4, 23.4], {}, False),
        ([20, 30, 40, 50], {}, False),
        ([20, 0, 10, 0, 10, 0], {"restart_every": 20}, False),
    ],
)
def test_a_count_that_goes_back_twice_is_found(counts: list[float], config: dict[str, Any], says: bool) -> None:
    columns = {"model/scheduler_steps": (np.arange(20, 20 + 10 * len(counts), 10), np.array(counts))}
    assert bool(found([ScheduleBackwards()], columns, config=config)) is says


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        ([1, 1, 0.5, 0.5, 0.25, 0.1], True),
        ([1, 1, 0.5, 0.5, 0.5], False),  # lowered once, as somebody may have meant it
        ([0.1, 0.4, 0.7, 1, 1, 1], False),  # a warm-up by hand
        ([0.1, 0.05, 0.02, 0.01], False),  # never the formula's
        ([1, 0.5, 1, 0.5, 1, 0.5], False),
    ],
)
def test_a_rate_that_is_lowered_beside_its_scheduler_is_found(beside: list[float], says: bool) -> None:
    columns = {"model/schedule_beside": (np.arange(20, 20 + 10 * len(beside), 10), np.array(beside, float))}
    assert bool(found([LoweredTwice()], columns)) is says


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_rate_that_a_loop_lowers_itself_is_beside_the_formula(by_hand: bool) -> None:
    torch = pytest.importorskip("torch")
    from barograph.probes.model import schedulers

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    schedulers.find([optimizer])
    for epoch in range(6):
        if by_hand and epoch % 2 == 1:
            optimizer.param_groups[0]["lr"] *= 0.2
        optimizer.step()
        scheduler.step()
    beside = schedulers.figures(optimizer)["schedule_beside"]
    assert beside == pytest.approx(0.2**3 if by_hand else 1.0)


@pytest.mark.parametrize("cuts", [(), (35, 75, 95)])
@pytest.mark.parametrize(
    ("before", "behind", "begun", "says"),
    [
        ([20, 30, 40, 50], [23, 33, 43], 60, True),  # `last_epoch` was given the epoch
        ([20, 30, 40, 50], [80, 90, 100], 60, False),
        ([20, 30, 40, 50], [140, 150, 160], 60, True),  # loaded, and stepped for all steps so far
        ([20, 30, 40, 50], [120, 130, 140], 60, False),  # moved on by some, as may be on purpose
        ([50], [140, 150, 160], 60, False),
        ([20, 30, 40, 50], [20, 30, 40], 60, False),  # a new one, as of a new phase
        ([20, 30, 40, 50], [75, 85, 95], 60, False),  # a few steps were skipped
        ([20, 30, 40, 50], [60, 70, 80], 40, False),  # from an older checkpoint, with its weights: another try
        ([0, 0, 1, 1], [2, 2, 3], 60, False),  # stepped once an epoch
        ([50], [23, 33, 43], 60, False),
    ],
)
def test_a_scheduler_that_goes_on_from_another_count_than_its_own_is_found(
    before: list[float], behind: list[float], begun: int, says: bool, cuts: tuple[int, ...]
) -> None:
    first, then = 21 + 10 * np.arange(len(before)), begun + 21 + 10 * np.arange(len(behind))
    segments = {0: 0, 61: 1} if begun == 60 else {0: 0, 52: 1}
    columns = {
        "model/scheduler_steps": (np.r_[first, then], np.r_[before, behind].astype(float)),
        "model/scheduled_steps": (np.r_[first, then], np.r_[first - 1, then - begun - 1].astype(float)),
    }
    told = list(findings([ScheduleBehind()], columns, cuts=cuts, segments=segments).values())
    assert [one.step for one in told] == ([61] if says else [])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, True),
        ({"scheduler_length": 8.0}, True),
        ({"scheduler_length": 9.0}, False),
        ({"steps": 5}, False),  # looks
        ({"pace": 0.5}, False),
        ({"shares": [1.0, 0.9]}, False),
        ({"shares": [1.0, 0.5, 0.1, 0.0]}, False),  # it comes down, and stays
        ({"config": {"scheduler": "cyclic"}}, False),
    ],
)
def test_a_schedule_of_a_few_steps_that_is_stepped_at_each_is_found(change: dict[str, Any], says: bool) -> None:
    count = change.get("steps", 20)
    at = 21 + 10 * np.arange(count)
    shares = change.get("shares", [1.0, 0.0025])
    rates = np.array((shares + [shares[-1]] * count)[:count] if len(shares) > 2 else (shares * count)[:count])
    columns = {
        "model/scheduler_length": (at, np.full(count, change.get("scheduler_length", 2.0))),
        "model/scheduler_steps": (at, (at - 1) * change.get("pace", 1.0)),
        "model/scheduled_steps": (at, at - 1.0),
        "model/rate_share": (at, rates),
    }
    assert bool(found([FewSteps()], columns, config=change.get("config", {}))) is says


@pytest.mark.parametrize("cuts", [(), (5, 90)])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, True),
        ({"length": 60.0}, False),  # made for what is left
        ({"before": 50.0, "length": 50.0}, False),  # the first one was over
        ({"share": 1.0}, False),  # a new phase, with a rate of its own
        ({"age": 0.0}, False),  # the optimizer is new, too
        ({"fitted": 0.7}, False),  # somebody else's rate, as before
    ],
)
def test_a_scheduler_that_begins_anew_from_the_rate_that_was_loaded_is_found(
    change: dict[str, float], says: bool, cuts: tuple[int, ...]
) -> None:
    first, then = 21 + 10 * np.arange(4), 81 + 10 * np.arange(4)
    whole, length = change.get("before", 120.0), change.get("length", 120.0)
    columns = {
        "model/scheduler_steps": (np.r_[first, then], np.r_[first - 1, then - 61].astype(float)),
        "model/scheduled_steps": (np.r_[first, then], np.r_[first - 1, then - 61].astype(float)),
        "model/scheduler_length": (np.r_[first, then], np.r_[np.full(4, whole), np.full(4, length)]),
        "model/schedule_beside": (np.r_[first, then],
                                  np.r_[np.full(4, change.get("fitted", 1.0)), np.full(4, change.get("share", 0.5))]),
        "model/optimizer_age": (np.r_[first, then], np.r_[first - 1.0, then - 61.0 + change.get("age", 60.0)]),
    }  # fmt: skip
    told = list(findings([ScheduleBehind()], columns, cuts=cuts, segments={0: 0, 61: 1}).values())
    assert [one.step for one in told] == ([61] if says else [])
    assert all("was not loaded" in one.causes[0] for one in told)
