"""The same training under other names has the same findings."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from barograph.core.plain_names import plain_name
from barograph.core.roles import (
    evaluation_losses,
    is_loss_by_word,
    is_loss_of_other_data,
    is_loss_of_other_name,
    losses,
    other_sides,
    plays,
)
from barograph.core.unnamed import beside_of
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.examiner import Examiner
from barograph.doctor.kernel.registry import make_rules
from barograph.doctor.rules.rl.scaled import _of_both

STEPS, EACH = 600, 20
AT = np.arange(EACH - 1, STEPS, EACH)
ROUGH = 0.02 * np.sin(np.arange(STEPS) * 1.7)
SEEN = {"model/evaluated_rows": (AT[:-1] + 1, np.full(len(AT) - 1, 64.0))}  # at the step behind each evaluation
FALLS = 0.3 + 2.5 * np.exp(-np.arange(STEPS) / 90) + ROUGH
TRAININGS = {
    "learns": (FALLS, FALLS[AT] + 0.05),
    "memorizes": (FALLS, np.linspace(2.6, 1.4, len(AT)) + np.maximum(np.arange(len(AT)) - 12, 0) * 0.12),
    "diverges": (np.where(np.arange(STEPS) > 400, FALLS + (np.arange(STEPS) - 400) * 0.03, FALLS), FALLS[AT] + 0.05),
    "breaks": (np.where(np.arange(STEPS) > 450, np.nan, FALLS), FALLS[AT] + 0.05),
}
NAMES = [  # of the training's loss, of the evaluation's, of its accuracy
    ("train.loss", "val.loss", "val.acc"),
    ("train_loss", "val_loss", "val_acc"),
    ("train loss", "val loss", "val acc"),
    ("Train/Loss", "Test/Loss", "Test/Accuracy"),
    ("Loss/train", "Loss/val", "Accuracy/val"),
    ("loss (train)", "loss (val)", "accuracy (val)"),
    ("train/loss [nats]", "val/loss [nats]", "val/acc"),
    ("train_loss (nats)", "dev_loss (nats)", "dev_acc"),
    ("training.loss", "validation.loss", "validation.accuracy"),
    ("train_loss_step", "val_loss_epoch", "val_acc_epoch"),
    ("train/loss", "valid_unseen/loss", "valid_unseen/accuracy"),
    ("train/verlust", "val/verlust", "val/acc"),
    ("perte", "validation_perte", "validation_accuracy"),
    ("cost", "val_cost", "val_acc"),
    ("train/objective", "test/objective", "test/acc"),
    ("fit/loss", "quiz/loss", "quiz/acc"),
    ("fit.loss", "quiz.loss", "quiz.acc"),
    ("fit.ce", "quiz.ce", "quiz.accuracy"),
    ("train_ce", "quiz_ce", "quiz_accuracy"),
    ("loss", "loss_quiz", "acc_quiz"),
    ("match_step_loss", "match_ema_loss", "match_ema_acc"),
]


@cache
def found(training: str, names: tuple[str, str, str]) -> list[tuple[str, int, str]]:
    examiner = Examiner(make_rules({}, ()))
    loss, evaluation = TRAININGS[training]
    columns = {names[0]: (np.arange(STEPS), loss), names[1]: (AT, evaluation), **SEEN,
               names[2]: (AT, np.linspace(0.3, 0.8, len(AT)))}  # fmt: skip
    for low in range(0, STEPS, 100):
        for name, (steps, values) in columns.items():
            some = (steps >= low) & (steps < low + 100)
            examiner.seen.add(name, steps[some], values[some], steps[some] * 1_000_000 + 1, steps[some] * 0 + 1)
        examiner.examine()
    examiner.seen.facts["finished"] = True
    examiner.catch_up()
    roles = [examiner.seen.role(role) for role in ("loss", "eval_loss", "eval_accuracy")]
    assert [one.name if one is not None else None for one in roles] == list(names)
    return sorted((finding.rule, finding.step, finding.severity) for finding in examiner.findings)


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("names", NAMES)
def test_a_training_under_other_names_has_the_same_findings(names: tuple[str, str, str], training: str) -> None:
    expected = found(training, ("train/loss", "val/loss", "val/accuracy"))
    assert found(training, names) == expected
    assert bool(expected) == (training != "learns")


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Val.Loss", "val/loss"), ("loss (val)", "loss/val"), ("loss [nats/token]", "loss"), ("Loss(bits)", "loss"),
     ("mfu (%)", "mfu_(%)"), ("grad_2.0_norm", "grad_2.0_norm"), ("a/b.c", "a/b.c"), ("layers.0.loss", "layers/0/loss"),
     ("(val)", "/val")],
)  # fmt: skip
def test_a_name_is_read_in_one_way_however_it_is_written(name: str, plain: str) -> None:
    assert plain_name(name).strip("/") == plain.strip("/")


@pytest.mark.parametrize(
    ("loss", "name", "told"),
    [("gd_step_loss", "gd_ema_loss", True), ("align-infonce", "align-held-infonce", True),
     ("fit_loss", "fit_epoch_loss", False), ("fit_loss", "fit_running_loss", False), ("fit_loss", "fit_rank", False),
     ("fit_loss", "fit_accuracy", False)],
)  # fmt: skip
def test_a_word_in_the_middle_tells_what_may_be_a_loss(loss: str, name: str, told: bool) -> None:
    assert is_loss_by_word(name, loss) == told


@pytest.mark.parametrize(
    ("loss", "name", "told"),
    [("train_loss", "quiz_loss", True), ("iter_loss", "quiz_loss", False), ("train_loss", "quiz_size", False),
     ("train.ce", "quiz.ce", True), ("train_loss", "aux_loss", False)],
)  # fmt: skip
def test_underscores_tell_a_loss_of_other_data_beside_one_of_the_training(loss: str, name: str, told: bool) -> None:
    assert is_loss_of_other_name(name, loss) == told


@pytest.mark.parametrize(
    ("loss", "name", "told"),
    [("game_bits", "game_val_bits", True), ("train_err", "val_err", True), ("xent", "xent_unseen", True),
     ("train_err", "val_acc", False), ("game_bits", "game_value_bits", False), ("nce", "heldout_nce", True),
     ("train/err", "val/err", True), ("train/err", "val/acc", False), ("train/loss", "val/err", False),
     ("err/train", "err/val", True), ("loss", "val", False)],
)  # fmt: skip
def test_a_word_for_the_data_in_the_name_of_the_loss_tells_one_of_other_data(loss: str, name: str, told: bool) -> None:
    assert is_loss_of_other_data(name, loss) == told


def test_measures_stand_beside_a_loss_by_its_first_words_or_its_last() -> None:
    names = ["quiz_loss", "quiz_acc", "acc_quiz", "quiz.f1", "loss"]
    assert beside_of(names, "quiz_loss") == [("quiz_acc", "acc")]
    assert beside_of(names, "loss_quiz") == [("acc_quiz", "acc")]
    assert beside_of(names, "quiz.loss") == [("quiz.f1", "f1")]
    assert beside_of(names, "loss") == []


@pytest.mark.parametrize(
    ("name", "other"),
    [("kto/good_reward", "kto/bad_reward"), ("Kto/GoodReward", "Kto/BadReward"), ("good_reward/train",
     "bad_reward/train"), ("train_good_reward_step", "train_bad_reward_step")],
)  # fmt: skip
def test_the_rewards_of_both_sides_are_known_in_capitals_and_with_a_last_word(name: str, other: str) -> None:
    assert plays("chosen_reward", name) and other in other_sides(name)


@pytest.mark.parametrize("name", ["quiz_loss", "viz_loss", "weekly/loss", "latest_loss", "interval/loss"])
def test_letters_of_another_word_make_no_part_of_a_loss(name: str) -> None:
    assert plays("loss", name)
    assert not any(plays("loss", other) for other in ("moe/z_loss", "router_zloss", "kl_loss", "test_loss", "val_loss"))


@pytest.mark.parametrize("name", ["val_chosen_reward", "chosen_reward_eval", "Loss/GoodReward/test"])
def test_rewards_of_data_held_out_are_none_of_the_training(name: str) -> None:
    assert not plays("chosen_reward", name)


@pytest.mark.parametrize(
    "names",
    [("pref/loss", "check/loss", "pref/gap", "check/gap"), ("loss", "loss_val", "gap", "gap_val"),
     ("train_loss", "val_loss", "train_gap", "val_gap"),
     ("dpo/loss", "dpo_eval/loss", "dpo/gap", "dpo_eval/gap"), ("Loss/train", "Loss/val", "Gap/train", "Gap/val"),
     ("loss/train", "loss/test", "gap/train", "gap/test"), ("train/loss", "test/loss", "train/gap", "test/gap")],
)  # fmt: skip
def test_margins_of_both_sides_are_found_beside_their_losses(names: tuple[str, str, str, str]) -> None:
    seen = RunHistory()
    for name in names:
        seen.add(name, AT, FALLS[AT], AT * 1_000_000 + 1, AT * 0 + 1)
    assert losses(names)[:1] == (names[0],) and evaluation_losses(names)[:1] == (names[1],)
    assert [(word.lower(), ours.name, theirs.name) for word, ours, theirs in _of_both(seen)] == [("gap", *names[2:])]
