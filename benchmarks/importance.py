"""How often a key is claimed to explain noise, how often one that does explain is found, and how long it takes.

    python benchmarks/importance.py [--trials 2000]

Noise: a search with values drawn at random (3 to 8 keys), a grid with two repeats each, and keys that vary together;
the metric is drawn beside them, normal or with heavy tails. A trial is false where any key is said to explain the
metric, or to vary with one that does.

Coverage: how often the interval of a share holds the share that 40,000 configurations have, for a key of five values
that the metric follows, has its best in the middle of, or does not depend on.

Power: of 15 configurations in a grid, and of 30 drawn at random, with a key that explains half of the variance.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from barograph.analysis.importance import statistics
from barograph.analysis.importance.explain import EXPLAINS, LEVEL, TOGETHER, explain

Config = dict[str, Any]


def search(random: np.random.Generator) -> list[Config]:
    """A search at random."""
    keys = int(random.integers(3, 9))
    return [
        {f"k{at}": float(random.normal()) if at % 2 else str(random.choice(["a", "b", "c"])) for at in range(keys)}
        for _ in range(int(random.integers(8, 60)))
    ]


def grid(random: np.random.Generator) -> list[Config]:
    """A grid with two repeats of each configuration."""
    sizes = int(random.integers(3, 6)), int(random.integers(2, 4))
    return [{"lr": a, "width": b, "seed": seed} for a in range(sizes[0]) for b in range(sizes[1]) for seed in (0, 1)]


def correlated(random: np.random.Generator) -> list[Config]:
    """Keys that vary together."""
    base = random.normal(size=24)
    return [{"a": float(x), "b": float(x + 0.1 * random.normal()), "c": round(float(x))} for x in base]


def claimed(configs: list[Config], values: np.ndarray) -> set[str]:
    found = explain(configs, values.tolist(), "loss")
    return {item.key for item in found.keys if item.outcome in (EXPLAINS, TOGETHER)}


def noise(trials: int) -> None:
    print("| configurations | metric | false claims |\n|---|---|---|")
    designs: list[tuple[str, Callable[[np.random.Generator], list[Config]]]] = [
        ("drawn at random", search), ("a grid, two repeats", grid), ("keys that vary together", correlated)
    ]  # fmt: skip
    for name, design in designs:
        for kind in ("normal", "t, 2 degrees of freedom"):
            false = 0
            for trial in range(trials):
                random = np.random.default_rng(trial)
                configs = design(random)
                many = len(configs)
                values = random.normal(size=many) if kind == "normal" else random.standard_t(2, many)
                false += bool(claimed(configs, values))
            print(f"| {name} | {kind} | {100 * false / trials:.1f}% |", flush=True)


def drawn(many: int, shape: str, size: float, random: np.random.Generator) -> tuple[statistics.Factor, np.ndarray]:
    """A key of five values, and the ranks of a metric that depends on it."""
    values = random.integers(0, 5, many)
    follows = {"follows": values - 2.0, "best in the middle": 2.0 - (values - 2.0) ** 2, "none": 0.0 * values}[shape]
    metric = size * follows / (follows.std() or 1) + random.normal(size=many)
    codes = np.unique(values, return_inverse=True)[1]
    return statistics.Factor(codes, statistics.ranked(values.astype(float))), statistics.ranked(metric)


def coverage(trials: int) -> None:
    print("\n| the metric | its share | configurations | interval holds it | width |\n|---|---|---|---|---|")
    for shape, size in (
        ("follows", 0.5),
        ("follows", 1.0),
        ("follows", 2.5),
        ("best in the middle", 1.0),
        ("none", 0.0),
    ):
        factor, ranks = drawn(40_000, shape, size, np.random.default_rng(7))
        true = max(0.0, float(statistics.shares([factor], ranks[:, None])[0, 0]))
        for many in (9, 15, 30, 60):
            held, width = 0, 0.0
            for trial in range(trials):
                random = np.random.default_rng(trial)
                factor, ranks = drawn(many, shape, size, random)
                low, high = statistics.intervals([factor], ranks, LEVEL, random)[0]
                held += bool(low <= true <= high)
                width += high - low
            cells = (shape, f"{true:.2f}", str(many), f"{100 * held / trials:.1f}%", f"{width / trials:.2f}")
            print(f"| {' | '.join(cells)} |", flush=True)


def power(trials: int) -> None:
    for name, design, key in (("a grid, two repeats", grid, "lr"), ("drawn at random", search, "k1")):
        found = 0
        for trial in range(trials):
            random = np.random.default_rng(10**6 + trial)
            configs = design(random)
            x = np.array([config[key] for config in configs], float)
            values = (x - x.mean()) / (x.std() or 1) + random.normal(size=len(x))
            found += key in claimed(configs, values)
        print(f"{name}: half of the variance is found in {100 * found / trials:.0f}% of {trials} trials")


def speed() -> None:
    random = np.random.default_rng(0)
    configs = [{f"k{at}": float(random.integers(5)) for at in range(20)} for _ in range(5_000)]
    began = time.perf_counter()
    explain(configs, random.normal(size=5_000).tolist(), "loss")
    print(f"5,000 runs with 20 keys: {time.perf_counter() - began:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=2_000)
    trials = parser.parse_args().trials
    coverage(trials)
    noise(trials)
    power(max(1, trials // 10))
    speed()


if __name__ == "__main__":
    main()
