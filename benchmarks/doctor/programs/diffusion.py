"""A diffusion model of points in eight dimensions: predicts the noise that was added, with an average of its weights.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by plain `run.log`; the evaluation is that of the average.

The loss is that of a regression whose noise never goes away: it ends far above 0.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import loop

EVERY, SIZE, TIMES = 20, 8, 100
CONFIG: dict[str, Any] = {
    "width": 96, "layers": 3, "batch_size": 128, "learning_rate": 3e-3, "warmup_steps": 10, "schedule": "cosine",
    "weight_decay": 0.0, "clip": 1.0, "ema": 0.9,
}  # fmt: skip
KEPT = torch.cos(torch.linspace(0.02, 0.98, TIMES) * math.pi / 2).square()  # share of the signal at each time


def points(dice: torch.Generator, rows: int) -> Tensor:
    """A closed curve in eight dimensions, a little noisy."""
    angle = 2 * math.pi * torch.rand(rows, 1, generator=dice)
    waves = torch.arange(1, SIZE // 2 + 1)
    curve = torch.cat([torch.sin(waves * angle), torch.cos(waves * angle)], 1)
    return 1.4 * curve + 0.05 * torch.randn(rows, SIZE, generator=dice)


class Denoiser(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.enter, self.leave = nn.Linear(SIZE + 16, width), nn.Linear(width, SIZE)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(config["layers"])
        )

    def forward(self, noisy: Tensor, time: Tensor) -> Tensor:
        phase = time[:, None] / TIMES * (2.0 ** torch.arange(8))
        x = self.enter(torch.cat([noisy, phase.sin(), phase.cos()], 1))
        for block in self.blocks:
            x = x + block(x)
        return self.leave(x)


class Denoising(loop.Task):
    every = EVERY
    names = {"loss": "train/loss", "norm": "train/grad_norm", "lr": "train/lr"}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Denoiser(config)
        self.block = self.model.blocks[1]
        self.dice = torch.Generator().manual_seed(seed)
        self.held_out = [self.example(torch.Generator().manual_seed(99), 512)]

    def example(self, dice: torch.Generator, rows: int) -> loop.Batch:
        """Points, times and the noise to be found."""
        return (points(dice, rows), torch.randint(0, TIMES, (rows,), generator=dice),
                torch.randn(rows, SIZE, generator=dice))  # fmt: skip

    def batch(self, rows: int) -> loop.Batch:
        return self.example(self.dice, rows)

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        clean, time, noise = batch
        kept = KEPT[time][:, None]
        added = noise
        if self.trouble.on("labels_shuffled", self.step) and torch.is_grad_enabled():  # the noise added is another
            added = noise.roll(1, 0)
        noisy = kept.sqrt() * clean + (1 - kept).sqrt() * added
        return (model(noisy, time) - noise).square().mean(1)


train = partial(loop.train, Denoising)
