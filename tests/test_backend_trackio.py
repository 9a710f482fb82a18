"""What goes in is what Trackio's own interface gives back; and Trackio never holds up a program."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tracker_programs import ODD, facts, made, of_kind, points, run_program, series, write_records

from barograph.importing.source import FoundRun, ImportedDistribution, Item
from barograph.importing.trackio import SOURCE

CONFIG = """
from barograph.trackers.trackio import TrackioBackend
logging.basicConfig(level=logging.INFO)
TrackioBackend.stall_seconds = TrackioBackend.close_seconds = 100  # this machine may be busy
config = SimpleNamespace(trackio_project="pretraining", name="first", trackio_run_id="", tags=["seed=7"], notes="")
"""
SEND = """
backend = TrackioBackend(config, run_config={"lr": 3e-4, "model": {"width": 768}, "_hidden": 1})
for step, metrics in json.load(open("logged.json")):
    backend.log(metrics, step)
backend.log_histogram("gradients", [0.0, 0.5, 1.0], [3, 4], 510)
backend.sender.put(backend._write_text, ("sample", "once upon a time", 520, 1e9), 1)
backend.sender.put(backend._write_note, ("loss is high", "by much", "critical", 521, 1e9), 1)
backend.sender.put(backend._write_parts, ("flops", "FLOPs", {"attention": 0.25}, 522, 1e9), 1)
time.sleep(1)
backend.log_config({"seed": 7})
assert backend.close(), backend.lost
assert config.trackio_run_id == backend.run_id
"""
ASK = """
import trackio
[run] = trackio.Api().runs("pretraining")
from trackio.sqlite_storage import SQLiteStorage
logs = SQLiteStorage.get_logs("pretraining", run.name, run_id=run.id)
print(json.dumps([run.id, run.name, run.config, logs, SQLiteStorage.get_alerts("pretraining")]))
"""


def read(folder: Path, number: int = 0) -> tuple[FoundRun, list[Item]]:
    path = folder / "trackio" / "pretraining.db"
    found = list(SOURCE.find(path, path.read_bytes()[:65536]))[number]
    return found, list(SOURCE.read(found))


def test_every_point_arrives_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    logged = [*made(1, 100), (5000, ODD), (5001, {"": 1.0, "phase": "up", "none": None, "big": 2**70})]
    write_records(tmp_path / "logged.json", logged)
    began = time.time()
    printed, told = run_program(CONFIG + SEND + ASK, tmp_path)
    assert "WARNING" not in told, told
    assert len(printed.splitlines()) == 1, "nothing is printed on the training's console"
    key, name, config, logs, alerts = json.loads(printed)
    assert name == "first" and config["seed"] == 7 and config["model/width"] == 768 and config["hidden"] == 1
    assert [(alert["title"], alert["level"], alert["step"]) for alert in alerts] == [("loss is high", "error", 521)]
    theirs = [(row["step"], row["train/loss"]) for row in logs if "train/loss" in row]
    assert [(step, repr(float(value))) for step, value in theirs] == series(logged)["train/loss"]
    found, items = read(tmp_path)
    assert (found.key, found.name, found.config["tags"]) == (key, "first", "seed=7")
    assert points(items) == series(logged)
    for item in items:
        if hasattr(item, "times"):
            assert all(began - 1 < moment / 1e6 < time.time() + 1 for moment in item.times.tolist())
    [gradients] = of_kind(items, ImportedDistribution)
    assert gradients.edges.tolist() == [0.0, 0.5, 1.0] and gradients.counts.tolist() == [3.0, 4.0]
    assert [(fact.step, fact.fields) for fact in facts(items, "metrics")] == [(5001, {"phase": "up"})]
    shown = {fact.step: (fact.time, fact.fields["message"]) for fact in facts(items, "info")}
    assert shown[520] == (10**15, "once upon a time") and "0.25" in shown[522][1]
    assert shown[521] == (10**15, "loss is high: by much")


def test_a_run_goes_on_by_its_id_and_rows_sent_twice_are_one(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    body = """
        def send(steps, **more):
            backend = TrackioBackend(config, **more)
            for step in steps:
                backend.log({"train/loss": step / 7, "barograph_offset": float(step)}, step)
            assert backend.close(), backend.lost
            return backend
        first = send(range(10), run_config={"lr": 1})
        second = send(range(10, 20), run_config={"depth": 12})
        assert first.run_id == second.run_id and second.title == "first"
        assert second._held("barograph_offset") == list(range(20))
        third = TrackioBackend(config)
        for _ in range(2):
            third._open() if third._store is None else None
            for step in (20, 21):
                third.mark = {"barograph_offset": float(step)}
                third._write({"train/loss": step / 7} | third.mark, step, time.time())
            third._flush()
        gone = TrackioBackend(SimpleNamespace(trackio_project="pretraining", name="first"))
        gone._resume({"run_id": "0" * 32})
        gone.log({"x": 1.0}, 1)
        assert gone.close() and gone.begins_anew and gone.run_id != first.run_id
    """
    _, told = run_program(CONFIG + "if True:" + body, tmp_path)
    assert "WARNING" not in told, told
    found, items = read(tmp_path)
    assert list(points(items)) == ["train/loss"], "a mirror's own numbers stay away"
    assert points(items)["train/loss"] == [(step, repr(step / 7)) for step in range(22)]
    assert (found.config["lr"], found.config["depth"]) == (1, 12)
    other, _ = read(tmp_path, 1)
    assert other.name == "first", "a run of the same name is another one"


def test_a_run_that_the_training_has_open_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    body = """
        import trackio
        own = trackio.init("pretraining", name="own", auto_log_gpu=False, auto_log_cpu=False, embed=False)
        trackio.log({"a": 1.0}, step=1)
        backend = TrackioBackend(config)
        backend.log({"b": 1.0}, 1)
        assert backend.close(), backend.lost
        trackio.log({"a": 2.0}, step=2)
        trackio.finish()
    """
    run_program(CONFIG + "if True:" + body, tmp_path)
    runs = {read(tmp_path, number)[0].name: points(read(tmp_path, number)[1]) for number in range(2)}
    assert runs == {"own": {"a": [(1, "1.0"), (2, "2.0")]}, "first": {"b": [(1, "1.0")]}}


def test_a_store_that_refuses_costs_one_sentence_and_rows_wait(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    body = """
        backend = TrackioBackend(config)
        backend._open()
        class Broken:
            @staticmethod
            def bulk_log(**named):
                raise OSError("no room")
            get_project_db_path = backend._store.get_project_db_path
        kept, backend._store = backend._store, Broken
        for step in range(1500):
            backend._write({"a": step / 7}, step, 1e9)
        try:
            backend._flush()
            raise AssertionError("a store that is away is told by the flush")
        except OSError:
            backend._store = kept
        backend._flush()
        assert len(backend._held("a")) == 1500
        project = TrackioBackend(SimpleNamespace(trackio_project="registry-mine"))
        project.log({"a": 1.0}, 1)
        assert not project.close()
    """
    _, told = run_program(CONFIG + "if True:" + body, tmp_path)
    assert told.count("WARNING") == 1 and "could not start" in told, told


def test_a_missing_library_costs_one_sentence(tmp_path: Path) -> None:
    body = """
        sys.modules["trackio"] = None
        backend = TrackioBackend(config)
        backend.log({"x": 1.0}, 1)
        assert not backend.close() and backend.lost == 1
    """
    _, told = run_program(CONFIG + "if True:" + body, tmp_path)
    assert told.count("WARNING") == 1 and "pip install trackio" in told
