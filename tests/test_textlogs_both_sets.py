"""Losses of training and evaluation on one line, or by turns, in other words."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_textlogs_pairs import HELD_OUT, LOSS, rows, written
from textlog_readings import read

from barograph.core.roles import plays
from barograph.doctor import diagnose
from barograph.importing.read import read as runs_of


@pytest.mark.parametrize(
    "form",
    [
        "Schritt {e} von 40, Trainingsverlust: {v}, Validierungsverlust: {w}, Lernrate: 3e-4\n",
        "Epoche {e}/12\n  Verlust: {v} - Genauigkeit: 0.5 - Validierungsverlust: {w}\n",
        "Época {e}: pérdida de entrenamiento = {v}; pérdida de validación = {w}\n",
        "Époque {e}/12 - perte : {v} - perte de validation : {w}\n",
        "Passo {e} de 40, perda={v}, perda de validação={w}, taxa de aprendizado=0.1\n",
        "ÉPOCA {e} | Pérdida: {v} | Pérdida de validación: {w}\n",
        "epoch {e} loss:train={v} loss:val={w}\n",
        "train loss @ {e}: {v}\nval loss @ {e}: {w}\n",
        "METRICS,step,train_loss,val_loss\nMETRICS,{e},{v},{w}\n",
    ],
)
def test_losses_of_both_sets_are_read_in_other_words(tmp_path: Path, form: str) -> None:
    series = read(written(tmp_path, rows(form))).series
    train = next(name for name in series if name.lower() in ("loss", "train loss", "train_loss"))
    held_out = next(name for name in series if name.lower() in ("val loss", "val_loss"))
    assert series[train] == LOSS
    assert series[held_out] == HELD_OUT


def test_an_evaluation_ahead_of_the_first_epoch_moves_none(tmp_path: Path) -> None:
    form = "Epoch {e}\ntrain loss: {v}\nval loss: {w}\n"
    reading = read(written(tmp_path, "train loss: 9.5\nval loss: 9.6\n" + rows(form)))
    assert reading.series["train loss"] == LOSS


def test_losses_on_held_out_data_alone_are_read(tmp_path: Path) -> None:
    assert read(written(tmp_path, rows("val loss @ {e}: {v}\n"))).series["val loss"] == LOSS


def test_an_evaluation_between_rows_of_a_table_is_no_heading(tmp_path: Path) -> None:
    form = "{e}  {v}  0.1\n"
    lines = rows(form).splitlines(keepends=True)
    text = "step  policy_loss  lr\n" + "".join(lines[:6]) + "Iteration #6   val loss at 9.21\n" + "".join(lines[6:])
    assert read(written(tmp_path, text)).series["policy_loss"] == LOSS


def test_a_part_of_an_evaluation_is_no_row_and_the_whole_is(tmp_path: Path) -> None:
    form = (
        "| epoch {e}  1000 / 2000 loss={v} (1.50)\n| epoch {e} | valid on 'valid' subset  1000 / 1311 loss=1.60\n"
        "| epoch {e} | valid on 'valid' subset | valid loss {w}\n"
    )
    reading = read(written(tmp_path, rows(form)))
    assert [value for _, value in reading.series["loss"]] == [value for _, value in LOSS]
    assert [value for _, value in reading.series["valid loss"]] == [value for _, value in HELD_OUT]
    assert not any("val" in name for name in set(reading.series) - {"valid loss"})


def test_bars_of_both_sets_are_told_apart_by_two_letters(tmp_path: Path) -> None:
    form = (
        "TR - Epoch {e}: 100%|#####| 30/30 [00:06<00:00,  4.39it/s, loss={v}]\n"
        "VA - Epoch {e}: 100%|#####| 15/15 [00:01<00:00, 15.18it/s, loss={w}]\n"
    )
    reading = read(written(tmp_path, rows(form)))
    assert reading.series["loss"] == [(30 * at, value) for at, value in LOSS]
    assert reading.series["val loss"] == [(30 * at, value) for at, value in HELD_OUT]
    assert not reading.restarts


@pytest.mark.parametrize("tags", [("[train] ", "[eval] "), ("trainer | ", "evaluator | "), ("T> ", "validation> ")])
def test_an_evaluators_rows_with_the_trainings_names_are_of_the_evaluation(
    tmp_path: Path, tags: tuple[str, str]
) -> None:
    form = tags[0] + "step {e} train_loss {v} lr 1\n" + tags[1] + "step {e} train_loss {w} examples 40\n"
    reading = read(written(tmp_path, rows(form)))
    assert reading.series["train_loss"] == LOSS
    assert reading.series["val_loss"] == HELD_OUT
    assert not reading.restarts


def test_an_evaluation_of_both_sets_keeps_the_names_of_both(tmp_path: Path) -> None:
    form = "step {e} train_loss 9.5\nEvaluation: step {e} train_loss {v} val_loss {w}\n"
    reading = read(written(tmp_path, rows(form)))
    assert reading.series["val_loss"] == HELD_OUT
    alone = read(written(tmp_path, rows("step {e} lr 0.1\nEvaluation: step {e} train_loss {v}\n"), "alone.log"))
    assert "val_loss" not in alone.series


def test_a_ranks_share_ahead_of_an_evaluation_is_no_part_of_it(tmp_path: Path) -> None:
    form = "INFO (0/2) Epoch 11, batch {e}, loss[loss={v}, over 24 frames.]\n"
    text = rows(form) + "INFO (0/2) Epoch 11, validation: ctc_loss=0.2, loss=0.26, over 90 frames.\n"
    assert read(written(tmp_path, text)).series["val loss"] == [(12, 0.26)]


@pytest.mark.parametrize("form", [
    "step {e} | train {v} | val {w} | 512 ms\n", "step {e}: train {v}, val {w}\n", "{e}/12 * Epoch {e} (train): loss: "
    "{v} | rate: 0.1\n{e}/12 * Epoch {e} (valid): loss: {w} | rate: 0.1\n",
])  # fmt: skip
def test_losses_of_both_sets_are_known_by_the_words_for_the_sets(tmp_path: Path, form: str) -> None:
    series = read(written(tmp_path, rows(form))).series
    training, held_out = (next(name for name in series if plays(role, name)) for role in ("loss", "eval_loss"))
    assert series[training] == LOSS and series[held_out] == HELD_OUT


def test_shares_of_both_sets_are_no_losses(tmp_path: Path) -> None:
    text = "".join(f"step {at} | train 0.{at + 30} | val 0.{at + 20} | lr 0.1\n" for at in range(1, 13))
    path = written(tmp_path, text)
    assert read(path).series["train"][0] == (1, 0.31)
    (run,) = runs_of(path)
    assert diagnose(run)["judged_by"] is None


def test_evaluations_alone_that_a_trainer_prints_are_numbered(tmp_path: Path) -> None:
    text = "".join(f"{{'eval_loss': {2 + 8 / at:.4f}, 'eval_runtime': 12.3, 'epoch': {at}.0}}\n" for at in range(1, 13))
    assert read(written(tmp_path, text)).series["eval_loss"] == [(at - 1, value) for at, value in LOSS]
