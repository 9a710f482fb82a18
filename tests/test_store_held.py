"""Rows that one process keeps in its memory are those that an import stores, in the same order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from barograph.doctor.diagnosis import diagnose
from barograph.importing.read import read
from barograph.query.stored import StoredRun
from barograph.store import held
from barograph.store.run import RunStore
from barograph.store.write import ImportWriter


@pytest.fixture(autouse=True)
def nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "_held", {})
    monkeypatch.setattr(held, "_room", {"used": 0})


def log(path: Path, rows: int = 300) -> Path:
    """Steps go back at 200: a second launch in one file; a line of words; an evaluation now and then."""
    lines = []
    for row in range(rows):
        step = row if row < 200 else row - 20
        lines.append(f"step {step} | loss {3 - row / 200:.4f} | lr {1e-3:.1e} | grad norm {1 + row % 7:.3f}")
        if row % 50 == 49:
            lines.append(f"step {step} | val loss {3.1 - row / 200:.4f}")
    path.write_text("\n".join([*lines, "WARNING: the loader had to retry", ""]))
    return path


def both(path: Path) -> tuple[StoredRun, StoredRun]:
    return read(path, logged=False)[0], read(path)[0]


def parts(run: StoredRun) -> list[str]:
    return [path.name for path in (run.dir / "store").rglob("*.parquet")]


def test_what_is_held_is_what_an_import_stores(tmp_path: Path) -> None:
    kept, stored = both(log(tmp_path / "train.log"))
    assert not parts(kept) and parts(stored)
    assert kept.names() == stored.names() and "train/loss" in kept.names()
    ours, theirs = kept.all_columns("all"), stored.all_columns("all")
    for name, columns in theirs.items():
        for one, other in zip(ours[name], columns, strict=True):
            assert one.dtype == other.dtype and one.tolist() == other.tolist()
    assert [segment.start_step for segment in kept.segments] == [segment.start_step for segment in stored.segments]
    said = [diagnose(run) for run in (kept, stored)]
    for one in said:
        del one["run"], one["source"]
    assert said[0] == said[1]


def test_more_rows_than_may_be_held_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST", 100)
    kept, stored = both(log(tmp_path / "train.log"))
    assert parts(kept)
    ours, theirs = kept.all_columns("all"), stored.all_columns("all")
    assert ours.keys() == theirs.keys()
    for name, columns in theirs.items():
        assert [column.tolist() for column in ours[name]] == [column.tolist() for column in columns]


def test_rows_that_are_written_later_come_behind_those_that_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run" / "store" / "training"
    writer = ImportWriter(folder, here=True)
    ones = np.ones(3, np.int64)
    (tmp_path / "run" / "training.jsonl").write_text("[\n]\n")
    for at, most in enumerate((1_000, 1_000, 0, 1_000)):
        monkeypatch.setattr(held, "MOST", most)
        values = np.full((3, 1), float(at))
        writer.points(("train/loss",), ones, ones, values, 1)
        writer.histogram("weights", 1, 1, np.arange(3.0), np.full(2, float(at)), 1)
        writer.commit(10 * (at + 1), ())
    assert len(list(folder.glob("*.points.parquet"))) == 2 and len(held.held(folder)) == 2
    look = RunStore(tmp_path / "run").look()
    assert look.names() == ["train/loss"] and look.has("train/loss") and not look.has("train/other")
    # rows of one step stay in the order in which they came
    assert look.points("train/loss").value.tolist() == [0.0] * 3 + [1.0] * 3 + [2.0] * 3 + [3.0] * 3
    assert [counts.tolist() for counts in look.histograms("weights").counts] == [[float(at)] * 2 for at in range(4)]
    held.let_go(tmp_path)
    assert not held.held(folder)
    assert RunStore(tmp_path / "run").look().points("train/loss").value.tolist() == [2.0] * 3 + [3.0] * 3
