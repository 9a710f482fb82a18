"""Runs to report on: a sound one with all that a report tells, and what may be wrong with one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import barograph
from barograph.query.stored import StoredRun

HOSTILE = "</script><script>alert(1)</script>"
TABLE = "a|b`c*d_e<b>[x](y)"


def start(folder: Path, name: str, **options: Any) -> Any:
    given: dict[str, Any] = {"project": "reported", "verbosity": -2, "git": False, "machine": False, "doctor": False}
    return barograph.init(dir=folder, name=name, **(given | options))


def stored(folder: Path, name: str) -> StoredRun:
    return next(run for run in barograph.runs(folder) if run.name == name)


def sound(folder: Path, name: str = "sound", steps: int = 400, lr: float = 1e-3, **options: Any) -> StoredRun:
    """A run that learns, with evaluations, checkpoints, samples and statistics of layers."""
    run = start(folder, name, config={"max_steps": steps, "optimizer": {"lr": lr}, "seed": 3}, **options)
    run.log_dataset({"files": 10, "tokens": 1_000_000, "seed": 3})
    run.log_sample(0, "Once xx", "Once")
    for step in range(1, steps + 1):
        noise = math.sin(step * 12.9898) * 0.02
        loss = 2 + 4 * math.exp(-step / 60) + noise
        rate = lr * min(step / 20, 0.5 + 0.5 * math.cos(math.pi * step / steps))
        run.log_step(step, step / steps, 4096, 50.0 + noise, 1 + math.exp(-step / 30) + abs(noise), loss, rate)
        if step % 50 == 0:
            run.log_eval(step, step / steps, 2048, 20.0, loss + 0.05)
        if step % 20 == 0:
            run.log({f"gradients/blocks.{at}.w/norm": 0.1 * (at + 1) + abs(noise) for at in range(4)}, step=step)
        if step % 200 == 0:
            run.save_checkpoint(folder / f"model_{step:06d}.pt", step=step, val_loss=loss + 0.05)
    run.log_sample(steps, "Once upon a time", "Once")
    run.finish()
    return stored(folder, name)


def spiked(folder: Path, steps: int = 30_000, at: int = 12_345) -> StoredRun:
    """One value out of many that no thinning may lose, and one that is not finite."""
    run = start(folder, "spiked")
    for step in range(steps):
        loss = 77.25 if step == at else math.nan if step == at + 5_000 else 2 + math.sin(step) * 0.01
        run.log({"train/loss": loss}, step=step)
    run.finish()
    return stored(folder, "spiked")


def broken(folder: Path) -> StoredRun:
    """Learns, then leaves the range of numbers."""
    run = start(folder, "broken", config={"max_steps": 300})
    for step in range(300):
        loss = 2 + 3 * math.exp(-step / 40) + 0.01 * math.sin(step * 7.1) if step < 150 else math.nan
        run.log_step(step, 0.0, 100, 10.0, math.nan if step >= 149 else 1.0 + 0.01 * math.sin(step), loss, 1e-3)
    run.finish()
    return stored(folder, "broken")


def hostile(folder: Path) -> StoredRun:
    """Whatever people may write holds markup and terminal codes."""
    run = start(
        folder, HOSTILE, project="p", config={HOSTILE: HOSTILE, TABLE: "\x1b[31m"}, notes=HOSTILE, tags=[HOSTILE]
    )
    for step in range(60):
        run.log({"train/loss": 2 - step / 100, HOSTILE: step % 7, TABLE: step % 5}, step=step)
        run.log({f"gradients/{HOSTILE}{at}/norm": at + 1.0 for at in range(3)}, step=step)
    run.log_sample(0, HOSTILE + "```\n# no heading", HOSTILE)
    run.finish()
    return stored(folder, HOSTILE)
