"""SQL over many small runs: the mean of one metric over 1,000 of them.

    python benchmarks/sql.py [--runs N] [--keep DIR]

Ten runs are really trained (200 steps, 3 series, an evaluation each 50 steps) and copied under other ids, which
takes some seconds once; they are kept in DIR for the next time. "first" is a process of its own from its start to
the printed answer; the other lines are medians of several in one process that has asked before. "cpu" is the
processor time of all threads, which on a machine with other work says more than the clock. "whole" leaves nothing
out: the same query without pushing its conditions down to the readers. "series" asks each run for its series in
Python instead. All have to give the same mean.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

import barograph
from barograph.core.manifest import FILE
from barograph.query import catalog
from barograph.query import sql as asked
from barograph.query.pushdown import EVERYTHING

MEAN = "select avg(value), count(*), count(distinct run) from points where name = 'train/loss'"
QUERIES = {
    "mean of one metric": MEAN,
    "last losses": "select count(loss), avg(loss) from runs",
    "by a key of the configuration": "select c.number, avg(p.value) from points p join configs c using (project, run) "
    "where p.name = 'train/loss' and c.key = 'lr' group by 1",
    "configurations": "select key, count(*) from configs group by 1",
}


def make(folder: Path, number: int) -> None:
    """The runs, unless they are there already."""
    originals = folder.parent / f"{folder.name}-originals"
    quiet: dict[str, Any] = {"verbosity": -2, "git": False, "doctor": False, "machine": False, "watchdog": False}
    rng = numpy.random.default_rng(1)
    for which in range(10):
        if (originals / "sweep" / f"o{which}").exists():
            continue
        run = barograph.init(
            project="sweep",
            id=f"o{which}",
            dir=str(originals),
            config={"lr": 10.0 ** -(which % 5), "seed": which},
            **quiet,
        )
        for step in range(200):
            loss = 3 * math.exp(-step / 60) + rng.normal(0, 0.05)
            run.log({"train/loss": loss, "train/lr": 1e-3, "train/norm": abs(rng.normal(1, 0.2))}, step=step)
            if step % 50 == 49:
                run.log_eval(step, 0.0, 1000, 5.0, loss)
        run.finish()
    for at in range(number):
        source, copy = originals / "sweep" / f"o{at % 10}", folder / "sweep" / f"r{at:05d}"
        if not (copy / FILE).exists():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy)
            about = json.loads((source / FILE).read_text()) | {"id": copy.name, "name": copy.name}
            (copy / FILE).write_text(json.dumps(about))


def median(work: Callable[[], Any], times: int = 5) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    taken = []
    for _ in range(times):
        clock, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - clock, time.process_time() - cpu))
    return statistics.median(one for one, _ in taken), statistics.median(one for _, one in taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "barograph-benchmark-sql")
    options = parser.parse_args()
    folder = options.keep / f"runs-{options.runs}"
    make(folder, options.runs)
    print(f"{options.runs:,} runs; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
    print(f"{'':<34} {'clock':>9} {'cpu':>9}")

    def line(name: str, taken: tuple[float, float]) -> None:
        print(f"{name:<34} {taken[0]:>7.2f} s {taken[1]:>7.2f} s", flush=True)

    code = f"from barograph.views.tables.sql import run_sql; run_sql({MEAN!r}, dir={str(folder)!r})"
    before = os.times()
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    line("mean of one metric, first", (time.perf_counter() - began, cpu))
    for name, query in QUERIES.items():
        line(name, median(lambda query=query: asked.sql(query, folder)))  # type: ignore[misc]
    (row,) = asked.sql(MEAN, folder).to_pylist()
    mean, count, runs = row.values()

    real = asked.wanted
    asked.wanted = lambda *given: EVERYTHING  # type: ignore[assignment]
    line("mean of one metric, whole", median(lambda: asked.sql(MEAN, folder), 1))
    (whole,) = asked.sql(MEAN, folder).to_pylist()
    asked.wanted = real

    found: list[Any] = []
    line("mean of one metric, series", median(lambda: found.append(
        numpy.concatenate([run.series("train/loss").value for run in catalog.runs(folder)])), 1))  # fmt: skip
    assert runs == options.runs and count == len(found[-1]) and tuple(whole.values())[1:] == (count, runs)
    assert math.isclose(mean, float(found[-1].mean()), rel_tol=1e-9) and math.isclose(mean, next(iter(whole.values())))
    print(f"\nmean {mean:.9f} of {count:,} points of {runs:,} runs, three ways the same")


if __name__ == "__main__":
    main()
