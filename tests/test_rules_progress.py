"""Divergence, plateaus, no learning, first losses, and what only looks like them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from rule_curves import columns, falling, found, warned

from barograph.doctor.kernel.curve import bend
from barograph.doctor.rules.loss.learning import NotLearning
from barograph.doctor.rules.loss.progress import RULES, LossPlateau


def look(loss: np.ndarray, step: int = 1, facts: dict | None = None, evaluations=None, **more: np.ndarray):
    steps = np.arange(len(loss)) * step
    series = {"train/loss": (steps, loss)} | {f"train/{name}": (steps, values) for name, values in more.items()}
    if evaluations is not None:
        series["eval/loss"] = evaluations
    return found([rule() for rule in RULES], series, **(facts or {}))


def cosine(count: int, peak: float = 3e-4, warm: int = 20) -> np.ndarray:
    along = np.arange(count)
    return peak * np.where(along < warm, (along + 1) / warm, 0.55 + 0.45 * np.cos(np.pi * along / count))


@pytest.mark.parametrize(("rows", "step"), [(2000, 1), (300, 1), (60, 100)])
def test_a_loss_that_rises_and_stays_is_critical_since_the_rise_starts(rows: int, step: int) -> None:
    loss = falling(rows)
    begin = rows // 2
    loss[begin:] *= 1 + 1.5 * (1 - np.exp(-np.arange(rows - begin) / (rows * 0.03)))
    finding = next(one for one in look(loss, step, lr=cosine(rows)) if one.rule == "divergence")
    assert finding.severity == "critical" and finding.kind == "divergence"
    assert abs(finding.step / step - begin) <= max(3, 0.03 * rows)
    assert finding.found >= finding.step and "learning rate" in finding.remedies[0]


def test_a_slow_rise_is_found_where_it_begins() -> None:
    loss = falling(3000)
    loss[1500:] *= 1 + 0.7 * np.arange(1500) / 1500
    finding = next(one for one in look(loss) if one.rule == "divergence")
    assert finding.severity != "info" and abs(finding.step - 1500) < 150


def test_a_rise_above_the_start_in_the_warmup_is_critical() -> None:
    along = np.arange(400)
    loss = 10.8 * np.exp(0.6 * (1 - np.exp(-along / 60)) + np.random.default_rng(0).normal(0, 0.02, 400))
    finding = next(one for one in look(loss, lr=along * 1e-6) if one.rule == "divergence")
    assert finding.severity == "critical" and finding.step < 20


def test_a_training_loss_that_rises_while_validation_falls_is_an_info_finding() -> None:
    plain = falling(2000)
    at = np.arange(100, 2000, 100)
    loss = plain * (1 + 0.8 * np.linspace(0, 1, 2000) ** 1.5)
    assert not warned(look(loss, evaluations=(at, plain[at])))
    assert warned(look(loss, evaluations=(at, loss[at])))


def test_warming_up_again_is_an_info_finding() -> None:
    loss, rate = falling(2000), cosine(2000)
    rate[1200:] = 0.8 * cosine(800, warm=80)
    loss[1200:] *= 1 + 0.2 * np.clip(np.arange(800) / 80, 0, 1) * np.exp(-np.clip(np.arange(800) - 80, 0, None) / 400)
    assert not warned(look(loss, lr=rate))


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.04])
def test_noisy_evaluations_excuse_a_training_loss_as_quiet_ones_do(noise: float) -> None:
    at = np.arange(60)
    for seed in range(6):
        dice = np.random.default_rng(seed)
        course = 0.5 + 1.8 * np.exp(-at / 8)
        loss = course * np.where(at >= 30, 2.4, 1.0) * np.exp(dice.normal(0, 0.01, 60))
        seen = 1.1 * course * np.exp(dice.normal(0, noise, 60))
        assert not [one for one in warned(look(loss, evaluations=(at, seen))) if one.rule == "divergence"]
        worse = seen * np.where(at >= 30, 1.5, 1.0)
        assert [one for one in warned(look(loss, evaluations=(at, worse))) if one.rule == "divergence"]


def few(rows: int, last: np.ndarray, noise: float = 0.03, seed: int = 0) -> np.ndarray:
    """A short run that falls from 2.4 to 1.1, and its last rows times these factors."""
    loss = (1.1 + 1.3 * np.exp(-np.arange(rows) / (rows / 8))) * np.exp(
        np.random.default_rng(seed).normal(0, noise, rows)
    )
    loss[rows - len(last) :] *= last
    return loss


@pytest.mark.parametrize("rows", [16, 20, 30, 50])
def test_the_last_rows_of_a_short_run_are_enough_where_each_is_above_all_before(rows: int) -> None:
    (one,) = warned(look(few(rows, np.linspace(2, 3, 4)), step=50))
    assert (one.rule, one.severity) == ("divergence", "warning") and abs(one.step - 50 * (rows - 4)) <= 50


@pytest.mark.parametrize("last", [[2.5], [2, 2.5, 3], [1.2] * 5, [2, 3, 1, 2, 3], [1.0] * 4])
def test_fewer_or_lower_ones_are_not(last: list[float]) -> None:
    for rows in (16, 20, 30, 50):
        seen = look(few(rows, np.array(last)), step=50)
        assert not [one for one in warned(seen) if one.rule == "divergence"]


@pytest.mark.parametrize("seed", range(20))
def test_short_runs_of_mere_noise_do_not_diverge_at_their_end(seed: int) -> None:
    for rows in (14, 25, 60):
        assert not [one for one in warned(look(few(rows, np.ones(1), 0.45, seed), 10)) if one.rule == "divergence"]


def test_a_short_runs_last_rows_are_excused_as_any_rise_is() -> None:
    loss, at = few(30, np.full(6, 2.5)), np.arange(30)
    assert not [one for one in warned(look(loss, evaluations=(at, few(30, np.ones(1), 0)))) if one.rule == "divergence"]


@pytest.mark.parametrize(("end", "severity"), [(0.85, "info"), (0.99, "critical")])
def test_a_long_rise_from_the_start_is_over_once_the_loss_is_below_its_start(end: float, severity: str) -> None:
    at = np.arange(900)
    course = np.where(at < 60, 6.2 + 2.4 * at / 60, 6.2 * end + (8.6 - 6.2 * end) * np.exp(-(at - 60) / 120))
    loss = course * np.exp(np.random.default_rng(0).normal(0, 0.01, 900))
    finding = next(one for one in look(loss) if one.rule == "divergence")
    assert finding.severity == severity and ("falls below its start" in finding.message) == (severity == "info")


@pytest.mark.parametrize("seed", range(5))
def test_fine_tuning_stairs_and_noise_are_silent(seed: int) -> None:
    dice = np.random.default_rng(seed)
    along = np.arange(1200)
    level = np.array([1.6, 1.1, 0.7, 0.45])[along // 300] * (1 + 0.1 * (along % 300) / 300)
    loss = level * np.exp(dice.normal(0, 0.15, 1200))
    assert not warned(look(loss, epoch=along / 300))
    assert not warned(look(loss))
    assert not warned(look(falling(1500, noise=0.3, seed=seed)))
    assert not warned(look(falling(40, noise=0.02, seed=seed), 100))


def test_a_curriculum_step_is_no_warning() -> None:
    loss = falling(1500)
    loss[700:] *= 1 + 0.15 * np.exp(-np.arange(800) / 500)
    assert not warned(look(loss))


def test_games_are_not_looked_at() -> None:
    dice = np.random.default_rng(0)
    steps = np.arange(1000)
    series = {name: (steps, np.exp(np.cumsum(dice.normal(0, 0.05, 1000)))) for name in ("train/d_loss", "train/g_loss")}
    assert not warned(found([rule() for rule in RULES], series))


def test_the_bend_is_found() -> None:
    dice = np.random.default_rng(0)
    flat, noise = np.zeros(60), dice.normal(0, 0.05, 120)
    assert abs(bend(np.concatenate([flat, np.arange(60) * 0.02]) + noise) - 60) < 8
    assert abs(bend(np.concatenate([flat, np.full(60, 0.5)]) + noise) - 60) <= 1


def test_a_model_that_knows_word_frequencies_alone_stands_on_a_plateau() -> None:
    along = np.arange(3000)
    loss = (7.4 + 3.4 * np.exp(-along / 60)) * np.exp(np.random.default_rng(0).normal(0, 0.01, 3000))
    finding = next(one for one in look(loss) if one.rule == "plateau")
    assert finding.severity == "warning" and finding.step < 500


def test_a_converged_loss_is_an_info_finding_and_one_under_a_decayed_rate_nothing() -> None:
    along = np.arange(3000)
    loss = (1.9 + 0.4 * np.exp(-along / 40)) * np.exp(np.random.default_rng(0).normal(0, 0.01, 3000))
    assert [one.severity for one in look(loss, lr=np.full(3000, 1e-4)) if one.rule == "plateau"] == ["info"]
    assert not [one for one in look(loss, lr=np.where(along < 500, 1e-4, 1e-6)) if one.rule == "plateau"]


@pytest.mark.parametrize("answers", [257, 50257])
def test_a_loss_that_stays_that_of_a_guess_is_not_learning(answers: int) -> None:
    loss = math.log(answers) * np.exp(np.random.default_rng(0).normal(0, 0.003, 900))
    first = next(one for one in look(loss[:300]) if one.rule == "not_learning")
    assert (first.severity, first.step) == ("warning", 0)
    assert next(one for one in look(loss) if one.rule == "not_learning").severity == "critical"


@pytest.mark.parametrize(("counts", "found_it"), [({}, False), ({"train/loss": "row"}, True)])
def test_rows_without_steps_are_counted_themselves(counts: dict[str, str], found_it: bool) -> None:
    loss = math.log(2) * np.exp(np.random.default_rng(0).normal(0, 0.001, 60))
    seen = look(loss, facts={"counts": counts}, lr=cosine(60, warm=3))
    assert [one.severity for one in seen if one.rule == "not_learning"] == ["warning"] * found_it


@pytest.mark.parametrize("level", [4.9, 7.3])
def test_no_number_of_answers_is_said_that_the_run_does_not_have(level: float) -> None:
    noise = np.random.default_rng(0).normal(0, 0.03, 900)
    (still,) = [one for one in look(level + noise) if one.rule == "not_learning"]
    assert still.severity == "critical" and "among" not in still.message
    slowly = level - 2 + 2 * np.exp(-np.arange(900) / 3000) + noise
    assert not [one for one in look(slowly) if one.rule == "not_learning"]


@pytest.mark.parametrize(("last", "warned"), [(2.05, False), (2.29, True)])
def test_a_loss_whose_evaluation_falls_is_that_of_the_last_batch(last: float, warned: bool) -> None:
    loss = 2.1 + np.random.default_rng(1).normal(0, 0.004, 30)
    evaluations = (np.arange(30), np.linspace(2.3, last, 30))
    seen = look(loss, facts={"counts": {"train/loss": "epoch"}}, evaluations=evaluations)
    assert [one.severity for one in seen if one.rule == "not_learning"] == ["warning"] * warned


def test_a_loss_that_hardly_falls_after_the_warmup_is_told_of() -> None:
    loss = 5.55 - 0.2 * np.linspace(0, 1, 300) + np.random.default_rng(0).normal(0, 0.03, 300)
    finding = next(one for one in look(loss, lr=cosine(300, 3e-7)) if one.rule == "not_learning")
    assert finding.severity == "warning" and finding.causes[0] == "learning rate too low"


def test_a_classifier_at_chance_is_told_by_loss_and_accuracy() -> None:
    dice = np.random.default_rng(0)
    loss = math.log(6) + dice.normal(0, 0.03, 260)
    accuracy = dice.binomial(32, 1 / 6, 260) / 32
    finding = next(one for one in look(loss, accuracy=accuracy) if one.key == "guess")
    assert (finding.severity, finding.step, finding.evidence["classes"]) == ("warning", 0, 6)
    assert not warned(look(loss, accuracy=np.minimum(accuracy + 0.3, 1)))


def test_a_model_that_goes_on_from_a_checkpoint_is_no_warning() -> None:
    for level in (1.4, 2.1, 2.8):
        loss = level * np.exp(np.random.default_rng(0).normal(0, 0.02, 1000))
        assert not warned(look(loss, lr=np.full(1000, 1e-5)))


@pytest.mark.parametrize(
    ("figures", "training", "says"),
    [
        ({}, 1.2, True),
        ({"softmax_twice": 0.0, "loss_weight": 1.0}, 1.2, False),  # one softmax, and a model that learns slowly
        ({"softmax_twice": 0.0, "loss_weight": 1.0}, 0.3, True),  # the evaluation alone has two
        ({"activation_twice": 0.0, "loss_classes": 4.0}, 1.2, False),  # outputs are logarithms of chances
        ({"activation_twice": 0.0, "loss_classes": 4.0}, 0.3, True),
        ({"activation_twice": 0.0}, 1.2, True),  # of a loss of another kind
        ({"softmax_twice": 0.0}, 1.2, True),  # of a softmax outside of the model nothing is known
    ],
)
def test_a_loss_on_the_line_of_two_softmaxes_has_one_where_its_gradient_is_that_of_one(
    figures: dict, training: float, says: bool
) -> None:
    steps = np.arange(0, 60, 6)
    accuracy = 0.35 + 0.05 * np.arange(10)
    watched = {f"model/{name}": (np.arange(2, 3), np.full(1, value)) for name, value in figures.items()}
    rows = {
        "train/loss": (np.arange(60), np.linspace(1.6, training, 60)),
        "eval/loss": (steps, np.log(1 + 3 / np.e) + 1 - accuracy + 0.05), "eval/accuracy": (steps, accuracy),
    } | watched  # fmt: skip
    told = found([rule() for rule in RULES], rows, config={"num_classes": 4})
    assert ("double_softmax" in {one.rule for one in told}) == says


@settings(max_examples=60, deadline=None)
@given(columns(("train/loss", "train/lr", "eval/loss", "train/epoch", "train/accuracy")))
def test_pieces_of_any_size_give_the_same_findings_and_nothing_raises(drawn) -> None:
    series, cuts = drawn
    assert found([rule() for rule in RULES], series, cuts) == found([rule() for rule in RULES], series)


@settings(max_examples=10, deadline=None)
@given(columns(("train/loss", "train/lr")))
def test_findings_are_known_after_they_begin(drawn) -> None:
    for one in found([rule() for rule in RULES], drawn[0], vocabulary=300):
        assert one.step <= one.found and one.step <= one.last_step and 0 <= one.confidence <= 1


def risen(at_once: bool, back: float = 0.0, rate: np.ndarray | None = None):
    loss, along = falling(1000), np.clip(np.arange(1000) - 600, 0, None)
    rise = np.where(np.arange(1000) >= 600, 0.8, 0.0) if at_once else 0.8 * (1 - np.exp(-along / 60))
    loss *= np.exp(rise * (1 - back * (1 - np.exp(-along / 12))))
    more = {"lr": cosine(1000) if rate is None else rate}
    return next(one for one in look(loss, **more) if one.rule == "divergence")


def test_a_loss_that_leaps_from_one_row_to_the_next_accuses_the_labels() -> None:
    assert risen(True).causes[0].startswith("labels shuffled")
    assert risen(True, back=0.5).causes[0].startswith("labels shifted")
    assert risen(False).causes[0].startswith("learning rate too high")
    leap = np.where(np.arange(1000) >= 600, 1e-2, 1e-3)
    assert risen(True, rate=leap).causes[0].startswith("learning rate too high")


def blank(loss: float, log_z: float, **more: np.ndarray):
    """A run of 300 rows whose loss hovers, and what the watch saw of its weights."""
    steps, dice = np.arange(300), np.random.default_rng(0)
    series = {"train/loss": (steps, loss * np.exp(dice.normal(0, 0.004, 300))), "train/lr": (steps, cosine(300))}
    series["model/log_z"] = (steps[::10], np.full(30, log_z))
    series |= {f"model/{name}": (steps, values) for name, values in more.items()}
    return next(one for one in found([rule() for rule in RULES], series) if one.rule == "not_learning")


def test_a_loss_that_began_as_log_z_and_stays_is_that_of_a_model_that_knows_nothing() -> None:
    assert blank(2.7, 2.8).severity == "warning" and "log Z" in blank(2.7, 2.8).message
    assert blank(2.7, 9.0).severity == "info"


def test_how_far_weights_were_moved_says_why_nothing_is_learnt() -> None:
    flat = np.full(300, 20.0)
    for cause, norms, update in (
        ("learning rate too low", flat, 1e-5),
        ("labels shuffled", flat, 3e-3),
        ("learning rate too high", flat * np.linspace(1, 2, 300), 3e-3),
        ("weight decay too high", flat * np.exp(-np.arange(300) / 80), 3e-3),
    ):
        finding = blank(2.7, 2.8, param_norm=norms, update_p50=np.full(300, update))
        assert finding.causes[0].startswith(cause)
    assert blank(2.7, 2.8, flow_p50=flat).causes[0].startswith("optimizer holds other parameters")
    raw = {"input_mean": np.full(300, 120.0), "input_std": np.full(300, 60.0)}
    finding = blank(2.7, 2.8, param_norm=flat, update_p50=np.full(300, 3e-3), **raw)
    assert finding.causes[0].startswith("inputs not normalised") and finding.causes[1].startswith("labels shuffled")


def test_a_model_that_had_learnt_and_lost_it_is_not_slow_from_the_start() -> None:
    loss = np.where(np.arange(400) < 120, 5.0 * np.exp(-np.arange(400) / 60), 4.9)
    steps = np.arange(400)
    series = {"train/loss": (steps, loss), "train/lr": (steps, cosine(400)), "model/log_z": (steps, np.full(400, 5.0))}
    assert not [one for one in found([rule() for rule in RULES], series) if one.key == "slow"]


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
@pytest.mark.parametrize("level", [10.82, 6.9, math.log(10), math.log(100)])
def test_a_noisy_loss_that_stays_at_a_guess_is_told(level: float, noise: float) -> None:
    loss = level * np.exp(noise * np.random.default_rng(int(level * 100)).normal(size=1500))
    (finding,) = [one for one in look(loss) if one.rule == "not_learning"]
    assert finding.severity == "critical" and finding.step == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_noisy_loss_that_falls_slowly_from_a_guess_learns(seed: int) -> None:
    along = np.arange(1500)
    loss = math.log(10) * (1 - 0.25 * along / 1500) * np.exp(0.03 * np.random.default_rng(seed).normal(size=1500))
    assert not [one for one in look(loss) if one.rule == "not_learning" and one.severity != "info"]


@pytest.mark.parametrize("names", [("rollout/ep_rew_mean",), ("policy_loss", "value_loss"), ("d_loss", "g_loss")])
def test_a_sum_of_players_losses_may_rise(names: tuple[str, ...]) -> None:
    loss = np.linspace(0.05, 3, 500) * np.exp(0.3 * np.random.default_rng(1).normal(size=500))
    series = {"train/loss": (np.arange(500), loss)} | {name: (np.arange(500), loss * 2) for name in names}
    assert not warned(found([rule() for rule in RULES], series))
    assert warned(found([rule() for rule in RULES], {"train/loss": series["train/loss"]}))


def test_a_plateau_within_its_own_noise_goes_on() -> None:
    random = np.random.default_rng(4)
    loss = np.concatenate([[10.8, 10.2, 9.4, 8.7, 8.3, 8.0], 7.6 * np.exp(0.02 * random.normal(size=394))])
    (finding,) = [one for one in look(loss, step=10) if one.rule == "plateau"]
    assert finding.severity == "warning" and "fell again" not in finding.message


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_that_begins_to_fall_late_learns_after_all(seed: int) -> None:
    along = np.arange(1000)
    loss = 4.85 * (1 - 0.75 * np.where(along < 250, 0, 1 - np.exp(-(along - 250) / 120)))
    loss *= np.exp(0.01 * np.random.default_rng(seed).normal(size=1000))
    assert not [one for one in look(loss, step=5) if one.rule == "not_learning" and one.severity != "info"]


@pytest.mark.parametrize("classes", [2, 100])
def test_twenty_epochs_at_a_guess_are_enough(classes: int) -> None:
    epochs, guess = np.arange(40), np.log(classes)
    noise = np.random.default_rng(3).normal(0, 5e-4, (2, 40))
    series = {"train/loss": (epochs, guess * (1 + noise[0])), "eval/loss": (epochs, guess * (1 + noise[1]))}
    (one,) = (each for each in found([NotLearning()], series) if each.rule == "not_learning")
    assert one.severity == "warning" and "20 rows" in one.message and f"among {classes}" in one.message
    (said,) = found([NotLearning()], series, counts={"train/loss": "epoch"})
    assert "20 epochs" in said.message  # as the log calls them
    steps = {"train/loss": series["train/loss"]}
    assert not found([NotLearning()], steps)  # forty steps say nothing yet
    learns = guess * np.exp(-np.arange(40) / 60)
    assert not found([NotLearning()], {"train/loss": (epochs, learns), "eval/loss": (epochs, learns)})


@pytest.mark.parametrize(("decay", "cause"), [(30.0, "weight decay too high"), (0.1, "optimizer holds")])
def test_a_decay_that_takes_a_hundredth_of_the_weights_in_each_step_is_the_first_cause(
    decay: float, cause: str
) -> None:
    epochs, guess = np.arange(40), np.log(2)
    loss = guess * (1 + np.random.default_rng(3).normal(0, 5e-4, 40))
    series = {"train/loss": (epochs, loss), "eval/loss": (epochs, loss), "lr": (epochs, np.full(40, 3e-3))}
    (one,) = (
        each for each in found([NotLearning()], series, config={"weight_decay": decay}) if each.severity != "info"
    )
    assert one.causes[0].startswith(cause)


def annealed(count: int = 16) -> np.ndarray:
    return 1e-6 * (1 + np.cos(np.pi * np.arange(count) / count))


@pytest.mark.parametrize(
    ("falls", "rates", "told"),
    [
        (annealed() * 500, annealed(), True),
        (np.full(16, 5e-4), None, True),
        (np.full(16, 5e-4), annealed(), False),  # it learns as well with next to no rate
        (5e-3 * 0.7 ** np.arange(16), None, False),  # what was learnt is learnt
        (np.full(16, 3e-3), None, False),  # a twentieth is something
        (np.where(np.arange(16) == 9, -1e-4, 5e-4), None, False),
    ],
)
def test_evaluations_that_fall_evenly_and_hardly_have_too_low_a_rate(
    falls: np.ndarray, rates: np.ndarray | None, told: bool
) -> None:
    epochs, loss = np.arange(16), 0.73 * (1 - np.cumsum(falls))
    noise = 1 + 1e-3 * np.random.default_rng(0).normal(size=16)
    series = {"train_loss": (epochs, loss * noise), "val_loss": (epochs, loss)}
    series |= {"lr": (epochs, rates)} if rates is not None else {}
    one = [each.causes[0] for each in warned(found([NotLearning()], series)) if each.key == "evenly"]
    assert [cause.startswith("learning rate too low") for cause in one] == [True] * told


@pytest.mark.parametrize("seed", range(6))
def test_a_plateau_of_noise_alone_does_not_fall_again(seed: int) -> None:
    loss = 7.6 + 0.15 * np.random.default_rng(seed).normal(size=1200)
    loss[:6] = np.linspace(10.8, 8, 6)
    (one,) = found([LossPlateau()], {"train/loss": (10 * np.arange(1200), loss)})
    assert one.severity == "warning" and "fell again" not in one.message
    loss[800:] = 7.6 * np.exp(-np.arange(400) / 800)
    (one,) = found([LossPlateau()], {"train/loss": (10 * np.arange(1200), loss)})
    assert one.severity == "info" and "fell again" in one.message


@pytest.mark.parametrize(
    ("rows", "apart", "rate", "warns"),
    [
        (40, 100, True, True),
        (40, 100, False, False),
        (60, 100, False, True),
        (60, 20, True, False),
        (300, 1, False, False),
    ],
)
def test_thirty_rows_far_apart_tell_that_a_model_hardly_learns(rows: int, apart: int, rate: bool, warns: bool) -> None:
    loss = (10.9 - 0.3 * np.linspace(0, 1, rows)) * np.exp(np.random.default_rng(1).normal(0, 0.003, rows))
    more = {"lr": cosine(rows, warm=3)} if rate else {}
    slow = [one for one in look(loss, apart, **more) if one.key == "slow"]
    assert [one.severity for one in slow] == ["warning"] * warns
    learns = (3.5 + 7.4 * np.exp(-np.arange(rows) / (rows / 20))) * loss / 10.9
    assert not [one for one in look(learns, apart, **more) if one.key == "slow"]


def test_a_slow_begin_is_an_info_finding_once_the_model_has_learnt() -> None:
    loss = 4.8 + 0.27 * np.exp(-np.arange(1000) / 40) + np.random.default_rng(0).normal(0, 0.01, 1000)
    rates = cosine(1000, 3e-4)
    still = [one for one in look(loss, lr=rates) if one.key == "slow"]
    assert [one.severity for one in still] == ["warning"]
    loss[300:] *= 0.2 + 0.8 * np.exp(-np.arange(700) / 100)
    learnt = [one for one in look(loss, lr=rates) if one.key == "slow"]
    assert [one.severity for one in learnt] == ["info"] and "it fell to" in learnt[0].message


@pytest.mark.parametrize(("first", "found"), [(0.18, False), (0.05, True)])
def test_a_mean_that_begins_low_and_stands_still_since_is_no_divergence(first: float, found: bool) -> None:
    loss = np.array([first, 0.305, 0.3116, 0.3074, 0.3097, 0.3102, 0.307, 0.3086, 0.3081])
    assert any(one.rule == "divergence" and one.severity != "info" for one in look(loss)) is found
