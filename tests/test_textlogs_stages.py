"""Logs of programs that count in ways of their own: one epoch for ever, stages, paragraphs, tables without names."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

from barograph.doctor import diagnose
from barograph.importing.read import read as runs_of
from barograph.importing.textlogs import paragraphs

VALUES = [round(2 + 8 / at, 4) for at in range(1, 15)]
LOSS = [(at, value) for at, value in enumerate(VALUES, 1)]


def written(folder: Path, text: str, name: str = "train.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def rows(form: str) -> str:
    return "".join(form.format(e=at, v=value) for at, value in LOSS)


def test_rows_that_all_say_one_epoch_are_numbered_though_one_says_a_batch(tmp_path: Path) -> None:
    first = "Epoch 1 Batch 0 Loss 10.5 Accuracy 0.0000\n"
    series = read(written(tmp_path, first + rows("Epoch 1 Loss {v} Accuracy 0.5\nTook 3 secs\n"))).series
    assert [value for _, value in series["Loss"]][-14:] == VALUES


def test_names_of_a_table_may_stand_in_single_quotes(tmp_path: Path) -> None:
    path = written(tmp_path, "'val loss', 'train loss', 'Epoch'\n" + rows("3.5, {v}, {e}\n"), "hums.csv")
    assert [value for value in runs_of(path)[0].series("train/loss").y] == VALUES


def test_a_table_without_names_is_of_what_its_file_is_named_for(tmp_path: Path) -> None:
    text = rows("{v},4{e}\n")
    assert [value for value in runs_of(written(tmp_path, text, "losses.csv"))[0].series("train/loss").y] == VALUES
    with pytest.raises(ValueError, match="nothing in"):
        runs_of(written(tmp_path, text, "reeds.csv"))
    with pytest.raises(ValueError, match="nothing in"):
        runs_of(written(tmp_path, rows("{v},0.5\n"), "loss.csv"))  # which of the two?


def test_rewards_below_a_heading_of_episodes_are_read(tmp_path: Path) -> None:
    lines = [f"{at:<12} {at * 3:>10} {at * 5:>14}\n" for at in range(14)]
    series = read(written(tmp_path, "Episode      Reed Reward      Total Reward\n" + "".join(lines))).series
    assert series["Total_Reward"] == [(at, at * 5.0) for at in range(14)]


def test_the_loss_of_something_is_called_so(tmp_path: Path) -> None:
    form = "run INFO Epoch: {e}\nrun INFO Loss of the value function:   {v}   \n"
    assert [value for _, value in read(written(tmp_path, rows(form))).series["value function loss"]] == VALUES


def test_what_is_made_small_beside_the_norm_of_its_gradient_is_the_objective(tmp_path: Path) -> None:
    path = written(tmp_path, rows("iter {e} act 1.5e+01 pre 1.4e+01 f {v} |g| 3.1e+00 CG   3\ncg ends\n"))
    assert read(path).series["objective"] == LOSS
    assert diagnose(runs_of(path)[0])["judged_by"] == "objective"


def test_texts_among_the_values_say_nothing_of_the_data(tmp_path: Path) -> None:
    texts = ["a test of reeds", "how, when?", "what the epoch 9 said", "plain words"]
    text = "".join(f'LEARNT | Text: "{texts[at % 4]}" | Epochs: 30 | Avg Loss: {value}\n' for at, value in LOSS)
    assert read(written(tmp_path, text)).series["Avg Loss"] == LOSS


def test_the_round_of_the_best_that_is_said_again_is_no_round(tmp_path: Path) -> None:
    text = "".join(f"[{at * 100}]\ttrain's auc: {0.8 + at / 100:.2f}\n" for at in range(1, 6))
    text += "No early end. Best iteration is:\n[485]\ttrain's auc: 0.84\n"
    (series,) = read(written(tmp_path, text)).series.values()
    assert [step for step, _ in series] == [100, 200, 300, 400, 500]


def test_the_epoch_that_was_the_best_is_no_row_at_the_end(tmp_path: Path) -> None:
    form = "Epoch {e}\tAcc: 0.91\tnmi: 0.5\tloss: {v}\n"
    series = read(written(tmp_path, rows(form) + "====\nBest Epoch 3\tAcc: 0.95\tnmi: 0.6\tloss: 1.5\n")).series
    assert series["loss"] == LOSS
    assert len(series["Acc"]) == len(LOSS)


def test_stages_of_which_one_counts_epochs_are_each_read(tmp_path: Path) -> None:
    text = "".join(rows(count + ": {e} | Train Loss: {v} | Val Loss: 3.5\n") for count in ("Epoch", "Iteration"))
    found = read(written(tmp_path, text * 2))
    assert [value for _, value in found.series["Train Loss"]] == VALUES * 4


def test_means_of_epochs_between_steps_are_no_stage(tmp_path: Path) -> None:
    steps = "".join(f"step {at} loss: {value}\n" for at, value in LOSS)
    later = "".join(f"step {at + 14} loss: {value}\n" for at, value in LOSS)
    found = read(written(tmp_path, steps + "epoch 1 loss: 3.5\n" + later + "epoch 2 loss: 2.5\n"))
    assert [step for step, _ in found.series["loss"]] == list(range(1, 29))


PARAGRAPH = "REPORT\n  Batch = {e}00\n  alpha = 0.001\n  Right = {v}%\n\n"


def test_paragraphs_of_names_and_numbers_are_rows(tmp_path: Path) -> None:
    path = written(tmp_path, rows(PARAGRAPH))
    assert read(path).series["Right"] == [(100 * at, value) for at, value in LOSS]
    twice = written(tmp_path, "Step: 1\nheight: 3\n\nStep: 2\nheight: 4\n", "of_two.log")
    with pytest.raises(ValueError, match="nothing in"):
        runs_of(twice)


def test_a_paragraph_that_goes_on_waits_for_its_end() -> None:
    text = rows(PARAGRAPH).encode()
    assert paragraphs.unfinished(text) == 0
    begun = b"  Batch = 1500\n  alpha = 0.001\n"
    assert paragraphs.unfinished(text + begun) == len(begun)
    assert paragraphs.unfinished(text + b"  Batch = 1500\n  loss = 0.001\n") == 0
