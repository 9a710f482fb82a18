"""Whole histories of a training, printed as lists of numbers, are rows; lists of anything else are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlog_readings import find, read

TRAIN = [f"{0.9 * 0.8**at + 0.1:.4f}" for at in range(10)]
HELD_OUT = [f"{0.9 * 0.85**at + 0.2:.4f}" for at in range(10)]


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "form",
    [
        "{{'loss': [{train}], 'val_loss': [{held}]}}\n",
        "train_loss:[{train}]\nval_loss:[{held}]\n",
        "train_loss_history = [{train}]\n\nval_loss_history = [{held}]\n",
        "Train losses: [{train}]\nValidation losses: [{held}]\n",
        "defaultdict(<class 'list'>, {{'train_loss': [{train}], 'val_loss': [{held}]}})\n",
        "history['loss'] = [{train}]\nhistory['val_loss'] = [{held}]\n",
    ],
)
@pytest.mark.parametrize("between", [", ", ",\n  "], ids=["a line", "a line each"])
def test_the_forms_of_a_history(tmp_path: Path, form: str, between: str) -> None:
    text = "fit\n" + form.format(train=between.join(TRAIN), held=between.join(HELD_OUT)) + "Test loss: 0.3120\n"
    reading = read(written(tmp_path, text))
    series = list(reading.series.values())[:2]
    assert series[0] == [(at, float(value)) for at, value in enumerate(TRAIN, 1)]
    assert series[1] == [(at, float(value)) for at, value in enumerate(HELD_OUT, 1)]
    assert set(reading.axes.values()) == {"epoch"}
    assert not reading.restarts


def test_numbers_in_objects_are_numbers(tmp_path: Path) -> None:
    listed = ", ".join(f"np.float64({value})" for value in TRAIN)
    reading = read(written(tmp_path, f"losses: [{listed}]\n"))
    assert [value for _, value in reading.series["losses"]] == [float(value) for value in TRAIN]


def test_a_history_that_is_printed_again_as_it_grows_counts_once(tmp_path: Path) -> None:
    text = "".join(f"loss_list: [{', '.join(TRAIN[:end])}]\n" for end in range(1, 11))
    reading = read(written(tmp_path, text))
    assert [step for step, _ in reading.series["loss"]] == list(range(1, 11))
    assert not reading.restarts


def test_histories_of_two_runs_are_two_segments(tmp_path: Path) -> None:
    text = f"loss: [{', '.join(TRAIN)}]\n---\nloss: [{', '.join(HELD_OUT)}]\n"
    reading = read(written(tmp_path, text))
    assert len(reading.series["loss"]) == 20
    assert len(reading.restarts) == 1


NONE = {
    "weights": "loss weights: [1.000, 0.5001, 0.2502, 0.1253, 0.0601]\n",
    "classes": "per class loss: [0.6931, 0.5120, 0.4410, 0.2099, 0.3127]\n",
    "folds": "fold losses: [0.6931, 0.5120, 0.4410, 0.2099, 0.3127]\n",
    "accuracies": "accuracy per class: [0.9114, 0.8812, 0.7911, 0.9012]\n",
    "typed": "history = {'loss': [0.5, 0.4, 0.3, 0.2], 'val_loss': [0.6, 0.5, 0.4, 0.3]}\n",
    "cut": "loss: [0.6931, 0.5120, 0.4410, ..., 0.2099]\n",
    "the same": "loss: [0.5012, 0.5012, 0.5012, 0.5012, 0.5012]\n",
    "parts": "".join(f"losses: [0.6{at}31, 0.5{at}20, 0.4{at}10, 0.2{at}99]\n" for at in range(10)),
    "words": "loss: [alpha, beta, gamma, 0.5]\n",
}


@pytest.mark.parametrize("text", NONE.values(), ids=NONE)
def test_lists_of_other_things_are_no_history(tmp_path: Path, text: str) -> None:
    assert not any(dialect.kind == "histories" for dialect, _ in find(written(tmp_path, "start\n" + text)))


def test_rows_of_other_dialects_go_before_a_history(tmp_path: Path) -> None:
    rows = "".join(f"Epoch {at}: loss: {value}\n" for at, value in enumerate(TRAIN, 1))
    path = written(tmp_path, rows + f"train_loss: [{', '.join(TRAIN)}]\n")
    assert [dialect.kind for dialect, _ in find(path)] == ["plain"]
    assert set(read(path).series) == {"loss"}
