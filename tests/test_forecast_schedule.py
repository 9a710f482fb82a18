"""Schedules: their rates, what configurations of other tools mean, and what a column of rates tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.analysis.forecast import RateSchedule, named, schedule_of
from barograph.analysis.forecast.law import features
from barograph.analysis.forecast.observed import recognise
from barograph.core.configuration import planned_steps


def test_rates_are_those_of_the_formulas() -> None:
    step = np.array([0, 50, 100, 550, 1000, 2000])
    assert RateSchedule("constant", 1000, 2.0, 100).lr(step).tolist() == [0, 1, 2, 2, 2, 2]
    assert RateSchedule("linear", 1000, 2.0, 100, 0.2).lr(step) == pytest.approx([0, 1, 2, 1.1, 0.2, 0.2])
    assert RateSchedule("cosine", 1000, 2.0, 100).lr(step) == pytest.approx([0, 1, 2, 1, 0, 0], abs=1e-12)
    assert RateSchedule("wsd", 1000, 1.0, decay=200).lr([800, 900, 1000]) == pytest.approx([1, 0.5, 0])
    assert RateSchedule("wsd", 1000, 1.0, decay=200, shape="sqrt").lr([850]) == pytest.approx([0.5])
    assert RateSchedule("step", 1000, 1.0, milestones=(500, 800)).lr([500, 501, 900]) == pytest.approx([1, 0.1, 0.01])
    assert RateSchedule("inverse_sqrt", 1000, 1.0, 100).lr([100, 400]) == pytest.approx([1, 0.5])
    assert RateSchedule.from_values([1.0, 2.0, 3.0], 10).lr([1, 2, 9]).tolist() == [1, 2, 3]
    # one period of a full cosine wave comes back up
    assert RateSchedule("cosine", 1000, 1.0, cycles=1.0).lr([500, 1000]) == pytest.approx([0, 1], abs=1e-12)


@given(
    kind=st.sampled_from(["constant", "cosine", "linear", "wsd", "step", "inverse_sqrt", "polynomial"]),
    total=st.integers(2, 100_000),
    warm=st.floats(0, 0.5),
    floor=st.floats(0, 1),
)
def test_rates_are_between_zero_and_the_peak_and_never_rise_after_the_warm_up(
    kind: str, total: int, warm: float, floor: float
) -> None:
    warmup = int(warm * total)
    schedule = RateSchedule(kind, total, 3.0, warmup, floor, milestones=(total // 2,))
    rates = schedule.lr(np.unique(np.linspace(0, total, 500).astype(int)))
    assert (rates >= 0).all() and rates.max() <= 3.0 + 1e-9
    after = schedule.lr(np.unique(np.linspace(warmup, total, 500).astype(int)))
    assert (np.diff(after) <= 1e-9).all() and all(0 < one < total for one in schedule.knots)
    assert schedule.describe()


def test_strange_schedules_are_refused() -> None:
    wrongs: list[Callable[[], RateSchedule]] = [
        lambda: RateSchedule("sawtooth", 10),
        lambda: RateSchedule("cosine", 0),
        lambda: RateSchedule("cosine", 10, peak=0.0),
        lambda: RateSchedule("cosine", 10, peak=math.nan),
        lambda: RateSchedule("wsd", 10, shape="round"),
        lambda: RateSchedule("values", 10),
        lambda: RateSchedule.from_values([0.0, 0.0]),
        lambda: RateSchedule.from_values([1.0, math.nan]),
        lambda: named("nonsense", 10),
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"schedule|decay"):
            wrong()
    assert named("Warmup-Stable-Decay", 10, decay=2).kind == "wsd"


CONFIGS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "Transformers",
        {"learning_rate": 5e-5, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "max_steps": 1000},
        {"kind": "cosine", "total": 1000, "peak": 5e-5, "warmup": 100, "floor": 0.0},
    ),
    (
        "Transformers, WSD",
        {
            "learning_rate": 1e-3, "lr_scheduler_type": "SchedulerType.WARMUP_STABLE_DECAY", "warmup_steps": 10,
            "max_steps": 1000, "lr_scheduler_kwargs": {"num_decay_steps": 100, "min_lr_ratio": 0.1},
        },
        {"kind": "wsd", "warmup": 10, "decay": 100, "floor": 1e-4},
    ),
    (
        "nanoGPT",
        {"learning_rate": 6e-4, "max_iters": 600000, "lr_decay_iters": 500000, "min_lr": 6e-5, "warmup_iters": 2000,
         "decay_lr": True},
        {"kind": "cosine", "total": 600000, "decay": 498000, "floor": 6e-5, "warmup": 2000},
    ),
    ("nanoGPT, no decay", {"learning_rate": 6e-4, "max_iters": "5,000", "decay_lr": "False"}, {"kind": "constant"}),
    (
        "torchtitan",
        {"optimizer": {"lr": 8e-4}, "training": {"steps": 10000},
         "lr_scheduler": {"warmup_steps": 200, "decay_ratio": 0.2, "decay_type": "sqrt", "min_lr_factor": 0.1}},
        {"kind": "wsd", "total": 10000, "peak": 8e-4, "warmup": 200, "decay": 2000, "shape": "sqrt", "floor": 8e-5},
    ),
    (
        "torchtitan, all decay",
        {"optimizer.lr": 8e-4, "training.steps": 10000, "lr_scheduler.warmup_steps": 200},
        {"kind": "linear", "warmup": 200},
    ),
    (
        "Megatron-LM",
        {"lr": 1.5e-4, "min-lr": 1e-5, "lr-decay-style": "cosine", "train-iters": 500000, "lr-decay-iters": 320000,
         "lr-warmup-fraction": 0.01},
        {"kind": "cosine", "total": 500000, "warmup": 3200, "decay": 316800, "floor": 1e-5},
    ),
    (
        "Megatron-LM, WSD",
        {"lr": 1e-4, "lr_decay_style": "WSD", "train_iters": 1000, "lr_wsd_decay_style": "exponential",
         "lr_wsd_decay_iters": 100},
        {"kind": "wsd", "decay": 100, "shape": "exponential"},
    ),
    (
        "DeepSpeed",
        {"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 50, "total_num_steps": 900,
                                                           "warmup_max_lr": 1e-4}}},
        {"kind": "linear", "total": 900, "warmup": 50, "peak": 1e-4},
    ),
    (
        "modded-nanogpt",
        {"num_iterations": 1875, "warmup_iters": 0, "warmdown_iters": 562},
        {"kind": "wsd", "decay": 562},
    ),
    (
        "nanochat",
        {"num_iterations": 1000, "warmup_ratio": 0.0, "warmdown_ratio": 0.4, "final_lr_frac": 0.05},
        {"kind": "wsd", "decay": 400, "floor": 0.05},
    ),
    (
        "llm.c",
        {"learning rate (LR)": "6e-04", "LR scheduler": "cosine", "warmup iterations": "700",
         "final LR fraction": "0.0", "max_steps": "-1", "train_num_batches": "19560"},
        {"kind": "cosine", "total": 19560, "warmup": 700, "peak": 6e-4},
    ),
    (
        "plain",
        {"schedule": "step", "lr": 0.1, "steps": 100, "milestones": [0.5, 75], "gamma": 0.2},
        {"kind": "step", "milestones": (50, 75), "factor": 0.2},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), [one[1:] for one in CONFIGS], ids=[one[0] for one in CONFIGS])
def test_configurations_of_other_tools_are_understood(config: dict[str, Any], expected: dict[str, Any]) -> None:
    found = schedule_of(config)
    assert found is not None and planned_steps({"config": config}) == found.total
    for name, value in expected.items():
        assert getattr(found, name) == (pytest.approx(value) if isinstance(value, float) else value), name


def test_configurations_that_do_not_say_are_not_guessed_at() -> None:
    assert schedule_of({}) is None and planned_steps({}) is None
    assert schedule_of({"lr_scheduler_type": "cosine"}) is None  # where would it end?
    assert schedule_of({"lr_scheduler_type": "reduce_lr_on_plateau", "max_steps": 10}) is None
    assert schedule_of({"max_steps": 100, "learning_rate": 1e-3}) is None
    assert (
        planned_steps({"config": {"max_steps": -1}}) is None and planned_steps({"config": {"max_steps": True}}) is None
    )
    found = schedule_of({"lr_scheduler_type": "cosine"}, 300)
    assert found is not None and found.total == 300


@given(st.dictionaries(st.text(max_size=12), st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6,
), max_size=6))  # fmt: skip
def test_any_configuration_is_read_without_an_error(config: dict[str, Any]) -> None:
    schedule_of(config | {"max_steps": 100, "schedule": "cosine", "lr": 1.0})
    planned_steps({"config": config})


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["cosine", "linear"]),
    warmup=st.integers(0, 200),
    floor=st.sampled_from([0.0, 0.1]),
    seen=st.floats(0.3, 1.0),
)
def test_a_falling_rate_tells_its_schedule(kind: str, warmup: int, floor: float, seen: float) -> None:
    whole = RateSchedule(kind, 5000, 3e-4, warmup, 3e-5 * floor * 10)
    step = np.arange(1.0, seen * 5000)
    found = recognise(step, whole.lr(step), 5000)
    assert found.known and len(found.schedules) == 1
    ahead = np.arange(1, 5001)
    assert np.abs(found.schedules[0].lr(ahead) - whole.lr(ahead)).max() < 0.06 * 3e-4
    blind = recognise(step, whole.lr(step), None)
    if blind.known and seen > 0.6:
        assert blind.schedules[0].total == pytest.approx(5000, rel=0.15)


def test_a_rate_that_tells_nothing_says_so() -> None:
    step = np.arange(1.0, 1001)
    rising = recognise(step, step * 1e-6, 5000)
    assert rising.rising and not rising.schedules
    flat = recognise(step, np.full(1000, 1e-3), 5000)
    assert not flat.known and {one.kind for one in flat.schedules} == {"constant", "wsd", "step"}
    assert sum(flat.weights) == pytest.approx(1)
    jagged = recognise(step, 1e-3 * (1.5 + np.sin(step / 9)), 5000)
    assert not jagged.known and "no known form" in jagged.sentence
    assert not recognise(step, np.full(1000, 1e-3), None).schedules


def test_a_stable_rate_that_has_begun_to_decay_is_known_by_its_line() -> None:
    whole = RateSchedule("wsd", 5000, 1e-3, 100, decay=2000)
    step = np.arange(1.0, 3600)
    found = recognise(step, whole.lr(step), 5000)
    assert found.known and found.schedules[0].kind == "wsd"
    assert found.schedules[0].decay == pytest.approx(2000, rel=0.02)


def test_annealing_follows_the_fall_of_the_rate() -> None:
    flat = features(RateSchedule("constant", 1000, 1e-3, 100), 1000)
    assert np.abs(flat.annealing).max() == 0 and flat.area[-1] == pytest.approx(950, rel=1e-3)
    fallen = features(RateSchedule("step", 1000, 1.0, milestones=(500,), factor=0.1), 1000)
    before, after, end = (fallen.at(np.array([one]))[1][0] for one in (499.0, 560.0, 1000.0))
    assert before == 0 and 0.2 < after < end < 0.9
    decayed = features(RateSchedule("linear", 1000), 1000)
    assert (np.diff(decayed.annealing) >= -1e-12).all() and 0.7 < decayed.annealing[-1] < 1
