"""Small trainings that are watched, for tests of what the watch sees of a loss, and what rules make of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

Loss = Callable[[Any, Any], Any]


def net(width: int, *behind: nn.Module, given: int = 12) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(given, 24), nn.ReLU(), nn.Linear(24, width), *behind)


def train(
    folder: Path,
    model: nn.Module,
    loss_of: Loss,
    batch: Callable[[int], tuple[Any, Any]],
    steps: int = 60,
    config: dict[str, Any] | None = None,
    evaluated: Callable[[int], tuple[Any, Any]] | None = None,
    parts: int = 1,
    scaler: Any = None,
    clip: float | None = None,
) -> tuple[dict[str, str], Any]:
    """Severities by rule, and the stored run, of a small training."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False,
        config=config or {},
    )  # fmt: skip
    run.watch(model, optimizer, gradients=5, scaler=scaler)
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(parts):
            inputs, targets = batch(step)
            loss = loss_of(model(inputs), targets)
            (loss if scaler is None else scaler.scale(loss)).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        run.log({"train/loss": loss.item(), "train/lr": 1e-3}, step=step)
        if step % 5 == 4:
            with torch.no_grad():
                inputs, targets = (evaluated or batch)(step)
                run.log({"eval/loss": loss_of(model(inputs), targets).item()}, step=step)
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    told = [part for item in diagnose(stored)["findings"] for part in (*item["evidence"].get("story", ()), item)]
    return {item["rule"]: item["severity"] for item in told}, stored


def classes(step: int, count: int = 6, rows: int = 32) -> tuple[Any, Any]:
    return torch.randn(rows, 12), torch.randint(0, count, (rows,))
