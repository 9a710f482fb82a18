"""What a loop does around its steps: windows that are lost, shards that are clipped by themselves, schedules that are
configured and missing, gradients that are added over ranks; and what looks like it."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

from barograph.doctor.rules.optimizer.accounts import RateTooLow
from barograph.doctor.rules.optimizer.around import ClipNotInForce, ClippedByShard, OptimizerRemade
from barograph.doctor.rules.optimizer.declared import RateRises, RateZeroAtFirst, ScheduleMissing, SchedulerFirst
from barograph.doctor.rules.optimizer.scheduled import ScheduleCount
from barograph.doctor.rules.optimizer.steps import LostWindow
from barograph.doctor.rules.ranks.summed import SummedOverRanks
from barograph.doctor.rules.rl.values import TargetNetwork

CUTS = pytest.mark.parametrize("cuts", [(), (5, 17, 41, 90)])


def windows(cleared: list[tuple[int, float]], weight: float) -> dict[str, Any]:
    """Steps with passes that were cleared, and none in the steps behind them."""
    rows = [row for step, count in cleared for row in ((step, count), (step + 1, 0.0))]
    steps, counts = zip(*rows, strict=True)
    looks = numpy.arange(1, 60, 7)
    return {"model/cleared_passes": (numpy.array(steps), numpy.array(counts)),
            "model/backwards": (looks, numpy.full(len(looks), 8.0)),
            "model/loss_weight": (looks, numpy.full(len(looks), weight))}  # fmt: skip


@CUTS
@pytest.mark.parametrize(
    ("cleared", "weight", "config", "told"),
    [
        ([(11, 3), (21, 3), (31, 3)], 0.125, {}, True),
        ([(11, 3), (21, 3), (31, 3)], 1.0, {"gradient_accumulation_steps": 8}, True),
        ([(11, 3), (21, 3), (31, 3)], 1.0, {}, False),  # nothing says that eight are meant
        ([(11, 3), (21, 3)], 0.125, {}, False),
        ([(11, 3), (21, 3), (36, 3)], 0.125, {}, False),  # at no regular distance
        ([(11, 3), (21, 4), (31, 3)], 0.125, {}, False),
        ([(11, 1), (21, 1), (31, 1)], 0.125, {}, False),  # a look at gradients
        ([(11, 10), (21, 10), (31, 10)], 0.125, {}, False),  # an attack in an evaluation
    ],
)
def test_micro_batches_at_the_end_of_each_epoch_are_thrown_away(
    cleared: list[tuple[int, float]], weight: float, config: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    found = only(findings([LostWindow()], windows(cleared, weight), facts={"config": config}, cuts=cuts), "lost_window")
    assert [one.step for one in found] == [11] * told


@CUTS
@pytest.mark.parametrize(
    ("norms", "shards", "told"),
    [
        (numpy.full(40, 0.5 * 2**0.5), 2.0, True),
        (numpy.where(numpy.arange(40) % 4, 0.5 * 2**0.5, 0.62), 2.0, True),  # one of the ranks is below at times
        (numpy.full(40, 0.5), 2.0, False),
        (numpy.full(40, 0.5 * 2**0.5), 0.0, False),  # two parts of a model, clipped each by itself
        (numpy.full(40, 1.0), 2.0, False),
        (0.5 * 2**0.5 + 0.001 * numpy.arange(40), 2.0, False),
        (numpy.full(40, 1.0), 4.0, True),
        (numpy.where(numpy.arange(40) % 3, 0.3, 0.5 * 2**0.5), 2.0, False),
    ],
)
def test_shards_that_are_clipped_by_their_own_norms_leave_a_larger_one(
    norms: numpy.ndarray, shards: float, told: bool, cuts: tuple[int, ...]
) -> None:
    columns = {"model/grad_norm": norms} | ({"model/shards": ([0], [shards])} if shards else {})
    facts = {"config": {"grad_clip": 0.5}, "world_size": 2}
    found = only(findings([ClippedByShard()], columns, facts=facts, cuts=cuts), "clipped_by_shard")
    assert [one.severity for one in found] == ["warning"] * told


STEPS = numpy.arange(0, 400, 10)


@CUTS
@pytest.mark.parametrize(
    ("config", "rate", "more", "cause"),
    [
        ({"warmup_steps": 50}, numpy.full(40, 1e-3), {}, "no warm-up"),
        ({"warmup_ratio": 0.1}, numpy.full(40, 1e-3), {}, "no warm-up"),
        ({"lr_scheduler_type": "cosine"}, numpy.full(40, 1e-3), {}, "scheduler never stepped"),
        ({"decay_lr": True}, numpy.full(40, 1e-3), {}, "scheduler never stepped"),
        ({"lr_scheduler_type": "constant", "warmup_steps": 0}, numpy.full(40, 1e-3), {}, ""),
        ({"warmup_steps": 5}, numpy.full(40, 1e-3), {}, ""),  # over before the second look
        ({"warmup_steps": 2000}, numpy.full(40, 1e-3), {}, ""),  # nobody knows whether it counts these steps
        ({"warmup_steps": 50}, 1e-3 * numpy.minimum(1, (STEPS + 1) / 50), {}, ""),
        ({"lr_schedule": "cosine"}, 1e-3 * (1 - STEPS / 800), {}, ""),
        ({"noise_schedule": "cosine", "beta_schedule": "linear"}, numpy.full(40, 1e-3), {}, ""),
        ({"warmup_steps": 50}, numpy.full(40, 1e-3), {"train/lr": numpy.linspace(0, 1, 391)}, ""),  # another group
        ({"warmup_steps": 50}, numpy.full(40, 1e-3), {"train/reward": numpy.linspace(0, 1, 391)}, ""),  # of a policy
    ],
)
def test_a_configured_schedule_that_is_not_in_force_is_missed(
    config: dict[str, Any], rate: numpy.ndarray, more: dict[str, Any], cause: str, cuts: tuple[int, ...]
) -> None:
    columns = {"model/rate_in_force": (STEPS, rate), "train/loss": numpy.linspace(3, 1, 391)} | more
    found = only(findings([ScheduleMissing()], columns, facts={"config": config}, cuts=cuts), "schedule_missing")
    assert [one.causes[0].split(":")[0] for one in found] == [cause] * bool(cause)


@CUTS
@pytest.mark.parametrize(
    ("zeros", "config", "told"),
    [
        (3, {}, True),
        (9, {"gradient_accumulation_steps": 2, "warmup_steps": 90}, True),
        (2, {}, False),
        (1, {}, False),  # a warm-up's first step
        (0, {}, False),
        (12, {}, False),  # in all that is seen
        (4, {"lr_delay_steps": 40}, False),
        (4, {"freeze_steps": 40}, False),
    ],
)
def test_a_rate_that_is_zero_in_the_first_steps_is_told(
    zeros: int, config: dict[str, Any], told: bool, cuts: tuple[int, ...]
) -> None:
    looks = 1 + 10 * numpy.arange(12)
    rates = numpy.where(numpy.arange(12) < zeros, 0.0, 3e-3)
    found = findings([RateZeroAtFirst()], {"model/rate_in_force": (looks, rates)}, facts={"config": config}, cuts=cuts)
    assert [one.step for one in found.values()] == [1] * told


RISING = numpy.linspace(1e-6, 3e-3, 200)


@CUTS
@pytest.mark.parametrize(
    ("rate", "config", "planned", "told"),
    [
        (RISING, {}, 200, True),
        (RISING, {"warmup_steps": 20}, 200, True),
        (RISING, {"warmup_steps": 200}, 200, False),  # as it was meant
        (RISING, {"lr_finder": True}, 200, False),
        (RISING, {}, 400, False),  # ended within its warm-up
        (RISING, {}, None, False),
        (numpy.minimum(RISING, 2e-3), {}, 200, False),  # constant behind a long warm-up
        (RISING[::-1], {}, 200, False),
        (RISING + 1e-3, {}, 200, False),
    ],
)
def test_a_rate_that_rises_up_to_the_planned_end_is_told(
    rate: numpy.ndarray, config: dict[str, Any], planned: int | None, told: bool, cuts: tuple[int, ...]
) -> None:
    facts = {"config": config, "finished": True} | ({"planned_steps": planned} if planned else {})
    found = findings([RateRises()], {"train/lr": rate}, facts=facts, cuts=cuts)
    assert len(only(found, "rate_rises")) == told


@pytest.mark.parametrize(("pace", "first"), [(0.05, "scheduler stepped too seldom"), (1.0, "schedule reversed")])
def test_a_rate_that_rises_since_the_scheduler_counts_epochs_is_not_reversed(pace: float, first: str) -> None:
    steps = numpy.arange(0, 200, 10)
    columns = {"train/lr": numpy.linspace(1e-4, 1e-3, 200), "model/scheduled_steps": (steps, steps * 1.0),
               "model/scheduler_steps": (steps, numpy.floor(pace * steps))}  # fmt: skip
    facts = {"config": {}, "finished": True, "planned_steps": 200}
    found = only(findings([RateRises()], columns, facts=facts), "rate_rises")
    assert [one.causes[0].split(":")[0] for one in found] == [first]


@CUTS
@pytest.mark.parametrize(
    ("ahead", "age", "scaler", "told"),
    [(1, 0, False, True), (0, 0, False, False), (1, 1, False, False), (1, 0, True, False)],
)
def test_a_scheduler_that_is_one_step_ahead_is_stepped_first(
    ahead: int, age: int, scaler: bool, told: bool, cuts: tuple[int, ...]
) -> None:
    steps = numpy.arange(20, 100, 10)
    columns = {"model/optimizer_age": (steps - 20, steps - 20.0 + age), "model/scheduled_steps": (steps, steps * 1.0),
               "model/scheduler_steps": (steps, steps + float(ahead))}  # fmt: skip
    if scaler:
        columns["model/loss_scale"] = steps - 20, numpy.full(len(steps), 1024.0)
    found = only(findings([SchedulerFirst()], columns, facts={"config": {}}, cuts=cuts), "scheduler_first")
    assert [one.severity for one in found] == ["info"] * told


@CUTS
@pytest.mark.parametrize(
    ("growth", "weight", "told"),
    [
        ([1.8, 1.6, 1.4, 1.5, 1.7, 1.3], 1.0, True),
        ([0.9, 0.8, 0.7, 0.75, 0.85, 0.65], 1.0, False),  # averaged
        ([1.8, 1.6, 1.4, 1.5, 1.7, 1.3], 0.5, False),  # the loss is divided by the ranks before
        ([1.8, 1.6, 1.4], 1.0, False),
        ([1.0] * 6, 1.0, False),  # a wrapper has averaged when the pass ends
    ],
)
def test_gradients_that_grow_between_pass_and_step_are_added_over_ranks(
    growth: list[float], weight: float, told: bool, cuts: tuple[int, ...]
) -> None:
    steps = numpy.arange(2, 2 + len(growth))
    figures = {"gradient_growth": growth, "backwards": [1.0] * len(steps), "loss_weight": [weight] * len(steps)}
    columns = {f"model/{name}": (steps, numpy.array(values)) for name, values in figures.items()}
    found = findings([SummedOverRanks()], columns, facts={"world_size": 2}, cuts=cuts)
    assert [one.severity for one in only(found, "summed_over_ranks")] == ["warning"] * told


@pytest.mark.parametrize(("kind", "first"), [("bfloat", "updates lost in rounding"), ("half", "learning rate too low")])
def test_steps_that_are_below_half_a_unit_of_their_weights_are_lost(kind: str, first: str) -> None:
    count = 160
    looks = numpy.arange(0, count, 20)
    columns = {
        "train/loss": numpy.linspace(4.78, 4.6, count), "model/reach": (looks, 1e-3 * looks),
        "model/drawn": ([0], [1.0]), "model/half_parameters": ([0], [20.0]),
    } | ({"model/bfloat_parameters": ([0], [20.0])} if kind == "bfloat" else {})  # fmt: skip
    found = only(findings([RateTooLow()], columns), "rate_too_low")
    assert [one.causes[0].split(":")[0] for one in found] == [first]
    assert math.isfinite(found[0].evidence["reach"])


@CUTS
@pytest.mark.parametrize(
    ("norms", "logged", "left", "told"),
    [
        ([4.5, 0.6, 0.3], [4.5, 0.6, 0.3], 1.0, True),  # two looks at both, in a fast loop
        ([4.5, 0.6, 0.3], [4.5, 0.6, 0.9], 1.0, False),  # it clips by something else
        ([4.5, 0.6, 0.3], [4.5, 0.6, 0.3], 0.5, False),
        ([0.2, 0.1, 0.2], [0.2, 0.1, 0.2], 1.0, False),
    ],
)
def test_a_clip_behind_the_step_is_known_by_the_norms_that_are_used(
    norms: list[float], logged: list[float], left: float, told: bool, cuts: tuple[int, ...]
) -> None:
    looks = numpy.array([1, 63, 146])
    used = numpy.interp(numpy.arange(200), looks, logged)
    columns = {"model/grad_norm": (looks, numpy.array(norms)), "train/norm": used,
               "model/clip_coefficient": (looks[:2], numpy.array([1.0, left]))}  # fmt: skip
    found = findings([ClipNotInForce()], columns, facts={"config": {"max_grad_norm": 0.25}}, cuts=cuts)
    assert [one.severity for one in only(found, "clip_not_in_force")] == ["warning"] * told


@pytest.mark.parametrize(
    ("over", "pace", "told"),
    [(200, 2, True), (170, 2, True), (120, 2, False), (170, 1, False), (170, 4, False)],
)
def test_a_schedule_that_is_over_a_little_early_is_stepped_per_micro_batch_where_its_count_says_so(
    over: int, pace: int, told: bool
) -> None:
    looks = numpy.arange(0, 400, 10)
    share = 0.05 + 0.95 * numpy.clip(1 - looks / over, 0, 1)
    columns = {"model/rate_share": (looks, share), "model/scheduler_steps": (looks, pace * looks),
               "model/scheduled_steps": (looks, looks), "model/backwards": (looks, numpy.full(len(looks), 2.0)),
               "train/loss": numpy.linspace(3, 1, 400)}  # fmt: skip
    found = only(findings([ScheduleCount()], columns, facts={"planned_steps": 400}), "schedule_count")
    assert [one.causes[0].split(":")[0] for one in found] == ["scheduler stepped per micro-batch"] * told


LOOKS = numpy.arange(0, 400, 10)
STAIRS = numpy.array([1, 1, 0.5, 0.25, 0.25, 0.125, 0.06, 0.03, 0.03, 0.015, 0.012, 0.011, 0.01, 0.009, 0.008, 0.007,
                      0.006, 0.005, 0.004, 0.003, *[0.002] * 20])  # fmt: skip
TAIL = numpy.where(LOOKS < 200, numpy.clip(1 - LOOKS / 200, 0.01, 1), 0.01 - 1e-5 * (LOOKS - 200))


@pytest.mark.parametrize(
    ("share", "pace", "told"),
    [
        (TAIL, 2, True),  # hardly falls any more
        (STAIRS, 2, True),
        (STAIRS, 1, False),  # as it was made
        (numpy.geomspace(1, 1e-4, 40), 1, False),
        (numpy.clip(1 - LOOKS / 400, 0, 1), 1, False),
    ],
)
def test_a_schedule_in_stairs_or_with_a_tail_is_over_where_it_falls_no_more(
    share: numpy.ndarray, pace: int, told: bool
) -> None:
    columns = {"model/rate_share": (LOOKS, share), "model/scheduler_steps": (LOOKS, pace * LOOKS),
               "model/scheduled_steps": (LOOKS, LOOKS), "model/backwards": (LOOKS, numpy.full(len(LOOKS), 2.0)),
               "train/loss": numpy.linspace(3, 1, 400)}  # fmt: skip
    found = only(findings([ScheduleCount()], columns, facts={"planned_steps": 400}), "schedule_count")
    assert [one.causes[0].split(":")[0] for one in found] == ["scheduler stepped per micro-batch"] * told


@pytest.mark.parametrize(
    ("resumed", "pace", "begins", "told"),
    [
        (200, 2, 200, True),  # where it is over
        (120, 2, 200, True),
        (200, 1, 200, False),  # a run that goes on behind its plan, with two micro-batches
        (200, 2, 1, False),  # another schedule: its rate is up again
    ],
)
def test_a_schedule_of_a_run_that_was_resumed_is_over_early_by_its_count_alone(
    resumed: int, pace: int, begins: int, told: bool
) -> None:
    share = numpy.clip(1 - LOOKS / 200, 0.01, 1)
    share = numpy.where((resumed <= LOOKS) & (begins == 1), numpy.clip(1 - (LOOKS - resumed) / 200, 0.01, 1), share)
    made = numpy.where(resumed > LOOKS, LOOKS, LOOKS - resumed)  # the watch counts anew in each launch
    columns = {"model/rate_share": (LOOKS, share), "model/scheduler_steps": (LOOKS, pace * LOOKS),
               "model/scheduled_steps": (LOOKS, made), "model/backwards": (LOOKS, numpy.full(len(LOOKS), 2.0)),
               "train/loss": numpy.linspace(3, 1, 400)}  # fmt: skip
    segments = {0: 1, resumed: 2}
    found = only(findings([ScheduleCount()], columns, facts={"planned_steps": 400}, segments=segments),
                 "schedule_count")  # fmt: skip
    assert [one.causes[0] for one in found] == ["scheduler stepped too often: 2 times at each step"] * told


def wave(period: int, jumps: bool = False) -> numpy.ndarray:
    past = numpy.arange(0, 400, 10) / period
    return 0.5 + 0.5 * numpy.cos(numpy.pi * (past % 1 if jumps else past))


@pytest.mark.parametrize(
    ("share", "pace", "config", "told"),
    [
        (wave(100), 4, {}, True),
        (wave(94), 4, {}, True),  # lowest between two records
        (wave(100), 4, {"lr_cycles": 4}, False),
        (wave(100, jumps=True), 1, {}, False),  # warm restarts
        (wave(150), 1, {}, False),
        (wave(400), 1, {}, False),
        (0.4 * wave(100) + 0.6, 4, {}, False),  # far from nothing
    ],
)
def test_a_schedule_that_rises_again_behind_the_share_of_one_micro_batch_is_told(
    share: numpy.ndarray, pace: int, config: dict[str, int], told: bool
) -> None:
    looks = numpy.arange(0, 400, 10)
    columns = {"model/rate_share": (looks, share), "model/scheduler_steps": (looks, pace * looks),
               "model/scheduled_steps": (looks, looks), "model/backwards": (looks, numpy.full(len(looks), 4.0)),
               "train/loss": numpy.linspace(3, 1, 400)}  # fmt: skip
    facts = {"planned_steps": 400, "config": config}
    found = only(findings([ScheduleCount()], columns, facts=facts), "schedule_count")
    assert [one.causes[0].split(":")[0] for one in found] == ["scheduler stepped per micro-batch"] * told


@pytest.mark.parametrize(
    ("length", "config", "told"),
    [
        (64 * 400, {"batch_size": 64, "epochs": 3}, True),
        (64 * 400, {"batch_size": 32, "epochs": 3}, False),
        (64 * 400, {"batch_size": 64, "epochs": 30}, False),  # it ends early
        (400, {"batch_size": 64, "epochs": 3}, False),
    ],
)
def test_a_schedule_that_counts_examples_is_too_long(length: int, config: dict[str, int], told: bool) -> None:
    looks = numpy.arange(20, 400, 10)
    columns = {"model/scheduler_steps": (looks, looks), "model/scheduled_steps": (looks, looks),
               "model/scheduler_length": (looks, numpy.full(len(looks), length)),
               "train/epoch": numpy.arange(400) // 134, "train/loss": numpy.linspace(3, 1, 400)}  # fmt: skip
    found = only(findings([ScheduleCount()], columns, facts={"config": config}), "schedule_count")
    assert [one.causes[0].split(":")[0] for one in found] == ["schedule too long"] * told


@pytest.mark.parametrize(
    ("name", "told"),
    [("losses/qf1_values", True), ("losses/q_values", True), ("train/q_mean", True), ("losses/q_loss", False),
     ("gradients/attn/q", False)],
)  # fmt: skip
def test_a_target_network_that_takes_all_of_the_new_weights_is_seen_by_the_way_it_moves(name: str, told: bool) -> None:
    looks = numpy.arange(200, 440, 3)
    columns = {"model/other_apart": (looks, numpy.full(len(looks), 6e-6)),
               "model/other_moved": (looks, numpy.full(len(looks), 1.2e-3)),
               "charts/episodic_return": (numpy.arange(0, 500, 50), numpy.arange(10.0)),
               name: (numpy.arange(0, 500, 10), numpy.linspace(0.1, 3, 50))}  # fmt: skip
    found = only(findings([TargetNetwork()], columns), "target_network")
    assert ["swapped" in one.causes[0] for one in found] == [True] * told


@pytest.mark.parametrize(
    ("steps", "severity"),
    [
        ([60, 120, 180, 240], "warning"),  # at the end of each round, from the first one on
        ([110, 160, 230], "warning"),
        ([190, 252, 315], "info"),  # rounds of pruning behind a training as long as three of them
    ],
)
def test_an_optimizer_that_a_loop_makes_anew_is_made_so_in_its_first_round(steps: list[int], severity: str) -> None:
    columns = {
        "train/loss": numpy.ones(600),
        "model/optimizers_replaced": (numpy.array(steps), numpy.arange(1.0, len(steps) + 1)),
        "model/epsilon": ([0], [1e-8]),
    }
    (one,) = findings([OptimizerRemade()], columns).values()
    assert (one.severity, one.step, one.found) == (severity, steps[0], steps[2])


@pytest.mark.parametrize(
    ("cycle", "config", "severity"),
    [(45, {"schedule": "restarts"}, "info"), (45, {}, "warning"), (31, {"schedule": "restarts"}, "warning")],
)
def test_an_optimizer_that_is_made_anew_at_each_restart_of_the_rate_may_be_meant(
    cycle: int, config: dict[str, str], severity: str
) -> None:
    steps = numpy.array([46, 91, 136])
    columns = {
        "train/loss": numpy.ones(180),
        "train/lr": 0.08 * (0.501 + 0.499 * numpy.cos(numpy.pi * (numpy.arange(180) % cycle) / cycle)),
        "model/optimizers_replaced": (steps, numpy.arange(1.0, 4)), "model/momentum": ([0], [0.9]),
    }  # fmt: skip
    found = findings([OptimizerRemade()], columns, facts={"config": config})
    assert [one.severity for one in found.values()] == [severity]
