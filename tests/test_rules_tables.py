"""Pairs that a sigmoid each tells from all others: what says that nothing of them is learnt."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.rules.data.tables import PairsUnlearnt

STEPS, PAIRS = 160, 32
STEP = np.arange(STEPS)
AT = np.arange(23, STEPS, 24)
EACH = -(math.log(1 / PAIRS) + (PAIRS - 1) * math.log1p(-1 / PAIRS)) / PAIRS  # nats of a guess
NONE = math.log(2) * (1 - 1 / PAIRS)
LEARNS = np.linspace(1.1, 0.6, STEPS)
NOISE = 0.003 * np.sin(STEP)


def columns(loss: Any, evaluation: Any, right: Any, **figures: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    logged = {
        "train/loss": (STEP, loss + NOISE),
        "val/loss": (AT, evaluation + 0 * AT),
        "val/top1": (AT, right + 0 * AT),
    }
    watched = {"sigmoid_pairs": float(PAIRS)} | figures
    return logged | {f"model/{name}": (STEP[:1], np.array([value])) for name, value in watched.items()}


@pytest.mark.parametrize("pieces", [(), tuple(range(0, STEPS, 13))])
@pytest.mark.parametrize("times", [1.0, PAIRS, PAIRS * PAIRS])
@pytest.mark.parametrize(
    ("loss", "evaluation", "right", "cause"),
    [
        (EACH + 0 * STEP, EACH, 1 / PAIRS, "labels shuffled"),
        (EACH * LEARNS, 0.7 * EACH, 0.4, None),
        (EACH * 0.97 + 0 * STEP, EACH, 1 / PAIRS, None),  # a little is learnt
        (EACH + 0 * STEP, EACH, 0.1, None),
        (NONE + 0 * STEP, NONE, 1 / PAIRS, "negatives missing"),
        (EACH * LEARNS, EACH * 1.2, 0.01, "labels of the evaluation"),
        (EACH * LEARNS, EACH * 0.97, 0.01, None),
        (EACH * LEARNS, EACH * 1.2, 0.1, None),
    ],
)
def test_what_says_that_nothing_of_pairs_is_learnt(
    loss: Any, evaluation: float, right: float, cause: str | None, times: float, pieces: tuple[int, ...]
) -> None:
    made = columns(times * loss, times * evaluation, right)
    made["train/loss"] = STEP, times * (loss + EACH * NOISE)
    found = findings_of([PairsUnlearnt()], made, pieces)
    assert [one.causes[0][: len(cause or "")] for one in found] == [cause] * (cause is not None)


@pytest.mark.parametrize("figures", [{"sigmoid_pairs": 4.0}, {"sigmoid_pairs": math.nan}])
def test_other_losses_and_few_pairs_say_nothing(figures: dict[str, float]) -> None:
    assert not findings_of([PairsUnlearnt()], columns(EACH + 0 * STEP, EACH, 1 / PAIRS, **figures))
