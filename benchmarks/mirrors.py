"""Mirrors: how fast they are, what they cost the training, and whether an interrupted one loses or doubles.

    python benchmarks/mirrors.py [throughput] [cost] [kills] [--steps N] [--rounds N] [--kills N] [--json]

throughput: a finished run is sent to W&B (offline) and to TensorBoard files; rows and points a second, the library's
    import and the sender's start left out.
cost: a training of half a millisecond of Python work a step and one record of 10 numbers, as fast as it goes and then
    paced at 20 ms a step; each row a process of its own, rows in turns. "call" is the log call alone.
kills: a sender is killed at a random call of the library, flush or note, again and again, while the run is written,
    resumed and sealed; then the tracker's own files are compared with what was logged, point by point.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import mirror_runs  # noqa: E402

import barograph  # noqa: E402

QUIET: dict[str, Any] = {"verbosity": -2, "git": False, "machine": False, "watchdog": False}
NAMES = [f"train/metric_{number}" for number in range(10)]
TRAINING = """
import json, statistics, sys, time
import barograph
row, pause, steps, folder = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
names = [f"train/metric_{number}" for number in range(10)]
run = barograph.init(project="bench", dir=folder, verbosity=-2, git=False, machine=False, watchdog=False,
                     tensorboard_dir=folder + "/tb")
mirrors = None
if row != "no mirror":
    from dataclasses import replace
    from barograph.trackers.live import open_mirrors
    run.settings = replace(run.settings, report_to=tuple(row.split(" and ")))
    mirrors = open_mirrors(run)
    time.sleep(4)  # a library's import is not the training's every step
calls, whole = [], []
for step in range(steps):
    began = time.perf_counter()
    total = 0
    while time.perf_counter() - began < 0.0005:
        total += sum(range(50))
    asked = time.perf_counter()
    run.log({name: step * 0.5 for name in names}, step)
    now = time.perf_counter()
    calls.append(now - asked)
    whole.append(now - began)
    if pause:
        time.sleep(max(0.0, pause - (now - began)))
run.finish()
arrived = mirrors.close(60) if mirrors else True
print(json.dumps({"call": statistics.median(calls) * 1e6, "step": statistics.median(whole) * 1e6,
                  "mean": statistics.fmean(whole) * 1e6, "arrived": arrived}))
"""


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return kept | mirror_runs.wandb_variables(folder) | {"PYTHONPATH": str(ROOT / "src")}


def throughput(steps: int, rounds: int) -> dict[str, Any]:
    """Rows a second of a sync, by the position files: from the first note to the last row."""
    found: dict[str, list[float]] = {"wandb": [], "tensorboard": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run = barograph.init(project="bench", dir=place, **QUIET)
        for step in range(steps):
            run.log({name: step * 0.5 for name in NAMES}, step)
        run.finish()
        for _ in range(rounds):
            for name, rates in found.items():
                target = folder / str(len(rates))
                target.mkdir(exist_ok=True)
                body = (
                    "import json, sys, time; from pathlib import Path; from barograph.trackers.send import send\n"
                    "times = []\n"
                    "def told(mirror): times.append((time.monotonic(), mirror.new))\n"
                    "done = send(Path(sys.argv[1]), sys.argv[2], {'tensorboard_dir': sys.argv[3]}, told=told)\n"
                    "rows = [one for one in times if one[1] < times[-1][1]]\n"
                    "print(json.dumps([done.new, (times[-1][1] - times[0][1]) / (rows[-1][0] - times[0][0])]))"
                )
                for note in run.dir.glob(f"mirrors/{name}.json"):
                    note.unlink()
                done = subprocess.run(
                    [sys.executable, "-c", body, str(run.dir), name, str(target)],
                    env=environment(target), capture_output=True, text=True, check=True,
                )  # fmt: skip
                new, rate = json.loads(done.stdout)
                assert new >= steps, (new, steps)
                rates.append(rate)
    return {name: {"rows_per_second": statistics.median(rates), "points_per_second": statistics.median(rates) * 10}
            for name, rates in found.items()}  # fmt: skip


def cost(steps: int, rounds: int) -> dict[str, Any]:
    """Medians over rounds of what each row's training measured, and ratios to the one without a mirror."""
    rows = ("no mirror", "tensorboard", "wandb", "tensorboard and wandb")
    found: dict[str, Any] = {}
    for pause in (0.0, 0.02):
        measured: dict[str, list[dict[str, float]]] = {row: [] for row in rows}
        for _ in range(rounds):
            for row in rows:
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
                    count = steps if not pause else max(100, steps // 10)
                    done = subprocess.run(
                        [sys.executable, "-c", TRAINING, row, str(pause), str(count), place],
                        env=environment(Path(place)), capture_output=True, text=True, check=True,
                    )  # fmt: skip
                    measured[row].append(json.loads(done.stdout.splitlines()[-1]))
        kind = f"{pause * 1000:.0f} ms pause" if pause else "as fast as it goes"
        base = {key: statistics.median(one[key] for one in measured["no mirror"]) for key in ("call", "step", "mean")}
        found[kind] = {
            row: {key: statistics.median(one[key] for one in taken) for key in base}
            | {f"{key}_ratio": statistics.median(one[key] for one in taken) / base[key] for key in base}
            | {"arrived": all(one["arrived"] for one in taken)}
            for row, taken in measured.items()
        }
    return found


def kills(times: int, seed: int = 1) -> dict[str, Any]:
    """Points lost and doubled after this many kills, with TensorBoard's reader and out of W&B's files."""
    found: dict[str, Any] = {}
    for name in ("tensorboard", "wandb"):
        generator = random.Random(seed)
        killed = whole = 0
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            folder = Path(place)
            story = mirror_runs.Story(folder, seed)
            options = {"tensorboard_dir": str(folder / "tb")} if name == "tensorboard" else {}
            variables = mirror_runs.wandb_variables(folder)
            attempt = 0
            while killed < times:
                story.train(range(attempt * 40, attempt * 40 + 40))
                story.run.flush()
                attempt += 1
                if attempt % 9 == 0:
                    story.resume()
                done = mirror_runs.send(story.dir, name, options, generator.randint(1, 140), variables)
                assert done.returncode in (0, -9), done.stderr
                killed += done.returncode == -9
                whole += done.returncode == 0
            story.finish()
            done = mirror_runs.send(story.dir, name, options, variables=variables)
            assert "done=True" in done.stdout, done.stderr
            if name == "tensorboard":
                points, histograms = mirror_runs.tensorboard_points(folder / "tb" / story.dir.name)
                expected = mirror_runs.as_single(story.points)
            else:
                points, histograms, _ = mirror_runs.wandb_points(folder)
                expected = story.points
            points = mirror_runs.ours(points)
            found[name] = {
                "kills": killed, "senders that ended by themselves": whole + 1, "points": expected.total(),
                "lost": (expected - points).total() + (story.histograms - histograms).total(),
                "doubled": (points - expected).total() + (histograms - story.histograms).total(),
            }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="*", choices=("throughput", "cost", "kills", []), default=[])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.what or ["throughput", "cost", "kills"]
    found: dict[str, Any] = {}
    began = time.monotonic()
    if "throughput" in chosen:
        found["throughput"] = throughput(options.steps, options.rounds)
    if "cost" in chosen:
        found["cost"] = cost(options.steps, options.rounds)
    if "kills" in chosen:
        found["kills"] = kills(options.kills, options.seed)
    found["seconds"] = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for what, result in found.items():
        print(f"\n{what}" if isinstance(result, dict) else f"\n{what}: {result}")
        for row, numbers in result.items() if isinstance(result, dict) else ():
            if all(isinstance(one, dict) for one in numbers.values()):
                for name, one in numbers.items():
                    print(f"  {row:20} {name:24} {_shown(one)}")
            else:
                print(f"  {row:24} {_shown(numbers)}")


def _shown(numbers: dict[str, Any]) -> str:
    return "  ".join(
        f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in numbers.items()
    )


if __name__ == "__main__":
    main()
