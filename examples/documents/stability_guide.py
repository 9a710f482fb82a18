"""Everything that a training stability guide asks to be monitored, on a small model: recorded, drawn, judged.

    python examples/documents/stability_guide.py [FOLDER]

Per-layer statistics, update ratios and histograms of gradients every few steps; the same in TensorBoard's folders;
alert thresholds by the guide's names; then the doctor's findings and the checklist of a healthy training.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import barograph
from barograph.doctor.command import run_doctor

THRESHOLDS = {
    "loss_spike": 10.0, "grad_norm_max": 100.0, "grad_norm_min": 0.001, "weight_update_max": 0.1,
    "weight_update_min": 1e-7, "throughput_drop": 0.5, "memory_usage": 0.95, "val_loss_increase": 0.1,
}  # fmt: skip


def main(folder: Path) -> barograph.StoredRun:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    run = barograph.init(
        project="guide", id="guide", dir=folder / "runs", config={"lr": 3e-3, "total_steps": 120}, total_steps=120,
        report_to=["tensorboard"], tensorboard_dir=str(folder / "tb"), tensorboard_layout="grouped",
        thresholds=THRESHOLDS, machine=False, git=False, console="none",
    )  # fmt: skip
    run.watch(model, optimizer, gradients=10, updates=10, weights=50, histograms=20)
    target = torch.randn(16, 16) / 4
    for step in range(1, 121):
        with run.step(tokens=64 * 16, step=step) as row:
            x = torch.randn(64, 16)
            loss = ((model(x) - x @ target) ** 2).mean()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            row.set(loss=loss.item(), norm=float(norm), lr=3e-3)
        if step % 40 == 0:
            run.log_eval(step, 0, 1024, 1.0, loss.item())
    run.finish()
    run_doctor([str(run.dir)], checklist=True)
    return barograph.StoredRun(run.dir)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "guide-example"))
