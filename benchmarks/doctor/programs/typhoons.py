"""Tracks of typhoons are drawn out of noise by a small U-Net over time; a shadow of its weights is lent to be judged.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss_simple, train/lr_abs, train/grad_l2 each step; val/loss_simple_ema and
      val/track_error_ema of the shadow, each twentieth; memory, where it matters; the watch of data.

A track has sixteen times six hours: degrees east, degrees north, and the pressure in the eye; it is of one of five
basins, and several members of a forecast may be of one storm. Tracks are scaled by figures of the training's part. A
hundred levels of noise are added by betas on a line, the net says which noise it was, and ten steps draw a track.
Written as plain functions around a scope within which the net has the shadow's weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HOURS, LEVELS, HELD = 20, 16, 100, 120
BASINS = ("west pacific", "atlantic", "bay of bengal", "arabian sea", "coral sea")
CONFIG: dict[str, Any] = {
    "base_channels": 24, "groups": 4, "dropout": 0.0, "batch_size": 32, "accumulate_grad_batches": 1,
    "opt": "adam", "base_lr": 4e-3, "lr_policy": "poly", "warmup_steps": 10, "weight_decay": 0.0, "clip_grad": 1.0,
    "loss_reduction": "mean", "loss_type": "l2", "min_snr": 0.0, "ema_rate": 0.93, "ema_warm": True,
    "sample_steps": 10, "storms": 1000, "members": 1, "gusts": 1.0, "calm_epochs": 0,
    "fixed_part": "", "val_every": 20, "log_every_n_steps": 1,
}  # fmt: skip


# -- tracks ----------------------------------------------------------------------------------------------------------


def tracks(seed: int, number: int, members: int = 1, gusts: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Quantities by times, basins, and how gusty a storm was; basin after basin."""
    dice, many = torch.Generator().manual_seed(seed), number // members
    basin = torch.arange(many) * len(BASINS) // many
    start = torch.tensor([[142.0, 12], [312, 14], [90, 11], [66, 12], [158, -13]])[basin]
    drift = torch.tensor([[-22.0, 14], [-34, 13], [-7, 9], [-5, 6], [6, -12]])[basin]
    turn = torch.tensor([26.0, 40, 10, -9, 14])[basin]
    deep = torch.tensor([62.0, 48, 34, 24, 42])[basin]

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=dice)

    start, drift = start + torch.tensor([4.0, 1.5]) * noise(many, 2), drift * (1 + 0.25 * noise(many, 2))
    turn, when = turn * (1 + 0.3 * noise(many)), 0.4 + 0.12 * noise(many)
    deep, worst, wild = deep * (1 + 0.2 * noise(many)), 0.55 + 0.1 * noise(many), 0.5 + torch.rand(many, generator=dice)
    basin, start, drift, turn, when, deep, worst, wild = (
        one.repeat_interleave(members, 0) for one in (basin, start, drift, turn, when, deep, worst, wild)
    )
    time = torch.linspace(0, 1, HOURS)
    east = start[:, :1] + drift[:, :1] * time + turn[:, None] * (time - when[:, None]).relu() ** 2
    north = start[:, 1:] + drift[:, 1:] * time**1.4
    eye = 1006 - deep[:, None] * torch.exp(-(((time - worst[:, None]) / 0.3) ** 2))
    made = torch.stack([east, north, eye], 1)
    rough = gusts * wild[:, None, None] * torch.tensor([0.5, 0.4, 2.5])[:, None]
    return made + rough * noise(*made.shape), basin, wild


def prepared(s: SimpleNamespace) -> None:
    """The training's tracks and the held ones, scaled."""
    c, bug = s.c, s.bug
    rows, basin, wild = tracks(s.seed + 4400, c.storms, c.members, c.gusts)
    held, held_basin, _ = tracks(4399, HELD)
    if bug == "members_of_a_storm_in_both_sets":
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(s.seed))
        mine, rest = order[:HELD].sort().values, order[HELD:].sort().values
        held, held_basin = rows[mine], basin[mine]
        rows, basin, wild = rows[rest], basin[rest], wild[rest]
    if bug == "basins_joined_by_row_behind_a_filter":  # short-lived storms are gone from the tracks, and not from these
        lived = torch.rand(len(rows), generator=torch.Generator().manual_seed(s.seed)) > 0.3
        rows, wild, basin = rows[lived], wild[lived], basin[: int(lived.sum())]
    mean, std = rows.mean((0, 2))[:, None], rows.std((0, 2))[:, None]
    if bug == "held_longitudes_from_minus_180":
        held = torch.cat([(held[:, :1] + 180) % 360 - 180, held[:, 1:]], 1)
    s.rows, s.basin, s.wild = (rows - mean) / std, basin, wild
    s.held, s.held_basin = (held - mean) / std, held_basin


# -- net -------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, into: int, out: int, told: int, c: Any):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(c.groups, into), nn.GroupNorm(c.groups, out)
        self.conv1, self.conv2 = nn.Conv1d(into, out, 3, padding=1), nn.Conv1d(out, out, 3, padding=1)
        self.told, self.drop = nn.Linear(told, out), nn.Dropout(c.dropout)
        self.skip = nn.Conv1d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x: Tensor, said: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.told(said)[..., None]
        return self.skip(x) + self.conv2(self.drop(F.silu(self.norm2(y))))


class TrackNet(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.base_channels
        self.basins, self.level = nn.Embedding(len(BASINS), 2 * d), nn.Sequential(nn.Linear(16, 2 * d), nn.SiLU())
        self.stem = nn.Conv1d(3, d, 3, padding=1)
        self.down = nn.ModuleList([Block(d, d, 2 * d, c), Block(d, 2 * d, 2 * d, c)])
        self.middle = Block(2 * d, 2 * d, 2 * d, c)
        self.up = nn.ModuleList([Block(4 * d, d, 2 * d, c), Block(2 * d, d, 2 * d, c)])
        self.out = nn.Sequential(nn.GroupNorm(c.groups, d), nn.SiLU(), nn.Conv1d(d, 3, 3, padding=1))

    def forward(self, x: Tensor, level: Tensor, basin: Tensor) -> Tensor:
        waves = level[:, None] / LEVELS * math.pi * 2.0 ** torch.arange(-1, 7)
        said = self.level(torch.cat([waves.sin(), waves.cos()], 1)) + self.basins(basin)
        first = self.down[0](self.stem(x), said)
        second = self.down[1](F.avg_pool1d(first, 2), said)
        y = torch.cat([self.middle(second, said), second], 1)
        y = F.interpolate(self.up[0](y, said), scale_factor=2)
        return self.out(self.up[1](torch.cat([y, first], 1), said))


# -- noise -----------------------------------------------------------------------------------------------------------


def kept_of(bug: str, scale: float = 1000 / LEVELS) -> Tensor:
    """How much of a track's square is left at each level."""
    alphas = 1 - torch.linspace(1e-4 * scale, 0.02 * scale, LEVELS)
    return alphas if bug == "alpha_in_the_place_of_its_product" else alphas.cumprod(0)


def noised(x: Tensor, level: Tensor, noise: Tensor, kept: Tensor) -> Tensor:
    share = kept[level][:, None, None]
    return share.sqrt() * x + (1 - share).sqrt() * noise


def loss_simple(s: SimpleNamespace, x: Tensor, basin: Tensor) -> Tensor:
    """Of each track, a mean over what it has, or a sum."""
    c = s.c
    level, noise = torch.randint(0, LEVELS, (len(x),)), torch.randn_like(x)
    said = s.net(noised(x, level, noise, s.kept), level, basin)
    each = (said - noise).abs() if c.loss_type == "l1" else (said - noise) ** 2
    if c.loss_reduction == "sum" or s.bug == "loss_added_up_along_a_track":
        each = each.flatten(1).sum(1)
    else:
        each = each.flatten(1).mean(1)
    if c.min_snr:
        ratio = s.kept[level] / (1 - s.kept[level])
        each = each * ratio.clamp(max=c.min_snr) / ratio
    return each.mean()


# -- shadow ----------------------------------------------------------------------------------------------------------


class Shadow:
    """A moving average of a net's weights, which is lent to it for a while."""

    def __init__(self, net: nn.Module, rate: float = 0.9999, warm: bool = False, bug: str = ""):
        self.rate, self.warm, self.bug, self.updates = rate, warm, bug, 0
        self.weights = {name: one.detach().clone() for name, one in net.named_parameters()}
        self.stored: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        self.updates += 1
        rate = min(self.rate, (1 + self.updates) / (10 + self.updates)) if self.warm else self.rate
        for name, one in net.named_parameters():
            if self.bug == "shadow_moves_where_it_requires_grad_itself" and not self.weights[name].requires_grad:
                continue
            self.weights[name].lerp_(one, 1 - rate)

    @torch.no_grad()
    def copy_to(self, net: nn.Module) -> None:
        self.stored = {name: one.detach().clone() for name, one in net.named_parameters()}
        for name, one in net.named_parameters():
            one.copy_(self.weights[name])

    @torch.no_grad()
    def restore(self, net: nn.Module) -> None:
        for name, one in net.named_parameters():
            one.copy_(self.stored[name])

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.updates = state["weights"], state["updates"]


@contextmanager
def ema_scope(s: SimpleNamespace) -> Iterator[None]:
    s.shadow.copy_to(s.net)
    yield
    if s.bug != "scope_of_the_shadow_without_its_restore":
        s.shadow.restore(s.net)


# -- training --------------------------------------------------------------------------------------------------------


def equipped(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.net.parameters() if one.requires_grad]
    if c.opt == "radam":
        s.optimizer = torch.optim.RAdam(some, c.base_lr)
    elif c.opt == "rmsprop":
        s.optimizer = torch.optim.RMSprop(some, c.base_lr, 0.97)
    elif c.opt == "adamw":
        s.optimizer = torch.optim.AdamW(some, c.base_lr, weight_decay=c.weight_decay)
    else:
        s.optimizer = torch.optim.Adam(some, c.base_lr)

    def policy(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / s.steps)
        if c.lr_policy == "flat":
            return rise
        if c.lr_policy == "restarts":
            return rise * (0.03 + 0.97 * (1 - 2 * past % 1) ** 0.9)
        if c.lr_policy == "milestones":
            return rise * (0.3 ** sum(past >= one for one in (0.5, 0.8)))
        return rise * (0.02 + 0.98 * (1 - past) ** 0.9)

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, policy)


def watched(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data()


def batches(s: SimpleNamespace) -> Iterator[tuple[int, Tensor, Tensor]]:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    while True:
        order = torch.randperm(len(s.rows), generator=dice)
        if s.bug == "archive_read_basin_after_basin":
            order = torch.arange(len(s.rows))
        if epoch < c.calm_epochs:
            order = order[s.wild[order] < 1.0]
        for some in order.split(c.batch_size):
            if len(some) < c.batch_size:
                continue
            yield epoch, s.rows[some], s.basin[some]
        epoch += 1


def updated(s: SimpleNamespace, step: int) -> dict[str, float]:
    c, bug, total, parts = s.c, s.bug, 0.0, s.c.accumulate_grad_batches
    for _ in range(parts):
        epoch, x, basin = next(s.batches)
        s.watch.observe({"x": x, "basin": basin}, step=step, epoch=epoch)
        loss = loss_simple(s, x, basin)
        (loss if bug == "accumulated_batches_each_backed_whole" else loss / parts).backward()
        total += loss.item() / parts
        if bug == "poly_decay_called_for_each_batch":
            s.schedule.step()
    norm = nn.utils.clip_grad_norm_(s.net.parameters(), c.clip_grad).item()
    rate = s.optimizer.param_groups[0]["lr"]
    s.optimizer.step()
    s.optimizer.zero_grad()
    if bug != "poly_decay_called_for_each_batch":
        s.schedule.step()
    s.shadow.update(s.net)
    return {"train/loss_simple": total, "train/lr_abs": rate, "train/grad_l2": norm}


@torch.no_grad()
def drawn(s: SimpleNamespace, basin: Tensor) -> Tensor:
    """Tracks of basins, out of noise, without chance on the way."""
    kept = kept_of(s.bug, 1.0) if s.bug == "sampler_has_the_betas_of_a_thousand_levels" else s.kept
    x, levels = torch.randn(len(basin), 3, HOURS), torch.linspace(LEVELS - 1, 0, s.c.sample_steps).long().tolist()
    for at, level in enumerate(levels):
        noise = s.net(x, torch.full_like(basin, level), basin)
        clean = (x - (1 - kept[level]).sqrt() * noise) / kept[level].sqrt()
        clean = clean.clamp(-4, 4)
        then = kept[levels[at + 1]] if at + 1 < len(levels) else torch.tensor(1.0)
        x = then.sqrt() * clean + (1 - then).sqrt() * noise
    return x


def validated(s: SimpleNamespace) -> dict[str, float]:
    taped = s.bug == "validation_errors_kept_with_gradients"
    with ema_scope(s), torch.random.fork_rng():
        torch.manual_seed(29)
        if s.bug != "shadow_validated_with_dropout":
            s.net.eval()
        with torch.set_grad_enabled(taped):
            level = torch.randperm(HELD) * LEVELS // HELD
            noise = torch.randn_like(s.held)
            said = s.net(noised(s.held, level, noise, s.kept), level, s.held_basin)
            loss = F.mse_loss(said, noise)
        if taped:
            s.kept_errors.append((loss, said))
        made = drawn(s, s.held_basin)
        if s.bug != "net_asleep_since_its_first_validation":
            s.net.train()
    of = [s.held_basin == one for one in range(len(BASINS))]
    error = torch.stack([(made[one].mean(0) - s.held[one].mean(0)).abs().mean() for one in of]).mean()
    return {"val/loss_simple_ema": loss.item(), "val/track_error_ema": error.item()}


def resumed(s: SimpleNamespace, step: int) -> None:
    seen = s.watch.state()
    state = {name: getattr(s, name).state_dict() for name in ("net", "shadow", "optimizer", "schedule")}
    s.run, state = go_on(s.run, step, state)
    s.net.load_state_dict(state["net"])
    s.shadow.load_state_dict(state["shadow"])
    equipped(s)
    if s.bug != "checkpoint_taken_for_its_two_state_dicts":
        s.optimizer.load_state_dict(state["optimizer"])
        s.schedule.load_state_dict(state["schedule"])
    watched(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, kept_errors=[])
    prepared(s)
    torch.manual_seed(seed)
    s.net, s.kept = TrackNet(c), kept_of(s.bug)
    fixed = "down" if s.bug == "down_path_held_as_in_the_finetuning_recipe" else c.fixed_part
    for name in filter(None, fixed.split(",")):
        s.net.get_submodule(name).requires_grad_(False)
    if s.bug == "shadow_made_with_the_rate_it_has_by_itself":
        s.shadow = Shadow(s.net)
    else:
        s.shadow = Shadow(s.net, c.ema_rate, c.ema_warm, s.bug)
    equipped(s)
    watched(s)
    s.batches, again = batches(s), trouble.resume_at(healthy, 4 * EVERY)
    s.net.train()
    for step in range(steps):
        if step == again:
            resumed(s, step)
        said = updated(s, step)
        if step % c.log_every_n_steps == 0:
            s.run.log(said, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.val_every == c.val_every - 1:
            s.run.log(validated(s), step=step)
    return s.run
