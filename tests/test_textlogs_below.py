"""Numbers that stand alone below an epoch are losses where they fall."""

from __future__ import annotations

from pathlib import Path

from textlog_readings import find, read

from barograph.importing.textlogs import below


def written(folder: Path, values: list[float]) -> Path:
    path = folder / "train.log"
    path.write_text("".join(f"*** saved *** {at}\nEpoch {at}\n{value}\n\n" for at, value in enumerate(values)))
    return path


def test_numbers_that_fall_below_epochs_are_losses(tmp_path: Path) -> None:
    values = [round(0.7312 * 0.9**at, 4) for at in range(12)]
    reading = read(written(tmp_path, values))
    assert reading.series["loss"] == list(enumerate(values))
    assert reading.axes["loss"] == "epoch"


def test_numbers_that_rise_may_be_anything(tmp_path: Path) -> None:
    assert not find(written(tmp_path, [round(0.4112 + at / 30, 4) for at in range(12)]))


def test_a_decision_holds_for_the_text_that_follows() -> None:
    own: dict[str, bool] = {}
    text = b"".join(b"epoch %d\n0.%d11\n" % (at, 9 - at) for at in range(1, 8))
    assert below.named(text, own).count(b"loss: ") == 7 and own["bare"]
    assert below.named(b"epoch 9\n0.9112\n", own) == b"epoch 9\nloss: 0.9112\n"
    assert below.named(b"step 9\n0.9112\n", own) == b"step 9\n0.9112\n"
