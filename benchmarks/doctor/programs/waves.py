"""Diffusion of sound-like signals: residual convolutions with batch norm say the noise; an average is evaluated.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: noise_mse, lr, grad of each step; val_noise_mse of the averaged weights.

The average is of the weights; running statistics are copied into it. Fifty levels of noise, Adam, own batches.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import all_steps

EVERY, LONG = 20, 32
CONFIG: dict[str, Any] = {
    "channels": 20, "blocks": 3, "levels": 50, "batch_size": 24, "learning_rate": 2e-3, "warmup_steps": 10,
    "schedule": "constant", "ema": 0.9, "clip": 1.0, "accumulation": 1, "examples": 1500, "predict": "noise",
}  # fmt: skip


def signals(seed: int, number: int) -> Tensor:
    """(number, 1, LONG): two tones of a few pitches that fade, of deviation 1."""
    dice = torch.Generator().manual_seed(seed)
    pitch = 0.3 + 0.15 * torch.randint(0, 5, (number, 2, 1), generator=dice)
    phase, loud = 6.3 * torch.rand(number, 2, 1, generator=dice), 0.5 + torch.rand(number, 2, 1, generator=dice)
    time = torch.arange(LONG).float()
    tones = (loud * torch.sin(pitch * time + phase) * torch.exp(-time / 40)).sum(1, keepdim=True)
    return tones / tones.std()


class Block(nn.Module):
    def __init__(self, channels: int, apart: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.level = nn.Linear(16, channels)
        self.one = nn.Conv1d(channels, channels, 5, padding=2 * apart, dilation=apart)
        self.two = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor, level: Tensor | None) -> Tensor:
        y = self.one(nn.functional.silu(self.norm(x)))
        if level is not None:
            y = y + self.level(level)[:, :, None]
        return x + self.two(nn.functional.silu(y))


class Denoiser(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        channels = config["channels"]
        self.name = name
        self.first = nn.Conv1d(1, channels, 5, padding=2)
        self.blocks = nn.ModuleList(Block(channels, 2**number) for number in range(config["blocks"]))
        self.last = nn.Conv1d(channels, 1, 5, padding=2)

    def forward(self, noisy: Tensor, level: Tensor) -> Tensor:
        angle = level[:, None] * 6.3 * 2 ** (torch.arange(8) / 2)
        coded = torch.cat([angle.sin(), angle.cos()], 1)
        x = self.first(3 * noisy)  # as loud as recordings are
        for block in self.blocks:
            x = block(x, None if self.name == "times_unused" else coded)
        return self.last(x)


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        self.data, self.test = signals(seed + 31, config["examples"]), signals(313, 200)
        self.model = Denoiser(config, trouble.name)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.dice = torch.Generator().manual_seed(seed)
        share = torch.arange(1, config["levels"] + 1) / (config["levels"] + 1)
        self.kept = torch.cos(0.5 * math.pi * share) ** 2  # of the signal's power, at each level
        self.fixed = torch.randn(1, 1, LONG, generator=self.dice)
        self.prepare()

    def prepare(self) -> None:
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.config["learning_rate"], betas=(0.9, 0.99))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)

    def share(self, step: int) -> float:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        if step < warmup or self.config["schedule"] == "constant":
            return min(1.0, (step + 1) / warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / (total - warmup))))

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def resume(self, step: int) -> None:
        state = {"model": self.model.state_dict(), "average": self.average.state_dict(),
                 "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.prepare()
        if self.trouble.name != "weights_alone_kept":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.watch()

    def loss(self, model: nn.Module, clean: Tensor, dice: torch.Generator, training: bool) -> Tensor:
        level = torch.randint(0, self.config["levels"], (len(clean),), generator=dice)
        noise = torch.randn(clean.shape, generator=dice)
        if training and self.trouble.name == "noise_drawn_once":
            noise = self.fixed.expand_as(clean)
        power = self.kept[level][:, None, None]
        said = model(power.sqrt() * clean + (1 - power).sqrt() * noise, (level + 1) / self.config["levels"])
        wanted = clean if self.config["predict"] == "clean" else noise
        squares = (wanted - said) ** 2
        return squares.sum() if training and self.trouble.name == "loss_summed" else squares.mean()

    def step(self, step: int) -> None:
        config, parts, total = self.config, self.config["accumulation"], 0.0
        self.optimizer.zero_grad()
        for _ in range(parts):
            chosen = torch.randint(0, len(self.data), (int(config["batch_size"]),), generator=self.dice)
            loss = self.loss(self.model, self.data[chosen], self.dice, training=True)
            if self.trouble.name != "accumulation_undivided":
                loss = loss / parts
            loss.backward()
            total += loss.item()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config["clip"] or math.inf).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.scheduler.step()
        if self.trouble.name != "ema_not_updated":
            self.follow()
        self.run.log({"noise_mse": total, "lr": rate, "grad": norm}, step=step)

    @torch.no_grad()
    def follow(self) -> None:
        for mine, theirs in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mine.mul_(self.config["ema"]).add_(theirs, alpha=1 - self.config["ema"])
        for mine, theirs in zip(self.average.buffers(), self.model.buffers(), strict=True):
            mine.copy_(theirs)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        own = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.average.state_dict())
        self.model.eval()
        loss = self.loss(self.model, self.test, torch.Generator().manual_seed(6), training=False).item()
        self.model.train()
        self.model.load_state_dict(own)
        self.run.log({"val_noise_mse": loss}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Script(run, seed, trouble)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
