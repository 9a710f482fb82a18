"""What `run.log` costs on the caller's thread, beside a plain JSON line, tight and paced.

    python benchmarks/log.py [--steps N] [--json]

A step of 20 scalars, log file and store on. "plain" is `json.dumps`, write and flush of the same
record; "msgspec" the same with the fastest encoder. Rows are taken in turns in one process, so a
noisy machine hits all of them. Further rows: a sink that hangs, a sink that raises, 2,000 names.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import barograph

NAMES = [f"train/metric_{number}" for number in range(20)]
WIDE = [f"layers/{number // 8}/statistic_{number % 8}" for number in range(2000)]


def values(generator: random.Random, names: list[str] = NAMES) -> dict[str, float]:
    return {name: generator.random() * 10 for name in names}


def measure(
    call: Callable[[dict[str, float], int], Any], steps: int, pause: float, names: list[str] = NAMES
) -> list[float]:
    """Microseconds of each call. The loop's own work (making the values) is not in them."""
    generator = random.Random(0)
    clock = time.perf_counter
    taken = []
    for step in range(steps):
        logged = values(generator, names)
        if pause:
            time.sleep(pause)
        began = clock()
        call(logged, step)
        taken.append((clock() - began) * 1e6)
    return taken


def plain(folder: Path) -> Callable[[dict[str, float], int], Any]:
    file = open(folder / "plain.jsonl", "w")  # noqa: SIM115

    def call(logged: dict[str, float], step: int) -> None:
        file.write(json.dumps({"log": "metrics", "time": time.time(), "step": step} | logged) + "\n")
        file.flush()

    return call


def fastest(folder: Path) -> Callable[[dict[str, float], int], Any]:
    file = open(folder / "msgspec.jsonl", "wb", buffering=0)  # noqa: SIM115
    encode = msgspec.json.Encoder().encode

    def call(logged: dict[str, float], step: int) -> None:
        file.write(encode({"log": "metrics", "time": time.time(), "step": step} | logged) + b"\n")

    return call


def ours(
    folder: Path, name: str, chore: Callable[[], Any] | None = None
) -> tuple[Any, Callable[[dict[str, float], int], Any]]:
    run = barograph.init(project="bench", name=name, dir=folder, verbosity=-2, git=False)
    if chore is not None:
        run._pump.chores.append(chore)
    return run, run.log


def raising() -> None:
    raise RuntimeError("a sink that raises")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="steps in the tight loop (a tenth of them paced)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    forever = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, log = ours(folder, "run")
        hung, log_hung = ours(folder, "hung", forever.wait)
        raises, log_raises = ours(folder, "raises", raising)
        wide, _ = ours(folder, "wide")
        calls = {
            "plain json.dumps, write, flush": plain(folder),
            "bare msgspec line": fastest(folder),
            "run.log": log,
            "run.log, a sink that hangs": log_hung,
            "run.log, a sink that raises": log_raises,
        }
        rounds, paced_steps = 5, max(100, options.steps // 40)
        for label, pause, steps in (
            ("tight", 0.0, options.steps // rounds),
            ("paced 5 ms", 0.005, paced_steps // rounds),
        ):
            taken: dict[str, list[float]] = {key: [] for key in calls}
            # paced calls take turns one by one, so that the machine's moods hit all rows alike
            turns = (rounds, steps) if not pause else (rounds * steps, 1)
            for _ in range(turns[0]):
                for key, call in calls.items():
                    taken[key] += measure(call, turns[1], pause)
            base = statistics.median(taken["plain json.dumps, write, flush"])
            for key, times in taken.items():
                times.sort()
                rows[f"{label}: {key}"] = {
                    "median_us": statistics.median(times),
                    "p99_us": times[int(len(times) * 0.99)],
                    "times_plain": statistics.median(times) / base,
                }
        times = sorted(measure(lambda logged, step: wide.log(logged, step), 500, 0.001, WIDE))
        rows["2,000 names: run.log"] = {"median_us": statistics.median(times), "p99_us": times[int(len(times) * 0.99)]}
        times = sorted(measure(plain(folder), 100, 0.001, WIDE))
        rows["2,000 names: plain"] = {"median_us": statistics.median(times), "p99_us": times[int(len(times) * 0.99)]}
        forever.set()
        for each in (run, hung, raises, wide):
            each.finish()
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':<50}{'median µs':>11}{'p99 µs':>10}{'× plain':>9}")
    for key, row in rows.items():
        ratio = f"{row['times_plain']:.2f}" if "times_plain" in row else ""
        print(f"{key:<50}{row['median_us']:>11.1f}{row['p99_us']:>10.1f}{ratio:>9}")


if __name__ == "__main__":
    main()
