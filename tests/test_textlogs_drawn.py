"""A bar that counts an epoch's data and does not say the epoch is read over all epochs."""

from __future__ import annotations

from pathlib import Path

from textlog_readings import read

LENGTH = 90
TRAIN = "train: [███▏    ] data={at:07d}/0000090 loss={v}±0.0119 acc=31.25±0.09% t=00:00:07 ETA=00:00:00"
VAL = "val:   [████████] data={at:07d}/0000012 loss={v}±0.0119 acc=30.25±0.09% t=00:00:01 ETA=00:00:00"


def loss(epoch: int, at: int) -> float:
    return round(4 - (LENGTH * epoch + at) / 200, 3)


def epoch(number: int, counts: tuple[int, ...] = (30, 60, LENGTH)) -> str:
    rows = "\r".join(TRAIN.format(at=at, v=loss(number, at)) for at in counts)
    held = "\r".join(VAL.format(at=at, v=loss(number, LENGTH) + 0.25) for at in (4, 12))
    return f"{rows}\n{held}\n\n" if counts[-1] == LENGTH else f"{rows}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "train.log"
    path.write_text(text, newline="")
    return path


def test_states_of_bars_are_rows_of_their_epochs(tmp_path: Path) -> None:
    reading = read(written(tmp_path, "".join(map(epoch, range(3)))))
    assert reading.series["loss"] == [(90 * e + at, loss(e, at)) for e in range(3) for at in (30, 60, 90)]
    assert reading.series["val loss"] == [(90 * (e + 1), loss(e, 90) + 0.25) for e in range(3)]
    assert not reading.restarts


def test_full_bars_alone_are_an_epoch_each(tmp_path: Path) -> None:
    reading = read(written(tmp_path, "".join(epoch(number, (LENGTH,)) for number in range(5))))
    assert reading.series["loss"] == [(90 * (e + 1), loss(e, 90)) for e in range(5)]


def test_a_bar_that_was_left_in_its_middle_was_another_launch_s(tmp_path: Path) -> None:
    text = epoch(0) + epoch(1, (30, 60)) + "Killed\n" + epoch(0) + epoch(1)
    reading = read(written(tmp_path, text))
    assert [step for step, _ in reading.series["loss"]] == [30, 60, 90, 120, 150, 30, 60, 90, 120, 150, 180]
    assert len(reading.restarts) == 1
