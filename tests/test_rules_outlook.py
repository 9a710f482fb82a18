"""A target that the forecast puts out of reach is told; one that is reached, or unknown, is not."""

from __future__ import annotations

import numpy as np
import pytest

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.facts import facts_of
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.outlook import outlook_of
from barograph.doctor.rules.loss.outlook import TargetOutOfReach


def examined(target: float | None, pieces: int = 1, steps: int = 2000, seen: float = 0.6) -> list[Finding]:
    config = {"max_steps": steps, "lr_scheduler_type": "cosine", "learning_rate": 1e-3, "warmup_steps": 20}
    facts = facts_of(config | ({} if target is None else {"target_loss": target}), outlook=outlook_of)
    examiner = Examiner([TargetOutOfReach()], facts)
    rng = np.random.default_rng(3)
    step = np.arange(int(steps * seen))
    loss = 2.0 + 4 * (1 + step / 20) ** -0.5 + 0.02 * rng.standard_normal(len(step))
    rate = 1e-3 * np.minimum(1, (step + 1) / 20) * 0.5 * (1 + np.cos(np.pi * step / steps))
    for some in np.array_split(step, pieces):
        examiner.seen.add("train/loss", some, loss[some])
        examiner.seen.add("train/lr", some, rate[some])
        examiner.examine()
    assert not examiner.failed
    return examiner.findings


@pytest.mark.parametrize("pieces", [1, 7, 60])
def test_a_target_far_below_is_out_of_reach(pieces: int) -> None:
    found = examined(0.5, pieces)
    assert [one.step for one in found] == [500, 1000]
    assert found[0].severity == "warning" and found[0].kind == "forecast"
    assert found[0].evidence["low"] < found[0].evidence["final"] < found[0].evidence["high"]
    assert found == examined(0.5, 13)


def test_a_target_that_is_reached_or_unknown_is_no_trouble() -> None:
    assert examined(3.0) == [] == examined(None)


def test_before_a_quarter_of_the_plan_nothing_is_said() -> None:
    assert examined(0.5, seen=0.2) == []
