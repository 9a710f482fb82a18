"""A diffusion model draws the heights of dunes along a line, told how the wind blows; its average draws best.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`: loss, norm, lr; by `run.log`: eval/loss at each twentieth, of the averaged weights.

Noise is predicted, with the betas in a line; a stack of convolutions told time and wind; AdamW, a warm-up, a cosine.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, LONG, WINDS, TIMES = 20, 32, 4, 100
CONFIG: dict[str, Any] = {
    "channels": 32, "layers": 3, "dropout": 0.0, "train_batch": 48, "accumulate_grad": 1, "peak_lr": 3e-3,
    "warmup_steps": 10, "schedule": "cosine", "max_grad_norm": 1.0, "surveys": 1536, "visits": 1, "ema": 0.9,
    "beta_end": 0.08, "loss_type": "l2", "min_snr": 0.0, "p_uncond": 0.1, "freeze": "", "optimizer": "adamw",
    "predict": "noise",
}  # fmt: skip


def survey(seed: int, number: int, visits: int) -> tuple[Tensor, Tensor]:
    """Heights in metres (number, LONG) and winds; a place is there once for each visit, almost the same."""
    dice = torch.Generator().manual_seed(seed)
    places = number // visits
    wind = torch.randint(0, WINDS, (places,), generator=dice)
    along = torch.linspace(0, 1, LONG)
    phase, high = torch.rand(places, 1, generator=dice), 1 + 0.3 * torch.randn(places, 1, generator=dice)
    count = torch.tensor([1.0, 2.0, 3.0, 2.0])[wind, None]
    at = (count * along + phase) % 1
    lean = torch.tensor([0.3, 0.5, 0.7, 0.85])[wind, None]
    height = high * torch.where(at < lean, at / lean, (1 - at) / (1 - lean))
    height = (height + 0.4 * torch.randn(places, 1, generator=dice) * along).repeat_interleave(visits, 0)
    return 6 + 4 * (height + 0.04 * torch.randn(height.shape, generator=dice)), wind.repeat_interleave(visits)


class Layer(nn.Module):
    def __init__(self, wide: int, drop: float, spread: int):
        super().__init__()
        self.norm, self.told = nn.GroupNorm(4, wide), nn.Linear(wide, 2 * wide)
        self.conv1 = nn.Conv1d(wide, wide, 5, padding=2 * spread, dilation=spread)
        self.conv2, self.drop = nn.Conv1d(wide, wide, 3, padding=1), nn.Dropout(drop)

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        scale, shift = self.told(told)[..., None].chunk(2, 1)
        return x + self.conv2(self.drop(F.silu(self.conv1(F.silu(self.norm(x) * (1 + scale) + shift)))))


class DuneNet(nn.Module):
    def __init__(self, c: dict[str, Any]):
        super().__init__()
        wide = c["channels"]
        self.first, self.last = nn.Conv1d(1, wide, 3, padding=1), nn.Conv1d(wide, 1, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(32, wide), nn.SiLU(), nn.Linear(wide, wide))
        self.wind = nn.Embedding(WINDS + 1, wide)
        self.layers = nn.ModuleList(Layer(wide, c["dropout"], 2**at) for at in range(c["layers"]))

    def forward(self, x: Tensor, t: Tensor, wind: Tensor) -> Tensor:
        angle = t[:, None] * torch.exp(-math.log(1000) * torch.arange(16) / 16)
        told = F.silu(self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.wind(wind))
        x = self.first(x[:, None])
        for layer in self.layers:
            x = layer(x, told)
        return self.last(x)[:, 0]


@dataclass
class Diffusion:
    """What is added at which time, and the loss."""

    c: dict[str, Any]
    bug: str
    kept: Tensor = field(init=False)
    right: Tensor = field(init=False)

    def __post_init__(self) -> None:
        alphas = 1 - torch.linspace(1e-3, self.c["beta_end"], TIMES)
        self.right = alphas.cumprod(0)
        self.kept = alphas if self.bug == "cumprod_forgotten" else self.right

    def loss(self, net: nn.Module, x: Tensor, wind: Tensor, dice: torch.Generator, trained: bool) -> Tensor:
        kept = self.kept if trained else self.right
        t = torch.randint(0, TIMES, (len(x),), generator=dice)
        if trained and self.bug == "one_time_for_all":
            t = torch.randint(0, TIMES, (1,), generator=dice).expand(len(x))
        noise = torch.randn(x.shape, generator=dice)
        share = kept[t][:, None]
        noisy, wanted = share.sqrt() * x + (1 - share).sqrt() * noise, noise
        if self.c["predict"] == "v":
            wanted = share.sqrt() * noise - (1 - share).sqrt() * x
        if trained:
            wind = wind.masked_fill(torch.rand(len(x), generator=dice) < self.c["p_uncond"], WINDS)
        said = net(noisy, t, wind)
        if trained and self.bug == "squares_totalled":
            return F.mse_loss(said, wanted, reduction="sum") / len(x)
        if trained and self.c["loss_type"] == "huber":
            return F.smooth_l1_loss(said, wanted)
        each = (said - wanted).square().mean(1)
        if trained and self.c["min_snr"]:
            ratio = (share / (1 - share))[:, 0]
            each = each * ratio.clamp(max=self.c["min_snr"]) / ratio
        return each.mean()


class Trainer:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.bug, self.steps = run, dict(run.config), trouble.name, steps
        self.dice, self.seen = torch.Generator().manual_seed(seed), []  # type: ignore[var-annotated]
        torch.manual_seed(seed)
        self.read(seed)
        self.net, self.diffusion = DuneNet(self.c), Diffusion(self.c, self.bug)
        for name, one in self.net.named_parameters():
            one.requires_grad = not self.c["freeze"] or not name.startswith(self.c["freeze"])
            if self.bug == "freeze_condition_wrong":  # what the tuning for another wind trains
                one.requires_grad = name.startswith(("wind", "time"))
        self.ema = copy.deepcopy(self.net).requires_grad_(False)
        self.stream = self.batches()
        self.begin()

    def read(self, seed: int) -> None:
        x, wind = survey(seed + 1400, self.c["surveys"], self.c["visits"])
        held, held_wind = survey(14, 240, 1)
        order = torch.randperm(len(x), generator=self.dice)
        if self.bug == "copies_dealt_to_both":
            x, wind = x[order], wind[order]
            x, wind, held, held_wind = x[240:], wind[240:], x[:240], wind[:240]
        if self.bug == "rows_grouped_by_class":  # a file for each wind, one read behind the other
            order = wind.argsort(stable=True)
            x, wind = x[order], wind[order]
        mean, std = x.mean(), x.std()
        self.x, self.wind = (x - mean) / std, wind
        if self.bug == "eval_scaled_by_others":  # figures of the first surveys, which were in feet
            mean, std = 3.28 * mean, 3.28 * std
        self.held, self.held_wind = (held - mean) / std, held_wind

    def batches(self) -> Any:
        size = int(self.c["train_batch"])
        while True:
            order = torch.randperm(len(self.x), generator=self.dice)
            if self.bug == "rows_grouped_by_class":
                order = torch.arange(len(self.x))
            for some in order[: len(order) // size * size].split(size):
                yield self.x[some], self.wind[some]

    def begin(self) -> None:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if c["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c["peak_lr"], 0.9)
        else:
            self.optimizer = (torch.optim.NAdam if c["optimizer"] == "nadam" else torch.optim.AdamW)(some, c["peak_lr"])

        def factor(at: int) -> float:
            if at < c["warmup_steps"] or c["schedule"] == "constant":
                return min(1.0, (at + 1) / c["warmup_steps"])
            return 0.5 * (1 + math.cos(math.pi * min(1.0, at / self.steps)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        time_by_own_clock(self.run)
        self.run.watch(self.net, self.optimizer)

    def step(self, at: int) -> None:
        c, bug, total = self.c, self.bug, 0.0
        self.net.train()
        with self.run.step(step=at) as timed:
            for _ in range(c["accumulate_grad"]):
                loss = self.diffusion.loss(self.net, *next(self.stream), self.dice, True)
                if bug != "backward_undivided":
                    loss = loss / c["accumulate_grad"]
                loss.backward()
                total += loss.item()
                if bug == "schedule_each_micro":
                    self.scheduler.step()
            norm = nn.utils.clip_grad_norm_(self.net.parameters(), c["max_grad_norm"])
            timed.set(loss=total, norm=norm.item(), lr=self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if bug != "schedule_each_micro":
                self.scheduler.step()
            with torch.no_grad():
                if bug == "ema_update_missing":
                    return
                for old, new in zip(self.ema.parameters(), self.net.parameters(), strict=True):
                    old.mul_(c["ema"]).add_(new, alpha=1 - c["ema"])

    def evaluate(self, at: int) -> None:
        stored = {name: one.clone() for name, one in self.net.state_dict().items()}
        self.net.load_state_dict(self.ema.state_dict())
        dice = torch.Generator().manual_seed(2)
        if self.bug != "evaluated_while_training":
            self.net.eval()
        with torch.set_grad_enabled(self.bug == "eval_tracks_gradients"):
            found = [self.diffusion.loss(self.net, self.held, self.held_wind, dice, False) for _ in range(5)]
        self.seen.append(found if self.bug == "eval_tracks_gradients" else [one.item() for one in found])
        if self.bug != "ema_weights_left_in":
            self.net.load_state_dict(stored)
        self.run.log({"eval/loss": sum(one.item() for one in found) / len(found)}, step=at)

    def resume(self, at: int) -> None:
        parts = {"net": self.net, "ema": self.ema, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self.run, states = go_on(self.run, at, {name: one.state_dict() for name, one in parts.items()})
        self.net.load_state_dict(states["net"])
        self.ema.load_state_dict(states["ema"])
        self.begin()
        self.scheduler.load_state_dict(states["scheduler"])
        self.optimizer.load_state_dict(states["optimizer"])
        self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Trainer(run, seed, steps, trouble), trouble.resume_at(healthy, 4 * EVERY)
    for at in range(steps):
        if at == resumed:
            made.resume(at)
        made.step(at)
        trouble.telemetry(made.run, at, healthy)
        if at % EVERY == 0 or at == steps - 1:
            made.evaluate(at)
    return made.run
