"""Small trainings that are watched, and what the doctor says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import barograph
from barograph.doctor import diagnose


def findings_of_training(
    folder: Path, model: torch.nn.Module, loss_of: Callable[[Any, int], Any], steps: int = 40, rate: float = 1e-3,
    **watch: Any,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """{rule: finding}, of stories what stands there too. loss_of: of the model, at a step. watch: of `run.watch`."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer, **watch)
    for step in range(steps):
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    findings = diagnose(barograph.read(str(run.dir))[0])["findings"]
    return {part["rule"]: part for item in findings for part in (*item["evidence"].get("story", ()), item)}
