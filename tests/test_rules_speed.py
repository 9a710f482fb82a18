"""Rules over the time of steps: what must be found, what must not, and the same in pieces of any size."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_columns import findings, noisy, only, random_columns, same_when_cut

from barograph.core.record import Record
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import missing
from barograph.doctor.rules.speed.efficiency import ImpossibleSpeed, ImpossibleUtilization, InputBound, LowEfficiency
from barograph.doctor.rules.speed.speed import RULES, Stalled, StepTimeDrift, StepTimeOutliers, ThroughputDrop


def severities(found: dict) -> set:
    return {one.severity for one in found.values()}


@pytest.mark.parametrize(
    ("share", "severity"), [(0.4, "warning"), (0.15, "critical"), (0.65, "warning"), (0.85, "info")]
)
def test_a_drop_that_lasts(share: float, severity: str) -> None:
    speed = noisy(400, 5e4, 0.02)
    speed[200:] *= share
    found = findings([ThroughputDrop()], {"train/tokens_per_second": speed}, seconds=2.0)
    assert severity in severities(found) and {one.step for one in found.values()} == {200}
    times = findings([ThroughputDrop()], {"train/duration_ms": 1e6 / speed})
    assert {one.step for one in times.values()} == {200}


def test_pauses_noise_and_a_drop_of_milliseconds_do_not_warn() -> None:
    speed = noisy(600, 5e4, 0.05)
    speed[::50] *= 0.1
    assert severities(findings([ThroughputDrop()], {"train/tokens_per_second": speed})) <= {"info"}
    speed = noisy(600, 5e4, 0.05)
    speed[300:340] *= 0.4
    assert severities(findings([ThroughputDrop()], {"train/tokens_per_second": speed}, seconds=0.01)) == {"info"}
    wild = numpy.exp(0.5 * numpy.random.default_rng(0).standard_normal(3000))
    assert severities(findings([ThroughputDrop()], {"train/tokens_per_second": wild})) <= {"info"}


@pytest.mark.parametrize("seed", range(4))
def test_erratic_steps_on_a_shared_machine_do_not_warn_and_steady_slow_ones_do(seed: int) -> None:
    for deviation, expected in ((1.0, {"info"}), (0.1, {"info", "warning"})):
        speed = noisy(400, 5e4, 0.1, seed)
        speed[200:] = noisy(200, 1.5e4, deviation, seed + 1)
        found = findings([ThroughputDrop()], {"train/tokens_per_second": speed}, seconds=2.0)
        assert severities(found) <= expected and ("warning" in severities(found)) == (deviation < 0.5)
        if deviation > 0.5:
            assert all(one.causes[0].startswith("other programs") for one in only(found, "throughput_drop"))


def test_a_ramp_of_the_batch_is_no_drop_where_only_durations_are_known() -> None:
    times = noisy(400, 10, 0.01)
    times[200:] *= 2
    assert severities(findings([ThroughputDrop()], {"train/duration_ms": times})) == {"info"}


def paced(step_seconds: numpy.ndarray, source: str, pieces: int = 1, anew: int = -1) -> list[Finding]:
    """What a run gives that logs its loss, and nothing of its speed. anew: behind which piece the rule is made anew, as
    where another series turns out to play a role."""
    seen, rule, found = RunHistory({"source": source}), ThroughputDrop(), {}
    times = (1e15 + 1e6 * numpy.cumsum(step_seconds)).astype(numpy.int64)
    for at, rows in enumerate(numpy.array_split(numpy.arange(len(times)), pieces)):
        rule = ThroughputDrop() if at == anew else rule
        seen.add("train/loss", rows, numpy.full(len(rows), 2.0), times[rows], numpy.ones(len(rows), numpy.int32))
        found |= {one.identity: one for one in rule.examine(seen)} if not missing(rule, seen) else {}
    return list(found.values())


@pytest.mark.parametrize("pieces", [1, 7, 400])
def test_steps_that_nobody_measures_are_timed_by_their_rows(pieces: int) -> None:
    seconds = noisy(400, 0.5, 0.05)
    seconds[30::50] += 4.0  # evaluations
    assert paced(seconds, "barograph", pieces) == [] == paced(seconds, "text", pieces)
    seconds[200:] += 1.8
    (one,) = paced(seconds, "barograph", pieces)
    assert [one] == paced(seconds, "barograph", pieces, anew=pieces // 4)
    assert (one.severity, one.step, one.causes[0]) == (
        "warning",
        200,
        "loader slow",
    ) and "ms became 2.3" in one.message
    assert paced(seconds, "text", pieces) == [], "another tool's times are no clock of ours"


@pytest.mark.parametrize("share", [0.4, 0.05])
def test_a_drop_that_was_costly_and_came_back_stays_a_warning(share: float) -> None:
    speed = noisy(800, 5e4, 0.02)
    speed[200:500] *= share
    one = next(
        one
        for one in only(
            findings([ThroughputDrop()], {"train/tokens_per_second": speed}, seconds=2.0), "throughput_drop"
        )
        if one.key == "half"
    )
    assert one.severity == "warning" and "until step 500" in one.message and one.found < 260


@pytest.mark.parametrize(
    ("rows", "seconds", "severity"),
    [(40, 1.0, "info"), (12, 5.0, "info"), (40, 10.0, "warning"), (400, 0.5, "warning"), (400, 1.0, "critical")],
)
@pytest.mark.parametrize("cuts", [(), tuple(range(0, 600, 7))])
def test_a_machine_that_stalls_is_critical_once_it_lasts(
    rows: int, seconds: float, severity: str, cuts: tuple[int, ...]
) -> None:
    speed = noisy(600, 5e4, 0.02)
    speed[200 : 200 + rows] *= 0.15
    for name, values in {"train/tokens_per_second": speed, "train/duration_ms": 1e6 / speed}.items():
        found = only(findings([ThroughputDrop()], {name: values}, seconds=seconds, cuts=cuts), "throughput_drop")
        assert next(one for one in found if one.key == "half").severity == severity, name


def test_long_steps_are_told_with_their_period() -> None:
    times = noisy(400, 10, 0.02)
    times[60::40] = 200
    (one,) = only(findings([StepTimeOutliers()], {"train/duration_ms": times}), "step_time_outliers")
    assert (one.severity, one.step, one.evidence["period"]) == ("info", 60, 40)


def test_a_stall_is_critical_until_steps_come_again() -> None:
    event = Record("stacks", 0, 50, {"waited_seconds": 130.0, "where": "all_reduce (train.py:88)"})
    (one,) = findings([Stalled()], {"train/loss": noisy(51)}, events=[event]).values()
    assert (one.severity, one.step, one.kind) == ("critical", 50, "stall")
    over = Record("stacks", 0, 51, {"resumed": True, "stood_seconds": 400.0})
    (one,) = findings([Stalled()], {"train/loss": noisy(60)}, events=[event, over]).values()
    assert one.severity == "warning" and "400" in one.message


def test_an_hour_between_two_steps_informs() -> None:
    steps = numpy.concatenate([numpy.arange(50), numpy.arange(50, 90) + 4000])
    (one,) = findings([Stalled()], {"train/loss": (steps, noisy(90))}).values()
    assert (one.severity, one.step) == ("info", 49)


def test_waiting_for_batches_warns_from_the_step_it_began() -> None:
    step, wait = noisy(200, 100, 0.05), noisy(200, 1, 0.1, 2)
    wait[120:], step[120:] = 90 * noisy(80, 1, 0.05), step[120:] + 90
    found = only(findings([InputBound()], {"speed/step_ms": step, "speed/phase/data_ms": wait}), "input_bound")
    warned = next(one for one in found if one.severity == "warning")
    assert warned.step == 120 and warned.found <= 131 and warned.causes[0].startswith("loader slow")
    wait = noisy(200, 1, 0.1, 2)
    wait[::40] = 500
    assert not findings([InputBound()], {"speed/step_ms": noisy(200, 100) + wait, "speed/phase/data_ms": wait})
    small = {"speed/step_ms": noisy(200, 10), "speed/phase/data_ms": noisy(200, 1.5)}
    assert severities(findings([InputBound()], small)) == {"info"}


def test_steps_that_take_longer_and_longer() -> None:
    times = noisy(2000, 10, 0.02) * numpy.linspace(1, 1.8, 2000)
    found = only(findings([StepTimeDrift()], {"train/duration_ms": times}), "step_time_drift")
    assert "warning" in {one.severity for one in found}
    assert not findings([StepTimeDrift()], {"train/duration_ms": noisy(2000, 10, 0.2)})


@pytest.mark.parametrize("seed", range(3))
def test_steps_that_begin_to_take_longer_in_the_middle(seed: int) -> None:
    ramp = 1 + 1.2 * numpy.clip((numpy.arange(2000) - 900) / 1100, 0, 1)
    found = only(findings([StepTimeDrift()], {"train/duration_ms": noisy(2000, 10, 0.03, seed) * ramp}),
                 "step_time_drift")  # fmt: skip
    (warning,) = [one for one in found if one.severity == "warning"]
    assert 800 <= warning.step <= 1000 and warning.found < 2000


@pytest.mark.parametrize("stages", [(700, 1400), (1000,), (250, 500, 750), (1900,)])
def test_larger_batches_in_stages_are_no_drift(stages: tuple[int, ...]) -> None:
    times = noisy(2000, 10, 0.02)
    for stage in stages:
        times[stage:] *= 1.5
    assert not findings([StepTimeDrift()], {"train/duration_ms": times})


def test_figures_that_cannot_be() -> None:
    (one,) = findings([ImpossibleUtilization()], {"speed/mfu": noisy(64, 1.2, 0.01)}).values()
    assert one.severity == "warning"
    assert severities(findings([ImpossibleUtilization()], {"speed/mfu": noisy(64, 0.8, 0.01)})) == {"info"}
    assert not findings([ImpossibleUtilization()], {"speed/mfu": noisy(64, 0.5, 0.01)})
    assert not findings([ImpossibleUtilization()], {"train/mfu": noisy(64, 45.0, 0.01)})  # in percent
    (one,) = findings([ImpossibleUtilization()], {"train/mfu": noisy(64, 120.0, 0.01)}).values()
    assert one.severity == "warning" and one.message.startswith("An MFU of 1"), one.message
    low = {"sol/tps": ([0], [1e5]), "train/tokens_per_second": noisy(300, 4e4)}
    assert severities(findings([LowEfficiency()], low)) == {"info"}
    assert not findings([LowEfficiency()], low | {"train/tokens_per_second": noisy(300, 8e4)})


@pytest.mark.parametrize(("share", "wrong"), [(1.5, True), (1.1, True), (0.97, False), (0.5, False)])
def test_a_training_faster_than_light_is_said_once_a_segment(share: float, wrong: bool) -> None:
    columns = {"sol/tps": ([0], [1e5]), "train/tokens_per_second": noisy(300, share * 1e5, 0.01)}
    found = list(findings([ImpossibleSpeed()], columns).values())
    assert [one.severity for one in found] == ["warning"] * wrong
    for one in found:
        assert one.step == 0 and one.evidence["share"] == pytest.approx(share, rel=0.01)
    mended = {"sol/tps": ([0, 8], [1e5, 4e5]), "train/tokens_per_second": noisy(300, share * 1e5, 0.01)}
    assert not findings([ImpossibleSpeed()], mended), "an estimate that was set right counts from there on"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_columns_give_the_same_in_pieces_and_never_raise(seed: int) -> None:
    names = ("train/loss", "train/tokens_per_second", "train/duration_ms", "speed/step_ms", "speed/phase/data_ms",
        "speed/mfu",
             "sol/tps")  # fmt: skip
    same_when_cut(RULES, random_columns(seed, names), seed)


@pytest.mark.parametrize("times", [2.0, 4.0])
def test_slow_first_steps_lead_to_no_level_that_never_was(times: float) -> None:
    duration = noisy(600, 300.0, 0.08)
    duration[:20] *= times
    for name, values in {"train/duration_ms": duration, "train/tokens_per_second": 5e8 / duration}.items():
        found = findings([ThroughputDrop()], {name: values}, seconds=10.0)
        assert not [one for one in found.values() if one.severity != "info"], name


def test_the_throughput_of_one_device_is_looked_at() -> None:
    tokens = noisy(600, 8000.0, 0.03)
    tokens[300:] *= 0.4
    found = findings([ThroughputDrop()], {"train/tokens_per_second_per_device": tokens}, seconds=10.0)
    assert {(one.severity, one.step) for one in only(found, "throughput_drop")} >= {("warning", 300)}


@pytest.mark.parametrize(
    ("data_ms", "ranks", "named"), [(1.0, 1, set()), (40.0, 1, {"loader slow"}), (1.0, 8, {"communication"})]
)
def test_low_efficiency_names_no_cause_that_the_run_rules_out(data_ms: float, ranks: int, named: set) -> None:
    columns = {
        "sol/tps": numpy.full(300, 1e5), "train/tokens_per_second": noisy(300, 1e4, 0.02),
        "speed/phase/data_ms": noisy(300, data_ms), "speed/step_ms": noisy(300, 100.0),
    }  # fmt: skip
    (one,) = findings([LowEfficiency()], columns, facts={"world_size": ranks}).values()
    said = " ".join(one.causes)
    assert {cause for cause in ("loader slow", "communication") if cause in said} == named


@pytest.mark.parametrize("other", ["eval/tokens_per_second", "eval_samples_per_second", "tokens_per_second"])
@pytest.mark.parametrize("begins", [20, 60, 200])
def test_how_fast_evaluations_are_and_a_speed_that_comes_later_change_nothing(other: str, begins: int) -> None:
    times = noisy(400, 10, 0.02)
    times[120:] *= 2.5
    steps = numpy.arange(begins, 400, 20)
    columns = {"train/duration_ms": times, other: (steps, noisy(len(steps), 5e4, 0.3))}
    alone = findings([rule() for rule in RULES], {"train/duration_ms": times})
    whole = findings([rule() for rule in RULES], columns)
    pieces = findings([rule() for rule in RULES], columns, cuts=range(400))
    assert {one.step for one in only(alone, "throughput_drop")} == {120}
    assert {(one.identity, one.step) for one in whole.values()} == {(one.identity, one.step) for one in alone.values()}
    assert {(one.identity, one.step) for one in pieces.values()} == {(one.identity, one.step) for one in alone.values()}


@pytest.mark.parametrize("mfu", [1.513, 151.3])
def test_a_utilization_is_said_in_percent_whether_it_is_logged_as_a_share_or_in_percent(mfu: float) -> None:
    (one,) = findings([ImpossibleUtilization()], {"train/mfu": numpy.full(64, mfu)}).values()
    assert one.message == "An MFU of 151% is impossible."
