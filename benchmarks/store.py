"""Block files and sealed parts alone: writing, sealing, one series back, in two shapes of the same number of points.

    python benchmarks/store.py [--points N]

wide: 2,000 series of 5,000 steps, a block a step. narrow: 10 series of 1,000,000 steps.
Values are 32-bit floats: "noise" is random in every bit of them, the worst there is; "drift" moves from
step to step, as statistics of a training do. Steps take 50 ms with some milliseconds of jitter.
Each line is the median of several. "plain" is the numbers' bytes alone, written as often.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from barograph.core.columns import buckets, thin
from barograph.log.blocks import BlockWriter
from barograph.log.write import JsonLog
from barograph.store.run import RunStore

COLD = """
import sys
from pathlib import Path
from barograph.store.run import RunStore
assert len(RunStore(Path(sys.argv[1])).look().points(sys.argv[2]).value)
"""
GROWTH = """
import sys
from barograph.store import seal
seal.main([sys.argv[1], "--final"])
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def median(times: int, work: Callable[[int], Any]) -> float:
    """Milliseconds."""
    taken = []
    for number in range(times):
        began = time.perf_counter()
        work(number)
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def write(folder: Path, names: tuple[str, ...], values: Any, times: Any) -> float:
    """Seconds to have all of it in the operating system's hands, a block a step."""
    folder.mkdir()
    JsonLog(folder / "training.json").close()
    packed, moments = [row.tobytes() for row in values], times.tolist()
    began = time.perf_counter()
    writer = BlockWriter(folder, "training", {})
    for step, (row, moment) in enumerate(zip(packed, moments, strict=True)):
        writer.row(names, row, step, moment, 1, 0)
    taken = time.perf_counter() - began
    writer.close()
    return taken


def measure(root: Path, shape: str, kind: str, series: int, steps: int) -> None:
    generator = numpy.random.default_rng(0)
    names = tuple(f"layers/{number:04d}/grad_norm" for number in range(series))
    times = 1_700_000_000_000_000 + numpy.cumsum(50_000 + generator.exponential(3000, steps).astype(numpy.int64))
    values = generator.standard_normal((steps, series))
    if kind == "drift":
        values = numpy.exp(numpy.cumsum(values * 0.02, axis=0))
    values = values.astype(numpy.float32).astype(numpy.float64)
    points = steps * series
    store = root / f"{shape}-{kind}"
    seconds = write(store, names, values, times)
    packed = [row.tobytes() for row in values]
    began = time.perf_counter()
    with open(root / "plain", "wb", buffering=0) as file:
        for row in packed:
            file.write(row)
    plain = time.perf_counter() - began
    live = sum(path.stat().st_size for path in store.glob("*.wide"))
    reader = RunStore(store)
    first = median(1, lambda _: reader.look().points(names[0]))
    warm_live = median(9, lambda number: reader.look().points(names[number % series]))
    began = time.perf_counter()
    grown = subprocess.run([sys.executable, "-c", GROWTH, str(store)], capture_output=True, text=True, check=True)
    sealing = time.perf_counter() - began
    sealed = sum(path.stat().st_size for path in store.rglob("*.parquet"))
    print(f"{shape}, {kind}: {series:,} series of {steps:,} steps, {points:,} points")
    print(f"  written      {points / seconds / 1e6:8.1f} million points a second (plain: {points / plain / 1e6:.0f})")
    print(f"  not sealed   {live / points:8.2f} bytes a point; one series {first:.0f} ms, then {warm_live:.1f} ms")
    print(f"  sealed       {sealed / points:8.2f} bytes a point, {points / sealing / 1e6:.1f} million points a second,")
    print(f"               in a process of {float(grown.stdout):.0f} MB at most")
    cold = median(7, lambda number: subprocess.run([sys.executable, "-c", COLD, store, names[number]], check=True))
    imports = median(7, lambda _: subprocess.run([sys.executable, "-c", "import pyarrow.parquet"], check=True))
    print(f"  one series   {cold:8.0f} ms in a new process (import pyarrow.parquet alone: {imports:.0f} ms)")
    reader = RunStore(store)
    reader.look().points(names[0])
    other = median(9, lambda number: reader.look().points(names[(number + 1) * (series // 10) - 1]))
    again = median(9, lambda _: reader.look().points(names[3]))
    print(f"  one series   {other:8.1f} ms warm, another one each time; {again:.1f} ms the same again")
    named = median(9, lambda _: reader.look().names())
    look = reader.look()
    every = median(1, lambda _: [look.points(name) for name in look.names()])
    print(f"  all names    {named:8.1f} ms; every series, one after the other, {every / series:.2f} ms each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("noise", "drift"):
            measure(Path(folder), "wide", kind, 2000, options.points // 2000)
            measure(Path(folder), "narrow", kind, 10, options.points // 10)
    x, y = numpy.arange(1_000_000), numpy.random.default_rng(0).standard_normal(1_000_000)
    print(f"1,000,000 points to 1,000 buckets {median(9, lambda _: buckets(x, y, 1000)):.1f} ms")
    y[::1000] = numpy.nan
    print(f"  with 1,000 NaN {median(9, lambda _: buckets(x, y, 1000)):.1f} ms")
    print(f"  to 2,000 points to draw {median(9, lambda _: thin(x, y, 2000)):.1f} ms")


if __name__ == "__main__":
    main()
