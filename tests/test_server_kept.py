"""Rows that were kept are those that would be made again, and are not taken when anything of them changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from served_runs import finished, trained

from barograph.query import curation
from barograph.views.server import kept
from barograph.views.server.filtering import select
from barograph.views.server.grouping import grouped
from barograph.views.server.places import Places
from barograph.views.server.rows import RunRow
from barograph.views.server.table import RunTable


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, which keeps rows of any number of runs; the folder that is served."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "FEWEST", 1)
    finished(tmp_path / "runs", "a", 30, config={"lr": 0.1, "deep": {"x": [1, 2]}}, tags=["t"])
    finished(tmp_path / "runs", "b", 30, config={"lr": "NaN", "name": "\ud83d\ude00 é"})
    finished(tmp_path / "runs", "bare", 0)
    curation.edit(finished(tmp_path / "runs", "c", 30), name="c c", tags=["t"], notes="n", pinned=True)
    return tmp_path / "runs"


def served(folder: Path, fill: bool = True) -> RunTable:
    table = RunTable(Places(folder))
    table.refresh()
    if fill:
        assert table.wait_filled(60)
    return table


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of runs whose row was made from their files."""
    names: list[str] = []
    build = RunRow.build
    monkeypatch.setattr(RunRow, "build", lambda row, seen: (names.append(row.place.dir.name), build(row, seen)))
    return names


def answers(table: RunTable) -> Any:
    rows = table.rows()
    texts = ("config.lr = 0.1", "tag = t and name ~ c*", "host", "deep", "not created < 2020-01-01")
    matching = [[row.data["key"] for row in select(rows, text, table.places)] for text in texts]
    columns = ["last:train/loss", "best:val/accuracy", "step"]
    groups = [grouped(rows, [key], columns) for key in ("lr", "tags", "all but seed", "project")]
    return [row.data for row in rows], [json.loads(row.raw) for row in rows], matching, groups


@pytest.mark.parametrize("fill", [True, False], ids=["filled in", "ended early"])
def test_kept_rows_are_those_that_are_made_from_the_files(folder: Path, built: list[str], fill: bool) -> None:
    first = served(folder, fill)
    first.close()
    built.clear()
    second = served(folder)
    assert built == []
    third = RunTable(Places(folder))
    third._kept = kept.KeptRows(folder / "elsewhere")
    third.refresh()
    assert third.wait_filled(60) and sorted(built) == ["a", "b", "bare", "c"]
    assert answers(second) == answers(third)


def test_a_run_that_changed_is_read_again(folder: Path, built: list[str]) -> None:
    served(folder).close()
    curation.edit(folder / "p" / "a", notes="other")
    manifest = folder / "p" / "b" / "run_manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"status": "killed"}))
    with open(folder / "p" / "bare" / "sidecar-h.json", "w") as log:
        log.write("[]")
    built.clear()
    table = served(folder)
    assert sorted(built) == ["a", "b", "bare"]
    assert [table.row(f"p/{name}").data["status"] for name in "abc"] == ["finished", "killed", "finished"]
    assert table.row("p/a").data["notes"] == "other"


def test_a_run_in_progress_is_not_kept(folder: Path, built: list[str]) -> None:
    run = trained(folder, "live", 10)
    served(folder).close()
    built.clear()
    assert served(folder).row("p/live").live and built == ["live"]
    run.finish()


def test_rows_of_other_code_or_options_or_a_damaged_file_are_not_taken(
    folder: Path, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served(folder).close()
    file = next((folder.parent / "cache").glob("barograph/rows/*.msgpack"))
    assert file.stat().st_mode & 0o077 == 0
    whole = file.read_bytes()
    for content in (whole[:-10], b"", whole[::-1], b"\x80"):
        file.write_bytes(content)
        built.clear()
        served(folder)
        assert len(built) == 4
    file.write_bytes(whole)
    built.clear()
    served(folder)
    assert not built
    with monkeypatch.context() as other:  # the doctor is not asked about this any more
        other.setenv("BAROGRAPH_SILENCE", "loss_spike")
        served(folder)
    assert len(built) == 4
    built.clear()
    monkeypatch.setattr(kept, "_code", lambda: "other")
    served(folder)
    assert len(built) == 4


def test_what_cannot_be_written_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "file"))
    served(folder).close()
    assert len(served(folder).rows()) == 4
