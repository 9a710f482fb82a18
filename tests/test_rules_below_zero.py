"""A loss below zero: what it means that it rises, and what is only noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_curves import found, warned

from barograph.doctor.rules.loss.below_zero import RULES
from barograph.doctor.rules.loss.loss import RULES as LOSS
from barograph.doctor.rules.loss.progress import RULES as PROGRESS

AT = np.arange(800)


def fallen(seed: int = 0, noise: float = 60.0) -> np.ndarray:
    """A log-likelihood from 1500 to -2500."""
    return -2500 + 4000 * np.exp(-AT / 60) + np.random.default_rng(seed).normal(0, noise, len(AT))


def look(loss: np.ndarray, pieces=(), **more):
    series = {"train/loss": (AT[: len(loss)] * 10, loss)} | more
    return found([rule() for rule in RULES], series, pieces)


@pytest.mark.parametrize(("back", "severity"), [(0.35, "warning"), (0.6, "critical"), (0.9, "critical")])
def test_a_loss_below_zero_that_rises_is_found_since_it_rises(back: float, severity: str) -> None:
    (one,) = look(fallen() + 4000 * back * (1 - np.exp(-np.clip(AT - 450, 0, None) / 20)))
    assert (one.severity, one.kind) == (severity, "divergence") and 4200 <= one.step <= 4900
    assert one.evidence["best"] < -2400


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "shape",
    [
        lambda at: 0 * at,
        lambda at: 500 * (1 - np.exp(-np.clip(at - 450, 0, None) / 20)),  # an eighth of what it had fallen
        lambda at: 3000 * ((at > 450) & (at < 480)),  # two blocks
        lambda at: 200 * np.sin(at / 30),
    ],
)
def test_a_loss_below_zero_that_stays_or_comes_back_gives_no_warning(shape, seed: int) -> None:
    assert not warned(look(fallen(seed) + shape(AT)))


def test_one_that_comes_down_again_after_long_is_an_info_finding() -> None:
    (one,) = look(fallen() + 2500 * ((AT > 300) & (AT < 500)))
    assert one.severity == "info" and "it had recovered" in one.message


def test_a_validation_loss_that_did_not_rise_with_it_makes_it_an_info_finding() -> None:
    up = 2500 * (1 - np.exp(-np.clip(AT - 450, 0, None) / 20))
    seen = np.arange(0, 8000, 400)
    assert not warned(look(fallen() + up, **{"eval/loss": (seen, fallen(1)[seen // 10])}))
    assert warned(look(fallen() + up, **{"eval/loss": (seen, (fallen(1) + up)[seen // 10])}))


def test_losses_above_zero_and_those_of_players_are_left_to_others() -> None:
    assert not look(3000 + fallen() + 2500 * (AT > 450))
    reward = {"train/reward": (AT * 10, np.linspace(0, 1, 800))}
    assert not look(fallen() + 2500 * (AT > 450), **reward)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 799), max_size=6))
def test_pieces_of_any_size_give_the_same(cuts: list[int]) -> None:
    loss = fallen() + 2500 * ((AT > 300) & (AT < 600))
    assert look(loss, cuts) == look(loss)


def test_ratios_say_nothing_of_a_loss_that_was_below_zero() -> None:
    dice = np.random.default_rng(3)
    loss = 1.5 * np.exp(-np.arange(260) / 40) - 0.4 + dice.normal(0, 0.15, 260)
    loss[[130, 170, 210, 211]] = 1.4, 1.45, 3.1, 0.9  # tails of a density that is sure of itself
    rules = [rule() for rule in (*LOSS, *PROGRESS)]
    told = found(rules, {"train/loss": (np.arange(260), loss)})
    assert not [one for one in told if one.rule in ("loss_level", "loss_spike", "divergence")]
    rules = [rule() for rule in (*LOSS, *PROGRESS)]
    told = found(rules, {"train/loss": (np.arange(260), np.maximum(loss, 0.01))})
    assert any(one.rule == "loss_level" for one in told)


def of_two_sets(names: tuple[str, str], exact: bool = True) -> dict:
    """A loss of energies that comes back, its regulariser, and the energies of the two sets."""
    rng = np.random.default_rng(3)
    apart = fallen() + 2000 * (1 - np.exp(-np.clip(AT - 450, 0, None) / 20))
    base, little = rng.normal(0, 50, len(AT)), rng.uniform(1, 2, len(AT))
    series = {"energy/cd": apart, "energy/reg": little, names[0]: base + apart, names[1]: base}
    off = 0 if exact else rng.normal(0, 5, len(AT))
    return {"train/loss": (AT * 10, apart + little + off)} | {name: (AT * 10, one) for name, one in series.items()}


def test_a_difference_of_two_sets_comes_back_to_0_as_the_one_becomes_like_the_other() -> None:
    for names in (("energy_pos", "energy_neg"), ("score/real", "score/fake"), ("E_data", "E_model")):
        assert not found([rule() for rule in RULES], of_two_sets(names)), names
    assert warned(found([rule() for rule in RULES], of_two_sets(("energy_pos", "other"))))
    assert warned(found([rule() for rule in RULES], of_two_sets(("energy_pos", "energy_neg"), exact=False)))
