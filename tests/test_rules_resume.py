"""What a resume leaves behind, and resumes and stages with which nothing is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from rule_columns import findings
from rule_curves import columns, falling, found, warned

from barograph.doctor.rules.optimizer.scheduled import ScheduleAnew
from barograph.doctor.rules.run.replayed import DataReplay
from barograph.doctor.rules.run.resume import RULES as OF_RESUMES
from barograph.doctor.rules.run.state import OlderWeights, StatisticsLost

SEGMENTS = np.repeat([1, 2], 300)
RULES = (*OF_RESUMES, DataReplay)


def look(loss: np.ndarray, steps: np.ndarray | None = None, segments: np.ndarray = SEGMENTS, **more: np.ndarray):
    steps = np.arange(len(loss)) if steps is None else steps
    series = {"train/loss": (steps, loss, segments)}
    series |= {name.replace("__", "/"): (steps, values, segments) for name, values in more.items()}
    return found([rule() for rule in RULES], series)


@pytest.mark.parametrize("leap", [0.35, 0.8])
def test_a_leap_that_decays_is_a_lost_optimizer_state(leap: float) -> None:
    loss = falling(600, noise=0.03)
    loss[300:] *= 1 + leap * np.exp(-np.arange(300) / 15)
    finding = next(one for one in look(loss) if one.rule == "resume_discontinuity")
    assert (finding.kind, finding.severity, finding.step, finding.segment) == ("resume", "warning", 300, 2)
    assert finding.causes[0].startswith("optimizer state lost") and finding.found <= 316


@pytest.mark.parametrize(
    ("rate", "cause"),
    [(None, "learning rate too high"), (1.0, "old weights loaded"), (5.0, "learning rate too high")],
)
def test_a_leap_that_stays_has_the_schedule_as_its_cause_unless_the_rate_goes_on(
    rate: float | None, cause: str
) -> None:
    loss = falling(600, noise=0.03)
    loss[300:] *= 1.5
    more = {} if rate is None else {"train__lr": np.where(np.arange(600) < 300, 1e-3, 1e-3 * rate)}
    finding = next(one for one in look(loss, **more) if one.rule == "resume_discontinuity")
    assert finding.causes[0].startswith(cause)
    assert any(one.startswith("learning rate") for one in finding.causes) == (rate != 1.0)


def test_a_leap_back_to_the_start_is_critical() -> None:
    loss = falling(600, noise=0.03)
    loss[300:] = falling(300, noise=0.03, seed=1)
    finding = next(one for one in look(loss) if one.rule == "resume_discontinuity")
    assert finding.severity == "critical" and "no weights" in finding.causes[0]


@pytest.mark.parametrize(("at", "told"), [(12, False), (0, True)])
def test_batches_that_come_high_now_and_then_are_no_jump_some_rows_behind_a_resume(at: int, told: bool) -> None:
    """As mixed ones: three of them follow each other some rows behind the resume, as they did before it; right behind
    it they may be its own."""
    loss = falling(600, noise=0.01)
    for high in (*range(0, 260, 40), 300 + at):
        loss[high : high + 3] *= 1.6
    assert any(one.rule == "resume_discontinuity" and one.severity != "info" for one in look(loss)) is told


def test_losses_that_follow_those_of_the_first_rows_are_replayed_data() -> None:
    dice = np.random.default_rng(3)
    noise = dice.normal(0, 0.03, 600)
    noise[300:] = noise[:300] + dice.normal(0, 0.008, 300)
    loss = falling(600, noise=0) * np.exp(noise)
    finding = next(one for one in look(loss) if one.rule == "data_replay")
    assert (finding.kind, finding.severity, finding.step) == ("replay", "warning", 300)
    assert finding.evidence["correlation"] > 0.7


@pytest.mark.parametrize(
    ("falls", "lower", "told"),
    [
        (0.004, 0.0, False),  # goes on falling as before
        (0.0, 0.0, False),
        (0.0, 0.08, True),
        (0.004, 0.12, True),
        (-0.002, 0.08, True),  # rose before
    ],
)
def test_a_loss_that_falls_on_as_before_is_no_sign_of_replayed_data(falls: float, lower: float, told: bool) -> None:
    """falls: of the logarithm, a row."""
    steps = np.arange(600)
    loss = 4 * np.exp(-falls * (steps - 300) + np.random.default_rng(2).normal(0, 0.02, 600))
    loss[300:] *= np.exp(-lower)
    some = [one for one in look(loss) if one.rule == "data_replay"]
    assert [(one.severity, "lower than before" in one.message) for one in some] == [("info", True)] * told


def test_counted_repeats_behind_a_resume_are_replayed_data() -> None:
    repeats = np.where(np.arange(600) >= 300, 1, 0)
    finding = next(one for one in look(falling(600), data__repeats=repeats) if one.rule == "data_replay")
    assert finding.severity == "warning" and finding.evidence["repeats"] == 64


MARKS = 1000 + np.arange(8) ** 3


def marked(
    behind: np.ndarray, name: str = "batch_mark", later: tuple[float, ...] = (), **more: np.ndarray
) -> list[str]:
    """The evidence where a launch of 300 steps and the next one are given batches with these marks at first. later:
    those of steps 100 and on in the first launch."""
    loss, steps = falling(600, noise=0.03), np.arange(600)
    series = {
        "train/loss": (steps, loss, SEGMENTS),
        f"model/{name}": (
            np.r_[0:8, 100 : 100 + len(later), 300:308],
            np.r_[MARKS, later, behind],
            np.repeat([1, 2], [8 + len(later), 8]),
        ),
    }
    series |= {name.replace("__", "/"): (steps, values, SEGMENTS) for name, values in more.items()}
    return [
        key for one in found([rule() for rule in RULES], series) if one.rule == "data_replay" for key in one.evidence
    ]


def test_the_same_batches_in_the_first_steps_of_both_launches_are_replayed_data() -> None:
    assert marked(MARKS) == ["batches"]
    assert marked(MARKS, train__epoch=np.arange(600) // 400) == ["batches"]
    assert marked(np.r_[MARKS[3] + 1, MARKS[:7]]) == ["batches"]  # one was drawn before the resume
    shuffled = {"model__rows_again": np.arange(600) // 100 / 10, "model__batch_again": np.full(600, 0.1)}
    assert marked(MARKS, **shuffled) == ["batches"]


@pytest.mark.parametrize(("name", "near"), [("clean_mark", 1e-6), ("text_mark", 0.0)])
def test_batches_beneath_other_noise_or_masks_are_known_again(name: str, near: float) -> None:
    assert marked(MARKS * (1 + near), name) == ["batches"]
    assert marked(MARKS * 1.01, name) == []
    assert marked(MARKS, name, later=(MARKS[4],)) == []  # each epoch has the same order, and one may begin here


@pytest.mark.parametrize(
    ("behind", "more"),
    [
        (MARKS + 5, {}),
        (MARKS[::-1], {}),
        (np.r_[MARKS[:3], MARKS[:5] + 7], {}),
        (MARKS, {"train__epoch": np.arange(600) // 300}),  # an epoch begins there
        (MARKS, {"model__rows_again": np.where(np.arange(600) < 100, 0.0, 1.0)}),  # perhaps
    ],
)
def test_other_batches_behind_a_resume_are_not(behind: np.ndarray, more: dict[str, np.ndarray]) -> None:
    assert marked(behind, **more) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_resume_that_goes_on_where_it_was_is_silent(seed: int) -> None:
    assert not warned(look(falling(600, noise=0.03, seed=seed), train__lr=np.linspace(1e-3, 1e-4, 600)))


def test_going_back_over_the_same_steps_is_silent() -> None:
    first = falling(600, noise=0.03)
    again = first[400:] * np.exp(np.random.default_rng(1).normal(0, 0.002, 200))
    steps = np.concatenate([np.arange(600), np.arange(400, 600)])
    assert look(np.concatenate([first, again]), steps, np.repeat([1, 2], [600, 200])) == []


def test_another_stage_is_no_resume() -> None:
    loss = np.concatenate([falling(300), 1.5 + 0.5 * falling(300, seed=1)])
    assert look(loss, np.concatenate([np.arange(300), np.arange(300)])) == []


def test_a_schedule_that_begins_anew_is_an_info_finding() -> None:
    rate = np.linspace(1e-3, 5e-4, 600)
    rate[300:] = np.linspace(1e-5, 1e-3, 300)
    finding = next(one for one in look(falling(600), train__lr=rate) if one.rule == "resumed_schedule")
    assert (finding.severity, finding.step) == ("info", 300)


@pytest.mark.parametrize(
    ("factor", "every", "said"),
    [(0.5, 100, False), (0.5, 300, True), (0.5, 60, False), (0.25, 100, True), (0.5, 90, True), (2.0, 100, True)],
    ids=["a stair", "the first one", "between two", "a higher one", "a new one", "upwards"],
)
def test_a_stair_of_the_learning_rate_is_none_of_a_resume(factor: float, every: int, said: bool) -> None:
    rate = 1e-3 * 0.5 ** (np.arange(600) // every)
    if (factor, every) != (0.5, 60) and not (factor == 0.5 and every == 300):
        rate[300:] = rate[299] * factor
    elif every == 60:
        rate[300:] = rate[299]
    told = [one.rule for one in look(falling(600), train__lr=rate)]
    assert ("resumed_schedule" in told) is said


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 600, 50))])
@pytest.mark.parametrize(
    ("loaded", "says"), [("loaded", True), ("", True), ("loaded", False), ("set", True), ("set", False)]
)
def test_a_schedule_that_begins_anew_behind_a_rate_that_was_loaded_is_a_warning(
    loaded: str, says: bool, pieces: tuple[int, ...]
) -> None:
    rate = np.concatenate([np.linspace(1e-4, 1e-3, 30), np.linspace(1e-3, 5e-4, 270)] * 2)
    if not says:  # warms up again, from another rate
        rate[300:] = np.maximum(rate[300:], 2e-4)
    rate[300] = {"loaded": rate[299], "set": 1e-3}.get(loaded, rate[300])
    told = {"train/loss": (np.arange(600), falling(600), SEGMENTS), "train/lr": (np.arange(600), rate, SEGMENTS)}
    some = [one for one in found([rule() for rule in RULES], told, pieces) if one.rule == "resumed_schedule"]
    assert [(one.severity, one.step) for one in warned(some)] == [("warning", 300 + bool(loaded))] * says


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 600, 7)), (300, 301, 303)])
@pytest.mark.parametrize(
    ("before", "loaded", "end", "says"),
    [
        ("falls", True, 1e-4, True),  # told of the steps that are left
        ("falls", False, 1e-4, False),  # a stage with a rate of its own
        ("falls", True, 4e-4, False),
        ("constant", True, 1e-4, False),  # a stair
        ("falls", True, 0.0, False),  # `learning_rate_zero` is about that
        ("falls", True, np.linspace(2e-4, 1e-4, 299), False),  # it goes on, from elsewhere
    ],
)
def test_a_schedule_that_is_at_its_end_behind_a_resume_is_a_warning(
    before: str, loaded: bool, end: float | np.ndarray, says: bool, pieces: tuple[int, ...]
) -> None:
    rate = np.linspace(1e-3, 5e-4, 600)
    rate[:300] = 7.5e-4 if before == "constant" else rate[:300]
    rate[300] = rate[299] if loaded else 1e-4
    rate[301:] = end
    told = {"train/loss": (np.arange(600), falling(600), SEGMENTS), "train/lr": (np.arange(600), rate, SEGMENTS)}
    some = [one for one in found([rule() for rule in RULES], told, pieces) if one.rule == "schedule_ended"]
    assert [(one.severity, one.step, one.found) for one in some] == [("warning", 301, 308)] * says


@settings(max_examples=60, deadline=None)
@given(columns(("train/loss", "train/lr", "data/repeats", "train/epoch")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)


def resumed(leap: float, rate: float = 1e-3, first: int = 300) -> list:
    """Updates that are `leap` times as large in the first rows behind a resume, at a rate that may change."""
    steps = np.arange(600)
    steps[300:] += first - 300
    update = 1e-2 * np.random.default_rng(0).uniform(0.9, 1.1, 600)
    update[300:] *= 1 + (leap - 1) * np.exp(-np.arange(300) / 3)
    rates = np.where(np.arange(600) < 300, 1e-3, rate)
    found_all = look(falling(600), steps, model__update_p50=update * rates / 1e-3, train__lr=rates)
    return [one for one in found_all if one.rule == "optimizer_state_lost"]


def test_a_first_step_that_is_far_longer_than_those_before_lost_the_optimizers_state() -> None:
    (finding,) = resumed(4.0)
    assert (finding.kind, finding.severity, finding.step, finding.segment) == ("resume", "warning", 300, 2)
    assert finding.causes[0].startswith("optimizer state lost") and 3.5 < finding.evidence["times"] < 4.5


def test_steps_that_go_on_a_higher_rate_and_another_stage_are_silent() -> None:
    assert not resumed(1.0)
    assert not resumed(1.0, rate=5e-3)
    assert not resumed(4.0, first=0)


@pytest.mark.parametrize(
    ("now", "bent", "count", "told"),
    [
        (41.25, 0.0, 6, True),  # that of step 62
        (41.31, 0.0, 6, False),
        (41.295, 0.0, 6, False),  # a little back
        (41.186, 0.0, 6, False),  # that of the start: nothing was loaded
        (41.0, 0.0, 6, False),
        (41.25, 0.2, 6, False),  # it went both ways before
        (41.25, 0.0, 4, False),
    ],
)
def test_weights_whose_norm_is_that_of_an_earlier_step_are_older(
    now: float, bent: float, count: int, told: bool
) -> None:
    norms = np.array([41.18, 41.19, 41.25 + bent, 41.27, 41.29, 41.31])[-count:]
    steps = np.array([0, 32, 62, 80, 104, 120])[-count:]
    rows = {"model/param_norm": (np.r_[steps, 128, 140], np.r_[norms, now, now + 0.01])}
    some = findings([OlderWeights()], rows, segments={0: 1, 128: 2})
    assert [one.step for one in some.values()] == [128] * told


@pytest.mark.parametrize(
    ("before", "behind", "logged", "told"),
    [
        ([0.04, 0.5, 1.0, 0.9, 0.7], [0.6, 0.5, 1.0, 0.9], False, True),
        ([0.04, 0.5, 1.0, 0.9, 0.7], [0.59, 0.5, 0.4, 0.3], False, False),
        ([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], False, False),  # it never changes
        ([0.04, 0.5, 1.0, 0.9, 0.7], [0.04, 0.5, 1.0, 0.9], True, False),  # `resumed_schedule` sees it
        ([0.04, 0.5, 1.0, 0.9, 0.7], [0.02, 0.25, 0.5, 0.45], False, False),  # another warm-up, on purpose
    ],
)
def test_a_schedule_that_begins_again_is_seen_where_no_rate_is_logged(
    before: list[float], behind: list[float], logged: bool, told: bool
) -> None:
    steps = 10 * np.arange(len(before) + len(behind))
    rows = {"model/rate_share": (steps, np.array(before + behind))}
    rows |= {"lr": (steps, np.array(before + behind))} if logged else {}
    some = findings([ScheduleAnew()], rows, segments={0: 1, 50: 2})
    assert [one.step for one in some.values()] == [50] * told


@pytest.mark.parametrize(("counts", "told"), [(50, False), (0, True)])
def test_a_period_that_begins_with_the_launch_is_no_schedule_anew(counts: int, told: bool) -> None:
    steps = 10 * np.arange(9)
    shares = np.array([1.0, 0.9, 0.7, 0.4, 0.1, 1.0, 0.9, 0.7, 0.4])
    passed = np.where(steps < 50, steps, steps - 50 + counts).astype(float)
    rows = {"model/scheduler_steps": (steps, passed), "model/rate_share": (steps, shares)}
    some = findings([ScheduleAnew()], rows, segments={0: 1, 50: 2})
    assert [one.step for one in some.values()] == [50] * told


@pytest.mark.parametrize("figure", ["preference_averaged", "preference_compared", "judged_shift"])
@pytest.mark.parametrize(("norm", "first", "cause"), [
    (10.31, 0.6931, "reference is the policy"),
    (10.0, 0.6931, "bad initialisation"),  # the policy's weights are those of the beginning, too
    (10.31, 0.72, "bad initialisation"),  # no margin of 0
])  # fmt: skip
def test_margins_that_begin_at_0_behind_a_resume_are_of_a_reference_that_was_reset(
    norm: float, first: float, cause: str, figure: str
) -> None:
    loss = 0.6931 * np.exp(-(np.arange(600) % 300) / 90)
    loss[0], loss[300] = 0.6931, first
    norms = np.r_[np.linspace(10, 10.3, 300), np.linspace(norm, norm + 0.1, 300)]
    more = {"model__param_norm": norms, f"model__{figure}": np.zeros(600)}
    finding = next(one for one in look(loss, **more) if one.rule == "resume_discontinuity")
    assert finding.causes[0].startswith(cause)
    plain = next(one for one in look(loss) if one.rule == "resume_discontinuity")
    assert plain.causes[0].startswith("bad initialisation")


@pytest.mark.parametrize(
    ("batches", "backwards", "age", "norms", "moved", "told"),
    [
        (1, 1, 120, (), True, True),
        (8, 4, 120, (), True, True),  # passes that are made again for the backward pass
        (9, 4, 120, (), True, False),  # they were loaded behind the watch
        (1, 1, 20, (), True, True),
        (1, 1, 19, (), True, False),
        (15, 8, 29, (), True, False),
        (0, 1, 120, (), True, False),  # those of before
        (1, 1, 0, (), True, False),  # another training
        (1, 1, 120, (), False, False),  # they never moved before
        (1, 1, None, (4.0, 5.0, 5.02), True, True),
        (1, 1, None, (4.0, 5.0, 5.2), True, False),
        (1, 1, None, (2.0, 5.0, 5.2), True, True),  # ten steps on, of what grew by as much in each ten before
        (1, 1, None, (2.0, 5.0, 2.1), True, False),  # weights that are drawn anew
        (1, 1, None, (5.0, 5.01, 5.02), True, False),
        (1, 1, None, (), True, False),
    ],
)
@pytest.mark.parametrize("cuts", [(), (1, 2)])
def test_running_statistics_that_begin_anew_where_the_training_goes_on_are_lost(
    batches: int,
    backwards: int,
    age: float | None,
    norms: tuple[float, ...],
    moved: bool,
    told: bool,
    cuts: tuple[int, ...],
) -> None:
    rows = {
        "model/begun_statistics": ([0, 120], [1.0, batches]),
        "model/stale_statistics": ([10, 20, 130], [0.0 if moved else 1.0] * 3),
        "model/backwards": ([0, 120], [1.0, backwards]),
    }
    rows |= {"model/optimizer_age": ([0, 120], [0.0, age])} if age is not None else {}
    rows |= {"model/param_norm": ([0, 110, 120], list(norms))} if norms else {}
    some = findings([StatisticsLost()], rows, segments={0: 1, 120: 2}, cuts=cuts)
    assert [one.step for one in some.values()] == [120] * told
    assert not findings([StatisticsLost()], rows)  # one launch
