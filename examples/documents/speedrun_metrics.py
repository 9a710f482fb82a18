"""Everything in speedrun-mup's "W&B Metrics and Performance Impact Analysis": a script to run in a folder.

In:   a folder to work in.
Out:  runs by the analysis's classes with its three patterns of use, its metrics, its muP checks. Each step is checked.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import barograph
from barograph import SimpleLogger, TrainingMonitor, compare_widths, coord_check, transfer_check

QUIET: dict[str, Any] = {"git": False, "machine": False, "doctor": False}
BASE = 32
BASIC = {"step", "training_time_ms", "step_avg_ms", "val_loss"}
MONITORED = {"grad_norm", "param_norm"}
SPECTRAL = {"spectral_norm_max", "spectral_norm_mean", "spectral_norm_std"}


class Net(nn.Module):
    """A muP network whose readout is multiplied behind the matrix."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.hidden = nn.Linear(16, width), nn.Linear(width, width)
        self.relu, self.out = nn.ReLU(), nn.Linear(width, 10, bias=False)
        self.multiplier = BASE / width
        nn.init.normal_(self.out.weight, std=1 / 8)
        nn.init.normal_(self.hidden.weight, std=width**-0.5)

    def forward(self, x: Any) -> Any:
        return self.out(self.relu(self.hidden(torch.relu(self.first(x))))) * self.multiplier


def adam(model: nn.Module, width: int, rate: float = 1e-2) -> Any:
    hidden = [model.hidden.weight]
    others = [one for one in model.parameters() if one is not hidden[0]]
    return torch.optim.Adam([{"params": hidden, "lr": rate * BASE / width}, {"params": others, "lr": rate}])


def batch(seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 16, generator=generator)
    return x, x[:, :10].argmax(-1)


def train(logger: SimpleLogger, monitor: TrainingMonitor, model: nn.Module, steps: int, **more: Any) -> set[str]:
    """A loop with the analysis's calls; the names of all metrics it gave."""
    optimizer, began, names = adam(model, BASE), time.perf_counter(), set[str]()
    for step in range(1, steps + 1):
        x, y = batch(step)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        metrics = monitor.get_all_metrics(step)
        optimizer.step()
        optimizer.zero_grad()
        spent = (time.perf_counter() - began) * 1000
        values = {"step": step, "training_time_ms": spent, "step_avg_ms": spent / step} | metrics
        logger.log(values | ({"val_loss": loss.item()} if step % 5 == 0 else {}) | more)
        names |= values.keys() | ({"val_loss"} if step >= 5 else set())
    monitor.close()
    return names


def patterns(folder: Path) -> None:
    """Daily training, research, muP validation, as the analysis recommends them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        torch.manual_seed(0)
        model = Net(BASE)
        config = {"mup": True, "width": BASE, "base_width": BASE}
        logger = SimpleLogger(use_wandb=True, project_name="speedrun-mup", config=config, dir=str(folder), **QUIET)
        assert re.fullmatch(r"speedrun_\d{8}_\d{6}_mup_w32_base32", logger.experiment_name), logger.experiment_name
        monitor = TrainingMonitor(
            model, monitor_interval=100, enable_spectral_norms=False, enable_activation_stats=False
        )
        assert train(logger, monitor, model, 10) >= BASIC | MONITORED
        logger.log_step(1000, 1750, 180420.0, 3.28471)
        logger.log_final_stats(39000, 40000, 315.2)
        logger.save_config(config)
        logger.close()
        research = SimpleLogger(project_name="speedrun-mup-research", dir=str(folder), **QUIET)
        monitor = TrainingMonitor(model, monitor_interval=10, enable_spectral_norms=True, enable_activation_stats=True)
        names = train(research, monitor, model, 20)
        research.close()
    activations = {f"relu_{name}" for name in ("mean", "std", "max", "min", "l2_norm")}
    assert names >= MONITORED | SPECTRAL | activations, names
    assert all(not module._forward_hooks for module in model.modules()), "clean up: no hook stays"
    lines = shown.getvalue().splitlines()
    assert "step:1000/1750 val_loss:3.2847 train_time:180420.0ms step_avg:180.42ms" in lines
    assert sum("val_loss:" in line for line in lines) >= 7
    stored = {run.project: run for run in barograph.runs(folder)}
    assert len(stored["speedrun-mup"].series("grad_norm")) == 10 and stored["speedrun-mup"].config["width"] == BASE
    assert len(stored["speedrun-mup-research"].series("spectral_norm_max")) == 2


def validation(folder: Path) -> None:
    """muP: coordinates, transfer of the rate, widths side by side."""
    widths = [32, 64, 128, 256]
    check = coord_check(Net, widths, batches=[batch(seed) for seed in range(5)], optimizer=adam, steps=3, seeds=3)
    assert check.passed, check.sentence()
    results = []
    for width in widths[:3]:
        for rate in (0.0025, 0.01, 0.04):
            torch.manual_seed(0)
            model = Net(width)
            optimizer = adam(model, width, rate)
            about: dict[str, Any] = {
                "name": f"w{width}-{rate}",
                "config": {"width": width},
                "console": "none",
                "sidecar": False,
            }
            with barograph.init(project="speedrun-mup-coord-check", dir=folder, **QUIET, **about) as run:
                for step in range(1, 16):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(batch(step)[0]), batch(step)[1])
                    loss.backward()
                    optimizer.step()
                    run.log({"train/loss": loss.item()}, step=step)
            results.append((width, rate, loss.item()))
    transfer = transfer_check(results)
    assert transfer.verdict in ("stays", "unclear") and "inf" not in transfer.text()
    rows = compare_widths(barograph.runs(folder, project="speedrun-mup-coord-check"))
    assert [row["width"] for row in rows] == sorted(width for width, _, _ in results)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.environ.setdefault("WANDB_MODE", "offline")
    torch.set_num_threads(1)
    patterns(folder / "runs")
    validation(folder / "runs")
    print("all of the analysis holds")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve())
