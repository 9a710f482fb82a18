"""Denoising diffusion of small pictures: a convolutional network with group norm, told the time by scale and shift.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: mse, grad_norm each step; val_mse of the averaged weights now and then. Nothing else.

Two hundred times with the cosine schedule, Adam without decay, an average of the weights that warms up.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .parts import all_steps

EVERY, SIDE, TIMES = 20, 8, 200
CONFIG: dict[str, Any] = {
    "channels": 16, "blocks": 1, "batch_size": 24, "learning_rate": 2e-3, "warmup_steps": 20, "ema": 0.9,
    "accumulation": 1, "predict": "noise", "loss": "mse", "snr_limit": 0.0, "examples": 1200, "schedule": "constant",
    "clip": 1.0, "empty": 0.0,
}  # fmt: skip


def blobs(seed: int, number: int, empty: float) -> Tensor:
    """Pictures (number, 1, SIDE, SIDE), bytes from 0 to 255: a bright disc or bar on a dark ground."""
    dice = torch.Generator().manual_seed(seed)
    grid = torch.arange(SIDE).float()
    x, y, size = (torch.rand(number, 1, 1, generator=dice) for _ in range(3))
    across, down = grid - 2 - 4 * x, grid[:, None] - 2 - 4 * y
    round_ = across**2 + down**2 < (1.2 + 1.5 * size) ** 2
    bar = (across.abs() < 1.0).expand(number, SIDE, SIDE) & (down.abs() < 2.5)
    drawn = torch.where(torch.rand(number, 1, 1, generator=dice) < 0.5, round_, bar).float()
    there = (torch.rand(number, 1, 1, generator=dice) >= empty).float()
    return (20 + 210 * drawn * there)[:, None]


class Residual(nn.Module):
    def __init__(self, wide: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, wide), nn.GroupNorm(4, wide)
        self.conv1, self.conv2 = (nn.Conv2d(wide, wide, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(wide, 2 * wide)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(time)[..., None, None].chunk(2, 1)
        h = self.conv1(functional.silu(self.norm1(x)))
        return x + self.conv2(functional.silu(self.norm2(h) * (1 + scale) + shift))


class Net(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        wide = config["channels"]
        self.wide, self.stem = wide, nn.Conv2d(1, wide, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(wide, wide), nn.SiLU(), nn.Linear(wide, wide))
        self.down = nn.ModuleList(Residual(wide) for _ in range(config["blocks"]))
        self.middle = nn.ModuleList(Residual(wide) for _ in range(config["blocks"]))
        self.norm, self.last = nn.GroupNorm(4, wide), nn.Conv2d(2 * wide, 1, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        rates = torch.exp(-math.log(1000) * torch.arange(self.wide // 2) / (self.wide // 2))
        angles = times[:, None] * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.stem(x)
        for block in self.down:
            x = block(x, time)
        small = functional.avg_pool2d(x, 2)
        for block in self.middle:
            small = block(small, time)
        large = functional.interpolate(small, scale_factor=2)
        return self.last(functional.silu(torch.cat([self.norm(x), large], 1)))


class Diffusion:
    def __init__(self, config: dict[str, Any], name: str, seed: int):
        self.config, self.name = config, name
        share = (torch.arange(TIMES + 1) / TIMES + 0.008) / 1.008
        kept = (share * math.pi / 2).cos() ** 2
        self.kept = (kept[1:] / kept[0]).clamp(1e-4, 0.9999)
        self.dice = torch.Generator().manual_seed(seed)

    def prepared(self, drawn: Tensor) -> Tensor:
        if self.name == "bytes_diffused":
            return drawn
        if self.name == "blank_divided":  # each picture by its own mean and deviation
            return (drawn - drawn.mean((2, 3), keepdim=True)) / drawn.std((2, 3), keepdim=True)
        return drawn / 127.5 - 1

    def loss(self, model: nn.Module, drawn: Tensor, dice: torch.Generator) -> Tensor:
        config, x = self.config, self.prepared(drawn)
        times = torch.randint(0, TIMES, (len(x),), generator=dice)
        noise = torch.randn(x.shape, generator=dice)
        kept = self.kept[times][:, None, None, None]
        mixed = kept.sqrt() * x + (1 - kept).sqrt() * noise
        found = model(mixed, times)
        wanted = noise if config["predict"] == "noise" else kept.sqrt() * noise - (1 - kept).sqrt() * x
        if config["loss"] == "huber":
            return functional.smooth_l1_loss(found, wanted, beta=0.3)
        error = functional.mse_loss(found, wanted, reduction="none")
        if config["snr_limit"]:
            ratio = kept / (1 - kept)
            error = error * ratio.clamp(max=config["snr_limit"]) / ratio
        return error.sum((1, 2, 3)).mean() if self.name == "summed_over_pixels" else error.mean()


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        empty = 0.01 if trouble.name == "blank_divided" else config["empty"]
        self.data, self.test = blobs(seed + 51, config["examples"], empty), blobs(515, 160, config["empty"])
        self.model, self.diffusion = Net(config), Diffusion(config, trouble.name, seed)
        self.average = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config["learning_rate"])
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)

    def share(self, step: int) -> float:
        left = 1.0
        if self.config["schedule"] == "linear":
            left = max(0.0, 1 - step / self.config["steps"])
        return min(1.0, (step + 1) / self.config["warmup_steps"]) * left

    def micro_batch(self) -> float:
        config, diffusion = self.config, self.diffusion
        chosen = torch.randint(0, len(self.data), (int(config["batch_size"]),), generator=diffusion.dice)
        loss = diffusion.loss(self.model, self.data[chosen], diffusion.dice)
        if self.trouble.name != "accumulation_undivided":
            loss = loss / config["accumulation"]
        loss.backward()
        return loss.item()

    def step(self, step: int) -> None:
        if self.trouble.clears(step):
            self.optimizer.zero_grad()
        loss = sum(self.micro_batch() for _ in range(self.config["accumulation"]))
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"])
        self.optimizer.step()
        self.scheduler.step()
        self.follow(step)
        self.run.log({"mse": loss, "grad_norm": norm.item()}, step=step)

    @torch.no_grad()
    def follow(self, step: int) -> None:
        decay = self.config["ema"]
        if self.trouble.name != "average_too_slow":
            decay = min(decay, (1 + step) / (10 + step))
        source = self.average if self.trouble.name == "ema_not_updated" else self.model
        for mine, new in zip(self.average.parameters(), source.parameters(), strict=True):
            mine.lerp_(new, 1 - decay)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        dice = torch.Generator().manual_seed(7)
        if self.trouble.on("ema_not_swapped_back", step):
            self.model.load_state_dict(self.average.state_dict())
        parts = self.test.split(80)
        found = sum(float(self.diffusion.loss(self.average, drawn, dice)) for drawn in parts)
        self.run.log({"val_mse": found / len(parts)}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Script(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    all_steps(made, steps, EVERY)
    return run
