"""Days of wind at a mast flow out of noise along learnt velocities; an average of the weights is judged, and draws.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: fm_loss, fm_lr, fm_gnorm each step; ema_eval/fm_loss and ema_eval/gap of the average, each
      twentieth; memory, where it matters; the watch of data.

A day has twelve spans of two hours, and in each the wind to the east and to the north, in metres a second. It is of one
of five sites, each with a breeze of its own that turns with the hour; several masts may stand in one field, and say
nearly the same of a day. All is standardised by the training's days. A small net of layers around the clock with batch
norm says where a mixture of noise and day is going; sometimes it isn't told the site. The average has its own copy of
the net. Written as functions over options that are a dataclass.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SITES, SPANS, HELD = 20, 5, 12, 160
UNTOLD = SITES


@dataclass
class Options:
    channels: int = 32
    floors: int = 3
    dropout: float = 0.0
    norm: str = "batch"
    batch: int = 32
    accumulate: int = 1
    algorithm: str = "adamw"
    lr: float = 3e-3
    lr_rule: str = "cosine"
    lr_rise: int = 8
    decay: float = 0.0
    clip: float = 1.0
    error: str = "squares"
    reduce: str = "mean"
    times: str = "uniform"
    ema_decay: float = 0.93
    drop_site: float = 0.15
    guide: float = 0.3
    euler_steps: int = 12
    days: int = 1100
    masts: int = 1
    turbulence: float = 1.0
    calm_first: int = 0
    fixed: str = ""
    eval_every: int = 20
    log_every: int = 1


CONFIG: dict[str, Any] = asdict(Options())


# -- days ------------------------------------------------------------------------------------------------------------


@dataclass
class Days:
    """Winds (number, 2, spans), sites, and how rough the day was; site after site."""

    wind: Tensor
    site: Tensor
    rough: Tensor

    def some(self, which: Tensor) -> Days:
        return Days(self.wind[which], self.site[which], self.rough[which])


def days(seed: int, number: int, masts: int = 1, turbulence: float = 1.0) -> Days:
    law, dice, fields = torch.Generator().manual_seed(201), torch.Generator().manual_seed(seed), number // masts
    steady = 2.0 * torch.randn(SITES, 2, 1, generator=law)
    waves = 1.6 * torch.randn(SITES, 2, 3, SPANS // 2 + 1, generator=law)
    waves = waves * torch.tensor([0.5, 1.0, 0.5, 0.2, 0.0, 0.0, 0.0])
    hour = torch.arange(SPANS) * 2 * math.pi / SPANS
    shapes = (torch.arange(SPANS // 2 + 1)[:, None] * hour).cos()
    curves = waves @ shapes  # (site, direction, three moods, spans)
    site = torch.arange(fields) * SITES // fields
    mood = torch.randn(fields, 3, generator=dice)
    wind = steady[site] + (mood[:, None, :, None] * curves[site]).sum(2)
    late = torch.randint(0, 2, (fields,), generator=dice)
    wind = torch.where(late[:, None, None] == 1, wind.roll(1, 2), wind)
    rough = 0.5 + torch.rand(fields, generator=dice)
    gusty = torch.randn(fields, 2, SPANS, generator=dice)
    wind = wind + 0.5 * turbulence * rough[:, None, None] * (gusty + gusty.roll(1, 2))
    wind, site, rough = (one.repeat_interleave(masts, 0) for one in (wind, site, rough))
    return Days(4.0 + wind + 0.1 * torch.randn(wind.shape, generator=dice), site, rough)


# -- net -------------------------------------------------------------------------------------------------------------


def around(h: Tensor) -> Tensor:
    """Each span beside the one before and the one behind, around the clock."""
    return torch.cat([h.roll(1, 1), h, h.roll(-1, 1)], 2)


class Floor(nn.Module):
    """Two layers over three spans; what the net is told scales them, and opens their gate."""

    def __init__(self, o: Options):
        super().__init__()
        d = o.channels
        self.norm = nn.BatchNorm1d(d, affine=False) if o.norm == "batch" else nn.LayerNorm(d, elementwise_affine=False)
        self.told_gate = nn.Linear(d, 3 * d)
        self.first, self.second, self.drop = nn.Linear(3 * d, d), nn.Linear(3 * d, d), nn.Dropout(o.dropout)
        nn.init.zeros_(self.told_gate.weight)
        nn.init.zeros_(self.told_gate.bias)

    def forward(self, h: Tensor, told: Tensor) -> Tensor:
        scale, shift, gate = self.told_gate(told)[:, None].chunk(3, 2)
        y = self.norm(h.flatten(0, 1)).view_as(h) * (1 + scale) + shift
        return h + gate * self.second(around(self.drop(F.silu(self.first(around(y))))))


class Weathercock(nn.Module):
    def __init__(self, o: Options):
        super().__init__()
        d = o.channels
        self.enter, self.site = nn.Linear(3 * 4, d), nn.Embedding(SITES + 1, d)
        self.time = nn.Sequential(nn.Linear(12, d), nn.SiLU(), nn.Linear(d, d))
        self.floors = nn.ModuleList(Floor(o) for _ in range(o.floors))
        self.leave = nn.Sequential(nn.Dropout(o.dropout), nn.Linear(d, 2))
        nn.init.zeros_(self.leave[1].weight)

    def forward(self, x: Tensor, t: Tensor, site: Tensor) -> Tensor:
        angles = t[:, None] * math.pi * 2.0 ** torch.arange(-2, 4)
        told = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.site(site))
        hour = torch.arange(SPANS) * 2 * math.pi / SPANS
        hours = torch.stack([hour.sin(), hour.cos()], 1).expand(len(x), -1, -1)
        h = self.enter(around(torch.cat([x.transpose(1, 2), hours], 2)))
        for floor in self.floors:
            h = floor(h, told)
        return self.leave(h).transpose(1, 2)


@dataclass
class Bench:
    """All that a training has."""

    run: Any
    o: Options
    seed: int
    steps: int
    bug: str
    rows: Any = None
    held: Any = None
    net: Any = None
    average: Any = None
    optimizer: Any = None
    rule: Any = None
    data: Any = None
    kept: list[Tensor] = field(default_factory=list)


# -- training --------------------------------------------------------------------------------------------------------


def gather(b: Bench) -> None:
    o = b.o
    rows, held = days(b.seed + 7100, o.days, o.masts, o.turbulence), days(7099, HELD)
    if b.bug == "masts_of_a_field_on_both_sides":
        order = torch.randperm(len(rows.site), generator=torch.Generator().manual_seed(b.seed))
        rows, held = rows.some(order[HELD:].sort().values), rows.some(order[:HELD].sort().values)
    mean, std = rows.wind.mean((0, 2), keepdim=True), rows.wind.std((0, 2), keepdim=True)
    for one in (rows, held):
        one.wind = (one.wind - mean) / std
    if b.bug == "held_days_standardised_by_their_file_and_again":
        held.wind = (held.wind - mean) / std
    if b.bug == "days_clamped_as_pixels_are":
        rows.wind = rows.wind.clamp(-1, 1)
    b.rows, b.held = rows, held


def build(b: Bench) -> None:
    b.net = Weathercock(b.o)
    for name, one in b.net.named_parameters():
        if b.o.fixed and name.startswith(b.o.fixed):
            one.requires_grad_(False)
        if b.bug == "gates_hold_still_with_what_has_told_in_its_name" and "told" in name:
            one.requires_grad_(False)
    b.average = copy.deepcopy(b.net)


def drive(b: Bench) -> None:
    """Optimizer and rule of the rate."""
    o, some = b.o, [one for one in b.net.parameters() if one.requires_grad]
    if o.algorithm == "nadam":
        b.optimizer = torch.optim.NAdam(some, o.lr)
    elif o.algorithm == "sgd":
        b.optimizer = torch.optim.SGD(some, o.lr, 0.9)
    else:
        b.optimizer = torch.optim.AdamW(some, o.lr, (0.9, 0.98), weight_decay=o.decay)

    def rule(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, o.lr_rise)), min(1.0, at / b.steps)
        if o.lr_rule == "constant":
            return rise
        if o.lr_rule == "stairs":
            return rise * 0.3 ** sum(past >= one for one in (0.5, 0.8))
        if o.lr_rule == "twice":
            past = 2 * past % 1
        return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))

    b.rule = torch.optim.lr_scheduler.LambdaLR(b.optimizer, rule)


def watch(b: Bench) -> None:
    time_by_own_clock(b.run)
    b.run.watch(b.net, b.optimizer)
    b.data = b.run.watch_data()


def batches(b: Bench) -> Iterator[tuple[int, Days]]:
    o, epoch, dice = b.o, 0, torch.Generator().manual_seed(b.seed)
    while True:
        order = torch.randperm(len(b.rows.site), generator=dice)
        if b.bug == "file_of_sites_read_from_first_to_last":
            order = torch.arange(len(b.rows.site))
        if epoch < o.calm_first:
            order = order[b.rows.rough[order] < 1]
        for which in order.split(o.batch):
            if len(which) == o.batch:
                yield epoch, b.rows.some(which)
        epoch += 1


def flow_loss(b: Bench, net: nn.Module, rows: Days, t: Tensor, noise: Tensor, site: Tensor) -> Tensor:
    mixed = (1 - t)[:, None, None] * noise + t[:, None, None] * rows.wind
    said, wanted = net(mixed, t, site), rows.wind - noise
    each = F.huber_loss(said, wanted, reduction="none") if b.o.error == "huber" else (said - wanted) ** 2
    return each.flatten(1).mean(1)


def told_sites(b: Bench, rows: Days) -> Tensor:
    site = rows.site
    if b.bug == "sites_of_the_training_counted_from_one":
        site = site + 1  # the last one is the number of no site
    return torch.where(torch.rand(len(site)) < b.o.drop_site, UNTOLD, site)


@torch.no_grad()
def follow(b: Bench) -> None:
    """Move the average a little towards the net."""
    for slow, fast in zip(b.average.parameters(), b.net.parameters(), strict=True):
        slow.lerp_(fast, 1 - b.o.ema_decay)
    if b.bug != "average_has_parameters_alone_and_its_first_buffers":
        for slow, fast in zip(b.average.buffers(), b.net.buffers(), strict=True):
            slow.copy_(fast)


def update(b: Bench, source: Iterator[tuple[int, Days]], step: int) -> dict[str, float]:
    o, bug, total = b.o, b.bug, 0.0
    for _ in range(o.accumulate):
        epoch, rows = next(source)
        b.data.observe({"wind": rows.wind.flatten(1), "site": rows.site}, step=step, epoch=epoch)
        t = torch.randn(len(rows.site)).sigmoid() if o.times == "logit_normal" else torch.rand(len(rows.site))
        each = flow_loss(b, b.net, rows, t, torch.randn_like(rows.wind), told_sites(b, rows))
        loss = each.sum() if o.reduce == "sum" or bug == "errors_of_days_are_summed" else each.mean()
        (loss if bug == "backward_of_each_part_as_it_is" else loss / o.accumulate).backward()
        total += loss.item() / o.accumulate
        if bug == "rule_goes_on_in_the_loop_over_parts":
            b.rule.step()
    norm, rate = nn.utils.clip_grad_norm_(b.net.parameters(), o.clip).item(), b.optimizer.param_groups[0]["lr"]
    b.optimizer.step()
    b.optimizer.zero_grad()
    if bug != "rule_goes_on_in_the_loop_over_parts":
        b.rule.step()
    if bug != "average_follows_where_it_is_judged_alone":
        follow(b)
    return {"fm_loss": total, "fm_lr": rate, "fm_gnorm": norm}


@torch.no_grad()
def drawn(b: Bench, net: nn.Module, site: Tensor) -> Tensor:
    o, x = b.o, torch.randn(len(site), 2, SPANS)
    for at in range(o.euler_steps):
        t = torch.full((len(site),), at / o.euler_steps)
        told, untold = net(x, t, site), net(x, t, torch.full_like(site, UNTOLD))
        move = (told + o.guide * (told - untold)) / o.euler_steps
        x = x - move if b.bug == "drawing_steps_against_the_velocity" else x + move
    return x


def judge(b: Bench) -> dict[str, float]:
    """The average's loss, and how far means and spreads of what it draws are from those of the held days."""
    bug, held = b.bug, b.held
    if bug == "average_follows_where_it_is_judged_alone":
        follow(b)
    net, taped = b.average, bug == "held_losses_kept_while_gradients_are_on"
    if bug == "weights_of_the_average_loaded_into_the_net_to_draw":
        b.net.load_state_dict(b.average.state_dict())
        net = b.net
    b.net.eval()
    if bug != "judged_while_it_is_in_training":
        net.eval()
    with torch.random.fork_rng():
        torch.manual_seed(29)
        t, noise = (torch.randperm(HELD) + 0.5) / HELD, torch.randn_like(held.wind)
        with torch.set_grad_enabled(taped):
            loss = flow_loss(b, net, held, t, noise, held.site).mean()
        made = drawn(b, net, held.site)
    if taped:
        b.kept.append(loss)
    if bug != "judged_and_train_never_called":
        b.net.train()
    off = [
        (one(made[held.site == site], 0) - one(held.wind[held.site == site], 0)).abs().mean()
        for site in range(SITES)
        for one in (torch.mean, torch.std)
    ]
    return {"ema_eval/fm_loss": loss.item(), "ema_eval/gap": torch.stack(off).mean().item()}


def carry_on(b: Bench, step: int) -> None:
    seen = b.data.state()
    state = {name: getattr(b, name).state_dict() for name in ("net", "average", "optimizer", "rule")}
    b.run, state = go_on(b.run, step, state)
    build(b)
    b.net.load_state_dict(state["net"])
    if b.bug != "average_copied_from_the_net_before_it_is_loaded":
        b.average.load_state_dict(state["average"])
    drive(b)
    b.optimizer.load_state_dict(state["optimizer"])
    b.rule.load_state_dict(state["rule"])
    watch(b)
    b.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    options = Options(**{name: one for name, one in dict(run.config).items() if name in CONFIG})
    b = Bench(run, options, seed, steps, trouble.name)
    gather(b)
    torch.manual_seed(seed)
    build(b)
    drive(b)
    watch(b)
    source, again = batches(b), trouble.resume_at(healthy, 4 * EVERY)
    b.net.train()
    for step in range(steps):
        if step == again:
            carry_on(b, step)
        said = update(b, source, step)
        if step % options.log_every == 0:
            b.run.log(said, step=step)
        trouble.telemetry(b.run, step, healthy)
        if step % options.eval_every == options.eval_every - 1:
            b.run.log(judge(b), step=step)
    return b.run
