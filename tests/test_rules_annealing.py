"""A rate that is lowered when the evaluation gets better, and rates that are lowered as they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.optimizer.annealing import RULES

EVERY = 20


def annealed(
    worth: float,
    patience: int,
    reversed_: bool,
    steps: int = 800,
    factor: float = 0.25,
    floor: float = 1.0,
    start: int = 0,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A loss that falls as fast as the rate lets it, down to a floor, and a scheduler that waits for evaluations."""
    rate, loss, best, waited = 1.0, 4.0, np.inf, 0
    rates, losses, evaluations = [], [], []
    for step in range(steps):
        rates.append(rate)
        loss -= worth * rate * (loss - floor)
        losses.append(loss)
        if step % EVERY == EVERY - 1:
            evaluations.append(loss + 0.01 * np.sin(12.9 * step) * (1 - reversed_))
            better = evaluations[-1] > best if reversed_ else evaluations[-1] < best * (1 - 1e-4)
            waited = 0 if better or best == np.inf else waited + 1
            best = evaluations[0] if reversed_ else min(best, evaluations[-1])
            if waited > patience:
                rate, waited = rate * factor, 0
    at = np.arange(steps)
    return {"train/loss": (at, np.array(losses)), "train/lr": (at, np.array(rates)),
            "eval/loss": (at[EVERY - 1 :: EVERY], np.array(evaluations))}  # fmt: skip


def look(series: dict[str, tuple[np.ndarray, np.ndarray]], pieces: tuple[int, ...] = (), **facts: Any) -> list[object]:
    return found([rule() for rule in RULES], series, pieces, **facts)


@pytest.mark.parametrize("patience", [0, 1, 2])
@pytest.mark.parametrize("planned", [None, 800])
def test_a_scheduler_of_the_wrong_mode_is_found_at_its_first_fall(patience: int, planned: int | None) -> None:
    series = annealed(0.002, patience, True)
    facts = {} if planned is None else {"planned_steps": planned}
    findings = look(series, **facts)
    rates = series["train/lr"][1]
    assert [one.severity for one in findings] == ["warning"]
    assert findings[0].step == int(np.flatnonzero(rates < 1)[0])
    assert findings[0].causes[0].startswith("learning rate too low")
    assert [one.found for one in look(series, (50, 111, 333, 480), **facts)] == [findings[0].found]


def test_a_scheduler_that_waits_for_a_plateau_is_silent() -> None:
    for worth in (0.002, 0.02, 0.2):
        series = annealed(worth, 2, False)
        assert worth == 0.002 or series["train/lr"][1].min() < 1e-3
        assert not look(series)


def stairs(falls: int, factor: float, steps: int = 800) -> np.ndarray:
    return factor ** (np.arange(steps) // (steps // (falls + 1)))


@pytest.mark.parametrize(
    "rate",
    [stairs(3, 0.1), stairs(5, 0.5), stairs(7, 0.5), 0.99 ** np.arange(800), np.tile(stairs(3, 0.1, 200), 4)],
    ids=["three tenths", "five halves", "seven halves", "smooth", "again"],
)
def test_stairs_that_were_planned_are_silent(rate: np.ndarray) -> None:
    loss = 1 + 3 * np.exp(-np.cumsum(0.01 * rate))
    at = np.arange(len(rate))
    series = {
        "train/loss": (at, loss),
        "train/lr": (at, rate),
        "eval/loss": (at[EVERY - 1 :: EVERY], loss[EVERY - 1 :: EVERY]),
    }
    assert not look(series)
    assert not look(series, planned_steps=800)


@pytest.mark.parametrize("patience", [1, 4])
@pytest.mark.parametrize("pieces", [(), (50, 111, 333, 480)])
def test_three_falls_are_enough_where_the_configuration_names_a_plateau(patience: int, pieces: tuple[int, ...]) -> None:
    config = {"scheduler": "ReduceLROnPlateau", "patience": patience}
    series = annealed(0.001, patience, True, 600, factor=0.5)
    assert look(series, pieces) == []  # so may anybody's stairs be
    assert [one.severity for one in look(series, pieces, config=config)] == ["warning"]
    assert look(series, pieces, config=config | {"scheduler": "step"}) == []
    for worth in (0.001, 0.004, 0.02):
        assert look(annealed(worth, patience, False, 1600, factor=0.5), pieces, config=config) == []
