"""A loss that is differentiated as a sum over targets, and logged as a mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.rules.loss.divided import SummedGiven

STEP = np.arange(200)
LOSS = 3.0 - 0.01 * STEP + 0.05 * np.sin(STEP)
LOOKS = np.array([0, 1, 2, 3, 20, 40, 60])


def look(
    times: float, passes: float = 4.0, config: dict[str, Any] | None = None, pieces: tuple[int, ...] = (), **more: float
) -> list[Any]:
    columns = {
        "train/loss": (STEP, LOSS),
        "model/loss_given": (LOOKS, times * LOSS[LOOKS]),
        "model/losses_given": (LOOKS, np.full(len(LOOKS), passes)),
    }
    figures = {"targets": 512.0, "clip_coefficient": 0.002} | more
    columns |= {f"model/{name}": (LOOKS, np.full(len(LOOKS), value)) for name, value in figures.items()}
    return findings_of([SummedGiven()], columns, pieces, config=config or {})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 200, 7)), (1, 2, 3)])
@pytest.mark.parametrize(("times", "weight"), [(512.0, 127.6), (2048.0, 510.0)])
def test_a_sum_that_is_logged_as_a_mean_is_found(times: float, weight: float, pieces: tuple[int, ...]) -> None:
    (finding,) = look(times, loss_weight=weight, pieces=pieces)
    assert (finding.step, finding.severity) == (0, "warning")
    assert finding.causes == ["loss summed: over 512 targets, not averaged"]
    assert look(times, pieces=pieces)


@pytest.mark.parametrize(
    ("more", "config"),
    [
        ({"clip_coefficient": 0.9}, {}),  # a step of Adam's does not follow its size
        ({}, {"reduction": "sum"}),
    ],
)
def test_a_sum_that_does_no_harm_or_is_chosen_is_told(more: dict[str, float], config: dict[str, Any]) -> None:
    (finding,) = look(512.0, config=config, **more)
    assert finding.severity == "info"


def test_where_steps_follow_the_gradient_its_size_counts() -> None:
    assert look(512.0, clip_coefficient=1.0, rate_sum=0.1)[0].severity == "warning"


@pytest.mark.parametrize(
    ("times", "passes", "more"),
    [
        (1.0, 4.0, {}),
        (4.0, 4.0, {}),  # micro-batches are added
        (500.0, 4.0, {}),
        (512.0, 4.0, {"clip_coefficient": 1 / 512}),  # divided before the step
        (512.0, 4.0, {"loss_weight": 1.0}),  # another loss than that of the output
        (512.0, 1.0, {"loss_weight": 512.0}),  # `loss_weight` says it
        (4.0, 4.0, {"targets": 4.0}),
    ],
)
def test_nothing_is_said_of_other_numbers(times: float, passes: float, more: dict[str, float]) -> None:
    assert not look(times, passes, **more)
