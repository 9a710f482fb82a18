"""Tables with a row for each data: training, validation, test."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pytest
from textlog_readings import collect, find, read

from barograph.core.roles import main_evaluation, main_loss
from barograph.importing.textlogs import data_tables

LOSS = [(at, round(1 + 4 / at, 4)) for at in range(1, 8)]


def written(folder: Path, text: str, name: str = "train.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def drawn(heading: str, *rows: str) -> str:
    """A table with drawn lines, as wide as its heading."""
    line = "─" * (len(heading) - 2)
    return "\n".join([f"┌{line}┐", heading, f"├{line}┤", *rows, f"└{line}┘"]) + "\n"


def test_a_table_an_epoch_with_a_row_for_each_data(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch   {at}\nFitting: 100% 4/4 [00:02<00:00,  2.01it/s]\nTook 2.01s\n"
        + drawn(
            "│ price    │    loss │   accuracy │",
            f"│ train    │ {value:.4f}  │     0.4012 │",
            "├──────────┼─────────┼────────────┤",
            f"│ vali     │ {value + 1:.4f}  │     0.3012 │",
            f"│ test     │ {value + 2:.4f}  │     0.2012 │",
        )
        for at, value in LOSS
    )
    reading = read(written(tmp_path, text))
    assert reading.series["train price loss"] == LOSS and reading.axes["train price loss"] == "epoch"
    assert reading.series["val price loss"] == [(at, round(value + 1, 4)) for at, value in LOSS]
    assert reading.series["test price accuracy"] == [(at, 0.2012) for at, _ in LOSS]
    assert main_loss(reading.series) == "train price loss" and main_evaluation(reading.series) == "val price loss"


def test_a_table_whose_rows_name_the_phase_and_the_epoch(tmp_path: Path) -> None:
    text = "".join(
        drawn("│     Phase │ Epoch │    Loss │", f"│ TrainPhase │  {at}.0 │ {value} │")
        + drawn("│     Phase │ Epoch │    Loss │", f"│ ValidationPhase │  {at}.0 │ {value + 1} │")
        for at, value in LOSS
    )
    reading = read(written(tmp_path, text))
    assert reading.series["train Loss"] == LOSS
    assert reading.series["val Loss"] == [(at, value + 1) for at, value in LOSS]


@pytest.mark.parametrize("text", [
    "| model | loss | accuracy |\n|---|---|---|\n| train | 0.31 | 0.9 |\n| test | 0.41 | 0.8 |\n",
    "| split | rows | files |\n|---|---|---|\n" + "| train | 1200 | 3 |\n| test | 100 | 1 |\n" * 6,
])  # fmt: skip
def test_a_single_table_of_results_is_no_log(tmp_path: Path, text: str) -> None:
    assert find(written(tmp_path, text)) == []


def test_a_heading_goes_on_in_the_next_text() -> None:
    own: dict[str, object] = {}
    data_tables.said_in_rows(b"| part | loss | step |\n", own)
    assert data_tables.said_in_rows(b"| train | 2.5 | 40 |\n", own) == b"step 40: train loss=2.5\n"
    assert data_tables.said_in_rows(b"| train | 2.5 |\n", own) == b"| train | 2.5 |\n"


@pytest.mark.parametrize("text", [
    b"|" * 200_000, b"| a" * 60_000, b" " * 200_000 + b"|", b"| train" + b" " * 200_000, b"| a |" + b" |" * 90_000,
    b"| train |\n" * 20_000,
])  # fmt: skip
def test_no_text_takes_long(text: bytes) -> None:
    begin = perf_counter()
    data_tables.said_in_rows(b"| part | loss |\n" + text, {})
    assert perf_counter() - begin < 2


def test_the_first_table_below_an_epoch_is_read_while_it_is_written(tmp_path: Path) -> None:
    tables = [
        f"Epoch   {at}\nTook 2.01s\n"
        + drawn("│ price    │    loss │", f"│ train    │ {value:.4f}  │", f"│ vali     │ {value + 1:.4f}  │")
        for at, value in LOSS
    ]
    path = written(tmp_path, "".join(tables))
    ((dialect, found), *_) = find(path)
    whole = collect(dialect, found).series
    assert whole["train price loss"] == LOSS
    pieces: dict[str, list[tuple[int, float]]] = {}
    mark = None
    for end in range(1, len(tables) + 1):
        path.write_text("".join(tables[:end]))
        reading = collect(dialect, found, mark)
        mark = reading.mark
        for name, values in reading.series.items():
            pieces[name] = pieces.get(name, []) + values
    assert pieces == whole
