"""Logs of a few rows, and losses that no watched model explains: what must be found, and what must stay silent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from rule_columns import findings, noisy, only
from rule_curves import Series, falling, found, warned

from barograph.doctor.kernel.finding import Finding
from barograph.doctor.rules.gradient.vanished import GradientDecay
from barograph.doctor.rules.loss.falls import LossJumpDown
from barograph.doctor.rules.loss.learning import NotLearning
from barograph.doctor.rules.loss.others import NonFiniteSeries
from barograph.doctor.rules.loss.progress import Divergence, LossPlateau
from barograph.doctor.rules.loss.spikes import LossSpike
from barograph.doctor.rules.loss.stillness import FrozenLoss, ZeroLoss
from barograph.doctor.rules.optimizer.schedule import LearningRateZero

RULES = (Divergence, LossPlateau, NotLearning, FrozenLoss, ZeroLoss, LossJumpDown, LearningRateZero)


def look(series: Series, *rules: type) -> list[Finding]:
    """What the rules say, the same whole and in pieces."""
    longest = max(len(one[0]) for one in series.values())
    whole = found([rule() for rule in rules or RULES], series)
    assert whole == found([rule() for rule in rules or RULES], series, range(1, longest))
    return whole


def told(rule: type, columns: Mapping[str, np.ndarray], name: str) -> list[Finding]:
    """What a rule says of columns, the same whole and row by row."""
    whole = findings([rule()], columns)
    pieces = findings([rule()], columns, cuts=range(max(map(len, columns.values()))))
    assert repr(whole) == repr(pieces)
    return only(whole, name)


def rows(values: object, first: int = 1) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(values, float)
    return np.arange(first, first + len(values)), values


# -- losses that rise ---------------------------------------------------------------------------------


def test_rows_that_rise_one_after_the_other_to_above_the_first_are_a_rise() -> None:
    loss = [1.45, 1.41, 1.42, 1.43, 1.46, 1.44, 1.47, 1.5, 1.51, 1.56, 1.57, 1.61, 1.63]
    (one,) = warned(look({"train/loss": rows(loss)}))
    assert (one.rule, one.severity, one.step) == ("divergence", "warning", 2)


@pytest.mark.parametrize("loss", [
    [1.45, 1.41, 1.3, 1.2, 1.15, 1.2, 1.25, 1.28, 1.31, 1.33, 1.35, 1.36, 1.38],  # it ends below its first row
    [1.45, 1.41, 1.46, 1.43, 1.44, 1.41, 1.45, 1.42, 1.47, 1.44, 1.43, 1.46, 1.45],  # noise
    [1.42, 1.44, 1.46, 1.48, 1.5, 1.52, 1.53],  # few
])  # fmt: skip
def test_a_bump_noise_and_a_few_rows_are_not(loss: list[float]) -> None:
    assert not warned(look({"train/loss": rows(loss)}))


def test_the_last_rows_of_a_short_run_are_compared_with_its_bottom_not_with_the_way_down() -> None:
    loss = [2.4, 2.2, 2.05, 1.9, 1.75, 1.4, 1.2, 1.12, 1.1, 1.08, 1.1, 2.0, 2.4, 2.9, 3.3]
    (one,) = warned(look({"train/loss": rows(loss)}, Divergence))
    assert (one.severity, one.step) == ("warning", 12)
    assert not warned(look({"train/loss": rows([*loss[:11], 1.3, 1.2, 1.25, 1.2])}, Divergence))


@pytest.mark.parametrize("seed", range(4))
def test_a_doubling_is_seen_in_noise_of_a_third(seed: int) -> None:
    steps, noise = np.arange(2500), np.random.default_rng(seed).normal(0, 0.3, 2500)
    loss = falling(2500, 5, 1.8, 0) * np.exp(noise)
    assert not warned(found([Divergence()], {"train/loss": (steps, loss)}))
    loss[1500:] *= 2
    (one,) = warned(found([Divergence()], {"train/loss": (steps, loss)}))
    assert 1350 <= one.step <= 1550


def test_a_language_model_that_stands_at_word_frequencies_is_not_excused_by_a_little_progress() -> None:
    count = 600
    loss = np.concatenate([np.linspace(10.8, 8.2, 20), np.full(count - 20, 8.2)])
    loss *= np.exp(np.random.default_rng(0).normal(0, 0.004, count))
    loss[300:] *= 0.99
    (one,) = warned(look({"train/loss": (np.arange(count) * 10, loss)}, LossPlateau))
    assert one.severity == "warning"


# -- losses that fall at once --------------------------------------------------------------------------


def test_a_loss_that_is_a_fraction_soon_after_the_start_is_found() -> None:
    loss = (2 + 8 * np.exp(-np.arange(300) / 30)) * np.exp(np.random.default_rng(1).normal(0, 0.01, 300))
    loss[140:] *= 0.25
    (one,) = warned(look({"train/loss": rows(loss, 0)}, LossJumpDown))
    assert one.step == 140


def test_a_row_that_is_low_by_chance_does_not_hide_the_fall_behind_it() -> None:
    loss = falling(700, noise=0.012)
    loss[400] *= 0.8
    loss[440:] /= 8
    (one,) = warned(look({"train/loss": rows(loss, 0)}, LossJumpDown))
    assert one.step == 440


def test_next_to_nothing_of_a_texts_loss_within_forty_rows_is_given_away() -> None:
    loss = falling(900, noise=0.012)
    loss[500:] *= 1 - 0.95 * (1 - np.exp(-np.arange(400) / 4))
    (one,) = warned(look({"train/loss": rows(loss, 0)}, LossJumpDown))
    assert abs(one.step - 500) < 6 and one.causes[0].startswith("labels shifted")
    task = falling(900, 2.3, 1.5, 0.012)  # of ten classes: solved at once, perhaps
    task[500:] *= 1 - 0.95 * (1 - np.exp(-np.arange(400) / 4))
    assert not warned(look({"train/loss": rows(task, 0)}, LossJumpDown))


# -- losses that stand, and rates of 0 -----------------------------------------------------------------


@pytest.mark.parametrize(("value", "count", "said"), [
    (0.41702200470257402, 9, True),
    (0.417022, 9, False),  # rounded: it may move further behind
    (0.41702200470257402, 7, False),
])  # fmt: skip
def test_eight_rows_of_a_number_that_nobody_rounded_are_frozen(value: float, count: int, said: bool) -> None:
    told_of = warned(look({"train/loss": rows([0.31, *[value] * count])}, FrozenLoss))
    assert [(one.rule, one.step) for one in told_of] == [("frozen_loss", 2)] * said


@pytest.mark.parametrize(("values", "names"), [
    ({"train/loss": [2.1, 2.0], "critic/vf_loss": [math.nan] * 2}, ["non_finite_series"]),
    ({"reward": [0.5], "value loss": [math.inf]}, ["non_finite_series"]),
    ({"train/loss": [2.1, 2.0], "aux_loss": [math.nan, 0.1]}, []),
    ({"train/loss": [2.1, 2.0, 1.9, 1.8, 1.7], "aux_loss": [math.nan] * 5}, []),  # it may not be measured
])  # fmt: skip
def test_a_loss_that_is_never_a_number_is_named_in_a_log_of_a_few_rows(
    values: dict[str, list[float]], names: list[str]
) -> None:
    columns = {name: np.array(value) for name, value in values.items()}
    said = only(findings([NonFiniteSeries()], columns), "non_finite_series")
    assert [one.rule for one in said] == names


@pytest.mark.parametrize(("accuracies", "said"), [
    ((0.5, 0.5), True),
    ((0.1, 0.1), True),
    ((0.5, 0.62), False),
    ((0.4, 0.4), False),  # 1 over no whole number
])  # fmt: skip
def test_accuracies_that_are_a_guess_in_a_later_part_of_a_run_are_told(
    accuracies: tuple[float, float], said: bool
) -> None:
    at = np.arange(120, 128)
    loss = np.array([1.21, 1.4, 0.9, 0.71, 0.74, 1.1, 1.3, 1.2])
    named = {"train/accuracy": accuracies[0], "eval/accuracy": accuracies[1]}
    series = {"train/loss": (at, loss)} | {name: (at, np.full(8, share)) for name, share in named.items()}
    assert [(one.rule, one.step) for one in warned(look(series, NotLearning))] == [("not_learning", 120)] * said


@pytest.mark.parametrize("bound", [87.3365, 103.279, 16.1181, 27.631])
def test_a_loss_at_the_logarithm_of_the_smallest_number_is_critical_after_four_rows(bound: float) -> None:
    (one,) = warned(look({"train/loss": rows([21.4, *[bound] * 6])}, FrozenLoss))
    assert (one.severity, one.step) == ("critical", 2) and one.causes[0].startswith("learning rate too high")
    assert not warned(look({"train/loss": rows([21.4, *[bound * 1.001] * 6])}, FrozenLoss))


def test_a_loss_that_moved_and_stands_at_a_uniform_guess_is_not_blamed_on_the_optimizers_parameters() -> None:
    loss = [0.68, 2.46, 5.34, 1.02, 9.7, 1.99, 3.57, 0.69, *[0.6931] * 20]
    one = next(one for one in look({"train/loss": rows(loss, 0)}, FrozenLoss) if one.rule == "frozen_loss")
    assert one.causes[0].startswith("learning rate too high") and "guess among 2" in one.message
    never = next(iter(look({"train/loss": rows([0.6931] * 20)}, FrozenLoss)))
    assert never.causes[0].startswith("optimizer holds other parameters")


def test_two_zeros_beside_norms_that_are_not_finite_hide_nan() -> None:
    nan = math.nan
    (one,) = look({"train/loss": rows([0.2, 0.0, 0.0]), "train/norm": rows([nan, nan, nan])}, ZeroLoss)
    assert (one.severity, one.step) == ("critical", 2)
    assert not look({"train/loss": rows([0.2, 0.0, 0.0]), "train/norm": rows([1.0, 1.0, 1.0])}, ZeroLoss)
    assert not look({"train/loss": rows([0.2, 0.0, 0.1]), "train/norm": rows([nan, nan, nan])}, ZeroLoss)


@pytest.mark.parametrize(
    ("evaluated", "severity"),
    [
        ([0.9, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2, 0.2], "info"),
        ([0.9] * 8, "critical"),
        ([0.9, 0.95, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], "critical"),
    ],
)
def test_a_loss_that_is_printed_as_zero_while_the_evaluation_falls_is_not_what_is_trained(
    evaluated: list[float], severity: str
) -> None:
    series = {"train/loss": rows([0.9, *[0.0] * 7]), "eval/loss": rows(evaluated)}
    (one,) = look(series, ZeroLoss)
    assert one.severity == severity
    assert (one.causes[0][:15] == "loss not logged") == (severity == "info")


def test_a_rate_of_zero_in_each_row_is_a_warning_and_a_warm_up_from_zero_is_none() -> None:
    loss = rows([0.57, 0.58, 0.58, 0.57, 0.56, 0.57, 0.57])
    (one,) = warned(look({"train/loss": loss, "train/lr": rows([0.0] * 7)}, LearningRateZero))
    assert one.causes[0].startswith("learning rate too low")
    skipped = warned(look({"train/loss": rows([0.0] * 7), "train/lr": rows([0.0] * 7)}, LearningRateZero))
    assert skipped[0].causes[0].startswith("fp16 overflow")
    assert not look({"train/loss": loss, "train/lr": rows([0.0] * 4 + [1e-5] * 3)}, LearningRateZero)
    falls = rows([2.0, 1.8, 1.6, 1.4, 1.3, 1.2, 1.1])  # the rate that is logged is not the one in force
    assert not warned(look({"train/loss": falls, "train/lr": rows([0.0] * 7)}, LearningRateZero))
    assert not look({"train/loss": rows([0.5] * 4), "train/lr": rows([0.0] * 4)}, LearningRateZero)


def test_eight_epochs_at_chance_are_enough_and_seven_or_a_better_accuracy_are_not() -> None:
    loss, seen = np.array([2.3031, 2.303, 2.3029, 2.303, 2.3028, 2.3029, 2.303, 2.3027, 2.3028]), np.full(9, 2.3026)
    share = np.array([0.099, 0.1, 0.097, 0.101, 0.1, 0.099, 0.1, 0.098, 0.1])

    def series(count: int, accuracy: np.ndarray) -> Series:
        return {"train/loss": rows(loss[:count]), "eval/loss": rows(seen[:count]),
                "train/accuracy": rows(accuracy[:count]), "eval/accuracy": rows(np.full(count, 0.1))}  # fmt: skip

    (one,) = warned(look(series(9, share), NotLearning))
    assert (one.severity, one.step) == ("warning", 1) and "guess among 10" in one.message
    assert not warned(look(series(7, share), NotLearning))
    better = series(9, share) | {"eval/accuracy": rows(np.linspace(0.1, 0.3, 9))}
    assert not warned(look(better, NotLearning))


def test_epochs_that_swing_about_a_guess_while_evaluations_answer_one_class_are_one() -> None:
    columns: Series = {
        "train/loss": rows([0.712, 0.697, 0.691, 0.699, 0.694, 0.696]),
        "eval/loss": rows([0.695, 0.6927, 0.6935, 0.699, 0.6929, 0.6932]),
        "train/accuracy": rows([0.49, 0.51, 0.56, 0.5, 0.52, 0.51]),
        "eval/accuracy": rows([0.5, 0.5, 0.5, 0.54, 0.5, 0.5]),
    }

    def told_of(columns: Series) -> list[Finding]:
        return warned(found([NotLearning()], columns, counts={"train/loss": "epoch"}))

    (one,) = told_of(columns)
    assert "in the median the accuracy are those of a uniform guess among 2" in one.message
    assert not told_of(columns | {"eval/loss": rows([0.695, 0.6927, 0.6935, 0.699, 0.6929, 0.68])})
    assert not told_of(columns | {"eval/accuracy": rows([0.5, 0.5, 0.5, 0.54, 0.5, 0.55])})
    assert not told_of({name: rows(value[:5]) for name, (_, value) in columns.items()})


def test_rows_far_apart_of_which_each_loss_is_that_of_a_guess_to_four_digits_are_one() -> None:
    steps, third = np.array([0, 3, 40, 90, 200, 350, 500, 700]), math.log(3)
    loss, share = third + 1e-5 * np.array([18, 9, 4, 3, 2, 2, 1, 1]), np.array([1 / 3] * 7 + [0.4])
    (one,) = warned(look({"train/loss": (steps, loss), "train/accuracy": (steps, share)}, NotLearning))
    assert "In each of 8 rows" in one.message and "guess among 3" in one.message
    early = steps // 2
    assert not warned(look({"train/loss": (early, loss), "train/accuracy": (early, share)}, NotLearning))
    assert not warned(look({"train/loss": (steps, loss - 2e-3), "train/accuracy": (steps, share)}, NotLearning))


def test_one_number_for_the_loss_while_evaluations_above_it_move_is_told() -> None:
    seen = np.array([31.42, 31.61, 31.2, 31.55, 31.7, 31.38])
    columns: Series = {"train/loss": rows(np.full(6, 5.4417)), "eval/loss": rows(seen)}
    (one,) = warned(look(columns, NotLearning))
    assert "the training loss is 5.4417, to the last digit" in one.message
    for other in (rows(np.full(6, 31.42)), rows(seen / 10), rows(np.linspace(31.4, 29.0, 6)), rows(seen[:3])):
        assert not warned(look(columns | {"eval/loss": other}, NotLearning))
    assert not warned(look(columns | {"train/loss": rows(np.full(6, 5.4))}, NotLearning))
    assert not warned(look({name: rows(value[:5]) for name, (_, value) in columns.items()}, NotLearning))


# -- norms that go ------------------------------------------------------------------------------------


def test_a_norm_that_is_cut_off_while_the_loss_stands_is_a_warning() -> None:
    norm = noisy(600, 0.5, 0.15) * np.exp(-np.clip((np.arange(600) - 300) / 4, 0, 11.5))
    loss = np.where(np.arange(600) < 300, falling(600, noise=0), falling(600, noise=0)[300]) * noisy(600, 1, 0.01)
    (one,) = told(GradientDecay, {"train/norm": norm, "train/loss": loss}, "gradient_decay")
    assert one.severity == "warning" and 295 <= one.step <= 320
    learning = {"train/norm": norm, "train/loss": falling(600) * np.where(np.arange(600) < 300, 1, 0.5)}
    assert not findings([GradientDecay()], learning), "the loss fell with it"


def test_a_norm_that_gets_less_and_less_as_a_training_converges_is_not_cut_off() -> None:
    norm = noisy(1200, 0.5, 0.05) * np.exp(-np.arange(1200) / 60)
    loss = 0.25 * noisy(1200, 1, 1e-3) + 2 * np.exp(-np.arange(1200) / 30)
    assert not findings([GradientDecay()], {"train/norm": norm, "train/loss": loss})


# -- policies, preferences, jumps that stay -------------------------------------------------------------


def test_a_jump_among_the_first_rows_that_stays_has_not_recovered_after_three() -> None:
    at = np.arange(200)
    noise = np.random.default_rng(2).normal(0, 0.01, 200)
    loss = (2 + np.where(at < 100, 2 * np.exp(-at / 20), 1.3 * np.exp(-np.maximum(at - 100, 0) / 15))) * np.exp(noise)
    (one,) = look({"train/loss": (at * 10, loss)}, LossSpike)
    assert (one.severity, one.step) == ("warning", 1000) and one.evidence["rows"] > 15
    assert one.evidence["expected"] < 2.1


def test_ten_rows_that_go_up_and_down_are_noise_however_low_the_first_is() -> None:
    up_and_down = [2.4, 4.1, 2.9, 4.0, 2.5, 4.3, 3.5, 4.9, 3.0, 4.4]
    assert not warned(look({"train/loss": rows(up_and_down)}))
    (one,) = warned(look({"train/loss": rows([2.4, 2.1, 2.2, 2.0, *[9.0, 30.0, 41.0, 90.0, 85.0, 99.0]])}, Divergence))
    assert one.rule == "divergence"


def test_a_few_rows_that_leap_above_all_before_diverge() -> None:
    (one,) = warned(look({"train/loss": rows([1.9, 1.6, 1.5, 3.1, 6.2, 5.9, 5.1, 4.9])}, Divergence))
    assert (one.severity, one.step) == ("warning", 4)
    assert not warned(look({"train/loss": rows([1.9, 1.6, 1.5, 2.0, 2.2, 2.4, 2.5])}, Divergence))
    assert not warned(look({"train/loss": rows([1.9, 1.6, 1.5, 1.4, 1.3, 6.2, 5.9])}, Divergence))


def test_a_jump_that_the_validation_loss_does_not_share_is_an_info_finding() -> None:
    at = np.arange(1, 70)
    loss = (0.5 + 1.7 * np.exp(-at / 8)) * np.where(at >= 32, 1.5, 1) * noisy(69, 1, 0.015)
    seen = (0.6 + 1.7 * np.exp(-at / 8)) * noisy(69, 1, 0.02, 3)
    series = {"train/loss": (at, loss), "eval/loss": (at, seen)}
    assert not warned(look(series, LossSpike)) and warned(look({"train/loss": (at, loss)}, LossSpike))
    assert warned(look(series | {"eval/loss": (at, seen * np.where(at >= 32, 1.5, 1))}, LossSpike))


def test_a_loss_that_stands_far_above_an_untrained_models_is_not_blamed_on_labels() -> None:
    loss = [*(1.2 * np.exp(-np.arange(20) / 8) + 0.4), 12.1, 24.3, 24.31, 24.305, 24.31, 24.3, 24.3, 24.31]
    one = next(one for one in look({"train/loss": rows(loss)}, Divergence) if one.rule == "divergence")
    assert one.severity == "critical" and one.causes[0].startswith("learning rate too high")


@pytest.mark.parametrize("seed", range(4))
def test_evaluations_of_much_noise_are_compared_by_seven(seed: int) -> None:
    at, dice = np.arange(300), np.random.default_rng(seed)
    loss = (0.3 + 2 * np.exp(-at / 12)) * np.where(at < 220, 1, 0.5) * np.exp(dice.normal(0, 0.01, 300))
    seen = (0.5 + 2 * np.exp(-at / 12)) * np.where(at < 220, 1, 0.78) * np.exp(dice.normal(0, 0.09, 300))
    assert not warned(look({"train/loss": (at, loss), "eval/loss": (at, seen)}, LossJumpDown))
    stays = seen * np.where(at < 220, 1, 1 / 0.78)
    assert warned(look({"train/loss": (at, loss), "eval/loss": (at, stays)}, LossJumpDown))


def test_losses_that_come_again_epoch_after_epoch_to_the_last_digit_are_of_weights_that_do_not_change() -> None:
    epoch = [0.9741, 1.3742, 1.2390, 0.9670, 1.0386, 1.1681, 1.2240, 0.9610]
    (one,) = warned(look({"train/loss": rows(epoch * 3)}, FrozenLoss))
    assert one.key == "again" and one.step == 1 and one.causes[0].startswith("optimizer holds other parameters")
    assert not look({"train/loss": rows(epoch * 2)}, FrozenLoss), "twice is too little"
    learning = np.concatenate([np.array(epoch) * share for share in (1, 0.98, 0.97, 0.96)])
    assert not warned(look({"train/loss": rows(learning)}, FrozenLoss))
    few = np.round(np.random.default_rng(0).uniform(1.0, 1.3, 200), 1)  # two digits come again by chance
    assert not warned(look({"train/loss": rows(few)}, FrozenLoss))


@pytest.mark.parametrize(("end", "cause"), [(1.79, "labels shuffled"), (0.9, "labels shifted")])
def test_targets_that_are_learnt_anew_were_shifted_and_those_that_end_in_a_guess_shuffled(
    end: float, cause: str
) -> None:
    steps = np.arange(240)
    learns = 0.5 + 1.3 * np.exp(-steps / 30)
    after = end + (3.0 - end) * np.exp(-(steps - 120.0) / 15)  # sure of what is wrong now, at first
    loss = np.where(steps < 120, learns, after) * np.exp(np.random.default_rng(3).normal(0, 0.03, 240))
    (one,) = warned(found([Divergence()], {"train/loss": (steps, loss)}))
    assert one.causes[0].startswith(cause)


def test_epochs_of_which_no_evaluation_is_better_than_the_first_have_taught_nothing() -> None:
    at, dice = np.arange(30), np.random.default_rng(1)
    loss = np.linspace(0.62, 0.58, 30) * np.exp(dice.normal(0, 0.03, 30))
    correct = np.where(dice.random(30) < 0.5, 0.7265625, 0.7265625 - dice.random(30) / 10)
    correct[0] = 0.7265625
    series = {"train/loss": (at, loss), "eval/loss": (at, loss - 0.1), "eval/accuracy": (at, correct),
              "train/accuracy": (at, 0.68 + dice.normal(0, 0.01, 30))}  # fmt: skip
    (one,) = warned(look(series, NotLearning))
    assert one.key == "nothing" and one.causes[0].startswith("one class alone") and "0.7266" in one.message
    better = correct.copy()
    better[20] = 0.735
    assert not warned(look(series | {"eval/accuracy": (at, better)}, NotLearning)), "one is better"
    assert not warned(look(series | {"train/loss": (at, loss * np.linspace(1, 0.7, 30))}, NotLearning)), "it falls"
    learnt = np.linspace(0.68, 0.8, 30)
    assert not warned(look(series | {"train/accuracy": (at, learnt)}, NotLearning)), "the training gets better"
    assert not warned(look(series | {"eval/accuracy": (at, correct + 0.2)}, NotLearning)), "nearly all are right"


def test_a_loss_of_a_guess_between_two_beside_areas_of_a_half_is_one() -> None:
    at, dice = np.arange(24), np.random.default_rng(2)
    loss = math.log(2) + 0.1 * np.exp(-at / 1.5) + 0.0004 * dice.random(24)
    series = {"train/loss": (at, loss), "eval/loss": (at, loss), "accuracy": (at, dice.random(24) / 100),
              "val_auc": (at, 0.5 + dice.normal(0, 0.001, 24))}  # fmt: skip
    (one,) = warned(look(series, NotLearning))
    assert one.key == "nothing" and "guess between two" in one.message
    ranks = {"val_auc": (at, np.linspace(0.5, 0.53, 24))}
    assert not warned(look(series | ranks, NotLearning)), "it ranks a little better than by chance"
    assert not warned(look({name: series[name] for name in ("train/loss", "eval/loss")}, NotLearning))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, True),
        ({"area": 0.53}, False),  # what is hard to tell
        ({"spread": 0.06}, False),
        ({"area_of": "val_ood_auroc"}, False),  # of another question
        ({"area_of": ""}, False),
        ({"falls": 0.02}, False),  # evaluations get better
        ({"above": 0.02}, False),  # the training's loss lies elsewhere
        ({"level": 0.72}, False),  # no loss of two classes
        ({"rows": 19}, False),
    ],
)
def test_losses_that_rest_at_what_the_shares_of_labels_leave_beside_areas_of_a_half(
    changed: dict[str, Any], told: bool
) -> None:
    given = {"area": 0.48, "spread": 0.03, "area_of": "val_auc", "falls": 0.0, "above": 0.0, "level": 0.45, "rows": 26}
    given |= changed
    at, dice = np.arange(given["rows"]), np.random.default_rng(2)
    rest = given["level"] * (1 - given["falls"] * at / len(at)) * (1 + 0.001 * dice.random(len(at)))
    areas = np.where(at < 2, 0.5 + given["spread"], given["area"] + 0.003 * dice.normal(size=len(at)))
    training = (1 - given["above"]) * rest + 0.1 * np.exp(-at / 1.5)
    series = {"train/loss": (at, training), "eval/loss": (at, rest + 0.1 * np.exp(-at))}
    series["eval/hits"] = at, 0.1 + 0.01 * dice.random(len(at))
    found = warned(look(series | ({given["area_of"]: (at, areas)} if given["area_of"] else {}), NotLearning))
    assert [one.key for one in found] == ["nothing"] * told


@pytest.mark.parametrize("high", [3.0, 10.0])
@pytest.mark.parametrize("count", [3, 4])
def test_a_fall_of_a_young_run_is_the_same_in_pieces_whatever_falls_later(count: int, high: float) -> None:
    loss = (3.0 + high * np.exp(-np.arange(200) / 15)) * np.exp(0.004 * np.random.default_rng(3).normal(size=200))
    for row in range(60, 60 + count):  # row by row, none far below the one before
        loss[row:] *= 0.8
    loss[110:] *= 0.5
    columns = {"train/loss": (np.arange(200), loss), "eval/loss": (np.arange(9, 200, 10), np.full(20, 3.2))}
    whole, pieces = (
        {(one.step, one.severity) for one in findings([LossJumpDown()], columns, cuts=cuts).values()}
        for cuts in ((), range(0, 200, 7))
    )
    assert whole == pieces and whole
