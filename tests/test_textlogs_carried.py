"""Values that are printed again in rows to which they do not belong are read where they are new."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

from barograph.doctor import diagnose


def write(folder: Path, text: str) -> Path:
    path = folder / "small.log"
    path.write_text(text)
    return path


def test_the_last_evaluation_that_each_row_of_the_training_says_again_is_one(tmp_path: Path) -> None:
    text = "".join(
        f"iter {step} | loss: {4 - step / 40:.3f}, val_loss: {3.917 - (step // 12) / 8:.4f}\n" for step in range(6, 60)
    )
    path = write(tmp_path, text)
    series = read(path).series
    assert len(series["loss"]) == 54
    assert series["val_loss"] == [(step, pytest.approx(3.917 - (step // 12) / 8)) for step in (6, 12, 24, 36, 48)]
    assert diagnose(path)["headline"] == "No problems found"


def test_the_last_evaluation_is_said_again_in_rows_some_steps_apart_too(tmp_path: Path) -> None:
    text = "".join(
        f"step {step}: loss {4 - step / 400:.4f} eval loss {3.9 - step // 300 / 3:.4f}\n" for step in range(0, 1500, 50)
    )
    series = read(write(tmp_path, text)).series
    assert len(series["loss"]) == 30
    # until it has changed twice each may be an evaluation
    assert [step for step, _ in series["eval loss"]] == [*range(0, 601, 50), 900, 1200]


def test_evaluations_that_stay_alike_are_each_one_where_a_row_is_an_epoch_or_each_of_them_changed(
    tmp_path: Path,
) -> None:
    text = "".join(f"Epoch {at}: loss 0.{90 - at}12, val loss {max(0.9131 - at / 50, 0.8731):.4f}\n" for at in range(9))
    assert len(read(write(tmp_path, text)).series["val loss"]) == 9
    text = "".join(
        f"step {at}: loss 0.{900 - at}1, val loss {max(0.9131 - at / 500, 0.7531):.4f}\n" for at in range(0, 200, 10)
    )
    assert len(read(write(tmp_path, text)).series["val loss"]) == 20, "frozen later on"


def test_of_a_bar_that_counts_on_and_then_gets_its_value_the_second_one_is_the_row(tmp_path: Path) -> None:
    text, before = "", ""
    for step in range(4, 12):
        value, bar = f"mean_loss={3 - step / 9:.4f}", f"step: 20%|##   | {step}/60 [0{step % 10}:07<20:11, 9.1s/it"
        text += (f"{bar}, {before}]\r" if before else "") + f"{bar}, {value}]\r"
        before = value
    series = read(write(tmp_path, text + "\n")).series
    assert series["mean_loss"] == [(step, pytest.approx(3 - step / 9, abs=1e-4)) for step in range(4, 12)]


def test_of_a_bar_that_gets_its_value_and_then_counts_on_the_first_one_is_the_row(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 9):
        value = f"loss={3 - step / 9:.4f}"
        text += f"20%|##   | {step - 1}/60 [0{step}:07<20:11, 9.1s/it, {value}]\r" if step > 1 else ""
        text += f"20%|##   | {step}/60 [0{step}:07<20:11, 9.1s/it, {value}]\r"
    series = read(write(tmp_path, text + "\n")).series
    assert series["loss"] == [(step, pytest.approx(3 - step / 9, abs=1e-4)) for step in range(1, 9)]


def test_several_ranks_that_print_a_row_print_no_evaluation_again(tmp_path: Path) -> None:
    text = "".join(
        f"[rank{rank}]: step {2**at} loss {4 - at / 4:.5f} eval_loss {5 - at / 4:.5f}\n"
        for at in range(9)
        for rank in range(3)
    )
    series = read(write(tmp_path, text)).series
    assert (
        [step for step, _ in series["eval_loss"]] == [step for step, _ in series["loss"]] == [2**at for at in range(9)]
    )
