"""Texts that show what a training would print, or speak of one, hold no row; a log that somebody pasted does."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

from barograph.importing.textlogs import examples, plain_lines, sentences

ROWS = "".join(f"step {at} | loss: {9 - at / 10:.2f}\n" for at in range(1, 5))
LONG = "".join(f"step {at} | loss: {9 - at / 10:.2f}\n" for at in range(1, 20))


@pytest.mark.parametrize("above", [
    "**Symptoms:**", "Expected output:", "### Example training log", "While it runs you'll see output like this:",
    "The loss should look so:", "A typical training curve\n", "Sample run of the program",
])  # fmt: skip
def test_rows_of_an_example_are_none(tmp_path: Path, above: str) -> None:
    path = tmp_path / "guide.md"
    path.write_text(f"# Guide\n\n{above}\n```\n{ROWS}```\nand so on\n")
    assert not find(path)


@pytest.mark.parametrize("above", ["My log:", "It fails with this output:", "Training log", "", "For example I get"])
def test_rows_of_a_pasted_log_are_read(tmp_path: Path, above: str) -> None:
    path = tmp_path / "thread.md"
    path.write_text(f"# It fails\n\n{above}\n```\n{ROWS}```\nand so on\n")
    assert [step for step, _ in read(path).series["loss"]] == [1, 2, 3, 4]


def test_a_long_block_is_a_log_whatever_stands_above_it(tmp_path: Path) -> None:
    path = tmp_path / "readme.md"
    path.write_text(f"Expected output:\n```\n{LONG}```\n")
    assert len(read(path).series["loss"]) == 19


def test_a_block_that_is_set_in_may_be_an_example_too(tmp_path: Path) -> None:
    rows = "".join(f"    {row}\n" for row in ROWS.splitlines())
    path = tmp_path / "faq.md"
    path.write_text(f"# My loss is NaN\n\nAn unhealthy run looks like this:\n{rows}and a healthy run is below\n")
    assert not find(path)
    path.write_text(f"# My loss is NaN\n\nWhat do these rows mean:\n{rows}and that is all\n")
    assert len(read(path).series["loss"]) == 4


@pytest.mark.parametrize("text", [
    "".join(f'10.0.0.1 - - "GET /train?epoch={at}&loss=0.{9 - at} HTTP/1.1" 200 12\n' for at in range(1, 6)),
    'python train.py --epochs 10 --lr 0.1\necho "epoch 3 loss 0.2"\necho "epoch 4 loss 0.1"\n',
    "- [x] step 1: baseline (loss 0.52)\n- [ ] step 2: target loss 0.40\n- [ ] step 3: target loss 0.35\n",
    "Epoch 2 of the plan starts on Monday, the loss was 40 USD.\nEpoch 3 of it is at the end, with a loss of 9 USD.\n",
    "# Trials\n\n| Epochs | Batch size | Val loss |\n|---|---|---|\n| 10 | 32 | 0.52 |\n| 20 | 64 | 0.55 |\n",
])  # fmt: skip
def test_scripts_lists_and_servers_logs_hold_no_training(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    assert not find(path)


@pytest.mark.parametrize("what", ["quantizing layer", "image", "scored file"])
def test_losses_of_layers_or_files_are_no_steps(tmp_path: Path, what: str) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"{what} {at}/32 ... loss 0.{at + 10}\n" for at in range(1, 12)))
    assert not find(path)


def test_how_many_epochs_are_planned_is_no_heading(tmp_path: Path) -> None:
    path = tmp_path / "settings.txt"
    path.write_text("train:\n  epochs: 100\n  loss: 0.5\nval:\n  epochs: 1\n  loss: 0.1\n")
    assert not read(path).series if find(path) else True


def test_lines_keep_their_numbers() -> None:
    text = b"Symptoms\n```\nstep 1 loss 2\n```\nstep 2 loss 1\n```\n"
    assert examples.left_out(text) == b"Symptoms\n```\n\n```\nstep 2 loss 1\n```\n"


@pytest.mark.parametrize("line", [
    b"I got a loss of 0.35 after epoch 3, but then it stood still", b"my loss is 2.3 at epoch 5, how can I lower it",
    b"By step 200 your loss: 2.0 or so, you are fine",
])  # fmt: skip
def test_a_sentence_is_no_row(line: bytes) -> None:
    assert sentences.is_one(line)
    assert plain_lines.row(line) is None


@pytest.mark.parametrize("line", [
    b"We train for 300 epochs with a rate of 1e-3. The final loss is 0.43 after epoch 300, to 0.61 at the end.",
    b"- step 3: loss 0.3 is said as it should be (#1234)", b"Step 3: Set loss=0.5 in the file",
    b"E       loss == 0.5 at step 3", b"AssertionError: epoch 3 loss 0.71, expected 0.5",
    b"trial 3: lr=0.01 batch=64 -> val_loss 0.91",
])  # fmt: skip
def test_what_papers_lists_of_changes_and_tests_say_is_no_row(line: bytes) -> None:
    assert plain_lines.row(line) is None


@pytest.mark.parametrize("line", [
    b"The average loss of epoch 3 is 0.43 and the accuracy is 0.91", b"After step 7 the loss was 0.4",
    b"epoch 3 loss 0.4 (best so far, will be kept)", b"step 3: loss 0.4 | i: 3 | we: 0.2",
])  # fmt: skip
def test_what_a_program_says_in_words_is_a_row(line: bytes) -> None:
    assert plain_lines.row(line) is not None


def test_epochs_side_by_side_are_no_heading(tmp_path: Path) -> None:
    path = tmp_path / "thread.txt"
    path.write_text("epoch 8 epoch 50 epoch 100\ntraining loss 2.9 1.1 0.9\nvalidation loss 2.4 1.0 0.6\n")
    assert not read(path).series


@pytest.mark.parametrize("column", ["Model", "Method", "Experiment", "Dataset"])
def test_a_table_of_models_is_no_training(tmp_path: Path, column: str) -> None:
    path = tmp_path / "results.md"
    rows = "".join(f"| net{at} | {at}00 | 0.0{at} | 3{at}.2 |\n" for at in range(1, 6))
    path.write_text(f"# Results\n\n| {column} | Epochs | Loss | PSNR |\n|---|---|---|---|\n{rows}")
    assert not find(path)


def test_a_sentence_that_a_program_repeats_holds_rows(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = [
        f"INFO - At step {step} the Total loss was 4.{step} (best 2.001), with a learning rate of 3e-4."
        for step in range(100, 900, 100)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    series = read(path).series
    assert [len(points) for name, points in series.items() if "loss" in name.lower()] == [8]
