"""A scheduler that holds another optimizer than the one that steps, and what looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

STEPS = 120


def schedule(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("stray", True), ("stray by cosine", True), ("own", False), ("both step", False), ("left behind", False),
        ("constant", False), ("shared groups", False), ("other parameters", False), ("by hand", False),
    ],
)  # fmt: skip
def test_a_scheduler_of_another_optimizer(tmp_path: Path, how: str, told: bool) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(2)
    model, other = (nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5)) for _ in range(2))
    first = torch.optim.AdamW((other if how == "other parameters" else model).parameters(), 1e-3)
    scheduler: Any = torch.optim.lr_scheduler.CosineAnnealingLR(first, STEPS) if "cosine" in how else schedule(first)
    if how == "constant":
        scheduler = torch.optim.lr_scheduler.LambdaLR(first, lambda step: 1.0)
    second = first if how == "own" else torch.optim.AdamW(model.parameters(), 1e-3)
    if how == "shared groups":
        second.param_groups = first.param_groups
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, second)
    for step in range(STEPS):
        x = torch.randn(16, 12)
        loss = functional.cross_entropy(model(x), torch.randint(5, (16,)))
        second.zero_grad()
        loss.backward()
        second.step()
        if how == "both step":
            first.step()
        if how != "left behind":
            scheduler.step()
        if how == "by hand":
            second.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
        run.log({"train/loss": loss.item(), "train/lr": scheduler.get_last_lr()[0]}, step=step)
    run.finish()
    findings = barograph.diagnose(str(run.dir))["findings"]
    told_of = [part for one in findings for part in (*one["evidence"].get("story", ()), one)]
    assert ("schedule_elsewhere" in {one["rule"] for one in told_of}) is told
