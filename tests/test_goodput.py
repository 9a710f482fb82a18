"""Every second of a run belongs to one cause, whatever its records say, and the causes are the right ones."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.core.record import KINDS, Record, encode, numbers
from barograph.query import goodput
from barograph.query.goodput import CAUSES, Goodput, Totals, fields, money, of_records, replay

SECOND = 1_000_000


class Log:
    """Records with a clock: each is written at the end of what it tells of."""

    def __init__(self, start: float = 1_768_000_000.0):
        self.clock, self.pid = start, 0
        self.records: list[Record] = []

    def write(self, kind: str, step: int = 0, **found: Any) -> Log:
        self.records.append(Record(kind, round(self.clock * SECOND), step, found))
        return self

    def wait(self, seconds: float) -> Log:
        self.clock += seconds
        return self

    def start(self, segment: int = 1, parent: int | None = None, start_step: int | None = None) -> Log:
        self.pid += 1
        return self.go_back(segment, parent, start_step, host="a", pid=self.pid)

    def go_back(self, segment: int, parent: int | None, start_step: int | None, **who: Any) -> Log:
        found = {"segment": segment, "parent": parent, "start_step": start_step, **who}
        return self.write(
            "segment", start_step or 0, **{key: value for key, value in found.items() if value is not None}
        )

    def steps(self, first: int, last: int, seconds: float = 1.0, **found: Any) -> Log:
        for step in range(first, last + 1):
            self.wait(seconds).write("step", step, duration_ms=seconds * 1000, **found)
        return self

    def end(self, status: str = "finished") -> Log:
        return self.write("end", status=status)

    def totals(self, now: float | None = None) -> Totals:
        return checked(of_records(self.records, now))


def checked(totals: Totals) -> Totals:
    amounts = [getattr(totals, cause) for cause in CAUSES]
    assert min(amounts) >= 0 and totals.paused >= 0
    assert sum(amounts) == pytest.approx(totals.wall, abs=1e-5)
    assert sum(totals.names.values()) == pytest.approx(totals.other, abs=1e-5)
    return totals


def some(totals: Totals) -> dict[str, float]:
    """The causes that took time, in seconds."""
    return {cause: round(getattr(totals, cause), 3) for cause in CAUSES if getattr(totals, cause) > 0.0005}


# -- one process ----------------------------------------------------------------------------------


def test_a_plain_run_is_start_up_steps_evaluations_and_checkpoints() -> None:
    log = Log().start().wait(30).steps(0, 99)
    log.wait(12).write("eval", 99, duration_ms=12_000.0).wait(5).write("checkpoint", 99, duration_ms=5000)
    log.steps(100, 199).wait(2).end()
    totals = log.totals()
    assert some(totals) == {"startup": 30, "productive": 200, "evaluation": 12, "checkpoint": 5, "idle": 2}
    assert totals.wall == 249 and totals.goodput == pytest.approx(200 / 249)
    assert totals.percent("evaluation") == pytest.approx(100 * 12 / 249)
    assert totals.parts == 1 and totals.crashes == 0


def test_the_first_steps_excess_is_start_up() -> None:
    log = Log().start().wait(10).wait(45).write("step", 0, duration_ms=45_000)
    assert some(log.totals()) == {"startup": 10, "productive": 45}  # nothing to compare it with yet
    assert some(log.steps(1, 20, 2.0).totals()) == {"startup": 53, "productive": 42}


def test_an_evaluation_inside_a_span_or_a_step_counts_once() -> None:
    log = Log().start().steps(0, 9)
    log.wait(8).write("eval", 9, duration_ms=8000).wait(1).write("span", 9, name="eval", duration_ms=9000)
    log.wait(0.25).wait(3).write("eval", 10, duration_ms=3000).wait(0.75).write("step", 10, duration_ms=4000)
    assert some(log.totals()) == {"evaluation": 12, "productive": 11}


def test_spans_count_by_their_names_and_frames_around_steps_are_no_loss() -> None:
    log = Log().start().wait(7).write("span", 0, name="loading the model", duration_ms=7000).steps(0, 9)
    log.wait(4).write("span", 9, name="sampling", duration_ms=4000)
    log.wait(3).write("info", 9, type="section-end", message="Saving checkpoint 9", duration_ms=3000)
    log.wait(2).write("span", 9, name="data", duration_ms=2000)
    log.steps(10, 19).wait(1).write("span", 19, name="epoch", duration_ms=29_000)
    log.write("span", 19, name="upload", duration_ms=20_000, beside=True)
    totals = log.totals()
    assert some(totals) == {
        "productive": 20,
        "startup": 7,
        "other": 4,
        "checkpoint": 3,
        "data": 2,
        "idle": 1,
    }
    assert totals.names == {"sampling": 4}


def test_names_of_spans_do_not_fill_the_memory() -> None:
    log = Log().start().steps(0, 9)
    for number in range(1000):
        log.wait(1).write("span", 9, name=f"work {number}", duration_ms=1000)
    totals = log.totals()
    assert totals.other == 1000 and len(totals.names) <= 40


# -- the same step in two records -------------------------------------------------------------------


def phases(**milliseconds: float) -> dict[str, float]:
    return {f"{name}_ms": amount for name, amount in milliseconds.items()}


@pytest.mark.parametrize("order", ["step first", "speed first", "three steps late", "speed alone", "with metrics"])
def test_a_step_and_its_speed_record_count_once_and_phases_split_it(order: str) -> None:
    log = Log().start()
    split = phases(data=200, forward=500, backward=200, other=100) | {"backward/communication_ms": 50}
    late: list[int] = []
    for step in range(100):
        log.wait(1)
        speed: dict[str, Any] = {"step_ms": 1000.0, "phase": split}
        if order == "speed first":
            log.write("speed", step, **speed)
        if order == "with metrics":
            log.write("metrics", step, loss=1.0)
        elif order != "speed alone":
            log.write("step", step, duration_ms=1000.0)
        late.append(step)
        if order != "speed first" and (order != "three steps late" or step > 2):
            log.write("speed", late.pop(0), **speed)
    totals = log.totals()
    counted = 96 if order == "three steps late" else 99  # the first step of a process is not split
    expected = {"productive": 100 - 0.25 * counted, "data": 0.2 * counted, "communication": 0.05 * counted}
    assert some(totals) == {cause: pytest.approx(amount) for cause, amount in expected.items()}


def test_device_timings_that_come_late_and_all_at_once_lose_no_step() -> None:
    log = Log().start()
    for step in range(50):
        log.wait(1)
        if step > 2:
            log.write("speed", step - 3, step_ms=1000.0)
    for step in range(47, 50):
        log.write("speed", step, step_ms=1000.0)
    assert log.totals().productive == pytest.approx(50, abs=3.1)


def test_a_wait_for_the_batch_that_the_duration_leaves_out_is_data() -> None:
    log = Log().start()
    for step in range(51):
        log.wait(0.4).wait(1).write("step", step, duration_ms=1000)
        log.write("speed", step, step_ms=1400.0, phase=phases(data=400, forward=900))
    assert some(log.totals()) == {"startup": 0.4, "productive": 51, "data": 20}


def test_an_evaluation_within_a_step_is_not_taken_from_it_twice() -> None:
    log = Log().start().steps(0, 9)
    log.wait(3).write("eval", 10, duration_ms=3000).wait(1).write("step", 10, duration_ms=4000)
    log.write("speed", 10, step_ms=4000.0, phase=phases(eval=3000, forward=1000))
    assert some(log.totals()) == {"productive": 11, "evaluation": 3}


# -- loops that say little -----------------------------------------------------------------------------


def test_a_loop_that_only_logs_metrics_is_productive_between_its_steps() -> None:
    log = Log().start().wait(20)
    for step in range(100):
        log.wait(1).write("metrics", step, loss=2.0).write("metrics", step, accuracy=0.5)
        if step == 50:
            log.wait(6).write("span", step, name="eval", duration_ms=6000)
    log.wait(3600).write("metrics", 100, loss=2.0)  # somebody looked at a breakpoint
    assert some(log.totals()) == {"startup": 21, "productive": 109, "evaluation": 6, "idle": 3590}


@pytest.mark.parametrize("kind", ["step", "metrics"])
def test_a_loop_that_logs_every_tenth_step_is_no_idler(kind: str) -> None:
    log = Log().start().wait(25)
    for step in range(10, 1001, 10):
        log.wait(10).write(kind, step, **({"duration_ms": 1000.0} if kind == "step" else {"loss": 1.0}))
    totals = log.totals()
    assert totals.wall == 1025
    assert totals.productive == pytest.approx(1000, abs=1.1) and totals.startup == pytest.approx(25, abs=1.1)


def test_unlogged_steps_explain_only_as_much_as_they_could_have_taken() -> None:
    log = Log().start()
    for step in range(0, 101, 2):
        log.wait(500 if step == 50 else 2).write("step", step, duration_ms=1000.0)
    assert log.totals().idle == pytest.approx(500 - 1 - 2)


def test_a_log_without_segments_counts_from_its_first_step() -> None:
    log = Log().wait(2).write("step", 5000, duration_ms=2000).steps(5001, 5009, 2.0)
    assert some(log.totals()) == {"productive": 20}


# -- resumes, rewinds, forks -----------------------------------------------------------------------------


def test_a_crash_costs_the_downtime_and_the_steps_done_again() -> None:
    log = Log().start().wait(10).steps(0, 99)
    log.wait(120).start(2, 1, 80).wait(15).steps(80, 149)
    totals = log.totals()
    assert some(totals) == {"startup": 25, "productive": 150, "downtime": 120, "redone": 20}
    assert (totals.parts, totals.crashes, totals.redone_steps, totals.paused) == (2, 1, 20, 0)
    assert totals.restart == 140 and totals.held == 195


@pytest.mark.parametrize("status", ["finished", "interrupted"])
def test_a_planned_pause_is_outside_the_wall_time(status: str) -> None:
    log = Log().start().steps(0, 9).end(status).wait(86_400).start(2, 1, 10).steps(10, 19).end()
    totals = log.totals()
    assert some(totals) == {"productive": 20} and totals.paused == 86_400 and totals.crashes == 0


def test_a_failed_run_that_is_resumed_was_down() -> None:
    totals = Log().start().steps(0, 9).end("failed").wait(60).start(2, 1, 10).steps(10, 19).totals()
    assert some(totals) == {"productive": 20, "downtime": 60} and totals.crashes == 1


def test_a_resume_that_does_not_say_where_is_known_by_the_first_step_it_logs() -> None:
    log = Log().start().steps(0, 99).wait(5).start(2, 1, None).wait(1)
    assert log.totals().redone == 0
    assert some(log.steps(90, 119).totals()) == {"productive": 120, "downtime": 5, "startup": 1, "redone": 10}


def test_a_rewind_in_the_process_takes_its_steps_back_without_a_new_start() -> None:
    log = Log().start().steps(0, 49).go_back(2, 1, 30).steps(30, 59)
    totals = log.totals()
    assert some(totals) == {"productive": 60, "redone": 20}
    assert (totals.parts, totals.crashes, totals.redone_steps) == (1, 0, 20)


def test_going_back_to_an_older_segment_drops_all_of_those_between() -> None:
    log = Log().start().steps(0, 49).start(2, 1, 40).steps(40, 69).start(3, 1, 20).steps(20, 29)
    assert some(log.totals()) == {"productive": 30, "redone": 60}  # 10 of the first, 30 of the second, 20 of the first


def test_a_process_restarted_within_its_segment_does_steps_again() -> None:
    log = Log().start().steps(0, 49).wait(3).start(1, None, None).steps(40, 59)
    assert some(log.totals()) == {"productive": 60, "downtime": 3, "redone": 10}


def test_data_waits_of_lost_steps_are_lost_with_them() -> None:
    log = Log().start()
    for step in range(100):
        log.wait(1).write("step", step, duration_ms=1000)
        log.write("speed", step, step_ms=1000, phase=phases(data=500))
    totals = log.start(2, 1, 50).totals()
    assert totals.redone == 50 and totals.data == pytest.approx(24.5) and totals.productive == pytest.approx(25.5)


def test_memory_is_bounded_and_a_far_rewind_is_right_all_the_same() -> None:
    account, moment = Goodput(), 10**15
    for step in range(60_000):
        seconds = 1 if step < 30_000 else 2
        moment += seconds * SECOND
        account.add(Record("step", moment, step, {"duration_ms": seconds * 1000}))
    account.add(Record("segment", moment, 0, {"segment": 2, "parent": 1, "start_step": 40_000}))
    assert len(account._steps.old) <= 2048 and len(account._steps.new) <= 2048
    assert len(account._free.holes) <= 256 and len(account._recent) <= 64
    totals = checked(account.totals())
    assert totals.productive == pytest.approx(30_000 + 20_000, rel=1e-3) and totals.redone == pytest.approx(
        40_000, rel=1e-3
    )


# -- clocks -------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    log = Log().start().steps(0, 9)
    log.clock -= 3600
    totals = log.steps(10, 109).totals()
    assert totals.productive == pytest.approx(109, abs=1.1) and totals.wall == pytest.approx(109, abs=1.1)


def test_the_open_end_of_a_live_run() -> None:
    log = Log().start()
    assert some(log.totals(log.clock + 40)) == {"startup": 40}
    log.wait(40).steps(0, 9, 3.0)
    assert some(log.totals(log.clock + 20)) == {"startup": 40, "productive": 30}  # a step is under way
    assert some(log.totals(log.clock + 500)) == {"startup": 40, "productive": 30, "idle": 500}
    assert some(log.end().totals(log.clock + 500)) == {"startup": 40, "productive": 30}


AMOUNTS = st.one_of(
    st.floats(), st.floats(0, 1e5), st.integers(-10, 100_000), st.none(), st.text(max_size=3), st.booleans()
)
NAMES = st.sampled_from(["eval", "data", "checkpoint", "x", "epoch", "compile", "forward", "Saving checkpoint 3", ""])
FOUND = st.fixed_dictionaries(
    {},
    optional={
        "duration_ms": AMOUNTS,
        "step_ms": AMOUNTS,
        "phase": st.one_of(st.dictionaries(NAMES.map("{}_ms".format), AMOUNTS, max_size=4), AMOUNTS),
        "name": NAMES,
        "message": NAMES,
        "status": st.sampled_from(["finished", "failed", "interrupted", "x"]),
        "segment": st.one_of(st.integers(1, 5), AMOUNTS),
        "parent": st.one_of(st.integers(1, 4), AMOUNTS),
        "start_step": st.one_of(st.integers(0, 30), AMOUNTS),
        "pid": st.integers(1, 3),
        "beside": st.booleans(),
    },
)
RECORDS = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from(["step", "speed", "metrics", "segment", "eval", "span", "end"]),
            st.sampled_from(sorted(KINDS)),
        ),
        st.one_of(st.integers(-20_000_000, 50_000_000), st.integers(-(10**13), 10**13)),
        st.integers(-3, 40),
        FOUND,
    ),
    max_size=60,
)


@given(RECORDS, st.one_of(st.none(), st.floats(-1e9, 1e10)))
def test_any_records_add_up_to_the_wall_time(
    drawn: list[tuple[str, int, int, dict[str, Any]]], now: float | None
) -> None:
    account, clock = Goodput(), 1_768_000_000 * SECOND
    first = None
    for kind, ahead, step, found in drawn:
        clock += ahead
        account.add(Record(kind, clock, step, found))
        totals = checked(account.totals())
        first = totals if first is None else first
    totals = checked(account.totals())
    if account._begun:  # and the wall time is the time that has passed on the account's clock
        passed = account._free.now - account._start
        assert totals.wall + totals.paused == pytest.approx(passed / 1e6, abs=1e-5)
    checked(account.totals(now))
    made = fields(totals, 8, 2.5)
    assert all(not isinstance(value, float) or math.isfinite(value) for value in made.values())


# -- money, fields, files --------------------------------------------------------------------------------


def test_money_follows_the_seconds_and_downtime_costs_nothing() -> None:
    totals = Log().start().steps(0, 3599).wait(7200).start(2, 1, 1800).steps(1800, 3599).totals()
    spent = money(totals, gpus=8, price_per_gpu_hour=2.0)
    assert spent["cost"] == pytest.approx(8 * 2.0 * 1.5) and spent["lost"] == pytest.approx(8 * 2.0 * 0.5)
    assert spent["productive"] == pytest.approx(16.0) and spent["redone"] == pytest.approx(8.0)
    made = fields(totals, 8, 2.0)
    assert made["cost"] == spent["cost"] and made["lost_cost"] == spent["lost"] and made["gpu_hours"] == 12
    assert made["downtime_seconds"] == 7200 and made["restart_seconds"] == 9000
    assert "cost" not in fields(totals, 8) and "gpu_hours" not in fields(totals)
    assert dict(numbers(Record("goodput", 1, 1, made)))["goodput/productive_seconds"] == 3600


def write(path: Path, records: list[Record]) -> None:
    path.write_bytes(b"[\n" + b",\n".join(map(encode, records)) + b"\n]")


def test_of_a_long_file_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log().start().wait(9).steps(0, 999).wait(4).write("eval", 999, duration_ms=4000)
    log.wait(2).write("span", 999, name="sampling", duration_ms=2000)
    log.write("goodput", 999, **fields(log.totals())).steps(1000, 1499)
    log.wait(30).start(2, 1, 500).wait(3).steps(500, 519)
    whole = log.totals()
    path = tmp_path / "training.json"
    write(path, log.records)
    monkeypatch.setattr(goodput, "LONG_LOG", 1000)
    short = Goodput()
    replay(path, [short])
    assert short._lengths.maxlen and len(short._lengths) < 700  # it did not see the first thousand steps
    short_totals = checked(short.totals())
    assert some(short_totals) == {cause: pytest.approx(value, abs=1.5) for cause, value in some(whole).items()}
    assert (short_totals.parts, short_totals.crashes) == (whole.parts, whole.crashes)
    assert short_totals.names == whole.names
    monkeypatch.setattr(goodput, "_TAIL", 300)  # no goodput record in it: all is read
    again = Goodput()
    replay(path, [again])
    assert again.totals() == whole


@pytest.mark.slow
def test_a_million_steps_are_counted_in_seconds() -> None:
    records = [Record("step", 10**15 + step * 100_000, step, {"duration_ms": 99.0}) for step in range(1_000_000)]
    began = time.process_time()
    totals = of_records(records)
    assert totals.productive == pytest.approx(99_000, rel=1e-3)
    assert time.process_time() - began < 6  # 1.6 s on a machine with nothing else to do


def test_accounts_of_a_log_that_grows_are_those_of_one_reading(tmp_path: Path) -> None:
    """Time, energy, tokens, asked again and again of one reader: only what is new is read, the sums are equal."""
    run = barograph.init(dir=str(tmp_path), id="a", console="none", machine=False, sidecar=False)
    kept, counted = barograph.StoredRun(run.dir), 0
    add = Goodput.add

    def counting(self: Goodput, record: Record) -> None:
        nonlocal counted
        counted += 1
        add(self, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Goodput, "add", counting)
        for piece in range(5):
            for step in range(50 * piece, 50 * piece + 50):
                run.log_step(step=step, loss=1.0, duration_ms=5.0, step_tokens=100)
                run.record("gpu", step, {"id": 0, "power": 300_000.0 + step})
            if piece == 3:
                run.rewind(step=120)
            counted = 0
            now = time.time()
            assert kept.goodput(now).productive > 0
            assert counted < 130  # of the new records alone
            fresh = barograph.StoredRun(run.dir)
            assert kept.goodput(now) == fresh.goodput(now) and kept.cost() == fresh.cost()
        run.finish()
        fresh = barograph.StoredRun(run.dir)
        assert kept.goodput() == fresh.goodput() and kept.cost() == fresh.cost()
        shutil.copy(run.log_file, tmp_path / "other")  # a log that is another file is read anew
        os.replace(tmp_path / "other", run.log_file)
        assert kept.goodput() == fresh.goodput() and kept.cost() == fresh.cost()
