"""A loss scale that is raised and halved by turns."""

from __future__ import annotations

import numpy as np
import pytest
from rule_columns import findings
from rule_curves import found

from barograph.doctor.rules.gradient.swings import ScaleSwings, UnscaledTwice

ROWS = np.arange(200)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7)), (64,)])
@pytest.mark.parametrize(
    ("scale", "told"),
    [
        (np.where(ROWS % 2, 2.0**20, 2.0**19), True),  # each rise overflows
        (2.0 ** (15 + ROWS % 5), True),  # the same after four
        (2.0 ** (30 - np.minimum(ROWS, 16)), False),  # it is found once
        (2.0 ** (10 + ROWS // 10), False),  # it grows
        (np.where(ROWS % 40 == 20, 2.0**15, 2.0**16), False),  # now and then
        (np.full(200, 65536.0), False),
    ],
)
def test_a_scale_that_rises_and_falls_by_turns_is_a_warning(
    scale: np.ndarray, told: bool, pieces: tuple[int, ...]
) -> None:
    said = found([ScaleSwings()], {"train/loss": (ROWS, 3 - ROWS / 100), "train/loss_scale": (ROWS, scale)}, pieces)
    assert [(one.severity, one.step, one.found) for one in said] == [("warning", 0, 63)] * told


@pytest.mark.parametrize("cuts", [(), (7, 41)])
@pytest.mark.parametrize(
    ("skips", "says"),
    [
        (ROWS % 2 == 1, True),
        (ROWS % 10 == 1, False),  # it looks for its value now and then
        (ROWS < 30, False),  # at first
        ((ROWS < 70) & (ROWS % 2 == 1), False),
        ((ROWS > 60) & (ROWS % 3 == 1), True),
    ],
)
def test_steps_that_are_skipped_all_the_time_are_a_warning(
    skips: np.ndarray, says: bool, cuts: tuple[int, ...]
) -> None:
    steps = np.flatnonzero(~skips) + 1
    columns = {"model/skipped_steps": (steps, np.cumsum(skips)[~skips].astype(float)),
               "model/loss_scale": (steps, np.full(len(steps), 1048576.0))}  # fmt: skip
    assert [one.severity for one in findings([ScaleSwings()], columns, cuts=cuts).values()] == ["warning"] * says


def test_skipped_steps_of_a_new_launch_are_counted_anew() -> None:
    count = np.concatenate([np.arange(60), np.zeros(60)])
    assert not findings([ScaleSwings()], {"model/skipped_steps": (ROWS[:120] + 1, count)}, segments={1: 0, 61: 1})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7))])
@pytest.mark.parametrize(
    ("left", "scale", "told"),
    [
        (np.full(4, 1 / 65536), 65536.0, True),
        (np.full(4, 1.0005 / 65536), 65536.0, True),
        (np.full(4, 1.002 / 65536), 65536.0, False),
        (np.array([0.3, 1.0, 0.7, 1.0]), 65536.0, False),  # clipped now and then
        (np.full(4, 1.0), 1.0, False),
        (np.array([1 / 16, 1 / 16, 0.07, 1 / 16]), 16.0, False),  # by chance
    ],
)
def test_gradients_that_are_divided_by_the_scale_twice_are_told_of(
    left: np.ndarray, scale: float, told: bool, pieces: tuple[int, ...]
) -> None:
    looks = np.array([0, 29, 59, 89])
    columns = {"train/loss": (ROWS, 3 - ROWS / 100), "model/loss_scale": (ROWS, np.full(200, scale)),
               "model/clip_coefficient": (looks, left)}  # fmt: skip
    said = found([UnscaledTwice()], columns, pieces)
    assert [(one.severity, one.step, one.found) for one in said] == [("warning", 0, 59)] * told
