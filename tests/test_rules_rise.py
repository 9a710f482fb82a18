"""A rise of the loss that is none: it goes round, and comes down as low as ever."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import found, warned

from barograph.doctor.rules.loss.progress import RULES


def look(loss: np.ndarray):
    return found([rule() for rule in RULES], {"train/loss": (np.arange(len(loss)), loss)})


@pytest.mark.parametrize("period", [3, 7, 12, 20, 33])
@pytest.mark.parametrize("height", [0.3, 0.6])
@pytest.mark.parametrize("shape", ["saw", "sine", "fall"])
def test_a_loss_that_goes_round_does_not_diverge(period: int, height: float, shape: str) -> None:
    along = np.arange(700) % period / period
    course = {"saw": along, "sine": 0.5 + 0.5 * np.sin(2 * np.pi * along), "fall": 1 - along}[shape]
    loss = np.exp(np.log(2) + height * course)
    loss[400] = 99.0
    assert not [one for one in warned(look(loss)) if one.rule == "divergence"]


def test_a_rise_that_turns_out_to_come_round_is_an_info_finding() -> None:
    course = 2.5 * np.where(np.arange(800) // 40 % 2, 1.5, 1.0)
    early = next(one for one in look(course[:70]) if one.rule == "divergence")
    late = next(one for one in look(course) if one.rule == "divergence")
    assert (early.severity, late.severity) == ("critical", "info") and early.step == late.step == 40
    assert "come back as far again by step" in late.message


def test_a_loss_that_leaps_from_a_saw_tooth_diverges() -> None:
    loss = 2.0 + np.arange(800) % 7 / 10
    loss[500:] *= 2
    finding = next(one for one in look(loss) if one.rule == "divergence")
    assert finding.severity == "critical" and 495 <= finding.step <= 502
