"""Exports say what the run says, and nothing where it says nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from barograph.importing.read import read
from barograph.query.export import export
from barograph.query.stored import StoredRun


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    """One of whose log says no times."""
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,2.5\n2,2.25\n")
    return read(path)[0]


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_an_unknown_time_is_empty_and_not_1970(run: StoredRun, tmp_path: Path, layout: str) -> None:
    assert export(run, "csv", tmp_path / "out.csv", layout=layout) == 2
    assert {row["time"] for row in csv.DictReader((tmp_path / "out.csv").open())} == {""}
    export(run, "jsonl", tmp_path / "out.jsonl", layout=layout)
    assert {json.loads(line)["time"] for line in (tmp_path / "out.jsonl").open()} == {""}
    export(run, "parquet", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column("time").null_count == 2
