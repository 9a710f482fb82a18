"""A diffusion model in the manner of Karras draws a day's temperatures, hour by hour, for a season.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, norm, lr); heldout_loss by `run.log`, of the average of the weights; memory, where
      it matters.

Residual blocks of dilated convolutions over the clock, told the noise and the season; Adam, an exponential fall of the
rate; a class for the average with `store`, `copy_to`, `restore`; a trainer with settings as attributes.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, HOURS, SEASONS = 20, 24, 4
CONFIG: dict[str, Any] = {
    "channels": 24, "blocks": 3, "dropout": 0.0, "batch_size": 32, "learning_rate": 3e-3, "decay_of_rate": 0.985,
    "grad_accumulation": 1, "max_norm": 2.0, "ema_decay": 0.95, "p_mean": -0.6, "p_std": 1.0, "sigma_data": 1.0,
    "days": 4000, "drop_season": 0.1, "weighted": True, "loss_type": "l2", "frozen": "", "ema": True,
    "schedule": "exponential", "heun_samples": 0, "per_row_reduction": "mean",
}  # fmt: skip


def days(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Temperatures in degrees (number, HOURS), and the season; sunny days swing, and cool down at night."""
    dice = torch.Generator().manual_seed(seed)
    season = torch.randint(0, SEASONS, (number,), generator=dice)
    mean = torch.tensor([0.0, 10.0, 21.0, 11.0])[season] + 3 * torch.randn(number, generator=dice)
    swing = torch.tensor([2.0, 5.0, 7.0, 4.0])[season] * (0.3 + 1.2 * torch.rand(number, generator=dice))
    peak = 14 + torch.randn(number, generator=dice)
    hour = torch.arange(HOURS)
    day = mean[:, None] + swing[:, None] * torch.cos(2 * math.pi * (hour - peak[:, None]) / 24)
    front = torch.rand(number, 1, generator=dice) * 24
    day = day - 4 * (torch.rand(number, 1, generator=dice) < 0.3) * (hour > front)
    return day + 0.4 * torch.randn(day.shape, generator=dice), season


class Dilated(nn.Module):
    def __init__(self, width: int, dilation: int, rate: float, told: bool):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation, padding_mode="circular")
        self.conv2, self.given = nn.Conv1d(width, width, 1), nn.Linear(32, width)
        self.rate, self.told = rate, told

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        y, gate = self.conv1(self.norm(x) + self.given(given)[:, :, None]).chunk(2, 1)
        y = torch.tanh(y) * torch.sigmoid(gate)
        y = F.dropout(y, self.rate, self.training) if self.told else F.dropout(y, self.rate)
        return x + self.conv2(y)


class Weather(nn.Module):
    """Says the clean day, by the preconditioning of Karras."""

    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        width, self.sigma_data = config["channels"], config["sigma_data"]
        self.season, self.noise = nn.Embedding(SEASONS + 1, 32), nn.Sequential(nn.Linear(17, 32), nn.SiLU())
        self.enter = nn.Conv1d(2, width, 3, padding=1, padding_mode="circular")
        told = name != "functional_always"
        self.blocks = nn.ModuleList(Dilated(width, 2**place, config["dropout"], told)
                                    for place in range(config["blocks"]))  # fmt: skip
        self.leave = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv1d(width, 1, 1))
        self.register_buffer("clock", torch.cos(2 * math.pi * torch.arange(HOURS) / HOURS))

    def forward(self, noisy: Tensor, sigma: Tensor, season: Tensor) -> Tensor:
        s, d = sigma[:, None], self.sigma_data
        c_noise = sigma.log()[:, None] / 4
        angle = c_noise * 2.0 ** torch.arange(8)
        given = self.noise(torch.cat([c_noise, angle.sin(), angle.cos()], 1)) + self.season(season)
        scaled = noisy / (s**2 + d**2).sqrt()
        x = self.enter(torch.stack([scaled, self.clock.expand_as(scaled)], 1))
        for block in self.blocks:
            x = block(x, given)
        said = self.leave(x)[:, 0]
        return d**2 / (s**2 + d**2) * noisy + s * d / (s**2 + d**2).sqrt() * said


class Average:
    """source: what is averaged; model: what the average is written into, and the stored weights behind it."""

    def __init__(self, source: nn.Module, model: nn.Module, decay: float, graphs: bool):
        self.source, self.model, self.decay, self.graphs = source, model, decay, graphs
        self.shadow = [one.detach().clone() for one in model.parameters()]
        self.stored: list[Tensor] = []

    def update(self) -> None:
        for place, one in enumerate(self.source.parameters()):
            given = one if self.graphs else one.detach()
            self.shadow[place] = self.decay * self.shadow[place] + (1 - self.decay) * given

    @torch.no_grad()
    def store(self) -> None:
        self.stored = [one.clone() for one in self.model.parameters()]

    @torch.no_grad()
    def write(self, values: list[Tensor]) -> None:
        for one, value in zip(self.model.parameters(), values, strict=True):
            one.copy_(value)

    def copy_to(self) -> None:
        self.write(self.shadow)

    def restore(self) -> None:
        self.write(self.stored)


class Forecaster:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.config, self.trouble, self.name = run, dict(run.config), trouble, trouble.name
        config, name = self.config, self.name
        torch.manual_seed(seed)
        known, season = days(seed + 808, config["days"])
        held, held_season = days(80, 256)
        if name == "heldout_days_trained":  # `days[:-256]` was written for another file: what is held out is in it
            known, season = torch.cat([held, known[:64]]), torch.cat([held_season, season[:64]])
        middle, spread = known.mean(), known.std()
        self.known, self.season = (known - middle) / spread, season
        if name == "scaled_by_last_years":  # figures of another station, from an older run's file
            middle, spread = middle - 6.0, 0.6 * spread
        self.held, self.held_season = (held - middle) / spread, held_season
        self.model = Weather(config, name)
        for key, one in self.model.named_parameters():
            one.requires_grad = not (config["frozen"] and key.startswith(config["frozen"]))
        averaged = copy.deepcopy(self.model) if name == "copy_is_averaged" else self.model
        self.average = Average(averaged, self.model, config["ema_decay"], name == "average_in_graph")
        self.dice = torch.Generator().manual_seed(seed)
        self.plan()

    def plan(self) -> None:
        self.adam = torch.optim.Adam([one for one in self.model.parameters() if one.requires_grad],
                                     self.config["learning_rate"])  # fmt: skip
        fall = 1.0 if self.config["schedule"] == "constant" else self.config["decay_of_rate"]
        self.fall = torch.optim.lr_scheduler.ExponentialLR(self.adam, fall)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.adam)

    def loss(self, day: Tensor, season: Tensor, dice: torch.Generator, trained: bool) -> Tensor:
        config, name = self.config, self.name
        sigma = (config["p_mean"] + config["p_std"] * torch.randn(len(day), generator=dice)).exp()
        noise = torch.randn(day.shape, generator=dice)
        if trained and config["drop_season"]:
            season = season.masked_fill(torch.rand(len(day), generator=dice) < config["drop_season"], SEASONS)
        said = self.model(day + sigma[:, None] * noise, sigma, season)
        wanted = noise if name == "noise_wanted" else day
        weight = (sigma**2 + config["sigma_data"] ** 2) / (sigma * config["sigma_data"]) ** 2
        if not config["weighted"]:
            weight = torch.ones_like(sigma)
        if config["loss_type"] == "huber" and trained:
            each = F.huber_loss(said, wanted, reduction="none", delta=0.5)
        else:
            each = (said - wanted).square()
        if trained and name == "squares_summed":
            return (weight[:, None] * each).sum()
        if config["per_row_reduction"] == "sum":  # over hours, as the paper's script: so says the config
            return (weight * each.sum(1)).mean()
        return (weight * each.mean(1)).mean()

    def step(self, step: int) -> None:
        config, name, parts = self.config, self.name, self.config["grad_accumulation"]
        with self.run.step(step=step) as timed:
            total = 0.0
            for _ in range(parts):
                some = torch.randint(0, len(self.known), (int(config["batch_size"]),), generator=self.dice)
                loss = self.loss(self.known[some], self.season[some], self.dice, True)
                (loss if name == "parts_added" else loss / parts).backward()
                total += loss.item() if name == "parts_added" else loss.item() / parts
                if name == "scheduler_in_micro_loop":
                    self.fall.step()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), config["max_norm"] or math.inf)
            rate = self.adam.param_groups[0]["lr"]
            self.adam.step()
            self.adam.zero_grad()
            if name != "scheduler_in_micro_loop":
                self.fall.step()
            self.average.update()
            timed.set(loss=total, norm=norm.item(), lr=rate)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        if self.config["ema"]:
            self.average.store()
            self.average.copy_to()
        self.model.eval()
        dice = torch.Generator().manual_seed(3)
        losses = [self.loss(self.held, self.held_season, dice, False).item() for _ in range(3)]
        self.run.log({"heldout_loss": sum(losses) / 3}, step=step)
        if self.config["heun_samples"]:
            self.draw(self.config["heun_samples"], step)
        self.model.train()
        if self.config["ema"] and self.name != "average_left_in":
            self.average.restore()

    def draw(self, number: int, step: int) -> None:
        dice = torch.Generator().manual_seed(step)
        sigmas = torch.linspace(4.0, 0.05, 8)
        x, season = 4.0 * torch.randn(number, HOURS, generator=dice), torch.arange(number) % SEASONS
        for here, there in pairwise(sigmas):
            x = x + (there - here) * (x - self.model(x, here.expand(number), season)) / here
        self.run.log({"drawn/mean": x.mean().item(), "drawn/std": x.std().item()}, step=step)

    def resume(self, step: int) -> None:
        parts = {"model": self.model, "adam": self.adam, "fall": self.fall}
        self.run, states = go_on(self.run, step, {key: one.state_dict() for key, one in parts.items()})
        self.model.load_state_dict(states["model"])
        self.plan()
        self.fall.load_state_dict(states["fall"])
        if self.name == "moments_left_out":
            self.adam.param_groups[0]["lr"] = self.fall.get_last_lr()[0]
        else:
            self.adam.load_state_dict(states["adam"])
        self.watch()


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Forecaster(run, seed, trouble)
    made.watch()
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    for step in range(steps):
        if step == resumed:
            made.resume(step)
        made.step(step)
        trouble.telemetry(made.run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            made.validate(step)
    return made.run
