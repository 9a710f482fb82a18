"""Rows below a heading about data held out are the evaluation's; the next row of training is training's."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

from barograph.importing.registry import identify
from barograph.importing.textlogs import headings


def of_epochs(heading: str) -> str:
    return "".join(
        f"Epoch {at}/4\n  loss: 0.{9 - at}1\n  accuracy: 0.6{at}\n{heading.format(at=at)}\n  loss: 0.{9 - at}5\n"
        f"  accuracy: 0.5{at}\n"
        for at in range(1, 5)
    )


@pytest.mark.parametrize("heading", [
    "Validation at epoch {at}", "===== Evaluation (epoch {at}) =====", "Running validation...",
    "2024-05-01 10:00:00 INFO [epoch {at}] Validation:", "Evaluating on the validation set", "  --> EVAL PERFORMANCE",
    "Validation Stats:",
])  # fmt: skip
def test_rows_below_a_heading_are_of_the_evaluation(tmp_path: Path, heading: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(of_epochs(heading))
    series = read(path).series
    assert series["loss"] == [(1, 0.81), (2, 0.71), (3, 0.61), (4, 0.51)]
    assert series["val loss"] == [(1, 0.85), (2, 0.75), (3, 0.65), (4, 0.55)]
    assert series["val accuracy"] == [(1, 0.51), (2, 0.52), (3, 0.53), (4, 0.54)]


@pytest.mark.parametrize("heading", [
    "New best validation accuracy!", "val_loss improved from 0.5 to 0.4", "Saved the model for evaluation in out/best",
    "evaluation takes 0.5 s", "Training and validation",
])  # fmt: skip
def test_a_sentence_about_an_evaluation_is_no_heading(heading: str) -> None:
    text = f"{heading}\nloss: 0.61\n".encode()
    assert headings.said_below(text, {}) == text


def test_a_row_with_a_step_of_its_own_is_not_below_the_heading() -> None:
    text = b"Evaluating...\nstep 20 loss 2.1\nloss: 0.61\n"
    assert headings.said_below(text, {}) == text


def test_a_name_that_comes_again_ends_what_is_below_the_heading() -> None:
    told = headings.said_below(b"Validation:\nloss: 0.61\nloss: 0.52\n", {})
    assert told == b"Validation:\nloss: 0.61 | val\nloss: 0.52\n"


def test_a_heading_holds_for_a_row_that_is_written_later() -> None:
    own: dict[str, object] = {}
    assert headings.said_below(b"Test results\n", own) == b"Test results\n"
    assert headings.said_below(b"loss: 0.61\n", own) == b"loss: 0.61 | test\n"


@pytest.mark.parametrize("between", ["", "train quantiles: [1.5, 2.5]\n", "saved the model\n"])
def test_evaluations_below_lines_that_say_an_epoch_are_read_alone(tmp_path: Path, between: str) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"Epoch {at}\n{between}val loss: {3 - at / 10:.2f}\n" for at in range(1, 9)))
    assert read(path).series["val loss"] == [(at, round(3 - at / 10, 2)) for at in range(1, 9)]
    path.write_text("".join(f"Epoch {at}\n{between}" for at in range(1, 9)) + "val loss: 2.30\n")
    assert not list(identify(path))


def test_losses_in_the_plural_are_losses(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"Epoch {at}\ntrain losses: {3 - at / 10:.2f}\nval loss: 3.5\n" for at in range(1, 9)))
    assert len(read(path).series["train losses"]) == len(read(path).series["val loss"]) == 8


def test_a_heading_between_rules_says_the_data_of_a_row_with_its_epoch(tmp_path: Path) -> None:
    text = ""
    for launch in range(2):
        for at in range(6):
            text += f"=====training epoch {at + 1}=====\nEpoch {at} | avg_loss = {4 - at / 3 + launch / 50:.3f}\n\n"
            text += f"=====validate epoch {at + 1}=====\nEpoch {at} | avg_loss = {5 - at / 3:.3f}\ntook 0.1 second\n\n"
    path = tmp_path / "train.log"
    path.write_text(text)
    series = read(path).series
    assert [at for at, _ in series["avg_loss"]] == [*range(6)] * 2
    assert [value for _, value in series["val avg_loss"]][:3] == [5.0, pytest.approx(4.667), pytest.approx(4.333)]


def test_a_heading_between_rules_holds_for_no_other_epoch(tmp_path: Path) -> None:
    text = "".join(f"===== test epoch {at + 1} =====\nEpoch {at + 5} | loss = {4 - at / 3:.3f}\n" for at in range(6))
    path = tmp_path / "train.log"
    path.write_text(text)
    assert list(read(path).series) == ["loss"]


def test_two_evaluations_are_enough_where_a_loss_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = "epoch {0}: validation loss {1} \nepoch {0}: validation error {1} %\nweight saved: w_{0}\n"
    path.write_text("".join(rows.format(at, value) for at, value in ((7, "0.4"), (8, "nan"))))
    (step, first), (later, _) = read(path).series["validation loss"]
    assert (step, first, later) == (7, 0.4, 8)
    path.write_text("".join(rows.format(at, "0.4") for at in (7, 8)))
    assert not list(identify(path))


def counted(epoch: int, length: int, loss: float, form: str = "batch count: {b}/{n}, iter: {b}, loss: {v:.3f}") -> str:
    return "".join(f"{form}\n".format(e=epoch, b=at, n=length, v=loss - at / 1000) for at in range(0, length, 20))


def test_rows_below_a_heading_that_count_to_another_length_are_of_the_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(
        f"Epoch {at} begins\n{counted(at, 81, 5 - at)}Validation at epoch {at}\n{counted(at, 63, 6 - at)}"
        for at in (1, 2, 3)
    ))  # fmt: skip
    series = read(path).series
    assert [value for _, value in series["loss"]] == [
        round(5 - at - count / 1000, 3) for at in (1, 2, 3) for count in range(0, 81, 20)
    ]
    assert [value for _, value in series["val loss"]] == [round(6 - at - 0.06, 3) for at in (1, 2, 3)]


@pytest.mark.parametrize("second", [81, 63])
def test_rows_of_another_epoch_below_a_heading_are_not_of_the_evaluation(tmp_path: Path, second: int) -> None:
    form = "epoch {e} batch {b}/{n} loss: {v:.3f}"
    text = counted(1, 81, 5, form) + "Evaluating...\n" + counted(2, second, 4, form)
    path = tmp_path / "train.log"
    path.write_text(text)
    assert list(read(path).series) == ["loss"]
