"""Points thinned on a server: what stays is what was logged, every answer says so, and nothing brings the rest back."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
from clickhouse_server import PASSWORD, Server
from test_contract import STATES, ask_everybody
from test_fleet_answers import compare
from test_fleet_push import CutOff, everything, pull_all, push_all
from written_runs import WrittenRun

import barograph
from barograph.cli import main
from barograph.query.files import thinned
from barograph.query.sql import answer
from barograph.query.stored import StoredRun
from barograph.store.clickhouse.batches import where
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.registry import read_thinned
from barograph.store.clickhouse.thinning import thin_run

STEPS = 10


def check_thinned(before: StoredRun, after: StoredRun, steps: int) -> None:
    """Every bucket's first, lowest, highest and last point of the live branch, and no point that was not logged."""
    old, new = everything(before), everything(after)
    for name, points in new["points"].items():  # type: ignore[attr-defined]
        assert set(points) <= set(old["points"][name]), name  # type: ignore[index]
    for name in before.names():
        left = after.series(name)
        kept = set(zip(left.step.tolist(), map(repr, left.value.tolist()), strict=True))
        whole = before.series(name)
        bucket = whole.step // steps if steps else whole.step * 0
        for number in numpy.unique(bucket):
            step, value = whole.step[bucket == number], whole.value[bucket == number]
            finite = value[numpy.isfinite(value)]
            assert {(step[0], repr(float(value[0]))), (step[-1], repr(float(value[-1])))} <= kept, name
            extremes = {repr(float(each)) for each in (finite.min(), finite.max())} if len(finite) else set()
            assert extremes <= {value for at, value in kept if at in step}, name
            assert len(finite) == len(value) or any(not math.isfinite(float(each)) for _, each in kept), name
    assert new["segments"] == old["segments"] and new["config"] == old["config"]
    assert {row for row in old["records"] if row[0] in ("segment", "finding", "eval")} <= set(new["records"])  # type: ignore[attr-defined,call-overload]


@pytest.mark.parametrize("name", STATES)
def test_a_thinned_run_has_each_buckets_extremes_and_is_asked_like_any_other(
    name: str, clickhouse: Server, tmp_path: Path
) -> None:
    root = tmp_path / "p"
    STATES[name](root)
    client = clickhouse.client()
    push_all(root, client)
    summed_up = client.rows("SELECT * FROM summaries ORDER BY project, run, name, version")
    before = StoredRun(root / "r")
    if name == "bad_bytes_in_side_files":
        with pytest.raises(ValueError, match="manifest"):
            thin_run(client, "p", "r", STEPS, confirmed=True)
        return compare(client, before)
    sizes = thin_run(client, "p", "r", STEPS, confirmed=False)
    assert not read_thinned(client, "p", "r") and not client.rows("SELECT 1 FROM bucket_rows")
    compare(client, before)
    assert thin_run(client, "p", "r", STEPS, confirmed=True)[:3] == sizes[:3]
    assert 0 < sizes.points_left < sizes.points
    assert client.rows("SELECT * FROM summaries ORDER BY project, run, name, version") == summed_up
    there = tmp_path / "there"
    pull_all(client, there)
    after = StoredRun(there / "p" / "r")
    check_thinned(before, after, STEPS)
    sentence = f"to buckets of 10 steps: {sizes.points_left} of {sizes.points} points are left"
    for said in (thinned(after), read_thinned(client, "p", "r"), "; ".join(after.problems)):
        assert sentence in said
    if before.origin is None:
        wanted = {}
        for series in after.names():
            points = after.series(series)
            if len(points.step):
                wanted[series] = list(zip(points.step.tolist(), points.value.tolist(), strict=True))
        ask_everybody(there / "p", wanted, tmp_path)
    check_buckets(client, before)
    held = everything(after)
    (sent,) = push_all(root, client)[-1:] if name != "forked" else [push(root / "r", client)]
    assert (sent.parts, sent.points) == (0, 0) and "thinned on" in sent.left_out[0]
    pull_all(client, there)
    assert everything(StoredRun(there / "p" / "r")) == held
    with pytest.raises(ValueError, match="is thinned on"):
        thin_run(client, "p", "r", STEPS, confirmed=True)
    push(root / "r", client, whole=True)
    assert not read_thinned(client, "p", "r")
    compare(client, before)
    pull_all(client, there)
    assert everything(StoredRun(there / "p" / "r")) == everything(before)
    assert not thinned(StoredRun(there / "p" / "r"))


def check_buckets(client: Client, before: StoredRun) -> None:
    for name, points in before.points_of(before.names()):
        if before.origin is not None:
            continue
        rank = int(points[4][0])
        rows = client.rows(
            "SELECT bucket, sum(points), sum(finite), sum(sum), min(minimum), max(maximum) FROM buckets "
            f"WHERE {where(before.project, before.id)} AND name = '{name}' AND rank = {rank} AND live GROUP BY bucket"
        )
        assert sum(int(row[1]) for row in rows) == len(points[0])
        for bucket, count, finite, total, low, high in rows:
            value = points[2][points[0] // STEPS * STEPS == int(bucket)]
            here = value[numpy.isfinite(value)]
            assert (int(count), int(finite)) == (len(value), len(here))
            if len(here):
                assert float(total) == pytest.approx(float(here.sum()))
                assert (float(low), float(high)) == (here.min(), here.max())


def test_one_bucket_a_series_keeps_its_ends_and_extremes(clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    for step in range(3000):
        run.rank().metrics(step, a=math.sin(step), b=float(step), note="text" if step == 5 else 0)  # type: ignore[arg-type]
    run.rank().record("info", 3000, message="a message stays")
    run.end()
    client = clickhouse.client()
    push(run.dir, client)
    sizes = thin_run(client, "p", "r", 0, confirmed=True)
    assert sizes.points == 8999 and sizes.points_left <= 12 and sizes.log_bytes_left < sizes.log_bytes / 10
    (folder,) = pull_all(client, tmp_path / "there")
    after = StoredRun(folder)
    check_thinned(StoredRun(run.dir), after, 0)
    kinds = [record.kind for record in after.records()]
    assert "info" in kinds and kinds.count("metrics") <= 8
    assert "text" in [record.fields.get("note") for record in after.records()]
    assert "to one bucket a series" in thinned(after)
    (row,) = client.rows("SELECT points, sum, first, last FROM buckets WHERE name = 'b'")
    assert [float(value) for value in row] == [3000, sum(range(3000)), 0, 2999]


def test_thinning_that_is_cut_off_anywhere_is_brought_to_its_end(clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    for step in range(200):
        run.rank().metrics(step, a=math.sin(step), b=float(step))
        run.rank().wide(step, **{f"w/{number}": step * number for number in range(3)})
    run.end()
    before = StoredRun(run.dir)
    whole = everything(before)
    cut = CutOff(clickhouse.client().address, after=0)
    while cut.has_cut:
        client = clickhouse.client()
        push(run.dir, client)
        cut = CutOff(client.address, cut.after + 1)
        with contextlib.suppress(ServerError):
            thin_run(cut, "p", "r", STEPS, confirmed=True)
        there = tmp_path / str(cut.after)
        (folder,) = pull_all(client, there)
        if not thinned(StoredRun(folder)):
            assert everything(StoredRun(folder)) == whole, "without the mark nothing is gone"
        if not read_thinned(client, "p", "r"):
            thin_run(client, "p", "r", STEPS, confirmed=True)
        pull_all(client, there)
        check_thinned(before, StoredRun(folder), STEPS)
        assert thinned(StoredRun(folder)) == read_thinned(client, "p", "r")
        check_buckets(client, before)
    assert cut.after > 6


def test_a_policy_names_what_would_go_and_leaves_what_is_written_or_thinned(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = clickhouse.client()
    for number, (status, year) in enumerate({"finished": 2001, "running": 2001, "failed": 2900}.items()):
        run = WrittenRun(tmp_path / "p", f"r{number}")
        for step in range(100):
            run.rank().loss(step, float(step))
        run.end(status)
        about = json.loads((run.dir / "run_manifest.json").read_text()) | {"finished": f"{year}-01-01T00:00:00"}
        (run.dir / "run_manifest.json").write_text(json.dumps(about))
        push(run.dir, client)
    url = clickhouse.url(client.address.database)
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)

    def command(*words: str) -> Any:
        assert main(["fleet", "thin", url, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    policy = ("--older-than", "90", "--steps", "25")
    (row,) = command(*policy)
    assert (row["run"], row["points"], row["points_left"], row["thinned"]) == ("p/r0", 100, 8, False)
    assert not read_thinned(client, "p", "r0")
    assert command(*policy, "--yes")[0]["thinned"] is True
    assert command(*policy, "--yes") == []
    assert main(["fleet", "thin", url, "r1", "--steps", "25", "--yes"]) != 0
    assert "is being written" in capsys.readouterr().err
    assert main(["fleet", "thin", url, "r2", "--yes"]) != 0
    assert "--steps N" in capsys.readouterr().err
    assert main(["fleet", "thin", url, "r2", "--steps", "50"]) == 0
    assert "would remove 96 of 100 points of p/r2" in capsys.readouterr().out
    # every way to ask says so
    fleet = barograph.Fleet(url)
    assert {row.run: bool(row.thinned) for row in fleet.runs()} == {"r0": True, "r1": False, "r2": False}
    assert fleet.thinned("r0").endswith("8 of 100 points are left") and len(fleet.series("r0", "train/loss").step) == 8
    for words in (["fleet", "series", url, "r0", "train/loss"], ["fleet", "runs", url], ["fleet", "check", url]):
        assert main(words) == 0
        shown = capsys.readouterr()
        assert "thinned" in shown.out + shown.err
    assert main(["show", "r0", "--dir", url]) == 0
    assert "8 of 100 points are left" in capsys.readouterr().out
    assert main(["push", str(tmp_path / "p" / "r0"), "--to", url]) == 1
    assert "`push --whole` sends them again" in capsys.readouterr().err
    assert main(["pull", "r0", "--from", url, "--dir", str(tmp_path / "pulled")]) == 0
    assert "8 of 100 points are left" in capsys.readouterr().out
    assert any("thinned on" in problem for problem in answer("select * from points", tmp_path / "pulled").problems)
    assert main(["push", str(tmp_path / "p" / "r0"), "--to", url, "--whole"]) == 0
    assert not fleet.thinned("r0") and len(fleet.series("r0", "train/loss").step) == 100
