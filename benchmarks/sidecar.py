"""What the process beside a training costs, and how soon it tells.

    python benchmarks/sidecar.py            all figures, medians of 3
    python benchmarks/sidecar.py --quick    one round of each

In:   nothing; runs of its own in a temporary folder, a receiver of alerts on this machine.
Out:  a table: memory, CPU while nothing comes, CPU a row with all rules, row to alert, kill to alert.
"""

from __future__ import annotations

import argparse
import http.server
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from barograph.core import liveness, manifest, place
from barograph.core.options import Settings
from barograph.core.record import Record, encode
from barograph.log.write import JsonLog

NAMES = ["train/loss", "train/grad_norm", "train/lr", *(f"train/value_{number}" for number in range(17))]
TRAINING = """
import sys, time
sys.path.insert(0, sys.argv[2])
import sidecar
log = sidecar.Log(sidecar.Path(sys.argv[1]))
for step in range(1, 301):
    log.row(step)
print("ready", flush=True)
for line in sys.stdin:
    log.row(301, float("nan"))
    print("logged", flush=True)
"""


class Log:
    """A run of this process: a manifest and a log with rows of 20 numbers."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        about = {"id": folder.name, "status": "running", "world_size": 1} | liveness.process()
        manifest.write(folder, about)
        self._log = JsonLog(folder / "training.json", print)
        who = {"segment": 1, "kind": "start", "rank": 0, "writer": "w", "host": place.host(), "pid": os.getpid()}
        self._log.append(encode(Record("segment", time.time_ns() // 1000, 0, who)))

    def row(self, step: int, loss: float | None = None, moment: int | None = None) -> None:
        """One row; noise that no rule minds."""
        noise = math.sin(step * 12.9898) * 0.02
        values = dict.fromkeys(NAMES, 1.0 + noise)
        values |= {"train/loss": 2.0 + 3.0 / step**0.5 + noise if loss is None else loss, "train/lr": 1e-3}
        self._log.append(encode(Record("metrics", moment or time.time_ns() // 1000, step, values)))

    def close(self) -> None:
        self._log.append(encode(Record("end", time.time_ns() // 1000, 0, {"status": "finished"})))
        self._log.close()


class Receiver:
    """Takes alerts; when the first one came."""

    def __init__(self) -> None:
        self.came: list[float] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.came.append(time.monotonic())
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"json://127.0.0.1:{self._server.server_address[1]}"


def start(folder: Path, pid: int, **settings: Any) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-m", "barograph.sidecar", str(folder)], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"pid": pid, "settings": settings, "config": {"lr": 1e-3}}).encode() + b"\n")
    process.stdin.close()
    return process


def training(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(folder), str(Path(__file__).parent)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    return process


def idle(folder: Path, seconds: float, doctor: bool) -> tuple[float, float]:
    """Megabytes held and percent of a core used, while nothing comes; the machine is sampled."""
    run = training(folder)
    beside = start(folder, run.pid, doctor=doctor)
    try:
        time.sleep(12.0)
        process = psutil.Process(beside.pid)
        before, began = process.cpu_times(), time.monotonic()
        time.sleep(seconds)
        after = process.cpu_times()
        used = (after.user + after.system - before.user - before.system) / (time.monotonic() - began)
        return process.memory_info().rss / 1e6, 100 * used
    finally:
        run.kill()
        beside.kill()
        run.wait()
        beside.wait()


def row_cost(folder: Path, rows: int) -> float:
    """Microseconds of CPU a row of 20 numbers with all rules, accounts and alerts, one row each 50 ms."""
    from barograph.sidecar.loop import Sidecar
    from barograph.sidecar.process import collect_rarely

    if rows > 500:
        row_cost(folder.with_name(f"{folder.name}-first"), 500)  # what is imported once
        collect_rarely()
    log = Log(folder)
    now = time.time_ns() // 1000 - rows * 50_000
    for step in range(1, rows + 1):
        log.row(step, moment=now + step * 50_000)
    sidecar = Sidecar(folder, Settings(machine=False, alerts=("train/loss > 100",)))
    sidecar.sealing.settle = lambda idle: None  # type: ignore[method-assign]
    began = time.process_time()
    sidecar.read()
    took = time.process_time() - began
    sidecar.close()
    log.close()
    return took / rows * 1e6


def until_alert(folder: Path, cause: Callable[[subprocess.Popen[str]], Any]) -> float:
    """Seconds from a cause to the alert at its target."""
    receiver = Receiver()
    run = training(folder)
    beside = start(folder, run.pid, machine=False, notify=[receiver.address])
    try:
        time.sleep(6.0)
        began = time.monotonic()
        cause(run)
        while not receiver.came and time.monotonic() < began + 60:
            time.sleep(0.005)
        return receiver.came[0] - began if receiver.came else math.nan
    finally:
        run.kill()
        beside.kill()
        run.wait()
        beside.wait()


def log_nan(run: subprocess.Popen[str]) -> None:
    assert run.stdin is not None
    run.stdin.write("now\n")
    run.stdin.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="What the process beside a training costs, and how soon it tells.")
    parser.add_argument("--quick", action="store_true", help="one round of each")
    rounds = 1 if parser.parse_args().quick else 3
    with tempfile.TemporaryDirectory() as place_:
        folders = (Path(place_, f"run{number}") for number in range(100))
        with_rules = [idle(next(folders), 20.0, True) for _ in range(rounds)]
        without = [idle(next(folders), 20.0, False) for _ in range(rounds)]
        costs = [row_cost(next(folders), 20_000) for _ in range(rounds)]
        alert = [until_alert(next(folders), log_nan) for _ in range(rounds)]
        killed = [until_alert(next(folders), lambda run: run.kill()) for _ in range(rounds)]
    middle = statistics.median
    print(f"memory with all rules             {middle(one for one, _ in with_rules):6.0f} MB   target 120")
    print(f"memory without the doctor         {middle(one for one, _ in without):6.0f} MB")
    print(f"CPU idle                          {middle(one for _, one in with_rules):6.2f} %    target 0.5")
    print(f"CPU a row of 20 with all rules    {middle(costs):6.1f} µs   target 30")
    print(f"row to alert                      {middle(alert):6.2f} s    target 2")
    print(f"kill -9 to alert                  {middle(killed):6.2f} s    target 5")


if __name__ == "__main__":
    main()
