"""Trend, spikes, gap, progress and pace: what lines take from the records before them."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.core.record import Record
from barograph.training.console.course import Course, DebiasedMean, Evaluation, NormAverage, Pace, ShownStep

NAN, INF = math.nan, math.inf


def step(course: Course, number: int = 1, now: float = 0.0, **fields: Any) -> ShownStep:
    return course.step(Record("step", 0, number, fields), now)


def evaluation(course: Course, number: int = 1, **fields: Any) -> Evaluation:
    return course.evaluation(Record("eval", 0, number, fields))


def test_the_trend_compares_with_the_last_finite_loss():
    course = Course()
    losses = [2.0, 1.5, 1.5, NAN, 1.4, INF, 1.6, -3.0, -4.0, -1.0]
    assert "".join(step(course, loss=loss).trend for loss in losses) == " \\  \\ /\\\\/"


def test_a_spike_is_five_times_the_average_of_the_norms_before():
    average = NormAverage()
    assert not any(average.flag(1.0) for _ in range(10))
    assert not average.flag(5.0)
    assert average.flag(8.0)


def test_a_spike_needs_ten_norms():
    average = NormAverage()
    assert not any(average.flag(norm) for norm in [1.0] * 9 + [100.0])


def test_the_average_is_exponential_after_a_hundred_norms():
    average = NormAverage()
    for _ in range(100):
        average.flag(1.0)
    for _ in range(5):
        average.flag(4.0)  # now 1 + 3 * (1 - 0.9^5) = 2.228
    assert not average.flag(11.1)
    average = NormAverage()
    for norm in [1.0] * 100 + [4.0] * 5:
        average.flag(norm)
    assert average.flag(11.2)


def test_non_finite_norms_are_flagged_and_blind_nothing():
    average = NormAverage()
    for _ in range(20):
        average.flag(1.0)
    assert average.flag(NAN)
    assert average.flag(INF)
    assert average.flag(5.1)
    assert not average.flag(4.9)


def test_the_gap_is_to_the_mean_of_the_finite_losses_since_the_last_evaluation():
    course = Course()
    assert evaluation(course, 0, loss=3.0).gap is None
    for loss in (2.0, NAN, 4.0, INF):
        step(course, loss=loss)
    assert evaluation(course, 10, loss=3.5).gap == 0.5
    assert evaluation(course, 10, loss=2.0).gap == -1.0  # a second data set at the same step
    assert evaluation(course, 20, loss=2.0).gap is None
    step(course, loss=1.0)
    assert evaluation(course, 20, loss=2.0).gap == 1.0


def test_progress_is_of_the_run_where_its_length_is_known_else_of_the_epoch():
    assert step(Course(total_steps=800), 100, epoch=1.25).progress == 12.5
    assert step(Course(total_tokens=1000), 5, epoch=1.25, step_tokens=100).progress == 50.0
    assert step(Course(), 100, epoch=1.25).progress == 25.0
    assert step(Course(), 100).progress is None
    assert step(Course(total_steps=0), 100, epoch=-0.5).progress == 0.0


def test_eta_is_by_the_clock_so_that_evaluations_count():
    course = Course(total_steps=110)
    for number in range(11):
        found = step(course, number, now=10.0 * number, duration_ms=1000)
    assert found.eta == 1000.0


def test_eta_of_the_first_step_and_of_an_old_log_is_by_the_durations():
    course = Course(total_steps=101)
    assert step(course, 1, duration_ms=1000).eta == 100.0
    assert step(course, 2, duration_ms=1000).eta == 99.0
    assert step(course, 12, duration_ms=1000).eta == 89.0  # nine steps were not logged


def test_eta_survives_a_resume_a_rewind_and_the_end():
    course = Course(total_steps=1000)
    assert step(course, 990, duration_ms=1000).eta == 10.0
    assert step(course, 500, now=1.0, duration_ms=2000).eta == 1000.0
    assert step(course, 1001, now=2.0, duration_ms=2000).eta == 0.0
    assert step(course, 1001, now=1.0, duration_ms=-5).eta == 0.0


def test_eta_by_tokens_counts_those_before_a_resume():
    course = Course(total_tokens=100_000)
    found = step(course, 50, step_tokens=1000, duration_ms=1000)
    assert (found.progress, found.eta) == (50.0, 50.0)


def test_without_a_length_there_is_no_eta():
    assert step(Course(), 5, duration_ms=10).eta is None


@given(
    st.lists(
        st.tuples(st.floats(), st.integers(-(2**63), 2**63 - 1), st.floats(min_value=0), st.floats(min_value=0)),
        min_size=1,
    ),
    st.floats(min_value=1),
)
def test_an_eta_is_never_negative_nor_infinite(marks, total):
    pace = Pace()
    for mark in marks:
        pace.add(*mark)
        for found in (pace.eta(total, None), pace.eta(None, total)):
            assert found is None or 0 <= found < INF


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300))
def test_the_smoothed_loss_stays_within_what_was_seen(losses):
    smoothed = DebiasedMean()
    for loss in losses:
        found = smoothed.add(loss)
    assert found is not None
    assert min(losses) - 1e-3 <= found <= max(losses) + 1e-3


def test_the_speed_of_light_is_a_share_of_the_estimate():
    course = Course()
    course.sol(Record("sol", 0, 0, {"tps": 1000}))
    assert step(course, step_tokens=500, duration_ms=1000).sol == 50.0
    course.sol(Record("sol", 0, 0, {"tps": -1}))
    assert step(course, step_tokens=500, duration_ms=1000).sol is None


def test_a_course_goes_on_from_a_checkpoint_as_if_it_had_not_stopped():
    whole, first, second = Course(100), Course(100), Course(100)
    records = [
        Record("step", 0, n, {"loss": 5.0 / (n + 1), "duration_ms": 100.0, "step_tokens": 10}) for n in range(40)
    ]
    shown = [whole.step(record, now=n * 0.1) for n, record in enumerate(records)]
    for n in range(20):
        first.step(records[n], now=n * 0.1)
    second.restore(first.state(), step=19)
    for n in range(20, 40):
        step = second.step(records[n], now=n * 0.1)
        assert step.smoothed == pytest.approx(shown[n].smoothed)
        assert step.warm_seconds == pytest.approx(shown[n].warm_seconds)
        assert step.warm_eta == pytest.approx(shown[n].warm_eta)


def test_a_course_goes_on_from_picollms_own_loop_state():
    course, total = Course(), 0.0
    for _ in range(100):
        total = 0.9 * total + 0.1 * 3.0
    course.restore({"smooth_train_loss": total, "min_val_bpb": float("inf"), "total_training_time": 60.0}, step=99)
    assert course.step(Record("step", 0, 100, {"loss": 3.0, "duration_ms": 1000.0}), 0.0).smoothed == pytest.approx(3.0)
    assert course.state()["total_training_time"] == pytest.approx(61.0)


@pytest.mark.parametrize(
    "state", [{}, {"smooth_train_loss": "x"}, {"smooth_train_loss": float("nan")}, {"total_training_time": -1}]
)
def test_a_loop_state_of_nonsense_is_passed_over(state):
    course = Course()
    course.restore(state, step=3)
    assert course.step(Record("step", 0, 4, {"loss": 2.0}), 0.0).smoothed == pytest.approx(2.0)


def test_a_routers_figures_are_on_the_next_line_and_not_on_later_ones():
    course = Course()

    def line(step: int) -> float | None:
        return course.step(Record("step", 0, step, {"loss": 2.0}), float(step)).aux_loss

    assert line(1) is None
    course.moe(Record("moe", 0, 1, {"aux_loss": 0.1}))  # the document's order: after the step
    assert (line(2), line(3)) == (0.1, None)
    course.moe(Record("moe", 0, 4, {"aux_loss": 0.2}))
    assert (line(4), line(4), line(5)) == (0.2, 0.2, None)
