"""Wide data through the whole of Barograph: 2,000 named values a step, written, sealed and read back.

    python benchmarks/wide.py [--steps N] [--names N]

Values are what training statistics are: 32-bit floats that drift from step to step. Points a second
counts from the first log call to the last byte in the operating system's hands; a plain JSON line a
step is beside it. Reading takes one series of the run (10 million points by default), in a process
of its own from its start ("cold") and again in the same process ("warm"); then one million points are
reduced to 1,000 buckets with exact minimum and maximum.
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

import numpy

import barograph
from barograph.core.columns import buckets
from barograph.store.seal import seal

READ = """
import sys, time
began = time.perf_counter()
import barograph
(run,) = barograph.runs(sys.argv[1])
points = len(run.series(sys.argv[2]))
cold = time.perf_counter() - began
warm = []
for name in sys.argv[3:]:
    began = time.perf_counter()
    run.series(name)
    warm.append(time.perf_counter() - began)
print(points, cold * 1e3, sorted(warm)[len(warm) // 2] * 1e3)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--names", type=int, default=2000)
    options = parser.parse_args()
    names = [f"layers/{number // 8}/statistic_{number % 8}" for number in range(options.names)]
    generator = numpy.random.default_rng(0)
    drift = 1 + numpy.cumsum(generator.normal(0, 0.01, (options.steps, len(names))), axis=0)
    rows = [dict(zip(names, row, strict=True)) for row in drift.astype(numpy.float32).astype(float).tolist()]
    points = options.steps * len(names)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = barograph.init(project="p", name="r", dir=folder, verbosity=-2, git=False, sidecar=False)
        taken, began = [], time.perf_counter()
        for step in range(options.steps):
            values = rows[step]
            call = time.perf_counter()
            run.log(values, step=step)
            taken.append(time.perf_counter() - call)
        through = time.perf_counter() - began
        run.finish()
        began = time.perf_counter()
        seal(run.dir, final=True)
        sealing = time.perf_counter() - began
        size = sum(path.stat().st_size for path in run.dir.glob("store/*/*.parquet"))
        print(f"caller: median {statistics.median(taken) * 1e6:.1f} µs a step of {len(names):,} names")
        print(f"written: {points / through / 1e6:.2f} million points a second")
        print(f"sealed: {size / points:.2f} bytes a point, {points / sealing / 1e6:.2f} million points a second")
        with open(Path(folder) / "plain.jsonl", "w") as file:
            began = time.perf_counter()
            for step in range(options.steps // 20):
                file.write(json.dumps({"step": step} | rows[step]) + "\n")
                file.flush()
            plain = options.steps // 20 * len(names) / (time.perf_counter() - began)
        print(f"plain JSON line: {plain / 1e6:.2f} million points a second")
        some = names[:: max(1, len(names) // 9)]
        cold, warm, bare = [], [], []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import pyarrow.parquet"], check=True)
            bare.append((time.perf_counter() - began) * 1e3)
            command = [sys.executable, "-c", READ, folder, some[0], *some[1:]]
            found, first, again = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            cold.append(float(first))
            warm.append(float(again))
        print(
            f"one series of {points:,} points ({int(found):,} of them): cold {statistics.median(cold):.0f} ms, "
            f"warm {statistics.median(warm):.1f} ms (`import pyarrow.parquet` alone: {statistics.median(bare):.0f} ms)"
        )
    y = numpy.cumsum(generator.normal(size=1_000_000))
    x = numpy.arange(len(y))
    reduced = []
    for _ in range(15):
        began = time.perf_counter()
        buckets(x, y, 1000)
        reduced.append((time.perf_counter() - began) * 1e3)
    print(f"1,000,000 points to 1,000 exact buckets: {statistics.median(reduced):.1f} ms")


if __name__ == "__main__":
    main()
