"""What logging to W&B and TensorBoard costs a training, with our backends and by calling the libraries.

    python benchmarks/backends.py [--steps N] [--rounds N] [--json]

A step is about half a millisecond of Python work, then one record of 10 numbers. "call" is the log call alone; "step"
is the work too, so it shows what a background thread takes from the training. Every row runs in a process
of its own, rows in turns, several rounds. "hanging" is a backend whose library never comes back. W&B is
offline; `SummaryWriter` is torch's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barograph.trackers.backend import LoggingBackend
from barograph.trackers.tensorboard import TensorBoardBackend
from barograph.trackers.wandb import WandBBackend

NAMES = [f"train/metric_{number}" for number in range(10)]
ROWS = (
    "nothing", "W&B backend", "TensorBoard backend", "both backends", "hanging backend",
    "wandb.log", "SummaryWriter.add_scalar × 10",
)  # fmt: skip
Call = Callable[[dict[str, float], int], Any]


class Hanging(LoggingBackend):
    """A library that never comes back."""

    name, package = "hanging", "none"
    stall_seconds = 0.0
    queue_records = 500  # so that most records find it full

    def _open(self) -> None:
        threading.Event().wait()


def prepare(row: str, folder: str) -> tuple[Call, Callable[[], Any]]:
    """The row's log call, and how to end it."""
    if row == "nothing":
        return lambda logged, step: None, lambda: None
    if row == "wandb.log":
        import wandb

        run = wandb.init(project="bench", settings=wandb.Settings(console="off", silent=True))
        return lambda logged, step: run.log(logged, step=step), run.finish
    if row.startswith("SummaryWriter"):
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(folder)

        def add_scalars(logged: dict[str, float], step: int) -> None:
            for name, value in logged.items():
                writer.add_scalar(name, value, step)

        return add_scalars, writer.close
    config = SimpleNamespace(wandb_project="bench", wandb_run_id="", tensorboard_dir=folder)
    backends: list[LoggingBackend] = []
    if row in ("W&B backend", "both backends"):
        backends.append(WandBBackend(config))
    if row in ("TensorBoard backend", "both backends"):
        backends.append(TensorBoardBackend(config))
    if row == "hanging backend":
        backends.append(Hanging())

    def log(logged: dict[str, float], step: int) -> None:
        for backend in backends:
            backend.log(logged, step)

    def close() -> None:
        complete = all([backend.close() for backend in backends])
        assert complete or row == "hanging backend", "a backend lost records"

    log({"first": 0.0}, 0)
    if row != "hanging backend":
        while any(backend._doing or backend._queue for backend in backends):
            time.sleep(0.1)  # until the libraries are imported
    return log, close


def measure(row: str, steps: int) -> tuple[list[float], list[float]]:
    """Microseconds of each log call, and of each step with its work; of this process."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_ERROR_REPORTING": "false"}
        call, end = prepare(row, folder)
        clock, calls, whole = time.perf_counter, [], []
        for step in range(1, steps + 1):
            began = clock()
            logged = {name: sum(number * 0.5 for number in range(1500)) for name in NAMES}
            before = clock()
            call(logged, step)
            after = clock()
            calls.append((after - before) * 1e6)
            whole.append((after - began) * 1e6)
        end()
    return calls, whole


def table(steps: int, rounds: int) -> list[dict[str, Any]]:
    """Medians over all rounds, row by row."""
    calls: dict[str, list[float]] = {row: [] for row in ROWS}
    whole: dict[str, list[float]] = {row: [] for row in ROWS}
    for _ in range(rounds):
        for row in ROWS:
            command = [sys.executable, "-W", "ignore", str(Path(__file__)), "--row", row, "--steps", str(steps)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            of_calls, of_steps = json.loads(output.splitlines()[-1])
            calls[row] += of_calls
            whole[row] += of_steps
    base, bare = statistics.median(calls["wandb.log"]), statistics.median(whole["nothing"])
    return [
        {
            "row": row,
            "call_us": statistics.median(calls[row]),
            "call_p99_us": statistics.quantiles(calls[row], n=100)[98],
            "to_wandb_log": statistics.median(calls[row]) / base,
            "step_us": statistics.median(whole[row]),
            "to_nothing": statistics.median(whole[row]) / bare,
            "mean_to_nothing": statistics.fmean(whole[row]) / statistics.fmean(whole["nothing"]),
        }
        for row in ROWS
    ]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure(options.row, options.steps)))
        return
    rows = table(options.steps, options.rounds)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'row':31}{'call µs':>9}{'p99 µs':>9}{'× wandb.log':>13}{'step µs':>9}{'× nothing':>11}{'mean ×':>9}")
    for row in rows:
        print(
            f"{row['row']:31}{row['call_us']:9.1f}{row['call_p99_us']:9.1f}{row['to_wandb_log']:13.3f}"
            f"{row['step_us']:9.0f}{row['to_nothing']:11.3f}{row['mean_to_nothing']:9.3f}"
        )


if __name__ == "__main__":
    main()
