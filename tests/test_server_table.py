"""Rows are true, made cheaply, and only what changed is looked at again."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from served_runs import finished, trained
from sidecar_runs import Writer, describe

from barograph.core import manifest
from barograph.doctor import diagnose
from barograph.query import curation
from barograph.query.stored import StoredRun
from barograph.views.overview import summary
from barograph.views.server import rows as rows_module
from barograph.views.server.places import Places, RunPlace
from barograph.views.server.table import RunTable


def one_row(root: Path, key: str) -> dict[str, Any]:
    return RunTable(Places(root)).whole_row(key).data


def test_a_row_of_a_run_that_ended(tmp_path: Path) -> None:
    finished(tmp_path, "a", 50, config={"model": {"width": 64}, "lr": 1e-3}, tags=["good"], total_steps=50)
    row = one_row(tmp_path, "p/a")
    assert row["status"] == "finished" and row["step"] == 49 and row["total_steps"] == 50
    assert row["config"] == {"model.width": 64, "lr": 1e-3} and row["tags"] == ["good"]
    assert row["last"]["train/loss"] == pytest.approx(3.0 - 49 / 50)
    assert next(iter(row["last"])) == "train/loss"
    assert row["best"]["train/loss"] == pytest.approx(3.0 - 49 / 50)
    assert row["best"]["val/accuracy"] == pytest.approx(49 / 50)
    assert "train/lr" not in row["best"]
    assert abs(row["created"] - time.time()) < 60 and row["wall_seconds"] < 60
    assert row["findings"] == {"critical": 0, "warning": 0, "info": 0}


def test_what_people_edited_stands_over_the_manifest(tmp_path: Path) -> None:
    folder = finished(tmp_path, "a", 5)
    table = RunTable(Places(tmp_path))
    table.refresh()
    curation.edit(folder, name="<script>", notes="n", tags=["x"], pinned=True, archived=True)
    assert table.refresh(force=True) == ["p/a"]
    row = table.row("p/a").data
    assert (row["name"], row["notes"], row["tags"], row["pinned"], row["archived"]) == (
        "<script>",
        "n",
        ["x"],
        True,
        True,
    )


def test_a_run_in_progress_is_followed(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 10, total_steps=100)
    table = RunTable(Places(tmp_path))
    row = table.whole_row("p/a")
    assert row.live and row.data["status"] == "running" and row.data["step"] == 9
    time.sleep(0.02)
    run.log({"train/loss": -5.0}, step=10)
    assert table.advance(["p/a"]) == ["p/a"]
    assert row.data["last"]["train/loss"] == row.data["best"]["train/loss"] == -5.0 and row.data["step"] == 10
    assert 0 < row.data["remaining_seconds"] < 60
    assert table.advance(["p/a"]) == []
    run.finish()
    assert table.refresh(force=True) == ["p/a"]
    assert table.row("p/a").data["status"] == "finished" and not table.row("p/a").live


def test_a_run_whose_process_went_away_is_crashed(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 10)
    run.finish()
    manifest.update(tmp_path / "p" / "a", status="running", pid=2**22 - 3, final_metrics={})
    row = one_row(tmp_path, "p/a")
    assert row["status"] == "crashed" and row["step"] == 9
    assert row["last"]["train/loss"] == pytest.approx(3.0 - 9 / 10), "read from its columns"


def test_findings_are_counted_from_the_log(tmp_path: Path) -> None:
    folder = finished(tmp_path, "a", 3)
    record = {"log": "finding", "time": "2026-01-01T00:00:00", "rule": "r", "key": "", "message": "m"}
    some = [record | {"step": 1, "severity": "critical"}, record | {"step": 1, "severity": "critical", "last_step": 9}]
    some.append(record | {"step": 2, "severity": "warning"})
    log = json.loads((folder / "training.json").read_text())
    (folder / "training.json").write_text(
        "[\n" + ",\n".join(json.dumps(one) for one in [*log, *some]).replace('": ', '":') + "\n]"
    )
    assert one_row(tmp_path, "p/a")["findings"] == {"critical": 1, "warning": 1, "info": 0}


def wrong(folder: Path, host: str, rule: str, severity: str) -> None:
    finding = {
        "log": "finding",
        "time": "2026-01-01T00:00:00",
        "step": 3,
        "rule": rule,
        "severity": severity,
        "key": "",
    }
    with open(folder / f"sidecar-{host}.json", "a") as log:
        log.write("[\n" + json.dumps(finding) + "\n]\n")


def test_findings_of_sidecars_are_counted_and_new_ones_seen(tmp_path: Path) -> None:
    folder = finished(tmp_path, "a", 5)
    table = RunTable(Places(tmp_path))
    table.refresh()
    wrong(folder, "here", "r", "critical")
    assert table.refresh(force=True) == ["p/a"]
    assert table.whole_row("p/a").data["findings"] == {"critical": 1, "warning": 0, "info": 0}
    wrong(folder, "there", "s", "warning")
    assert table.refresh(force=True) == ["p/a"]
    assert table.whole_row("p/a").data["findings"] == {"critical": 1, "warning": 1, "info": 0}


def test_findings_of_a_run_in_progress_come_from_its_sidecar(tmp_path: Path) -> None:
    run = trained(tmp_path, "a", 5)
    table = RunTable(Places(tmp_path))
    table.whole_row("p/a")
    wrong(Path(run.dir), "here", "r", "critical")
    assert table.advance(["p/a"]) == ["p/a"]
    assert table.row("p/a").data["findings"] == {"critical": 1, "warning": 0, "info": 0}
    run.finish()


def test_only_runs_that_changed_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        finished(tmp_path, name, 3)
    table = RunTable(Places(tmp_path))
    assert sorted(table.refresh()) == ["p/a", "p/b", "p/c"]
    assert table.wait_filled(20)
    read: list[Path] = []
    original = rows_module._manifest
    monkeypatch.setattr(rows_module, "_manifest", lambda folder: read.append(folder) or original(folder))
    assert table.refresh(force=True) == [] and read == []
    os.utime(tmp_path / "p" / "b" / "run_manifest.json")
    assert table.refresh(force=True) == ["p/b"] and [path.name for path in read] == ["b"]


def test_what_was_filled_in_is_told(tmp_path: Path) -> None:
    finished(tmp_path, "a", 3)
    told: list[str] = []
    table = RunTable(Places(tmp_path), told.extend)
    table.refresh()
    assert table.wait_filled(20)
    assert told == ["p/a"] and table.get("p/a").data["best"]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"config": 5, "tags": "x", "status": []}', b'{"a":' * 5000]
)
def test_a_damaged_manifest_still_has_a_row(tmp_path: Path, damage: bytes) -> None:
    folder = finished(tmp_path, "a", 3)
    (folder / "run_manifest.json").write_bytes(damage)
    row = one_row(tmp_path, "p/a")
    assert row["id"] == "a" and row["project"] == "p" and row["tags"] == []


def test_a_huge_configuration_is_cut_in_the_row(tmp_path: Path) -> None:
    folder = finished(tmp_path, "a", 3)
    manifest.update(folder, config={f"k{at}": "x" * 2000 for at in range(2000)} | {"long": list(range(10_000))})
    assert len(RunTable(Places(tmp_path)).row("p/a").raw) < 500_000


def test_a_fork_names_its_parent(tmp_path: Path) -> None:
    finished(tmp_path, "a", 10)
    folder = finished(tmp_path, "b", 10)
    path = folder / "segments" / "0001.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"source": str(tmp_path / "p" / "a"), "start_step": 5, "kind": "fork"}))
    table = RunTable(Places(tmp_path))
    table.refresh()
    row = table.row("p/b").data
    assert row["parent"] == "p/a" and row["fork_step"] == 5
    assert b"source" not in table.row("p/b").raw


def test_a_run_that_is_deleted_is_gone(tmp_path: Path) -> None:
    finished(tmp_path, "a", 3)
    table = RunTable(Places(tmp_path))
    table.refresh()
    os.rename(tmp_path / "p" / "a", tmp_path / ".away")
    assert table.refresh(force=True) == ["p/a"] and table.rows() == []


def test_the_doctors_findings_of_a_run_without_a_sidecar_are_counted_in_its_row(tmp_path: Path) -> None:
    for name in ("a", "b"):
        writer = Writer(tmp_path / "p" / name)
        describe(tmp_path / "p" / name, status="finished")
        for step in range(1, 200):
            writer.row(step, {"train/loss": math.nan if step > 150 and name == "a" else 3.0 / step**0.2})
        writer.close()
    asked: list[str] = []

    def asking(place: RunPlace) -> None:
        assert table.rows()[0].data["examined"] is False or table.rows()[1].data["examined"] is False
        asked.append(place.dir.name)
        severities = [one["severity"] for one in diagnose(StoredRun(place.dir))["findings"]]
        table.diagnosed(place.key, severities)

    table = RunTable(Places(tmp_path), diagnose=asking)
    table.refresh(force=True)
    assert table.wait_filled(60) and sorted(asked) == ["a", "b"]
    for row in table.rows():
        assert row.data["examined"] is True
        said = [one["severity"] for one in diagnose(StoredRun(row.place.dir))["findings"]]
        assert row.data["findings"] == {each: said.count(each) for each in ("critical", "warning", "info")}
    assert table.rows()[0].data["findings"]["critical"] or table.rows()[1].data["findings"]["critical"]


def test_the_step_of_a_run_in_progress_is_the_furthest_of_its_live_branch(tmp_path: Path) -> None:
    """Late evaluations set it back neither for who follows the log nor for who begins; a rewind does."""
    run = trained(tmp_path, "a", 30)
    table = RunTable(Places(tmp_path))

    def steps() -> list[int]:
        table.advance(["p/a"])
        fresh = RunTable(Places(tmp_path))
        followed, listed, whole = table.row("p/a").data["step"], fresh.row("p/a").data["step"], one_row(tmp_path, "p/a")
        found = [followed, listed, whole["step"], summary(StoredRun(tmp_path / "p" / "a"))["step"]]
        assert len(set(found)) == 1, found
        return found

    assert steps()[0] == 29
    run.log_eval(step=20, eval_loss=2.0)
    assert steps()[0] == 29
    run.rewind(step=12)
    run.log({"train/loss": 1.0}, step=12)
    assert steps()[0] == 12
    for step in range(13, 18):
        run.log({"train/loss": 1.0}, step=step)
    run.log_eval(step=15, eval_loss=2.0)
    run.log({"late": 1.0}, step=3)
    assert steps()[0] == 17
    run.finish()


def test_of_many_runs_those_read_first_are_given_before_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = finished(tmp_path / "made", "a", 3)
    for number in range(220):
        folder = tmp_path / "all" / "p" / f"r{number:03d}"
        shutil.copytree(original, folder)
        os.utime(folder, (1e9 + number, 1e9 + number))
    table = RunTable(Places(tmp_path / "all"))
    looked, go_on = table._look, threading.Event()

    def held(key: str, place: RunPlace) -> bool:
        if len(table._rows) == 205:
            assert go_on.wait(60)
        return looked(key, place)

    monkeypatch.setattr(table, "_look", held)
    first = table.first_rows(0.01)
    assert first is not None and 200 <= len(first) <= 205 and table.found == 220 and not table.is_ready
    assert {row.place.key for row in first} >= {f"p/r{number:03d}" for number in range(20, 220)}  # the newest
    go_on.set()
    assert len(table.rows()) == 220 and table.first_rows(0.01) is None


def test_few_runs_are_given_all_at_once(tmp_path: Path) -> None:
    finished(tmp_path, "a", 3)
    table = RunTable(Places(tmp_path))
    assert table.first_rows(0.0) is None and len(table.rows()) == 1


@pytest.mark.parametrize("status", ["silent", "stuck", "hung", "stalled", "killed"])
def test_who_makes_no_steps_has_no_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    run = trained(tmp_path, "a", 10, total_steps=100)
    row = RunTable(Places(tmp_path)).whole_row("p/a")
    assert row.data["remaining_seconds"] is not None
    monkeypatch.setattr(rows_module.liveness, "status", lambda folder, about: status)
    assert row.look_at_status() and row.data["remaining_seconds"] is None
    run.log({"train/loss": 1.0}, step=10)
    row.advance()
    assert row.data["remaining_seconds"] is None and row.data["step"] == 10
    run.finish()
