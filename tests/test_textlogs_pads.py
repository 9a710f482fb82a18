"""Cells of a table that say NaN where a row has no such value are no values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textlog_readings import read

import barograph
from barograph.doctor import diagnose
from barograph.importing.textlogs import pads

TRAINED = [(at * 30, round(0.4 + 2 / at, 4)) for at in range(1, 40)]
HELD_OUT = [(at * 70, round(0.6 + 2 / at, 4)) for at in range(1, 17)]


def written(folder: Path, rows: list[str], heading: str = "Step\tTrain loss\tValid loss", before: str = "") -> Path:
    path = folder / "train.log"
    path.write_text("".join(f"{before}{line}\n" for line in [heading, *rows]))
    return path


def in_turn() -> list[str]:
    """Rows of the training and of the validation in the order of their steps."""
    both = [(step, f"{step}\t{loss}\tnan") for step, loss in TRAINED]
    both += [(step, f"{step}\tnan\t{loss}") for step, loss in HELD_OUT]
    return [row for _, row in sorted(both)]


def found(path: Path) -> list[str]:
    return [str(one["rule"]) for one in diagnose(barograph.read(path)[0])["findings"]]


def test_rows_of_two_kinds_have_no_value_of_the_other(tmp_path: Path) -> None:
    path = written(tmp_path, in_turn(), before="2023-02-04 10:11:12,131 INFO [search/MainProcess] model._history : ")
    reading = read(path)
    assert reading.series == {"Train_loss": TRAINED, "Valid_loss": HELD_OUT} and not reading.unread
    assert not [rule for rule in found(path) if "finite" in rule]


def test_a_column_of_data_held_out_may_have_a_number_now_and_then(tmp_path: Path) -> None:
    rows = [f"{at} {5 / (at + 1):.4f} {6 / (at + 1):.4f}" if at % 5 == 4 else f"{at} {5 / (at + 1):.4f} NaN"
            for at in range(60)]  # fmt: skip
    series = read(written(tmp_path, rows, "epoch train_loss val_loss")).series
    assert len(series["train_loss"]) == 60
    assert [step for step, _ in series["val_loss"]] == [*range(4, 60, 5)]


def test_a_loss_that_is_nan_stays(tmp_path: Path) -> None:
    rows = [f"{at}\t{2 / at if at < 9 else 'nan'}\t{3 / at:.4f}" for at in range(1, 20)]
    path = written(tmp_path, rows)
    assert [step for step, value in read(path).series["Train_loss"] if value != value] == [*range(9, 20)]
    assert found(path)[0] == "non_finite_loss"
    path = written(tmp_path, [row.replace("0.45", "nan") for row in in_turn()[:20]] + ["1800\tnan\tnan"])
    assert found(path)[0] == "non_finite_loss"  # the training's own row


def test_a_decision_holds_for_the_rows_that_follow() -> None:
    own: dict[str, Any] = {}
    both = [[(b"a", b"1.5"), (b"b", b"nan")], [(b"a", b"nan"), (b"b", b"2.5")]]
    assert pads.without(both * 2, own) == [[(b"a", b"1.5")], [(b"b", b"2.5")]] * 2
    assert pads.without(both[1:], own) == [[(b"b", b"2.5")]]
    lost = [[(b"a", b"nan"), (b"b", b"nan")]]
    assert pads.without(lost, own) == lost


def test_numbers_of_data_held_out_may_be_far_apart() -> None:
    own: dict[str, Any] = {}
    rows = [[(b"loss", b"0.5"), (b"val_loss", b"0.7" if at % 4 == 3 else b"nan")] for at in range(16)]
    assert [len(row) for row in pads.without(rows, own)] == [1, 1, 1, 2] * 4
    assert [len(row) for row in pads.without(rows[:3], own)] == [1, 1, 1]
    assert pads.without(rows[:3] * 3, own) == rows[:3] * 3  # none for far longer
    other = [[(b"acc", b"0.5"), (b"loss", b"0.7" if at % 2 else b"nan")] for at in range(16)]
    assert pads.without(other, {}) == other
