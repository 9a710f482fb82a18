"""What the model is fed: repeats, labels, padding, tokens of a step."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from rule_curves import columns, found

from barograph.rules.data import RULES


def look(name: str, values: np.ndarray):
    return found([rule() for rule in RULES], {name: (np.arange(len(values)), values)})


def test_repeated_batches_are_counted_from_the_first() -> None:
    repeats = np.zeros(400)
    repeats[200:230] = 1
    (finding,) = look("data/repeats", repeats)
    assert (finding.kind, finding.severity, finding.step, finding.last_step) == ("repeated_data", "warning", 200, 229)
    assert finding.evidence["batches"] == 30 and finding.causes[0].startswith("data exhausted")


def test_one_repeated_batch_is_a_remark_and_none_is_nothing() -> None:
    repeats = np.zeros(400)
    assert look("data/repeats", repeats) == []
    repeats[50] = 1
    assert [one.severity for one in look("data/repeats", repeats)] == ["info"]


def test_labels_that_are_all_ignored_are_critical() -> None:
    share = np.full(100, 0.6)
    share[40:] = 1.0
    (finding,) = look("data/ignored_share", share)
    assert (finding.severity, finding.step, finding.found, finding.last_step) == ("critical", 40, 44, 99)
    assert look("data/ignored_share", np.where(np.arange(100) % 4 == 0, 1.0, 0.7)) == []


def test_much_padding_is_a_remark() -> None:
    (finding,) = look("data/padding_share", np.full(100, 0.75))
    assert (finding.severity, finding.kind) == ("info", "padding") and "4.0 times" in finding.remedies[0]


def test_other_tokens_a_step_are_a_remark_and_none_a_warning() -> None:
    tokens = np.full(300, 4096.0)
    assert look("train/step_tokens", tokens) == []
    tokens[170:] = 8192
    (finding,) = look("train/step_tokens", tokens)
    assert (finding.severity, finding.step) == ("info", 170)
    tokens[250:] = 0
    assert [one.step for one in look("train/step_tokens", tokens) if one.severity == "warning"] == [250]


@settings(max_examples=60, deadline=None)
@given(columns(("train/step_tokens", "data/repeats", "data/ignored_share", "data/padding_share")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)
