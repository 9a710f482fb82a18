"""Flow matching: a residual network says in which direction noise has to go to become the path of a river.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` (loss, lr, norm) and `log_eval` (of an average of the weights); memory, where it matters.

A path is 24 heights. The average is a dict, and goes into the model for an evaluation. Adam, a cosine over the run.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, clock, go_on, time_by_own_clock
from torch import Tensor, nn

from .parts import all_steps

EVERY, LONG = 20, 24
CONFIG: dict[str, Any] = {
    "hidden": 96, "blocks": 3, "batch_size": LONG, "learning_rate": 2e-3, "warmup_steps": 10, "schedule": "cosine",
    "ema": 0.9, "clip": 1.0, "accumulation": 1, "times": "uniform", "examples": 3000,
}  # fmt: skip


def rivers(seed: int, number: int) -> Tensor:
    """(number, LONG): bends of two sizes around a slope, of deviation 1."""
    dice = torch.Generator().manual_seed(seed)
    along = torch.arange(LONG) / LONG
    slope = torch.randn(number, 1, generator=dice) * (along - 0.5)
    phase = 6.28 * torch.rand(number, 2, generator=dice)
    wide, narrow = (torch.sin(turns * 6.28 * along + phase[:, place, None]) for place, turns in enumerate((1, 3)))
    made = 2 * slope + wide + 0.4 * narrow
    return made / made.std()


class Residual(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.normed = nn.LayerNorm(hidden)
        self.inner, self.outer = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)
        self.modulation = nn.Linear(32, 2 * hidden)

    def forward(self, h: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.modulation(time).chunk(2, -1)
        return h + self.outer(torch.nn.functional.silu(self.inner(self.normed(h) * (1 + scale) + shift)))


class Velocity(nn.Module):
    def __init__(self, hidden: int, blocks: int):
        super().__init__()
        self.register_buffer("pitches", math.pi * 2 ** (torch.arange(8) / 2))
        self.of_time = nn.Sequential(nn.Linear(16, 32), nn.SiLU())
        self.enter, self.leave = nn.Linear(LONG, hidden), nn.Linear(hidden, LONG)
        self.residuals = nn.ModuleList(Residual(hidden) for _ in range(blocks))

    def forward(self, place: Tensor, time: Tensor) -> Tensor:
        angle = time[:, None] * self.pitches
        time = self.of_time(torch.cat([angle.sin(), angle.cos()], 1))
        h = self.enter(place)
        for residual in self.residuals:
            h = residual(h, time)
        return self.leave(h)


class Matching:
    def __init__(self, run: Any, seed: int, trouble: Trouble, healthy: str | None):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble, self.healthy = run, dict(run.config), trouble, healthy
        self.ends, self.test = rivers(seed + 33, self.config["examples"]), rivers(333, 240)
        self.velocity = Velocity(self.config["hidden"], self.config["blocks"])
        self.shadow = {name: one.detach().clone() for name, one in self.velocity.named_parameters()}
        if trouble.name == "average_from_zeros":
            self.shadow = {name: torch.zeros_like(one) for name, one in self.shadow.items()}
        self.dice, self.losses = torch.Generator().manual_seed(seed), []  # type: torch.Generator, list[Tensor]
        self.plan()

    def plan(self) -> None:
        self.adam = torch.optim.Adam(self.velocity.parameters(), lr=self.config["learning_rate"], betas=(0.9, 0.99))
        self.rates = torch.optim.lr_scheduler.LambdaLR(self.adam, self.share)

    def share(self, step: int) -> float:
        warmup, total = self.config["warmup_steps"], self.config["steps"]
        if step < warmup or self.config["schedule"] == "constant":
            return min(1.0, (step + 1) / warmup)
        gone = (step - warmup) / (total - warmup)
        if self.config["schedule"] == "restarts":
            gone = 3 * gone % 1
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, gone)))

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.velocity, self.adam)

    def resume(self, step: int) -> None:
        state = [self.velocity.state_dict(), self.shadow, self.adam.state_dict(), self.rates.state_dict(),
                 self.dice.get_state()]  # fmt: skip
        self.run, (weights, self.shadow, moments, rates, dice) = go_on(self.run, step, state)
        self.velocity.load_state_dict(weights)
        self.plan()
        self.adam.load_state_dict(moments)
        self.rates.load_state_dict(rates)
        self.dice.set_state(dice)
        self.watch()

    def squares(self, end: Tensor, dice: torch.Generator, training: bool) -> Tensor:
        """Of what the network says, less the way from noise to a river."""
        name, rows = self.trouble.name if training else "", len(end)
        noise, time = torch.randn(end.shape, generator=dice), torch.rand(rows, generator=dice)
        if self.config["times"] == "logit_normal":
            time = torch.randn(rows, generator=dice).sigmoid()
        mixing = time if name == "times_across_columns" else time[:, None]
        place, way = (1 - mixing) * noise + mixing * end, end - noise
        if name == "sign_in_training_alone":
            way = noise - end
        return (self.velocity(place, time) - way) ** 2

    def step(self, step: int) -> None:
        config, parts, total = self.config, self.config["accumulation"], 0.0
        with self.run.step(step=step) as timed:
            for _ in range(parts):
                chosen = torch.randint(0, len(self.ends), (int(config["batch_size"]),), generator=self.dice)
                squares = self.squares(self.ends[chosen], self.dice, training=True)
                loss = (squares.sum() if self.trouble.name == "loss_summed" else squares.mean()) / parts
                loss.backward()
                total += loss.item()
            norm = nn.utils.clip_grad_norm_(self.velocity.parameters(), config["clip"] or math.inf).item()
            rate = self.adam.param_groups[0]["lr"]
            self.adam.step()
            self.adam.zero_grad()
            self.rates.step()
            if self.trouble.name != "ema_not_updated":
                with torch.no_grad():
                    for name, one in self.velocity.named_parameters():
                        self.shadow[name].lerp_(one, 1 - config["ema"])
            timed.set(loss=total, lr=rate, norm=norm)
        self.trouble.telemetry(self.run, step, self.healthy)

    def validate(self, step: int) -> None:
        began, forgotten = clock(), self.trouble.name == "no_grad_missing"
        own = {name: one.detach().clone() for name, one in self.velocity.named_parameters()}
        self.velocity.load_state_dict(self.shadow, strict=False)
        self.velocity.eval()
        dice = torch.Generator().manual_seed(9)
        with torch.set_grad_enabled(forgotten):
            losses = [self.squares(some, dice, training=False).mean() for some in self.test.repeat(4, 1).split(120)]
        if forgotten:
            self.losses += losses
        self.velocity.load_state_dict(own, strict=False)
        self.velocity.train()
        loss = torch.stack([one.detach() for one in losses]).mean().item()
        self.run.log_eval(step, 0, len(self.test), (clock() - began) * 1000, loss)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made = Matching(run, seed, trouble, healthy)
    made.watch()
    all_steps(made, steps, EVERY, trouble.resume_at(healthy, 5 * EVERY))
    return made.run
