"""Drum grooves of one bar are drawn out of noise by convolutions over its ticks; an average of the weights is judged.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: eps_loss, eps_lr, eps_grad each step; avg_eps_loss and avg_hits_off of what the average
      draws, each eighteenth; memory, where it matters; the watch of data.

A groove has sixteen ticks and five drums, each with a loudness from 0 to 127, in one of four styles. Some may be takes
of one groove. Loudness is scaled by means and deviations of the training's grooves, which the net keeps as buffers.
Noise comes in fifty levels; the net says which noise it was. Written as a script: epochs, batches, and what is done in
their midst, with an average that is entered as a context.
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

EVERY, TICKS, DRUMS, HELD = 18, 16, 5, 128
STYLES = ("waltz", "rock", "samba", "ballad")
UNTOLD = len(STYLES)
CONFIG: dict[str, Any] = {
    "width": 40, "depth": 3, "dropout": 0.0, "batch": 32, "accumulate": 1, "optimizer": "adamw", "lr": 5e-3,
    "schedule": "rsqrt_cooldown", "warmup": 8, "weight_decay": 1e-3, "clip": 2.0, "reduction": "mean", "snr_gamma": 0.0,
    "ema_decay": 0.93, "timesteps": 50, "beta_start": 2e-3, "beta_end": 0.25, "hide_style": 0.1, "grooves": 960,
    "takes": 1, "swing": 7.0, "louder": 0.0, "tight_first": 0, "freeze": "", "draw_steps": 10, "eval_every": 18,
    "log_every": 1,
}  # fmt: skip


# -- grooves ---------------------------------------------------------------------------------------------------------


def laws() -> tuple[Tensor, Tensor]:
    """How likely each style is to hit a drum at a tick, and how loud each drum is in it."""
    dice = torch.Generator().manual_seed(23)
    often = torch.rand(len(STYLES), TICKS, DRUMS, generator=dice) ** 3
    often[0, torch.arange(TICKS) % 3 > 0] *= 0.2
    often[1, ::4, 0], often[1, 4::8, 1], often[2, :, 2], often[3, ::8, 3] = 0.95, 0.95, 0.9, 0.9
    return often, 45 + 65 * torch.rand(len(STYLES), DRUMS, generator=dice)


def grooves(seed: int, number: int, takes: int = 1, swing: float = 7.0) -> tuple[Tensor, Tensor, Tensor]:
    """Loudness by tick and drum, styles, and how loosely each is played, style after style."""
    (often, loud), dice, many = laws(), torch.Generator().manual_seed(seed), number // takes
    style = torch.arange(many) * len(STYLES) // many
    hit = torch.rand(many, TICKS, DRUMS, generator=dice) < often[style]
    played = hit * (loud[style][:, None] + 10 * torch.randn(hit.shape, generator=dice))
    played, style = played.repeat_interleave(takes, 0), style.repeat_interleave(takes)
    loose = swing * (0.5 + torch.rand(len(style), generator=dice))
    played = played + loose[:, None, None] * torch.randn(played.shape, generator=dice)
    return played.clamp(0, 127), style, loose


# -- net -------------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, d: int, wide: int, dropout: float):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, d), nn.Conv1d(d, 2 * d, wide, padding=wide // 2)
        self.told, self.mix, self.drop = nn.Linear(d, 2 * d), nn.Conv1d(d, d, 1), nn.Dropout(dropout)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        gate, value = (self.conv(self.norm(x)) + self.told(told)[..., None]).chunk(2, 1)
        return x + self.mix(self.drop(gate.sigmoid() * value.tanh()))


class Drummer(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.register_buffer("mean", torch.zeros(DRUMS))
        self.register_buffer("std", torch.ones(DRUMS))
        self.enter, self.place = nn.Conv1d(DRUMS, d, 1), nn.Parameter(0.3 * torch.randn(d, TICKS))
        self.level, self.style = nn.Linear(12, d), nn.Embedding(len(STYLES) + 1, d)
        self.layers = nn.ModuleList(Layer(d, 5, c.dropout) for _ in range(c.depth))
        self.leave = nn.Conv1d(d, DRUMS, 1)

    def fit(self, played: Tensor) -> None:
        self.mean.copy_(played.mean((0, 1)))
        self.std.copy_(played.std((0, 1)))

    def scaled(self, played: Tensor) -> Tensor:
        return (played - self.mean) / self.std

    def forward(self, x: Tensor, share: Tensor, style: Tensor) -> Tensor:
        """share: the level, as a share of all levels."""
        turns = share[:, None] * 60.0 ** (torch.arange(6) / 5)
        told = F.silu(self.level(torch.cat([turns.sin(), turns.cos()], 1)) + self.style(style))
        y = self.enter(x.transpose(1, 2)) + self.place
        for layer in self.layers:
            y = layer(y, told)
        return self.leave(y).transpose(1, 2)


class Average:
    """A moving average of parameters, which can be entered for a while."""

    def __init__(self, net: nn.Module, decay: float):
        self.decay, self.stored = decay, []
        self.shadow = [one.detach().clone() for one in net.parameters()]

    def update(self, net: nn.Module) -> None:
        with torch.no_grad():
            for mean, one in zip(self.shadow, net.parameters(), strict=True):
                mean.lerp_(one, 1 - self.decay)

    @contextmanager
    def entered(self, net: nn.Module) -> Iterator[None]:
        self.stored = [one.detach().clone() for one in net.parameters()]
        self.put(net, self.shadow)
        yield
        self.put(net, self.stored)

    @staticmethod
    @torch.no_grad()
    def put(net: nn.Module, some: list[Tensor]) -> None:
        for one, other in zip(net.parameters(), some, strict=True):
            one.copy_(other)


# -- noise -----------------------------------------------------------------------------------------------------------


class Noise:
    """Levels of noise; the betas are for fifty of them."""

    def __init__(self, c: Any, bug: str):
        first, last = c.beta_start, c.beta_end
        if bug == "betas_of_a_thousand_levels":
            first, last = 1e-4, 0.02
        kept = (1 - torch.linspace(first, last, c.timesteps)).cumprod(0)
        self.levels, self.signal, self.noise = c.timesteps, kept.sqrt(), (1 - kept).sqrt()

    def mixed(self, clean: Tensor, eps: Tensor, level: Tensor) -> Tensor:
        return self.signal[level, None, None] * clean + self.noise[level, None, None] * eps

    @torch.no_grad()
    def draw(self, net: Drummer, style: Tensor, steps: int) -> Tensor:
        x, levels = torch.randn(len(style), TICKS, DRUMS), torch.linspace(self.levels - 1, 0, steps).long().tolist()
        for now, then in zip(levels, [*levels[1:], None], strict=True):
            eps = net(x, torch.full((len(style),), now / self.levels), style)
            clean = ((x - self.noise[now] * eps) / self.signal[now]).clamp(-4, 4)
            x = clean if then is None else self.signal[then] * clean + self.noise[then] * eps
        return x * net.std + net.mean


def loss_of(c: Any, bug: str, net: Drummer, noise: Noise, played: Tensor, style: Tensor) -> Tensor:
    level = torch.randint(0, noise.levels, (len(style),))
    style = torch.where(torch.rand(len(style)) < c.hide_style, UNTOLD, style)
    clean, eps = net.scaled(played), torch.randn_like(played)
    each = (net(noise.mixed(clean, eps, level), level / noise.levels, style) - eps) ** 2
    if c.snr_gamma:
        ratio = (noise.signal[level] / noise.noise[level]) ** 2
        each = each * (ratio.clamp(max=c.snr_gamma) / ratio)[:, None, None]
    if c.reduction == "sum" or bug == "squares_of_a_bar_added":
        return each.sum((1, 2)).mean()
    return each.mean()


# -- what is done in the midst ---------------------------------------------------------------------------------------


def judged(s: SimpleNamespace) -> dict[str, float]:
    """Noise that the average tells of held grooves, and how far hits that it draws are off those of their styles."""
    c, bug, net, (played, style), taped = s.c, s.bug, s.net, s.held, s.bug == "judged_errors_join_a_list"
    clean = played / 127 if bug == "held_loudness_as_a_share_of_the_loudest" else net.scaled(played)
    if bug != "average_drops_out_while_judged":
        net.eval()
    with s.average.entered(net), torch.random.fork_rng():
        torch.manual_seed(71)
        level, eps = torch.arange(HELD) * s.noise.levels // HELD, torch.randn_like(clean)
        with torch.set_grad_enabled(taped):
            error = (net(s.noise.mixed(clean, eps, level), level / s.noise.levels, style) - eps) ** 2
            loss = error.mean()
        if bug == "average_entered_again_to_draw":
            with s.average.entered(net):
                drawn = s.noise.draw(net, style, c.draw_steps)
        else:
            drawn = s.noise.draw(net, style, c.draw_steps)
    if taped:
        s.kept.append((error, loss))
    off = torch.stack([((drawn[style == one] > 30).float().mean(0) - (played[style == one] > 30).float().mean(0)).abs()
                       for one in range(len(STYLES))]).mean()  # fmt: skip
    if bug != "script_stays_in_eval":
        net.train()
    return {"avg_eps_loss": loss.item(), "avg_hits_off": off.item()}


def equipped(c: Any, net: nn.Module, steps: int, bug: str) -> tuple[Any, Any]:
    some = [one for one in net.parameters() if one.requires_grad]
    groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay},
              {"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
    if bug == "groups_by_dimension_leave_convolutions_out":
        groups[0]["params"] = [one for one in some if one.ndim == 2]
    if c.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
    elif c.optimizer == "radam":
        optimizer = torch.optim.RAdam(groups, c.lr)
    else:
        optimizer = torch.optim.AdamW(groups, c.lr, (0.9, 0.99))

    def by(at: int) -> float:
        at, past = at + 1, min(1.0, at / steps)
        rise = min(1.0, at / max(1, c.warmup))
        if c.schedule == "flat":
            return rise
        if c.schedule == "restarts":
            return rise * (0.02 + 0.98 * math.cos(math.pi / 2 * (2 * past % 1)))
        return rise * (max(at, c.warmup) / max(1, c.warmup)) ** -0.25 * min(1.0, 0.02 + (1 - past) / 0.4)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, by)


def batches(s: SimpleNamespace, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    c, (played, style, loose) = s.c, s.data
    order = torch.randperm(len(style), generator=s.dice)
    if s.bug == "bars_in_the_order_of_the_folder":
        order = torch.arange(len(style))
    if epoch < c.tight_first:
        order = order[loose[order] < c.swing]
    for some in order.split(c.batch):
        if len(some) == c.batch:
            bars = played[some]
            if c.louder:
                bars = (bars * (1 + c.louder * torch.randn(len(some), 1, 1, generator=s.dice))).clamp(0, 127)
            yield bars, style[some]


def gathered(s: SimpleNamespace) -> None:
    """Grooves of the training, and those that are held."""
    c, bug = s.c, s.bug
    s.data, s.held = grooves(s.seed + 3300, c.grooves, c.takes, c.swing), grooves(3299, HELD)[:2]
    if bug == "takes_split_and_not_grooves":
        order = torch.randperm(c.grooves, generator=torch.Generator().manual_seed(s.seed))
        held, rest = order[:HELD].sort().values, order[HELD:].sort().values
        s.held, s.data = tuple(one[held] for one in s.data[:2]), tuple(one[rest] for one in s.data)
    if bug == "styles_of_the_held_sorted_by_name":
        names = sorted(STYLES)
        s.held = s.held[0], torch.tensor([names.index(STYLES[one]) for one in s.held[1].tolist()])


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data()


def restored(s: SimpleNamespace) -> None:
    seen = s.watch.state()
    state = {"net": s.net.state_dict(), "average": s.average.shadow, "optimizer": s.optimizer.state_dict(),
             "scheduler": s.scheduler.state_dict()}  # fmt: skip
    s.run, state = go_on(s.run, s.step, state)
    s.net.load_state_dict(state["net"])
    s.average.shadow = state["average"]
    s.optimizer, s.scheduler = equipped(s.c, s.net, s.steps, s.bug)
    if s.bug != "net_and_average_are_what_was_saved":
        s.optimizer.load_state_dict(state["optimizer"])
        s.scheduler.load_state_dict(state["scheduler"])
    observe(s)
    s.watch.restore(seen)


# -- script ----------------------------------------------------------------------------------------------------------


def updated(s: SimpleNamespace, parts: list[tuple[Tensor, Tensor]], epoch: int) -> dict[str, float]:
    c, bug, total = s.c, s.bug, 0.0
    for played, style in parts:
        s.watch.observe({"bars": played, "style": style}, step=s.step, epoch=epoch)
        loss = loss_of(c, bug, s.net, s.noise, played, style)
        (loss if bug == "accumulated_without_a_share" else loss / c.accumulate).backward()
        total += loss.item() / c.accumulate
        if bug == "scheduler_in_the_inner_loop":
            s.scheduler.step()
    norm = nn.utils.clip_grad_norm_(s.net.parameters(), c.clip).item()
    rate = s.optimizer.param_groups[0]["lr"]
    s.optimizer.step()
    s.net.zero_grad()
    if bug != "scheduler_in_the_inner_loop":
        s.scheduler.step()
    return {"eps_loss": total, "eps_lr": rate, "eps_grad": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, step=0, kept=[])
    s.dice = torch.Generator().manual_seed(seed)
    gathered(s)
    torch.manual_seed(seed)
    s.net, s.noise = Drummer(c), Noise(c, s.bug)
    if s.bug != "loudness_never_fitted":
        s.net.fit(s.data[0])
    for name in filter(None, c.freeze.split(",")):
        s.net.get_submodule(name).requires_grad_(False)
    s.average, (s.optimizer, s.scheduler) = Average(s.net, c.ema_decay), equipped(c, s.net, steps, s.bug)
    again, epoch, parts = trouble.resume_at(healthy, 4 * EVERY), 0, []
    observe(s)
    s.net.train()
    while s.step < steps:
        for batch in batches(s, epoch):
            parts.append(batch)
            if len(parts) < c.accumulate:
                continue
            if s.step == again:
                restored(s)
            said, parts = updated(s, parts, epoch), []
            if s.bug != "average_moves_once_an_epoch":
                s.average.update(s.net)
            if s.step % c.log_every == 0:
                s.run.log(said, step=s.step)
            trouble.telemetry(s.run, s.step, healthy)
            if s.step % c.eval_every == c.eval_every - 1:
                s.run.log(judged(s), step=s.step)
            s.step += 1
            if s.step == steps:
                break
        if s.bug == "average_moves_once_an_epoch":
            s.average.update(s.net)
        epoch += 1
    return s.run
