"""What watching a small model costs: processor time of a step with `run.watch` at its defaults, over `run.log` alone.

python benchmarks/watch.py [--pairs N] [--steps N] [--width N]

A pair is two trainings of the same small model, of so many steps each, in turns in one process: one that logs and one
that is watched as well, from its first step on. Counted is processor time, not the clock's: of the training's thread,
and of the whole process (the thread that writes is in there). Printed are medians over the pairs and the quartiles of
the differences, by parts of the training; beside them what the watch's own account says. On a busy machine the medians
of many pairs hold, the quartiles grow.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from typing import Any

import torch

import barograph

PARTS = ((0, 5), (5, 20), (20, 60), (60, 10**9))


def train(watched: bool, folder: str, steps: int, width: int) -> tuple[list[float], list[float], list[float]]:
    """Processor milliseconds of each step: the training's thread, the process, what the watch says of itself."""
    torch.manual_seed(1)
    layers = [torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True) for _ in range(4)]
    model = torch.nn.Sequential(torch.nn.Embedding(256, width), *layers, torch.nn.Linear(width, 256))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = torch.randint(0, 256, (8, 65))
    quiet: dict[str, Any] = {"console": "none", "git": False, "machine": False, "watchdog": False, "sidecar": False}
    run = barograph.init(project="bench", dir=folder, **quiet)
    if watched:
        run.watch(model, optimizer)
    threads, processes = [time.thread_time()], [time.process_time()]
    for step in range(steps):
        loss = torch.nn.functional.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": loss.item(), "train/lr": 1e-3}, step=step)
        threads.append(time.thread_time())
        processes.append(time.process_time())
    run.finish()
    own = barograph.StoredRun(run.dir).series("model/watch_ms") if watched else None
    said = dict(zip(own.step.tolist(), own.value.tolist(), strict=True)) if own is not None else {}
    return _steps(threads), _steps(processes), [said.get(step, 0.0) for step in range(steps)]


def _steps(moments: list[float]) -> list[float]:
    return [1e3 * (after - before) for before, after in itertools.pairwise(moments)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=128)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[tuple[int, int], list[tuple[float, ...]]] = {part: [] for part in PARTS if part[0] < chosen.steps}
    with tempfile.TemporaryDirectory() as folder:
        train(True, folder, 30, chosen.width)
        for pair in range(chosen.pairs):
            order = (False, True) if pair % 2 else (True, False)
            took = {watched: train(watched, folder, chosen.steps, chosen.width) for watched in order}
            for part in found:
                means = [
                    [statistics.fmean(column[slice(*part)]) for column in took[watched]] for watched in (False, True)
                ]
                found[part].append((means[0][0], means[1][0], means[0][1], means[1][1], means[1][2]))
    print(f"{'steps':>10} {'step ms':>9} {'thread':>8} {'quartiles':>17} {'process':>8} {'quartiles':>17} {'own':>7}")
    for (first, last), rows in found.items():
        step = statistics.median(row[0] for row in rows)
        line = f"{first:>4} to {min(last, chosen.steps) - 1:>3} {step:9.1f}"
        for before, after in ((0, 1), (2, 3)):
            low, middle, high = statistics.quantiles([row[after] / row[before] - 1 for row in rows], n=4)
            line += f" {middle:+8.1%} {low:+8.1%} {high:+8.1%}"
        print(f"{line} {statistics.median(row[4] / row[0] for row in rows):+7.1%}")


if __name__ == "__main__":
    main()
