"""Meanders of rivers come out of noise along velocities that a net tells; an average of its weights draws them.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: rf/velocity_mse, rf/lr, rf/grad each step; ema_model/velocity_mse and ema_model/bends of
      the average, each twentieth; memory, where it matters; the watch of data.

A reach of a river has sixteen points in metres along its middle. It lies in one of six soils, each with bends of its
own width and wave; several surveys may have taken one reach, nearly alike. A row between noise and a reach is their
straight mixture, and the velocity is their difference. Soils are counted from one in the file, and the last row of the
table tells none. The average is torch's own. Written as an experiment with loaders of torch.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

EVERY, SOILS, POINTS, HELD = 20, 6, 16, 192
CONFIG: dict[str, Any] = {
    "width": 96, "depth": 2, "dropout": 0.0, "batch": 48, "accumulate": 1, "optimizer": "adamw", "lr": 6e-3,
    "schedule": "cosine", "warmup": 8, "weight_decay": 0.0, "clip": 2.0, "loss": "mse", "reduction": "mean",
    "loss_gain": 1.0, "times": "uniform", "ema": 0.93, "untold": 0.15, "guidance": 0.2, "euler_steps": 16,
    "reaches": 1600, "surveys": 1, "roughness": 1.0, "smooth_first": 0, "frozen": "", "eval_every": 20, "log_every": 1,
}  # fmt: skip


def survey(seed: int, number: int, surveys: int = 1, roughness: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Points (number, 2, points) in metres, soils from one on, and how rough a reach is; soil after soil."""
    law, dice, many = torch.Generator().manual_seed(351), torch.Generator().manual_seed(seed), number // surveys
    along = torch.linspace(0, 1, POINTS)
    wide, waves = 30 + 90 * torch.rand(SOILS, generator=law), 1 + 2 * torch.rand(SOILS, generator=law)
    long, tilt = 300 + 500 * torch.rand(SOILS, generator=law), 60 * torch.randn(SOILS, generator=law)
    soil = torch.arange(many) * SOILS // many
    flow, phase = torch.randn(many, 1, generator=dice), 0.5 * torch.randn(many, 1, generator=dice)
    rough = 0.5 + torch.rand(many, generator=dice)
    angle = 6.28 * waves[soil, None] * along + phase
    y = 200 + wide[soil, None] * (1 + 0.25 * flow) * angle.sin() + tilt[soil, None] * along
    x = 150 + long[soil, None] * (1 - 0.1 * flow) * along + 0.3 * wide[soil, None] * (2 * angle).cos()
    points = torch.stack([x, y], 1)
    points = points + 8 * roughness * rough[:, None, None] * torch.randn(points.shape, generator=dice)
    points, soil, rough = (one.repeat_interleave(surveys, 0) for one in (points, soil, rough))
    return points + torch.randn(points.shape, generator=dice), soil + 1, rough


class Block(nn.Module):
    def __init__(self, d: int, dropout: float):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.told, self.drop = nn.Linear(d, 2 * d), nn.Dropout(dropout)

    def forward(self, h: Tensor, told: Tensor) -> Tensor:
        gain, shift = self.told(told).chunk(2, 1)
        return h + self.outer(self.drop(F.gelu(self.inner(self.norm(h) * (1 + gain) + shift))))


class VelocityNet(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.width
        self.entry, self.exit = nn.Linear(2 * POINTS, d), nn.Linear(d, 2 * POINTS)
        self.soil, self.time = nn.Embedding(SOILS + 1, d), nn.Sequential(nn.Linear(12, d), nn.GELU(), nn.Linear(d, d))
        blocks, self.norm = [Block(d, c.dropout) for _ in range(c.depth)], nn.LayerNorm(d)
        self.blocks: Any = blocks if bug == "blocks_lie_in_a_plain_list" else nn.ModuleList(blocks)
        nn.init.zeros_(self.exit.weight)

    def forward(self, x: Tensor, t: Tensor, soil: Tensor) -> Tensor:
        angles = t[:, None] * 1.9 ** torch.arange(6)
        told = F.gelu(self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.soil(soil))
        h = self.entry(x.flatten(1))
        for block in self.blocks:
            h = block(h, told)
        return self.exit(self.norm(h)).view_as(x)


class Experiment:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.bug, self.epoch, self.history = trouble, trouble.name, -1, []
        self.batches: Any = iter(())
        self.read_survey()
        torch.manual_seed(seed)
        self.configure()

    def read_survey(self) -> None:
        c, bug = self.c, self.bug
        rows, held = survey(self.seed + 5100, c.reaches, c.surveys, c.roughness), survey(5099, HELD)
        if bug == "surveys_split_without_their_reach":
            order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(self.seed))
            first, rest = order[:HELD].sort().values, order[HELD:].sort().values
            held, rows = tuple(one[first] for one in rows), tuple(one[rest] for one in rows)  # type: ignore[assignment]
        mean, std = rows[0].mean((0, 2), keepdim=True), rows[0].std((0, 2), keepdim=True)
        soil = rows[1] - int(bug != "soils_of_the_training_still_counted_from_one")
        self.rows, self.rough = TensorDataset((rows[0] - mean) / std, soil), rows[2]
        self.held = held[0] - mean if bug != "held_reaches_divided_and_not_moved" else held[0]
        self.held, self.held_soil = self.held / std, held[1] - 1

    def configure(self) -> None:
        c = self.c
        self.net = VelocityNet(c, self.bug)
        for name, one in self.net.named_parameters():
            if c.frozen and name.startswith(c.frozen):
                one.requires_grad_(False)
        self.average = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(c.ema))
        some = [one for one in self.net.parameters() if one.requires_grad]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.lr, 0.9)
        elif c.optimizer == "radam":
            self.optimizer = torch.optim.RAdam(some, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, (0.9, 0.98), weight_decay=c.weight_decay)

        def factor(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.02 + 0.49 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)
        self.data = self.run.watch_data()

    def train_dataloader(self) -> Any:
        dice = torch.Generator().manual_seed(600 * self.seed + self.epoch)
        rows: Any = self.rows
        if self.epoch < self.c.smooth_first:
            rows = torch.utils.data.Subset(rows, (self.rough < 1).nonzero()[:, 0].tolist())
        shuffle = self.bug != "loader_of_reaches_goes_down_the_file"
        return DataLoader(rows, self.c.batch, shuffle=shuffle, generator=dice, drop_last=True)

    def next_batch(self) -> Any:
        batch = next(self.batches, None)
        if batch is None:
            self.epoch += 1
            self.batches = iter(self.train_dataloader())
            batch = next(self.batches)
        return batch

    def velocity_loss(self, net: nn.Module, x: Tensor, soil: Tensor, t: Tensor, training: bool) -> Tensor:
        c, noise = self.c, torch.randn_like(x)
        part = t[:, None, None]
        target = noise - x if self.bug == "velocity_leads_from_reaches_to_noise" else x - noise
        error = net((1 - part) * noise + part * x, t, soil) - target
        each = error.abs() if training and c.loss == "l1" else error**2
        if training and self.bug == "errors_summed_over_a_reach":
            return each.flatten(1).sum(1).mean()
        return c.loss_gain * each.mean((1, 2)).sum() if training and c.reduction == "sum" else each.mean()

    def training_step(self, step: int) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.accumulate):
            x, soil = self.next_batch()
            self.data.observe({"points": x.flatten(1), "soil": soil}, step=step, epoch=self.epoch)
            if bug == "zero_grad_for_each_batch_of_an_update":
                self.optimizer.zero_grad()
            soil = torch.where(torch.rand(len(x)) < c.untold, SOILS, soil)
            t = torch.rand(len(x)) if c.times == "uniform" else torch.randn(len(x)).sigmoid()
            loss = self.velocity_loss(self.net, x, soil, t, True)
            (loss if bug == "backward_of_each_batch_in_full" else loss / c.accumulate).backward()
            total += loss.item() / c.accumulate
            if bug == "scheduler_follows_the_loader":
                self.scheduler.step()
        lr = self.optimizer.param_groups[0]["lr"]
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.clip).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "scheduler_follows_the_loader":
            self.scheduler.step()
        self.average.update_parameters(self.average.module if bug == "average_updated_by_its_own_module" else self.net)
        return {"rf/velocity_mse": total, "rf/lr": lr, "rf/grad": norm}

    @torch.no_grad()
    def draw(self, net: nn.Module, soil: Tensor) -> Tensor:
        c, x = self.c, torch.randn(len(soil), 2, POINTS)
        for at in range(c.euler_steps):
            now = float(at) if self.bug == "net_is_told_the_number_of_the_step" else at / c.euler_steps
            t = torch.full((len(soil),), now)
            told, untold = net(x, t, soil), net(x, t, torch.full_like(soil, SOILS))
            x = x + (told + c.guidance * (told - untold)) / c.euler_steps
        return x

    def judge(self, net: nn.Module) -> tuple[Tensor, Tensor]:
        """The error of velocities, and how far means and spreads of drawn reaches are from held ones."""
        with torch.random.fork_rng():
            torch.manual_seed(41)
            t = (torch.randperm(HELD) + 0.5) / HELD
            loss = self.velocity_loss(net, self.held, self.held_soil, t, False)
            made = self.draw(net, self.held_soil)
        off = [(one(made[self.held_soil == soil], 0) - one(self.held[self.held_soil == soil], 0)).abs().mean()
               for soil in self.held_soil.unique() for one in (torch.mean, torch.std)]  # fmt: skip
        return loss, torch.stack(off).mean()

    def evaluate(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "judged_reaches_stay_on_the_tape"
        net: nn.Module = self.average.module
        if bug == "net_loads_the_average_to_be_judged":
            self.net.load_state_dict(net.state_dict())
            net = self.net
        for one in (self.net, net):
            one.train(bug == "average_judged_while_units_drop")
        with torch.set_grad_enabled(taped):
            loss, bends = self.judge(net)
        if taped:
            self.history.append(loss)
        self.net.train()
        return {"ema_model/velocity_mse": loss.item(), "ema_model/bends": bends.item()}

    def restore(self, step: int) -> None:
        seen, parts = self.data.state(), ("net", "average", "optimizer", "scheduler")
        state = {name: copy.deepcopy(getattr(self, name).state_dict()) for name in parts}
        self.run, state = go_on(self.run, step, state)
        self.configure()
        for name in parts:
            getattr(self, name).load_state_dict(state[name])
        if self.bug == "schedule_wound_forward_behind_its_load":
            for _ in range(step):
                self.scheduler.step()
        self.net.train()
        self.attach()
        self.data.restore(seen)

    def fit(self, healthy: str | None) -> Any:
        again = self.trouble.resume_at(healthy, 4 * EVERY)
        self.attach()
        self.net.train()
        for step in range(self.steps):
            if step == again:
                self.restore(step)
            said = self.training_step(step)
            if step % self.c.log_every == 0:
                self.run.log(said, step=step)
            self.trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.eval_every == 0:
                self.run.log(self.evaluate(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Experiment(run, seed, steps, Trouble(fault, seed)).fit(healthy)
