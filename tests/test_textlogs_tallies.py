"""What counts on a line that says more than one number of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

from barograph.core.roles import main_evaluation, main_loss

LOSS = [(at, round(1 + 4 / at, 4)) for at in range(1, 10)]


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


def rows(form: str) -> str:
    return "".join(form.format(e=at, v=value, w=value + 1, r=at * 640) for at, value in LOSS)


@pytest.mark.parametrize("form", [
    "[Epoch 2 {r}/48000][Iteration {e}][Clock 7.5s] Throughput is 4000.5 records/second. Loss is {v}.\n",
    "| epoch 003 | 000000{e} updates | words/s   14000| trainloss     {v} | train ppl     3.84\n",
    "At iterate    {e}    f=  {v:.4f}D+00    |proj g|=  1.09390D+01\n\n",
    "epoch 4 | 0000{e} steps | loss {v}\n",
])  # fmt: skip
def test_what_counts_in_the_run_is_the_step(tmp_path: Path, form: str) -> None:
    reading = read(written(tmp_path, rows(form)))
    loss = main_loss(reading.series)
    assert loss and reading.series[loss] == LOSS and reading.axes[loss] == "step" and not reading.unread


def test_norms_of_the_gradient_stand_in_bars(tmp_path: Path) -> None:
    text = "Machine precision = 2.220D-16\n" + rows("At iterate    {e}    f=  {v:.4f}D+00    |proj g|=  1.5D+01\n")
    reading = read(written(tmp_path, text))
    assert reading.series["grad_norm"] == [(at, 15.0) for at, _ in LOSS]


def test_a_fraction_of_an_epoch_in_units_of_its_own(tmp_path: Path) -> None:
    text = rows("2024-05-03 11:04:0{e}.120341     # [Train Epoch: 1/20] [{e}00/6000 images] loss={v}\n")
    text += "2024-05-03 11:05:00     # ===> Epoch: 1 Average loss = 1.9; Finished in 0:23:14\n"
    assert read(written(tmp_path, text)).series["loss"] == [(100 * at, value) for at, value in LOSS]


def test_data_may_be_a_part_of_the_word(tmp_path: Path) -> None:
    text = rows("| epoch 003 | 000000{e} updates | trainloss  {v}\n| epoch 003 | 000000{e} updates | "
                "validloss  {w} | valid ppl  9.5 | testloss  4.40\n")  # fmt: skip
    series = read(written(tmp_path, text)).series
    assert main_loss(series) == "trainloss" and main_evaluation(series) == "validloss"
    assert series["testloss"] == [(at, 4.4) for at, _ in LOSS]


def test_a_count_in_the_name_of_a_series_is_no_step(tmp_path: Path) -> None:
    text = rows("------- Step {e}00 -------\nepisode/score 0.5 / train/entropy 2.5 /\n"
                "train/actor_grad_steps {r} / train/actor_loss {w} / train/model_loss {v} /\n\n")  # fmt: skip
    series = read(written(tmp_path, text)).series
    assert series["train/model_loss"] == [(100 * at, value) for at, value in LOSS]


def test_a_count_of_the_run_goes_before_one_within_a_part(tmp_path: Path) -> None:
    text = "".join(
        f"fit | data_epochs  0/3 | inner iter: {at % 4 + 1}/ 4 | global iter: {at:6d}/ 900| whole_loss: {value} |\n"
        for at, value in LOSS
    )
    reading = read(written(tmp_path, text))
    assert reading.series["whole_loss"] == LOSS and not reading.restarts


def test_a_fraction_that_is_the_value_of_a_name_counts_nothing(tmp_path: Path) -> None:
    text = "".join(
        f"\t\tnear/far=({at % 3}2/90), time cost: 12.2{at}\n[part 1][epoch  2][iter {at}00/2000] loss: {value}\n"
        for at, value in LOSS
    )
    reading = read(written(tmp_path, text))
    assert reading.series["loss"] == [(100 * at, value) for at, value in LOSS] and not reading.restarts


@pytest.mark.parametrize("settings", [
    "Max epochs     9000. Desired error: 0.0020000000.",
    "  epochs=90, batch_size=40, learning_rate=0.0040, learning_rate_final=0.0000",
    "Fitting with spread=7.00, lr=71.25 for 250 iterations...",
])  # fmt: skip
def test_settings_that_say_how_many_epochs_there_will_be_are_no_row(tmp_path: Path, settings: str) -> None:
    text = settings + "\n" + "".join(f"Epochs {at:9d}. Current loss: {value}. Bits 4.\n" for at, value in LOSS)
    reading = read(written(tmp_path, text))
    assert reading.series == {"Current loss": LOSS} and not reading.restarts
