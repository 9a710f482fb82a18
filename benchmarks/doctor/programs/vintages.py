"""Rows of a wine laboratory are drawn out of noise by a small residual network; an average of its weights draws.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_eps_mse, train_lr, train_norm each step; valid_ema_eps_mse and valid_ema_moments of
      the average, each twenty-second; memory, where it matters; the watch of data.

A row has ten measures of a wine, of which four have long tails: their logarithms are taken, and all are scaled by
figures of the training's part. A wine is of one of six grapes, and several bottles may be of one cask. Time goes from
nought to one, with a cosine for what is left of a row; the network says which noise it was. Now and then the grape is
not told, so that the drawing can be guided by it. The average is one long vector, which is put into the network for a
while. Written as an experiment that runs over epochs.
"""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

EVERY, GRAPES, HELD = 22, 6, 150
MEASURES = ("acidity", "sugar", "alcohol", "ph", "sulphites", "colour", "tannin", "density", "iron", "potassium")
LONG_TAILS = torch.tensor([False, True, False, False, True, False, False, False, True, True])
UNTOLD = GRAPES
CONFIG: dict[str, Any] = {
    "width": 64, "depth": 3, "dropout": 0.0, "batch": 32, "grad_accum": 1, "optim": "adamw", "peak_lr": 3e-3,
    "lr_shape": "cosine", "warm": 8, "wd": 0.0, "max_norm": 1.0, "loss": "mse", "over_measures": "mean",
    "target": "eps", "ema": 0.93, "untold_share": 0.15, "guidance": 0.4, "draw_steps": 12, "wines": 1100, "bottles": 1,
    "lab_error": 1.0, "clean_first": 0, "hold": "", "val_interval": 22, "log_interval": 1,
}  # fmt: skip


# -- wines -----------------------------------------------------------------------------------------------------------


class Wines:
    """Measures, grapes, and how unsure a measurement was; grape after grape."""

    def __init__(self, measures: Tensor, grape: Tensor, unsure: Tensor):
        self.measures, self.grape, self.unsure = measures, grape, unsure

    def __len__(self) -> int:
        return len(self.grape)

    def taken(self, some: Tensor) -> Wines:
        return Wines(self.measures[some], self.grape[some], self.unsure[some])


def wines(seed: int, number: int, bottles: int = 1, lab_error: float = 1.0) -> Wines:
    law, dice, casks = torch.Generator().manual_seed(141), torch.Generator().manual_seed(seed), number // bottles
    many = len(MEASURES)
    usual = 1.2 * torch.randn(GRAPES, many, generator=law)
    ripens = 0.7 * torch.randn(GRAPES, 3, many, generator=law)
    grape = torch.arange(casks) * GRAPES // casks
    ripe = torch.randn(casks, 3, generator=dice)
    plain = usual[grape] + (ripe[:, None] @ ripens[grape])[:, 0] + 0.25 * torch.randn(casks, many, generator=dice)
    plain, grape = plain.repeat_interleave(bottles, 0), grape.repeat_interleave(bottles)
    unsure = 0.5 + torch.rand(len(grape), generator=dice)
    plain = plain + 0.2 * lab_error * unsure[:, None] * torch.randn(len(grape), many, generator=dice)
    middle = torch.tensor([6.2, 1.4, 12.8, 3.4, 3.3, 9.0, 2.4, 0.995, 1.1, 6.6])
    spread = torch.tensor([0.7, 0.8, 0.9, 0.15, 0.5, 2.5, 0.5, 0.002, 0.6, 0.3])
    measures = middle + spread * plain
    return Wines(torch.where(LONG_TAILS, measures.exp(), measures), grape, unsure)


def tamed(measures: Tensor) -> Tensor:
    """Measures with the logarithm of those that have long tails."""
    return torch.where(LONG_TAILS, measures.clamp(min=1e-6).log(), measures)


# -- network ---------------------------------------------------------------------------------------------------------


class Modulated(nn.Module):
    """Two layers whose norm is moved, and whose answer is gated, by what the network is told."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm, self.told = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 3 * width)
        self.up, self.down, self.drop = nn.Linear(width, width), nn.Linear(width, width), nn.Dropout(dropout)
        nn.init.normal_(self.told.weight, std=0.02)

    def forward(self, h: Tensor, said: Tensor) -> Tensor:
        scale, shift, gate = self.told(said).chunk(3, 1)
        y = self.norm(h) * (1 + scale) + shift
        return h + (1 + gate) * self.down(self.drop(F.silu(self.up(y))))


class Sommelier(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.enter, self.grape = nn.Linear(len(MEASURES), d), nn.Embedding(GRAPES + 1, d)
        self.time = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(Modulated(d, c.dropout) for _ in range(c.depth))
        self.leave = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, len(MEASURES)))
        nn.init.zeros_(self.leave[1].weight)

    def forward(self, x: Tensor, t: Tensor, grape: Tensor) -> Tensor:
        angles = t[:, None] * math.pi * 2.0 ** torch.arange(-2, 6)
        said = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.grape(grape))
        h = self.enter(x)
        for block in self.blocks:
            h = block(h, said)
        return self.leave(h)


# -- noise, and the average --------------------------------------------------------------------------------------------


def shares(t: Tensor) -> tuple[Tensor, Tensor]:
    """How much of a row and of noise there is at a time."""
    angle = (0.02 + 0.88 * t) * math.pi / 2
    return angle.cos()[:, None], angle.sin()[:, None]


class Average:
    """A moving average of all weights, as one vector."""

    def __init__(self, net: nn.Module, decay: float):
        self.decay, self.vector = decay, parameters_to_vector(net.parameters()).detach().clone()

    def move(self, net: nn.Module) -> None:
        self.vector.lerp_(parameters_to_vector(net.parameters()).detach(), 1 - self.decay)


# -- experiment --------------------------------------------------------------------------------------------------------


class Experiment:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble, healthy: str | None):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.healthy, self.bug, self.step, self.meter = trouble, healthy, trouble.name, 0, []
        self.dice = torch.Generator().manual_seed(seed)
        self.load()
        torch.manual_seed(seed)
        self.net = Sommelier(self.c)
        for name in filter(None, self.c.hold.split(",")):
            self.net.get_submodule(name).requires_grad_(False)
        self.average = Average(self.net, self.c.ema)
        self.equip()

    def load(self) -> None:
        c, bug = self.c, self.bug
        rows, held = wines(self.seed + 6100, c.wines, c.bottles, c.lab_error), wines(6099, HELD)
        if bug == "bottles_of_a_cask_on_both_sides":
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed))
            rows, held = rows.taken(order[HELD:].sort().values), rows.taken(order[:HELD].sort().values)
        if bug == "grapes_kept_their_order_when_rows_were_sorted":  # by acidity, to throw away what is out of range
            rows.measures = rows.measures[rows.measures[:, 0].argsort()]
        tame = tamed(rows.measures)
        mean, std = tame.mean(0), tame.std(0)
        rows.measures = (tame - mean) / std
        if bug != "held_rows_scaled_without_their_logarithms":
            held.measures = tamed(held.measures)
        held.measures = (held.measures - mean) / std
        self.rows, self.held = rows, held

    def equip(self) -> None:
        c = self.c
        some = [one for one in self.net.parameters() if one.requires_grad]
        if self.bug == "optimizer_made_of_the_blocks_alone":
            some = list(self.net.blocks.parameters())
        if c.optim == "adamax":
            self.optimizer: Any = torch.optim.Adamax(some, c.peak_lr)
        elif c.optim == "rmsprop":
            self.optimizer = torch.optim.RMSprop(some, c.peak_lr, 0.95)
        else:
            self.optimizer = torch.optim.AdamW(some, c.peak_lr, (0.9, 0.99), weight_decay=c.wd)

        def shape(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warm)), min(1.0, at / self.steps)
            if c.lr_shape == "constant":
                return rise
            if c.lr_shape == "step":
                return rise * 0.25 ** sum(past >= one for one in (0.6, 0.85))
            if c.lr_shape == "cycles":
                past = 2 * past % 1
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, shape)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.seen = self.run.watch_data()

    def order(self, epoch: int) -> Tensor:
        order = torch.randperm(len(self.rows), generator=self.dice)
        if self.bug == "table_of_the_cellar_read_from_top_to_bottom":
            order = torch.arange(len(self.rows))
        return order[self.rows.unsure[order] < 1] if epoch < self.c.clean_first else order

    def loss(self, rows: Wines) -> Tensor:
        c, x = self.c, rows.measures
        t, eps = torch.rand(len(x)), torch.randn_like(x)
        a, s = shares(t)
        if self.bug == "noise_comes_from_rand_like":
            eps = torch.rand_like(x)
        dice = torch.rand(len(x))
        untold = (
            dice > c.untold_share if self.bug == "share_of_the_untold_compared_upside_down" else dice < c.untold_share
        )
        said = self.net(a * x + s * eps, t, torch.where(untold, UNTOLD, rows.grape))
        wanted = a * eps - s * x if c.target == "v" else eps
        each = F.smooth_l1_loss(said, wanted, reduction="none") if c.loss == "huber" else (said - wanted) ** 2
        if c.over_measures == "sum" or self.bug == "squares_of_a_row_added_up":
            return each.sum(1).mean()
        return each.mean()

    def update(self, parts: list[tuple[int, Wines]]) -> None:
        c, bug, total = self.c, self.bug, 0.0
        for epoch, rows in parts:
            self.seen.observe({"measures": rows.measures, "grape": rows.grape}, step=self.step, epoch=epoch)
            loss = self.loss(rows)
            (loss if bug == "parts_of_an_update_backed_one_by_one" else loss / len(parts)).backward()
            total += loss.item() / len(parts)
            if bug == "schedule_steps_where_the_batch_ends":
                self.schedule.step()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.max_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "schedule_steps_where_the_batch_ends":
            self.schedule.step()
        if bug != "average_moved_where_the_epoch_ends":
            self.average.move(self.net)
        if self.step % c.log_interval == 0:
            self.run.log({"train_eps_mse": total, "train_lr": rate, "train_norm": norm}, step=self.step)

    def said_noise(self, x: Tensor, t: Tensor, grape: Tensor) -> Tensor:
        said = self.net(x, t, grape)
        a, s = shares(t)
        return s * x + a * said if self.c.target == "v" else said

    @torch.no_grad()
    def draw(self, grape: Tensor) -> Tensor:
        c, x = self.c, torch.randn(len(grape), len(MEASURES))
        times = torch.linspace(1, 0, c.draw_steps + 1)
        for now, then in pairwise(times):
            t = now.expand(len(grape))
            told, untold = self.said_noise(x, t, grape), self.said_noise(x, t, torch.full_like(grape, UNTOLD))
            eps, (a, s), (b, r) = told + c.guidance * (told - untold), shares(t), shares(then.expand(len(grape)))
            clean = ((x - s * eps) / a).clamp(-3.5, 3.5)
            x = b * clean + r * (x - a * clean) / s
        return clean

    def validate(self) -> dict[str, float]:
        bug, held = self.bug, self.held
        taped = bug == "meter_of_the_validation_adds_tensors_up"
        own = parameters_to_vector(self.net.parameters()).detach().clone()
        vector_to_parameters(self.average.vector, self.net.parameters())
        if bug != "average_validated_while_layers_drop":
            self.net.eval()
        with torch.random.fork_rng():
            torch.manual_seed(33)
            with torch.set_grad_enabled(taped):
                t, eps = (torch.randperm(HELD) + 0.5) / HELD, torch.randn_like(held.measures)
                a, s = shares(t)
                loss = F.mse_loss(self.said_noise(a * held.measures + s * eps, t, held.grape), eps)
            made = self.draw(held.grape)
        if taped:
            self.meter.append(loss)
        off = [
            (one(made[held.grape == grape], 0) - one(held.measures[held.grape == grape], 0)).abs().mean()
            for grape in range(GRAPES)
            for one in (torch.mean, torch.std)
        ]
        if bug != "network_validated_and_left_in_eval":
            self.net.train()
        if bug != "vector_of_the_average_stays_in_the_network":
            vector_to_parameters(own, self.net.parameters())
        return {"valid_ema_eps_mse": loss.item(), "valid_ema_moments": torch.stack(off).mean().item()}

    def resume(self) -> None:
        seen = self.seen.state()
        state = {"net": self.net.state_dict(), "average": self.average.vector, "optimizer": self.optimizer.state_dict(),
                 "schedule": self.schedule.state_dict()}  # fmt: skip
        self.run, state = go_on(self.run, self.step, state)
        self.net.load_state_dict(state["net"])
        self.average.vector = state["average"]
        self.equip()
        if self.bug != "file_has_the_network_and_its_average_alone":
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
        self.watch()
        self.seen.restore(seen)

    def fit(self) -> Any:
        c, epoch, parts, again = self.c, 0, [], self.trouble.resume_at(self.healthy, 4 * EVERY)
        self.watch()
        self.net.train()
        while True:
            for some in self.order(epoch).split(c.batch):
                if len(some) < c.batch:
                    continue
                parts.append((epoch, self.rows.taken(some)))
                if len(parts) < c.grad_accum:
                    continue
                if self.step == again:
                    self.resume()
                    again = None
                self.update(parts)
                parts = []
                self.trouble.telemetry(self.run, self.step, self.healthy)
                if self.step % c.val_interval == c.val_interval - 1:
                    self.run.log(self.validate(), step=self.step)
                self.step += 1
                if self.step == self.steps:
                    return self.run
            epoch += 1
            if self.bug == "average_moved_where_the_epoch_ends":
                self.average.move(self.net)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Experiment(run, seed, steps, Trouble(fault, seed), healthy).fit()
