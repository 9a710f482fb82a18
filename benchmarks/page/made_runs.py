"""Runs to measure the page with, written by Barograph itself.

In:   a folder.
Out:  folders of runs in it; what is there already is left as it is.

Runs that only differ in their names share their columns by hard links: what is read is the same number of bytes.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from pathlib import Path

import barograph
from barograph.store.seal import seal


def one_long(root: Path, points: int = 1_000_000) -> Path:
    """One run whose loss has this many points, with a spike of one step in the middle."""
    place = root / ("long" if points == 1_000_000 else f"long_{points}")
    if not (place / "p").exists():
        chance = random.Random(1)
        run = barograph.init(project="p", name="long", dir=str(place), **_QUIET)
        for step in range(points):
            loss = 3.0 * math.exp(-step / points) + chance.gauss(0.0, 0.05) + (9.0 if step == points // 2 else 0.0)
            run.log({"train/loss": loss, "train/norm": 1.0}, step=step)
        run.finish()
        seal(Path(run.dir), final=True, wait=True)  # as it is some seconds after a run's end
    return place


def many(root: Path, runs: int = 100, metrics: int = 6, steps: int = 100_000, settings: int = 2) -> Path:
    """This many runs of this many metrics. settings: keys of each configuration, of which a tenth differ."""
    place = root / (f"many_{runs}_{metrics}_{steps}" + (f"_{settings}" if settings > 2 else ""))
    if not place.exists():
        made = [
            _curves(root / "originals", f"curves_{metrics}_{steps}_{seed}", metrics, steps, seed) for seed in range(2)
        ]
        for number in range(runs):
            _twin(made[number % len(made)], place / "p" / f"run_{number:04d}", number, settings)
    return place


def small(root: Path, runs: int = 1_000) -> Path:
    """This many runs of 200 steps."""
    return many(root, runs, 6, 200)


def wide(root: Path, names: int = 100_000) -> Path:
    """One run with this many names."""
    place = root / f"wide_{names}"
    if not place.exists():
        run = barograph.init(project="p", name="wide", dir=str(place), **_QUIET)
        fields = ("norm", "mean", "std", "min", "max", "zeros", "nan", "inf", "p5", "p95")
        for step in range(3):
            run.log(
                {f"weights/layers.{at // 10}.mlp.weight/{fields[at % 10]}": float(at + step) for at in range(names - 1)}
                | {"train/loss": 1.0},
                step=step,
            )
        run.finish()
    return place


_QUIET = {"console": "none", "machine": False, "doctor": False, "blackbox": False}


def _curves(root: Path, name: str, metrics: int, steps: int, seed: int) -> Path:
    folder = root / name
    if not folder.exists():
        chance = random.Random(seed)
        run = barograph.init(project="p", name=name, dir=str(folder), **_QUIET)
        for step in range(steps):
            noise = chance.gauss(0.0, 0.05)
            rest = {f"train/metric_{at}": math.sin(step / 999.0 + at) + noise for at in range(metrics - 1)}
            run.log({"train/loss": 3.0 * math.exp(-step / steps) + noise, **rest}, step=step)
        run.finish()
    made = next((folder / "p").iterdir())
    seal(made, final=True, wait=True)  # as it is some seconds after a run's end
    return made


def _twin(original: Path, folder: Path, number: int, settings: int) -> None:
    """The same run under another name."""
    more = {
        f"section_{at % 9}.option_{at}": (number * at) % 17 / 8 if at % 10 == 0 else f"value {at}"
        for at in range(2, settings)
    }
    shutil.copytree(original, folder, copy_function=os.link)
    path = folder / "run_manifest.json"
    about = json.loads(path.read_text())
    path.unlink()
    about |= {
        "id": folder.name,
        "name": f"run {number}",
        "config": {"seed": number, "lr": 1e-3 * (1 + number % 7)} | more,
    }
    path.write_text(json.dumps(about))
