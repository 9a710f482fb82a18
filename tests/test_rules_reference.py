"""Preferences whose reference is another network, and those whose beta lets nothing be learnt."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.rl.reference import PreferenceBeta, ReferenceApart

ROWS = 300
STEP = 1 + np.arange(ROWS)
DICE = np.random.default_rng(7)


def one(rule: type, beta: float, pieces: tuple[int, ...], **series: np.ndarray) -> list[Finding]:
    columns = {name.replace("__", "/"): (STEP[: len(values)], values) for name, values in series.items()}
    return findings_of([rule()], columns, pieces, config={"beta": beta})


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("chosen", "rejected", "apart", "cause"),
    [
        (4.4, 1.8, 1.36, "reference is another network"),
        (0.5, 3.1, 2e-4, "log probabilities differ"),
        (0.0, 0.0, 2e-4, None),
        (0.2, -0.3, 2e-4, None),  # dropout
        (0.0, 0.0, 1.36, None),
    ],
)
def test_the_first_rewards_of_a_preference_are_zero(
    chosen: float, rejected: float, apart: float, cause: str | None, pieces: tuple[int, ...]
) -> None:
    found = one(
        ReferenceApart, 0.1, pieces, rewards__chosen=chosen + 0.01 * STEP, rewards__rejected=rejected - 0.01 * STEP,
        model__other_apart=apart + 1e-4 * STEP,
    )  # fmt: skip
    assert [finding.step for finding in found] == [1] * (cause is not None)
    assert cause is None or found[0].causes[0].startswith(cause)


def test_rewards_without_a_second_network_say_nothing() -> None:
    assert not one(ReferenceApart, 2.0, (), rewards__chosen=-2.0 + 0 * STEP, rewards__rejected=-3.0 + 0 * STEP)


@pytest.mark.parametrize("pieces", [(), tuple(range(0, ROWS, 13))])
@pytest.mark.parametrize(
    ("beta", "difference", "cause"),
    [
        (1e-4, STEP / 50.0, "beta too small"),
        (0.1, STEP / 50.0, None),
        (1e-2, 0.01 * STEP / 50.0, None),  # nothing has been learnt yet
        (100.0, np.minimum(STEP - 1, 20) / 100.0, "beta too large"),
        (2.0, np.minimum(STEP - 1, 20) / 100.0, None),
    ],
)
def test_a_beta_that_lets_nothing_be_learnt(
    beta: float, difference: np.ndarray, cause: str | None, pieces: tuple[int, ...]
) -> None:
    margins = beta * difference
    found = one(PreferenceBeta, beta, pieces, rewards__margins=margins, loss=np.logaddexp(0, -margins))
    assert len(found) == (cause is not None)
    assert cause is None or found[0].causes[0].startswith(cause)
