"""What `run.log` costs the training process, beside a plain JSON line in the same run, tight and paced.

    python benchmarks/log.py [--steps N] [--pause MS] [--no-sidecar] [--json]

A step of 20 scalars, and one of 2,000 names; everything on. "plain" is `json.dumps`, write and flush of the same
record. Both are taken in turns of some hundred steps in one process, so a noisy machine hits both. A line has the
median, the mean, p99, p99.9, the longest call and the processor time of the whole process a step (all its threads, the
loop's own work taken off), and each as a ratio to the plain line. Besides: the start until the first call has
returned, the end, and the memory that the process has grown by.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import barograph

NARROW = [f"train/metric_{number}" for number in range(20)]
WIDE = [f"layers/{number // 8}/statistic_{number % 8}" for number in range(2000)]
TURN = 500  # steps in a row of one kind
COLUMNS = ("median", "mean", "p99", "p99.9", "longest", "cpu")

Call = Callable[[dict[str, float], int], Any]


def plain(folder: Path) -> Call:
    """The line that is compared with."""
    file = open(folder / "plain.jsonl", "w")  # noqa: SIM115

    def call(values: dict[str, float], step: int) -> None:
        file.write(json.dumps({"log": "metrics", "time": time.time(), "step": step} | values) + "\n")
        file.flush()

    return call


class Taken:
    """Times of one kind of call, and the processor time of its turns."""

    def __init__(self) -> None:
        self.microseconds: list[float] = []
        self.cpu = 0.0

    def turn(self, call: Call, names: list[str], first: int, steps: int, pause: float) -> None:
        """This many steps in a row."""
        generator, clock = random.Random(first), time.perf_counter
        rows = [{name: generator.random() * 10 for name in names} for _ in range(min(steps, 50))]
        cpu = time.process_time()
        for step in range(first, first + steps):
            values = rows[step % len(rows)]
            if pause:
                time.sleep(pause)
            began = clock()
            call(values, step)
            self.microseconds.append((clock() - began) * 1e6)
        self.cpu += time.process_time() - cpu

    def figures(self, own: float) -> dict[str, float]:
        """In microseconds. own: what the loop itself costs a step."""
        ordered = sorted(self.microseconds)
        at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
        return {
            "median": statistics.median(ordered),
            "mean": statistics.fmean(ordered),
            "p99": at(0.99),
            "p99.9": at(0.999),
            "longest": ordered[-1],
            "cpu": max(0.0, self.cpu / len(ordered) * 1e6 - own),
        }


def compare(run: Any, folder: Path, names: list[str], steps: int, pause: float) -> dict[str, dict[str, float]]:
    """`plain`, `barograph` and their `ratio`."""
    calls: dict[str, Call] = {"plain": plain(folder), "barograph": lambda values, step: run.log(values, step=step)}
    taken = {name: Taken() for name in (*calls, "nothing")}
    turn = min(TURN, max(1, steps // 10))
    for first in range(0, steps, turn):
        for name, call in calls.items():
            taken[name].turn(call, names, first, turn, pause)
        if first < steps // 5:
            taken["nothing"].turn(lambda values, step: None, names, first, turn, pause)
    own = taken["nothing"].cpu / len(taken["nothing"].microseconds) * 1e6
    found = {name: taken[name].figures(own) for name in calls}
    found["ratio"] = {name: found["barograph"][name] / (found["plain"][name] or 1e-9) for name in COLUMNS}
    return found


def memory() -> float:
    """The most that the process has held, in MB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20 if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000, help="steps of a tight loop")
    parser.add_argument("--pause", type=float, default=5.0, help="milliseconds between two steps of a paced loop")
    parser.add_argument("--no-sidecar", action="store_true", help="without the process beside")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        _ = barograph.init  # imports what a training has imported once
        held, began = memory(), time.perf_counter()
        run = barograph.init(project="p", dir=folder, console="none", sidecar=not options.no_sidecar)
        run.log({"loss": 1.0}, step=0)
        found["start_ms"] = (time.perf_counter() - began) * 1e3
        paced = max(100, options.steps // 50)
        found["20 scalars, tight"] = compare(run, folder, NARROW, options.steps, 0.0)
        found["20 scalars, paced"] = compare(run, folder, NARROW, paced, options.pause / 1e3)
        found["2,000 names, tight"] = compare(run, folder, WIDE, max(100, options.steps // 25), 0.0)
        found["memory_mb"] = memory() - held
        began = time.perf_counter()
        run.finish()
        found["finish_ms"] = (time.perf_counter() - began) * 1e3
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'µs':<22}{'':<11}" + "".join(f"{name:>10}" for name in COLUMNS))
    for name, rows in found.items():
        if isinstance(rows, dict):
            for kind, figures in rows.items():
                shown = "".join(f"{figures[column]:>10.{2 if kind == 'ratio' else 1}f}" for column in COLUMNS)
                print(f"{name if kind == 'plain' else '':<22}{kind:<11}{shown}")
    print(f"start to first call {found['start_ms']:.0f} ms, end {found['finish_ms']:.0f} ms, ", end="")
    print(f"memory {found['memory_mb']:.0f} MB")


if __name__ == "__main__":
    main()
