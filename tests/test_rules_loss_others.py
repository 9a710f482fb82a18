"""Losses beside the judged one, norms, and series of no known name, that are not numbers."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import falling, found

from barograph.doctor.rules.loss.loss import RULES

NAN = float("nan")


def look(loss: np.ndarray, pieces: tuple[int, ...] = (), step: int = 1, **more: np.ndarray):
    steps = np.arange(len(loss)) * step
    series = {"train/loss": (steps, loss)} | {f"train/{name}": (steps, values) for name, values in more.items()}
    return found([rule() for rule in RULES], series, pieces)


@pytest.mark.parametrize("value", [NAN, np.inf])
@pytest.mark.parametrize("name", ["aux_loss", "kl", "loss_rpn_box"])
@pytest.mark.parametrize("pieces", [(), (70,), (61, 64, 90)])
def test_another_loss_that_stays_non_finite_beside_a_finite_one_is_named(
    value: float, name: str, pieces: tuple[int, ...]
) -> None:
    other = np.full(100, 0.1)
    other[60:] = value
    (finding,) = look(falling(100), pieces, **{name: other})
    assert (finding.rule, finding.severity, finding.step, finding.found) == ("non_finite_series", "warning", 60, 75)
    assert name in finding.message


def test_another_loss_with_gaps_or_that_heals_or_never_was_a_number_alarms_nobody() -> None:
    other = np.full(200, 0.1)
    other[60:80] = NAN
    assert [one.severity for one in look(falling(200), aux_loss=other)] == ["info"]
    other[::7] = NAN
    other[150:] = NAN
    assert look(falling(200), aux_loss=other) == []
    assert look(falling(200), aux_loss=np.full(200, NAN)) == []


def test_a_gradient_norm_that_is_never_a_number_is_named_and_a_warning_without_a_loss() -> None:
    assert [(one.rule, one.severity) for one in look(falling(40), norm=np.full(40, NAN))] == [
        ("non_finite_series", "info")
    ]
    norms = {"train/norm": (np.arange(40), np.full(40, NAN)), "train/lr": (np.arange(40), np.full(40, 1e-3))}
    assert [one.severity for one in found([rule() for rule in RULES], norms)] == ["warning"]


def players(last: int, gaps: bool = False, rows: int = 60) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Series of no known name, of which the last rows are not numbers."""
    steps, values = np.arange(rows) * 10, np.linspace(3, 1, rows)
    ended = values.copy()
    ended[rows - last :] = NAN
    if gaps:
        ended[::5] = NAN
    return {"DR": (steps, values), "G": (steps, ended), "DF": (steps, ended)}


@pytest.mark.parametrize("pieces", [(), (20, 58)])
@pytest.mark.parametrize("last", [3, 20])
def test_series_of_no_known_name_that_end_as_nan_are_one_warning(last: int, pieces: tuple[int, ...]) -> None:
    (finding,) = found([rule() for rule in RULES], players(last), pieces)
    assert (finding.rule, finding.severity, finding.step) == ("non_finite_series", "warning", (60 - last) * 10)
    assert finding.message == f"DF and G are NaN since step {(60 - last) * 10}"


def test_series_of_no_known_name_with_gaps_with_two_rows_without_or_beside_a_loss_say_nothing() -> None:
    steps = np.arange(60) * 10
    for series in (
        players(2),
        players(20, gaps=True),
        players(20) | {"train/loss": (steps, falling(60))},
        players(20) | {"reward": (steps, np.linspace(0, 1, 60))},
    ):
        assert found([rule() for rule in RULES], series) == []


@pytest.mark.parametrize("pieces", [(), (9,), (14, 16)])
def test_a_reward_that_is_no_number_at_last_is_named_where_no_loss_is(pieces: tuple[int, ...]) -> None:
    steps, values = np.arange(20) * 10, np.linspace(-9.0, 4.0, 20)
    ended, gaps = values.copy(), values.copy()
    ended[15:] = gaps[[4, 15, 16, 17, 18, 19]] = NAN
    rules = [rule() for rule in RULES]
    (finding,) = found(rules, {"reward": (steps, ended)}, pieces)
    assert (finding.rule, finding.severity, finding.step) == ("non_finite_series", "info", 150)
    assert finding.message == "The reward (reward) is NaN since step 150, in each of the last 5 rows"
    for reward, more in (
        (values, {}),
        (gaps, {}),
        (np.full(20, NAN), {}),
        (ended, {"train/loss": (steps, falling(20))}),
    ):
        assert found([rule() for rule in RULES], {"reward": (steps, reward), **more}, pieces) == []


def policy(bad: int, names: tuple[str, ...], norm: bool, gap: bool = False) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Terms of a policy's loss beside a reward, of which the last rows are not numbers."""
    steps, values = np.arange(12) * 5, np.linspace(2, 1, 12)
    ended = values.copy()
    ended[12 - bad :] = NAN
    ended[3] = NAN if gap else ended[3]
    terms = {f"actor/{name}_loss": (steps, ended) for name in names}
    return {"reward": (steps, values), "train/norm": (steps, ended if norm else values)} | terms


@pytest.mark.parametrize(("bad", "names", "norm", "gap", "told"), [
    (2, ("policy", "entropy", "kl"), False, False, True), (5, ("policy", "entropy"), True, False, True),
    (1, ("policy", "entropy", "kl"), True, False, False), (5, ("policy", "entropy"), False, False, False),
    (5, ("policy", "entropy", "kl"), False, True, False),
])  # fmt: skip
def test_terms_of_a_policy_that_become_no_numbers_in_one_row_are_one_warning(
    bad: int, names: tuple[str, ...], norm: bool, gap: bool, told: bool
) -> None:
    findings = [
        one for one in found([rule() for rule in RULES], policy(bad, names, norm, gap)) if "actor" in one.message
    ]
    assert [(one.severity, one.step) for one in findings] == [("warning", 5 * (12 - bad))] * told
