"""A contrastive model: two encoders with batch norm that bring two views of one thing together, as CLIP does.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by plain `run.log`. The loss of a batch depends on its size: that of a guess is ln(rows).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop

EVERY, HIDDEN, SIZE = 20, 12, 32
CONFIG: dict[str, Any] = {
    "width": 64, "batch_size": 64, "learning_rate": 4e-3, "warmup_steps": 10, "schedule": "cosine", "dropout": 0.05,
    "weight_decay": 0.01, "clip": 1.0, "noise": 0.35, "ema": 0.0,
}  # fmt: skip


def views(dice: torch.Generator, rows: int, noise: float) -> loop.Batch:
    """Two noisy pictures of each of some hidden things; the pictures' makers are the same for all seeds."""
    makers = torch.Generator().manual_seed(21)
    first, second = (torch.randn(HIDDEN, SIZE, generator=makers) / HIDDEN**0.5 for _ in range(2))
    thing = torch.randn(rows, HIDDEN, generator=dice)
    return tuple(
        torch.tanh(thing @ maker) * 2 + 3.0 + noise * torch.randn(rows, SIZE, generator=dice)
        for maker in (first, second)
    )


class Encoder(nn.Sequential):
    def __init__(self, config: dict[str, Any]):
        width = config["width"]
        super().__init__(
            nn.Linear(SIZE, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(config["dropout"]),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 16),
        )  # fmt: skip


class Pair(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        self.first, self.second = Encoder(config), Encoder(config)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Likeness (rows, rows) of each first to each second view."""
        one, other = (functional.normalize(part, dim=-1) for part in (self.first(one), self.second(other)))
        return self.log_scale.exp().clamp(max=100) * one @ other.T


class Matching(loop.Task):
    every = EVERY
    names = {"loss": "loss", "norm": "grad_norm", "lr": "lr"}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Pair(config)
        self.block = self.model.second
        self.dice = torch.Generator().manual_seed(seed)
        dice, rows = torch.Generator().manual_seed(77), int(config["batch_size"])
        self.held_out = [views(dice, rows, config["noise"]) for _ in range(max(1, 256 // rows))]
        if trouble.name == "stale_statistics":
            for module in self.model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.momentum = 0.0  # the momentum of the other convention would be 1

    def batch(self, rows: int) -> loop.Batch:
        return views(self.dice, rows, self.config["noise"])

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        logits = model(*batch)
        right = torch.arange(len(logits))
        if self.trouble.name == "labels_off_by_one" and torch.is_grad_enabled():
            right = (right + 1).clamp(max=len(logits) - 1)
        if self.trouble.name == "double_softmax":
            logits = logits.softmax(-1)
        self.figures["accuracy"] = float((logits.argmax(-1) == right).float().mean())
        return (functional.cross_entropy(logits, right, reduction="none")
                + functional.cross_entropy(logits.T, right, reduction="none")) / 2  # fmt: skip


train = partial(loop.train, Matching)
