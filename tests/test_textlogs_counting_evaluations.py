"""Counts of evaluations, and best numbers, errors and scores beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_textlogs_counting import written
from textlog_readings import read

from barograph.core.roles import main_loss


def test_an_evaluation_of_another_length_moves_no_epoch(tmp_path: Path) -> None:
    lines = []
    for epoch in (1, 2, 3):
        lines += [f"Epoch: [{epoch}][{batch}/100] loss {epoch}.{batch}" for batch in (50, 100)]
        lines += [f"Test: epoch: [{epoch}][{batch}/10] loss 7.{batch}" for batch in (5, 10)]
    steps = [step for step, _ in read(written(tmp_path, lines)).series["loss"]]
    assert steps == [50, 100, 150, 200, 250, 300]


def test_a_best_so_far_behind_the_values_of_an_evaluation_leaves_them_a_row(tmp_path: Path) -> None:
    lines = [
        text
        for epoch in range(5)
        for text in (
            f"Epoch[{epoch}/60](200/200) || training loss {3 - epoch / 10:.2f} || lr 0.001",
            f"[Val] acc : {40 + epoch}.50%, loss: {3.1 - epoch / 10:.2f} || best acc : 44.10%, best loss: 2.1",
        )
    ]
    series = read(written(tmp_path, lines)).series
    assert [value for _, value in series["val loss"]] == [3.1, 3.0, 2.9, 2.8, 2.7]
    assert [value for _, value in series["val acc"]][:2] == [40.5, 41.5]


@pytest.mark.parametrize("word", ["Reward", "Loss"])
def test_a_best_so_far_behind_rows_without_a_count_leaves_them_rows(tmp_path: Path, word: str) -> None:
    path = tmp_path / "train.log"
    lines = [
        f"Time 01h 0{at}m 07s, Avg {word} {at / 8 - 0.5}, Avg Ep length {9 - at}, Best {word} 0.5" for at in range(9)
    ]
    path.write_text("\n".join(lines) + "\n")
    reading = read(path)
    (values,) = [values for name, values in reading.series.items() if word in name]
    assert [value for _, value in values] == [at / 8 - 0.5 for at in range(9)]


def test_a_sentence_with_the_best_loss_is_not_a_row(tmp_path: Path) -> None:
    lines = [f"Epoch {epoch}: train loss {3 - epoch / 10:.2f}\nstopping after 3, best loss: 0.3" for epoch in range(5)]
    assert list(read(written(tmp_path, lines)).series) == ["train loss"]


def test_an_evaluation_in_batches_is_its_last_mean_at_the_trainings_step(tmp_path: Path) -> None:
    lines = []
    for epoch in range(3):
        lines += [f"TRAINING - Epoch: [{epoch}][{at}/40]\tLoss {2 - at / 90:.3f} (2.1)" for at in (0, 13, 26, 39)]
        lines += [f"EVALUATING - Epoch: [{epoch}][{at}/10]\tLoss 1.9 ({1.7 - at / 90:.2f})" for at in (0, 4, 9)]
    reading = read(written(tmp_path, lines))
    assert reading.series["val Loss"] == [(39, 1.6), (79, 1.6), (119, 1.6)]
    assert len(reading.series["Loss"]) == 12 and not reading.restarts


def test_evaluations_in_batches_at_one_step_are_their_last(tmp_path: Path) -> None:
    lines = []
    for step in range(6):
        lines.append(f"Train: epoch: 0\titer: {step}\tLoss: {2 - step / 9:.2f} (2.1)")
        lines += [f"Test: epoch: 0\titer: {step}\tLoss: 0.5 (0.{at}4)" for at in (9, 8, 7)] if step % 3 == 2 else []
    assert read(written(tmp_path, lines)).series["test Loss"] == [(2, 0.74), (5, 0.74)]


def test_an_error_that_begins_above_one_and_falls_is_a_loss(tmp_path: Path) -> None:
    lines = ["#Epoch\tTraining Error", *(f"{at}\t{1.31 * 0.97**at:.5f}" for at in range(20))]
    assert "Training_Error loss" in read(written(tmp_path, lines)).series
    shares = ["#Epoch\tTraining Error", *(f"{at}\t{0.61 * 0.97**at:.5f}" for at in range(20))]
    assert "Training_Error" in read(written(tmp_path, shares)).series


def test_a_score_and_its_best_beside_a_loss_are_an_evaluation(tmp_path: Path) -> None:
    text = "".join(
        "".join(f"Epoch: [{at}/8] Iter:[{b}/90], Loss: {2 / (at + 1):.3f}, Acc:0.81\n" for b in (0, 30, 60))
        + f"Loss: {2.2 / (at + 1):.3f}, MeanIU:  0.4{at}, Best_mIoU:  0.4{at}\n"
        for at in range(8)
    )
    series = read(written(tmp_path, text.splitlines())).series
    assert len(series["Loss"]) == 24 and len(series["val Loss"]) == len(series["val MeanIU"]) == 8
    assert len(series["Best_mIoU"]) == 8


def test_a_best_loss_beside_a_loss_leaves_it_the_training_s(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch {at}/8 loss: {2 / (at + 1):.3f}\nloss: {2 / (at + 1):.3f}, best_loss: {2 / (at + 1):.3f}\n"
        for at in range(8)
    )
    assert "val loss" not in read(written(tmp_path, text.splitlines())).series


@pytest.mark.parametrize(("value", "is_loss"), [
    (lambda at: 0.0312345678901234 / at, True),
    (lambda at: (40 - at) / 1024, False),  # shares of 1024 examples
    (lambda at: (40 - at) / 1250, False),
    (lambda at: round(0.3 / at, 4), False),  # too few digits to tell
    (lambda at: 0.0012345678901234 * at, False),  # rises
    (lambda at: 0.2171234567890123, True),  # stays
    (lambda at: 31 / 1024, False),
    (lambda at: 0.2171, False),
])  # fmt: skip
def test_an_error_with_all_its_digits_is_a_loss(tmp_path: Path, value: Callable[[int], float], is_loss: bool) -> None:
    path = tmp_path / "fit.log"
    path.write_text("".join(f"iterations: {at}0, training error: {value(at)!r}\n" for at in range(1, 12)))
    series = read(path).series
    assert [*series] == ["training error loss" if is_loss else "training error"]
    assert main_loss(series) == ("training error loss" if is_loss else None)


def test_rows_of_another_length_and_without_a_rate_are_an_evaluation(tmp_path: Path) -> None:
    rows = [
        row
        for epoch in (1, 2, 3)
        for row in [
            *(
                f"Epoch: [{epoch}]  [{at}/7]  eta: 0:03:48  loss: {4 - epoch + at / 100}  lr: 0.0001"
                for at in (0, 3, 6)
            ),
            f"Epoch: [{epoch}]  [0/2]  eta: 0:00:03  loss: {9 - epoch}.5",
            f"Epoch: [{epoch}]  [1/2]  eta: 0:00:03  loss: {8 - epoch}.5",
        ]
    ]
    series = read(written(tmp_path, rows)).series
    assert [step for step, _ in series["loss"]] == [0, 3, 6, 7, 10, 13, 14, 17, 20]
    assert series["val loss"] == [(6, 7.5), (13, 6.5), (20, 5.5)]


def test_steps_begin_anew_below_the_evaluation_of_an_epoch(tmp_path: Path) -> None:
    rows = [
        row
        for epoch in (1, 2)
        for row in (
            f"step 20 , total_loss: 1.{9 - epoch}, data_loss: 1.2",
            f"step 40 , total_loss: 1.{7 - epoch}, data_loss: 1.1",
            f"eval valid at epoch {epoch}: auc:0.5{epoch},logloss:0.69",
        )
    ]
    reading = read(written(tmp_path, rows))
    assert reading.series["total_loss"] == [(20, 1.8), (40, 1.6), (60, 1.7), (80, 1.5)] and not reading.restarts
    assert reading.series["val auc"] == [(40, 0.51), (80, 0.52)]


def test_the_error_of_a_training_and_of_data_held_out_are_losses_by_their_course(tmp_path: Path) -> None:
    lines = [
        line
        for at in range(2, 9)
        for line in (
            f"Starting epoch {at}",
            f"Validation error: {0.03 + 0.07 * 0.83**at:.10f}",
            f"Train error: {0.01 + 0.09 * 0.81**at:.10f}",
        )
    ]
    reading = read(written(tmp_path, lines))
    assert main_loss(reading.series) == "Train error loss"
    assert [at for at, _ in reading.series["Validation error loss"]] == [2, 3, 4, 5, 6, 7, 8]
    assert set(reading.axes.values()) == {"epoch"}


def test_a_current_error_with_all_its_digits_is_a_loss(tmp_path: Path) -> None:
    lines = [f"Epochs {at * 10:8d}. Current error: {0.73 * 0.87**at:.10f}. Bit fail 7." for at in range(1, 9)]
    assert main_loss(read(written(tmp_path, lines)).series) == "Current error loss"


def test_evaluations_of_epochs_whose_rows_are_numbered_stand_behind_these(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    epoch = "Epoch = {e}\n{rows}Net saved\nValidation perplexity is {v}\n\n"
    text = ""
    for e in range(4):
        rows = "".join(f"PPL: {9 - e - at / 10:.2f}; Speed: 311.50 sps\n" for at in range(6))
        text += epoch.format(e=e + 31, rows=rows, v=9.5 - e)
    path.write_text(text)
    reading = read(path)
    assert [step for step, _ in reading.series["PPL"]] == [*range(1, 25)]
    assert reading.series["Validation perplexity"] == [(6 * (e + 1), 9.5 - e) for e in range(4)]


@pytest.mark.parametrize(("last", "evaluated"), [(6, True), (3, False)])
def test_rows_of_another_length_behind_the_first_epoch_are_an_evaluation(
    tmp_path: Path, last: int, evaluated: bool
) -> None:
    rows = [f"Epoch: [1]  [{at}/7]  eta: 0:02:11  loss: {3 - at / 10}  lr: 0.0003" for at in range(0, last + 1, 3)]
    series = read(written(tmp_path, [*rows, "Epoch: [1]  [0/1]  eta: 0:00:02  loss: 2.6"])).series
    assert len(series["loss"]) == len(rows) + (not evaluated)
    assert series.get("val loss", []) == [(last, 2.6)] * evaluated
