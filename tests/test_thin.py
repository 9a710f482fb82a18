"""A thinned run's folder: its log and its columns have the same points, and every place in the log is where it was."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from test_contract import STATES
from written_runs import Writer, WrittenRun

from barograph.log.follow import Follower
from barograph.log.read import read_log
from barograph.query.files import thinned
from barograph.query.stored import StoredRun
from barograph.store.seal import seal
from barograph.store.thin import thin, thinned_sentence

NOW = 1_790_000_000_000_000


def points_of(run: StoredRun) -> dict[str, list[tuple[str, ...]]]:
    return {
        name: sorted(tuple(map(repr, row)) for row in zip(*(column.tolist() for column in columns), strict=True))
        for name, columns in run.points_of(run.names(), "all", "all")
    }


@pytest.mark.parametrize("steps", [0, 4, 1000])
@pytest.mark.parametrize("name", STATES)
def test_logs_alone_have_the_points_that_the_parts_have_of_them(name: str, steps: int, tmp_path: Path) -> None:
    STATES[name](tmp_path / "p")
    folder = tmp_path / "p" / "r"
    seal(folder, final=True)
    sizes = {path.name: path.stat().st_size for path in folder.glob("training*.json")}
    before = points_of(StoredRun(folder))
    done = thin(folder, steps, NOW)
    assert {path.name: path.stat().st_size for path in folder.glob("training*.json")} == sizes
    run = StoredRun(folder)
    after = points_of(run)
    if run.origin is None:
        assert done.points_left == sum(map(len, after.values()))
    assert after.keys() <= before.keys()
    assert all(set(points) <= set(before[series]) for series, points in after.items())
    assert thinned(run) == thinned_sentence(folder)
    shutil.rmtree(folder / "store")
    narrow = points_of(StoredRun(folder))
    assert all(narrow[series] == after[series] for series in narrow if not series.startswith("act/"))


def test_a_thinned_log_is_an_array_of_what_stays_and_is_followed_over_long_gaps(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    sidecar = Writer(run, "sidecar-host.json", 0)
    for step in range(4000):
        run.rank().metrics(step, a=math.cos(step), b=7.0)
        if step % 1000 == 500:
            sidecar.record("finding", step, rule="r", severity="info", message="m", at=run.rank().log.position)
            run.rank().record("info", step, message="stays")
    sidecar.close()
    run.end()
    seal(run.dir, final=True)
    done = thin(run.dir, 0, NOW)
    assert done.points == 8000 and done.points_left <= 8
    left = json.loads((run.dir / "training.json").read_bytes())
    records = read_log(run.dir / "training.json")
    assert [item["log"] for item in records].count("info") == 4
    assert len(records) < len(left) < 30
    follower = Follower(run.dir)
    entries = []
    while new := follower.read():
        entries += new
    kinds = [entry.item.kind for entry in entries]  # type: ignore[union-attr]
    assert (kinds.count("info"), kinds.count("finding")) == (4, 4)
    assert kinds.count("metrics") == len([item for item in records if item["log"] == "metrics"])
    assert [record.kind for record in StoredRun(run.dir).records()].count("info") == 4
    assert StoredRun(run.dir).series("a").step[-1] == 3999


def test_what_was_thinned_is_not_thinned_again(tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    for step in range(100):
        run.rank().metrics(step, a=float(step))
    run.end()
    seal(run.dir, final=True)
    thin(run.dir, 10, NOW)
    before, said = points_of(StoredRun(run.dir)), thinned_sentence(run.dir)
    assert thin(run.dir, 10, NOW + 1).parts == []
    assert points_of(StoredRun(run.dir)) == before and thinned_sentence(run.dir) == said
