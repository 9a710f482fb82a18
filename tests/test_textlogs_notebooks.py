"""A notebook is read by what its cells have printed, not by its program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from textlog_readings import find, read

from barograph.doctor.command import run_doctor

ROWS = "".join(f"Epoch {at}: train loss {2 / at:.4f}, val loss {2.2 / at:.4f}\n" for at in range(1, 7))
TABLE = (
    "<table><thead><tr>\n<th>Step</th>\n<th>Training Loss</th>\n<th>Validation Loss</th>\n</tr></thead>\n<tbody>"
    + "".join(f"<tr>\n<td>{at}00</td>\n<td>{3 - at / 10}</td>\n<td>{3.1 - at / 10}</td>\n</tr>" for at in range(1, 6))
    + "</tbody></table>"
)


def notebook(path: Path, *outputs: dict[str, Any], source: str = "train()\n", indent: int | None = 1) -> Path:
    cells = [
        {"cell_type": "code", "execution_count": at, "metadata": {}, "outputs": [output], "source": [source]}
        for at, output in enumerate(outputs, 1)
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent))
    return path


def printed(text: str) -> dict[str, Any]:
    return {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}


@pytest.mark.parametrize("indent", [1, None])
def test_printed_rows_are_read(tmp_path: Path, indent: int | None) -> None:
    series = read(notebook(tmp_path / "train.ipynb", printed(ROWS), indent=indent)).series
    assert series["train loss"] == [(at, round(2 / at, 4)) for at in range(1, 7)]
    assert series["val loss"] == [(at, round(2.2 / at, 4)) for at in range(1, 7)]


@pytest.mark.parametrize("indent", [1, None])
def test_a_trainers_table_is_read(tmp_path: Path, indent: int | None) -> None:
    shown = {"data": {"text/html": TABLE.splitlines(keepends=True)}, "metadata": {}, "output_type": "display_data"}
    series = read(notebook(tmp_path / "train.ipynb", shown, indent=indent)).series
    assert [step for step, _ in series["Training_Loss"]] == [100, 200, 300, 400, 500]
    assert series["Validation_Loss"][-1] == (500, 2.6)


def test_the_program_is_no_log(tmp_path: Path) -> None:
    path = notebook(tmp_path / "train.ipynb", printed("done\n"), source="# Epoch 1: loss 2.3\n# Epoch 2: loss 2.1\n")
    assert not find(path)


def test_an_exception_has_the_line_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = {
        "ename": "ValueError", "evalue": "no batch", "output_type": "error",
        "traceback": ["-" * 60, "ValueError          Traceback (most recent call last)", "ValueError: no batch"],
    }  # fmt: skip
    path = notebook(tmp_path / "train.ipynb", printed(ROWS), failed)
    run_doctor([str(path)])
    number = next(
        at for at, line in enumerate(path.read_text().split("\n"), 1) if line.strip() == '"ValueError: no batch"'
    )
    told = " ".join(capsys.readouterr().out.split())
    assert "The training failed after step 6: ValueError: no batch" in told
    assert f"Read the log above line {number}, where the traceback is" in told
