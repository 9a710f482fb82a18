"""What Barograph costs the process that holds it: import time, memory over a long run, kills.

python benchmarks/process.py import          # beside a bare interpreter and numpy
python benchmarks/process.py memory          # growth from 10,000 to 1,000,000 steps of 20 scalars
python benchmarks/process.py strict [--seconds N]   # how often `json.load` of a log that is written has to read again
python benchmarks/process.py kills [--kills N] [--modes MODE …]   # what is lost, doubled or torn by kill -9
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kills

MEMORY = """
import random, sys, time, barograph
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
run = barograph.init(project="p", dir=sys.argv[1], verbosity=-2, git=False)
names = [f"train/metric_{n}" for n in range(20)]
values = dict.fromkeys(names, 1.0)
last, began = int(sys.argv[2]), time.time()
for step in range(last + 1):
    values["train/metric_0"] = step * 0.5
    run.log(values, step=step)
    if step in (10_000, last):
        time.sleep(2.5)
        print(f"{step} {rss():.1f} {time.time() - began:.1f}", flush=True)
"""


def import_time(_: argparse.Namespace) -> None:
    rows: dict[str, list[float]] = {}
    for _round in range(11):
        for what in ("pass", "import numpy", "import barograph", "import barograph; barograph.init"):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", what], check=True)
            rows.setdefault(what, []).append((time.perf_counter() - began) * 1e3)
    base = statistics.median(rows["pass"])
    for what, taken in rows.items():
        middle = statistics.median(taken)
        print(f"{what:<36}{middle:>8.1f} ms   {middle - base:>7.1f} ms above a bare interpreter")


def memory(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-c", MEMORY, folder, str(options.steps)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    (first, before, _), (last, after, took) = (line.split() for line in lines)
    print(f"resident memory after {int(first):,} steps: {before} MB; after {int(last):,}: {after} MB ({took} s)")
    print(f"growth: {float(after) - float(before):.1f} MB")


WRITER = """
import sys, time, barograph
log = barograph.TrainingRunLogger(sys.argv[1], verbosity=-2)
pace, step, began = float(sys.argv[2]), 0, time.monotonic()
while True:
    step += 1
    log.log_step(step, .1, 1000, 100, 1.0, 2.0, 1e-3)
    if pace and (ahead := began + step / pace - time.monotonic()) > 0:
        time.sleep(ahead)
"""


def strict(options: argparse.Namespace) -> None:
    for pace in (100, 2000, 0):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "log.json"
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(pace)])
            try:
                while not path.exists() or path.stat().st_size < 100:
                    time.sleep(0.01)
                reads = failed = records = 0
                until = time.monotonic() + options.seconds
                while time.monotonic() < until:
                    reads += 1
                    try:
                        records = len(json.loads(path.read_bytes()))
                    except ValueError:
                        failed += 1
            finally:
                writer.kill()
                writer.wait()
        print(f"{records / options.seconds:>10,.0f} records/s: {failed} of {reads:,} reads had to be done again")


def kill(options: argparse.Namespace) -> None:
    outcomes = kills.run(options.kills, options.modes or tuple(kills.MODES), options.jobs)
    if any(outcome.problems for outcome in outcomes):
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("import").set_defaults(function=import_time)
    made = commands.add_parser("memory")
    made.add_argument("--steps", type=int, default=1_000_000)
    made.set_defaults(function=memory)
    made = commands.add_parser("strict")
    made.add_argument("--seconds", type=float, default=20.0, help="of each pace")
    made.set_defaults(function=strict)
    made = commands.add_parser("kills")
    made.add_argument("--kills", type=int, default=60, help="of each mode")
    made.add_argument("--modes", nargs="*", metavar="MODE", help=", ".join(kills.MODES))
    made.add_argument("--jobs", type=int, default=2, help="runs at a time")
    made.set_defaults(function=kill)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
