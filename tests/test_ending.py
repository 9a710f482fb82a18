"""How a run ended: one state for every way of asking, and the last lines of what did not end as it should."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.core import liveness, manifest
from barograph.query.ending import ending
from barograph.query.projects import projects
from barograph.query.stored import StoredRun
from barograph.views.overview import page
from barograph.views.report.webpage import report_html
from barograph.views.server.places import Places
from barograph.views.server.table import RunTable
from barograph.views.top.command import top

TRAINING = """
import math, os, signal, sys, barograph
how, folder = sys.argv[1:]
with barograph.init(project="p", name=how, dir=folder, console="none", machine=False, git=False) as run:
    for step in range(1, 60):
        bad = how.startswith("diverged") and step > 40
        name = "loss" if how == "diverged-by-another-name" else "train/loss"
        run.log({name: math.nan if bad else 3 / step, "eval/accuracy": 0.5 if step % 2 else math.inf}, step=step)
    if how == "crashed":
        os._exit(9)
    if how == "failed":
        raise ValueError("no such batch")
"""
STATES = {
    "finished": "finished", "diverged": "diverged", "diverged-by-another-name": "diverged", "crashed": "crashed",
    "failed": "failed",
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in STATES:
        subprocess.run([sys.executable, "-c", TRAINING, name, str(folder)], capture_output=True, check=False)
    log = folder.parent / "other.jsonl"
    rows = [{"step": step, "loss": 3 / step if step < 40 else "NaN"} for step in range(1, 60)]
    log.write_text("\n".join(map(json.dumps, rows)))
    command = [sys.executable, "-m", "barograph", "import", str(log), "--dir", str(folder), "--project", "p"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    return folder


def states(root: Path) -> dict[str, str]:
    imported = {run.name: "diverged" for run in barograph.runs(dir=root) if run.name not in STATES}
    assert len(imported) == 1
    return STATES | imported


def told(root: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "barograph", *words, "--dir", str(root), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_every_way_of_asking_has_the_same_state(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = states(root)
    runs = {run.name: run for run in barograph.runs(dir=root)}
    answers: dict[str, dict[str, str]] = {
        "Python": {name: run.status for name, run in runs.items()},
        "ls": {row["name"]: row["status"] for row in told(root, "ls")},
        "SQL": {row["name"]: row["status"] for row in told(root, "sql", "select name, status from runs")},
        "show": {name: told(root, "show", run.id)["status"] for name, run in runs.items()},
    }
    table = RunTable(Places(root))
    table.refresh(force=True)
    answers["page"] = {row.data["name"]: row.data["status"] for row in table.rows()}
    for way, answer in answers.items():
        assert answer == expected, way
    assert {run.name for run in barograph.runs(dir=root, where="status = diverged")} == {
        name for name, state in expected.items() if state == "diverged"
    }
    for name, run in runs.items():
        top(str(run.dir), once=True)
        assert f" {expected[name]}" in capsys.readouterr().out.splitlines()[0], name
        assert expected[name] in page(run).splitlines()[0]
    assert projects(runs.values())[0].failed == len(expected) - 1


def test_the_report_and_the_doctor_never_call_them_well(root: Path) -> None:
    for run in barograph.runs(dir=root):
        document = report_html(run)
        if run.status == "finished":
            continue
        assert "No problems" not in document and "no problems" not in document, run.name
        findings = barograph.doctor.diagnose(run)["findings"]
        assert findings and findings[0]["severity"] == "critical", run.name


def test_the_ending_has_the_last_lines_and_the_traceback(root: Path) -> None:
    found = {run.name: ending(run) for run in barograph.runs(dir=root)}
    assert found["finished"].lines == () and not found["finished"].needs_somebody
    for name in ("diverged", "crashed", "failed"):
        assert found[name].needs_somebody and found[name].step == 59
        assert any("59" in line for line in found[name].lines), name
    assert "ValueError: no such batch" in found["failed"].reason
    assert "no such batch" in found["failed"].traceback and "Traceback" in found["failed"].traceback
    text = page(StoredRun(root / "p" / next(run.id for run in barograph.runs(dir=root) if run.name == "failed")))
    assert "FAILED after step 59: ValueError: no such batch" in text and "Traceback" in text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "NaN", "Infinity"])
def test_only_the_training_loss_decides(tmp_path: Path, value: Any) -> None:
    for name, state in (
        ("train/loss", "diverged"),
        ("Loss", "diverged"),
        ("eval/loss", "finished"),
        ("lr", "finished"),
    ):
        about = {"status": "finished", "final_metrics": {"train/accuracy": 0.5, name: value}}
        assert liveness.status(tmp_path, about) == state, name
        assert liveness.status(tmp_path, about | {"status": "interrupted"}) == "interrupted"
    manifest.update(tmp_path, status="finished", final_metrics=[1])
    assert liveness.status(tmp_path, manifest.read(tmp_path)) == "finished"
