"""A small transformer learns to take noise off the sound of bells from six towers; an average of its weights is judged.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: gd/step_loss, gd/rate, gd/gnorm each step; gd_ema/loss, gd_ema/power_gap of sounds that the
      average makes, each sixteenth; memory, where it matters; the watch of data.

A stroke is the sum of a bell's partials, each of which dies away; a strip of 32 samples is cut behind the stroke. The
net reads eight patches of four samples and is told the time and the tower through the scale and shift of its norms.
Times are continuous, noise grows by a cosine. Written as people write who have one file: functions, a state, and a
loop over batches without an end.
"""

from __future__ import annotations

import copy
import itertools
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, LONG, PATCH, TOWERS, HELD = 16, 32, 4, 6, 120
CONFIG: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0, "objective": "pred_v", "min_snr_gamma": 0.0, "batch_size": 32,
    "gradient_accumulate_every": 1, "train_lr": 5e-3, "opt": "adam", "adam_betas": (0.9, 0.99), "weight_decay": 0.0,
    "schedule": "cosine", "warmup_steps": 8, "max_grad_norm": 1.0, "loss_type": "l2", "loss_sum": False,
    "ema_decay": 0.95, "ema_update_every": 1, "ema_update_after_step": 0, "cond_drop_prob": 0.1, "strokes": 720,
    "takes_per_stroke": 1, "hiss": 0.02, "loud_first_epochs": 0, "frozen_modules": "", "auto_normalize": True,
    "time_sampling": "uniform", "sample_steps": 8, "eval_every": 16, "log_every": 1,
}  # fmt: skip


# -- bells ----------------------------------------------------------------------------------------------------------


def strike(seed: int, number: int, takes: int, hiss: float) -> tuple[Tensor, Tensor]:
    """Strips of sound and their towers, tower after tower. takes: strips that are cut from one stroke."""
    dice = torch.Generator().manual_seed(seed)
    many = number // takes
    tower = (torch.arange(many) * TOWERS // many).repeat_interleave(takes)
    force = (0.7 + 0.6 * torch.rand(many, generator=dice)).repeat_interleave(takes)
    phase = (0.9 * torch.rand(many, 3, generator=dice)).repeat_interleave(takes, 0)
    late = 0.1 * torch.rand(len(tower), generator=dice)
    at = torch.arange(LONG) / LONG
    sound = torch.zeros(len(tower), LONG)
    for partial, loud in enumerate((0.8, 0.5, 0.35)):
        pitch = (1.3 + 0.55 * tower) * (1.0, 2.0, 2.76)[partial]
        turns = 2 * math.pi * pitch[:, None] * (at + late[:, None]) + phase[:, partial : partial + 1]
        dies = torch.exp(-(0.8 + 0.9 * partial + 0.25 * tower[:, None]) * at)
        sound += loud * dies * torch.sin(turns)
    sound = force[:, None] * sound + 0.3 + hiss * torch.randn(sound.shape, generator=dice)  # a microphone has an offset
    return sound, tower


# -- network --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.dim
        self.heads, self.attn_norm, self.ff_norm = c.heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.to_qkv, self.to_out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.ff_in, self.ff_out, self.drop = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Dropout(c.dropout)
        self.film = nn.Linear(d, 4 * d)
        nn.init.zeros_(self.film.weight)
        nn.init.zeros_(self.film.bias)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        grow, move, grow_ff, move_ff = self.film(told)[:, None].chunk(4, -1)
        y = self.attn_norm(x) * (1 + grow) + move
        q, k, v = self.to_qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.drop(self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        y = self.ff_norm(x) * (1 + grow_ff) + move_ff
        return x + self.drop(self.ff_out(F.gelu(self.ff_in(y))))


class Denoiser(nn.Module):
    """The last row of the table is for a strip whose tower is not told."""

    def __init__(self, c: Any):
        super().__init__()
        d = c.dim
        self.patch_in, self.places = nn.Linear(PATCH, d), nn.Parameter(0.1 * torch.randn(LONG // PATCH, d))
        self.time_mlp = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.tower_emb = nn.Embedding(TOWERS + 1, d)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.depth))
        self.last_norm, self.patch_out = nn.LayerNorm(d), nn.Linear(d, PATCH)
        self.rates = torch.exp(torch.linspace(0, math.log(200), d // 2))

    def forward(self, x: Tensor, time: Tensor, tower: Tensor) -> Tensor:
        turn = time[:, None] * self.rates
        told = F.silu(self.time_mlp(torch.cat([turn.sin(), turn.cos()], 1)) + self.tower_emb(tower))
        y = self.patch_in(x.unflatten(1, (-1, PATCH))) + self.places
        for block in self.blocks:
            y = block(y, told)
        return self.patch_out(self.last_norm(y)).flatten(1)


def shares(time: Tensor) -> tuple[Tensor, Tensor]:
    """How much of the sound is left at a time, and how much noise is there."""
    angle = (0.02 + 0.96 * time[:, None]) * math.pi / 2
    return angle.cos(), angle.sin()


def target_of(c: Any, clean: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    a, s = shares(time)
    return {"pred_noise": noise, "pred_x0": clean, "pred_v": a * noise - s * clean}[c.objective]


def parts_of(c: Any, said: Tensor, noisy: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    a, s = shares(time)
    if c.objective == "pred_noise":
        return (noisy - s * said) / a, said
    clean = said if c.objective == "pred_x0" else a * noisy - s * said
    return clean, (noisy - a * clean) / s


@torch.no_grad()
def sample(c: Any, net: nn.Module, tower: Tensor) -> Tensor:
    x = torch.randn(len(tower), LONG)
    times = torch.linspace(1, 0, c.sample_steps + 1)
    for now, following in itertools.pairwise(times):
        time = now.expand(len(x))
        clean, noise = parts_of(c, net(x, time, tower), x, time)
        a, s = shares(following.expand(len(x)))
        x = a * clean.clamp(-4, 4) + s * noise
    return x


# -- training -------------------------------------------------------------------------------------------------------


class State(SimpleNamespace):
    """What a training has at hand: run, c, bug, seed, steps, net, average, optimizer, watch, tables of sounds."""


def load(s: State) -> None:
    c, bug = s.c, s.bug
    sound, tower = strike(s.seed + 2400, c.strokes, c.takes_per_stroke, c.hiss)
    held, held_tower = strike(2399, HELD, 1, 0.02)
    if bug == "takes_shuffled_then_cut":
        order = torch.randperm(len(sound), generator=torch.Generator().manual_seed(s.seed))
        mine, rest = order[:HELD], order[HELD:].sort().values
        held, held_tower, sound, tower = sound[mine], tower[mine], sound[rest], tower[rest]
    s.mean, s.std = (sound.mean(), sound.std()) if c.auto_normalize else (torch.tensor(0.0), torch.tensor(1.0))
    s.loud = sound.std(1) > sound.std(1).median()
    s.sound, s.tower = (sound - s.mean) / s.std, tower
    s.held = (held if bug == "held_strips_raw" else (held - s.mean) / s.std), held_tower


def optimizer_of(s: State) -> None:
    c, net = s.c, s.net
    some = [one for one in net.parameters() if one.requires_grad]
    if s.bug == "conditioning_left_out_of_the_groups":
        some = [one for name, one in net.named_parameters() if "film" not in name and "emb" not in name]
    if c.opt == "sgd":
        s.optimizer = torch.optim.SGD(some, c.train_lr, 0.9)
    elif c.opt == "radam":
        s.optimizer = torch.optim.RAdam(some, c.train_lr, c.adam_betas)
    else:
        s.optimizer = torch.optim.AdamW(some, c.train_lr, c.adam_betas, weight_decay=c.weight_decay)
    s.moves = 0


def rate_of(s: State, at: int) -> float:
    c, past = s.c, min(1.0, at / s.steps)
    rise = min(1.0, (at + 1) / max(1, c.warmup_steps))
    if c.schedule == "constant":
        return c.train_lr * rise
    if c.schedule == "sawtooth":
        return c.train_lr * rise * (1 - 0.95 * (2 * past % 1))
    return c.train_lr * rise * 0.5 * (1 + math.cos(math.pi * past))


def endless(s: State) -> Any:
    c, epoch, dice = s.c, 0, torch.Generator().manual_seed(s.seed)
    while True:
        order = torch.randperm(len(s.sound), generator=dice)
        if s.bug == "cycle_over_a_loader_without_shuffle":
            order = torch.arange(len(s.sound))
        if epoch < c.loud_first_epochs:
            order = order[s.loud[order]]
        for some in order.split(c.batch_size):
            if len(some) == c.batch_size:
                yield epoch, s.sound[some], s.tower[some]
        epoch += 1


def p_losses(s: State, clean: Tensor, tower: Tensor) -> Tensor:
    c, bug = s.c, s.bug
    noise = torch.rand_like(clean) if bug == "rand_like_for_randn_like" else torch.randn_like(clean)
    time = torch.rand(len(clean))
    if c.time_sampling == "logit_normal":
        time = torch.randn(len(clean)).sigmoid()
    told = tower
    if bug == "towers_counted_from_one_in_training":
        told = tower + 1
    drop = torch.rand(len(clean)) < (1 - c.cond_drop_prob if bug == "kept_and_dropped_exchanged" else c.cond_drop_prob)
    told = torch.where(drop, TOWERS, told)
    a, sigma = shares(time)
    said, wanted = s.net(a * clean + sigma * noise, time, told), target_of(c, clean, noise, time)
    each = (said - wanted).abs() if c.loss_type == "l1" else (said - wanted) ** 2
    if c.min_snr_gamma:
        snr = (a / sigma) ** 2
        each = each * snr.clamp(max=c.min_snr_gamma) / (snr + 1 if c.objective == "pred_v" else snr)
    return each.sum(1).mean() if bug == "reduce_over_samples_is_a_sum" or c.loss_sum else each.mean()


@torch.no_grad()
def ema_update(s: State, step: int) -> None:
    c, decay = s.c, s.c.ema_decay
    often = len(s.sound) // c.batch_size if s.bug == "average_updated_when_an_epoch_ends" else c.ema_update_every
    if step % often != often - 1:
        return
    if step < c.ema_update_after_step:
        decay = 0.0
    for mean, one in zip(s.average.parameters(), s.net.parameters(), strict=True):
        mean.mul_(decay).add_(one, alpha=1 - decay)


def evaluate(s: State, step: int) -> None:
    c, net, taped = s.c, s.average, s.bug == "inference_decorator_removed"
    if s.bug == "average_loaded_into_the_net_for_sampling":
        s.net.load_state_dict(s.average.state_dict())
    for one in (s.net, s.average):
        one.eval()
    if s.bug == "average_follows_the_nets_mode":
        net.train()
    net.requires_grad_(taped)
    with torch.random.fork_rng(), torch.set_grad_enabled(taped):
        torch.manual_seed(11)
        clean, tower = s.held
        time, noise = (torch.arange(len(clean)) * 37 % len(clean) + 0.5) / len(clean), torch.randn_like(clean)
        a, sigma = shares(time)
        loss = F.mse_loss(net(a * clean + sigma * noise, time, tower), target_of(c, clean, noise, time))
        made = sample(c, net, tower)
        power = [(one[tower == at] ** 2).mean() for one in (made, clean) for at in range(TOWERS)]
        gap = (torch.stack(power[:TOWERS]) - torch.stack(power[TOWERS:])).abs().mean()
    if taped:
        s.curve.append(loss)
    s.run.log({"gd_ema/loss": loss.item(), "gd_ema/power_gap": gap.item()}, step=step)
    if s.bug != "sampling_leaves_the_net_in_eval":
        s.net.train()


def observe(s: State) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.net, s.optimizer)
    s.watch = s.run.watch_data()


def resume(s: State, step: int) -> None:
    seen = s.watch.state()
    state = {"model": s.net.state_dict(), "ema": s.average.state_dict(), "opt": s.optimizer.state_dict(),
             "moves": s.moves}  # fmt: skip
    s.run, state = go_on(s.run, step, state)
    s.net.load_state_dict(state["model"])
    s.average.load_state_dict(state["ema"])
    optimizer_of(s)
    if s.bug != "milestone_holds_model_and_ema_alone":
        s.optimizer.load_state_dict(state["opt"])
        s.moves = state["moves"]
    observe(s)
    s.watch.restore(seen)


def fit(s: State, trouble: Trouble, healthy: str | None) -> None:
    c, again, stream = s.c, trouble.resume_at(healthy, 5 * EVERY), endless(s)
    often = s.bug == "rate_moves_in_the_accumulation"
    observe(s)
    s.net.train()
    for step in range(s.steps):
        if step == again:
            resume(s, step)
        total = 0.0
        for _ in range(c.gradient_accumulate_every):
            rate = rate_of(s, s.moves)
            s.moves += often
            epoch, clean, tower = next(stream)
            s.watch.observe({"sound": clean, "tower": tower}, step=step, epoch=epoch)
            loss = p_losses(s, clean, tower)
            (loss if s.bug == "part_losses_taken_whole" else loss / c.gradient_accumulate_every).backward()
            total += loss.item() / c.gradient_accumulate_every
        s.moves += not often
        for group in s.optimizer.param_groups:
            group["lr"] = rate
        norm = nn.utils.clip_grad_norm_(s.net.parameters(), c.max_grad_norm).item()
        s.optimizer.step()
        s.net.zero_grad()
        ema_update(s, step)
        if step % c.log_every == 0:
            s.run.log({"gd/step_loss": total, "gd/rate": rate, "gd/gnorm": norm}, step=step)
        trouble.telemetry(s.run, step, healthy)
        if step % c.eval_every == c.eval_every - 1:
            evaluate(s, step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s = State(run=run, c=SimpleNamespace(**run.config), bug=trouble.name, seed=seed, steps=steps, curve=[])
    load(s)
    torch.manual_seed(seed)
    s.net = Denoiser(s.c)
    s.average = copy.deepcopy(s.net).requires_grad_(False)
    for name, one in s.net.named_parameters():
        if s.c.frozen_modules and name.startswith(tuple(s.c.frozen_modules.split(","))):
            one.requires_grad_(False)
    optimizer_of(s)
    fit(s, trouble, healthy)
    return s.run
