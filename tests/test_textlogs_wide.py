"""Values far behind their names, sentences of programs, and texts that R prints are rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import read

VALUES = [float(f"{2 + 8 / at:.4f}") for at in range(1, 7)]
BIGDL = (
    "2026-01-01 10:00:0{e} INFO  DistriOptimizer$:29 - [Epoch 1 {b}/50000][Iteration {e}][Wall Clock {e}.5s] Trained "
    "128 records in 2.5 seconds. Throughput is 51.2 records/second. Loss is {v}. Current weight decay is 1.0E-4. \n"
)


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "form",
    [
        "Epoch {e} of 40 took 3.1s\n  LR:                            0.1\n  training loss:                 {v}\n",
        BIGDL,
        '[1] "[{e}]:  train\'s rmse:{v}"\n',
        '[1] "epoch {e} loss {v}"\n',
    ],
)
def test_losses_are_read_at_their_steps(tmp_path: Path, form: str) -> None:
    text = "".join(form.format(e=at, b=128 * at, v=value) for at, value in enumerate(VALUES, 1))
    series = read(written(tmp_path, text)).series
    losses = next(rows for name, rows in series.items() if "loss" in name.lower() or "rmse" in name)
    assert losses == list(enumerate(VALUES, 1))


def test_an_epoch_and_a_batch_stand_in_brackets_behind_the_name(tmp_path: Path) -> None:
    text = "".join(
        f"Loss [{at // 3 + 1}, {100 * (at % 3) + 100}](epoch, minibatch):  {value}\n" for at, value in enumerate(VALUES)
    )
    series = read(written(tmp_path, text)).series
    assert series["Loss"] == [(100 * at + 100, value) for at, value in enumerate(VALUES)]


def test_what_stands_above_the_end_of_an_epoch_is_its_own(tmp_path: Path) -> None:
    lines = [
        f"INFO [Metrics] AUC: 0.8{at} - logloss: {value}\nINFO Train loss: {value}\nINFO **** Epoch={at} end ****\n"
        for at, value in enumerate(VALUES, 1)
    ]
    text = "INFO **** Epoch=1 start ****\n" + "".join(lines)
    assert read(written(tmp_path, text)).series["Train loss"] == list(enumerate(VALUES, 1))


@pytest.mark.parametrize(("short", "is_evaluation"), [(40, True), (390, False)])
def test_the_shorter_one_of_two_bars_in_turn_is_an_evaluation(tmp_path: Path, short: int, is_evaluation: bool) -> None:
    bar = "Processing |########| ({n}/{n}) Data: 0.1s | Batch: 0.2s | Loss: {v:.4f} | Acc: 0.5\n"
    lines = [
        f"\nEpoch: {at} | LR: 0.1\n" + bar.format(n=400, v=value) + bar.format(n=short, v=value + 1)
        for at, value in enumerate(VALUES, 1)
    ]
    series = read(written(tmp_path, "".join(lines))).series
    assert ("val Loss" in series) == is_evaluation
    if is_evaluation:
        assert series["Loss"] == [(400 * at, value) for at, value in enumerate(VALUES, 1)]
        assert series["val Loss"] == [(400 * at, round(value + 1, 4)) for at, value in enumerate(VALUES, 1)]
