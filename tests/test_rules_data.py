"""What the model is fed: repeats, labels, padding, tokens of a step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from rule_curves import columns, found

from barograph.doctor.rules.data.data import RULES


def look(name: str, values: np.ndarray):
    return found([rule() for rule in RULES], {name: (np.arange(len(values)), values)})


def test_repeated_batches_are_counted_from_the_first() -> None:
    repeats = np.zeros(400)
    repeats[200:230] = 1
    (finding,) = look("data/repeats", repeats)
    assert (finding.kind, finding.severity, finding.step, finding.last_step) == ("repeated_data", "warning", 200, 229)
    assert finding.evidence["batches"] == 30 and finding.causes[0].startswith("data exhausted")


@pytest.mark.parametrize(("pieces"), [(), tuple(range(0, 100, 9))])
@pytest.mark.parametrize(("back", "cause"), [(1, "seed set in each step"), (40, "data exhausted")])
def test_one_batch_again_and_again_has_another_cause_than_a_loader_that_ended(
    back: int, cause: str, pieces: tuple[int, ...]
) -> None:
    step = np.arange(1, 100)
    some = {"data/repeats": (step, np.ones(99)), "data/repeat_of": (step, step - back)}
    (finding,) = found([rule() for rule in RULES], some, pieces)
    assert finding.causes[0].startswith(cause) and finding.severity == "warning"


def test_one_repeated_batch_is_an_info_finding_and_none_is_nothing() -> None:
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


def test_much_padding_is_an_info_finding() -> None:
    (finding,) = look("data/padding_share", np.full(100, 0.75))
    assert (finding.severity, finding.kind) == ("info", "padding") and "4.0 times" in finding.remedies[0]


def test_other_tokens_a_step_are_info_and_none_a_warning() -> None:
    tokens = np.full(300, 4096.0)
    assert look("train/step_tokens", tokens) == []
    tokens[170:] = 8192
    (finding,) = look("train/step_tokens", tokens)
    assert (finding.severity, finding.step) == ("info", 170)
    steps = np.repeat([64.0, 128.0, 512.0], 100)  # steps change within a block of rows
    assert [one.message.split("it had ")[1] for one in look("train/step_tokens", steps)] == ["64", "128"]
    tokens[250:] = 0
    assert [one.step for one in look("train/step_tokens", tokens) if one.severity == "warning"] == [250]


@settings(max_examples=60, deadline=None)
@given(columns(("train/step_tokens", "data/repeats", "data/ignored_share", "data/padding_share")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)


def test_rows_that_come_again_tell_a_bad_batch_from_rows_that_are_mixed_in() -> None:
    share = np.zeros(300)
    share[200:203] = 0.95
    (burst,) = look("data/repeated_rows_share", share)
    assert (burst.kind, burst.severity, burst.step, burst.found) == ("repeated_data", "warning", 200, 201)
    assert burst.causes[0].startswith("bad batch")
    mixed = np.clip((np.arange(300) - 150) / 30, 0, 0.7) * np.where(np.arange(300) % 2, 1.0, 0.9)
    (leak,) = look("data/repeated_rows_share", mixed)
    assert leak.severity == "warning" and 150 <= leak.step <= 160 and leak.causes[0].startswith("validation leak")
    share[203:] = 1.0
    assert all(one.causes[0].startswith("data exhausted") for one in look("data/repeated_rows_share", share)[-1:])


def test_rows_drawn_with_replacement_repeat_more_and_more_and_are_silent() -> None:
    dice = np.random.default_rng(0)
    grows = np.clip(1 - np.exp(-np.arange(600) / 300) + dice.normal(0, 0.03, 600), 0, 1)
    assert look("data/repeated_rows_share", grows) == []
    assert look("data/repeated_rows_share", np.where(dice.random(600) < 0.1, 0.3, 0.0)) == []
