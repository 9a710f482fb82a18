"""What goes in is what W&B's own file holds, read with W&B's own messages; and W&B never holds up a program.

Every test runs the real library, offline or against an address of this machine, in a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import pty
import random
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from patience import patient

pytest.importorskip("wandb")

SOURCE = str(Path(__file__).parents[1] / "src")
HEAD = """
import json, logging, os, sys, time
from types import SimpleNamespace
from barograph.trackers.wandb import WandBBackend
config = SimpleNamespace(
    log_interval=10, enable_wandb=True, enable_tensorboard=False, wandb_project="kempnerforge",
    wandb_run_name=None, wandb_run_id="", tensorboard_dir="tb_logs",
)
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    ours = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_ERROR_REPORTING": "false",
        "HOME": str(folder),
        "PYTHONPATH": SOURCE,
    }
    return kept | ours | more


def run_program(body: str, folder: Path, *arguments: str, **variables: str) -> Any:
    command = [sys.executable, "-c", HEAD + textwrap.dedent(body), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(folder, **variables), capture_output=True, text=True, timeout=120
    )


class Stored(NamedTuple):
    """What a `.wandb` file holds."""

    run: Any
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    metrics: list[Any]


def records(path: Path) -> Iterator[Any]:
    """W&B's records: the log format of LevelDB (blocks of 32 KiB, parts of a record in each) with a header of 7."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # which picks the file of the installed protobuf
    data, at, record = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, part = struct.unpack_from("<HB", data, at + 4)
        if not part or at + 7 + size > len(data):  # the space behind the last record of a killed process
            return
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if part in (1, 4):  # whole, or the last part
            yield messages.Record.FromString(record)
            record = b""


def read(folder: Path) -> Stored:
    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    stored = Stored(None, {}, [], [])
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            stored = stored._replace(run=record.run)
            for item in record.run.config.update:
                stored.config[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        elif kind == "history":
            named = ((item.key or "/".join(item.nested_key), item.value_json) for item in record.history.item)
            stored.rows.append({name: json.loads(value) for name, value in named})
        elif kind == "metric":
            stored.metrics.append(record.metric)
    return stored


def values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("_step", "_timestamp", "_runtime", "step")}


ODD = {"with space": 1.5, "a/b/c": -0.1, "été/損失": 1e-300, "<script>": 1e300, "": 2.0, "a.b": 3, "train/phase": "up"}


def made(seed: int) -> list[tuple[int, dict[str, Any]]]:
    """Records as a training makes them: each tenth step, an evaluation beside it, one logged late, a rewind."""
    generator = random.Random(seed)
    logged: list[tuple[int, dict[str, Any]]] = [(0, {"eval/loss": 11.0})]
    for step in [*range(10, 400, 10), *range(200, 300, 10)]:
        numbers = {
            f"train/{number}": generator.uniform(-1, 1) * 10 ** generator.randint(-30, 30) for number in range(8)
        }
        logged.append((step, numbers | {"train/loss": generator.choice([math.nan, math.inf, -math.inf, 0.5])}))
        if step % 50 == 0:
            logged.append((step, {"eval/loss": generator.random(), "done": True}))
            logged.append((step - 5, {"late/loss": generator.random()}))
            logged.append((step - 5, {"late/loss": generator.random()}))
    return [*logged, (500, ODD)]


def test_every_point_comes_out_at_its_step(tmp_path: Path) -> None:
    (tmp_path / "logged.json").write_text(json.dumps(made(1)))
    body = """
        WandBBackend.stall_seconds = WandBBackend.close_seconds = 100  # this machine may be busy
        backend = WandBBackend(config, run_config={"lr": 3e-4, "model": {"width": 768}})
        began = time.time()
        for step, metrics in json.load(open("logged.json")):
            backend.log(metrics, step)
        backend.log_config({"seed": 7})
        backend.log_histogram("gradients", [0.0, 0.5, 1.0], [3, 4], 510)
        assert backend.close(), backend.lost
        assert config.wandb_run_id == backend.run_id
        print(json.dumps([began, time.time(), config.wandb_run_id]))
    """
    done = run_program(body, tmp_path)
    assert done.returncode == 0, done.stderr
    began, ended, run_id = json.loads(done.stdout)
    assert done.stderr == "", "the console belongs to the training"
    stored = read(tmp_path)
    assert (stored.run.run_id, stored.run.project) == (run_id, "kempnerforge")
    assert stored.config["lr"] == 3e-4 and stored.config["model/width"] == 768

    expected = [(step, name or "unnamed", value) for step, metrics in made(1) for name, value in metrics.items()]
    histogram = {"_type": "histogram", "values": [3, 4], "bins": [0, 0.5, 1]}
    found, split = [], {}
    for row in stored.rows:
        assert began <= row["_timestamp"] <= ended
        for name, value in values(row).items():
            if name.startswith("gradients/"):
                split[name.removeprefix("gradients/")] = value
            else:
                found.append((row["step"], name, split if name == "gradients" else value))
    assert sorted(map(repr, ((s, n, float(v) if type(v) is int else v) for s, n, v in found))) == sorted(
        map(repr, ((s, n, float(v) if type(v) is int else v) for s, n, v in expected))
    )
    assert split == histogram
    # W&B drops a row whose number goes back; ours never do, and they follow the step while it goes up
    numbers = [row["_step"] for row in stored.rows]
    assert numbers == sorted(set(numbers))
    assert all(row["_step"] == row["step"] for row in stored.rows if row["step"] <= 50 and "late/loss" not in row)
    [both] = [row for row in stored.rows if row["step"] == 50 and "late/loss" not in row]
    assert {"train/loss", "eval/loss"} <= set(both), "two calls at one step are one row"
    assert ("*", "step") in [(metric.glob_name, metric.step_metric) for metric in stored.metrics]


def test_a_kept_id_and_names_go_to_the_run_and_the_end_of_the_program_sends_all(tmp_path: Path) -> None:
    body = """
        import wandb
        other = wandb.init(project="the script's own", settings=wandb.Settings(silent=True))
        config.wandb_run_id, config.wandb_run_name = "kept1234", "third try"
        backend = WandBBackend(config)
        backend.log({"a": 0}, 0)
        while backend.run is None: time.sleep(0.05)
        for step in range(1, 300):
            backend.log({"a": step}, step)
        other.log({"b": 1.0})
        assert wandb.run is other
    """
    done = run_program(body, tmp_path)
    assert done.returncode == 0, done.stderr
    [path] = tmp_path.glob("wandb/offline-run-*/*kept1234.wandb")
    stored = [record for record in records(path) if record.WhichOneof("record_type") in ("run", "history")]
    assert (stored[0].run.run_id, stored[0].run.display_name) == ("kept1234", "third try")
    assert sum(record.WhichOneof("record_type") == "history" for record in stored) == 300
    [other] = [one for one in tmp_path.glob("wandb/offline-run-*/*.wandb") if one != path]
    assert sum(record.WhichOneof("record_type") == "history" for record in records(other)) == 1


def test_without_an_api_key_nobody_is_asked_for_one(tmp_path: Path) -> None:
    body = """
        backend = WandBBackend(config)
        backend.log({"a": 1.0}, 1)
        time.sleep(1.5)
        assert not backend.close()
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        cwd=tmp_path,
        env=environment(tmp_path, WANDB_MODE="online", WANDB_BASE_URL="http://127.0.0.1:9", TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    assert process.wait(30) == 0
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "Run wandb login, or set WANDB_MODE=offline" in shown
    assert "(1)" not in shown and shown.count("\n") == 1, shown


@pytest.mark.parametrize("backend", ["wandb.WandBBackend", "tensorboard.TensorBoardBackend"])
def test_without_the_library_one_warning_says_what_to_install(backend: str, tmp_path: Path) -> None:
    module, name = backend.split(".")
    (tmp_path / "wandb" / "offline-run-1").mkdir(parents=True)  # which `import wandb` takes for a package
    body = f"""
        from barograph.trackers.{module} import {name}
        backend = {name}(config)
        for step in range(100):
            backend.log({{"a": 1.0}}, step)
        assert not backend.close()
        assert backend.lost == 100, backend.lost
    """
    command = [sys.executable, "-S", "-c", HEAD + textwrap.dedent(body)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1 and f"it needs pip install {module}" in done.stderr


@pytest.mark.slow
def test_a_killed_training_leaves_what_w_and_b_had_a_second_before(tmp_path: Path) -> None:
    body = """
        backend = WandBBackend(config)
        backend.log({"a": 0.0}, 0)
        while backend.run is None: time.sleep(0.05)
        for step in range(1, 10**9):
            backend.log({"a": float(step)}, step)
            time.sleep(0.005)
            if step % 100 == 0: print(step, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    step = int(process.stdout.readline())  # W&B's own start takes as long as the machine makes it
    began = time.monotonic()
    while time.monotonic() - began < 6:
        step = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    time.sleep(1)
    rows = read(tmp_path).rows
    assert [(row["step"], row["a"]) for row in rows] == [(number, float(number)) for number in range(len(rows))]
    assert len(rows) > step - 600, "three seconds of 200 records"


@pytest.mark.slow
def test_a_dead_service_costs_one_warning(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    assert psutil
    body = """
        import psutil
        backend = WandBBackend(config, log_file="training.json")
        backend.log({"a": 1.0}, 1)
        while backend.run is None: time.sleep(0.05)
        time.sleep(0.3)
        for child in psutil.Process().children(): child.kill()
        time.sleep(0.5)
        for step in range(2, 40): backend.log({"a": 1.0}, step)
        assert not backend.close()
        assert backend.lost >= 38, backend.lost
    """
    began = time.monotonic()
    done = run_program(body, tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < patient(20)
    assert done.stderr.count("barograph:") == 1 and "The records are in training.json" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_server_that_never_answers_lets_the_program_end(tmp_path: Path) -> None:
    body = """
        import socket
        silent = socket.socket()
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # the kernel takes connections, nobody answers
        os.environ["WANDB_BASE_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        backend = WandBBackend(config)
        backend.stall_seconds = 2
        for step in range(100):
            backend.log({"a": 1.0}, step)
        while not backend.sender.exit_hooks: time.sleep(0.05)  # W&B's service is there, and its hook
        time.sleep(0.5)
    """
    began = time.monotonic()
    done = run_program(body, tmp_path, WANDB_MODE="online", WANDB_API_KEY="a" * 40)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < patient(20), "W&B itself waits for 90 s"
    [warning] = [line for line in done.stderr.splitlines() if line.startswith("barograph:")]
    assert "did not end in time and was left behind; 100 records were not sent" in warning
