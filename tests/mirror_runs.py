"""Runs to mirror, senders that die at a given call, and what TensorBoard's and W&B's files hold afterwards."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import barograph

SOURCE = str(Path(__file__).parents[1] / "src")
Point = tuple[str, int, str]  # name, step, value as text, so that NaN is NaN

# Dies at the n-th of the calls between which a sender may be interrupted: before it, or behind it.
SENDER = """
import os, sys
from pathlib import Path
from barograph.trackers.backend import LoggingBackend
from barograph.trackers import position, send
folder, name, options, die_at = Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3]), int(sys.argv[4])
left = [die_at]
def dying(call):
    def wrapped(*arguments, **named):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        made = call(*arguments, **named)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        return made
    return wrapped
from barograph.trackers import backends
make = backends.make
def made(*arguments, **named):
    backend = make(*arguments, **named)
    backend.sender.deliver = dying(backend.sender.deliver)
    for hook in ("_flush", "_state"):
        if getattr(backend, hook) is not None:
            setattr(backend, hook, dying(getattr(backend, hook)))
    return backend
if die_at:
    backends.make = made
    position.Position.write = dying(position.Position.write)
print(send.send(folder, name, options))
"""


class Story:
    """A run that is written bit by bit, and every point of it."""

    def __init__(self, folder: Path, seed: int = 1, **options: Any):
        self._random = random.Random(seed)
        self._options = {"verbosity": -2, "git": False, "machine": False, "watchdog": False, "doctor": False} | options
        self.run = barograph.init(
            project="mirrored", name="story", dir=str(folder), config={"lr": 3e-4}, **self._options
        )
        self.dir = self.run.dir
        self.points: Counter[Point] = Counter()
        self.histograms: Counter[tuple[str, int]] = Counter()

    def _told(self, step: int, values: dict[str, float]) -> None:
        self.points.update((name, step, repr(float(value))) for name, value in values.items())

    def train(self, steps: range) -> None:
        run = self.run
        for step in steps:
            loss = (
                self._random.choice([self._random.random(), math.nan, math.inf]) if step % 50 == 7 else 1 / (step + 1)
            )
            run.log_step(step, step / 100, 2000, 10, 0.5, loss, 1e-3)
            self._told(step, {
                "train/epoch": step / 100, "train/step_tokens": 2000, "train/duration_ms": 10, "train/norm": 0.5,
                "train/grad_norm": 0.5, "train/loss": loss, "train/lr": 1e-3, "train/tokens_per_second": 200_000,
            })  # fmt: skip
            run.log({"mine": step, "b/c": loss}, step)
            self._told(step, {"mine": step, "b/c": loss})
            if step % 20 == 0:
                layers = {f"layer{number}": {"norm": self._random.random()} for number in range(4)}
                run.log_layers(step, layers, "gradients")
                self._told(step, {f"gradients/{name}/norm": one["norm"] for name, one in layers.items()})
                run.log_histogram("gradients_hist/layer0", [1, 2, 3], step, edges=[0.0, 1.0, 2.0, step + 3.0])
                self.histograms["gradients_hist/layer0", step] += 1
            if step % 100 == 0:
                # as wide as names that are in the log file too
                run.log_wide({"mine": -step, "only/wide": step}, step)
                self._told(step, {"mine": -step, "only/wide": step})

    def resume(self) -> None:
        """End the process's part and go on in a new segment."""
        self.run.finish()
        self.run = barograph.init(project="mirrored", id=self.dir.name, dir=str(self.dir.parents[1]), resume="must",
                                  **self._options)  # fmt: skip

    def finish(self) -> None:
        self.run.finish()


def send(
    folder: Path, name: str, options: dict[str, str], die_at: int = 0, variables: dict[str, str] | None = None
) -> Any:
    """A sender in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    return subprocess.run(
        [sys.executable, "-c", SENDER, str(folder), name, repr(options), str(die_at)],
        env=environment | {"PYTHONPATH": SOURCE} | (variables or {}),
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def wandb_variables(folder: Path) -> dict[str, str]:
    return {
        "WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_ERROR_REPORTING": "false", "HOME": str(folder),
    }  # fmt: skip


def ours(points: Counter[Point]) -> Counter[Point]:
    """Without what a run records by itself."""
    beside = ("goodput/", "energy/", "host/", "memory/")
    return Counter({point: count for point, count in points.items() if not point[0].startswith(beside)})


def single(value: str) -> str:
    try:
        return repr(struct.unpack("f", struct.pack("f", float(value)))[0])
    except OverflowError:
        return repr(math.copysign(math.inf, float(value)))


def as_single(points: Counter[Point]) -> Counter[Point]:
    """As TensorBoard keeps them."""
    kept: Counter[Point] = Counter()
    for (name, step, value), count in points.items():
        kept[name, step, single(value)] += count
    return kept


def tensorboard_points(folder: Path) -> tuple[Counter[Point], Counter[tuple[str, int]]]:
    """What TensorBoard's own reader gives back."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "tensors"), 0)).Reload()
    tags = found.Tags()
    points = Counter((tag, one.step, repr(one.value)) for tag in tags["scalars"] for one in found.Scalars(tag))
    tensors = Counter((tag, one.step) for tag in tags["tensors"] if tag != "config" for one in found.Tensors(tag))
    return points, tensors


def wandb_points(folder: Path) -> tuple[Counter[Point], Counter[tuple[str, int]], list[str]]:
    """The rows in all of a run's offline files, its histograms, and the ids of the runs in those files."""
    from test_backend_wandb import records

    points: Counter[Point] = Counter()
    histograms: Counter[tuple[str, int]] = Counter()
    ids = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.append(record.run.run_id)
            if kind != "history":
                continue
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                if name.endswith("/_type"):
                    histograms[name.removesuffix("/_type"), row["step"]] += 1
                elif name.startswith(("_", "barograph_")) or name == "step" or name.endswith(("/values", "/bins")):
                    continue
                else:
                    points[name, row["step"], repr(float(value))] += 1
    return points, histograms, ids
