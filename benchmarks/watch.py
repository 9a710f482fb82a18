"""What watching a small model costs: processor time of a step with `run.watch` at its defaults, over `run.log` alone.

python benchmarks/watch.py [--pairs N] [--steps N] [--width N]
python benchmarks/watch.py --device cuda [--layers N] [--batch N] [--tokens N] [--compile] …

A pair is two trainings of the same small model in one process, one that logs and one that is watched as well, from its
first step on. They take their steps in turns, in random order, so that what else the machine does falls on both. What a
watch may cost is a share of the time between two of its steps, and that is here a step of each training: the shares are
of both. Counted is processor time: of the training's thread, and of the whole process (the thread that writes is in
there). Printed are medians over the pairs with the quartiles, by parts of the training; beside them what the watch's
own account says.

On a GPU the model has GPT-2's shapes (`--width 768`: 124M parameters) and trains in bf16 autocast with a fused AdamW;
counted are the time from one synchronisation to the next, and how long the program takes to queue a step's work.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from monitor import GPT
from torch.nn import functional

import barograph

PARTS = ((0, 5), (5, 20), (20, 60), (60, 1000), (1000, 10**9))
Times = tuple[
    float, float
]  # seconds of the training's thread and of the process; on a GPU of the step and its queueing
COLUMNS = {"cpu": ("thread", "process"), "cuda": ("step", "queued")}


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


def on_cpu(model: Any, optimizer: Any, chosen: argparse.Namespace) -> Generator[tuple[float, Times], None, None]:
    """Each step's loss and processor times."""
    data = torch.randint(0, 256, (8, 65))
    while True:
        thread, process = time.thread_time(), time.process_time()
        loss = functional.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        yield value, (thread, process)


def on_gpu(model: Any, optimizer: Any, chosen: argparse.Namespace) -> Generator[tuple[float, Times], None, None]:
    """Each step's loss, when it began, and how long it took to queue its work."""
    data = torch.randint(0, 256, (chosen.batch, chosen.tokens + 1), device="cuda")
    called = torch.compile(model) if chosen.compile else model
    while True:
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            output = called(data[:, :-1])
            loss = functional.cross_entropy(output.flatten(0, 1).float(), data[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        queued = time.perf_counter() - began
        yield loss.item(), (began, queued)


def training(watched: bool, folder: Path, chosen: argparse.Namespace) -> Generator[Times, bool | None]:
    """Each step's times; ends its run when it is sent True."""
    torch.manual_seed(1)
    gpu = chosen.device == "cuda"
    model = GPT(chosen.width, chosen.layers, 50304).cuda() if gpu else Model(chosen.width, watched)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4 if gpu else 1e-3, fused=gpu)
    quiet: dict[str, Any] = {"console": "none", "git": False, "machine": False, "watchdog": False, "sidecar": False}
    with barograph.init(project="bench", id="watched" if watched else "plain", dir=str(folder), **quiet) as run:
        if watched:
            run.watch(model, optimizer)
        steps = (on_gpu if gpu else on_cpu)(model, optimizer, chosen)
        for step, (loss, (first, second)) in enumerate(steps):
            run.log({"train/loss": loss, "train/lr": 1e-3}, step=step)
            if gpu:
                torch.cuda.synchronize()
                times = time.perf_counter() - first, second
            else:
                times = time.thread_time() - first, time.process_time() - second
            if (yield times):
                break


def pair(folder: Path, steps: int, chosen: argparse.Namespace) -> list[tuple[Times, Times, float]]:
    """Of each step: times of the plain training, times of the watched one, seconds that the watch says it took."""
    trainings = training(False, folder, chosen), training(True, folder, chosen)
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for name, value in (("--layers", 12), ("--batch", 8), ("--tokens", 1024)):
        parser.add_argument(name, type=int, default=value, help="on a GPU")
    parser.add_argument("--compile", action="store_true", help="on a GPU")
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here; leave --device out to measure on the CPU")
    torch.set_num_threads(1)
    shares: dict[tuple[int, int], list[tuple[float, ...]]] = {part: [] for part in PARTS if part[0] < chosen.steps}
    with tempfile.TemporaryDirectory() as folder:
        pair(Path(folder, "first"), 30, chosen)
        for number in range(chosen.pairs):
            rows = pair(Path(folder, str(number)), chosen.steps, chosen)
            for part in shares:
                some = rows[slice(*part)]
                both = sum(plain[0] + watched[0] for plain, watched, _ in some)
                more = [sum(watched[at] - plain[at] for plain, watched, _ in some) / both for at in (0, 1)]
                step = statistics.median(plain[0] for plain, _, _ in some)
                shares[part].append((1e3 * step, *more, sum(own for *_, own in some) / both))
    one, other = COLUMNS[chosen.device]
    print(f"{'steps':>10} {'step ms':>9} {one:>8} {'quartiles':>15} {other:>8} {'quartiles':>15} {'own':>6}")
    for (first, last), each in shares.items():
        line = f"{first:>4} to {min(last, chosen.steps) - 1:>3} {statistics.median(row[0] for row in each):9.1f}"
        for at in (1, 2):
            low, middle, high = statistics.quantiles([row[at] for row in each], n=4)
            line += f" {middle:+8.1%} {low:+7.1%} {high:+7.1%}"
        print(f"{line} {statistics.median(row[3] for row in each):6.1%}")


if __name__ == "__main__":
    main()
