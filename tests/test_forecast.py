"""Forecasts: the law finds its own curves, intervals say what they don't know, and silence has a reason."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.analysis.forecast import Forecast, RateSchedule, forecast, forecast_columns, forecast_sentences, plateau
from barograph.analysis.forecast.curve import bucket, columns, rising
from barograph.analysis.forecast.law import Component, features
from barograph.analysis.forecast.mixture import mixture, normal_below

PLAN = 4000


def curve(
    schedule: RateSchedule, noise: float = 0.03, gain: float = 0.1, seed: int = 0, total: int = PLAN
) -> tuple[Any, Any, float]:
    """A curve of the law's own form, its step, loss and true final loss."""
    along = features(schedule, total)
    step = np.arange(1.0, total + 1)
    area, annealing = along.at(step)
    clean = 2.0 + 1.5 * (area / total * 20 + 0.05) ** -0.4 - gain * annealing
    loss = clean + noise * np.random.default_rng(seed).standard_normal(total)
    return step, loss, float(clean[-total // 20 :].mean())


SCHEDULES = [
    RateSchedule("constant", PLAN, 1e-3, 100),
    RateSchedule("cosine", PLAN, 1e-3, 100, 1e-4),
    RateSchedule("linear", PLAN, 1e-3, 100),
    RateSchedule("wsd", PLAN, 1e-3, 100, decay=800),
    RateSchedule("step", PLAN, 1e-3, 100, milestones=(2000, 3000)),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: one.kind)
def test_a_curve_of_the_laws_form_is_foretold_at_30_percent(schedule: RateSchedule) -> None:
    step, loss, final = curve(schedule)
    answer = forecast_columns(step[:1200], loss[:1200], schedule=schedule)
    assert answer.final is not None and answer.low is not None and answer.high is not None
    assert abs(answer.final / final - 1) < 0.03
    assert answer.low <= final <= answer.high
    assert answer.known_schedule and answer.planned_steps == PLAN and answer.step == 1200


def test_intervals_of_synthetic_curves_cover_what_they_say() -> None:
    covered = []
    for seed in range(5):
        for schedule in SCHEDULES:
            step, loss, final = curve(schedule, gain=0.02 + 0.025 * seed, seed=seed)
            answer = forecast_columns(step[:1200], loss[:1200], schedule=schedule)
            assert answer.low is not None and answer.high is not None
            covered.append(answer.low <= final <= answer.high)
    assert np.mean(covered) >= 0.85


def test_an_interval_shrinks_as_the_run_goes_on_and_widens_with_the_coverage() -> None:
    step, loss, _ = curve(SCHEDULES[1])
    widths = []
    for seen in (800, 2000, 3200):
        answer = forecast_columns(step[:seen], loss[:seen], schedule=SCHEDULES[1])
        assert answer.high is not None and answer.low is not None
        widths.append(answer.high - answer.low)
    assert widths[0] > widths[1] > widths[2]
    sizes = []
    for coverage in (0.5, 0.9, 0.99):
        answer = forecast_columns(step[:2000], loss[:2000], schedule=SCHEDULES[1], coverage=coverage)
        assert answer.high is not None and answer.low is not None
        sizes.append(answer.high - answer.low)
    assert sizes[0] < sizes[1] < sizes[2]


def test_without_a_schedule_the_interval_is_wider_and_says_why() -> None:
    step, loss, _ = curve(SCHEDULES[0])
    known = forecast_columns(step[:2000], loss[:2000], schedule=SCHEDULES[0])
    flat = forecast_columns(step[:2000], loss[:2000], lr=SCHEDULES[0].lr(step[:2000]), planned_steps=PLAN)
    blind = forecast_columns(step[:2000], loss[:2000], planned_steps=PLAN)
    for other in (flat, blind):
        assert other.high is not None and other.low is not None and known.high is not None and known.low is not None
        assert not other.known_schedule and other.high - other.low > known.high - known.low
        assert "so the interval is wide" in " ".join(forecast_sentences(other))
    assert "constant so far" in flat.basis and "not known" in blind.basis


def test_a_schedule_seen_in_the_rates_gives_the_forecast_of_the_schedule_given() -> None:
    step, loss, _ = curve(SCHEDULES[1])
    given = forecast_columns(step[:1600], loss[:1600], schedule=SCHEDULES[1])
    seen = forecast_columns(step[:1600], loss[:1600], lr=SCHEDULES[1].lr(step[:1600]), planned_steps=PLAN)
    assert seen.known_schedule and given.final is not None and seen.final == pytest.approx(given.final, rel=2e-3)


def test_rates_that_contradict_the_schedule_given_count_more() -> None:
    step, loss, _ = curve(SCHEDULES[0])
    answer = forecast_columns(step[:2000], loss[:2000], schedule=SCHEDULES[1], lr=SCHEDULES[0].lr(step[:2000]))
    assert "not that of the schedule given" in answer.basis and not answer.known_schedule


def test_spikes_and_nan_rows_hardly_move_a_forecast() -> None:
    step, loss, _ = curve(SCHEDULES[1])
    clean = forecast_columns(step[:2000], loss[:2000], schedule=SCHEDULES[1])
    hurt = loss[:2000].copy()
    hurt[::97] = np.nan
    hurt[50::301] += 6.0
    answer = forecast_columns(step[:2000], hurt, schedule=SCHEDULES[1])
    assert clean.final is not None and answer.final == pytest.approx(clean.final, rel=0.01)


def test_the_order_of_rows_and_doubled_steps_do_not_matter() -> None:
    step, loss, _ = curve(SCHEDULES[2])
    step, loss = step[:1500], loss[:1500]
    turned = np.random.default_rng(1).permutation(1500)
    plain = forecast_columns(step, loss, schedule=SCHEDULES[2])
    mixed = forecast_columns(step[turned], loss[turned], schedule=SCHEDULES[2])
    doubled = forecast_columns(
        np.concatenate([step[:700], step]), np.concatenate([loss[:700] + 9, loss]), schedule=SCHEDULES[2]
    )
    assert plain.final == mixed.final == doubled.final


# -- silence ----------------------------------------------------------------------------------------------


def reason_of(answer: Forecast) -> str:
    assert answer.final is None and answer.low is None and answer.high is None and answer.reason
    assert answer.reason in forecast_sentences(answer)[0]
    return answer.reason


def test_silence_has_a_reason() -> None:
    step, loss, _ = curve(SCHEDULES[1])
    assert "no loss yet" in reason_of(forecast_columns([], []))
    assert "too few" in reason_of(forecast_columns(step[:10], loss[:10], schedule=RateSchedule("cosine", 20)))
    assert "too early" in reason_of(forecast_columns(step[:150], loss[:150], schedule=SCHEDULES[1]))
    assert "been NaN or infinite since step 1,001" in reason_of(
        forecast_columns(step[:1100], np.where(step[:1100] > 1000, np.nan, loss[:1100]), schedule=SCHEDULES[1])
    )
    holed = np.where(step[:1101] % 2 == 0, np.nan, loss[:1101])
    assert "are not finite" in reason_of(forecast_columns(step[:1101], holed, planned_steps=PLAN))
    late = RateSchedule("cosine", PLAN, 1e-3, 1500)
    assert "warm-up" in reason_of(forecast_columns(step[:1000], loss[:1000], schedule=late))
    rising_rates = late.lr(step[:1000])
    assert "warming up" in reason_of(forecast_columns(step[:1000], loss[:1000], lr=rising_rates, planned_steps=PLAN))
    assert "above zero" in reason_of(forecast_columns(step[:1000], loss[:1000] - 9, schedule=SCHEDULES[1]))
    assert "planned steps is not known" in reason_of(forecast_columns(step[:1000], loss[:1000]))


def test_a_diverging_run_is_not_foretold() -> None:
    step, loss, _ = curve(SCHEDULES[0])
    up = loss[:2000] + np.maximum(step[:2000] - 1500, 0) * 2e-3
    assert "diverges" in reason_of(forecast_columns(step[:2000], up, schedule=SCHEDULES[0]))
    assert rising(bucket(step[:2000], loss[:2000])) is None


def test_a_run_that_leaves_its_law_is_not_foretold() -> None:
    step, loss, _ = curve(SCHEDULES[0], noise=0.01)
    fallen = np.where(step[:2000] > 1500, loss[:2000] * 0.3, loss[:2000])
    assert "does not follow the law" in reason_of(forecast_columns(step[:2000], fallen, schedule=SCHEDULES[0]))


def test_a_plan_that_was_run_is_measured() -> None:
    step, loss, final = curve(SCHEDULES[1])
    answer = forecast_columns(step, loss, schedule=SCHEDULES[1], target=1.0, seconds_per_step=1.0, price_per_hour=2.0)
    assert answer.final == pytest.approx(loss[-200:].mean()) and "planned steps are done" in answer.basis
    assert answer.low is not None and answer.high is not None and answer.low < final < answer.high
    assert answer.hours == 0 and answer.cost == 0 and answer.target is not None and answer.target.verdict == "no"


# -- targets ----------------------------------------------------------------------------------------------


def test_a_target_on_the_way_is_reached_when_it_said() -> None:
    step, loss, final = curve(SCHEDULES[2], noise=0.01)
    smooth = curve(SCHEDULES[2], noise=0.0)[1]
    for target in (float(smooth[2200]), float(smooth[2600])):
        true = step[np.argmax(smooth <= target)]
        answer = forecast_columns(
            step[:1600], loss[:1600], schedule=SCHEDULES[2], target=target, seconds_per_step=3.6, price_per_hour=5.0
        )
        found = answer.target
        assert found is not None and found.step is not None and found.early is not None and final < target
        assert found.early <= true <= (found.late or PLAN) and abs(found.step - true) < 500
        assert (
            found.hours is not None
            and found.hours == pytest.approx((found.step - 1600) * 3.6 / 3600)
            and found.cost == pytest.approx(found.hours * 5)
        )
        assert answer.hours == pytest.approx(2.4) and answer.cost == pytest.approx(12)


def test_a_target_out_of_reach_is_said_plainly() -> None:
    step, loss, _ = curve(SCHEDULES[1])
    answer = forecast_columns(step[:2000], loss[:2000], schedule=SCHEDULES[1], target=1.0)
    assert answer.target is not None and answer.target.verdict == "no" and answer.target.probability < 0.01
    assert answer.target.step is None and answer.target.hours is None
    said = " ".join(forecast_sentences(answer))
    assert "This run will not reach its target 1: it will not be reached within the plan of 4,000 steps" in said


def test_a_target_already_reached_is_said_so() -> None:
    step, loss, _ = curve(SCHEDULES[1])
    answer = forecast_columns(step[:2000], loss[:2000], schedule=SCHEDULES[1], target=4.0)
    assert answer.target is not None and answer.target.verdict == "reached" and answer.target.step is not None
    assert answer.target.step < 2000 and "was reached at step" in " ".join(forecast_sentences(answer))


def test_without_a_plan_a_target_is_looked_for_at_the_rate_that_is() -> None:
    step, loss, _ = curve(SCHEDULES[0])
    answer = forecast_columns(step[:1000], loss[:1000], target=float(loss[1900:2100].mean()))
    assert answer.final is None and answer.target is not None and answer.target.step is not None
    assert 1400 < answer.target.step < 2800 and "assumed constant" in answer.basis


@settings(max_examples=15, deadline=None)
@given(
    scale=st.floats(1e-3, 1e3),
    seen=st.integers(0, 4000),
    target=st.floats(-5, 50),
    noise=st.floats(0, 0.5),
    kind=st.sampled_from(range(5)),
)
def test_a_forecast_is_ordered_and_finite_or_silent(
    scale: float, seen: int, target: float, noise: float, kind: int
) -> None:
    step, loss, _ = curve(SCHEDULES[kind], noise=noise)
    answer = forecast_columns(step[:seen], loss[:seen] * scale, schedule=SCHEDULES[kind], target=target * scale)
    if answer.final is None:
        assert answer.reason
    else:
        assert answer.low is not None and answer.high is not None and np.isfinite([answer.low, answer.high]).all()
        assert answer.low <= answer.final <= answer.high
    if answer.target is not None:
        places = [one for one in (answer.target.early, answer.target.step, answer.target.late) if one is not None]
        assert places == sorted(places) and 0 <= answer.target.probability <= 1
    assert forecast_sentences(answer) and json.dumps(answer.as_dict(), allow_nan=False)


@settings(max_examples=8, deadline=None)
@given(scale=st.floats(1e-3, 1e3), stretch=st.integers(1, 50))
def test_units_of_loss_and_of_steps_do_not_matter(scale: float, stretch: int) -> None:
    step, loss, _ = curve(SCHEDULES[0])
    plain = forecast_columns(step[:1200], loss[:1200], planned_steps=PLAN, schedule=RateSchedule("constant", PLAN))
    other = forecast_columns(
        step[:1200] * stretch, loss[:1200] * scale, schedule=RateSchedule("constant", PLAN * stretch)
    )
    assert plain.final is not None and other.final == pytest.approx(plain.final * scale, rel=5e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=60))
def test_any_columns_get_an_answer(rows: list[tuple[float, float]]) -> None:
    step, loss = [one for one, _ in rows], [one for _, one in rows]
    with np.errstate(all="ignore"):
        answer = forecast_columns(step, loss, planned_steps=1000, lr=loss, target=1.0)
    assert forecast_sentences(answer)


def test_wrong_input_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="3 rows and loss has 2"):
        forecast_columns([1, 2, 3], [1.0, 2.0])
    with pytest.raises(ValueError, match="coverage is between 0 and 1"):
        forecast_columns([1], [1.0], coverage=1.0)
    with pytest.raises(ValueError, match="needs planned_steps"):
        forecast_columns([1], [1.0], schedule="cosine")
    with pytest.raises(ValueError, match="3 rows and lr has 1"):
        forecast_columns([1, 2, 3], [1.0, 2.0, 3.0], lr=[0.1])


def test_a_million_rows_take_less_than_a_second() -> None:
    step = np.arange(1, 1_000_001)
    loss = 2 + 3 * step**-0.3 + 0.1 * np.random.default_rng(0).standard_normal(len(step))
    lr = RateSchedule("cosine", 3_000_000, 1e-3, 2000).lr(step)
    begun = time.process_time()  # not the wall's: tests run side by side
    answer = forecast_columns(step, loss, lr=lr, planned_steps=3_000_000)
    assert time.process_time() - begun < 1.0 and answer.known_schedule


# -- parts ------------------------------------------------------------------------------------------------


def test_a_plateau_is_told_from_a_slow_fall_and_from_noise() -> None:
    step = np.arange(1, 3001)
    noise = 0.02 * np.random.default_rng(2).standard_normal(3000)
    flat = plateau(step, 2 + np.exp(-step / 100) + 0.5 * noise)
    falling = plateau(step, 3 - step * 2e-4 + noise)
    unsure = plateau(step, 2 + 50 * noise)
    climbing = plateau(step, 2 + step * 2e-4 + noise)
    assert flat is not None and flat.flat and flat.since == 2001 and flat.level == pytest.approx(2, abs=0.01)
    assert falling is not None and not falling.flat and falling.fall == pytest.approx(0.2 / 2.4, rel=0.1)
    assert unsure is not None and not unsure.flat and unsure.error > 0.005
    assert climbing is not None and not climbing.flat and climbing.fall < 0
    assert plateau([1, 2], [1.0, 1.0]) is None


def test_a_mixture_has_the_quantiles_of_what_is_drawn_from_it() -> None:
    parts = [
        Component(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.7, 0.1),
        Component(np.array([5.0, 1.0]), np.array([0.5, 2.0]), 0.3, 0.1),
    ]
    mixed = mixture(parts, 0.0, 1.0)
    generator = np.random.default_rng(0)
    which = generator.random(200_000) < 0.7
    drawn = np.where(which, generator.standard_normal(200_000), 5 + 0.5 * generator.standard_normal(200_000))
    for part in (0.05, 0.5, 0.75, 0.95):
        assert mixed.quantile(part)[0] == pytest.approx(np.quantile(drawn, part), abs=0.03)
        assert mixed.below(mixed.quantile(part)) == pytest.approx(part, abs=1e-6)
    assert normal_below(np.array([0.0, 1.6448536, -1.959964])) == pytest.approx([0.5, 0.95, 0.025], abs=1e-6)


def test_buckets_keep_the_mean_and_draw_spikes_in() -> None:
    step = np.arange(1.0, 10_001)
    loss = 3 + 0.1 * np.random.default_rng(0).standard_normal(10_000)
    plain = bucket(step, loss)
    loss[5000] = 1e6
    hurt = bucket(step, loss)
    assert len(plain.loss) <= 160 and plain.loss.mean() == pytest.approx(3, abs=0.01)
    assert np.abs(hurt.loss - plain.loss).max() < 0.05 and hurt.spikes > plain.spikes
    assert plain.noise == pytest.approx(0.1, rel=0.05) and plain.now == 10_000


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=40))
def test_columns_are_sorted_and_finite(values: list[float]) -> None:
    steps = list(range(len(values)))[::-1]
    found = columns(steps, values)
    assert not isinstance(found, str)
    assert found[0].tolist() == sorted(steps) and found[1].tolist() == values[::-1]


# -- stored runs ------------------------------------------------------------------------------------------


def test_a_stored_run_is_foretold_from_its_own_columns_and_plan(tmp_path: Path) -> None:
    schedule = RateSchedule("cosine", 400, 1e-3, 20)
    _, loss, final = curve(schedule, noise=0.01, total=400)
    config = {"optimizer": {"lr": 1e-3}, "lr_scheduler_type": "cosine", "warmup_steps": 20, "max_steps": 400}
    run = barograph.init(
        project="foretold", dir=tmp_path, verbosity=-2, git=False, machine=False, config=config | {"target_loss": 0.5}
    )
    for at in range(200):
        run.log({"loss": float(loss[at]), "lr": float(schedule.lr([at + 1])[0])}, step=at + 1)
    run.finish()
    stored = barograph.runs(tmp_path)[0]
    answer = forecast(stored, seconds_per_step=36.0, price_per_hour=3.0)
    assert answer.final is not None and abs(answer.final / final - 1) < 0.05
    assert answer.planned_steps == 400 and answer.known_schedule and "configuration" in answer.basis
    assert answer.target is not None and answer.target.loss == 0.5 and answer.target.verdict == "no"
    assert answer.hours == pytest.approx(2.0) and answer.cost == pytest.approx(6.0)
    assert replace(answer, reason="x").reason == "x"
    own_time = forecast(stored)
    assert own_time.hours is not None and own_time.hours < 1


class Fake:
    """A run with the columns given."""

    def __init__(self, config: dict[str, Any], **columns: Any):
        self.config, self.columns = config, columns

    def names(self) -> list[str]:
        return [f"train/{name}" for name in self.columns]

    def series(self, name: str) -> Any:
        step, value = self.columns[name.removeprefix("train/")]

        class Found:
            pass

        found: Any = Found()
        found.step, found.value, found.time = step, value, np.asarray(step, float) * 2.0
        return found


def test_a_plan_shorter_than_the_run_is_not_believed_and_no_loss_is_said() -> None:
    step, loss, _ = curve(SCHEDULES[0])
    answer = forecast(Fake({"max_steps": 100}, loss=(step[:1000], loss[:1000])))
    assert answer.planned_steps is None and answer.reason
    assert "no training loss" in (forecast(Fake({})).reason or "")


def test_sparse_rates_are_enough() -> None:
    step, loss, _ = curve(SCHEDULES[2])
    rates = (step[:2000:250], SCHEDULES[2].lr(step[:2000:250]))
    answer = forecast(Fake({"max_steps": PLAN}, loss=(step[:2000], loss[:2000]), lr=rates))
    assert answer.final is not None and answer.hours == pytest.approx(2000 * 2 / 3600)


@pytest.mark.parametrize("part", [0.3, 0.5])
def test_intervals_cover_where_the_loss_answers_a_decay_late(part: float) -> None:
    """Curves of the law of arXiv 2408.11029, whose momentum delays what a fall of the rate gains."""
    draw, covered = np.random.default_rng(4), []
    for at in range(24):
        steps = int(draw.choice([2000, 5000]))
        s = np.arange(1, steps + 1)
        u = np.clip((s - steps // 50) / (steps - steps // 50), 0, 1)
        fall = (0.1 + 0.45 * (1 + np.cos(np.pi * u)), 1 - 0.95 * u, np.minimum(1, (1 - u) / 0.2))[at % 3]
        rate = np.where(s < steps // 50, s / (steps // 50), fall)
        momentum, total, late = 0.0, 0.0, np.empty(steps)
        for place, drop in enumerate(np.maximum(-np.diff(rate, prepend=rate[0]), 0)):
            momentum = 0.999 * momentum + drop
            total += momentum
            late[place] = total
        floor, power = draw.uniform(2, 3), draw.uniform(0.4, 0.6)
        scale, gain = draw.uniform(0.3, 0.8) * steps**power, draw.uniform(0.03, 0.12) / late[-1]
        true = floor + scale * (np.cumsum(rate) + steps / 300) ** -power - gain * late * floor
        seen = int(part * steps)
        loss = true + draw.uniform(0.01, 0.05) * draw.standard_normal(steps)
        answer = forecast_columns(s[:seen], loss[:seen], lr=1e-3 * rate[:seen], schedule=1e-3 * rate)
        if answer.final is not None and answer.low is not None and answer.high is not None:
            covered.append(answer.low <= true[int(0.95 * steps) :].mean() <= answer.high)
    assert len(covered) >= 20 and np.mean(covered) >= 0.85
