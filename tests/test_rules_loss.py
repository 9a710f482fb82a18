"""The loss: NaN, spikes, levels, zeros, falls, and what only looks like them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from rule_curves import columns, falling, found, warned

from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.rules.loss.loss import RULES

NAN = float("nan")


def look(loss: np.ndarray, pieces: tuple[int, ...] = (), step: int = 1, **more: np.ndarray):
    steps = np.arange(len(loss)) * step
    series = {"train/loss": (steps, loss)} | {f"train/{name}": (steps, values) for name, values in more.items()}
    return found([rule() for rule in RULES], series, pieces)


@pytest.mark.parametrize("step", [1, 100])
def test_a_loss_that_stays_nan_is_critical_since_its_first_row(step: int) -> None:
    loss = falling(60)
    loss[41:] = NAN
    finding = next(one for one in look(loss, step=step) if one.rule == "non_finite_loss")
    assert (finding.kind, finding.severity, finding.step, finding.found) == (
        "nonfinite",
        "critical",
        41 * step,
        41 * step,
    )
    assert finding.last_step == 59 * step and finding.evidence["last_finite_step"] == 40 * step


def test_a_loss_that_is_nan_from_the_start_is_critical() -> None:
    finding = look(np.full(30, NAN))[0]
    assert (finding.rule, finding.severity, finding.step) == ("non_finite_loss", "critical", 0)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_run_of_few_rows_none_of_which_is_a_number_is_critical_at_its_end(rows: int) -> None:
    finding = look(np.full(rows, NAN))[0]
    assert (finding.rule, finding.severity, finding.step) == ("non_finite_loss", "critical", 0)
    assert look(np.array([NAN] * (rows - 1) + [2.5])) == []


@pytest.mark.parametrize(("step", "evaluated", "first", "rate"), [
    (1, None, "loss masked out", False), (1, NAN, "bad initialisation", False), (1, 3.0, "loss masked out", False),
    (100, None, "loss masked out", True), (100, NAN, "bad initialisation", False), (100, 3.0, "loss masked out", True),
])  # fmt: skip
def test_the_learning_rate_has_no_part_in_a_loss_that_is_nan_before_a_step_was_made(
    step: int, evaluated: float | None, first: str, rate: bool
) -> None:
    steps = np.arange(1, 31) * step
    series = {"train/loss": (steps, np.full(30, NAN)), "train/lr": (steps, np.full(30, 1e-3))}
    if evaluated is not None:
        series["eval/loss"] = (np.array([0]), np.array([evaluated]))
    finding = next(one for one in found([rule() for rule in RULES], series) if one.rule == "non_finite_loss")
    assert finding.causes[0].startswith(first)
    assert any("learning rate" in words for words in finding.remedies + finding.causes) is rate


def test_an_infinite_last_row_is_critical_at_once() -> None:
    loss = falling(40)
    loss[-1] = np.inf
    assert [one.severity for one in look(loss) if one.kind == "nonfinite"] == ["critical"]


def test_nan_that_heals_is_an_info_finding_and_nan_before_the_first_step_is_nothing() -> None:
    loss = falling(200)
    loss[100] = NAN
    healed = look(loss)
    assert [(one.severity, one.step) for one in healed if one.kind == "nonfinite"] == [("info", 100)]
    loss[100] = loss[99]
    loss[0] = NAN
    assert look(loss) == []


def test_a_column_that_is_filled_in_every_tenth_row_alone_gives_no_warning() -> None:
    loss = falling(600)
    loss[np.arange(600) % 10 != 0] = NAN
    assert not warned(look(loss))


@pytest.mark.parametrize("seed", range(6))
def test_healthy_noise_of_any_sort_gives_no_warning(seed: int) -> None:
    dice = np.random.default_rng(seed)
    for noise in (0.005, 0.04, 0.3):
        assert not warned(look(falling(1500, noise=noise, seed=seed)))
    heavy = falling(1500, noise=0) * np.exp(dice.standard_t(3, 1500) * 0.02)
    assert not warned(look(heavy))
    assert not warned(look(np.round(falling(300, noise=0.01, seed=seed), 1)))


def test_a_loss_of_zero_is_critical_where_the_gradient_is_zero_too() -> None:
    loss, norm = falling(100), np.ones(100)
    loss[70:], norm[70:] = 0.0, 0.0
    finding = next(one for one in look(loss, norm=norm) if one.rule == "zero_loss")
    assert (finding.kind, finding.severity, finding.step, finding.last_step) == ("zero", "critical", 70, 99)
    assert finding.causes[0].startswith("loss masked out")


@pytest.mark.parametrize(("touched", "severity"), [((30, 45, 52), "info"), ((30,), "critical")])
def test_a_loss_that_was_zero_now_and_then_before_is_fitted(touched: tuple[int, ...], severity: str) -> None:
    loss, norm = falling(100), np.ones(100)
    for where in (*touched, slice(70, None)):
        loss[where] = norm[where] = 0.0
    assert next(one for one in look(loss, norm=norm) if one.rule == "zero_loss").severity == severity


def test_zeros_that_hide_nan_are_called_by_their_name() -> None:
    loss, norm = falling(60), np.ones(60)
    loss[40:], norm[40:] = 0.0, NAN
    finding = next(one for one in look(loss, norm=norm) if one.rule == "zero_loss")
    assert finding.kind == "nonfinite" and "logging_nan_inf_filter" in finding.remedies[0]


def test_zeros_of_a_policy_or_of_a_fitted_loss_are_no_warning() -> None:
    dice = np.random.default_rng(0)
    policy = np.where(np.arange(200) < 40, 0.0, dice.normal(0, 0.02, 200))
    assert not warned(look(policy, reward=dice.normal(0, 1, 200), kl=np.abs(dice.normal(0, 0.1, 200))))
    fitted = np.round(3 * np.exp(-np.arange(200) / 12), 4)
    assert not warned(look(fitted))


def test_zeros_beside_an_error_that_falls_are_rounded() -> None:
    zeros, error = np.zeros(30), 0.4 * 0.93 ** np.arange(30)
    assert warned(look(zeros)) and not warned(look(zeros, mae_heights=error))


def test_a_frozen_loss_is_told_from_one_printed_with_few_digits() -> None:
    loss = falling(200)
    loss[120:] = loss[120]
    frozen = next(one for one in look(loss) if one.rule == "frozen_loss")
    assert (frozen.kind, frozen.severity, frozen.step) == ("frozen", "warning", 120)
    still = look(loss, norm=np.where(np.arange(200) < 120, falling(200, seed=2), 0.0))
    assert next(one for one in still if one.rule == "frozen_loss").severity == "critical"
    assert not warned(look(np.round(falling(300), 1)))


def test_a_sudden_fall_is_told_by_the_evaluation_behind_it() -> None:
    loss = falling(1000)
    loss[600:] *= 0.3
    at = np.arange(100, 1000, 100)
    steady = falling(1000, noise=0)[at]
    series = {"train/loss": (np.arange(1000), loss), "eval/loss": (at, steady)}
    finding = next(one for one in found([rule() for rule in RULES], series) if one.rule == "loss_jump_down")
    assert (finding.severity, finding.step) == ("warning", 600)
    series["eval/loss"] = (at, np.where(at < 600, steady, steady * 0.3))
    assert not warned(found([rule() for rule in RULES], series))


@pytest.mark.parametrize(("unfrozen", "severity"), [(592, []), (300, ["warning"])])
def test_a_fall_behind_layers_that_were_unfrozen_is_learning(unfrozen: int, severity: list[str]) -> None:
    loss = falling(1000)
    loss[600:] *= 0.25
    series = {
        "train/loss": (np.arange(1000), loss),
        "model/trained_elements": (np.array([0, unfrozen]), np.array([300.0, 4000.0])),
    }
    findings = found([rule() for rule in RULES], series)
    assert [one.severity for one in findings if one.rule == "loss_jump_down"] == severity
    examiner = Examiner([rule() for rule in RULES], {})  # the watch's record comes behind the rows
    for name, (steps, values) in series.items():
        late = 700 if name == "model/trained_elements" else 0
        examiner.seen.add(name, steps, values, (steps + late).astype(np.int64) * 1_000_000, np.zeros(len(steps), int))
        examiner.catch_up()
    examiner.seen.add("train/loss", np.array([1000]), loss[-1:], np.array([2_000_000_000]), np.zeros(1, int))
    examiner.catch_up()
    late_ones = [one.severity for one in examiner.findings if one.rule == "loss_jump_down"]
    assert late_ones == (severity or ["info"])


@pytest.mark.parametrize(("taken", "severity"), [(600, []), (300, ["warning"])])
def test_a_fall_behind_another_optimizer_is_its_work(taken: int, severity: list[str]) -> None:
    loss = falling(1000)
    loss[600:] *= 0.25
    series = {"train/loss": (np.arange(1000), loss), "model/optimizers_replaced": (np.array([taken]), np.array([1.0]))}
    findings = found([rule() for rule in RULES], series)
    assert [one.severity for one in findings if one.rule == "loss_jump_down"] == severity


@pytest.mark.parametrize("lucky", [range(0, 1), range(219, 220), range(220, 221)])
def test_a_noisy_evaluation_that_was_good_or_bad_by_chance_does_not_say_that_others_did_not_follow(
    lucky: range,
) -> None:
    at = np.arange(300)
    dice = np.random.default_rng(4)
    loss = (0.3 + 2 * np.exp(-at / 12)) * np.where(at < 220, 1, 0.5) * np.exp(dice.normal(0, 0.01, 300))
    seen = (0.5 + 2 * np.exp(-at / 12)) * np.where(at < 220, 1, 0.8) * np.exp(dice.normal(0, 0.04, 300))
    seen[lucky] *= 1.4 if 220 in lucky else 0.8
    follows = found([rule() for rule in RULES], {"train/loss": (at, loss), "eval/loss": (at, seen)})
    assert not [one for one in warned(follows) if one.rule == "loss_jump_down"]
    stays = {"train/loss": (at, loss), "eval/loss": (at, seen * np.where(at < 220, 1, 1.25))}
    assert [one for one in warned(found([rule() for rule in RULES], stays)) if one.rule == "loss_jump_down"]


@pytest.mark.parametrize("rule", ["loss_jump_down", "loss_slide"])
def test_batches_that_repeat_are_the_cause_of_a_sudden_fall(rule: str) -> None:
    loss, at, rows = falling(1000), np.arange(100, 1000, 100), np.arange(1000)
    loss[600:] *= 0.3
    evaluations = falling(1000, noise=0)[at] * np.where(at < 600, 1.0, 1.2)
    series = {"train/loss": (rows, loss), "eval/loss": (at, evaluations)}
    for repeats, cause in ((0.0, "overfitting"), (1.0, "data exhausted")):
        series["data/repeats"] = (rows, np.where(rows < 600, 0.0, repeats))
        finding = next(one for one in found([rule() for rule in RULES], series) if one.rule == rule)
        assert finding.causes[0].startswith(cause)
        assert {"overfitting", "data replayed", "data exhausted"} <= {one.partition(":")[0] for one in finding.causes}


@pytest.mark.parametrize("lows", [0, 2, 3])
def test_a_level_that_rows_before_a_fall_had_already_is_no_new_one(lows: int) -> None:
    """As of a hinge near 0, whose rows spread ever further when the curve has fallen."""
    loss = 0.29 * np.exp(np.random.default_rng(3).normal(0, 0.01, 240))
    loss[163:] *= 0.1
    loss[[145, 150, 155][:lows]] = 0.02
    assert bool([one for one in look(loss) if one.rule == "loss_jump_down" and one.step == 163]) == (lows < 3)


@pytest.mark.parametrize("seed", range(6))
def test_a_loss_that_passes_zero_does_not_fall_at_once(seed: int) -> None:
    rows = np.arange(800)
    loss = 3 * np.exp(-rows / 80) - 1.5 + 0.2 * np.random.default_rng(seed).normal(size=800)
    loss[48:56] = (0.14, 0.12, 0.03, -0.16, 0.04, 0.18, 0.05, 0.2)
    loss[40:48] = 0.4
    assert not [one for one in look(loss) if one.rule == "loss_jump_down"]


def test_stairs_at_the_borders_of_epochs_are_silent() -> None:
    step = np.arange(1200)
    loss = np.array([1.6, 1.1, 0.7, 0.45])[step // 300] * np.exp(np.random.default_rng(0).normal(0, 0.01, 1200))
    assert look(loss, epoch=step / 300) == []


def test_a_loss_that_slides_while_the_evaluation_rises_is_a_warning() -> None:
    step = np.arange(600)
    loss = 2.5 * np.exp(-np.clip(step - 300, 0, None) / 40) * np.exp(np.random.default_rng(0).normal(0, 0.03, 600))
    at = np.arange(50, 600, 50)
    series = {"train/loss": (step, loss), "eval/loss": (at, np.where(at < 320, 2.6, 3.5))}
    finding = next(one for one in found([rule() for rule in RULES], series) if one.rule == "loss_slide")
    assert finding.severity == "warning" and abs(finding.step - 300) <= 24
    series["eval/loss"] = (at, np.where(at < 320, 2.6, 2.0))
    assert not [one for one in found([rule() for rule in RULES], series) if one.rule == "loss_slide"]


@pytest.mark.parametrize(("after", "count"), [(2.75, 0), (3.5, 1)])
def test_an_evaluation_that_is_worse_by_less_than_a_batchs_noise_does_not_say_that_answers_were_seen(
    after: float, count: int
) -> None:
    step, at = np.arange(600), np.arange(50, 600, 50)
    loss = 2.5 * np.exp(-np.clip(step - 300, 0, None) / 20) * np.exp(np.random.default_rng(0).normal(0, 0.12, 600))
    series = {"train/loss": (step, loss), "eval/loss": (at, np.where(at < 320, 2.6, after))}
    assert len([one for one in found([rule() for rule in RULES], series) if one.rule == "loss_slide"]) == count


@settings(max_examples=80, deadline=None)
@given(columns(("train/loss", "train/norm", "train/lr", "eval/loss", "train/epoch")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)


def test_targets_that_are_given_away_are_critical() -> None:
    step = np.arange(600)
    loss = 2.5 * np.exp(-np.clip(step - 300, 0, None) / 4) + 0.01
    at = np.arange(50, 600, 50)
    series = {"train/loss": (step, loss), "eval/loss": (at, np.where(at < 320, 2.6, 5.0))}
    finding = next(one for one in found([rule() for rule in RULES], series) if one.rule == "loss_slide")
    assert finding.severity == "critical" and finding.causes[0].startswith("labels shifted")


def test_a_level_reached_from_one_row_to_the_next_was_its_batch() -> None:
    loss = falling(400, end=3.0)
    loss[200:210] *= 40
    assert next(one for one in look(loss) if one.rule == "loss_level").causes[0].startswith("bad batch")
    loss = falling(400, end=3.0)
    loss[200:230] *= np.exp(np.minimum(np.arange(30) / 4, 4))
    assert next(one for one in look(loss) if one.rule == "loss_level").causes[0].startswith("learning rate")


@pytest.mark.parametrize("rows", [15, 16])
def test_sixteen_equal_losses_from_the_start_are_named(rows: int) -> None:
    assert [one.rule for one in look(np.full(rows, 2.3026))] == ["frozen_loss"] * (rows == 16)


@pytest.mark.parametrize(("first", "still", "named"), [
    (1.9112, 1.9105, True),
    (2.6012, 1.9105, False),  # it has learned something, and may be done
    (1.91, 1.9, False),  # printed with so few digits
])  # fmt: skip
def test_a_loss_that_freezes_where_it_began_is_named_after_eight_rows(first: float, still: float, named: bool) -> None:
    assert [(one.rule, one.step) for one in look(np.array([first, *[still] * 9]))] == [("frozen_loss", 1)] * named


@pytest.mark.parametrize("each", [120, 240])
def test_falls_at_equal_distances_are_first_of_all_those_of_epochs(each: int) -> None:
    along = np.arange(5 * each)
    noise = np.random.default_rng(0).normal(0, 0.03, len(along))
    falls = [one for one in look(3.2 - 0.5 * (along // each) + noise) if one.rule == "loss_jump_down"]
    assert len(falls) > 2 and all(one.causes[0].startswith("data replayed") for one in falls)
    alone = [one for one in look(3.2 - 0.5 * (along >= 2 * each) + noise) if one.rule == "loss_jump_down"]
    assert [one.causes[0].startswith("data replayed") for one in alone] == [False]


@pytest.mark.parametrize(("game", "judge"), [("loss/G", "loss/D"), ("G/loss", "D/loss"), ("errG", "errD")])
def test_losses_of_players_may_rise_whatever_separates_their_names(game: str, judge: str) -> None:
    at = np.arange(300)
    loss = 0.7 * np.exp(0.6 * np.clip((at - 90) / 60, 0, 1)) * np.exp(np.random.default_rng(1).normal(0, 0.02, 300))
    other = falling(300, start=1.4, end=0.9)
    assert not warned(found([rule() for rule in RULES], {game: (at, loss), judge: (at, other)}))
    assert warned(found([rule() for rule in RULES], {"loss": (at, loss), "loss/domain": (at, other)}))


def test_a_loss_that_has_come_near_zero_may_be_zero() -> None:
    zero = [[one.rule for one in warned(look(np.array([1.9, last, *[0.0] * 30])))] for last in (0.02, 1.6)]
    assert "zero_loss" not in zero[0] and "zero_loss" in zero[1]


@pytest.mark.parametrize("steep", [0.01, 0.02, 0.03])
@pytest.mark.parametrize("jumps", [False, True])
def test_a_curve_without_noise_falls_at_once_only_where_it_leaves_its_own_course(steep: float, jumps: bool) -> None:
    at = np.arange(150)
    loss = 0.2 + 6 * np.exp(-steep * at) * np.where(jumps & (at >= 60), 0.5, 1.0)
    assert any(one.rule == "loss_jump_down" for one in look(loss)) == jumps


def test_the_loss_of_a_part_that_is_not_trained_is_not_the_training_s() -> None:
    step = np.arange(80)
    series = {"dep_loss": (step, np.zeros(80)), "tag_loss": (step, falling(80))}
    assert not [one for one in found([rule() for rule in RULES], series) if one.rule == "zero_loss"]
    series["tag_loss"] = (step, np.zeros(80))
    assert [one for one in found([rule() for rule in RULES], series) if one.rule == "zero_loss"]
