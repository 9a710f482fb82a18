"""What the server answers is what its types say, and the page's types are made from those."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served_runs import QUIET, Browser, finished, trained
from test_server_events import Ear, hearing

import barograph
from barograph.views.server import comparisons, schema, typescript
from barograph.views.server.app import Server
from barograph.views.server.frames import unpack

TYPES = Path(__file__).parents[1] / "web" / "src" / "api" / "types.ts"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A server over runs that have something of every kind."""
    root = tmp_path_factory.mktemp("served")
    with barograph.init(
        project="p", id="rich", dir=str(root), config={"lr": 0.1, "deep": {"x": [1, 2]}}, **QUIET
    ) as run:
        for step in range(80):
            values: dict[str, float] = {f"gradients/layers.{at}/norm": at + step for at in range(3)}
            values["gradients/layers.0/std"] = math.nan
            values |= {f"moe/layers.{at}/load/{expert}": float(expert) for at in (0, 1) for expert in range(4)}
            values |= {"train/loss": math.nan if step > 60 else 3.0 - step / 80, "val/accuracy": step / 80}
            run.log(values, step=step)
            if step % 20 == 0:
                run.log_histogram("weights_hist/a", [1, 2, 3, step], step, edges=np.arange(5.0) * (step + 1))
    finished(root, "same", 80, config={"lr": 0.1}, tags=["t"], notes="n")
    finished(root, "other", 80, config={"lr": 0.2})
    finished(root, "bare", 0)
    with Browser(root) as made:
        made.server.table.refresh()
        made.server.table.wait_filled(20)
        yield made


def held(answer: Any, kind: Any) -> Any:
    """The answer as its type; raises where a field is missing, unknown, or of another type."""
    return msgspec.convert(answer, kind, strict=True)


def test_the_types_of_the_page_are_those_that_the_structs_make() -> None:
    written = TYPES.read_text(encoding="utf-8")
    again = "python -m barograph.views.server.typescript web/src/api/types.ts"
    assert written == typescript.source(), f"write the file again: {again}"


def test_the_list_of_runs_and_the_server_itself(browser: Browser) -> None:
    assert held(browser.get("/api/about"), schema.AboutJson).version == barograph.__version__
    runs = held(browser.get("/api/runs"), schema.RunsJson).runs
    assert {row.id for row in runs} == {"rich", "same", "other", "bare"}
    assert held(browser.get("/api/runs?filter=config.lr = 0.2"), schema.RunsJson).runs[0].id == "other"


def test_everything_of_one_run(browser: Browser) -> None:
    for name in ("rich", "same", "bare"):
        path = f"/api/runs/p/{name}"
        detail = held(browser.get(path), schema.DetailJson)
        assert detail.segments and detail.id == name
        held(browser.get(f"{path}/system"), schema.SystemJson)
        held(browser.get(f"{path}/names"), schema.NamesJson)
        assert held(browser.get(f"{path}/findings"), schema.DiagnosisJson).run
    assert held(browser.get("/api/runs/p/rich/names?match=loss"), schema.NamesJson).total == 1
    assert held(browser.get("/api/runs/p/rich/names?tree=gradients"), schema.TreeJson).groups
    assert browser.get("/api/runs/p/rich/findings")["findings"], "there is a NaN to be found"


@pytest.mark.parametrize("run", ["rich", "bare"])
def test_frames_have_the_headers_that_are_promised(browser: Browser, run: str) -> None:
    kinds = {
        "layers": schema.LayersHeaderJson,
        "histograms": schema.HistogramsHeaderJson,
        "experts": schema.ExpertsHeaderJson,
    }
    for address, kind in kinds.items():
        header, _ = unpack(browser.http.get(f"/api/runs/p/{run}/{address}").content)
        held(header, kind)


@pytest.mark.parametrize(
    "options",
    [{}, {"buckets": 7}, {"buckets": 7, "places": True, "smooth": 0.9}, {"from": 10, "to": 20}, {"branch": "all"}],
)
def test_series_exact_in_buckets_in_a_range_and_missing(browser: Browser, options: dict[str, Any]) -> None:
    names = ["train/loss", "val/accuracy", "there/is/none"]
    asked = {"series": [{"run": "p/rich", "name": name} for name in names], "x": "step"} | options
    answer = browser.http.post("/api/series", json=asked)
    frame = held(unpack(answer.content)[0], schema.SeriesFrameJson)
    assert [bool(one.error) for one in frame.series] == [False, False, True]
    assert [mark.kind for mark in frame.series[0].marks[:1]] == ([] if "from" in options else ["nan"])


def test_a_comparison(browser: Browser) -> None:
    answer = browser.get("/api/compare?run=p/rich&run=p/other&run=p/same")
    found = held(answer, comparisons.ComparisonJson)
    assert {run.key for side in found.sides for run in side.runs} == {"p/rich", "p/other", "p/same"}
    assert found.rows


def test_edits_and_the_trash(tmp_path: Path) -> None:
    finished(tmp_path, "gone", 5)
    run = trained(tmp_path, "going", 5)
    with Browser(tmp_path) as own:
        edited = own.http.put("/api/runs/p/gone", json={"name": "renamed"}, headers=own.edit).json()
        assert held(edited, schema.RowJson).name == "renamed"
        deleted = held(own.http.delete("/api/runs/p/gone", headers=own.edit).json(), schema.DeletedJson)
        back = own.http.post(f"/api/trash/{deleted.id}/restore", headers=own.edit).json()
        assert held(back, schema.RestoredJson).key == "p/gone"
        assert held(own.get("/api/runs/p/going"), schema.DetailJson).status == "running"
    run.finish()


def test_what_is_live(tmp_path: Path) -> None:
    run = trained(tmp_path, "going", 5)

    async def play(server: Server) -> None:
        ear = Ear(server.hub.stream(["p/going"]))
        run.log({"train/loss": 1.0}, step=5)
        assert held(await ear.next("points"), schema.PointsEventJson).run == "p/going"
        assert held(await ear.next("rows"), schema.RowsEventJson).rows[0].key == "p/going"

    hearing(tmp_path, play)
    run.finish()


def test_a_field_that_no_type_names_is_refused() -> None:
    about = {"version": "1", "root": "/", "token_needed": False, "edit_token": "x"}
    assert held(json.loads(json.dumps(about)), schema.AboutJson)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        held(about | {"colour": 1}, schema.AboutJson)
