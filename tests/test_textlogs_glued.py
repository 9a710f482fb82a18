"""Rows of which several stand on one line, and names that say with a letter or a sign what others spell out."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from textlog_readings import read

import barograph
from barograph.core import roles
from barograph.doctor import diagnose
from barograph.importing.textlogs import chunks


def path_of(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def run_of(folder: Path, text: str) -> barograph.StoredRun:
    path = folder / "small.log"
    path.write_text(text)
    return barograph.read(path)[0]


@pytest.mark.parametrize("form", [
    "Epoch {0}/9 | Loss: {1:.4f} | Val Acc: {2:.2f}% ", "[net-a] Epoch {0:02d}/09 | Loss: {1:.4f} | Val Acc: {2:.2f}% ",
    "Epoch {0}\tBatch {3}\tLoss: {1:.4f}\tVal Acc: {2:.2f}",
])  # fmt: skip
def test_rows_printed_one_behind_the_other_are_rows(tmp_path: Path, form: str) -> None:
    loss, right = 2 - np.arange(9) / 8, 40 + 2.0 * np.arange(9)
    text = "".join(form.format(at + 1, loss[at], right[at], 40 * (at + 1)) for at in range(9))
    run = run_of(tmp_path, text + "\n")
    np.testing.assert_allclose(run.series("train/loss").value, loss, atol=6e-5)
    np.testing.assert_allclose(run.series("eval/accuracy").value, right, atol=6e-3)
    assert set(run.names()) == {"train/loss", "eval/accuracy"}


@pytest.mark.parametrize("stamp", ["[2023/05/0{0} 09:1{0}:44] root", "2023-05-0{0} 09:1{0}:44,51{0} - INFO -"])
def test_a_loggers_lines_pasted_as_one_are_rows(tmp_path: Path, stamp: str) -> None:
    form = stamp + " epoch: [2/80], iter: {2}, lr: 0.0004, loss: {1:.5f}, cost: 3.21 s, ips: 41.2 "
    loss = 9 - np.arange(9) / 8
    text = "".join(form.format(at + 1, loss[at], 30 * at + 60) for at in range(9))
    for line in (text, "s, ips: 40.9 " + text):
        series = read(path_of(tmp_path, line + "\n")).series["loss"]
        assert [step for step, _ in series] == [*range(60, 330, 30)]
        np.testing.assert_allclose([value for _, value in series], loss, atol=6e-6)


@pytest.mark.parametrize("between", [" ", "", "\t"])
def test_dicts_printed_one_behind_the_other_are_rows(tmp_path: Path, between: str) -> None:
    rows = [
        f"{{'loss': {3 - at / 8}, 'grad_norm': 1.{at}, 'learning_rate': 4e-07, 'epoch': {at / 10}, "
        f"'global_step/max_steps': '{at}/94', 'percentage': '{at}%'}}"
        for at in range(1, 10)
    ]
    text = f"steps': '0/94'}}{between}{between.join(rows)}{between}{{'loss': 0.25, 'grad"
    assert read(path_of(tmp_path, text + "\n")).series["loss"] == [(at, 3 - at / 8) for at in range(1, 10)]


def test_a_line_that_says_other_moments_is_one() -> None:
    line = b"2023-05-01 09:11:44 loss 0.41 since 2023-05-01 09:11:02 until 2023-05-01 09:12:02 idle" + b" " * 99
    assert chunks.clean(line) == line
    wrapped = b"2023-05-01 09:11:44 stdout 2023-05-01 09:11:43,210 INFO epoch 3 loss 0.41, saved to /data/models/one\n"
    assert chunks.clean(wrapped * 9) == wrapped * 9


def test_a_row_that_names_other_epochs_is_one() -> None:
    line = b"Epoch 7/9 | loss 0.4123 | best epoch 5 | last save of epoch 6"
    assert chunks.clean(line) == line
    two = b"Epoch 1/9: loss 2.1 Epoch 2/9"
    assert chunks.clean(two) == two


def test_a_long_line_of_rows_takes_time_in_proportion() -> None:
    began = time.process_time()
    for text in (b"Epoch 1 [" * 100_000, b"[" * 300_000 + b"epoch " * 9, b"1Episode 1" * 100_000, b"} {'" * 200_000):
        chunks.clean(text)
    assert time.process_time() - began < 20


def test_t_and_v_are_training_and_validation(tmp_path: Path) -> None:
    text = "".join(f"Epoch: {at} | T_Loss {2 - at / 9:.3f} | T_acc {at / 9:.3f} | V_Loss nan | V_acc. nan\n"
                   for at in range(1, 7))  # fmt: skip
    run = run_of(tmp_path, text)
    assert {"train/loss", "train/accuracy", "eval/loss"} <= set(run.names())
    assert "evaluation_non_finite" in {one["rule"] for one in diagnose(run)["findings"]}


def test_an_error_alone_behind_its_iteration_is_the_loss_and_goes_wrong_nowhere(tmp_path: Path) -> None:
    text = "It stops where the error is lower than 0.0001\n"
    text += "".join(f"Iteration: {100 * at}\tError: {0.2 / at:.9f}\n" for at in range(1, 20))
    run = run_of(tmp_path, text + "Done: low enough error\nError: 0.000099\n")
    assert len(run.series("train/loss").value) == 19
    told = diagnose(run)
    assert not told["findings"] and not told["said"]


@pytest.mark.parametrize(("name", "role"), [
    ("train-merror", "loss"), ("validation_1-merror", "eval_loss"), ("training multi_error", "loss"),
    ("Train Acc (%)", "accuracy"), ("Val Accuracy (%)", "eval_accuracy"),
])  # fmt: skip
def test_what_boosting_and_tables_call_them(name: str, role: str) -> None:
    assert roles.plays(role, name)


def test_an_epoch_and_a_batch_with_a_dash_between(tmp_path: Path) -> None:
    text = "".join(
        f"INFO: epoch {1 + at // 5}-{1 + 100 * (at % 5)}, loss: {2 - at / 20:.3f} (me)\n" for at in range(15)
    )
    assert list(run_of(tmp_path, text).series("train/loss").step)[:7] == [1, 101, 201, 301, 401, 402, 502]


def test_a_share_of_wrong_answers_stands_behind_a_loss() -> None:
    assert roles.main_loss(["train-merror", "train-mlogloss"]) == "train-mlogloss"
    assert roles.main_evaluation(["eval-merror", "eval-mlogloss"]) == "eval-mlogloss"


@pytest.mark.parametrize("total", ["426.98", "426.9765625", "426"])
def test_a_bar_may_have_a_total_that_is_no_whole_number(tmp_path: Path, total: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"  {at}%| | {at}/{total} [00:0{at}<9:00, loss={3 - at / 10:.2f}]\n" for at in range(1, 6)))
    assert [step for step, _ in read(path).series["loss"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("words", [
    "Batch 3: Invalid loss, terminating training", "Traceback (most recent call last):\n  f()\nValueError: no",
])  # fmt: skip
def test_words_right_behind_a_bars_last_number_leave_the_row(tmp_path: Path, words: str) -> None:
    path = tmp_path / "train.log"
    bar = "".join(f" {at}/234 [.......] - ETA: 33:37 - loss: {40 + at}.411\n" for at in range(1, 4))
    path.write_text("Epoch 1/10\n" + bar[:-1] + words + "\n")
    assert [step for step, _ in read(path).series["loss"]] == [1, 2, 3]


@pytest.mark.parametrize("form", [
    "Epoch: {p}%|#  | {k}/10 [0:10<1:30, 10.0s/epoch, train loss: {l}, validation loss: {m}]",
    "  {p}%|#  | {k}/10 [0:10<1:30, 10.0s/it, train loss={l}, validation loss={m}]",
    "Epoch: {p}%|#  | {k}/10 [0:10<1:30, 10.0s/epoch, loss: {l}, validation loss: {m}]",
])  # fmt: skip
def test_a_bar_of_epochs_may_say_losses_of_training_and_validation(tmp_path: Path, form: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(form.format(p=10 * k, k=k, l=3 - k / 10, m=3.1 - k / 10) + "\n" for k in range(1, 8)))
    (run,) = barograph.read(path)
    assert list(run.series("train/loss").step) == list(run.series("eval/loss").step) == [1, 2, 3, 4, 5, 6, 7]


def test_a_bar_of_an_evaluation_is_a_row_once_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"step {step}0 loss {3 - step / 10}\n"
        + "".join(f"Validation: {k}0%|# | {k}/10 [0:01<0:09, loss: {2 + k / 10}]\n" for k in range(1, 11))
        for step in range(1, 5)
    ))  # fmt: skip
    assert set(barograph.read(path)[0].series("eval/loss").value) == {3.0}


def test_a_word_of_a_path_behind_a_bar_says_no_data(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    bar = "".join(f" {at}/9 [=>....] - ETA: 1s - loss: 2.{at} - acc: 0.0{at}\n" for at in range(5, 9))
    path.write_text("Epoch 1/1\n" + bar[:-1] + "Epoch 00000: saving model to C:\\small-test\\x.h5\n")
    assert "test/loss" not in barograph.read(path)[0].names()
