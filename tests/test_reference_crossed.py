"""A reference whose log probabilities of chosen and rejected answers are exchanged."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.rules.rl.crossed import ReferenceCrossed

STEP = 1 + np.arange(12)
DICE = np.random.default_rng(3)
CHOSEN, REJECTED = -17 + DICE.normal(0, 1, 12), -20.5 + DICE.normal(0, 1, 12)


def told(good: np.ndarray, bad: np.ndarray, pieces: tuple[int, ...] = (), begin: int = 0, **config: object) -> bool:
    names = {"rewards/chosen": good, "rewards/rejected": bad, "logps/chosen": CHOSEN, "logps/rejected": REJECTED}
    columns = {name: (STEP + begin, np.asarray(values)) for name, values in names.items()}
    return bool(findings_of([ReferenceCrossed()], columns, pieces, config=config))


@pytest.mark.parametrize("pieces", [(), (1, 2, 3, 4), (4,)])
def test_rewards_that_are_of_the_other_answers_are_told(pieces: tuple[int, ...]) -> None:
    apart, learnt = 0.1 * (CHOSEN - REJECTED), 0.004 * STEP
    assert told(apart + learnt, -apart - learnt, pieces)
    assert told(0.3 * apart, -0.3 * apart, pieces, loss_type="ipo")


def test_other_first_rewards_are_left_alone() -> None:
    apart, noise = 0.1 * (CHOSEN - REJECTED), DICE.normal(0, 0.01, 12)
    assert not told(noise, -noise)  # dropout
    assert not told(0 * apart, 0 * apart)
    assert not told(0.1 * CHOSEN, 0.1 * REJECTED)  # without a reference
    assert not told(-apart, apart)
    assert not told(apart, -0.5 * apart)
    assert not told(apart, -apart, begin=40)  # a run that begins later has learnt them
    assert not told(apart, -apart, loss_type="simpo")
    assert not told(0.35 + 0 * apart, -0.35 + 0 * apart)  # rewards that are an earlier stage's


def told_of_margins(margin: np.ndarray, pieces: tuple[int, ...] = (), begin: int = 0, **config: object) -> bool:
    names = {"dpo/margin": margin, "dpo/logp_chosen": CHOSEN, "dpo/logp_rejected": REJECTED, "dpo/loss": 0.3 + 0 * STEP}
    columns = {name: (STEP + begin, np.asarray(values, float)) for name, values in names.items()}
    return bool(findings_of([ReferenceCrossed()], columns, pieces, config=config))


@pytest.mark.parametrize("pieces", [(), (1, 2, 3, 4), (4,)])
def test_margins_that_are_of_the_other_answers_are_told(pieces: tuple[int, ...]) -> None:
    twice = 2 * 0.1 * (CHOSEN - REJECTED)
    assert told_of_margins(twice + 0.004 * STEP, pieces, beta=0.1)
    assert not told_of_margins(twice, pieces)  # of an unknown beta
    assert not told_of_margins(twice, pieces, beta=0.1, loss_type="simpo")
    assert not told_of_margins(twice / 2, pieces, beta=0.1)  # without a reference
    assert not told_of_margins(0.05 + DICE.normal(0, 0.05, 12), pieces, beta=0.1)  # dropout
    assert not told_of_margins(twice, pieces, begin=40, beta=0.1)
