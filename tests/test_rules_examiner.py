"""All rules together: the same findings however rows are cut, though most rules wait for more of them."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np
import pytest
from rule_curves import falling

from barograph.core.record import Record
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.registry import rule_classes
from barograph.doctor.kernel.rule import Rule, in_words

COUNT = 3000


def series(trouble: str) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(len(trouble))
    columns = {
        "train/loss": falling(COUNT, noise=0.03),
        "train/norm": np.exp(dice.normal(0, 0.15, COUNT)),
        "train/lr": 1e-3 * np.minimum(1, (np.arange(COUNT) + 1) / 100) * np.linspace(1, 0.1, COUNT),
        "model/param_norm": 20 + np.arange(COUNT) / 1000,
        "train/tokens_per_second": dice.normal(5000, 50, COUNT),
    }
    if trouble == "spike":
        columns["train/loss"][1500:1503] *= 4
        columns["train/norm"][1500:1503] *= 30
    elif trouble == "divergence":
        columns["train/loss"][2000:] *= np.exp(np.minimum(1, np.arange(1000) / 200))
        columns["train/norm"][2000:] *= np.exp(np.minimum(3, np.arange(1000) / 100))
    elif trouble == "nothing is not a number":
        columns["train/loss"][2500:] = np.nan
        columns["train/norm"][2499:] = np.nan
    elif trouble == "the rate ends, and all stands still":
        columns["train/lr"][2000:] = 0.0
        columns["train/loss"][2200:] = columns["train/loss"][2200]
        columns["train/tokens_per_second"][1200:] *= 0.5
    return columns


def told(columns: dict[str, np.ndarray], size: int, seconds: float = 0.001) -> list[str]:
    examiner = Examiner()
    steps = np.arange(COUNT)
    for low in range(0, COUNT, size):
        some = slice(low, min(low + size, COUNT))
        for name, values in columns.items():
            examiner.seen.add(name, steps[some], values[some], (1e6 * seconds * steps[some]).astype(np.int64))
        if low + size >= COUNT:
            examiner.seen.facts["finished"] = True
        examiner.examine()
    assert not examiner.failed, examiner.failed
    return [repr(msgspec.to_builtins(one)) for one in examiner.incidents()]


TROUBLES = ("none", "spike", "divergence", "nothing is not a number", "the rate ends, and all stands still")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_waiting_for_more_rows_changes_no_finding(trouble: str) -> None:
    columns = series(trouble)
    whole = told(columns, COUNT)
    assert (trouble != "none") == any(grade in one for one in whole for grade in ("'warning'", "'critical'"))
    assert told(columns, 16) == whole
    assert told(columns, 16, seconds=2.0) == told(columns, COUNT, seconds=2.0)
    assert told(columns, 500) == whole


class _Counted(Rule):
    name, family, kind, severity = "counted", "loss", "spike", "info"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    asked = 0

    def examine(self, seen):
        self.asked += 1
        return ()


class _Prompt(_Counted):
    name, prompt = "prompt", True


def looks(urgent: bool = False, seconds: float = 0.001) -> tuple[int, int]:
    examiner = Examiner([_Counted(), _Prompt()])
    for low in range(0, COUNT, 10):
        steps = np.arange(low, low + 10)
        examiner.seen.add("train/loss", steps, np.ones(10), (1e6 * seconds * steps).astype(np.int64))
        examiner.examine(urgent)
    patient, prompt = examiner.rules
    return patient.asked, prompt.asked


def test_most_rules_wait_in_a_long_run_and_those_that_cannot_wait_do_not() -> None:
    patient, prompt = looks()
    assert prompt == COUNT // 10 and patient < prompt / 3
    assert looks(urgent=True) == (prompt, prompt)
    assert looks(seconds=30.0) == (prompt, prompt)  # half a minute is longer than any wait for rows


class _Broken(_Counted):
    name, prompt = "broken", ("loss", "!oom")


@pytest.mark.parametrize("comes", ["nothing", "a value that is not finite", "an event"])
def test_a_rule_for_what_is_not_finite_waits_until_something_is_not(comes: str) -> None:
    examiner = Examiner([_Counted(), _Broken()])
    asked = {}
    for low in range(0, COUNT, 10):
        values = np.ones(10)
        if low == 2000 and comes == "an event":
            examiner.seen.happened(Record("oom", 0, low, {}))
        elif low == 2000 and comes != "nothing":
            values[3] = np.inf
        examiner.seen.add("train/loss", np.arange(low, low + 10), values)
        examiner.examine()
        asked[low] = [rule.asked for rule in examiner.rules]
    assert asked[1990][0] == asked[1990][1] < 100
    behind = [late - early for early, late in zip(asked[1990], asked[COUNT - 10], strict=True)]
    assert behind[0] < 20 and behind[1] == (behind[0] if comes == "nothing" else 100)


class _Sleeper(_Counted):
    name, prompt = "sleeper", True
    needs: ClassVar[tuple[str, ...]] = ("=moe/aux_loss|!oom",)


def test_a_rule_is_asked_from_when_all_it_needs_is_there() -> None:
    for wakes in ("row", "event"):
        sleeper, awake = rules = [_Sleeper(), _Prompt()]
        examiner = Examiner(rules)
        for low in range(0, 12_000, 10):
            examiner.seen.add("train/loss", np.arange(low, low + 10), np.ones(10))
            if low == 10_000 and wakes == "row":
                examiner.seen.add("moe/aux_loss", low, 1.0)
            elif low == 10_000:
                examiner.seen.happened(Record("oom", 0, low, {}))
            examiner.examine()
            if low == 9_990:
                assert (sleeper.asked, awake.asked) == (0, 1000)
        assert sleeper.asked == 200
    examiner = Examiner([sleeper := _Sleeper()], {"finished": True})
    examiner.catch_up()
    assert sleeper.asked == 0


def test_what_rules_lack_is_said_in_words() -> None:
    for name, rule in rule_classes().items():
        for need in rule.needs:
            assert not set("!=|") & set(in_words(need)), (name, in_words(need))
    said = {one["needs"] for one in Examiner().abstained()}
    assert "a record straggler" in said and not any(set("!=|") & set(text) for text in said)


def examined(piece: int, until: int = 400) -> dict[str, str]:
    """What is found of a sum over four micro-batches that is logged each step as `iter_loss`, its mean seldom."""
    examiner = Examiner(facts={"config": {"gradient_accumulation_steps": 4}, "vocabulary": 64})
    for low in range(0, until, piece):
        for step in range(low, low + piece):
            loss = 1 + 3 * np.exp(-step / 100)
            examiner.seen.add("iter_loss", step, 4 * loss, step * 1_000_000)
            if step % 10 == 0:
                examiner.seen.add("train/loss", step, 0.0, step * 1_000_000)
                examiner.seen.add("val/loss", step, loss + 0.02, step * 1_000_000)
        examiner.examine()
    examiner.catch_up()
    assert not examiner.failed
    return {finding.rule: finding.message for finding in examiner.findings}


def test_rules_begin_anew_where_a_series_that_is_logged_more_often_turns_out_to_be_the_loss() -> None:
    whole = examined(400)
    assert "3.96 times" in whole["summed_loss"] and "16" in whole["initial_loss"]
    assert examined(5) == examined(1) == whole


def test_what_was_found_of_a_series_that_turns_out_not_to_be_the_loss_is_withdrawn() -> None:
    assert "zero_loss" in examined(5, 60)
    assert "zero_loss" not in examined(5)
