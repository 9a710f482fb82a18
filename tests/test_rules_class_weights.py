"""Weights of classes: the wrong way round, in another order, made up for twice."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_objective import FALLS, ROWS, every, warned


@pytest.mark.parametrize(("power", "says"), [(1.0, True), (0.45, True), (-1.0, False), (0.0, False)])
def test_weights_that_go_with_frequency_are_inverted(power: float, says: bool) -> None:
    looks = np.arange(0, ROWS, 10)
    found = warned({
        "loss": every(FALLS),
        "model/class_weight_slope": (looks, np.full(40, power)),
        "model/class_targets": (looks, 32.0 * np.arange(1, 41)),
    })  # fmt: skip
    assert ("class_weights" in found) == says


@pytest.mark.parametrize(("doubled", "targets", "says"), [(1.0, 32.0, True), (0.0, 32.0, False), (1.0, 4.0, False)])
def test_classes_that_are_made_up_for_twice_are_told(doubled: float, targets: float, says: bool) -> None:
    looks = np.arange(0, ROWS, 10)
    found = warned({
        "loss": every(FALLS),
        "model/class_weights_doubled": (looks, np.full(40, doubled)),
        "model/class_targets": (looks, targets * np.arange(1, 41)),
    })  # fmt: skip
    assert ("classes_twice" in found) == says


@pytest.mark.parametrize(
    ("squared", "targets", "looks", "says"),
    [(1.0, 240.0, 5, True), (1.0, 600.0, 4, False), (1.0, 180.0, 9, False), (0.0, 600.0, 9, False)],
)
def test_weights_that_are_squared_make_up_for_twice(squared: float, targets: float, looks: int, says: bool) -> None:
    at = np.arange(100, 100 + looks)
    found = warned({
        "loss": every(FALLS),
        "model/class_weights_squared": (at, np.full(looks, squared)),
        "model/class_targets": (at, np.full(looks, targets)),
    })  # fmt: skip
    assert ("classes_twice" in found) == says


@pytest.mark.parametrize(("targets", "looks", "says"), [(520.0, 1, True), (480.0, 1, False), (480.0, 5, True)])
def test_many_targets_tell_in_one_look_what_is_made_up_for_twice(targets: float, looks: int, says: bool) -> None:
    at = np.arange(100, 100 + looks)
    found = warned({
        "loss": every(FALLS),
        "model/class_weights_doubled": (at, np.ones(looks)),
        "model/class_targets": (at, np.full(looks, targets)),
    })  # fmt: skip
    assert ("classes_twice" in found) == says


@pytest.mark.parametrize(("batches", "inverted", "says"), [(8, 1.0, True), (7, 1.0, False), (14, 0.0, False)])
@pytest.mark.parametrize("slope", [0.5, None, 0.1])
def test_weights_that_are_the_counts_show_in_fewer_targets(
    batches: int, inverted: float, says: bool, slope: float | None
) -> None:
    """slope: over all targets, where it is known by then."""
    looks = np.arange(0, 10 * batches, 10)
    found = warned({
        "loss": every(FALLS),
        **({"model/class_weight_slope": (looks, np.full(batches, slope))} if slope is not None else {}),
        "model/class_weights_inverted": (looks, np.full(batches, inverted)),
        "model/class_targets": (looks, 32.0 * np.arange(1, batches + 1)),
    })  # fmt: skip
    assert ("class_weights" in found) == (says and slope != 0.1)


@pytest.mark.parametrize(
    ("elsewhere", "first"), [(1.0, "class weights in the wrong order"), (2.0, "labels shifted"), (0.0, None)]
)
def test_weights_of_other_classes_are_in_another_order(elsewhere: float, first: str | None) -> None:
    looks = np.arange(0, ROWS, 10)
    found = warned({
        "loss": every(FALLS),
        "model/class_weights_elsewhere": (looks, np.full(40, elsewhere)),
        "model/class_targets": (looks, 32.0 * np.arange(1, 41)),
    })  # fmt: skip
    assert ("class_weights" in found) == (first is not None)
    if first is not None:
        assert found["class_weights"].causes[0].startswith(first)
