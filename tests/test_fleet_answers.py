"""What the server answers by itself is what a run's folder answers, in every state that a run can be in."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from clickhouse_server import PASSWORD, Server
from test_contract import STATES
from test_fleet_push import everything, pull_all, push_all
from written_runs import WrittenRun

import barograph
from barograph.cli import main
from barograph.core.record import format_time
from barograph.query.catalog import find
from barograph.query.stored import StoredRun
from barograph.store.branch import BEFORE_FORK
from barograph.store.clickhouse import native
from barograph.store.clickhouse.answers import read_points, read_ranks, read_runs
from barograph.store.clickhouse.batches import where
from barograph.store.clickhouse.client import Client, quote
from barograph.store.clickhouse.push import push


def rows(points: Any) -> list[tuple[str, ...]]:
    step, when, value, segment, rank = (column.tolist() for column in points)
    return sorted(zip(step, when, map(repr, value), segment, rank, strict=True))


@pytest.mark.parametrize("name", STATES)
def test_points_summaries_and_views_are_those_of_the_folder(name: str, clickhouse: Server, tmp_path: Path) -> None:
    root = tmp_path / "p"
    STATES[name](root)
    client = clickhouse.client()
    push_all(root, client)
    for folder in sorted(root.iterdir()):
        run = StoredRun(folder)
        compare(client, run)
    push_all(root, client)  # what is sent twice counts once
    compare(client, StoredRun(root / "r"))


def compare(client: Client, run: StoredRun) -> None:
    summaries = {
        row[0]: row[1:]
        for row in client.rows(
            "SELECT name, argMax(points, version), argMax(last_step, version), argMax(toString(last), version), "
            "argMax(toString(minimum), version), argMax(toString(maximum), version), argMax(mean, version), "
            f"argMax(rank, version) FROM summaries WHERE {where(run.project, run.id)} GROUP BY name"
        )
    }
    for name, points in run.points_of(run.names()):
        found = read_points(client, run.project, run.id, name)
        assert rows(found) == rows(points), name
        assert found.step.tolist() == sorted(found.step.tolist())
        live = client.rows(
            f"SELECT step, time, toString(value), segment, rank FROM live_points WHERE {where(run.project, run.id)} "
            f"AND name = {quote(name)} AND rank = {points[4][0]}"
        )
        steps = [(int(row[0]), int(row[1]), repr(float(row[2])), int(row[3]), int(row[4])) for row in live]
        own = [row for row in rows(points) if row[3] != BEFORE_FORK]  # of a fork: the view has those alone
        assert sorted(steps) == own
        count, last_step, last, minimum, maximum, mean, rank = summaries[name]
        finite = [value for value in points[2].tolist() if math.isfinite(value)]
        order = run.series(name)
        assert (int(count), int(last_step), int(rank)) == (len(points[0]), int(points[0].max()), int(points[4][0]))
        assert repr(float(last)) == repr(float(order.value[-1]))
        assert [repr(float(minimum)), repr(float(maximum))] == [
            repr(each(finite) if finite else math.nan) for each in (min, max)
        ]
        assert mean is None or mean == pytest.approx(sum(finite) / len(finite))


def test_a_resume_supersedes_what_was_summed_up(clickhouse: Server, tmp_path: Path) -> None:
    run = WrittenRun(tmp_path / "p")
    client = clickhouse.client()
    for step in range(50):
        run.rank().loss(step, 100.0 + step)
    push(run.dir, client)
    compare(client, StoredRun(run.dir))
    run.new_segment("rewind", 10)
    for step in range(10, 20):
        run.rank().loss(step, float(step))
    push(run.dir, client)
    compare(client, StoredRun(run.dir))
    (row,) = read_runs(client, ["train/loss"])
    assert row.last == {"train/loss": 19.0} and row.steps == {"train/loss": 19}


@pytest.mark.parametrize("order", ["abc", "cba", "bac"])
def test_forks_of_forks_and_rewinds_are_answered_as_by_folders(
    order: str, clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """c goes on from b, which goes on from a, each by a step that its source later went back behind."""
    first = WrittenRun(tmp_path / "p", "a")
    second = WrittenRun(tmp_path / "p", "b", fork=(first.dir, 30))
    for number, (run, start) in enumerate([(first, 0), (second, 30)]):
        for step in range(start, start + 50):
            for rank in (0, 1):
                run.rank(rank).metrics(step, x=step + rank / 2 + 100 * number, **({"only": 1.0} if not number else {}))
    third = WrittenRun(tmp_path / "p", "c", fork=(second.dir, 60))
    for run, back in ((first, 10), (second, 40)):
        run.new_segment("rewind", back)
        for step in range(back, back + 5):
            run.rank().metrics(step, x=-float(step))
    for step in range(60, 65):
        third.rank().metrics(step, x=1000.0 + step)
        third.rank(1).metrics(step, x=2000.0 + step)
    client = clickhouse.client()
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    fleet = barograph.Fleet(clickhouse.url(client.address.database))
    for name in order:
        push(tmp_path / "p" / name, client)
    for run in (first, second, third):
        run.end()
        stored = StoredRun(run.dir)
        compare(client, stored)
        for series in stored.names():
            for rank in (None, 1):
                if not len(stored.columns(series, rank=rank)[0]):
                    continue
                found, wanted = fleet.series(stored.id, series, rank=rank), stored.series(series, rank=rank)
                for column in ("step", "value", "time", "segment", "rank"):
                    assert getattr(found, column).tolist() == getattr(wanted, column).tolist(), (series, column)
            ranks = {int(step): 0 for step in stored.columns(series, rank="all")[0]}
            for step in stored.columns(series, rank="all")[0].tolist():
                ranks[step] += 1
            compared = fleet.ranks(stored.id, series)
            assert dict(zip(compared.step.tolist(), compared.ranks.tolist(), strict=True)) == ranks
    (c,) = [row for row in fleet.runs(["x", "only"]) if row.run == "c"]
    assert c.last == {"x": 1064.0, "only": 1.0} and c.steps == {"x": 64, "only": 29}
    # a fork that is asked for alone comes with what it goes on from
    shutil.move(tmp_path / "p", tmp_path / "gone")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copied = find("c", dir=fleet.address)
    moved = StoredRun(tmp_path / "gone" / "c")
    assert copied.series("x").value.tolist() == fleet.series("c", "x").value.tolist() != []
    assert len(moved.names()) <= len(copied.names()) == 2


def test_the_table_of_runs_has_manifest_and_last_values(clickhouse: Server, tmp_path: Path) -> None:
    client = clickhouse.client()
    for number in range(3):
        run = WrittenRun(tmp_path / f"p{number % 2}", f"r{number}")
        run.rank().wide(7, **{"train/loss": float(number), "eval/loss": math.nan})
        run.end()
        push(run.dir, client)
    table = read_runs(client, ["eval/loss", "train/loss", "nothing"])
    assert sorted((row.project, row.run, row.last["train/loss"]) for row in table) == [
        ("p0", "r0", 0.0), ("p0", "r2", 2.0), ("p1", "r1", 1.0)
    ]  # fmt: skip
    assert all(math.isnan(row.last["eval/loss"]) and row.steps["eval/loss"] == 7 for row in table)
    assert [row.run for row in read_runs(client, project="p1")] == ["r1"]
    for row in table:
        stored = StoredRun(tmp_path / row.project / row.run)
        assert (row.status, row.config) == (stored.manifest.get("status"), stored.config)


def test_a_run_of_very_many_parts_is_asked_for(clickhouse: Server, tmp_path: Path) -> None:
    """As ranks that log for months have: more than a statement has room to name."""
    client = clickhouse.client()
    run = WrittenRun(tmp_path / "p")
    for step in range(20):
        run.rank().loss(step, float(step))
    run.end()
    push(run.dir, client)
    rows = 30_000
    client.run("INSERT INTO batches FORMAT Native", native.block(rows, {
        "project": native.repeated(["p"], [rows]), "run": native.repeated(["r"], [rows]),
        "log": native.texts(f"training-rank{1 + number // 30}-1" for number in range(rows)),
        "kind": native.repeated(["points"], [rows]),
        **{name: native.numbers("UInt32", [number % 30 for number in range(rows)]) for name in ("first", "last")},
        "batch": native.numbers("UInt64", range(1, rows + 1)), "header": native.repeated(["{}"], [rows]),
    }))  # fmt: skip
    compare(client, StoredRun(run.dir))
    assert len(read_ranks(client, "p", "r", "train/loss").step) == 20
    (run.dir / "note.txt").write_text("changed")
    assert push(run.dir, client).files == 1
    compare(client, StoredRun(run.dir))


def test_hosts_with_a_folder_each_make_one_run(clickhouse: Server, tmp_path: Path) -> None:
    """Each sends its own ranks; none removes or replaces what another sent."""
    shared = tmp_path / "shared" / "p"
    STATES["many_ranks"](shared)
    whole = shared / "r"
    main, other = tmp_path / "a" / "p" / "r", tmp_path / "b" / "p" / "r"
    shutil.copytree(whole, main)
    shutil.copytree(whole, other)
    ranks = sorted(path.name for path in whole.glob("training*.json"))
    assert len(ranks) > 1
    for name in ranks[1:]:
        (main / name).unlink()
        shutil.rmtree(main / "store" / name.removesuffix(".json"), ignore_errors=True)
    (other / ranks[0]).unlink()
    shutil.rmtree(other / "store" / ranks[0].removesuffix(".json"), ignore_errors=True)
    (other / "run_manifest.json").unlink()
    client = clickhouse.client()
    for folder in (other, main, other, main):
        push(folder, client)
    before = client.rows("SELECT count() FROM series")
    push(other, client)
    assert client.rows("SELECT count() FROM series") == before, "nothing is sent twice"
    (pulled,) = pull_all(client, tmp_path / "there")
    assert everything(StoredRun(pulled)) == everything(StoredRun(whole))


def test_ranks_are_compared_by_the_server(clickhouse: Server, tmp_path: Path) -> None:
    root = tmp_path / "p"
    STATES["many_ranks"](root)
    client = clickhouse.client()
    push_all(root, client)
    run = StoredRun(root / "r")
    compared = 0
    for name, points in run.points_of(run.names(), rank="all"):
        step, _, value, _, rank = points
        found = read_ranks(client, run.project, run.id, name)
        for place, number in enumerate(found.step.tolist()):
            here = value[step == number]
            assert found.ranks[place] == len(here)
            assert (found.minimum[place], found.maximum[place]) == (here.min(), here.max())
            assert found.mean[place] == pytest.approx(here.mean())
            assert found.highest_rank[place] in rank[(step == number) & (value == here.max())]
            compared += len(here) > 1
    assert compared


def test_python_and_the_command_ask_the_server(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = clickhouse.client()
    run = WrittenRun(tmp_path / "p")
    for step in range(5000):
        run.rank().loss(step, math.sin(step) if step != 2500 else 99.0)
    run.rank(1).loss(7, 3.0)
    run.end()
    push(run.dir, client)
    url = clickhouse.url(client.address.database)
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    fleet, stored = barograph.Fleet(url), StoredRun(run.dir)
    for found in (fleet.series("r", "train/loss", 100), fleet.series("p/r", "train/loss", 100)):
        wanted = stored.series("train/loss", max_points=100)
        assert (found.step.tolist(), found.value.tolist()) == (wanted.step.tolist(), wanted.value.tolist())
        assert found.time.tolist() == wanted.time.tolist()
    assert fleet.series("r", "train/loss", rank=1).value.tolist() == [3.0]
    with pytest.raises(KeyError, match="no series 'nothing'"):
        fleet.series("r", "nothing")
    with pytest.raises(KeyError, match="means none of the runs"):
        fleet.series("other", "train/loss")

    def command(*words: str) -> Any:
        assert main(["fleet", words[0], url, *words[1:], "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    (row,) = command("runs", "train/loss")
    assert (row["run"], row["status"], row["last"]) == ("r", "finished", {"train/loss": math.sin(4999)})
    assert [row["step"] for row in command("series", "r", "train/loss", "--points", "100")] == wanted.step.tolist()
    seventh = command("ranks", "r", "train/loss")[7]
    assert (seventh["ranks"], seventh["maximum"], seventh["highest_rank"]) == (2, 3.0, 1)
    assert main(["fleet", "runs", url, "train/loss"]) == 0
    assert "TRAIN/LOSS" in capsys.readouterr().out
    assert main(["fleet", "series", url, "r"]) != 0
    assert "takes a run and the name of a series" in capsys.readouterr().err


def test_a_run_is_removed_when_somebody_says_so_and_can_be_sent_again(
    clickhouse: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = clickhouse.client()
    folders = []
    for number, (status, days) in enumerate({"finished": 400, "failed": 300, "running": 500, "killed": 10}.items()):
        run = WrittenRun(tmp_path / "p", f"r{number}")
        run.rank().loss(1, float(number))
        run.end(status)
        about = json.loads((run.dir / "run_manifest.json").read_text())
        about["finished"] = format_time(time.time_ns() // 1000 - days * 86_400_000_000)
        (run.dir / "run_manifest.json").write_text(json.dumps(about))
        push(run.dir, client)
        folders.append(run.dir)
    url = clickhouse.url(client.address.database)
    monkeypatch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", PASSWORD)
    assert main(["fleet", "remove", url, "--older-than", "100"]) == 0
    assert "2 runs would be removed; --yes removes them" in capsys.readouterr().out
    assert len(read_runs(client)) == 4
    assert main(["fleet", "remove", url, "--older-than", "100", "--yes", "--project", "p"]) == 0
    assert sorted(row.run for row in read_runs(client)) == ["r2", "r3"]
    assert {row[0] for row in client.rows("SELECT run FROM series")} == {"r2", "r3"}
    assert main(["fleet", "remove", url, "r3", "--yes"]) == 0
    assert main(["fleet", "remove", url, "r3", "--yes"]) != 0
    assert main(["fleet", "remove", url, "--yes"]) != 0
    for folder in folders:
        push(folder, client)
        compare(client, StoredRun(folder))
