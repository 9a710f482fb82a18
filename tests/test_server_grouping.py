"""Groups on the page: the same as in Python, and one curve with a band for each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from served_runs import QUIET, Browser

import barograph
from barograph.query import curation
from barograph.query.groups import ALL_BUT_SEED, groups
from barograph.query.stored import StoredRun
from barograph.views.server import schema
from barograph.views.server.grouping import GroupMember, band
from barograph.views.tables.listing import run_ls

STEPS = 400


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two widths of three seeds; of the second width one becomes NaN and one ends early."""
    place = tmp_path_factory.mktemp("runs")
    for width in (64, 128):
        for seed in range(3):
            bad = width == 128 and seed == 1
            run = barograph.init(
                project="p", id=f"w{width}-s{seed}", dir=str(place), config={"width": width, "seed": seed}, **QUIET
            )
            for step in range(STEPS // 2 if width == 128 and seed == 2 else STEPS):
                loss = math.nan if bad and step >= 100 else 3.0 - step / STEPS + seed / 10 + width / 1000
                run.log({"train/loss": loss}, step=step)
                if step % 50 == 10 * seed:
                    run.log({"eval/loss": loss + 0.1}, step=step)
            run.finish()
    return place


@pytest.fixture
def browser(root: Path) -> Iterator[Browser]:
    with Browser(root) as made:
        made.server.table.refresh()
        assert made.server.table.wait_filled(60)
        yield made


@pytest.mark.parametrize("by", ["config.width", "width", ALL_BUT_SEED, "project", "status", "config.width,status"])
def test_the_page_python_and_the_command_agree_to_the_last_digit(
    browser: Browser, root: Path, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ["last:train/loss", "best:train/loss", "best:eval/loss", "last:nothing"]
    answer = browser.get("/api/groups", params={"by": by, "column": columns})
    schema.RunGroupsJson(**answer)
    wanted = groups(str(root), by.split(","))
    assert [group["label"] for group in answer["groups"]] == [group.label for group in wanted]
    for shown, group in zip(answer["groups"], wanted, strict=True):
        assert shown["runs"] == [f"p/{run.id}" for run in group.runs] and shown["failed"] == group.failed
        assert shown["statistics"] == {
            "last:train/loss": asdict(group.last("train/loss")),
            "best:train/loss": asdict(group.best("train/loss")),
            "best:eval/loss": asdict(group.best("eval/loss")),
        }
    assert run_ls([], dir=str(root), group=by, as_json=True) == 0
    for shown, row in zip(answer["groups"], json.loads(capsys.readouterr().out), strict=True):
        assert (row["label"], row["values"], row["failed"]) == (shown["label"], shown["values"], shown["failed"])
        assert row["runs"] == shown["runs"]
        for column, found in shown["statistics"].items():
            kind, name = column.split(":")
            assert row["metrics"][name][kind] == found
    assert run_ls([], dir=str(root), group=by) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(wanted) and lines[1].startswith(wanted[0].label)


def test_groups_are_of_the_runs_that_the_filter_lets_through(browser: Browser, root: Path) -> None:
    found = browser.get("/api/groups", params={"by": "config.width", "filter": "config.seed > 0"})["groups"]
    assert [len(group["runs"]) for group in found] == [2, 2]
    curation.edit(root / "p" / "w64-s0", archived=True)
    try:
        browser.server.table.refresh(force=True)
        counts = [
            [
                len(group["runs"])
                for group in browser.get("/api/groups", params={"by": "config.width", **more})["groups"]
            ]
            for more in ({}, {"archived": "1"})
        ]
        assert counts == [[2, 3], [3, 3]]
    finally:
        curation.edit(root / "p" / "w64-s0", archived=None)


def test_a_key_that_no_run_has_is_said(browser: Browser) -> None:
    assert "no configuration has a key" in browser.get("/api/groups", 404, params={"by": "config.depth"})["error"]


@pytest.mark.parametrize(("buckets", "x"), [(2000, "step"), (2000, "relative"), (40, "step")])
def test_a_curve_of_a_group_is_the_mean_with_its_deviation(browser: Browser, root: Path, buckets: int, x: str) -> None:
    keys = [f"p/w64-s{seed}" for seed in range(3)]
    (entry,) = browser.series(("group", "train/loss"), groups={"group": keys}, buckets=buckets, x=x)
    columns = entry["columns"]
    every = np.stack([StoredRun(root / "p" / key[2:]).series("train/loss").value for key in keys])
    if buckets == 2000 and x == "step":
        np.testing.assert_allclose(columns["mean"], every.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose((columns["max"] - columns["min"]) / 2, every.std(axis=0, ddof=1), rtol=1e-9)
        assert entry["last_value"] == columns["mean"][-1] and (columns["x"] == np.arange(STEPS)).all()
    elif x == "step":
        middle = columns["count"] == 3
        assert len(columns["x"]) <= buckets and middle.any()
        np.testing.assert_allclose(
            ((columns["max"] - columns["min"]) / 2)[middle], every.std(axis=0, ddof=1).mean(), rtol=0.1
        )
    assert (np.diff(columns["x"]) > 0).all()
    assert entry["run"] == "group" and entry["total"] == 3 * STEPS and entry["last_step"] == STEPS - 1


def test_runs_that_end_or_diverge_leave_the_mean_and_are_counted(browser: Browser) -> None:
    keys = [f"p/w128-s{seed}" for seed in range(3)]
    (entry,) = browser.series(("g", "train/loss"), groups={"g": keys}, buckets=2000)
    count = entry["columns"]["count"]
    assert count[50] == 3 and count[150] == 2 and count[-1] == 1
    assert [(mark["step"], mark["kind"]) for mark in entry["marks"]] == [(100, "nan")]


def test_runs_that_log_at_other_steps_are_aligned(browser: Browser) -> None:
    keys = [f"p/w64-s{seed}" for seed in range(3)]
    (entry,) = browser.series(("g", "eval/loss"), groups={"g": keys}, buckets=2000)
    columns = entry["columns"]
    inner = columns["count"] == 3
    # the losses are lines: between its points each run is where it would have been
    wanted = 3.0 - columns["x"] / STEPS + 0.1 + 0.064 + 0.1
    np.testing.assert_allclose(columns["mean"][inner], wanted[inner], rtol=1e-9)


def test_an_expression_and_smoothing_are_of_each_run(browser: Browser) -> None:
    keys = [f"p/w64-s{seed}" for seed in range(3)]
    options = {"groups": {"g": keys}, "buckets": 2000}
    plain, twice, smooth = (
        browser.series(("g", name), **options, smooth=factor)[0]["columns"]["mean"]
        for name, factor in (("train/loss", 0), ("train/loss * 2", 0), ("train/loss", 0.9))
    )
    np.testing.assert_allclose(twice, 2 * plain, rtol=1e-12)
    assert (smooth[1:] > plain[1:]).all(), "a falling line is followed from above"


def test_the_points_of_a_group_as_a_file_are_those_of_its_runs(browser: Browser) -> None:
    keys = [f"p/w64-s{seed}" for seed in range(3)]
    asked = {"series": [{"run": "g", "name": "train/loss"}], "groups": {"g": keys}}
    lines = browser.http.post("/api/series?format=csv", json=asked).text.splitlines()
    assert len(lines) == 1 + 3 * STEPS and len({line.split(",")[0] for line in lines[1:]}) == 3


def test_runs_beside_groups_and_what_no_run_has(browser: Browser) -> None:
    asked = [("g", "train/loss"), ("p/w64-s0", "train/loss"), ("g", "nothing"), ("h", "train/loss")]
    groups = {"g": ["p/w64-s0", "p/gone"], "h": []}
    mean, alone, nothing, empty = browser.series(*asked, groups=groups, buckets=2000)
    np.testing.assert_array_equal(mean["columns"]["mean"], alone["columns"]["y"])
    assert nothing["error"] == empty["error"] == "no run of the group has it"


@pytest.mark.parametrize("log", [False, True])
def test_a_band_in_a_range_has_the_places_of_the_range(log: bool) -> None:
    step = np.arange(1, 5001)
    members = [GroupMember(step.astype(float), np.log(step) + shift, step) for shift in (-1.0, 0.0, 1.0)]
    made = band(members, 100.0, 4000.0, 50, log)
    x = made.columns["x"]
    assert len(x) == 50 and x[0] >= 100 and x[-1] <= 4000 and made.points == 3 * 3901
    np.testing.assert_allclose(made.columns["mean"], np.log(x), atol=0.05)
    np.testing.assert_allclose(made.columns["max"] - made.columns["min"], 2.0, rtol=1e-6)
    gaps = np.diff(np.log(x) if log else x)
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-6)
