"""Evaluations that are no numbers: which are a trouble, and which are not logged."""

from __future__ import annotations

import numpy as np
import pytest
from rule_curves import falling, found, warned
from test_rules_evaluation import AT, RULES, look


def test_evaluations_that_are_no_numbers() -> None:
    evaluations = falling(2000, noise=0.002)[AT]
    evaluations[10:] = np.nan
    finding = next(one for one in look(falling(2000), evaluations) if one.rule == "evaluation_non_finite")
    assert (finding.severity, finding.kind, finding.step) == ("warning", "nonfinite", AT[10])
    evaluations = falling(2000, noise=0.002)[AT]
    evaluations[4] = np.nan
    assert not warned(look(falling(2000), evaluations))


@pytest.mark.parametrize(
    ("accuracy", "since", "first"),
    [
        (0.8, 0, "attention mask inverted"),
        (0.0, 0, "loss masked out"),  # no label that is right: there may be none
        (None, 0, "loss masked out"),
        (0.8, 10, "loss masked out"),  # it was finite with the same mask
    ],
)
def test_evaluations_that_are_no_numbers_from_the_first_on_and_have_right_answers_have_labels(
    accuracy: float | None, since: int, first: str
) -> None:
    evaluations = falling(2000, noise=0.002)[AT]
    evaluations[since:] = np.nan
    series = {"train/loss": (np.arange(2000), falling(2000)), "eval/loss": (AT, evaluations)}
    series |= {"eval/accuracy": (AT, np.full(len(AT), accuracy))} if accuracy is not None else {}
    (finding,) = [one for one in found([rule() for rule in RULES], series) if one.rule == "evaluation_non_finite"]
    assert finding.severity == "warning" and finding.causes[0].startswith(first)
    assert any(one.startswith("attention mask") for one in finding.causes) is (since == 0)


def test_a_column_that_is_nan_where_it_is_not_logged_is_an_info_finding() -> None:
    at = np.arange(600) * 10
    evaluations = np.where(np.arange(600) % 50 == 0, falling(600), np.nan)
    assert not [one for one in look(falling(6000), evaluations, at) if one.severity != "info"]


def test_an_evaluation_that_is_nan_to_the_end_warns_since_the_first() -> None:
    evaluations = falling(2000, noise=0)[AT]
    evaluations[11:] = np.nan
    (finding,) = [one for one in look(falling(2000), evaluations) if one.rule == "evaluation_non_finite"]
    assert (finding.severity, finding.step) == ("warning", int(AT[11]))


def test_gaps_that_end_with_a_long_one_warn_since_its_beginning() -> None:
    at = np.arange(600) * 10
    evaluations = np.where(np.arange(600) % 5 == 0, falling(600), np.nan)
    evaluations[301:] = np.nan
    some = [one for one in look(falling(6000), evaluations, at) if one.rule == "evaluation_non_finite"]
    assert [one.step for one in some if one.severity == "warning"] == [3010]
