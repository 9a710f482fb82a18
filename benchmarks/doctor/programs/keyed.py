"""Contrast with a slow copy: an encoder of drawn curves asks, and an average of it gives the batch's keys.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss and epoch alone; val_loss and knn_acc after each epoch.

Batch norm, a predictor over the encoder that asks, the gradient with momentum, a cosine.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

EVERY, LONG, KINDS = 20, 24, 16
CONFIG: dict[str, Any] = {
    "channels": 24, "size": 24, "dropout": 0.0, "batch_size": 32, "learning_rate": 0.05, "momentum": 0.9,
    "key_momentum": 0.9, "temperature": 0.15, "schedule": "cosine", "weight_decay": 1e-4,
    "norm_momentum": 0.1, "strength": 1.0,
}  # fmt: skip


def curves(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Curves in the plane, (number, 2, LONG), and which of sixteen figures each one is."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (number,), generator=dice)
    time = torch.arange(LONG) * 6.283 / LONG + 6.283 * torch.rand(number, 1, generator=dice)
    across, down = (1 + kinds % 4)[:, None], (1 + kinds // 4)[:, None]
    bend = torch.rand(number, 1, generator=dice)
    drawn = torch.stack([torch.cos(across * time), torch.sin(down * time + 1.5 * bend)], 1)
    size = 0.6 + 0.8 * torch.rand(number, 2, 1, generator=dice)
    return size * drawn + 0.05 * torch.randn(drawn.shape, generator=dice), kinds


def view(drawn: Tensor, dice: torch.Generator, strength: float) -> Tensor:
    """Begun elsewhere, moved, and with noise."""
    begin = torch.randint(0, LONG, (len(drawn), 1, 1), generator=dice)
    drawn = drawn.gather(2, ((begin + torch.arange(LONG)) % LONG).expand_as(drawn))
    moved = drawn + 0.9 * strength * torch.randn(len(drawn), 2, 1, generator=dice)
    return moved + 0.07 * strength * torch.randn(drawn.shape, generator=dice)


class Encoder(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        channels, momentum = config["channels"], config["norm_momentum"]
        self.body = nn.Sequential(
            nn.Conv1d(2, channels, 5, padding=2, padding_mode="circular"),
            nn.BatchNorm1d(channels, momentum=momentum), nn.ReLU(),
            nn.Conv1d(channels, 2 * channels, 5, 2, padding=2, padding_mode="circular"),
            nn.BatchNorm1d(2 * channels, momentum=momentum), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Dropout(config["dropout"]),
        )  # fmt: skip
        self.head, self.predictor = (
            nn.Sequential(nn.Linear(before, 2 * channels), nn.ReLU(), nn.Linear(2 * channels, config["size"]))
            for before in (2 * channels, config["size"])
        )

    def forward(self, drawn: Tensor, asks: bool = True) -> Tensor:
        said = self.head(self.body(drawn))
        return functional.normalize(self.predictor(said) if asks else said, dim=1)


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble, self.healthy = run, dict(run.config), trouble, healthy
        config, rows = self.config, int(self.config["batch_size"])
        if trouble.name == "stale_statistics":
            config["norm_momentum"] = 0.0
        self.data, self.test = curves(seed + 51, EVERY * rows), curves(515, 256)
        self.loader = DataLoader(TensorDataset(*self.data), rows, shuffle=True, drop_last=True,
                                 generator=torch.Generator().manual_seed(seed))  # fmt: skip
        self.query = Encoder(config)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.query.parameters(), lr=config["learning_rate"],
                                         momentum=config["momentum"], weight_decay=config["weight_decay"])  # fmt: skip
        self.dice = torch.Generator().manual_seed(seed)

        self.losses: list[Tensor] = []

    def loss(self, query: Tensor, key: Tensor) -> Tensor:
        logits, name = query @ key.T / self.config["temperature"], self.trouble.name
        if name == "double_softmax":
            logits = logits.softmax(1)
        targets = torch.arange(len(query))
        if name == "first_key_always":  # as where the right key is put in front of a queue
            targets = torch.zeros_like(targets)
        return functional.cross_entropy(logits, targets, reduction="sum" if name == "loss_summed" else "mean")

    def step(self, step: int, epoch: int, drawn: Tensor) -> None:
        config, trouble = self.config, self.trouble
        one = view(drawn, self.dice, config["strength"])
        other = one if trouble.name == "views_alike" else view(drawn, self.dice, config["strength"])
        with torch.no_grad():
            for mine, theirs in zip(self.key.parameters(), self.query.parameters(), strict=True):
                mine.lerp_(theirs, 1 - config["key_momentum"])
            key = self.key(other, asks=False)
        loss = self.loss(self.query(one), key)
        falling = 0.5 * (1 + math.cos(math.pi * step / config["steps"]))
        rate = config["learning_rate"] * (falling if config["schedule"] == "cosine" else 1.0)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.run.log({"loss": loss.item(), "epoch": epoch}, step=step)
        trouble.telemetry(self.run, step, self.healthy)

    def validate(self, step: int) -> None:
        self.query.eval()
        dice, losses = torch.Generator().manual_seed(3), []
        forgotten = self.trouble.name == "no_grad_missing"
        with torch.set_grad_enabled(forgotten):
            for _ in range(2):
                one, other = (view(self.test[0], dice, self.config["strength"]) for _ in range(2))
                asked, known = self.query(one), self.query(other, asks=False)
                losses += [self.loss(*some) for some in zip(asked.split(32), known.split(32), strict=True)]
        if forgotten:
            self.losses += losses
        with torch.no_grad():
            asked = view(self.test[0], dice, self.config["strength"])
            known, asked = (functional.normalize(self.query.body(some), dim=1) for some in (self.data[0], asked))
            near = self.data[1][(asked @ known.T).topk(7).indices].mode(1).values
        if not self.trouble.on("evaluation_mode_left_on", step):
            self.query.train()
        self.run.log({"val_loss": torch.stack(losses).detach().mean().item(),
                      "knn_acc": (near == self.test[1]).float().mean().item()}, step=step)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Script(run, seed, Trouble(fault, seed), healthy)
    time_by_own_clock(run)
    run.watch(made.query, made.optimizer)
    step = 0
    for epoch in range(-(-steps // EVERY)):
        for drawn, _ in made.loader:
            if step < steps:
                made.step(step, epoch, drawn)
                step += 1
        made.validate(step - 1)
    return run
