"""The step clock: what belongs to a step, what is between steps, and what a device says later."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.probes.speed.clock import StepClock
from barograph.testing import FakeRun


class Hand:
    """A clock's hand in milliseconds, moved by the test."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> int:
        return round(self.at * 1e6)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def run() -> FakeRun:
    return FakeRun()


@pytest.fixture
def clock(run: FakeRun, hand: Hand) -> StepClock:
    return StepClock(run, now=hand)


def spend(hand: Hand, clock: StepClock, name: str, milliseconds: float) -> None:
    with clock.phase(name):
        hand.at += milliseconds


def test_a_steps_phases_and_the_rest_add_up_to_the_step(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    clock.begin()
    spend(hand, clock, "forward", 3)
    hand.at += 1
    spend(hand, clock, "backward", 6)
    clock.record(7, clock.end(1000), 1000)
    (speed,) = run.of("speed")
    assert speed["step_ms"] == 10 and speed["tokens_per_second"] == pytest.approx(100_000)
    assert speed["phase"] == {"forward_ms": 3, "backward_ms": 6, "other_ms": 1}


def test_a_phase_in_a_phase_is_a_part_of_it(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    clock.begin()
    with clock.phase("forward"):
        spend(hand, clock, "attention", 2)
        spend(hand, clock, "attention", 2)
        hand.at += 1
    clock.record(1, clock.end(), math.nan)
    assert run.of("speed")[0]["phase"] == {"forward/attention_ms": 4, "forward_ms": 5, "other_ms": 0}


def test_a_step_begins_with_the_wait_for_its_batch(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    def loader() -> Any:
        for batch in range(2):
            hand.at += 4
            yield batch

    for batch in clock.wrap(loader()):
        clock.begin()
        spend(hand, clock, "forward", 6)
        clock.record(batch, clock.end(10), 10)
    assert [speed["step_ms"] for speed in run.of("speed")] == [10, 10]
    assert all(speed["phase"]["data_ms"] == 4 for speed in run.of("speed"))


def test_an_evaluation_between_steps_is_a_span_and_no_steps_time(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    clock.begin()
    hand.at += 5
    clock.record(1, clock.end(), math.nan)
    with clock.phase("eval"):
        spend(hand, clock, "forward", 20)
        hand.at += 1
    clock.begin()
    hand.at += 5
    clock.record(2, clock.end(), math.nan)
    assert [speed["step_ms"] for speed in run.of("speed")] == [5, 5]
    assert run.of("span") == [{"name": "eval", "duration_ms": 21, "phase": {"forward_ms": 20}}]


def test_a_loop_that_begins_no_step_has_phases_too(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    for step in range(2):
        spend(hand, clock, "data", 2)
        spend(hand, clock, "forward", 3)
        hand.at += 5
        assert clock.loose
        clock.mark(step)
        with clock.phase("eval"):
            hand.at += 100
    first, second = run.of("speed")
    assert first["phase"]["data_ms"] == second["phase"]["data_ms"] == 2
    assert second["step_ms"] == 10, "the evaluation is between the steps"
    assert not clock.loose


def test_a_step_that_ends_without_a_beginning_has_no_speed(run: FakeRun, clock: StepClock) -> None:
    timed = clock.end(1000)
    assert math.isnan(timed.seconds) and math.isnan(timed.tokens_per_second) and math.isnan(timed.mfu)
    assert len(run.warnings) == 1 and "start_step" in run.warnings[0]


@pytest.mark.parametrize(("seconds", "tokens"), [(0.0, 100), (1.0, 0), (-1.0, 100), (1.0, -5), (math.nan, 5)])
def test_a_speed_without_meaning_is_nan(clock: StepClock, seconds: float, tokens: float) -> None:
    assert math.isnan(clock.pace(seconds, tokens).tokens_per_second)


def test_the_mfu_stands_with_its_formula_and_peak_and_is_not_cut(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    clock.flops_per_token, clock.peak_flops, clock.formula = 6e9, 3e12, "palm"
    clock.begin()
    hand.at += 1000
    clock.record(1, clock.end(1000), 1000)
    (speed,) = run.of("speed")
    assert speed["mfu"] == pytest.approx(2.0) and speed["formula"] == "palm" and speed["peak_tflops"] == 3
    assert "can't be" in run.warnings[0]


def test_a_step_given_up_leaves_nothing_to_the_next(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    clock.begin()
    clock.enter("forward")
    hand.at += 50
    clock.abandon()
    clock.begin()
    spend(hand, clock, "backward", 1)
    clock.record(1, clock.end(), math.nan)
    assert run.of("speed")[0]["phase"] == {"backward_ms": 1, "other_ms": 0}


def test_a_phase_of_another_thread_enters_no_step(run: FakeRun, clock: StepClock, hand: Hand) -> None:
    clock.begin()
    other = threading.Thread(target=spend, args=(hand, clock, "checkpoint", 30))
    other.start()
    other.join()
    clock.record(1, clock.end(), math.nan)
    assert run.of("span") == [{"name": "checkpoint", "duration_ms": 30, "beside": True}]
    assert "phase" not in run.of("speed")[0]


class Device:
    """Events of a stream that is `behind` the host; each is read once the stream has got there."""

    def __init__(self, hand: Hand, behind: float) -> None:
        self.hand, self.behind = hand, behind

    def __call__(self) -> Any:
        device, at = self, self.hand.at + self.behind

        class Event:
            def query(self) -> bool:
                return device.hand.at >= at

            def elapsed_time(self, other: Any) -> float:
                return float(other.at - at)

        event = Event()
        event.at = at  # type: ignore[attr-defined]
        return event


def test_device_times_come_later_without_waiting(run: FakeRun, hand: Hand) -> None:
    clock = StepClock(run, now=hand, events=Device(hand, behind=50))
    clock.begin()
    spend(hand, clock, "forward", 3)
    spend(hand, clock, "backward", 6)
    clock.record(1, clock.end(), math.nan)
    clock.poll()
    assert run.of("speed") == [], "the device is not there yet"
    hand.at += 60
    clock.poll()
    (speed,) = run.of("speed")
    assert speed["device_ms"] == 9 and speed["phase"] == {"forward_ms": 3, "backward_ms": 6, "other_ms": 0}
    assert speed["host"] == {"forward_ms": 3, "backward_ms": 6, "other_ms": 0}


def test_a_device_that_is_gone_costs_only_its_times(run: FakeRun, hand: Hand) -> None:
    class Lost:
        def query(self) -> bool:
            raise RuntimeError("device lost")

    clock = StepClock(run, now=hand, events=Lost)
    clock.begin()
    clock.record(1, clock.end(), math.nan)
    clock.poll()
    assert "device_ms" not in run.of("speed")[0]


_moves = st.lists(
    st.sampled_from(["begin", "end", "enter a", "enter data", "leave", "mark", "abandon", "wait"]), max_size=40
)


@given(moves=_moves)
def test_whatever_a_loop_calls_times_are_sane(moves: list[str]) -> None:
    run, hand = FakeRun(), Hand()
    clock = StepClock(run, now=hand)
    for number, move in enumerate(moves):
        hand.at += 1
        if move.startswith("enter"):
            clock.enter(move[6:])
        elif move == "end":
            clock.record(number, clock.end(10), 10)
        elif move == "mark":
            clock.mark(number)
        elif move == "begin":
            clock.begin()
        elif move == "leave":
            clock.leave()
        elif move == "abandon":
            clock.abandon()
    for speed in run.of("speed"):
        assert all(took >= 0 for took in speed.get("phase", {}).values())
        assert not speed["step_ms"] < 0
    for span in run.of("span"):
        assert 0 <= span["duration_ms"] <= hand.at


def test_a_run_times_steps_phases_and_waiting(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False, machine=False) as run:
        for batch in run.wrap(range(3)):
            with run.step(tokens=100) as step:
                with run.phase("forward"):
                    pass
                step.set(loss=2.0 - batch, norm=1.0, lr=0.1, position={"pq_idx": 3, "rg_idx": batch, "epoch": 1})
        with pytest.raises(KeyError), run.step(tokens=100):
            raise KeyError("in the middle of a step")
    stored = barograph.runs(tmp_path)[0]
    assert stored.series("train/loss").value.tolist() == [2.0, 1.0, 0.0]
    assert stored.series("train/rg").value.tolist() == [0, 1, 2]
    assert len(stored.series("speed/phase/data_ms")) == len(stored.series("speed/step_ms")) == 3
    steps = [record for record in barograph.read_log(run.log_file) if record["log"] == "step"]
    assert list(steps[0])[3:] == ["epoch", "step_tokens", "duration_ms", "norm", "loss", "lr", "pq", "rg"]


def test_a_loop_that_only_logs_gets_its_phases(tmp_path: Path) -> None:
    with barograph.init(project="p", dir=tmp_path, verbosity=-2, git=False, machine=False) as run:
        for step in range(3):
            with run.phase("forward"):
                pass
            run.log({"train/loss": 1.0}, step)
        with run.phase("forward"):
            pass
        run.log_step(3, 0.1, 10, 1.0, 1.0, 1.0, 0.1)
    assert barograph.runs(tmp_path)[0].series("speed/phase/forward_ms").step.tolist() == [0, 1, 2, 3]
