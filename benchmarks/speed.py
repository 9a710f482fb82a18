"""What timing costs: the tracker and the phases, beyond the log call that a loop makes anyway.

    python benchmarks/speed.py [--steps N] [--pause MS]

The loops take turns step by step, so that a busy machine is busy for all of them. `--pause` puts that many
milliseconds of arithmetic between two steps: the caches are then cold, as in a training.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import barograph.training.processes

import barograph
from barograph.integrations.tracker import MetricsTracker

NAMES = ("data", "forward", "backward", "optimizer")


def begin(folder: str) -> Any:
    return barograph.init(project="speed", dir=folder, verbosity=-2, git=False)


def loops(folder: str) -> dict[str, Callable[[int], None]]:
    logged, stepped, phased, tracked = (begin(folder) for _ in range(4))
    tracker = MetricsTracker(run=tracked)
    phased.clock.flops_per_token, phased.clock.peak_flops, phased.clock.formula = 1e9, 1e21, "palm"
    tracked.clock.flops_per_token, tracked.clock.peak_flops, tracked.clock.formula = 1e9, 1e21, "palm"

    def log_call(step: int) -> None:
        logged.log_step(step, 0.5, 16384, 156, 0.1234, 2.3456, 2e-4)

    def bare_step(step: int) -> None:
        with stepped.step(tokens=16384, step=step):
            pass

    def four_phases(step: int) -> None:
        with phased.step(tokens=16384, step=step):
            for name in NAMES:
                with phased.phase(name):
                    pass

    def tracker_step(step: int) -> None:
        tracker.start_step()
        tracker.end_step(step, 2.3456, 0.1234, 2e-4, 16384)

    return {"log_step": log_call, "run.step": bare_step, "run.step, 4 phases": four_phases, "tracker": tracker_step}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--pause", type=float, default=0.0, help="milliseconds of work between two steps")
    options = parser.parse_args()
    ballast = bytearray(8 << 20)
    with tempfile.TemporaryDirectory() as folder:
        found = loops(folder)
        took: dict[str, list[float]] = {name: [] for name in found}
        for step in range(options.steps):
            for name, loop in found.items():
                until = time.perf_counter() + options.pause / 1e3
                while time.perf_counter() < until:
                    ballast[:] = bytes(8 << 20)
                began = time.perf_counter_ns()
                loop(step)
                took[name].append((time.perf_counter_ns() - began) / 1e3)
        for run in list(barograph.training.processes.open_runs):
            run.finish()
    median = {name: statistics.median(values) for name, values in took.items()}
    for name, values in took.items():
        print(f"{name:20} median {median[name]:6.1f} µs   p99 {statistics.quantiles(values, n=100)[98]:6.1f} µs")
    print(f"tracker beyond the log call   {median['tracker'] - median['log_step']:5.1f} µs a step (target 15)")
    print(
        f"four phases                   {median['run.step, 4 phases'] - median['run.step']:5.1f} µs a step (target 10)"
    )


if __name__ == "__main__":
    main()
