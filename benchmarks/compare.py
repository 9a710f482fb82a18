"""How fast runs are compared, and how often equals are called unequal.

    python benchmarks/compare.py [--logs FOLDER] [--cache FOLDER] [--only speed|false|synthetic] [--comparisons 2000]

Speed: two runs of 1,000,000 steps with 20 series each, and 200 runs of 300 steps in two groups of seeds; in processes
of their own, imports among them. Median of three.

False verdicts: A/A comparisons. From a pool of real repeats of one setup two groups are drawn, without putting back,
and compared by the rule of `barograph compare`; any verdict other than "not shown" is false. Pools: the repeats in
FOLDER (a folder of logs of one setup that import), and the demo with 12 seeds, which is trained once and kept in the
cache. What other rules would say of the same draws stands beside it.

Synthetic: A/A comparisons of 3, 5 and 7 seeds a side, final values normal or with heavy tails (t with 5
degrees of freedom); groups of seeds of their own, and pairs of the same seeds, which share a part of their value.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics as medians
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import barograph
from barograph.analysis.compare import curves, statistics
from barograph.analysis.compare.member import ComparedMember
from barograph.importing.read import read

SEEDS, STEPS = 12, 40
SIZES = (3, 4, 5, 6)


def train_demo(cache: Path) -> list[ComparedMember]:
    """The demo's repeats: trained where they are missing."""
    folder = cache / "demo-seeds"
    done = {run.config["plan"]["seed"] for run in barograph.runs(folder) if run.status == "finished"}
    for seed in range(1, SEEDS + 1):
        if seed not in done:
            print(f"  training the demo, seed {seed} of {SEEDS} …", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "barograph", "demo", "--steps", str(STEPS), "--seed", str(seed)]
            subprocess.run([*command, "--quiet", "--dir", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return [ComparedMember(run) for run in barograph.runs(folder) if run.status == "finished"]


def ends(members: list[ComparedMember], metric: str) -> list[float]:
    """Final values by the shared rule of smoothing."""
    found = [curve for one in members if (curve := one.curve(metric, "step")) is not None]
    low, high = max(one.x[0] for one in found), min(one.x[-1] for one in found)
    window = 0.0 if metric.startswith("eval") else curves.window_of(found, low, high)
    return [one.end(high, window) for one in found]


def noises(members: list[ComparedMember], metric: str) -> dict[tuple[int, int], float]:
    """The noise within runs of every pair, as the naive comparison takes it."""
    found = [curve for one in members if (curve := one.curve(metric, "step")) is not None]
    low, high = max(one.x[0] for one in found), min(one.x[-1] for one in found)
    window = curves.window_of(found, low, high)
    made = {}
    for one in range(len(found)):
        for other in range(one):
            scatter = curves.noise(found[one], found[other], low, high, window)
            if scatter is not None:
                made[one, other] = made[other, one] = float(scatter[1][-1])
    return made


def false_verdicts(name: str, values: list[float], comparisons: int, seed: int) -> tuple[int, int]:
    """Draws of two groups from one pool. Prints a row a size; returns false verdicts and comparisons, all sizes."""
    random = np.random.default_rng(seed)
    pool = np.array(values)
    total = false = 0
    for size in SIZES:
        if 2 * size > len(pool):
            continue
        counts = dict.fromkeys(("rule", "better", "t", "permutation", "paired", "one", "ranges"), 0)
        each = comparisons // len(SIZES)
        for _ in range(each):
            drawn = random.permutation(pool)
            a, b = drawn[:size], drawn[size : 2 * size]
            test = statistics.contrast(a, b)
            if test is None:
                continue
            counts["rule"] += test.settled
            counts["better"] += test.settled and test.difference < 0
            counts["t"] += test.p <= 0.05
            counts["permutation"] += test.permutation is not None and test.permutation <= 0.05
            pairs = statistics.contrast(a, b, paired=True)
            counts["paired"] += pairs is not None and pairs.settled
            counts["ranges"] += max(a) < min(b) or max(b) < min(a)
            spread = float(drawn[2:].std(ddof=1)) if len(drawn) > 4 else math.nan
            single = statistics.contrast(drawn[:1], drawn[1:2], repeats=(spread, len(drawn) - 3.0))
            counts["one"] += single is not None and single.settled
        shares = (counts[key] for key in ("rule", "better", "t", "paired", "one", "ranges"))
        print(f"  {name:<28} {size} and {size}  {each:>6,} " + " ".join(f"{_share(one, each):>8}" for one in shares))
        false, total = false + counts["rule"], total + each
    return false, total


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.1f}%"


def measure_false(logs: Path | None, cache: Path, comparisons: int) -> None:
    print("A/A comparisons: verdicts other than 'not shown' at 5%; 'B better' counts one side of them alone.")
    heads = ("verdict", "B better", "Welch", "pairs", "1 and 1", "ranges")
    print(f"  {'pool':<28} {'runs':<8} {'drawn':>6} " + " ".join(f"{head:>8}" for head in heads))
    false = total = 0
    pools: list[tuple[str, list[float]]] = []
    if logs is not None:
        members = [ComparedMember(run) for run in read(logs)]
        pools.append((f"{logs.name[:18]}, {len(members)}", ends(members, "eval/loss")))
    members = train_demo(cache)
    pools += [(f"demo {metric}, {len(members)}", ends(members, metric)) for metric in ("eval/loss", "train/loss")]
    for at, (name, values) in enumerate(pools):
        spread = np.std(values, ddof=1)
        print(f"  {name}: mean {np.mean(values):.4f}, standard deviation between seeds {spread:.4f}")
        one, of = false_verdicts(name, values, comparisons, at)
        false, total = false + one, total + of
    print(f"  all pools: {false:,} of {total:,} = {_share(false, total)}  (target 3 to 7%)")
    made = noises(members, "train/loss")
    values = ends(members, "train/loss")
    naive = sum(abs(values[one] - values[other]) > 1.96 * error for (one, other), error in made.items())
    print(
        f"  demo, one run each, judged by the noise within the runs at 5%: {_share(naive, len(made))} of all pairs "
        "called different, which is why that never decides"
    )


# -- synthetic -----------------------------------------------------------------------------------------


def measure_synthetic(comparisons: int) -> None:
    """A/A draws by the rule of `barograph compare`, groups of own seeds and pairs of the same seeds."""
    print("A/A comparisons of synthetic seeds: verdicts at 5%")
    print(f"  {'spread of seeds':<24} {'seeds':>5} {'drawn':>7} {'own seeds':>10} {'same seeds':>10}")
    random = np.random.default_rng(11)
    for name, draw in (
        ("normal", lambda shape: random.normal(size=shape)),
        ("t, 5 degrees of freedom", lambda shape: random.standard_t(5, size=shape)),
    ):
        for size in (3, 5, 7):
            false = {"own": 0, "same": 0}
            for _ in range(comparisons):
                a, b, seeds = draw((3, size))
                own, same = statistics.contrast(a, b), statistics.contrast(seeds + a, seeds + b, paired=True)
                false["own"] += own is not None and own.settled
                false["same"] += same is not None and same.settled
            shares = " ".join(f"{_share(one, comparisons):>10}" for one in false.values())
            print(f"  {name:<24} {size:>5} {comparisons:>7,} {shares}", flush=True)


# -- speed ---------------------------------------------------------------------------------------------


def make_long(folder: Path, steps: int) -> None:
    random = np.random.default_rng(0)
    names = ["train/loss", "train/norm", "train/lr", "train/step_tokens", *(f"layer/{at}" for at in range(16))]
    for name in ("long_a", "long_b"):
        if (folder / "long" / name / "run_manifest.json").exists():
            continue
        run = barograph.init(
            project="long", name=name, dir=folder, verbosity=-2, git=False, machine=False, doctor=False,
            config={"max_steps": steps, "lr": 1e-3 if name == "long_a" else 2e-3, "seed": 1},
        )  # fmt: skip
        base = 2 + 3 * np.exp(-np.arange(steps) / 2e5)
        noise = random.standard_normal((steps, len(names))) * 0.03
        noise[:, 0] += base
        noise[:, 3] = 4096
        for step in range(steps):
            run.log(dict(zip(names, noise[step].tolist(), strict=True)), step=step)
        run.finish(timeout=300)


def make_many(folder: Path, count: int, steps: int = 300) -> None:
    random = np.random.default_rng(1)
    if len(barograph.runs(folder, project="many")) >= count:
        return
    for at in range(count):
        run = barograph.init(
            project="many", name=f"many_{at:03d}", dir=folder, verbosity=-2, git=False, machine=False, doctor=False,
            config={"model": {"width": 64, "layers": 4}, "optimizer": {"lr": 1e-3 * (1 + at % 2)}, "seed": at // 2},
        )  # fmt: skip
        shift = random.standard_normal() * 0.01
        for step in range(steps):
            loss = 2 + 3 * math.exp(-step / 60) + shift + random.standard_normal() * 0.05
            run.log_step(step, 0.0, 4096, 10.0, 1.0, loss, 1e-3)
        run.finish()


def measure_speed(cache: Path, long: list[str]) -> None:
    if not long:
        make_long(cache / "runs", 1_000_000)
        long = [str(cache / "runs" / "long" / name) for name in ("long_a", "long_b")]
    make_many(cache / "runs", 200)
    many = str(cache / "runs" / "many")
    start = "import time; t = time.perf_counter(); from barograph.views.compare.command import run_compare; "
    for name, call, target in (
        ("two runs of 1,000,000 steps", f"run_compare({long!r})", 2.0),
        ("200 runs, two groups of seeds", f"run_compare([{many!r}], group='lr')", 3.0),
    ):
        took = []
        for _ in range(3):
            code = f"{start}{call}; print('TOOK', time.perf_counter() - t, time.process_time())"
            found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            took.append([float(word) for word in found.stdout.rsplit("TOOK", 1)[1].split()])
        wall, processor = (medians.median(each) for each in zip(*took, strict=True))
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        print(f"  {name:<32} {wall:6.2f} s, {processor:.2f} s of processor  (target {target:g} s; {load})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, help="a folder with logs of one setup's repeats")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "barograph-benchmarks")
    parser.add_argument("--only", choices=("speed", "false", "synthetic"))
    parser.add_argument("--comparisons", type=int, default=2000, help="for each pool (default 2000)")
    parser.add_argument("--long", nargs=2, default=[], metavar="RUN", help="two long runs instead of those made here")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    if options.only in (None, "synthetic"):
        measure_synthetic(options.comparisons)
    if options.only in (None, "false"):
        began = time.perf_counter()
        measure_false(options.logs, options.cache, options.comparisons)
        print(f"  took {time.perf_counter() - began:.1f} s")
    if options.only in (None, "speed"):
        print("Speed, with imports, median of three:")
        measure_speed(options.cache, options.long)


if __name__ == "__main__":
    main()
