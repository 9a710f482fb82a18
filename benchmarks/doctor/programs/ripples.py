"""Ripples on a pond come out of noise, which a net predicts; an average of its weights draws them.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: eps_mse, eps_lr, eps_gnorm each step; shadow_pond_mse and shadow_pond_crests of the
      average, each twentieth; memory, where it matters; the watch of data.

A stone of one to six grams falls into a pond, and a rod measures heights in millimetres at twenty-four places; several
rods may measure one stone. A row is mixed with noise along a cosine of sixty-four levels, and the net tells the noise.
Stones go by their weight, lightest first, in the log. One row of the table is for a stone that nobody weighed. Twenty
steps without chance draw a row. Written as functions around a context, with a class for the average.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, STONES, PLACES, HELD, LEVELS = 20, 6, 24, 192, 64
GRAMS = torch.arange(1, STONES + 1)
CONFIG: dict[str, Any] = {
    "channels": 96, "layers": 2, "dropout": 0.0, "bs": 48, "micro": 1, "optim": "adamw", "base_lr": 6e-3,
    "lr_decay": "cosine", "lr_warmup": 8, "wd": 0.01, "max_gnorm": 1.0, "error": "square", "reduce": "mean",
    "gain": 1.0, "min_snr": 0.0, "ema_decay": 0.93, "unweighed": 0.15, "guidance": 0.2, "ddim_steps": 20,
    "rods": 1, "stones": 1600, "wind": 1.0, "calm_first": 0, "freeze": "", "check_every": 20, "log_every": 1,
}  # fmt: skip


# -- the pond --------------------------------------------------------------------------------------------------------


def pond(seed: int, number: int, rods: int = 1, wind: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Heights (number, places) in millimetres, grams, and how windy it was; light stones first."""
    law, dice, many = torch.Generator().manual_seed(401), torch.Generator().manual_seed(seed), number // rods
    waves, tall = 1.5 + 3 * torch.rand(STONES, generator=law), 12 + 14 * torch.rand(STONES, generator=law)
    fades, lift = 1 + 2 * torch.rand(STONES, generator=law), 10 * torch.randn(STONES, generator=law)
    kind, along = torch.arange(many) * STONES // many, torch.linspace(0, 1, PLACES)
    begins, strong = 0.5 * torch.rand(many, 1, generator=dice), torch.randn(many, 1, generator=dice)
    windy = 0.5 + torch.rand(many, generator=dice)
    angle = 6.28 * waves[kind, None] * (along - begins)
    heights = tall[kind, None] * (1 + 0.2 * strong) * angle.sin() * torch.exp(-fades[kind, None] * along)
    heights = 35 + lift[kind, None] + heights
    heights = heights + 1.5 * wind * windy[:, None] * torch.randn(heights.shape, generator=dice)
    heights, kind, windy = (one.repeat_interleave(rods, 0) for one in (heights, kind, windy))
    return heights + 0.3 * torch.randn(heights.shape, generator=dice), GRAMS[kind], windy


def kinds_of(grams: Tensor, right: bool = False) -> Tensor:
    """The row of the table for each stone."""
    return torch.bucketize(grams, GRAMS, right=right)


def read_log(x: Any) -> None:
    c, bug = x.c, x.bug
    rows, held = pond(x.seed + 6300, c.stones, c.rods, c.wind), pond(6299, HELD)
    if bug == "rods_of_a_stone_dealt_to_both_sides":
        order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(x.seed))
        first, rest = order[:HELD].sort().values, order[HELD:].sort().values
        held, rows = tuple(one[first] for one in rows), tuple(one[rest] for one in rows)  # type: ignore[assignment]
    std, mean = torch.std_mean(rows[0])
    x.rows, x.windy = (rows[0] - mean) / std, rows[2]
    x.kinds = kinds_of(rows[1], right=bug == "stones_of_the_training_bucketed_to_the_right")
    if bug == "spread_and_mean_of_the_held_pond_unpacked_in_turn":
        mean, std = torch.std_mean(rows[0])
    x.held, x.held_kinds = (held[0] - mean) / std, kinds_of(held[1])


# -- the net ---------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, d: int, dropout: float):
        super().__init__()
        self.norm, self.told, self.drop = nn.LayerNorm(d), nn.Linear(d, d), nn.Dropout(dropout)
        self.wide, self.slim = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, h: Tensor, told: Tensor) -> Tensor:
        return h + self.slim(self.drop(F.silu(self.wide(self.norm(h) + self.told(told)))))


class NoiseNet(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.channels
        self.first, self.last, self.norm = nn.Linear(PLACES, d), nn.Linear(d, PLACES), nn.LayerNorm(d)
        self.kind, self.level = nn.Embedding(STONES + 1, d), nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d))
        self.layers = nn.ModuleList(Layer(d, c.dropout) for _ in range(c.layers))

    def forward(self, noisy: Tensor, level: Tensor, kind: Tensor) -> Tensor:
        angles = level[:, None] / LEVELS * 1.8 ** torch.arange(8)
        told = F.silu(self.level(torch.cat([angles.sin(), angles.cos()], 1)) + self.kind(kind))
        h = self.first(noisy)
        for layer in self.layers:
            h = layer(h, told)
        return self.last(self.norm(h))


class Shadow:
    """Weights that follow those of a net; `with shadow.in_net()` puts them there for a while."""

    def __init__(self, net: nn.Module, decay: float, bug: str):
        self.net, self.decay, self.bug, self.own = net, decay, bug, {}
        self.weights = {name: one.detach().clone() for name, one in net.named_parameters()}

    @torch.no_grad()
    def follow(self) -> None:
        for name, one in self.net.named_parameters():
            weight = self.weights[name]
            if self.bug == "average_bound_to_a_name_of_the_loop":
                weight = self.decay * weight + (1 - self.decay) * one
            else:
                weight.lerp_(one, 1 - self.decay)

    @torch.no_grad()
    def enter(self) -> None:
        self.own = {name: one.detach().clone() for name, one in self.net.named_parameters()}
        for name, one in self.net.named_parameters():
            one.copy_(self.weights[name])

    @torch.no_grad()
    def leave(self) -> None:
        for name, one in self.net.named_parameters():
            one.copy_(self.own[name])


# -- training --------------------------------------------------------------------------------------------------------


def build(x: Any) -> None:
    c = x.c
    x.net = NoiseNet(c)
    for name, one in x.net.named_parameters():
        if c.freeze and name.startswith(c.freeze):
            one.requires_grad_(False)
    x.shadow = Shadow(x.net, c.ema_decay, x.bug)
    angle = (torch.arange(LEVELS) + 0.5) / LEVELS * 1.38
    x.kept, x.noise = angle.cos(), angle.sin()  # shares of a row and of noise
    build_optimizer(x)


def build_optimizer(x: Any) -> None:
    c, named = x.c, [(name, one) for name, one in x.net.named_parameters() if one.requires_grad]
    body = "blocks." if x.bug == "matrices_grouped_by_a_name_of_another_net" else "layers."
    outer = ("first.", "last.", "kind.", "level.")
    decayed = [one for name, one in named if one.ndim > 1 and name.startswith((body, *outer))]
    groups = [{"params": decayed, "weight_decay": c.wd},
              {"params": [one for _, one in named if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
    if c.optim == "sgd":
        x.optimizer = torch.optim.SGD(groups, c.base_lr, 0.9)
    elif c.optim == "nadam":
        x.optimizer = torch.optim.NAdam(groups, c.base_lr)
    else:
        x.optimizer = torch.optim.AdamW(groups, c.base_lr, (0.9, 0.99))

    def factor(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.lr_warmup)), min(1.0, at / x.steps)
        if c.lr_decay == "none":
            return rise
        if c.lr_decay == "cosine_twice":
            past = 2 * past % 1
        return rise * (0.02 + 0.49 * (1 + math.cos(math.pi * past)))

    x.scheduler = torch.optim.lr_scheduler.LambdaLR(x.optimizer, factor)


def attach(x: Any) -> None:
    time_by_own_clock(x.run)
    x.run.watch(x.net, x.optimizer)
    x.data = x.run.watch_data()


def batches(x: Any) -> Iterator[tuple[int, Tensor, Tensor]]:
    c, epoch, dice = x.c, 0, torch.Generator().manual_seed(x.seed)
    while True:
        order = torch.randperm(len(x.rows), generator=dice)
        if x.bug == "log_of_the_pond_read_from_the_lightest_on":
            order = torch.arange(len(order))
        if epoch < c.calm_first:
            order = order[x.windy[order] < 1]
        for some in order.split(c.bs):
            if len(some) == c.bs:
                yield epoch, x.rows[some], x.kinds[some]
        epoch += 1


def denoising(x: Any, rows: Tensor, kinds: Tensor, level: Tensor, training: bool) -> Tensor:
    c, noise = x.c, torch.randn_like(rows)
    mixed = x.kept[level, None] * rows + x.noise[level, None] * noise
    off = x.net(mixed, level, kinds) - noise
    each = off.abs() if training and c.error == "absolute" else off.square()
    if training and x.bug == "squares_of_all_places_summed":
        return each.sum() / len(rows)
    each = each.mean(1)
    if training and c.min_snr:
        snr = (x.kept[level] / x.noise[level]) ** 2
        each = each * snr.clamp(max=c.min_snr) / snr
    return c.gain * each.sum() if training and c.reduce == "sum" else each.mean()


def update(x: Any, step: int) -> dict[str, float]:
    c, bug, total = x.c, x.bug, 0.0
    for _ in range(c.micro):
        epoch, rows, kinds = next(x.source)
        x.data.observe({"heights": rows, "kinds": kinds}, step=step, epoch=epoch)
        if bug == "gradients_set_back_where_a_micro_batch_begins":
            x.optimizer.zero_grad()
        kinds = torch.where(torch.rand(len(rows)) < c.unweighed, STONES, kinds)
        loss = denoising(x, rows, kinds, torch.randint(0, LEVELS, (len(rows),)), True)
        (loss if bug == "micro_losses_go_back_in_full" else loss / c.micro).backward()
        total += loss.item() / c.micro
        if bug == "rate_falls_with_each_micro_batch":
            x.scheduler.step()
    rate = x.optimizer.param_groups[0]["lr"]
    norm = nn.utils.clip_grad_norm_(x.net.parameters(), c.max_gnorm).item()
    x.optimizer.step()
    x.optimizer.zero_grad()
    if bug != "rate_falls_with_each_micro_batch":
        x.scheduler.step()
    x.shadow.follow()
    return {"eps_mse": total, "eps_lr": rate, "eps_gnorm": norm}


@torch.no_grad()
def draw(x: Any, kinds: Tensor) -> Tensor:
    c, rows = x.c, torch.randn(len(kinds), PLACES)
    levels = torch.linspace(LEVELS - 1, 0, c.ddim_steps).round().long()
    kept, spread = x.kept, x.noise
    if x.bug == "sampler_is_made_with_levels_of_its_own":
        kept = (1 - 0.98 * (torch.arange(LEVELS) + 0.5) / LEVELS).sqrt()
        spread = (1 - kept.square()).sqrt()
    if x.bug == "levels_are_walked_from_the_clean_end":
        levels = levels.flip(0)
    for at, level in enumerate(levels):
        now, none = level.expand(len(rows)), torch.full_like(kinds, STONES)
        told, untold = x.net(rows, now, kinds), x.net(rows, now, none)
        noise = told + c.guidance * (told - untold)
        clean = (rows - spread[level] * noise) / kept[level]
        clean = clean.clamp(-3.5, 3.5)
        if at + 1 == len(levels):
            return clean
        rows = kept[levels[at + 1]] * clean + spread[levels[at + 1]] * noise
    return rows


def judge(x: Any) -> tuple[Tensor, Tensor]:
    """The error of the noise, and how far means and spreads of drawn ripples are from held ones."""
    with torch.random.fork_rng():
        torch.manual_seed(43)
        loss = denoising(x, x.held, x.held_kinds, torch.arange(HELD) % LEVELS, False)
        made = draw(x, x.held_kinds)
    off = [(one(made[x.held_kinds == kind], 0) - one(x.held[x.held_kinds == kind], 0)).abs().mean()
           for kind in x.held_kinds.unique() for one in (torch.mean, torch.std)]  # fmt: skip
    return loss, torch.stack(off).mean()


def check(x: Any) -> dict[str, float]:
    bug, taped = x.bug, x.bug == "checks_of_the_pond_keep_their_history"
    if bug != "pond_is_checked_while_units_drop":
        x.net.eval()
    x.shadow.enter()
    with torch.set_grad_enabled(taped):
        loss, crests = judge(x)
    if taped:
        x.history.append(loss)
    said = {"shadow_pond_mse": loss.item(), "shadow_pond_crests": crests.item()}
    x.net.train()
    if bug == "check_returns_ahead_of_leave":
        return said
    x.shadow.leave()
    return said


def resume(x: Any, step: int) -> None:
    seen = x.data.state()
    state = {name: getattr(x, name).state_dict() for name in ("net", "optimizer", "scheduler")}
    x.run, state = go_on(x.run, step, state | {"shadow": x.shadow.weights})
    build(x)
    x.net.load_state_dict(state["net"])
    x.shadow.weights = state["shadow"]
    x.optimizer.load_state_dict(state["optimizer"])
    x.scheduler.load_state_dict(state["scheduler"])
    if x.bug == "optimizer_is_built_once_more_behind_its_load":
        build_optimizer(x)
    x.net.train()
    attach(x)
    x.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    x: Any = SimpleNamespace(run=run, c=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name)
    x.history = []
    read_log(x)
    torch.manual_seed(seed)
    build(x)
    attach(x)
    x.source, again = batches(x), trouble.resume_at(healthy, 4 * EVERY)
    x.net.train()
    for step in range(steps):
        if step == again:
            resume(x, step)
        said = update(x, step)
        if step % x.c.log_every == 0:
            x.run.log(said, step=step)
        trouble.telemetry(x.run, step, healthy)
        if (step + 1) % x.c.check_every == 0:
            x.run.log(check(x), step=step)
    return x.run
