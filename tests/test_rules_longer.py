"""Schedules that are made for more steps than the run has; and those that end as they were meant to."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.optimizer.longer import (
    ScheduleBeyond,
    ScheduleOver,
    ScheduleRises,
    WarmUpBeyond,
    WarmUpOver,
)

CUTS = pytest.mark.parametrize("cuts", [(), (5, 17, 41, 90)])
STEPS = numpy.arange(200)


def cosine(length: float, warm: int = 10, floor: float = 0.0) -> numpy.ndarray:
    way = numpy.clip((STEPS - warm) / (length - warm), 0, 1)
    falls = floor + (1 - floor) * (0.5 + 0.5 * numpy.cos(numpy.pi * way))
    return 3e-3 * numpy.where(warm > STEPS, (STEPS + 1) / (warm + 1), falls)


def beneath(length: float, warm: int, begins: int = 0) -> numpy.ndarray:
    """A cosine from a step on, of which a warm-up takes the first part."""
    way = numpy.clip((STEPS - begins) / (length - begins), 0, 1)
    return 3e-3 * numpy.minimum((STEPS + 1) / warm, 0.5 + 0.5 * numpy.cos(numpy.pi * way))


def line(length: float) -> numpy.ndarray:
    return 1e-3 * numpy.clip(1 - STEPS / length, 0, 1)


@CUTS
@pytest.mark.parametrize(
    ("rate", "facts", "config", "told"),
    [
        (cosine(400), {"world_size": 2}, {}, True),
        (cosine(400, 0, 0.1), {"world_size": 2}, {}, True),
        (cosine(800), {"world_size": 4}, {}, True),
        (cosine(800), {}, {"gradient_accumulation_steps": 4}, True),
        (beneath(800, 20), {}, {"gradient_accumulation_steps": 4}, True),
        (beneath(400, 30), {"world_size": 2}, {}, True),
        (beneath(200, 20), {"world_size": 2}, {}, False),
        (beneath(400, 20, -60), {"world_size": 2}, {}, False),  # it began long before
        (cosine(400).round(8), {"world_size": 2}, {}, True),  # logged in few digits
        (line(800), {"world_size": 4}, {}, True),
        (cosine(200), {"world_size": 2}, {}, False),
        (cosine(200, 0, 0.5), {"world_size": 2}, {}, False),  # to a half of the peak, as meant
        (cosine(300), {"world_size": 2}, {}, False),
        (cosine(400), {}, {}, False),  # one rank: the plan may be a part of a longer one
        (cosine(400), {"world_size": 2, "planned_steps": 400}, {}, False),  # ended early
        (cosine(400), {"world_size": 2, "planned_steps": None}, {}, False),
        (line(400), {"world_size": 2}, {}, False),  # a line to a half of the peak may be meant
        (line(200), {"world_size": 4}, {}, False),
        (1e-3 * 0.995**STEPS, {"world_size": 2}, {}, False),
        (1e-3 / numpy.sqrt(1 + STEPS / 50), {"world_size": 2}, {}, False),
        (numpy.where(STEPS < 100, 1e-3, 5e-4), {"world_size": 2}, {}, False),
        (numpy.full(200, 1e-3), {"world_size": 2}, {}, False),
    ],
)
def test_a_cosine_that_is_made_for_the_steps_of_all_ranks_is_told(
    rate: numpy.ndarray, facts: dict[str, Any], config: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    known = {"planned_steps": 200, "config": config} | facts
    found = only(findings([ScheduleBeyond()], {"train/lr": rate}, facts=known, cuts=cuts), "schedule_beyond")
    assert [one.severity for one in found] == ["warning"] * told


@CUTS
def test_a_scheduler_that_says_its_length_is_left_to_its_own_rule(cuts: tuple[int, ...]) -> None:
    columns = {"train/lr": cosine(800), "model/scheduler_length": ([0, 10], [800.0, 800.0])}
    facts = {"planned_steps": 200, "config": {"gradient_accumulation_steps": 4}}
    assert not only(findings([ScheduleBeyond()], columns, facts=facts, cuts=cuts), "schedule_beyond")


def rise(warm: int) -> numpy.ndarray:
    return 1e-3 * numpy.minimum((STEPS + 1) / warm, 1 - numpy.maximum(STEPS - warm, 0) / 200)


@CUTS
@pytest.mark.parametrize(
    ("rate", "config", "planned", "told"),
    [
        (rise(190), {"warmup_ratio": 0.06}, 200, True),
        (rise(120), {"warmup_steps": 10}, 200, True),
        (rise(200), {"warmup_steps": 20}, 200, True),
        (rise(90), {"warmup_steps": 10}, 200, False),  # below half of the plan
        (rise(120), {"warmup_steps": 60}, 200, False),
        (rise(120), {"warmup_ratio": 0.06, "warmup_steps": 120}, 200, False),
        (rise(120), {"warmup_ratio": 0.06, "warmup_epochs": 2}, 200, False),
        (rise(120), {"warmup_ratio": 0.06, "lr_schedule": "one_cycle"}, 200, False),
        (rise(120), {"warmup_ratio": 0.06, "lr_finder": True}, 200, False),
        (rise(120), {"warmup_steps": 0}, 200, False),
        (rise(120), {}, 200, False),
        (rise(120), {"warmup_ratio": 0.06}, 400, False),  # ended early
        (rise(120), {"warmup_ratio": 0.06}, 100, False),  # went on behind its plan: that is of something else
        (rise(120) + 5e-4, {"warmup_ratio": 0.06}, 200, False),
        (1e-3 * numpy.sin(STEPS / 200 * numpy.pi / 2) ** 2, {"warmup_ratio": 0.06}, 200, False),  # no line
    ],
)
def test_a_warm_up_that_takes_half_of_the_run_where_little_is_configured_is_told(
    rate: numpy.ndarray, config: dict[str, Any], planned: int, told: bool, cuts: tuple[int, ...]
) -> None:
    facts = {"planned_steps": planned, "config": config}
    found = only(findings([WarmUpBeyond()], {"train/lr": rate}, facts=facts, cuts=cuts), "warmup_beyond")
    assert [one.severity for one in found] == ["warning"] * told


SHORT = numpy.maximum(cosine(40, 12), 3e-4)  # over at step 37


@CUTS
@pytest.mark.parametrize(
    ("rate", "facts", "config", "told"),
    [
        (SHORT, {}, {"warmup_iters": 12, "weight_decay": 0.1}, True),
        (numpy.maximum(line(40), 2e-4), {}, {}, True),
        (SHORT, {}, {"lr_decay_iters": 36}, False),  # as configured
        (SHORT, {}, {"decay_share": 0.18}, False),
        (SHORT, {}, {"schedule": "restarts"}, False),
        (SHORT, {"planned_steps": 400}, {}, False),
        (SHORT, {"planned_steps": None}, {}, False),
        (numpy.maximum(cosine(90), 3e-4), {}, {}, False),  # not that early
        (numpy.maximum(line(90), 3e-5), {}, {}, True),  # next to nothing is left for half of the run
        (numpy.maximum(line(90), 3e-5), {}, {"lr_decay_iters": 90}, False),
        (numpy.maximum(line(120), 3e-5), {}, {}, False),
        (numpy.maximum(cosine(40, 12), 2e-3), {}, {}, False),  # not that low
        (numpy.where(STEPS < 40, 1e-3, 1e-4), {}, {}, False),  # a stair
        (cosine(200), {}, {}, False),
    ],
)
def test_a_rate_that_is_at_its_least_for_most_of_the_run_is_told(
    rate: numpy.ndarray, facts: dict[str, Any], config: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    given = {"planned_steps": 200, "finished": True, "config": config} | facts
    found = findings([ScheduleOver()], {"train/lr": rate}, facts=given, cuts=cuts)
    assert len(only(found, "schedule_over")) == told


@pytest.mark.parametrize(("length", "told"), [(70, True), (120, False)])
def test_a_rate_of_0_that_no_name_tells_is_told_where_it_is_0_for_half_of_the_run(length: int, told: bool) -> None:
    """What is logged as the rate is left to the rule of rates of 0."""
    facts = {"planned_steps": 200, "finished": True}
    assert bool(findings([ScheduleOver()], {"model/rate_in_force": cosine(length)}, facts=facts)) is told
    assert not findings([ScheduleOver()], {"train/lr": cosine(length)}, facts=facts)


EARLY = 8e-3 * numpy.minimum((STEPS + 1) / 8, 1) * 0.4 ** ((STEPS >= 3) * 1.0 + (STEPS >= 5))  # stairs of epochs


def noam(warm: int, power: float = -1.5) -> numpy.ndarray:
    return 1e-2 * numpy.minimum((STEPS + 1.0) ** -0.5, (STEPS + 1.0) * warm**power)


@CUTS
@pytest.mark.parametrize(
    ("rate", "facts", "config", "told"),
    [
        (noam(60, -0.5), {}, {"noam_warmup": 60}, True),
        (cosine(200, 0), {}, {"warmup_steps": 50}, True),
        (noam(60), {}, {"noam_warmup": 60}, False),
        (cosine(200, 50), {}, {"warmup_steps": 50}, False),
        (cosine(200, 6), {"world_size": 8}, {"warmup_steps": 50}, False),  # it counts the steps of all ranks
        (cosine(200, 12), {}, {"warmup_steps": 48, "gradient_accumulation_steps": 4}, False),
        (numpy.full(200, 1e-3), {}, {"warmup_steps": 50}, False),  # said by another rule
        (cosine(200, 0), {}, {"kl_warmup_steps": 50}, False),
        (cosine(200, 0), {}, {"warmup": 5}, False),  # epochs, perhaps
        (EARLY, {}, {"warmup_steps": 8, "base_lr": 8e-3}, True),
        (EARLY, {}, {"warm": 8, "lr": 8e-3}, True),
        (EARLY, {}, {"warmup_steps": 8, "base_lr": 3e-3}, False),  # it came to the configured rate
        (EARLY, {}, {"warmup_steps": 5, "base_lr": 8e-3}, False),
        (cosine(200, 0), {"planned_steps": None}, {"warmup_steps": 50}, False),
    ],
)
def test_a_warm_up_that_is_over_long_before_its_configured_steps_is_told(
    rate: numpy.ndarray, facts: dict[str, Any], config: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    given = {"planned_steps": 200, "finished": True, "config": config} | facts
    found = findings([WarmUpOver()], {"train/lr": rate}, facts=given, cuts=cuts)
    assert len(only(found, "warmup_over")) == told


def waves(length: float, of: int = 200) -> numpy.ndarray:
    return 1e-3 * 0.5 * (1 + numpy.cos(numpy.pi * numpy.arange(of) / length))


@CUTS
@pytest.mark.parametrize(
    ("rate", "config", "told"),
    [
        (waves(67), {"lr_scheduler_type": "cosine"}, True),
        (waves(100), {}, True),
        (waves(200), {}, False),
        (waves(130), {}, True),
        (waves(160), {}, False),  # it does not come up to half
        (waves(67), {"lr_schedule": "cosine_with_restarts"}, False),
        (1e-3 * 0.5 * (1 + numpy.cos(numpy.pi * (STEPS % 67) / 67)), {}, False),  # warm restarts jump
        (numpy.concatenate([waves(100, 100), 1e-3 * numpy.minimum(STEPS[:100] / 20, 1)]), {}, False),  # a stage begins
        (numpy.maximum(waves(67), 5e-5), {}, False),  # it stays above next to nothing
    ],
)
def test_a_rate_that_rises_again_as_it_fell_has_a_schedule_of_too_few_steps(
    rate: numpy.ndarray, config: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    found = findings([ScheduleRises()], {"train/lr": rate}, facts={"finished": True, "config": config}, cuts=cuts)
    assert len(only(found, "schedule_rises")) == told


@pytest.mark.parametrize("first", [0, 1, 4])
@pytest.mark.parametrize(("warm", "told"), [(10, False), (50, True)])
def test_a_peak_is_where_a_log_of_each_fifth_step_has_it(warm: int, told: bool, first: int) -> None:
    """Of ten steps of a warm-up to a third of the configured rate such a log has one row, or two."""
    rate = cosine(22, 10 if warm == 10 else 0) / 3
    facts = {"planned_steps": 200, "finished": True, "config": {"warmup_steps": warm, "lr": 3e-3}}
    columns = {"train/lr": (STEPS[first::5], rate[first::5])}
    assert bool(findings([WarmUpOver()], columns, facts=facts)) == told
