"""How much of the weights is in an average of them, and what is said where some is missing."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.evaluation.averages import AverageWrong

torch = pytest.importorskip("torch")

from barograph.probes.model.lacking import figures  # noqa: E402

DECAY, SIZES = 0.97, (200, 256)
STEPS = np.arange(1, 7) * 20


def averaged(size: float, moves: float, zeros: bool, steps: int, way: str = "turns") -> tuple[float, float]:
    """The figures of an average after some steps, of weights that begin with a size and move."""
    dice = torch.Generator().manual_seed(4)
    weights = size * torch.randn(sum(SIZES), generator=dice)
    goal = 4 * weights if way == "grows" else torch.randn(sum(SIZES), generator=dice)
    first, average = weights.clone(), torch.zeros_like(weights) if zeros else weights.clone()
    for _ in range(steps):
        weights = weights + moves * (goal - weights)
        weights = weights + 0.1 * moves * (way == "turns") * torch.randn(sum(SIZES), generator=dice)
        average = DECAY * average + (1 - DECAY) * weights
    return tuple(figures(first, weights, average, SIZES).tolist())


@pytest.mark.parametrize("steps", [10, 40, 120])
@pytest.mark.parametrize(("size", "moves"), [(1.0, 0.02), (0.3, 0.05), (2.0, 0.03), (1.0, 1e-4)])
@pytest.mark.parametrize("zeros", [True, False])
def test_what_is_missing_is_what_an_average_from_zeros_lacks(
    size: float, moves: float, zeros: bool, steps: int
) -> None:
    most, least = averaged(size, moves, zeros, steps)
    missing = DECAY**steps if zeros else 0.0
    assert abs(1 - missing - most) < 0.02 and abs(1 - missing - least) < 0.02


@pytest.mark.parametrize(("size", "way"), [(0.0, "turns"), (1e-3, "turns"), (1.0, "grows")])
@pytest.mark.parametrize("zeros", [True, False])
def test_nothing_is_said_of_matrices_that_begin_at_zero_or_only_grow(size: float, way: str, zeros: bool) -> None:
    assert averaged(size, 0.05, zeros, 30, way) == (-1.0, -1.0)


@pytest.mark.parametrize(
    ("whole", "apart", "told"),
    [
        (1 - 0.98**STEPS, 0.01, True),  # `share` is what a lag makes of it, and tells nothing
        (1 - 0.98**STEPS, 0.2, False),  # one matrix has more than another
        (np.ones(6), 0.0, False),
        (np.full(6, -1.0), 0.0, False),
        (np.full(6, 0.6), 0.0, False),  # made smaller on purpose
        (1 - 0.9 ** (STEPS + 4), 0.0, False),  # nothing is missing by then
    ],
)
@pytest.mark.parametrize("begins", [0, 1])
def test_an_average_from_zeros_is_told_by_what_is_missing(
    whole: np.ndarray, apart: float, told: bool, begins: int
) -> None:
    values = {"apart": 0.6, "share": 0.5, "alike": 0.0, "newest": -1.0, "whose": 0.0, "statistics": -1.0,
              "moved": 1.0, "changed": 0.7, "steps": STEPS, "whole": whole, "whole_least": whole - apart}  # fmt: skip
    places = STEPS + begins
    series = {f"model/evaluated_{name}": (places, np.zeros(6) + value) for name, value in values.items()}
    series["val/loss"] = places - 1, np.linspace(1, 0.5, 6)
    said = found([AverageWrong()], series)
    assert [(one.step, one.causes[0][:18]) for one in said] == [(40 + begins, "average from zeros")] * told
