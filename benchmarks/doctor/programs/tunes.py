"""Two transposed hearings of one tune are brought together; no label is used.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: nt_xent, lr every second step; val_loss, val_recall (of a slow copy of the encoder) each
      twentieth; memory, where it matters.

Convolutions over notes with batch norm, all 2n hearings against each other, AdamW with one cycle of the rate; one class
that is configured by keywords and holds everything.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from injections import Trouble, time_by_own_clock
from torch import Tensor

EVERY, LONG, NOTES = 20, 20, 36
CONFIG: dict[str, Any] = {
    "channels": 32, "embedding": 16, "temperature": 0.2, "dropout": 0.0, "batch_size": 32, "learning_rate": 8e-3,
    "weight_decay": 1e-3, "slow_decay": 0.8, "bn_momentum": 0.1, "schedule": "one_cycle", "decoupled": False,
    "recalibrate": False, "frozen": "", "tunes": 900, "wrong_notes": 0.05,
}  # fmt: skip


class Tunes(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """A tune is a walk on a scale; a hearing begins somewhere, is higher or lower, and has wrong notes."""

    def __init__(self, seed: int, number: int, wrong: float):
        self.dice, self.wrong = torch.Generator().manual_seed(seed), wrong
        self.walks = torch.randint(-3, 4, (number, LONG), generator=self.dice).cumsum(1).clamp(-9, 9)

    def __len__(self) -> int:
        return len(self.walks)

    def heard(self, walk: Tensor) -> Tensor:
        up = torch.randint(-2, 3, (1,), generator=self.dice)
        odd = torch.randint(-4, 5, walk.shape, generator=self.dice)
        missed = torch.rand(walk.shape, generator=self.dice) < self.wrong
        return (walk + up + torch.where(missed, odd, 0) + 18).clamp(0, NOTES - 1)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.heard(self.walks[index]), self.heard(self.walks[index])


def stage(inside: int, outside: int, momentum: float, rate: float) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(inside, outside, 3, padding=1, bias=False),
                         nn.BatchNorm1d(outside, momentum=momentum), nn.ReLU(), nn.Dropout(rate))  # fmt: skip


class Ear(nn.Module):
    def __init__(self, channels: int, embedding: int, momentum: float, rate: float):
        super().__init__()
        self.notes = nn.Embedding(NOTES, channels)
        self.convs = nn.Sequential(stage(channels, channels, momentum, rate), stage(channels, 2 * channels, momentum,
                                   rate))  # fmt: skip
        self.projector = nn.Sequential(nn.Linear(2 * channels, channels), nn.BatchNorm1d(channels, momentum=momentum),
                                       nn.ReLU(), nn.Linear(channels, embedding))  # fmt: skip

    def forward(self, heard: Tensor) -> Tensor:
        return self.projector(self.convs(self.notes(heard).mT).mean(2))


class PairTrainer:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None, **cfg: Any):
        torch.manual_seed(seed)
        self.run, self.cfg, self.trouble, self.healthy = run, cfg, trouble, healthy
        momentum = 0.0 if trouble.name == "stale_statistics" else cfg["bn_momentum"]
        self.ear = Ear(cfg["channels"], cfg["embedding"], momentum, cfg["dropout"])
        for name, parameter in self.ear.named_parameters():
            parameter.requires_grad_(not (cfg["frozen"] and name.startswith(cfg["frozen"])))
        self.slow = copy.deepcopy(self.ear).requires_grad_(False)
        self.adamw = torch.optim.AdamW([one for one in self.ear.parameters() if one.requires_grad],
                                       cfg["learning_rate"], weight_decay=cfg["weight_decay"])  # fmt: skip
        self.cycle: Any
        if cfg["schedule"] == "constant":
            self.cycle = torch.optim.lr_scheduler.ConstantLR(self.adamw, 0.5, cfg["steps"] + 1)
        else:
            self.cycle = torch.optim.lr_scheduler.OneCycleLR(self.adamw, cfg["learning_rate"],
                                                             total_steps=cfg["steps"] + 1, pct_start=0.1)  # fmt: skip
        dice = torch.Generator().manual_seed(seed)
        self.loader = torch.utils.data.DataLoader(Tunes(seed + 41, cfg["tunes"], cfg["wrong_notes"]), cfg["batch_size"],
                                                  shuffle=True, drop_last=True, generator=dice)  # fmt: skip
        self.held = torch.utils.data.DataLoader(Tunes(414, 256, cfg["wrong_notes"]), cfg["batch_size"])
        self.bank: list[Tensor] = []

    def nt_xent(self, one: Tensor, other: Tensor) -> Tensor:
        """Each of 2n has one to find among 2n - 1."""
        name, n = self.trouble.name, len(one)
        z = F.normalize(torch.cat([one, other]), dim=1)
        sims = z @ z.T
        sims = sims * self.cfg["temperature"] if name == "temperature_multiplied" else sims / self.cfg["temperature"]
        if name != "self_among_others":
            sims = sims - 1e4 * torch.eye(2 * n)
        index = (torch.arange(2 * n) + n) % (2 * n)
        if name == "double_softmax":
            sims = sims.softmax(-1)
        if self.cfg["decoupled"]:
            positive = sims.gather(1, index[:, None])[:, 0]
            apart = sims.scatter(1, index[:, None], -1e4).logsumexp(1)
            return (apart - positive).mean()
        losses = -sims.log_softmax(-1).gather(1, index[:, None])
        return losses.sum() / 2 if name == "loss_summed" else losses.mean()

    @torch.no_grad()
    def follow(self) -> None:
        for mine, theirs in zip(self.slow.parameters(), self.ear.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.cfg["slow_decay"])
        if self.trouble.name != "averaged_without_buffers":
            for mine, theirs in zip(self.slow.buffers(), self.ear.buffers(), strict=True):
                mine.copy_(theirs)

    def recalibrate(self) -> None:
        """Running statistics of the slow copy from some of the training's tunes."""
        self.slow.train()
        with torch.no_grad():
            for number, (one, _) in enumerate(self.loader):
                self.slow(one)
                if number == 8:
                    break

    def evaluate(self, step: int) -> None:
        if self.cfg["recalibrate"]:
            self.recalibrate()
        name = self.trouble.name
        judged = self.ear if name == "no_grad_missing" or self.healthy == "memory_steady" else self.slow
        judged.train(self.trouble.on("training_mode_in_evaluation", step))
        losses, found = [], []
        with torch.set_grad_enabled(name == "no_grad_missing"):
            for one, other in self.held:
                a, b = judged(one), judged(other)
                self.bank.append(a if name == "no_grad_missing" else a.detach())
                losses.append(self.nt_xent(a, b).item())
                near = (F.normalize(a, dim=1) @ F.normalize(b, dim=1).T).argmax(1)
                found.append((near == torch.arange(len(one))).float().mean().item())
        self.ear.train(not self.trouble.on("evaluation_mode_left_on", step))
        self.run.log({"val_loss": sum(losses) / len(losses), "val_recall": sum(found) / len(found)}, step=step)

    def fit(self) -> Any:
        time_by_own_clock(self.run)
        self.run.watch(self.ear, self.adamw)
        step = 0
        while step < self.cfg["steps"]:
            for one, other in self.loader:
                if step == self.cfg["steps"]:
                    break
                self.adamw.zero_grad()
                loss = self.nt_xent(self.ear(one), self.ear(other))
                loss.backward()
                rate = self.adamw.param_groups[0]["lr"]
                self.adamw.step()
                self.cycle.step()
                self.follow()
                if step % 2 == 0:
                    self.run.log({"nt_xent": loss.item(), "lr": rate}, step=step)
                self.trouble.telemetry(self.run, step, self.healthy)
                step += 1
                if step % EVERY == 0:
                    self.evaluate(step - 1)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return PairTrainer(run, seed, Trouble(fault, seed), healthy, **dict(run.config)).fit()
