"""What watching a small model costs: processor time of a step with `run.watch` at its defaults, over `run.log` alone.

python benchmarks/watch.py [--pairs N] [--steps N] [--width N]

A pair is two trainings of the same small model in one process, one that logs and one that is watched as well, from its
first step on. They take their steps in turns, in random order, so that what else the machine does falls on both. What a
watch may cost is a share of the time between two of its steps, and that is here a step of each training: the shares are
of both. Counted is processor time: of the training's thread, and of the whole process (the thread that writes is in
there). Printed are medians over the pairs with the quartiles, by parts of the training; beside them what the watch's
own account says.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch

import barograph

PARTS = ((0, 5), (5, 20), (20, 60), (60, 1000), (1000, 10**9))
Times = tuple[float, float]  # seconds of the training's thread and of the process


class Model(torch.nn.Module):
    """A small language model without positions. whole: its layers are one part of it; else each by itself. A watch
    follows other networks that are made as its own is, or as a part of it: what is not watched is made otherwise."""

    def __init__(self, width: int, whole: bool):
        super().__init__()
        layers = [torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True) for _ in range(4)]
        self.layers: Any = torch.nn.Sequential(*layers) if whole else torch.nn.ModuleList(layers)
        first, last = torch.nn.Embedding(256, width), torch.nn.Linear(width, 256)
        self.first, self.last = (first, last) if whole else (last, first)
        self.whole = whole

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        first, last = (self.first, self.last) if self.whole else (self.last, self.first)
        carried = first(tokens)
        for layer in [self.layers] if self.whole else self.layers:
            carried = layer(carried)
        logits: torch.Tensor = last(carried)
        return logits


def training(watched: bool, folder: Path, width: int) -> Generator[Times, bool | None]:
    """Each step's processor times; ends its run when it is sent True."""
    torch.manual_seed(1)
    model = Model(width, watched)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    data = torch.randint(0, 256, (8, 65))
    quiet: dict[str, Any] = {"console": "none", "git": False, "machine": False, "watchdog": False, "sidecar": False}
    with barograph.init(project="bench", id="watched" if watched else "plain", dir=str(folder), **quiet) as run:
        if watched:
            run.watch(model, optimizer)
        for step in itertools.count():
            thread, process = time.thread_time(), time.process_time()
            loss = torch.nn.functional.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            run.log({"train/loss": loss.item(), "train/lr": 1e-3}, step=step)
            if (yield time.thread_time() - thread, time.process_time() - process):
                break


def pair(folder: Path, steps: int, width: int) -> list[tuple[Times, Times, float]]:
    """Of each step: times of the plain training, times of the watched one, seconds that the watch says it took."""
    trainings = training(False, folder, width), training(True, folder, width)
    found: list[tuple[Times, Times]] = []
    for _ in range(steps):
        order = (0, 1) if random.random() < 0.5 else (1, 0)
        taken = {each: next(trainings[each]) for each in order}
        found.append((taken[0], taken[1]))
    for each in trainings:
        with contextlib.suppress(StopIteration):
            each.send(True)
    own = barograph.StoredRun(folder / "bench" / "watched").series("model/watch_ms")
    said = dict(zip(own.step.tolist(), own.value.tolist(), strict=True))
    return [(*times, said.get(step, 0.0) / 1e3) for step, times in enumerate(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=128)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    shares: dict[tuple[int, int], list[tuple[float, ...]]] = {part: [] for part in PARTS if part[0] < chosen.steps}
    with tempfile.TemporaryDirectory() as folder:
        pair(Path(folder, "first"), 30, chosen.width)
        for number in range(chosen.pairs):
            rows = pair(Path(folder, str(number)), chosen.steps, chosen.width)
            for part in shares:
                some = rows[slice(*part)]
                both = sum(plain[0] + watched[0] for plain, watched, _ in some)
                more = [sum(watched[at] - plain[at] for plain, watched, _ in some) / both for at in (0, 1)]
                step = statistics.median(plain[0] for plain, _, _ in some)
                shares[part].append((1e3 * step, *more, sum(own for *_, own in some) / both))
    print(f"{'steps':>10} {'step ms':>9} {'thread':>8} {'quartiles':>15} {'process':>8} {'quartiles':>15} {'own':>6}")
    for (first, last), each in shares.items():
        line = f"{first:>4} to {min(last, chosen.steps) - 1:>3} {statistics.median(row[0] for row in each):9.1f}"
        for at in (1, 2):
            low, middle, high = statistics.quantiles([row[at] for row in each], n=4)
            line += f" {middle:+8.1%} {low:+7.1%} {high:+7.1%}"
        print(f"{line} {statistics.median(row[3] for row in each):6.1%}")


if __name__ == "__main__":
    main()
