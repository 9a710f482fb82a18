"""What the page's server needs: seconds and megabytes.

    python benchmarks/page/server.py [--keep DIR] [--only NAME ...]

Each block is a server process of its own, started for it; times are those of HTTP requests from this process over
loopback, the first ("cold", nothing read before) and the median of 20 more. "cpu" is the server's processor time a
call, of all threads: on a machine with other work it says more than the clock. Memory is the process's resident set,
its part of what it shares with others (Pss). Runs are written by `made_runs.py`, which takes a minute once; they are
kept in DIR.
"""

from __future__ import annotations

import argparse
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

import httpx
import made_runs

SOURCE = Path(__file__).parents[2] / "src"
START = (
    "import sys; from barograph.views.server.command import view; "
    "sys.exit(view(sys.argv[1], port=0, open_browser=False))"
)
REST_SECONDS = 8.0


class Served:
    """A server of one folder, in a process of its own."""

    def __init__(self, folder: Path):
        environment = os.environ | {"PYTHONPATH": str(SOURCE)}
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.http = httpx.Client(base_url=line.split(" at ")[1].split()[0], timeout=120)
        self.get("/api/about")
        self.started = time.perf_counter() - began

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        answer.raise_for_status()
        return answer

    def series(self, wanted: list[dict[str, str]], **options: Any) -> bytes:
        answer = self.http.post("/api/series", json={"series": wanted, "x": "step", "buckets": 400} | options)
        answer.raise_for_status()
        return answer.content

    def megabytes(self) -> float:
        path = Path(f"/proc/{self.process.pid}/smaps_rollup")
        lines = path.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.http.close()
        self.process.terminate()
        self.process.wait(20)


def line(what: str, *figures: str) -> None:
    print(f"{what:<46}" + "".join(f"{figure:>28}" for figure in figures), flush=True)


def timed(served: Served, what: str, work: Callable[[], Any], repeats: int = 20) -> None:
    """A line with the milliseconds of the first call and the median of more, and the server's processor time."""
    took, before = [], served.processor_seconds()
    for at in range(repeats + 1):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
        if at == 0:
            first = served.processor_seconds() - before
    rest = (served.processor_seconds() - before - first) / repeats
    then = statistics.median(took[1:])
    line(
        what,
        f"cold {1000 * took[0]:,.0f} ms (cpu {1000 * first:,.0f})",
        f"then {1000 * then:,.1f} ms (cpu {1000 * rest:,.1f})",
    )


def keys(served: Served) -> list[str]:
    return [row["key"] for row in served.get("/api/runs").json()["runs"]]


def long(root: Path) -> None:
    served = Served(made_runs.one_long(root))
    key = next(path for path in (root / "long" / "p").iterdir()).name
    one = [{"run": f"p/{key}", "name": "train/loss"}]
    line("server started, first answer", f"{1000 * served.started:,.0f} ms")
    timed(served, "1,000,000 points in 400 buckets", lambda: served.series(one))
    zooms = iter(range(1, 10**6))
    timed(served, "  zoom to a range not seen before", lambda: served.series(one, **span(next(zooms))))
    what = "  smoothed, a factor not seen before"
    timed(served, what, lambda: served.series(one, smooth=0.9 + next(zooms) / 1e6))
    timed(served, "  x is time", lambda: served.series(one, x="time"))
    line("  memory", f"{served.megabytes():,.0f} MB")
    served.close()


def span(number: int) -> dict[str, float]:
    return {"from": 100_000 + 37 * number, "to": 700_000 + 91 * number}


def hundred(root: Path) -> None:
    served = Served(made_runs.many(root))
    runs = keys(served)
    wanted = [{"run": run, "name": f"train/metric_{at}" if at else "train/loss"} for run in runs for at in range(5)]

    def ask() -> None:
        served.series(wanted[:500])

    timed(served, "100 runs, 5 metrics, 100,000 steps: 500 series", ask, 5)
    line("  in bytes", f"{len(served.series(wanted)) / 1e6:,.1f} MB")
    chart = [one for one in wanted if one["name"] == "train/loss"]
    zooms = iter(range(1, 10**6))
    timed(served, "  zoom of one chart of 100 runs", lambda: served.series(chart, **span_short(next(zooms))), 8)
    line("  memory", f"{served.megabytes():,.0f} MB")
    served.close()


def span_short(number: int) -> dict[str, float]:
    return {"from": 10_000 + 37 * number, "to": 70_000 + 91 * number}


def thousand(root: Path) -> None:
    served = Served(made_runs.small(root))
    timed(served, "1,000 runs listed", lambda: served.get("/api/runs"))
    until = time.monotonic() + 60
    while time.monotonic() < until and not all(row["best"] for row in served.get("/api/runs").json()["runs"]):
        time.sleep(0.2)
    line("  memory, all rows filled in", f"{served.megabytes():,.0f} MB")
    runs = keys(served)
    for at in range(0, 1000, 100):
        served.series([{"run": run, "name": "train/loss"} for run in runs[at : at + 100]])
    line("  memory, every run drawn", f"{served.megabytes():,.0f} MB")
    for run in runs[:200]:
        served.get(f"/api/runs/{run}")
        served.get(f"/api/runs/{run}/names")
    line("  memory, 200 runs opened too", f"{served.megabytes():,.0f} MB")
    with served.http.stream("GET", "/api/live") as events:
        next(events.iter_bytes())
        before, began = served.processor_seconds(), time.monotonic()
        time.sleep(5)
        share = (served.processor_seconds() - before) / (time.monotonic() - began)
    line("  one page listening, nothing going on", f"{100 * share:.1f}% of a core")
    served.close()


def names(root: Path) -> None:
    served = Served(made_runs.wide(root))
    run = keys(served)[0]
    timed(served, "100,000 names: all of them", lambda: served.get(f"/api/runs/{run}/names"), 10)
    timed(served, "  a level of the tree", lambda: served.get(f"/api/runs/{run}/names?tree=weights"))
    timed(served, "  a regular expression", lambda: served.get(f"/api/runs/{run}/names?match=99.*(norm|std)$"))
    evil = "(w+)%2B(e*)*(.*)*x$"
    timed(served, "  one that would hang others", lambda: served.get(f"/api/runs/{run}/names?match={evil}"))
    one = [{"run": run, "name": "weights/layers.77.mlp.weight/norm"}]
    timed(served, "  one of them drawn", lambda: served.series(one))
    line("  memory", f"{served.megabytes():,.0f} MB")
    served.close()


def week(root: Path) -> None:
    """A week of steps, one a second, as fast as they can be logged, beside a page that listens and draws.

    After each day there is a pause, in which the sealing process catches up, as it does at one step a second.
    """
    import barograph

    shutil.rmtree(root / "week", ignore_errors=True)
    run = barograph.init(project="p", id="week", dir=str(root / "week"), **made_runs._QUIET)
    run.log({"train/loss": 1.0}, step=0)
    served = Served(root / "week")
    steps, told = 7 * 86_400, []
    with served.http.stream("GET", "/api/live") as events:
        next(events.iter_bytes())
        for step in range(1, steps + 1):
            run.log({"train/loss": 3.0 - step / steps, "train/norm": 1.0, "train/lr": 1e-3}, step=step)
            if step % 2_000 == 0:
                served.series([{"run": "p/week", "name": name} for name in ("train/loss", "train/norm", "train/lr")])
                served.get("/api/runs")
            if step % (steps // 7) == 0:
                time.sleep(REST_SECONDS)
                told.append(f"{served.megabytes():,.0f}")
    run.finish()
    line("a week on a live run, MB after each day", " ".join(told))
    served.close()


PARTS = {"week": week, "long": long, "hundred": hundred, "thousand": thousand, "names": names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder that keeps the runs for the next time")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        for part in options.only:
            PARTS[part](root)


if __name__ == "__main__":
    main()
