"""Runs so long that the first rows of a series are no longer kept when another one begins."""

from __future__ import annotations

import numpy as np
import pytest

from barograph.core.roles import ROLES
from barograph.doctor.kernel.channels import KEEP
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.registry import rule_classes

LENGTH, LATE = 2 * KEEP + 8000, 2 * KEEP + 4000  # some more are kept than have to be


def late_series() -> list[str]:
    """One series for each role, and all that rules ask for by name."""
    asked = {part for rule in rule_classes().values() for need in rule.needs for part in need.split("|")}
    names = {part[1:] for part in asked if part[:1] == "=" and "*" not in part}
    return sorted(names | {ROLES[part][0][0] for part in asked if part in ROLES} - {"train/loss", "train/lr"})


@pytest.mark.slow
@pytest.mark.parametrize(("value", "rewarded"), [(0.0, False), (0.4, False), (3.0, True)])
def test_no_rule_fails_where_the_first_rows_are_gone(value: float, rewarded: bool) -> None:
    examiner = Examiner([rule() for rule in rule_classes().values()], {"config": {"batch_size": 8, "dropout": 0.1}})
    early = {"train/loss": 2 + 2.7 * np.exp(-np.arange(LENGTH) / 5000), "train/lr": np.full(LENGTH, 1e-3)}
    late = [name for name in late_series() if rewarded or "reward" not in name]
    assert len(late) > 100
    for low in range(0, LENGTH, 8000):
        steps = np.arange(low, min(low + 8000, LENGTH))
        for name, values in early.items():
            examiner.seen.add(name, steps, values[steps], steps * 1_000_000)
        some = steps[(steps >= LATE) & (steps % 200 == 0)]
        for name in late if len(some) else ():
            examiner.seen.add(name, some, np.full(len(some), value + 0.01 * (name[-1:] < "m")), some * 1_000_000)
        examiner.examine()
    examiner.seen.facts["finished"] = True
    examiner.catch_up()
    assert not examiner.failed
