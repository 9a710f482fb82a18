"""Rows of a bar that Rich draws are read with what it wrote below them for want of room."""

from __future__ import annotations

from pathlib import Path

from textlog_readings import read

ACCURACIES = [0.412, 0.633, 0.701, 0.695, 0.774]
EPOCHS = list(enumerate(ACCURACIES))
BAR = "━" * 12
HEAD = f"stage {{e}}/∞ {BAR} 40/40 0:01:07 • 0:00:00 8.31it/s "


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text("Trainable params: 2.1 M\n" + text)
    return path


def test_a_row_on_one_line_is_read(tmp_path: Path) -> None:
    form = HEAD + "val_accuracy: {v} val_mean_iu: {w} early_stopping: 1/5 0.77400\n"
    series = read(written(tmp_path, "".join(form.format(e=e, v=v, w=v / 2) for e, v in EPOCHS))).series
    assert series["val_accuracy"] == EPOCHS
    assert series["val_mean_iu"] == [(e, v / 2) for e, v in EPOCHS]
    assert not any("stopping" in name for name in series)


def test_names_that_were_cut_have_the_values_in_their_columns(tmp_path: Path) -> None:
    head = HEAD + "val_accura… early_stopp…\n"
    at = len(head.format(e=0)) - len("val_accura… early_stopp…\n")
    below = " " * at + "{v:<11} 0/5 {v}\n" + " " * at + "val_word_lo…\n" + " " * at + "{w}\n"
    series = read(written(tmp_path, "".join((head + below).format(e=e, v=v, w=1 - v) for e, v in EPOCHS))).series
    assert series["val_accuracy"] == EPOCHS
    assert [round(value, 6) for _, value in series["val_word_lo"]] == [round(1 - v, 6) for v in ACCURACIES]


def test_values_below_their_names_line_for_line(tmp_path: Path) -> None:
    blank = " " * 44
    form = HEAD + f"val_accuracy: {{v}}         early_stopping: 0/5\n{blank}val_mean_acc:\n{blank}{{w}}     \n"
    series = read(written(tmp_path, "".join(form.format(e=e, v=v, w=v / 2) for e, v in EPOCHS))).series
    assert series["val_accuracy"] == EPOCHS
    assert series["val_mean_acc"] == [(e, v / 2) for e, v in EPOCHS]


def test_the_last_bar_of_an_epoch_counts_in_each_launch(tmp_path: Path) -> None:
    form = HEAD + "val_accuracy: {o}\nSeed set to 7\n" + HEAD + "val_accuracy: {v}\n"
    half = HEAD.replace("40/40", "17/40") + "val_accuracy: 0.9\n"
    launch = "".join(half.format(e=e) + form.format(e=e, v=v, o=ACCURACIES[max(e - 1, 0)]) for e, v in EPOCHS)
    reading = read(written(tmp_path, launch + "Killed\n/a/b.py:7: UserWarning: slow\n" + launch))
    assert reading.series["val_accuracy"] == EPOCHS * 2
    assert len(reading.restarts) == 1


def test_reports_of_an_older_bar_are_rows(tmp_path: Path) -> None:
    form = "epoch {e}/∞  [########]  900/900          \nAccuracy report ({e}) {v} 4114 88\n"
    path = written(tmp_path, "".join(form.format(e=e, v=v) for e, v in EPOCHS))
    assert read(path).series["val_accuracy"] == EPOCHS
    behind = "stage {e}/9  [########]  900/900          Accuracy report ({e}) {v} 4114 88\n"
    path.write_text("".join(behind.format(e=e, v=v) for e, v in EPOCHS))
    assert read(path).series["val_accuracy"] == EPOCHS
