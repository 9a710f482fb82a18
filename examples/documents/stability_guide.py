"""Everything in the "Training Monitoring & Stability Guide": python examples/documents/stability_guide.py [FOLDER]

In:   a folder to work in.
Out:  a small model's training, watched as the guide asks: statistics, update ratios and histograms by layer, on the
      console and in TensorBoard's folders; then trainings with the guide's troubles. Each step is checked.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import barograph
from barograph.doctor.command import run_doctor
from barograph.trackers.sync import sync

QUIET: dict[str, Any] = {"git": False, "machine": False, "sidecar": False}
STEPS = 1000
ALERT_THRESHOLDS = {
    "loss_spike": 10.0, "grad_norm_max": 100.0, "grad_norm_min": 0.001, "weight_update_max": 0.1,
    "weight_update_min": 1e-7, "throughput_drop": 0.5, "memory_usage": 0.95, "val_loss_increase": 0.1,
}  # fmt: skip
LAYER = "blocks.0.weight"
PERCENTILES = ("min", "p25", "p50", "p75", "p95", "p99", "max")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + torch.nn.functional.gelu(block(x))
        return x


def train(folder: Path) -> barograph.StoredRun:
    """The guide's monitoring, at its frequencies."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    run = barograph.init("guide", "healthy", id="healthy", dir=folder / "runs", config={"lr": 3e-3}, verbosity=1,
                         total_steps=STEPS, thresholds=ALERT_THRESHOLDS, **QUIET)  # fmt: skip
    run.watch(model, optimizer, gradients=10, updates=10, weights=100, activations=100, histograms=100)
    target = torch.randn(16, 16) / 4
    for step in range(1, STEPS + 1):
        with run.step(tokens=64 * 16, step=step) as row:
            x = torch.randn(64, 16)
            loss = ((model(x) - x @ target) ** 2).mean()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            row.set(loss=loss.item(), norm=float(norm), lr=schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if step % 200 == 0:
            run.log_eval(step, 0, 1024, 1.0, loss.item())
    run.finish()
    return barograph.StoredRun(run.dir)


def tensorboard(run: barograph.StoredRun, folder: Path) -> None:
    """The guide's folders, tag by tag."""
    os.environ["BAROGRAPH_TENSORBOARD_LAYOUT"] = "grouped"
    assert sync([run.dir], "tensorboard", out=str(folder / "tb")) == 0
    (file,) = (folder / "tb").rglob("events.out.tfevents.*")
    tags = EventAccumulator(str(file.parent)).Reload().Tags()
    scalars = {"Loss/train", "Loss/validation", "Gradients/norm_global", "Optimization/lr", "Optimization/update_ratio",
               "Performance/tokens_per_sec", "Parameters/norm_global", f"Updates/per_layer/{LAYER}/ratio"}  # fmt: skip
    scalars |= {f"Gradients/per_layer/{LAYER}/{name}" for name in ("norm", "mean", "std")}
    assert scalars <= set(tags["scalars"]), scalars - set(tags["scalars"])
    assert f"Gradients_Hist/per_layer/{LAYER}" in tags["tensors"]


def healthy(run: barograph.StoredRun, lines: list[str]) -> None:
    """What the guide shows of a training, in the run and on the console, and its checklist."""
    names = set(run.names())
    assert {f"gradients/{LAYER}/{name}" for name in ("norm", "mean", "std", *PERCENTILES)} <= names
    assert {f"updates/{LAYER}/{name}" for name in ("ratio", "update_norm", "weight_norm")} <= names
    assert {f"weights/{LAYER}/norm", f"activations/{LAYER.removesuffix('.weight')}/rms"} <= names
    assert f"gradients_hist/{LAYER}" in run.histogram_names()
    assert sum(f"{LAYER}: grad_norm=" in line for line in lines) == STEPS // 100
    assert "INFO     Gradient distribution summary (step 1000):" in lines
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        run_doctor([str(run.dir)], checklist=True)
    assert "HEALTHY TRAINING" in shown.getvalue()
    found = barograph.diagnose(run)
    answers = {line["line"]: line["answer"] for line in found["checklist"]}
    assert len(answers) == 8 and answers["Memory usage stable (70-90% VRAM)"] == "not measured"
    assert answers["Loss decreases smoothly (no spikes)"] == answers["No update ratio alerts"] == "yes"
    assert not [finding for finding in found["findings"] if finding["severity"] == "critical"]


Row = Callable[[int], dict[str, Any]]
TROUBLES: dict[str, tuple[Row, str, str]] = {
    # the guide's condition: what is logged at a step; the rule that finds it; its severity
    "loss is NaN": (lambda step: {"loss": float("nan")} if step > 500 else {}, "non_finite_loss", "critical"),
    "loss spikes > 10x": (lambda step: {"loss": 40.0} if step == 500 else {}, "loss_spike", "warning"),
    "loss spikes > 100x": (lambda step: {"loss": 500.0} if step == 500 else {}, "loss_level", "critical"),
    "gradient norm > 1000": (lambda step: {"norm": 1500.0} if step == 500 else {}, "gradient_spike", "info"),
    "gradient norm < 0.001": (lambda step: {"norm": 5e-4}, "gradient_norm_range", "info"),
    "validation increases": (
        lambda step: {"eval": 3.4 + 5 * (1 + step / 30) ** -0.8 + max(0, step - 400) / 500}, "overfitting", "warning"),
    "vanishing gradients": (lambda step: layers(step, "gradients", "norm", 1e-3), "vanishing_gradient", "info"),
    "variance > 100x over depth": (lambda step: layers(step, "gradients", "norm", 1e3), "gradient_spread", "info"),
    "one update ratio > 0.1": (lambda step: layers(step, "updates", "ratio", 200, 1e-3), "update_ratio", "info"),
    "one update ratio < 1e-7": (lambda step: layers(step, "updates", "ratio", 1e-5, 1e-3), "update_ratio", "info"),
    "all update ratios > 0.1": (lambda step: layers(step, "updates", "ratio", 1, 0.2), "update_ratio", "warning"),
    "weight norm spikes > 10x": (
        lambda step: layers(step, "weights", "norm", 120 if step > 500 else 10), "weight_norm_growth", "warning"),
    "memory above 95%": (lambda step: {"memory/mem_utilization": 0.97}, "device_memory", "warning"),
    "throughput drops > 50%": (
        lambda step: {"duration_ms": 1200.0 if step > 500 else 500.0}, "throughput_drop", "info"),
}  # fmt: skip


def layers(step: int, family: str, quantity: str, first: float, others: float = 1.0) -> dict[str, float]:
    """A table of six layers, of which the first differs."""
    if step % 10:
        return {}
    return {f"{family}/blocks.{at}.mlp.weight/{quantity}": others * (first if at == 0 else 1) for at in range(6)}


def troubles(folder: Path) -> None:
    """The guide's red flags, alert thresholds and red alerts, each found by a rule."""
    for trouble, (row, rule, severity) in TROUBLES.items():
        run = barograph.init("guide", trouble, dir=folder / "runs", console="none", **QUIET)
        draw = torch.Generator().manual_seed(7)
        for step in range(1, 1001):
            noise = float(torch.randn(1, generator=draw))
            given = {"loss": 3 + 5 * (1 + step / 30) ** -0.8 + 0.01 * noise, "norm": 0.8 * (1 + 0.1 * abs(noise)),
                     "duration_ms": 500.0, **row(step)}  # fmt: skip
            run.log_step(step, step / 1000, 4096, given.pop("duration_ms"), given.pop("norm"), given.pop("loss"),
                         3e-4 * (1 - step / 1010))  # fmt: skip
            if (validation := given.pop("eval", None)) is not None and step % 50 == 0:
                run.log_eval(step, step / 1000, 100, 0.1, validation)
            if given:
                run.log(given, step=step)
        run.finish()
        found = {(one["rule"], one["severity"]) for one in barograph.diagnose(run)["findings"]}
        assert (rule, severity) in found, (trouble, found)
        (finding,) = [one for one in barograph.diagnose(run)["findings"] if one["rule"] == rule][:1]
        assert finding["causes"] or finding["remedies"] or severity == "info", trouble


def main(folder: Path) -> None:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        run = train(folder)
    healthy(run, shown.getvalue().splitlines())
    tensorboard(run, folder)
    troubles(folder)
    print("all of the guide holds")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve())
