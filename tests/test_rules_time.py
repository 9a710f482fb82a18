"""Rules over where the wall time goes, and over messages: what must be found, what must not, the same in pieces."""

from __future__ import annotations

import numpy
import pytest
from rule_columns import findings, noisy, only, same_when_cut

from barograph.core.record import Record
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.facts import is_event
from barograph.doctor.rules.run.time import RULES, RepeatedMessages, RestartTime, TimeShare


def spans(every: int, milliseconds: float, count: int = 200) -> tuple[numpy.ndarray, numpy.ndarray]:
    steps = numpy.arange(every, count, every)
    return steps, numpy.full(len(steps), milliseconds)


def message(step: int, text: str) -> Record:
    return Record("info", 1_700_000_000_000_000 + step * 1_000_000, step, {"type": "message", "message": text})


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("span/checkpoint_ms", "checkpoint"),
        ("span/save_ms", "checkpoint"),
        ("speed/phase/checkpoint_ms", "checkpoint"),
        ("span/validation_ms", "evaluation"),
        ("eval/duration_ms", "evaluation"),
    ],
)
def test_time_that_goes_to_checkpoints_or_evaluations(name: str, what: str) -> None:
    def graded(milliseconds: float) -> list[str]:
        columns = {"train/loss": noisy(200, 3), name: spans(10, milliseconds)}
        return [one.severity for one in findings([TimeShare()], columns).values() if one.key == what]

    assert graded(4_000) == ["warning"] and graded(1_500) == ["info"] and graded(500) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_share_that_was_high_once_is_told_however_rows_are_cut(seed: int) -> None:
    early = (numpy.array([20, 40, 60, 70]), numpy.full(4, 8000.0))
    columns = {"train/loss": noisy(300, 3), "span/eval_ms": early}
    same_when_cut([TimeShare], columns, seed)
    (one,) = findings([TimeShare()], columns, cuts=range(0, 300, 7)).values()
    assert one.evidence["count"] == 4


def test_two_checkpoints_are_too_few_and_other_spans_are_not_counted() -> None:
    columns = {"train/loss": noisy(200, 3), "span/checkpoint_ms": spans(70, 50_000), "span/warmup_ms": spans(10, 9e3)}
    assert not findings([TimeShare()], columns)


def test_an_evaluation_in_a_span_and_as_a_record_counts_once() -> None:
    columns = {"train/loss": noisy(200, 3), "span/eval_ms": spans(10, 2_000), "eval/duration_ms": spans(10, 2_000)}
    (one,) = findings([TimeShare()], columns).values()
    assert one.evidence["share"] == pytest.approx(0.2, abs=0.02)


def test_steps_that_are_done_again_after_a_crash() -> None:
    first, second = numpy.arange(100), numpy.arange(40, 60)
    for seconds, severity in ((10, "warning"), (1, "info")):  # of a step: two minutes alarm nobody
        history = RunHistory()
        history.add("train/loss", first, noisy(100, 3), first * seconds * 1_000_000 + 1, 1)
        history.add("train/loss", second, noisy(20, 3), (second + 120) * seconds * 1_000_000, 2)
        (one,) = RestartTime().examine(history)
        assert (one.severity, one.step, one.evidence["restarts"]) == (severity, 40, 1)
        assert one.evidence["seconds"] == pytest.approx((61 + 60) * seconds, abs=2 * seconds)
    soon = RunHistory()
    soon.add("train/loss", first, noisy(100, 3), first * 100_000 + 1, 1)
    soon.add("train/loss", second, noisy(20, 3), (second + 120) * 100_000, 2)
    assert not list(RestartTime().examine(soon))  # the same share of seconds
    planned = RunHistory()
    planned.happened(Record("segment", 0, 0, {"segment": 1}))
    planned.happened(Record("end", 99_000_000, 99, {"status": "finished"}))
    planned.add("train/loss", first, noisy(100, 3), first * 1_000_000 + 1, 1)
    planned.add("train/loss", second + 60, noisy(20, 3), (second + 900_000) * 1_000_000, 2)
    assert not list(RestartTime().examine(planned))


@pytest.mark.parametrize(
    ("text", "slow", "severity"),
    [
        ("dataset read failed, retrying shard_{0:05d} (attempt {1}/5)", 6.0, "warning"),
        ("WARNING: NCCL timeout after {0} ms", 2.0, "warning"),
        ("warning: tokenizer returned {0} tokens", 1.0, "info"),
    ],
)
def test_messages_that_repeat(text: str, slow: float, severity: str) -> None:
    times = noisy(300, 500, 0.02)
    times[::3] *= slow
    events = [message(step, text.format(step, step % 4)) for step in range(0, 300, 3)]
    found = findings([RepeatedMessages()], {"train/duration_ms": times}, events=events)
    (one,) = only(found, "repeated_messages")
    assert (one.severity, one.step, one.last_step, one.evidence["count"]) == (severity, 0, 297, 100)
    same_when_cut(RULES, {"train/loss": noisy(300, 3), "train/duration_ms": times}, 4, events=events)


def test_a_few_messages_and_harmless_ones_say_nothing() -> None:
    few = [message(step, f"retrying {step}") for step in range(10)]
    assert not findings([RepeatedMessages()], {"train/loss": noisy(300, 3)}, events=few)
    assert not is_event(message(3, "saved sample 3")) and is_event(message(3, "read failed: Input/output error"))


def test_messages_do_not_fill_the_memory() -> None:
    history = RunHistory()
    for step in range(25_000):
        history.happened(message(step, "retrying"))
    assert len(history.events) == 20_000
