"""A run with all that a run can have is answered from a server as from its folder: command, Python, SQL, page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from clickhouse_server import READER_PASSWORD, Server
from served_runs import Browser
from written_runs import Writer, WrittenRun

import barograph
from barograph.core.segments import FOLDER
from barograph.query import curation
from barograph.query.export import export
from barograph.query.folders import runs_folder
from barograph.query.sql import sql
from barograph.query.stored import StoredRun
from barograph.query.tables import TABLES
from barograph.store.clickhouse.push import push


def run_of_all_kinds(root: Path) -> StoredRun:
    """Media of each kind, histograms, layers, texts, evaluations, checkpoints, findings, devices, notes, a rewind."""
    run = barograph.init(
        project="p", id="all", dir=str(root), config={"lr": 1e-3, "model": {"width": 64}}, tags=["x"], git=False,
        sidecar=False, machine=False, verbosity=-2, wide_threshold=8,
    )  # fmt: skip
    generator = numpy.random.default_rng(0)
    for step in range(40):
        run.log({"train/loss": 3.0 - step / 40, "train/lr": 1e-3}, step=step)
        run.log({f"layers/{layer}/norm": float(layer + step) for layer in range(20)}, step=step)
        if step % 10 == 0:
            run.log_histogram("weights", generator.normal(size=200), step=step)
            run.log_image("picture", generator.integers(0, 255, (4, 4, 3)).astype(numpy.uint8), step=step)
            run.log_audio("sound", numpy.sin(numpy.arange(400) / 9).astype(numpy.float32), step, rate=8000)
            run.log_table("table", [["a", step], ["b", 2.5]], step, columns=["word", "number"])
            run.log_eval(step, loss=2.0 - step / 100)
    run.finish()
    folder = Path(run.dir)
    curation.edit(folder, notes="a good one", tags=["kept"])
    return StoredRun(folder)


def add_records(folder: Path) -> None:
    """What a sidecar and a training's probes write."""
    run = WrittenRun.__new__(WrittenRun)
    run.dir, run.clock = folder, iter(range(1_900_000_000_000_000, 1 << 62, 1000))
    run.segment = StoredRun(folder).segments[-1]
    writer = Writer(run, "sidecar-host.json", 0)
    at = (folder / "training.json").read_bytes().rfind(b"}") + 1
    writer.record("finding", 30, rule="loss-spike", severity="warning", message="it went up", first_step=28, at=at)
    writer.record("gpu", 30, id=0, power=412.5, temperature=61, at=at)
    writer.record("alert", 30, title="look", text="at this", level="warn", at=at)
    writer.close()
    assert (folder / FOLDER).is_dir()


def answers(place: Any, root: Path, out: Path) -> dict[str, Any]:
    """What each way to ask says of the run; root: the folder that it reads."""
    (run,) = barograph.runs(place)
    out.mkdir()
    result: dict[str, Any] = {
        "records": [(record.kind, record.time, record.step, repr(record.fields)) for record in run.records()],
        "media": [(item.name, item.step, Path(item.path).read_bytes()) for item in run.media()],
        "histograms": [
            (name, item.step, item.edges.tolist(), item.counts.tolist())
            for name in run.histogram_names() for item in run.histograms(name)
        ],
        "about": (run.config, run.notes, run.tags, run.status, run.names(), run.problems),
    }  # fmt: skip
    for table in TABLES:
        result[f"sql {table}"] = sql(f"select * from {table} order by all", place).to_pylist()
    export(run, "csv", out / "all.csv")
    result["csv"] = (out / "all.csv").read_text()
    with Browser(root) as page:
        (row,) = page.get("/api/runs")["runs"]
        key = row["key"]
        paths = ("", "/findings", "/histograms", "/media", "/names", "/layers", "/evals")
        for path in paths:
            answer = page.http.get(f"/api/runs/{key}{path}")
            result[f"page {path}"] = (answer.status_code, answer.content)
        shown = page.series((key, "train/loss"), (key, "layers/3/norm"), (key, "gpu/0/power"))
        result["page series"] = [{name: column.tolist() for name, column in each["columns"].items()} for each in shown]
    text = json.dumps(result, default=repr)
    for path in (str(root), str(out.parent / "here")):  # where it was written is in the records
        text = text.replace(path, "ROOT")
    return json.loads(text)  # type: ignore[no-any-return]


def test_a_run_of_all_kinds_is_answered_alike(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    run = run_of_all_kinds(here)
    add_records(run.dir)
    client = clickhouse.client()
    assert not push(run.dir, client).left_out
    wanted = answers(here, here, tmp_path / "a")
    assert wanted["media"] and wanted["histograms"] and wanted["sql findings"] and wanted["csv"]
    here.rename(tmp_path / "gone")
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", READER_PASSWORD)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = clickhouse.url(client.address.database, "reader")
    found = answers(url, runs_folder(url), tmp_path / "b")
    for way, said in wanted.items():
        assert found[way] == said, way
