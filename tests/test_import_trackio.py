"""Trackio's runs come in as they are in its databases and Parquet files, of all versions, also live and damaged."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tracker_programs import (
    ODD,
    check_items,
    damaged,
    facts,
    made,
    of_kind,
    points,
    run_program,
    series,
    write_records,
)

from barograph.importing.source import FoundRun, ImportedDistribution, ImportedPoints, ImportMark, Item, Restart, Unread
from barograph.importing.trackio import SOURCE

# As versions up to 0.23 made it.
SCHEMA = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, run_name TEXT NOT NULL,
    step INTEGER NOT NULL, metrics TEXT NOT NULL);
CREATE INDEX idx_metrics_run_step ON metrics(run_name, step);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_name TEXT NOT NULL, config TEXT NOT NULL,
    created_at TEXT NOT NULL, UNIQUE(run_name));
CREATE TABLE system_metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, run_name TEXT NOT NULL,
    metrics TEXT NOT NULL);
"""


def find(path: Path) -> list[FoundRun]:
    return list(SOURCE.find(path, path.read_bytes()[:65536]))


def read(found: FoundRun, since: ImportMark | None = None) -> list[Item]:
    items = list(SOURCE.read(found, since))
    check_items(items)
    return items


def database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.executescript(SCHEMA)
    return connection


def insert(connection: sqlite3.Connection, run: str, step: int, values: Any, second: float) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second)) + f".{round(second % 1 * 1e6):06d}"
    with connection:
        row = (moment, run, step, values if isinstance(values, str | bytes) else json.dumps(values))
        connection.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", row)


MAKE = """
import trackio
from trackio.sqlite_storage import SQLiteStorage
run = trackio.init("my.project", name="first", group="sweep", config={"lr": 3e-4, "model": {"width": 768}},
                   auto_log_gpu=False, auto_log_cpu=False, embed=False)
for step, values in json.load(open("logged.json")):
    run.log(values, step=step)
run.log({"gradients": trackio.Histogram(np_histogram=([3, 4], [0.0, 0.5, 1.0])), "phase": "up", "none": None,
         "page": trackio.Markdown("# hello"), "nested": {"a": 1.5}, "list": [1, 2]}, step=9000)
time.sleep(0.8)
run.log_system({"gpu/0/power": 300.0})
run.alert("loss is high", "by much", step=9000)
run.finish()
other = trackio.init("my.project", name="first", auto_log_gpu=False, auto_log_cpu=False, embed=False)
other.log({"train/loss": 1.0})
other.finish()
SQLiteStorage._dataset_import_attempted = True
SQLiteStorage.export_to_parquet()
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("trackio")
    folder = tmp_path_factory.mktemp("stores")
    write_records(folder / "logged.json", [*made(1), (8000, ODD)])
    run_program(MAKE, folder)
    return folder


def test_every_point_of_trackios_own_database_comes_in(stores: Path) -> None:
    [found, other] = find(stores / "trackio" / "myproject.db")
    assert (found.name, found.project, found.tags) == ("first", "myproject", ("sweep",))
    assert found.config == {"lr": 3e-4, "model": {"width": 768}}
    assert abs(found.created - time.time()) < 3600
    items = read(found)
    logged = json.loads((stores / "logged.json").read_text())
    power = {"gpu/0/power": [(9000, "300.0")]}
    assert points(items) == series(logged) | {"nested/a": [(9000, "1.5")]} | power
    assert points(read(other)) == {"train/loss": [(0, "1.0")]}, "two runs of one name are two"
    assert all(abs(item.times[0] / 1e6 - time.time()) < 3600 for item in of_kind(items, ImportedPoints))
    [histogram] = of_kind(items, ImportedDistribution)
    assert (histogram.name, histogram.step) == ("gradients", 9000)
    assert histogram.edges.tolist() == [0.0, 0.5, 1.0] and histogram.counts.tolist() == [3, 4]
    assert [fact.fields for fact in facts(items, "metrics")] == [{"phase": "up"}]
    shown = [fact.fields["message"] for fact in facts(items, "info")]
    assert sorted(shown) == ["# hello", "loss is high: by much"]
    assert [item.text for item in of_kind(items, Unread)] == ["list"]
    again = read(found, items[-1])
    assert len(again) == 1, "nothing comes twice"


def test_parquet_files_hold_the_same(stores: Path, tmp_path: Path) -> None:
    assert not find(stores / "trackio" / "myproject.parquet"), "the database beside it has more"
    for file in (stores / "trackio").glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert not find(tmp_path / "myproject_system.parquet") and not find(tmp_path / "myproject_configs.parquet")
    [found, other] = find(tmp_path / "myproject.parquet")
    [in_database, other_in_database] = find(stores / "trackio" / "myproject.db")
    for one, same in ((found, in_database), (other, other_in_database)):
        assert (one.name, one.key, one.tags) == (same.name, same.key, same.tags)
        assert points(read(one)) == points(read(same))
        assert len(read(one, read(one)[-1])) == 1
    assert found.config == in_database.config


def test_old_databases_know_runs_by_name_and_local_times(tmp_path: Path) -> None:
    connection = database(tmp_path / "old.db")
    began = 1_750_000_000.25
    insert(connection, "a", 0, '{"loss": NaN, "lr": 1e-3}', began)  # as json.dumps wrote it then
    insert(connection, "b", 0, {"loss": 7.0}, began)
    insert(connection, "a", 1, {"loss": "Infinity", "lr": 2}, began + 1)
    row = ("a", '{"depth": 12}', "2025-06-15T00:00:00")
    connection.execute("INSERT INTO configs (run_name, config, created_at) VALUES (?, ?, ?)", row)
    connection.commit()
    first, second = find(tmp_path / "old.db")
    assert (first.key, first.name, first.config, first.created) == ("a", "a", {"depth": 12}, began)
    items = read(first)
    assert points(items) == {"loss": [(0, "nan"), (1, "inf")], "lr": [(0, "0.001"), (1, "2.0")]}
    assert of_kind(items, ImportedPoints)[0].times.tolist() == [round(began * 1e6), round((began + 1) * 1e6)]
    assert points(read(second)) == {"loss": [(0, "7.0")]}


def test_samples_of_the_machine_go_to_the_step_of_their_moment_and_before_the_rewind_after_them(tmp_path: Path) -> None:
    connection = database(tmp_path / "old.db")
    for second, step in enumerate([10, 20, 30, 10, 20]):
        insert(connection, "a", step, {"loss": float(second)}, 1000.0 + second)
    for second in (0.5, 2.5, 3.5):
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1000 + second)) + ".500000"
        row = (moment, "a", json.dumps({"power": second}))
        connection.execute("INSERT INTO system_metrics (timestamp, run_name, metrics) VALUES (?, ?, ?)", row)
    connection.commit()
    [found] = find(tmp_path / "old.db")
    items = read(found)
    split = next(number for number, item in enumerate(items) if isinstance(item, Restart))
    assert points(items[:split]) == {
        "loss": [(10, "0.0"), (20, "1.0"), (30, "2.0")], "power": [(10, "0.5"), (30, "2.5")],
    }  # fmt: skip
    assert points(items[split:]) == {"loss": [(10, "3.0"), (20, "4.0")], "power": [(10, "3.5")]}


def test_a_live_database_is_read_without_holding_up_its_writer(tmp_path: Path) -> None:
    connection = database(tmp_path / "live.db")
    connection.execute("PRAGMA journal_mode = WAL")
    insert(connection, "a", 0, {"loss": 0.0}, 1000.0)
    [found] = find(tmp_path / "live.db")

    def write() -> None:
        for step in range(1, 500):
            insert(connection, "a", step, {"loss": step / 7, "lr": 1}, 1000.0 + step)

    writer = threading.Thread(target=write)
    writer.start()
    items: list[Item] = []
    while writer.is_alive():
        items += read(found, items[-1] if items else None)  # type: ignore[arg-type]
    items += read(found, items[-1])  # type: ignore[arg-type]
    assert points(items)["loss"] == [(step, repr(step / 7)) for step in range(500)]
    assert not of_kind(items, Unread)


def test_rows_of_anything_are_told_and_stepped_over(tmp_path: Path) -> None:
    connection = database(tmp_path / "odd.db")
    odd = ["[1]", "nonsense", b"\xff\xfe", '{"a": ' * 2000, "3", '{"_type": "trackio.histogram"}', "{}", '{"": 1e999}']
    odd += ['{"h": {"_type": "trackio.histogram", "bins": [1], "values": [2, 3]}, "i": {"_type": "trackio.image"}}']
    odd += ['{"big": 123456789012345678901234567890, "huge": 1' + "0" * 400 + ', "deep": {"a": {"b": {"c": 1}}}}']
    for number, text in enumerate(odd):
        insert(connection, "a", number, text, 1000.0 + number)
    connection.execute("UPDATE metrics SET timestamp = 'yesterday' WHERE id = 10")
    connection.commit()
    [found] = find(tmp_path / "odd.db")
    items = read(found)
    assert points(items) == {
        "": [(7, "inf")], "big": [(9, "1.2345678901234568e+29")], "huge": [(9, "inf")], "deep/a/b/c": [(9, "1.0")],
    }  # fmt: skip
    assert len(of_kind(items, Unread)) == 7
    assert 0 in np.concatenate([item.times for item in of_kind(items, ImportedPoints)])


def test_damaged_databases_cost_sentences_and_no_crash(tmp_path: Path) -> None:
    connection = database(tmp_path / "whole.db")
    for step in range(300):
        with connection:
            text = json.dumps({"loss": step / 7, "accuracy": step / 300})
            row = ("2026-01-01T00:00:00+00:00", "a", step, text)
            connection.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", row)
    connection.close()
    whole = (tmp_path / "whole.db").read_bytes()
    generator, kept = random.Random(5), 0
    for number in range(120):
        path = tmp_path / f"{number}.db"
        path.write_bytes(damaged(whole, generator))
        for found in find(path):
            kept += len(points(read(found)).get("loss", ()))
    assert kept > 10_000


def test_damaged_parquet_files_cost_sentences_and_no_crash(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [
        {"id": step, "timestamp": "2026-01-01T00:00:00+00:00", "run_name": "a", "step": step, "loss": step / 7}
        for step in range(200)
    ]
    path = tmp_path / "whole.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    whole, generator, kept = path.read_bytes(), random.Random(6), 0
    for _ in range(120):
        path.write_bytes(damaged(whole, generator))
        for found in find(path):
            kept += len(points(read(found)).get("loss", ()))
    assert kept > 2_000
