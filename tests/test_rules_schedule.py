"""The learning rate: leaps, zeros, what was declared, and schedules with which nothing is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from rule_curves import columns, falling, found, warned

from barograph.doctor.rules.optimizer import declared, schedule
from barograph.doctor.rules.optimizer.schedule import LearningRateJump, LearningRateZero

RULES = (*schedule.RULES, *declared.RULES)


def cosine(count: int, warm: int = 20, floor: float = 0.0, peak: float = 1e-3) -> np.ndarray:
    along = np.arange(count)
    down = floor + (1 - floor) * 0.5 * (1 + np.cos(np.pi * (along - warm) / max(count - warm, 1)))
    return peak * np.where(along < warm, (along + 1) / warm, down)


def look(rate: np.ndarray, step: int = 1, loss: np.ndarray | None = None, **facts):
    steps = np.arange(len(rate)) * step
    loss = falling(len(rate)) if loss is None else loss
    return found([rule() for rule in RULES], {"train/loss": (steps, loss), "train/lr": (steps, rate)}, **facts)


SCHEDULES = {
    "cosine": cosine(1000),
    "floor": cosine(1000, floor=0.1),
    "restarts": np.tile(cosine(300, warm=5), 4),
    "rewarm": np.concatenate([cosine(600), 0.8 * cosine(400, warm=50)]),
    "wsd": np.concatenate([np.linspace(0, 1e-3, 50), np.full(700, 1e-3), np.linspace(1e-3, 0, 250)]),
    "steps": 1e-3 * 0.1 ** (np.arange(1000) // 300),
    "one warm row": np.concatenate([[1e-6], np.full(40, 3e-4), np.linspace(3e-4, 0, 60)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("step", [1, 100])
def test_schedules_of_all_kinds_are_silent(name: str, step: int) -> None:
    assert not warned(look(SCHEDULES[name], step))


def test_a_leap_beyond_the_peak_is_critical_at_its_row() -> None:
    rate = cosine(600)
    rate[333:] *= 30
    finding = next(one for one in look(rate) if one.rule == "learning_rate_jump")
    assert (finding.kind, finding.severity, finding.step, finding.found) == ("learning_rate", "critical", 333, 336)
    assert finding.causes[0].startswith("learning rate too high") and f"{rate[332]:.3g}" in finding.remedies[0]


@pytest.mark.parametrize("harm", [False, True])
@pytest.mark.parametrize("sign", ["replaced", "configured", "none"])
def test_a_rate_of_another_optimizer_that_takes_over_is_no_leap(sign: str, harm: bool) -> None:
    rate, loss = cosine(300), falling(300)
    rate[200:] = 1.0
    loss[200:] *= 3.0 if harm else 0.5
    steps = np.arange(300)
    series = {"train/loss": (steps, loss), "train/lr": (steps, rate), "model/rate_in_force": (steps[::10], rate[::10])}
    if sign == "replaced":
        series["model/optimizers_replaced"] = (np.array([203]), np.array([1.0]))
    facts = {"config": {"lbfgs_after": 200}} if sign == "configured" else {}
    told = found([LearningRateJump()], series, **facts)
    assert [one.severity for one in told] == ["info" if sign != "none" and not harm else "critical"]
    assert (", where " in told[0].message) == (told[0].severity == "info")


STAIRS = np.concatenate([np.full(14, 3e-5), np.full(14, 1.5e-3), cosine(120, warm=1, peak=3e-3)])


def test_up_to_the_rate_that_a_scheduler_started_from_is_no_leap() -> None:
    def with_share(base: float):
        looks = np.arange(0, len(STAIRS), 10)
        return found([LearningRateJump()], {
            "train/loss": (np.arange(len(STAIRS)), falling(len(STAIRS))),
            "train/lr": (np.arange(len(STAIRS)), STAIRS),
            "model/rate_share": (looks, STAIRS[looks] / base), "model/scheduler_steps": (looks, looks // 14),
        })  # fmt: skip

    assert not with_share(3e-3) and with_share(3e-4)


@pytest.mark.parametrize(
    ("config", "says"), [({"lr": 3e-3}, False), ({}, True), ({"optimizer.lr": 1e-3}, True), ({"lr": "none"}, True)]
)
def test_a_warmup_in_stairs_up_to_the_configured_rate_is_no_leap(config: dict, says: bool) -> None:
    rate = np.concatenate([np.full(20, 3e-5), np.full(20, 1.515e-3), np.full(20, 3e-3), np.full(40, 2e-3)])
    assert ("learning_rate_jump" in {one.rule for one in look(rate, config=config)}) == says
    fallen = np.concatenate([np.linspace(2e-3, 3e-4, 40), np.full(40, 3e-4), np.full(20, 4e-3)])
    assert "learning_rate_jump" in {one.rule for one in look(fallen, config={"lr": 4e-3})}
    for config in ({"lr": 4e-3, "schedule": "three_cycles"}, {"lr": 1e-3, "schedule": "three_cycles"}):
        said = {one.rule for one in look(fallen, config=config)}
        assert ("learning_rate_jump" in said) == (config["lr"] < 4e-3)


@pytest.mark.parametrize(("peak", "says"), [(4e-3, False), (4e-4, True)])
def test_a_cycle_that_begins_anew_behind_a_resume_is_no_leap(peak: float, says: bool) -> None:
    rate = np.concatenate([np.linspace(peak, 1e-4, 80), np.linspace(1e-4, 1e-6, 20), np.full(40, 4e-3)])
    series = {"train/lr": (np.arange(140), rate, np.repeat([1, 2], [80, 60]))}
    assert ("learning_rate_jump" in {one.rule for one in found([rule() for rule in RULES], series)}) == says


def test_a_rate_of_zero_long_before_the_end_is_told_of() -> None:
    rate = np.concatenate([cosine(300), np.zeros(300)])
    finding = next(one for one in look(rate) if one.rule == "learning_rate_zero")
    assert (finding.severity, finding.last_step) == ("warning", 599) and 298 <= finding.step <= 300
    critical = next(one for one in look(rate, planned_steps=600) if one.rule == "learning_rate_zero")
    assert critical.severity == "critical"


@pytest.mark.parametrize(("rows", "norm", "says"), [(2, 0.0, False), (3, 0.0, True), (3, 0.4, False), (5, 0.4, True)])
def test_a_rate_of_zero_in_each_of_a_few_rows(rows: int, norm: float, says: bool) -> None:
    parts = {"lr": np.zeros(rows), "loss": 12 + np.arange(rows) % 2 / 33, "norm": np.full(rows, norm)}
    series = {f"train/{name}": (np.arange(rows), part) for name, part in parts.items()}
    assert ("learning_rate_zero" in {one.rule for one in found([rule() for rule in RULES], series)}) == says


@pytest.mark.parametrize(("rest", "says"), [(0.0, True), (1e-5, False)])
def test_a_rate_that_is_zero_in_a_whole_launch_is_told_of(rest: float, says: bool) -> None:
    rate = np.concatenate([cosine(150), np.full(150, rest)])
    series = {"train/lr": (np.arange(300), rate, np.repeat([1, 2], 150)),
              "train/loss": (np.arange(300), falling(300), np.repeat([1, 2], 150))}  # fmt: skip
    assert ("learning_rate_zero" in {one.rule for one in found([rule() for rule in RULES], series)}) == says
    last = {name: tuple(part[:156] for part in one) for name, one in series.items()}  # the last rows of a schedule
    assert "learning_rate_zero" not in {one.rule for one in found([rule() for rule in RULES], last)}


def test_a_rate_that_never_decays_is_an_info_finding() -> None:
    assert [(one.rule, one.severity) for one in look(np.full(400, 1e-3))] == [("learning_rate_constant", "info")]
    assert look(np.full(400, 1e-3), planned_steps=4000) == []  # a decay may be planned behind it


def test_a_rate_that_is_not_the_declared_one_is_an_info_finding() -> None:
    config = {"optimizer.lr": "1e-4"}
    assert "learning_rate_declared" in {one.rule for one in look(cosine(400), config=config)}
    assert look(cosine(400), config={"optimizer.lr": 1e-3}) == []


def test_no_warmup_is_told_of_where_it_hurts() -> None:
    loss = 10.8 * (1 + 0.5 * np.clip(np.arange(300) / 30, 0, 1)) * np.exp(np.random.default_rng(0).normal(0, 0.01, 300))
    finding = next(one for one in look(np.linspace(1e-2, 0, 300), loss=loss) if one.rule == "missing_warmup")
    assert (finding.severity, finding.causes[0].partition(":")[0]) == ("warning", "no warm-up") and finding.step < 20
    assert not warned(look(np.linspace(1e-2, 0, 300)))


QUEUE = {"loss_queue": 512.0}
TEACHER = {"output_width": 512.0, "other_asked": 1.0, "other_moved": 0.1}


@pytest.mark.parametrize(
    ("start", "figures", "severity"),
    [
        (3.0, QUEUE, "info"),
        (3.0, TEACHER, "info"),
        (3.0, {}, "warning"),
        (3.0, {"loss_queue": 16.0}, "warning"),
        (3.0, TEACHER | {"other_moved": 0.0}, "warning"),
        (5.5, QUEUE, "warning"),  # a loss above a guess's is not of harder negatives
    ],
)
def test_a_rise_below_a_guess_as_negatives_get_harder_is_no_want_of_warmup(
    start: float, figures: dict[str, float], severity: str
) -> None:
    steps = np.arange(150)
    loss = start * (1 + 0.5 * np.clip(steps / 30, 0, 1)) + np.random.default_rng(0).normal(0, 0.02, 150)
    series = {"train/loss": (steps, loss), "train/lr": (steps, np.full(150, 2e-3))}
    series |= {f"model/{name}": (steps[:2], np.full(2, value)) for name, value in figures.items()}
    one = next(one for one in found([rule() for rule in RULES], series) if one.rule == "missing_warmup")
    assert one.severity == severity


@pytest.mark.parametrize(("fell", "severity"), [(0.4, "info"), (0.0, "warning")])
def test_a_term_that_grows_while_the_main_one_falls_is_no_want_of_warmup(fell: float, severity: str) -> None:
    steps = np.arange(150)
    main = 0.36 * (1 - fell * np.clip(steps / 100, 0, 1)) + np.random.default_rng(0).normal(0, 0.005, 150)
    codes = 0.03 + 0.5 * np.clip((steps - 20) / 40, 0, 1)  # as a codebook's, until encodings have grown
    series = {"train/loss": (steps, main + codes), "train/recon": (steps, main), "train/codes": (steps, codes)}
    series |= {"train/lr": (steps, np.full(150, 2e-3))}
    one = next(one for one in found([rule() for rule in RULES], series) if one.rule == "missing_warmup")
    assert one.severity == severity


@pytest.mark.parametrize(("grows", "warns"), [(50, False), (0, True), (90, True)])
def test_a_stage_whose_loss_is_higher_is_no_want_of_warmup(grows: int, warns: bool) -> None:
    """Pictures get larger at row 50: where that is not logged, or later, the rise has no such cause."""
    steps = np.arange(150)
    loss = np.where(steps < 50, 0.045 * np.exp(-steps / 300), 0.085 * np.exp(-(steps - 50) / 400))
    loss = loss * np.exp(np.random.default_rng(0).normal(0, 0.05, 150))
    series = {"train/loss": (steps, loss), "train/lr": (steps, np.full(150, 3e-3))}
    series["train/resolution"] = (steps, np.where(steps < grows, 4.0, 8.0))
    assert ("missing_warmup" in {one.rule for one in found([rule() for rule in RULES], series)}) == warns


@settings(max_examples=60, deadline=None)
@given(columns(("train/lr", "train/loss")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)


def test_a_rate_that_is_logged_now_and_then_needs_fewer_zeros() -> None:
    rate = np.concatenate([cosine(50, warm=5, floor=0.1), np.zeros(10)])
    assert next(one for one in look(rate, step=5, planned_steps=400) if one.rule == "learning_rate_zero").found == 285
    assert not [one for one in look(rate, step=1, planned_steps=400) if one.rule == "learning_rate_zero"]


RISES = {
    "each step": (1e-8 * np.arange(1, 301), 1e-3, True),
    "each epoch": (1e-5 * (np.arange(300) // 20 + 1), 1e-3, True),
    "nothing declared": (1e-8 * np.arange(1, 301), None, False),
    "reached": (1e-3 * np.arange(1, 301) / 300, 1e-3, False),
    "a range is tried": (1e-6 * 1.02 ** np.arange(300), 1e-3, False),
    "it ends": (np.minimum(1e-5, 1e-7 * np.arange(1, 301)), 1e-3, False),
}


@pytest.mark.parametrize("name", RISES)
def test_a_warm_up_that_never_ends_is_found_when_the_run_is_over(name: str) -> None:
    rates, declared, warns = RISES[name]
    config = {"learning_rate": declared} if declared else {"batch_size": 32}
    told = [one.rule for one in look(rates, config=config, has_config=True) if one.severity != "info"]
    assert ("warmup_unfinished" in told) == warns


@pytest.mark.parametrize(("digits", "severity"), [(3, "info"), (4, "warning"), (12, "warning")])
def test_a_rate_of_zero_may_be_a_small_one_where_no_number_is_printed_with_more_digits(
    digits: int, severity: str
) -> None:
    dice = np.random.default_rng(2)
    series = {"actor/lr": np.zeros(40), "critic/score/mean": np.round(0.5 + 0.1 * dice.normal(size=40), digits)}
    told = found([LearningRateZero()], {name: (np.arange(40), values) for name, values in series.items()})
    assert [one.severity for one in told] == [severity]
