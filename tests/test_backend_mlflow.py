"""What goes in is what MLflow holds, asked through its own client; and MLflow never holds up a program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from patience import patient
from tracker_programs import ODD, environment, made, points, run_program, series, write_records

from barograph.importing.mlflow import SOURCE
from barograph.trackers.mlflow import MLflowBackend

CONFIG = """
from barograph.trackers.mlflow import MLflowBackend
logging.basicConfig(level=logging.INFO)
MLflowBackend.stall_seconds = MLflowBackend.close_seconds = 100  # this machine may be busy
config = SimpleNamespace(mlflow_tracking_uri=os.environ.get("URI", ""), project="pretraining", name="first",
                         mlflow_run_id="", tags=["seed=7", "small"], notes="about it")
"""
SEND = """
backend = MLflowBackend(config, run_config={"lr": 3e-4, "model": {"width": 768}, "a*b": True})
for step, metrics in json.load(open("logged.json")):
    backend.log(metrics, step)
backend.log_config({"seed": 7})
assert backend.close(), backend.lost
assert config.mlflow_run_id == backend.run_id
"""
ASK = """
client = backend.client
run = client.get_run(backend.run_id)
found = {name: [(one.step, repr(one.value), one.timestamp) for one in client.get_metric_history(backend.run_id, name)]
         for name in run.data.metrics}
print(json.dumps([found, dict(run.data.params), dict(run.data.tags), run.info.status, run.info.run_name,
                  client.get_experiment(run.info.experiment_id).name]))
"""


def as_mlflow_has_it(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Its database keeps infinity as the largest float."""
    largest = repr(sys.float_info.max)
    return [(step, {"inf": largest, "-inf": f"-{largest}"}.get(value, value)) for step, value in rows]


def in_file(path: Path) -> dict[str, list[tuple[int, str]]]:
    [found] = SOURCE.find(path, path.read_bytes()[:65536])
    return points(SOURCE.read(found))


@pytest.mark.slow
def test_every_point_arrives_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    logged = [*made(1, 100), (5000, ODD), (5001, {"phase": "up", "none": None, "big": 10**400})]
    write_records(tmp_path / "logged.json", logged)
    began = time.time()
    printed, told = run_program(CONFIG + SEND + ASK, tmp_path, URI=str(tmp_path / "folder"))
    found, params, tags, status, name, experiment = json.loads(printed)
    assert (status, name, experiment) == ("FINISHED", "first", "pretraining")
    assert params == {"lr": "0.0003", "model/width": "768", "a_x2A_b": "True", "seed": "7"}
    assert tags["seed"] == "7" and tags["small"] == "" and tags["phase"] == "up"
    assert tags["mlflow.note.content"] == "about it"
    expected = series(logged[:-1]) | {"big": [(5001, "inf")]}
    plain = {one: rows for one, rows in found.items() if "_x" not in one}
    assert len(found) == len(expected) and len(plain) > 10
    for one, rows in plain.items():
        assert [(step, value) for step, value, _ in rows] == as_mlflow_has_it(expected[one])
        assert all(began - 1 < moment / 1000 < time.time() + 1 for _, _, moment in rows)
    # and with names and infinities as they were
    assert in_file(tmp_path / "folder" / "mlflow.db") == expected
    assert "WARNING" not in told and "Creating initial" not in told


@pytest.mark.slow
def test_a_run_goes_on_by_its_id(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    body = """
        def send(steps, **more):
            backend = MLflowBackend(config, **more)
            for step in steps:
                backend.log({"train/loss": step / 7, "barograph_offset": float(step)}, step)
            assert backend.close(), backend.lost
            return backend
        first = send(range(10), run_config={"lr": 1, "width": 768})
        second = send(range(10, 20), run_config={"lr": 2, "depth": 12})
        assert first.run_id == second.run_id == config.mlflow_run_id
        assert sorted(second._held("barograph_offset")) == list(range(20))
        params = second.client.get_run(second.run_id).data.params
        assert params == {"lr": "1", "width": "768", "depth": "12"}, params
        # a mirror whose run is gone begins anew; a user's own id that is wrong is said
        third = MLflowBackend(SimpleNamespace(**vars(config) | {"mlflow_run_id": ""}))
        third._resume({"run_id": "0" * 32})
        third.log({"x": 1.0}, 1)
        assert third.close() and third.begins_anew and third.run_id != first.run_id
        fourth = MLflowBackend(SimpleNamespace(mlflow_tracking_uri=os.environ["URI"], mlflow_run_id="nonsense"))
        fourth.log({"x": 1.0}, 1)
        assert not fourth.close() and fourth.lost == 1
    """
    _, told = run_program(CONFIG + "if True:" + body, tmp_path, URI=str(tmp_path))
    assert told.count("WARNING") == 2, told
    assert "'lr'" in told and "could not start" in told
    first, _ = SOURCE.find(tmp_path / "mlflow.db", (tmp_path / "mlflow.db").read_bytes()[:65536])
    assert points(SOURCE.read(first)) == {"train/loss": [(step, repr(step / 7)) for step in range(20)]}


@pytest.mark.slow
def test_texts_notes_and_parts_arrive(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    body = """
        backend = MLflowBackend(config)
        backend.log({"x": 1.0}, 1)
        backend.sender.put(backend._write_text, ("samples/a*b", "once upon a time", 3, 0.0), 1)
        backend.sender.put(backend._write_note, ("loss is high", "by much", "warning", 4, 0.0), 1)
        backend.sender.put(backend._write_parts, ("flops", "FLOPs", {"attention": 0.25}, 5, 0.0), 1)
        backend.exit_code = 1
        assert backend.close(), backend.lost
        run = backend.client.get_run(backend.run_id)
        assert run.info.status == "FAILED"
        assert run.data.tags["mlflow.note.content"] == "about it\\n\\n**loss is high** (warning, step 4): by much"
        import mlflow
        place = run.info.artifact_uri
        assert mlflow.artifacts.load_text(place + "/samples/a_x2A_b/step-000000003.txt") == "once upon a time"
        assert mlflow.artifacts.load_dict(place + "/flops.json")["parts"] == {"attention": 0.25}
    """
    _, told = run_program(CONFIG + "if True:" + body, tmp_path, URI=f"sqlite:///{tmp_path}/mlflow.db")
    assert "WARNING" not in told, told


@pytest.mark.slow
def test_every_point_arrives_at_a_server(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = f"sqlite:///{tmp_path}/server.db"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", place, "--default-artifact-root", str(tmp_path / "artifacts")]
    with open(tmp_path / "server.log", "wb") as log:  # a pipe that nobody reads would hold the server up
        variables = environment(tmp_path, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")  # six processes that do nothing
        server = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(1500):  # it is a minute before it listens on a busy machine
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.2)
        logged = made(2, 300)
        write_records(tmp_path / "logged.json", logged)
        printed, told = run_program(CONFIG + SEND + ASK, tmp_path, URI=f"http://127.0.0.1:{port}")
        assert "WARNING" not in told, told
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # with its workers
        server.wait()
    assert json.loads(printed.strip().splitlines()[-1])[3] == "FINISHED"
    assert in_file(tmp_path / "server.db") == series(logged)


def test_a_server_that_is_away_holds_up_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    body = """
        from patience import patient
        backend = MLflowBackend(config)
        began = time.perf_counter()
        for step in range(1000):
            backend.log({"train/loss": 1.0}, step)
        took = time.perf_counter() - began
        assert took < patient(0.5), took
        began = time.perf_counter()
        backend.stall_seconds = 10
        assert not backend.close(1.0) and backend.lost == 1000
        assert time.perf_counter() - began < patient(3)
    """
    began = time.perf_counter()
    _, told = run_program(CONFIG + "if True:" + body, tmp_path, URI="http://127.0.0.1:9")
    assert told.count("WARNING:barograph") == 1, told
    assert time.perf_counter() - began < patient(40)


class Sent(NamedTuple):
    key: str
    value: float
    timestamp: int = 0
    step: int = 0


def test_what_a_server_did_not_take_is_sent_when_it_is_back() -> None:
    class Client:
        def __init__(self) -> None:
            self.taken: list[Any] = []
            self.is_away = True

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
            if self.is_away:
                raise ConnectionError("away")
            if any(item.key == "bad" for item in metrics):
                error: Any = ValueError("no")
                error.error_code = "INVALID_PARAMETER_VALUE"
                raise error
            assert len(metrics) <= 1000
            self.taken += metrics

    backend = MLflowBackend(SimpleNamespace())
    backend.client = client = Client()
    backend._entities = SimpleNamespace(Metric=Sent, RunTag=Sent)
    for step in range(600):
        backend._write({"a": step, "b": -step}, step, 1.0)
    backend._write({"bad": 1.0}, 600, 1.0)
    with pytest.raises(ConnectionError):
        backend._flush()
    client.is_away = False
    backend._flush()
    assert [(one.key, one.step) for one in client.taken[::2]] == [("a", step) for step in range(600)]
    assert len(client.taken) == 1200 and backend.lost == 1 and not backend._metrics


def test_a_missing_library_costs_one_sentence(tmp_path: Path) -> None:
    body = """
        sys.modules["mlflow"] = None
        backend = MLflowBackend(config)
        backend.log({"x": 1.0}, 1)
        assert not backend.close() and backend.lost == 1
    """
    _, told = run_program(CONFIG + "if True:" + body, tmp_path)
    assert told.count("WARNING") == 1 and "pip install mlflow" in told
