"""Accuracies that count the right ones, sets named behind, paths apart by strokes, kills in other languages."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

from barograph.doctor.command import run_doctor


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


LOSS = [(at, round(2 + 8 / at, 4)) for at in range(1, 9)]


@pytest.mark.parametrize("form", [
    "Test set: Average loss: {w}, Accuracy: {n}/1000 ({p}%)", "test loss={w}, acc={n}/1000", "Test accuracy {n} / 1000",
])  # fmt: skip
def test_an_accuracy_that_says_how_many_are_right(tmp_path: Path, form: str) -> None:
    rows = "".join(
        f"Train Epoch: {at} [0/600 (0%)]\tLoss: {loss}\n\n"
        + form.format(w=loss + 1, n=500 + 10 * at, p=50 + at)
        + "\n\n"
        for at, loss in LOSS
    )
    reading = read(written(tmp_path, rows))
    name = next(name for name in reading.series if "acc" in name.lower())
    assert [value for _, value in reading.series[name]] == [round(0.5 + 0.01 * at, 2) for at in range(1, 9)]
    assert name.lower().startswith("test")


def test_more_right_than_there_are_is_no_accuracy(tmp_path: Path) -> None:
    reading = read(written(tmp_path, "".join(f"epoch {at} loss {loss} acc=30/{at}\n" for at, loss in LOSS)))
    assert not any("acc" in name for name in reading.series)


def test_a_set_behind_the_name_of_its_loss(tmp_path: Path) -> None:
    rows = "".join(f"Epoch {at}, Time 2.1s, Loss {loss}, Loss Test {loss + 1:.4f}, LR 0.2000\n" for at, loss in LOSS)
    reading = read(written(tmp_path, rows))
    assert reading.series["Loss"] == LOSS and "LR" in reading.series
    assert reading.series["Test Loss"] == [(at, round(loss + 1, 4)) for at, loss in LOSS]


def test_paths_with_values_and_strokes_between(tmp_path: Path) -> None:
    rows = "".join(
        f"──── Step {at} ────\nepisode/score {at}.5 / episode/length 40 / train/loss/image {loss} / fps/policy 39.3\n\n"
        for at, loss in LOSS
    )
    reading = read(written(tmp_path, rows))
    assert reading.series["train/loss/image"] == LOSS and len(reading.series["episode/score"]) == 8


def test_a_table_whose_rows_end_with_the_time_they_took(tmp_path: Path) -> None:
    rows = "".join(f"{at} {loss} {loss + 1:.4f} 0.3120 (00:{10 + at})\n" for at, loss in LOSS)
    reading = read(written(tmp_path, "epoch train_loss valid_loss error_rate\n" + rows))
    assert reading.series["train_loss"] == LOSS and not reading.unread


def test_a_heading_with_a_comment_below_and_one_blank_between_some_names(tmp_path: Path) -> None:
    head = "#  step      loss_val    loss_trn   loss_lc_val loss_lc_trn         lr\n# Where there is no data: nan\n"
    rows = "".join(f"{at:7}      {loss + 1:.4f}    {loss}           nan         nan    1.0e-02\n" for at, loss in LOSS)
    reading = read(written(tmp_path, head + rows))
    assert reading.series["loss_trn"] == LOSS and "lr" in reading.series


def test_a_row_of_batches_that_ends_with_a_semicolon(tmp_path: Path) -> None:
    rows = "".join(f"====Epoch  {at}  ====\n{at} / 20 : loss = {loss};\n" for at, loss in LOSS)
    assert [value for _, value in read(written(tmp_path, rows)).series["loss"]] == [loss for _, loss in LOSS]


@pytest.mark.parametrize("end", [
    "已杀死", "train.sh: 行 9: 4021 已杀死               python train.py", "Getötet", "Processus arrêté", "Убито",
    "段错误 (核心已转储)", "Speicherzugriffsfehler (Speicherabzug geschrieben)", "Erreur de segmentation", "強制終了",
])  # fmt: skip
def test_kills_in_the_words_of_other_shells(tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str) -> None:
    rows = "".join(f"step {at} loss {loss}\n" for at, loss in LOSS)
    run_doctor([str(written(tmp_path, f"{rows}{end}\n"))])
    told = " ".join(capsys.readouterr().out.split())
    assert "after step 8" in told and " crashed " in told


def test_such_words_in_a_sentence_are_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"step {at} loss {loss}\n" for at, loss in LOSS)
    run_doctor([str(written(tmp_path, f"{rows}Der Prozess wurde nicht Getötet und lief weiter.\n"))])
    assert " crashed " not in " ".join(capsys.readouterr().out.split())


def test_a_share_of_a_few_that_is_said_behind_them_is_one(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    form = "***** Iteration #{at} *****\nLoss: {v}\nInstance accuracy: {n} / 8 ({s:.4f})\n\n"
    path.write_text("".join(form.format(at=at, v=90.5 - at, n=at, s=at / 8) for at in range(1, 8)))
    assert read(path).series["Instance accuracy"] == [(at, at / 8) for at in range(1, 8)]
