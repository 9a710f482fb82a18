"""A transformer takes the noise out of closed outlines, told the clean outline to aim at; attention sees all points.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm), and val_mse by `run.log`: of torch's own average of the weights.

An outline is 24 points of the plane. Adaptive norms that begin at zero, rotary-free learnt places, Adam with a constant
rate after its warm-up; a script, with its state in one dictionary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn as nn
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EVERY, POINTS, LEVELS = 20, 24, 100
CONFIG: dict[str, Any] = {
    "width": 32, "depth": 2, "heads": 2, "batch_size": 32, "learning_rate": 3e-3, "warmup_steps": 10, "ema": 0.9,
    "schedule": "linear", "accumulation": 1, "clip": 1.0, "dropout": 0.0, "predict": "noise", "weighting": "none",
    "scale": 1.0,
}  # fmt: skip


def outlines(number: int, dice: torch.Generator, scale: float = 1.0) -> Tensor:
    """(number, POINTS, 2): ellipses with two or three bulges."""
    turn = 2 * math.pi * (torch.arange(POINTS) / POINTS + torch.rand(number, 1, generator=dice))
    bulges = torch.randint(2, 4, (number, 1), generator=dice)
    radius = 1 + 0.35 * torch.sin(bulges * turn + 6.28 * torch.rand(number, 1, generator=dice))
    axes = 0.6 + 0.9 * torch.rand(number, 1, 2, generator=dice)
    return scale * axes * torch.stack([radius * turn.cos(), radius * turn.sin()], -1)


kept_share = torch.cos(0.5 * math.pi * (torch.arange(LEVELS) + 0.5) / LEVELS) ** 2


class Modulated(nn.Module):
    def __init__(self, width: int, heads: int, rate: float):
        super().__init__()
        self.ln1, self.ln2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.attn = nn.MultiheadAttention(width, heads, dropout=rate, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Dropout(rate), nn.Linear(3 * width, width))
        self.ada = nn.Linear(width, 4 * width)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        s1, s2, g1, g2 = self.ada(c)[:, None].chunk(4, -1)
        y = self.ln1(x) * (1 + s1)
        x = x + (1 + g1) * self.attn(y, y, y, need_weights=False)[0]
        return x + (1 + g2) * self.mlp(self.ln2(x) * (1 + s2))


class OutlineDenoiser(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, rate: float):
        super().__init__()
        self.inp, self.place = nn.Linear(2, width), nn.Parameter(0.05 * torch.randn(POINTS, width))
        self.level = nn.Sequential(nn.Embedding(LEVELS, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList([Modulated(width, heads, rate) for _ in range(depth)])
        self.out = nn.Linear(width, 2)

    def forward(self, noisy: Tensor, t: Tensor) -> Tensor:
        x, c = self.inp(noisy) + self.place, self.level(t)
        for block in self.blocks:
            x = block(x, c)
        return self.out(x)


def spoil(clean: Tensor, dice: torch.Generator, predict: str) -> tuple[Tensor, Tensor, Tensor]:
    """A noisy outline, its level, what should be said."""
    t = torch.randint(0, LEVELS, (len(clean),), generator=dice)
    noise, share = torch.randn(clean.shape, generator=dice), kept_share[t][:, None, None]
    noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
    if predict == "velocity":
        return noisy, t, share.sqrt() * noise - (1 - share).sqrt() * clean
    return noisy, t, clean if predict == "outline" else noise


def rate_share(cfg: dict[str, Any]) -> Any:
    def share(step: int) -> float:
        if step < cfg["warmup_steps"]:
            return (step + 1) / cfg["warmup_steps"]
        if cfg["schedule"] == "constant":
            return 1.0
        return max(0.02, 1 - (step - cfg["warmup_steps"]) / (cfg["steps"] - cfg["warmup_steps"]))

    return share


def built(cfg: dict[str, Any], name: str) -> dict[str, Any]:
    net = OutlineDenoiser(cfg["width"], cfg["depth"], cfg["heads"], cfg["dropout"])
    opt = torch.optim.Adam(net.parameters(), lr=cfg["learning_rate"], betas=(0.9, 0.98))
    return {"net": net, "opt": opt, "sched": torch.optim.lr_scheduler.LambdaLR(opt, rate_share(cfg)),
            "ema": AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(cfg["ema"]))}  # fmt: skip


@torch.no_grad()
def validated(s: dict[str, Any], held: Tensor, cfg: dict[str, Any], trouble: Trouble) -> float:
    judged = s["ema"].module
    judged.eval()
    dice = torch.Generator().manual_seed(99)
    errors = [mse_loss(judged(noisy, t), aim) for noisy, t, aim in
              (spoil(some, dice, cfg["predict"]) for some in held.split(80))]  # fmt: skip
    if trouble.name != "never_trains_again":
        judged.train()
    else:  # samples were looked at with the model itself
        s["net"].eval()
    return torch.stack(errors).mean().item()


def objective(said: Tensor, aim: Tensor, t: Tensor, cfg: dict[str, Any], name: str) -> Tensor:
    if name == "loss_summed":
        return mse_loss(said, aim, reduction="sum")
    if name == "targets_not_in_order":
        aim = aim[torch.randperm(len(aim))]
    if cfg["weighting"] == "snr":
        weight = (kept_share[t] / (1 - kept_share[t])).clamp(max=5.0)
        return (weight * (said - aim).square().mean((1, 2))).mean()
    return mse_loss(said, aim)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    torch.manual_seed(seed)
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name, parts = trouble.name, cfg["accumulation"]
    dice = torch.Generator().manual_seed(seed + 23)
    held = outlines(240, torch.Generator().manual_seed(232), cfg["scale"])
    s = built(cfg, name)
    time_by_own_clock(run)
    run.watch(s["net"], s["opt"])
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    for step in range(steps):
        if step == resumed:
            run, state = go_on(run, step, {key: part.state_dict() for key, part in s.items()})
            s = built(cfg, name)
            for key, part in s.items():
                if not (name == "optimizer_state_lost" and key == "opt"):
                    part.load_state_dict(state[key])
            time_by_own_clock(run)
            run.watch(s["net"], s["opt"])
        with run.step(step=step, tokens=parts * int(cfg["batch_size"]) * POINTS) as timed:
            total = 0.0
            for _ in range(parts):
                clean = outlines(int(cfg["batch_size"]), dice, cfg["scale"])
                noisy, t, aim = spoil(clean, dice, cfg["predict"])
                loss = objective(s["net"](noisy, t), aim, t, cfg, name)
                if name != "accumulation_undivided":
                    loss = loss / parts
                loss.backward()
                total += loss.item()
                if name == "scheduler_per_micro_batch":
                    s["sched"].step()
            norm = nn.utils.clip_grad_norm_(s["net"].parameters(), cfg["clip"]).item()
            rate = s["opt"].param_groups[0]["lr"]
            s["opt"].step()
            s["opt"].zero_grad()
            if name != "scheduler_per_micro_batch":
                s["sched"].step()
            if name != "ema_not_updated":
                s["ema"].update_parameters(s["net"])
            timed.set(loss=total, lr=rate, norm=norm)
        if step % EVERY == 0 or step == steps - 1:
            run.log({"val_mse": validated(s, held, cfg, trouble)}, step=step)
    return run
