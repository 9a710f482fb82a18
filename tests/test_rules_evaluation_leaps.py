"""Evaluations that leap from one to the next: what is said of them, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
from test_rules_evaluation import AT, falling, look


def test_an_evaluation_that_leaps_at_once_is_no_overfitting() -> None:
    evaluations = falling(2000, noise=0)[AT] * np.where(AT >= 1000, 2.0, 1.0)
    steady = next(one for one in look(falling(2000), evaluations) if one.rule == "overfitting")
    assert steady.step == 900 and steady.causes[0].startswith("tokenizer mismatch")
    since = np.clip(np.arange(2000) - 900, 0, None)
    for falls, cause in ((np.exp(-since / 20), "labels shifted"), (np.where(since > 0, 0.3, 1.0), "overfitting")):
        seen = next(one for one in look(falling(2000) * falls, evaluations) if one.rule == "overfitting")
        assert seen.causes[0].startswith(cause)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (0.5, False),  # gets better again, as an average that begins anew does
        (0.95, True),
        (1.2, True),
    ],
)
def test_an_evaluation_that_leaps_and_gets_better_since_is_no_overfitting(ends: float, told: bool) -> None:
    since = np.clip((AT - 1000) / 900, 0, 1)
    evaluations = falling(2000, noise=0)[np.minimum(AT, 1000)] * np.where(
        AT >= 1000, 2.0 * (1 + (ends - 1) * since), 1.0
    )
    found = look(falling(2000) * np.where(np.arange(2000) > 900, 0.8, 1.0), evaluations)
    assert ("overfitting" in {one.rule for one in found if one.severity == "warning"}) is told
