"""Years of weather stations are drawn out of noise by a small transformer over months; torch's average is what draws.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: x0/train, x0/rate, x0/gnorm each step; sampled/x0 and sampled/zone_gap of the averaged
      model, each sixteenth; memory, where it matters; the watch of data.

A year has twelve months of warmth, rain, wind and sun, each in its own unit, at a station of one of five zones; several
years may be of one station. Years are scaled by figures of the training's stations. Noise is by a cosine over a time
from 0 to 1, and the net says what the year was without it. Zones are hidden now and then, so that what is drawn can be
guided. Written as a module of hooks that a loop calls, with `AveragedModel` beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EVERY, MONTHS, QUANTITIES, HELD = 16, 12, 4, 120
ZONES = ("desert", "steppe", "coast", "taiga", "rainforest")
HIDDEN = len(ZONES)
CONFIG: dict[str, Any] = {
    "width": 40, "blocks": 2, "heads": 4, "dropout": 0.0, "batch": 24, "micro_batches": 1, "optimizer": "adamw",
    "lr": 3e-3, "decay": "cosine", "warmup": 10, "weight_decay": 0.01, "max_norm": 1.0, "reduce": "mean",
    "weighting": "flat", "ema_decay": 0.92, "hide_zone": 0.15, "guidance": 1.5, "draw_steps": 8, "stations": 1000,
    "years": 1, "odd_weather": 1.0, "gauge_error": 0.0, "mild_first": 0, "freeze": "", "sample_every": 16,
    "log_every": 1,
}  # fmt: skip


# -- stations --------------------------------------------------------------------------------------------------------


def stations(seed: int, number: int, years: int = 1, odd: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Months by quantities, zones, and how odd a year was; zone after zone."""
    dice, many = torch.Generator().manual_seed(seed), number // years
    zone = torch.arange(many) * len(ZONES) // many
    level = torch.tensor([[27.0, 8, 4, 300], [9, 35, 6, 210], [13, 80, 9, 160], [-3, 45, 3, 130], [25, 240, 2, 140]])
    swing = torch.tensor([[8.0, 6, 1, 40], [15, 18, 1.5, 90], [6, 25, 2.5, 70], [19, 22, 0.8, 100], [1.5, 90, 0.5, 25]])
    turn = 2 * math.pi * torch.arange(MONTHS)[None, :, None] / MONTHS
    late = torch.tensor([0.0, 1.2, 2.8, -0.4])[None, None] + 0.35 * torch.randn(many, 1, 1, generator=dice)
    own = 1 + 0.25 * torch.randn(many, 1, QUANTITIES, generator=dice)
    made = level[zone][:, None] - own * swing[zone][:, None] * (turn - late).cos()
    made, zone = made.repeat_interleave(years, 0), zone.repeat_interleave(years)
    strange = odd * (0.5 + torch.rand(len(zone), generator=dice))
    noise = torch.randn(made.shape, generator=dice) * torch.tensor([1.6, 12.0, 0.7, 14.0])
    return made + strange[:, None, None] * noise, zone, strange


# -- net -------------------------------------------------------------------------------------------------------------


class Season(nn.Module):
    """A block over months whose norms are moved by what it is told."""

    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.attention, self.drop = (
            nn.MultiheadAttention(d, heads, dropout=dropout, batch_first=True),
            nn.Dropout(dropout),
        )
        self.norm1, self.norm2 = (nn.LayerNorm(d, elementwise_affine=False) for _ in range(2))
        self.shift = nn.Linear(d, 4 * d)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x: Tensor, said: Tensor) -> Tensor:
        a, b, c, e = self.shift(said)[:, None].chunk(4, 2)
        y = self.norm1(x) * (1 + a) + b
        x = x + self.drop(self.attention(y, y, y, need_weights=False)[0])
        return x + self.drop(self.mlp(self.norm2(x) * (1 + c) + e))


class Weather(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.enter, self.months = nn.Linear(QUANTITIES, d), nn.Parameter(0.2 * torch.randn(MONTHS, d))
        self.zones, self.clock = nn.Embedding(len(ZONES) + 1, d), nn.Linear(16, d)
        self.blocks = nn.ModuleList(Season(d, c.heads, c.dropout) for _ in range(c.blocks))
        self.leave = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, QUANTITIES))

    def forward(self, x: Tensor, time: Tensor, zone: Tensor) -> Tensor:
        """time: from 0, where there is no noise, to 1."""
        waves = time[:, None] * math.pi * 2.0 ** (torch.arange(8) / 2)
        said = F.silu(self.clock(torch.cat([waves.sin(), waves.cos()], 1)) + self.zones(zone))
        y = self.enter(x) + self.months
        for block in self.blocks:
            y = block(y, said)
        return self.leave(y)


def shares(time: Tensor) -> tuple[Tensor, Tensor]:
    """Of the year and of the noise, by a cosine."""
    turn = (0.01 + 0.98 * time) * math.pi / 2
    return turn.cos()[:, None, None], turn.sin()[:, None, None]


# -- module of hooks -------------------------------------------------------------------------------------------------


class ClimateModule:
    """What a loop calls: a step of the training, one of the judging, and what is done behind them."""

    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.dice, self.collected = torch.Generator().manual_seed(seed), []

    def setup(self) -> None:
        c, bug = self.c, self.bug
        years, zone, strange = stations(self.seed + 8100, c.stations, c.years, c.odd_weather)
        held, held_zone, _ = stations(8099, HELD)
        if bug == "years_of_a_station_on_both_sides":
            order = torch.randperm(len(zone), generator=torch.Generator().manual_seed(self.seed))
            mine, rest = order[:HELD].sort().values, order[HELD:].sort().values
            held, held_zone = years[mine], zone[mine]
            years, zone, strange = years[rest], zone[rest], strange[rest]
        fitted = years[:100] if bug == "scaler_fitted_on_the_first_hundred_stations" else years
        self.mean, self.std = fitted.mean((0, 1)), fitted.std((0, 1))
        if bug == "held_stations_in_fahrenheit":
            held = torch.cat([held[..., :1] * 1.8 + 32, held[..., 1:]], 2)
        if bug == "zones_counted_from_one_in_the_station_file":
            zone = zone + 1
        self.years, self.zone, self.strange = (years - self.mean) / self.std, zone, strange
        self.held, self.held_zone = (held - self.mean) / self.std, held_zone
        torch.manual_seed(self.seed)
        self.net = Weather(c)
        for name, one in self.net.named_parameters():
            named = bool(c.freeze) and name.startswith(c.freeze)
            one.requires_grad_(named if bug == "freeze_condition_is_the_wrong_way_round" else not named)
        multi = None if bug == "averaged_model_without_its_ema_fn" else get_ema_multi_avg_fn(c.ema_decay)
        self.ema = AveragedModel(self.net, multi_avg_fn=multi, use_buffers=True)

    def configure_optimizers(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if c.optimizer == "adamax":
            self.optimizer: Any = torch.optim.Adamax(some, c.lr)
        elif c.optimizer == "nadam":
            self.optimizer = torch.optim.NAdam(some, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.decay == "none":
                return rise
            if c.decay == "twice":
                return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def train_batches(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        c, epoch = self.c, 0
        while True:
            order = torch.randperm(len(self.zone), generator=self.dice)
            if self.bug == "stations_read_zone_by_zone":
                order = torch.arange(len(self.zone))
            if epoch < c.mild_first:
                order = order[self.strange[order] < c.odd_weather]
            for some in order.split(c.batch):
                if len(some) == c.batch:
                    years = self.years[some]
                    if c.gauge_error:
                        years = years + c.gauge_error * torch.randn(years.shape, generator=self.dice)
                    yield epoch, years, self.zone[some]
            epoch += 1

    def training_step(self, years: Tensor, zone: Tensor) -> Tensor:
        c, time = self.c, torch.rand(len(zone))
        hide = 0.0 if self.bug == "guided_though_zones_were_never_hidden" else c.hide_zone
        zone = torch.where(torch.rand(len(zone)) < hide, HIDDEN, zone)
        kept, noise = shares(time)
        each = (self.net(kept * years + noise * torch.randn_like(years), time, zone) - years) ** 2
        if c.weighting == "snr":
            each = each * ((kept / noise) ** 2).clamp(0.2, 3.0)
        if c.reduce == "sum" or self.bug == "squares_of_a_year_summed":
            return each.sum((1, 2)).mean()
        return each.mean()

    def on_train_batch_end(self) -> None:
        given = self.ema.module if self.bug == "update_parameters_given_the_average" else self.net
        self.ema.update_parameters(given)

    @torch.no_grad()
    def draw(self, net: nn.Module, zone: Tensor) -> Tensor:
        c, x = self.c, torch.randn(len(zone), MONTHS, QUANTITIES)
        times = torch.linspace(1, 0, c.draw_steps + 1)
        for now, then in pairwise(times):
            at = now.expand(len(zone))
            plain = net(x, at, torch.full_like(zone, HIDDEN))
            clean = plain + c.guidance * (net(x, at, zone) - plain)
            kept, noise = shares(at)
            eps = (x - kept * clean) / noise
            kept, noise = shares(then.expand(len(zone)))
            x = kept * clean + noise * eps
        return clean

    def validation_step(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "sampled_losses_appended_as_they_are"
        net: Any = self.ema.module
        if bug == "net_itself_made_the_average_to_draw":
            self.net.load_state_dict(self.ema.module.state_dict())
            net = self.net
        if bug != "averaged_module_left_in_training_mode":
            net.eval()
        self.net.eval()
        if bug == "averaged_module_left_in_training_mode":
            net.train()
        with torch.random.fork_rng(), torch.set_grad_enabled(taped):
            torch.manual_seed(37)
            time = (torch.arange(HELD) + 0.5) / HELD
            kept, noise = shares(time[torch.randperm(HELD)])
            time = torch.atan2(noise, kept)[:, 0, 0] * 2 / math.pi
            clean = net(kept * self.held + noise * torch.randn_like(self.held), time, self.held_zone)
            loss = F.mse_loss(clean, self.held)
            drawn = self.draw(net, self.held_zone)
        if taped:
            self.collected.append((loss, clean))
        of = [self.held_zone == one for one in range(len(ZONES))]
        gap = torch.stack([(drawn[one].mean(0) - self.held[one].mean(0)).abs().mean() for one in of]).mean()
        if bug != "eval_for_the_sampler_and_never_train_again":
            self.net.train()
        return {"sampled/x0": loss.item(), "sampled/zone_gap": gap.item()}

    def on_resume(self, step: int) -> None:
        seen = self.watch.state()
        state = {"net": self.net.state_dict(), "ema": self.ema.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, step, state)
        self.net.load_state_dict(state["net"])
        self.ema.load_state_dict(state["ema"])
        self.configure_optimizers()
        if self.bug != "weather_and_its_average_are_all_that_is_loaded":
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        self.on_watch()
        self.watch.restore(seen)

    def on_watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.watch = self.run.watch_data()


# -- loop ------------------------------------------------------------------------------------------------------------


def optimizer_step(module: ClimateModule, batches: Any, step: int) -> dict[str, float]:
    c, bug, total = module.c, module.bug, 0.0
    for _ in range(c.micro_batches):
        epoch, years, zone = next(batches)
        module.watch.observe({"years": years, "zone": zone}, step=step, epoch=epoch)
        loss = module.training_step(years, zone)
        (loss if bug == "micro_losses_backed_undivided" else loss / c.micro_batches).backward()
        total += loss.item() / c.micro_batches
        if bug == "cosine_stepped_in_each_micro_batch":
            module.scheduler.step()
    norm = nn.utils.clip_grad_norm_(module.net.parameters(), c.max_norm).item()
    rate = module.optimizer.param_groups[0]["lr"]
    module.optimizer.step()
    module.optimizer.zero_grad()
    if bug != "cosine_stepped_in_each_micro_batch":
        module.scheduler.step()
    return {"x0/train": total, "x0/rate": rate, "x0/gnorm": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    module = ClimateModule(run, seed, steps, trouble.name)
    module.setup()
    module.configure_optimizers()
    again, batches, c = trouble.resume_at(healthy, 5 * EVERY), module.train_batches(), module.c
    module.on_watch()
    module.net.train()
    for step in range(steps):
        if step == again:
            module.on_resume(step)
        said = optimizer_step(module, batches, step)
        module.on_train_batch_end()
        if step % c.log_every == 0:
            module.run.log(said, step=step)
        trouble.telemetry(module.run, step, healthy)
        if step % c.sample_every == c.sample_every - 1:
            module.run.log(module.validation_step(), step=step)
    return module.run
