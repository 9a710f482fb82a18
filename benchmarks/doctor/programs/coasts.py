"""A diffusion model draws maps of heights along a coast: sea, beach, cliffs.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, norm, lr) and `run.log_eval` each twentieth step, of the average of the weights;
      memory, where it matters.

A small net with a way around, told the time by sines, noise said in the manner of DDPM over a cosine plan; AdamW, a
warm-up and half a cosine by torch's own schedulers; a dataclass of settings and one long `main`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, SIDE, TIMES = 20, 12, 100
CONFIG: dict[str, Any] = {
    "channels": 16, "dropout": 0.0, "batch_size": 16, "gradient_accumulation": 1, "lr": 3e-3, "warmup": 10,
    "schedule": "cosine", "optimizer": "adamw", "max_norm": 1.0, "maps": 3000, "ema": 0.95, "objective": "noise",
    "loss_kind": "l2", "min_snr": 0.0, "draws": 0, "weight_decay": 0.0, "time_freeze": False,
}  # fmt: skip


@dataclass
class Settings:
    channels: int
    dropout: float
    batch_size: int
    gradient_accumulation: int
    lr: float
    warmup: int
    schedule: str
    optimizer: str
    max_norm: float
    maps: int
    ema: float
    objective: str
    loss_kind: str
    min_snr: float
    draws: int
    weight_decay: float
    time_freeze: bool


def survey(seed: int, number: int) -> Tensor:
    """Heights in metres (number, 1, SIDE, SIDE): a line of coast, a slope behind it, hills, the sea below 0."""
    dice = torch.Generator().manual_seed(seed)
    line = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(line, line, indexing="ij")
    turn = 2 * math.pi * torch.rand(number, 1, 1, generator=dice)
    off = 0.6 * (torch.rand(number, 1, 1, generator=dice) - 0.5)
    inland = torch.cos(turn) * x + torch.sin(turn) * y - off
    steep = 20 + 60 * torch.rand(number, 1, 1, generator=dice)
    hill = torch.rand(number, 3, 1, 1, generator=dice)
    top = torch.exp(-((x - 2 * hill[:, 0] + 1).square() + (y - 2 * hill[:, 1] + 1).square()) / 0.1)
    height = steep * inland + 50 * hill[:, 2] * top * (inland > 0)
    return torch.where(inland < 0, 0.5 * height, height)[:, None] + 1.5 * torch.randn(number, 1, SIDE, SIDE,
                                                                                     generator=dice)  # fmt: skip


def plan() -> Tensor:
    """What is left of the map at each time, squared."""
    at = torch.linspace(0, 1, TIMES + 1)
    bar = torch.cos((at + 0.01) / 1.01 * math.pi / 2).square()
    return (bar / bar[0])[1:].clamp(1e-3, 0.999)


class Part(nn.Module):
    def __init__(self, inside: int, outside: int, rate: float, told: bool, timed: bool):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, outside), nn.GroupNorm(4, outside)
        self.time = nn.Linear(32, outside)
        self.way = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()
        self.rate, self.told, self.timed = rate, told, timed

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        y = F.silu(self.norm1(self.conv1(x)))
        if self.timed:
            y = y + self.time(t)[:, :, None, None]
        y = F.dropout(y, self.rate, self.training) if self.told else F.dropout(y, p=self.rate)
        return self.way(x) + F.silu(self.norm2(self.conv2(y)))


class CoastNet(nn.Module):
    def __init__(self, s: Settings, name: str):
        super().__init__()
        c, told, timed = s.channels, name != "dropped_in_every_mode", name != "time_left_out"
        self.time = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
        self.enter = nn.Conv2d(1, c, 3, padding=1)
        self.down, self.middle = Part(c, 2 * c, s.dropout, told, timed), Part(2 * c, 2 * c, s.dropout, told, timed)
        self.up, self.leave = Part(3 * c, c, s.dropout, told, timed), nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angle = t[:, None] / TIMES * 100 ** (torch.arange(16) / 16)
        told = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        first = self.enter(x)
        low = self.middle(self.down(F.avg_pool2d(first, 2), told), told)
        low = F.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.leave(self.up(torch.cat([low, first], 1), told))


def loss_of(net: nn.Module, maps: Tensor, s: Settings, bar: Tensor, dice: torch.Generator, trained: bool,
            name: str) -> Tensor:  # fmt: skip
    t = torch.randint(0, TIMES, (len(maps),), generator=dice)
    noise = torch.randn(maps.shape, generator=dice)
    a = bar[t][:, None, None, None]
    said = net(a.sqrt() * maps + (1 - a).sqrt() * noise, t.float())
    wanted = a.sqrt() * noise - (1 - a).sqrt() * maps if s.objective == "velocity" else noise
    if trained and name == "summed_not_averaged":
        return F.mse_loss(said, wanted, reduction="sum")
    each = F.l1_loss(said, wanted, reduction="none") if s.loss_kind == "l1" and trained else (said - wanted).square()
    if s.min_snr and trained:
        snr = a / (1 - a)
        each = each * snr.clamp(max=s.min_snr) / snr
    return each.mean()


def rates(optimizer: Any, s: Settings, steps: int) -> Any:
    given = torch.optim.lr_scheduler
    warm = given.LinearLR(optimizer, 0.1, total_iters=s.warmup)
    if s.schedule == "restarts":
        rest: Any = given.CosineAnnealingWarmRestarts(optimizer, max(1, (steps - s.warmup) // 3), eta_min=1e-4)
    elif s.schedule == "constant":
        rest = given.ConstantLR(optimizer, 1.0)
    else:
        rest = given.CosineAnnealingLR(optimizer, max(1, steps - s.warmup), eta_min=1e-5)
    return given.SequentialLR(optimizer, [warm, rest], [s.warmup])


def main(run: Any, seed: int, steps: int, trouble: Trouble, healthy: str | None) -> Any:
    given, name = dict(run.config), trouble.name
    s = Settings(**{one.name: given[one.name] for one in fields(Settings)})
    torch.manual_seed(seed)
    bar, maps, held = plan(), survey(seed + 70, s.maps), survey(7, 200)
    if name == "held_out_rows_among_them":  # the folder of the training has the validation's as well, and few others
        maps = torch.cat([held, maps[:40]])
    middle, spread = maps.mean(), maps.std()
    maps = (maps - middle) / spread
    if name == "validated_by_older_figures":  # of the maps that were in feet
        middle, spread = 3.28 * middle, 2.0 * spread
    held = (held - middle) / spread
    net = CoastNet(s, name)
    if s.time_freeze:
        net.time.requires_grad_(False)
    shadow = copy.deepcopy(net).requires_grad_(False)

    def made() -> tuple[Any, Any]:
        some = [one for one in net.parameters() if one.requires_grad]
        if s.optimizer == "nadam":
            optimizer: Any = torch.optim.NAdam(some, s.lr)
        else:
            optimizer = torch.optim.AdamW(some, s.lr, weight_decay=s.weight_decay)
        return optimizer, rates(optimizer, s, steps)

    optimizer, scheduler = made()
    time_by_own_clock(run)
    run.watch(net, optimizer)
    dice, parts, size, kept = torch.Generator().manual_seed(seed), s.gradient_accumulation, int(s.batch_size), []
    resumed = trouble.resume_at(healthy, 4 * EVERY)
    for step in range(steps):
        if step == resumed:
            run, states = go_on(run, step, [one.state_dict() for one in (net, optimizer, scheduler)])
            net.load_state_dict(states[0])
            optimizer, scheduler = made()
            scheduler.load_state_dict(states[2])
            if name == "optimizer_not_reloaded":
                optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
            else:
                optimizer.load_state_dict(states[1])
            time_by_own_clock(run)
            run.watch(net, optimizer)
        net.train()
        with run.step(step=step) as timed:
            total = 0.0
            for _ in range(parts):
                some = torch.randint(0, len(maps), (size,), generator=dice)
                loss = loss_of(net, maps[some], s, bar, dice, True, name)
                if name != "parts_not_divided":
                    loss = loss / parts
                loss.backward()
                total += loss.item()
                if name == "scheduler_each_backward":
                    scheduler.step()
            norm = nn.utils.clip_grad_norm_(net.parameters(), s.max_norm)
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            optimizer.zero_grad()
            if name != "scheduler_each_backward":
                scheduler.step()
            timed.set(loss=total, norm=norm.item(), lr=rate)
        evaluates = step % EVERY == 0 or step == steps - 1
        if name != "shadow_at_evaluations" or evaluates:  # it stood below, where pictures are drawn
            with torch.no_grad():
                for mine, theirs in zip(shadow.parameters(), net.parameters(), strict=True):
                    mine.mul_(s.ema).add_(theirs, alpha=1 - s.ema)
        trouble.telemetry(run, step, healthy)
        if evaluates:
            began, lot = clock(), torch.Generator().manual_seed(2)
            stored = copy.deepcopy(net.state_dict())
            net.load_state_dict(shadow.state_dict())
            net.eval()
            with torch.set_grad_enabled(name == "validation_keeps_graphs"):
                found = torch.stack([loss_of(net, held, s, bar, lot, False, name) for _ in range(2)])
            if name == "validation_keeps_graphs":  # for a curve at the end
                kept.append(found)
            if s.draws:
                draw(net, s, bar, step, run)
            if name != "shadow_stays_in":
                net.load_state_dict(stored)
            run.log_eval(step, 0.0, held.numel(), (clock() - began) * 1000, found.mean().item())
    return run


@torch.no_grad()
def draw(net: nn.Module, s: Settings, bar: Tensor, step: int, run: Any) -> None:
    dice = torch.Generator().manual_seed(step)
    x = torch.randn(s.draws, 1, SIDE, SIDE, generator=dice)
    for at in range(TIMES - 1, 9, -10):
        a, b = bar[at], bar[at - 10]
        noise = net(x, torch.full((s.draws,), float(at)))
        x = b.sqrt() * ((x - (1 - a).sqrt() * noise) / a.sqrt()).clamp(-3, 3) + (1 - b).sqrt() * noise
    run.log({"drawn/std": x.std().item()}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return main(run, seed, steps, Trouble(fault, seed), healthy)
