"""A learning rate on a line of its own is read at the step that is said around it; settings are no rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

from barograph.importing.textlogs import rates

EPOCHS = range(1, 7)


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def rate(at: int) -> float:
    return round(0.01 * (1 - at / 20), 6)


@pytest.mark.parametrize("line", [
    "lr: {}", "2026-02-03 04:05:06.789012: Current learning rate: {}", "lr: [{}]", "  LR:         {}",
    "Adjusting learning rate of group 0 to {}.", "INFO - Updating learning rate to {}", "learning rate is now {}",
])  # fmt: skip
def test_a_rate_below_its_epoch_is_read_there(tmp_path: Path, line: str) -> None:
    text = "".join(
        f"epoch: {at}\ntrain loss: 0.{90 - at}\nval loss: 0.{95 - at}\n{line.format(rate(at))}\n" for at in EPOCHS
    )
    series = read(written(tmp_path, text)).series
    assert series["lr"] == [(at, rate(at)) for at in EPOCHS]
    assert [step for step, _ in series["train loss"]] == [step for step, _ in series["val loss"]] == list(EPOCHS)


def test_a_rate_between_a_heading_and_its_values_belongs_to_the_heading(tmp_path: Path) -> None:
    text = "".join(f"Epoch {at}/6\nlr: [{rate(at)}]\ntrain Loss: 0.{90 - at}\ntest Loss: 0.9{at}\n" for at in EPOCHS)
    assert read(written(tmp_path, text)).series["lr"] == [(at, rate(at)) for at in EPOCHS]


def test_a_rate_among_settings_is_of_no_step_and_not_missed(tmp_path: Path) -> None:
    text = "INFO lr: 0.1\nINFO momentum 0.9\n" + "".join(f"step {10 * at} loss 2.{40 - at}\n" for at in EPOCHS)
    reading = read(written(tmp_path, text))
    assert set(reading.series) == {"loss"} and not reading.unread


def test_settings_alone_are_no_log(tmp_path: Path) -> None:
    text = "".join(f"group{at}:\n  optimizer: sgd\n  lr: {rate(at)}\n" for at in EPOCHS)
    assert not find(written(tmp_path, text))


@pytest.mark.parametrize("line", [
    b"base_lr: 0.1", b"initial learning rate: 0.1", b"train.py --lr 0.1", b"lr: 16", b"lr: 0.1, momentum: 0.9",
    b"the best model had lr 0.1 and dropout 0.3", b"model=a, lr: 0.1",
])  # fmt: skip
def test_what_is_a_setting_or_a_sentence_is_no_rate(line: bytes) -> None:
    assert rates.row(line) is None


def test_rates_of_groups_are_the_first_ones(tmp_path: Path) -> None:
    text = "".join(f"[epoch:{at}, iter:{at:3},000, lr:({rate(at)},)] l_pix: 0.{50 - at}\n" for at in EPOCHS)
    assert read(written(tmp_path, text)).series["lr"] == [(1000 * at, rate(at)) for at in EPOCHS]


def test_norms_of_the_gradient_on_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("max_grad_norm: 5.0\n" + "".join(
        f"    --> STEP: {at}/90 -- GLOBAL_STEP: {at}00\n      | > loss_0: {3 / at:.5f}  (2.48995)\n"
        f"      | > grad_norm_0: {7 / at:.5f}  (27.26500)\n"
        for at in range(1, 9)
    ))  # fmt: skip
    series = read(path).series
    assert series["loss_0"] == [(100 * at, round(3 / at, 5)) for at in range(1, 9)]
    assert series["grad_norm_0"] == [(100 * at, round(7 / at, 5)) for at in range(1, 9)]
