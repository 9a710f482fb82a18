"""MLflow's runs come in as they are in its database and its folders: whole, damaged, or while they are written."""

from __future__ import annotations

import json
import posixpath
import random
import re
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tracker_programs import (
    check_items,
    damaged,
    made,
    of_kind,
    points,
    run_program,
    series,
    write_records,
)

from barograph.importing.mlflow import SOURCE, unescape
from barograph.importing.series import SeriesCourse
from barograph.importing.source import FoundRun, ImportedPoints, ImportMark, Item, Restart, Unread
from barograph.trackers.mlflow import escape

SCHEMA = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name TEXT, lifecycle_stage TEXT);
CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name TEXT, status TEXT, start_time BIGINT, lifecycle_stage TEXT,
    experiment_id INTEGER);
CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,
    run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT 0 NOT NULL, is_nan BOOLEAN DEFAULT 0 NOT NULL,
    PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));
CREATE INDEX index_metrics_run_uuid ON metrics (run_uuid);
CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT, PRIMARY KEY (key, run_uuid));
CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT, PRIMARY KEY (key, run_uuid));
INSERT INTO experiments VALUES (1, 'pretraining', 'active');
INSERT INTO runs VALUES ('r1', 'first', 'RUNNING', 1700000000000, 'active', 1);
INSERT INTO params VALUES ('lr', '3e-4', 'r1'), ('name', 'nan', 'r1'), ('commit', '0012', 'r1'), ('fp8', 'True', 'r1');
"""


def find(path: Path) -> list[FoundRun]:
    return list(SOURCE.find(path, path.read_bytes()[:65536] if path.is_file() else b""))


def read(found: FoundRun, since: ImportMark | None = None) -> list[Item]:
    items = list(SOURCE.read(found, since))
    check_items(items)
    return items


def database(path: Path, rows: int = 0) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.executescript(SCHEMA)
    insert(connection, range(rows))
    return connection


def insert(connection: sqlite3.Connection, numbers: Any) -> None:
    with connection:
        for number in numbers:
            for name in ("train/loss", "train/lr"):
                row = (name, number / 7, 1_700_000_000_000 + number, "r1", number, 0)
                connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)


def expected(rows: int, first: int = 0) -> dict[str, list[tuple[int, str]]]:
    return {name: [(row, repr(row / 7)) for row in range(first, rows)] for name in ("train/loss", "train/lr")}


MAKE = """
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
for uri in (f"sqlite:///{os.getcwd()}/mlflow.db", f"file://{os.getcwd()}/mlruns"):
    client = MlflowClient(uri)
    experiment = client.create_experiment("exp: é")
    run = client.create_run(experiment, run_name="my run", tags={"k": "v", "mlflow.note.content": "two\\nlines"})
    key = run.info.run_id
    for number, (step, values) in enumerate(json.load(open("logged.json"))):
        moment = 1_700_000_000_000 + 1000 * number
        client.log_batch(key, [Metric(name, float(value), moment, step) for name, value in values.items()])
    client.log_batch(key, [], [Param("lr", "3e-4"), Param("model/width", "768")], [RunTag("seed", "")])
    client.set_terminated(key)
    gone = client.create_run(experiment).info.run_id
    client.log_batch(gone, [Metric("x", 1.0, 1, 1)])
    client.delete_run(gone)
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("stores")
    write_records(folder / "logged.json", [*made(1), *made(2)])  # the second begins anew: a rewind
    run_program(MAKE, folder)
    return folder


@pytest.mark.parametrize("place", ["mlflow.db", "mlruns"])
def test_every_point_of_mlflows_own_stores_comes_in(stores: Path, place: str) -> None:
    [found] = find(stores / place)
    assert (found.name, found.project, found.notes, found.status) == ("my run", "exp: é", "two\nlines", "finished")
    assert found.config == {"lr": 3e-4, "model/width": 768} and found.tags == ("k=v", "seed")
    assert abs(found.created - time.time()) < 3600
    items = read(found)
    assert points(items) == series(json.loads((stores / "logged.json").read_text()))
    first, *_ = of_kind(items, ImportedPoints)
    assert first.times[0] >= 1_700_000_000_000_000
    assert [item.step for item in of_kind(items, Restart)] == [0]
    assert not of_kind(items, Unread)
    assert not points(read(found, items[-1]))


def test_an_experiments_and_a_runs_folder_are_found_too(stores: Path) -> None:
    [found] = find(stores / "mlruns")
    [of_experiment] = find(found.path.parent)
    [of_run] = find(found.path)
    assert points(read(of_experiment)) == points(read(of_run)) == points(read(found))
    assert of_run.project == found.project


def test_what_is_not_mlflows_is_left_to_others(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE metrics (run_uuid, key, value)")
        connection.execute("CREATE TABLE runs (id)")
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "meta.yaml").write_text("name: something\nexperiment_id: 0\n  bad: [")
    assert not find(tmp_path / "other.db") and not find(tmp_path / "mlruns")
    assert not list(SOURCE.find(tmp_path / "log.txt", b"loss: 1.0"))


def test_parameters_are_numbers_only_where_that_is_what_they_say(tmp_path: Path) -> None:
    database(tmp_path / "mlflow.db").close()
    [found] = find(tmp_path / "mlflow.db")
    assert found.config == {"lr": 3e-4, "name": "nan", "commit": "0012", "fp8": True}


def test_marks_go_on_where_an_import_ended(tmp_path: Path) -> None:
    connection = database(tmp_path / "mlflow.db", 10)
    [found] = find(tmp_path / "mlflow.db")
    before = read(found)
    insert(connection, range(10, 15))
    assert points(read(found, before[-1])) == expected(15, 10)
    connection.execute("INSERT INTO metrics VALUES ('train/loss', 1.0, 1700000001000, 'r1', 3, 0)")
    connection.commit()
    again = read(found, before[-1])
    assert [item.step for item in of_kind(again, Restart)] == [3], "a rewind between two imports"


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_live_database_is_read_without_holding_up_its_writer(tmp_path: Path, journal: str) -> None:
    connection = database(tmp_path / "mlflow.db")
    connection.execute(f"PRAGMA journal_mode = {journal}")
    slowest = 0.0

    def write() -> None:
        nonlocal slowest
        for number in range(0, 600, 3):
            began = time.perf_counter()
            insert(connection, range(number, number + 3))
            slowest = max(slowest, time.perf_counter() - began)

    [found] = find(tmp_path / "mlflow.db")
    writer = threading.Thread(target=write)
    writer.start()
    items: list[Item] = []

    def go_on() -> None:  # a reader that was shut out ends without a mark
        items.extend(read(found, next((item for item in reversed(items) if isinstance(item, ImportMark)), None)))

    while writer.is_alive():
        go_on()
    go_on()
    assert points(items) == expected(600)
    # with a rollback journal a busy writer may shut a reader out for once: that is told, and read at the next look
    assert journal == "DELETE" or not of_kind(items, Unread)
    assert slowest < 5, "SQLite gives a writer up after five seconds"


def test_a_database_that_another_process_holds_is_read_from_a_copy(tmp_path: Path) -> None:
    connection = database(tmp_path / "mlflow.db", 20)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    [found] = find(tmp_path / "mlflow.db")
    assert points(read(found)) == expected(20)
    connection.rollback()


def test_rows_that_hold_no_numbers_are_told_and_stepped_over(tmp_path: Path) -> None:
    connection = database(tmp_path / "mlflow.db", 3)
    connection.execute("INSERT INTO metrics VALUES ('x', 'much', 1, 'r1', 1, 0)")
    connection.execute("INSERT INTO metrics VALUES ('x', 1.5, 'late', 'r1', 1, 0)")
    connection.commit()
    [found] = find(tmp_path / "mlflow.db")
    items = read(found)
    assert points(items) == expected(3) and len(of_kind(items, Unread)) == 2


def test_damaged_databases_cost_sentences_and_no_crash(tmp_path: Path) -> None:
    database(tmp_path / "whole.db", 600).close()
    whole = (tmp_path / "whole.db").read_bytes()
    generator, kept = random.Random(3), 0
    for number in range(150):
        path = tmp_path / f"{number}.db"
        path.write_bytes(damaged(whole, generator))
        for found in find(path):
            kept += len(points(read(found)).get("train/loss", ()))
    assert kept > 20_000, "most of the rows of most of the files are whole"


# -- the file store -----------------------------------------------------------------------------


def file_store(folder: Path, status: int = 1) -> Path:
    run = folder / "mlruns" / "1" / ("a" * 32)
    (run / "metrics" / "train").mkdir(parents=True)
    (folder / "mlruns" / "1" / "meta.yaml").write_text("experiment_id: '1'\nname: pretraining\n")
    (run / "meta.yaml").write_text(f"run_id: {'a' * 32}\nrun_name: first\nstatus: {status}\nlifecycle_stage: active\n")
    return run / "metrics" / "train" / "loss"


def test_lines_of_all_versions_are_read_and_others_told(tmp_path: Path) -> None:
    file = file_store(tmp_path, status=3)
    file.write_text(
        "1000 0.5\n2000 0.25 1\n3000 nan 2 data digest\nnonsense\n4000 inf 3\n5000 1 9999999999999999999\n60"
    )
    [found] = find(tmp_path / "mlruns")
    items = read(found)
    assert points(items) == {"train/loss": [(0, "0.5"), (1, "0.25"), (2, "nan"), (3, "inf")]}
    assert [item.text for item in of_kind(items, Unread)] == ["nonsense", "5000 1 9999999999999999999", "60"]
    assert of_kind(items, Unread)[0].where == len("1000 0.5\n2000 0.25 1\n3000 nan 2 data digest\n")


def test_a_line_in_the_making_is_read_when_it_is_whole(tmp_path: Path) -> None:
    file = file_store(tmp_path)
    file.write_text("1000 0.5 0\n2000 0.")
    [found] = find(tmp_path / "mlruns")
    before = read(found)
    assert points(before) == {"train/loss": [(0, "0.5")]} and not of_kind(before, Unread)
    with open(file, "a") as stream:
        stream.write("25 1\n3000 0.125 0\n")
    after = read(found, before[-1])
    assert points(after) == {"train/loss": [(1, "0.25"), (0, "0.125")]}
    assert [(item.step, item.time) for item in of_kind(after, Restart)] == [(0, 3_000_000)]


def test_names_that_go_back_at_different_moments_explain_one_rewind(tmp_path: Path) -> None:
    file = file_store(tmp_path)
    file.write_text("1000 1 10\n2000 2 20\n3000 3 10\n4000 4 20\n")
    (file.parent / "eval").write_text("2500 5 20\n4500 6 20\n")  # not back: the same step
    (file.parent / "late").write_text("2600 7 20\n3500 8 15\n")
    [found] = find(tmp_path / "mlruns")
    items = read(found)
    assert [item.step for item in of_kind(items, Restart)] == [10]
    split = next(number for number, item in enumerate(items) if isinstance(item, Restart))
    assert points(items[:split]) == {
        "train/loss": [(10, "1.0"), (20, "2.0")], "train/eval": [(20, "5.0")], "train/late": [(20, "7.0")],
    }  # fmt: skip
    assert points(items[split:]) == {
        "train/loss": [(10, "3.0"), (20, "4.0")], "train/eval": [(20, "6.0")], "train/late": [(15, "8.0")],
    }  # fmt: skip


def test_damaged_metric_files_cost_sentences_and_no_crash(tmp_path: Path) -> None:
    file = file_store(tmp_path, status=3)
    whole = "".join(f"{1_700_000_000_000 + step} {step / 7} {step}\n" for step in range(500)).encode()
    generator, kept = random.Random(4), 0
    for _ in range(150):
        file.write_bytes(damaged(whole, generator))
        [found] = find(tmp_path / "mlruns")
        kept += len(points(read(found)).get("train/loss", ()))
    assert kept > 30_000


# -- names and courses ----------------------------------------------------------------------------


def is_taken_by_mlflow(name: str) -> bool:
    """The rule of mlflow/utils/validation.py."""
    whole = re.match(r"^[/\w.\- ]*$", name) and len(name) <= 250
    return bool(whole) and not (posixpath.normpath(name) != name or name == "." or name.startswith(("..", "/")))


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=20) | st.text("_x2A/. :", max_size=12))
@example("_x:")
@example("..0")
def test_every_name_is_taken_by_mlflow_and_comes_back(name: str) -> None:
    escaped = escape(name)
    assert is_taken_by_mlflow(escaped)
    assert unescape(escaped) == name


def test_ordinary_names_stay_as_they_are_and_long_ones_stay_apart() -> None:
    for name in ("train/loss", "gpu/0/memory used", "été/x_1.2-3", "layers.0_x"):
        assert escape(name) == name
    long = [escape("a" * 300 + end) for end in "bc"]
    assert len(set(long)) == 2 and all(is_taken_by_mlflow(name) for name in long)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8)), max_size=40), st.integers(1, 10))
def test_rows_come_out_once_and_steps_go_back_only_at_restarts(rows: list[tuple[str, int]], size: int) -> None:
    course, items = SeriesCourse(), []
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        numbers = np.arange(begin, begin + len(part))
        steps = np.array([step for _, step in part], np.int64)
        items += list(course.blocks([name for name, _ in part], steps, numbers, numbers.astype(float)))
        course = SeriesCourse(json.loads(json.dumps(course.state())))
    last: dict[str, int] = {}
    seen = []
    for item in items:
        if isinstance(item, Restart):
            last.clear()
            continue
        for column, name in enumerate(item.names):
            for step, value in zip(item.steps.tolist(), item.values[:, column].tolist(), strict=True):
                assert step >= last.get(name, 0)
                last[name] = step
                seen.append((int(value), name, step))
    assert sorted(seen) == [(number, *row) for number, row in enumerate(rows)]
    needed = sum(isinstance(item, Restart) for item in items)
    assert needed <= sum(later[1] < earlier[1] for earlier in rows for later in rows), "none without a reason"
