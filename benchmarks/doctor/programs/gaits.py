"""A flow draws how people walk: eight joints over a step's sixteen moments, by rectified flow, told the manner.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss/train, grad_norm, lr each step; loss/valid of the average at each twentieth.

A generator of batches, scales and shifts by time and manner, an average that is a dict of tensors, Adam, a line down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

EVERY, JOINTS, MOMENTS, MANNERS = 20, 8, 16, 4
CONFIG: dict[str, Any] = {
    "dim": 96, "blocks": 3, "p_drop": 0.0, "bs": 48, "grad_accum_every": 1, "train_lr": 2e-3, "warmup": 10,
    "lr_decay": "linear", "cycles": 1600, "cycles_per_walker": 1, "ema_decay": 0.9, "ema_start": 0, "clip": 1.0,
    "t_sampling": "uniform", "cond_drop": 0.1, "loss": "mse", "frozen": "", "optim": "adam",
}  # fmt: skip


def walk(seed: int, cycles: int, each: int) -> tuple[Tensor, Tensor]:
    """Angles in degrees (cycles, JOINTS, MOMENTS) and manners; each walker is there with so many cycles in a row."""
    dice, walkers = torch.Generator().manual_seed(seed), cycles // each
    base = torch.randn(MANNERS, JOINTS, 3, generator=torch.Generator().manual_seed(8))
    manner = torch.randint(0, MANNERS, (walkers,), generator=dice)
    own = base[manner] + 0.35 * torch.randn(walkers, JOINTS, 3, generator=dice)
    phase = 0.6 * torch.randn(walkers, 1, 1, generator=dice)
    own, phase, manner = (one.repeat_interleave(each, 0) for one in (own, phase, manner))
    time = torch.arange(MOMENTS) / MOMENTS * 2 * math.pi + phase
    angles = own[..., :1] + own[..., 1:2] * time.sin() + own[..., 2:] * (2 * time).cos()
    return 20 + 15 * (angles + 0.05 * torch.randn(angles.shape, generator=dice)), manner


class ModulatedBlock(nn.Module):
    def __init__(self, dim: int, rate: float, always: bool):
        super().__init__()
        self.norm, self.rate, self.always = nn.LayerNorm(dim, elementwise_affine=False), rate, always
        self.cond, self.inner, self.outer = nn.Linear(dim, 3 * dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        nn.init.zeros_(self.cond.weight)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        scale, shift, gate = self.cond(c).chunk(3, -1)
        h = functional.silu(self.inner(self.norm(x) * (1 + scale) + shift))
        return x + (1 + gate) * self.outer(functional.dropout(h, self.rate, self.training or self.always))


class Velocity(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        dim = cfg["dim"]
        self.inp, self.out = nn.Linear(JOINTS * MOMENTS, dim), nn.Linear(dim, JOINTS * MOMENTS)
        self.t_mlp = nn.Sequential(nn.Linear(32, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.manner = nn.Embedding(MANNERS + 1, dim)
        rate, always = cfg["p_drop"], name == "functional_dropout_always"
        self.blocks = nn.ModuleList(ModulatedBlock(dim, rate, always) for _ in range(cfg["blocks"]))

    def forward(self, x: Tensor, t: Tensor, manner: Tensor) -> Tensor:
        angle = t[:, None] * 2.0 ** torch.arange(-1, 7, 0.5)
        c = functional.silu(self.t_mlp(torch.cat([angle.sin(), angle.cos()], -1)) + self.manner(manner))
        x, shape = self.inp(x.flatten(1)), x.shape
        for block in self.blocks:
            x = block(x, c)
        return self.out(x).view(shape)


class EMA:
    def __init__(self, net: nn.Module, decay: float):
        self.net, self.decay = net, decay
        self.shadow = {key: one.detach().clone() for key, one in net.named_parameters()}
        self.backup: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        for key, one in self.net.named_parameters():
            self.shadow[key] = self.decay * self.shadow[key] + (1 - self.decay) * one

    @torch.no_grad()
    def apply_shadow(self) -> None:
        for key, one in self.net.named_parameters():
            self.backup[key] = one.clone()
            one.copy_(self.shadow[key])

    @torch.no_grad()
    def restore(self) -> None:
        for key, one in self.net.named_parameters():
            one.copy_(self.backup[key])


def flow_loss(net: nn.Module, x1: Tensor, manner: Tensor, cfg: dict[str, Any], dice: torch.Generator,
              name: str) -> Tensor:  # fmt: skip
    trained = name != "eval"
    t = torch.rand(len(x1), generator=dice)
    if cfg["t_sampling"] == "logit_normal" and trained:
        t = torch.randn(len(x1), generator=dice).sigmoid()
    x0 = torch.randn(x1.shape, generator=dice)
    if trained:
        lost = torch.rand(len(x1), generator=dice) < cfg["cond_drop"]
        manner = manner.masked_fill(lost, MANNERS)
    mix = t[:, None, None]
    velocity = x0 - x1 if name == "direction_reversed" else x1 - x0
    said = net((1 - mix) * x0 + mix * x1, t, manner)
    if name == "flow_loss_summed":
        return (said - velocity).square().flatten(1).sum(1).mean()
    if cfg["loss"] == "huber" and trained:
        return functional.huber_loss(said, velocity, delta=0.5)
    return functional.mse_loss(said, velocity)


def batches(x: Tensor, manner: Tensor, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    lot = torch.Generator().manual_seed(seed)
    while True:
        for some in torch.randperm(len(x), generator=lot)[: len(x) // size * size].split(size):
            yield x[some], manner[some]


def optimizer_of(net: nn.Module, cfg: dict[str, Any]) -> tuple[Any, Any]:
    some = [one for one in net.parameters() if one.requires_grad]
    optimizer = (torch.optim.RAdam if cfg["optim"] == "radam" else torch.optim.Adam)(some, cfg["train_lr"], (0.9, 0.99))

    def share(at: int) -> float:
        if at < cfg["warmup"] or cfg["lr_decay"] == "none":
            return min(1.0, (at + 1) / cfg["warmup"])
        return max(0.01, 1 - (at - cfg["warmup"]) / (cfg["steps"] - cfg["warmup"]))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    name, parts = trouble.name, cfg["grad_accum_every"]
    torch.manual_seed(seed)
    x, manner = walk(seed + 300, cfg["cycles"], cfg["cycles_per_walker"])
    held, held_manner = walk(30, 240, 1)
    if name == "walkers_in_both":
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        x, manner = x[order], manner[order]
        held, held_manner, x, manner = x[:240], manner[:240], x[240:], manner[240:]
    mean, std = x.mean((0, 2), True), x.std((0, 2), keepdim=True)
    x = (x - mean) / std
    if name == "stats_file_of_before":  # stats.pt of the first recordings, whose markers were elsewhere
        mean, std = mean + 8, 0.7 * std
    held = (held - mean) / std
    net = Velocity(cfg, name)
    if cfg["frozen"]:
        getattr(net, cfg["frozen"]).requires_grad_(False)
    ema, stream = EMA(net, cfg["ema_decay"]), batches(x, manner, int(cfg["bs"]), seed)
    dice, (optimizer, scheduler) = torch.Generator().manual_seed(seed), optimizer_of(net, cfg)
    time_by_own_clock(run)
    run.watch(net, optimizer)
    resumed, kept = trouble.resume_at(healthy, 4 * EVERY), []
    for step in range(steps):
        if step == resumed:
            run, saved = go_on(run, step, {"net": net.state_dict(), "opt": optimizer.state_dict(),
                                           "sched": scheduler.state_dict(), "ema": ema.shadow})  # fmt: skip
            net.load_state_dict(saved["net"])
            ema.shadow, (optimizer, scheduler) = saved["ema"], optimizer_of(net, cfg)
            scheduler.load_state_dict(saved["sched"])
            optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
            if name != "resume_weights_alone":
                optimizer.load_state_dict(saved["opt"])
            time_by_own_clock(run)
            run.watch(net, optimizer)
        total = 0.0
        net.train()
        for _ in range(parts):
            if name == "seed_set_each_batch":  # so that a run can be made again
                dice.manual_seed(seed)
            loss = flow_loss(net, *next(stream), cfg, dice, name)
            loss = loss if name == "micro_losses_added" else loss / parts
            loss.backward()
            total += loss.item()
            if name == "scheduler_per_micro":
                scheduler.step()
        norm, rate = nn.utils.clip_grad_norm_(net.parameters(), cfg["clip"]), optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if name != "scheduler_per_micro":
            scheduler.step()
        if step >= cfg["ema_start"]:
            ema.update()
        run.log({"loss/train": total, "grad_norm": norm.item(), "lr": rate}, step=step)
        trouble.telemetry(run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            ema.apply_shadow()
            lot = torch.Generator().manual_seed(1)
            with torch.set_grad_enabled(name == "predictions_hold_graphs"):
                found = [flow_loss(net.eval(), held, held_manner, cfg, lot, "eval") for _ in range(6)]
            kept.append(found)  # for a curve over the times
            if name != "ema_not_restored":
                ema.restore()
            run.log({"loss/valid": sum(one.item() for one in found) / 6}, step=step)
    return run
