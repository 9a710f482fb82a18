"""A small vision transformer: 4x4 patches of coloured gratings, fixed sine positions, layer scale, mean pooling.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_loss, train_top1, lr, epoch of each step; val_loss, val_top1 at each epoch's end.

Pictures are shifted and mirrored as they are drawn; matrices decay, vectors don't.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .loop import factor

EVERY, SIDE, PATCH, KINDS = 20, 16, 4, 6
MEAN, DEVIATION = 0.5, 0.22
CONFIG: dict[str, Any] = {
    "dim": 36, "depth": 2, "heads": 3, "dropout": 0.0, "batch_size": 24, "learning_rate": 2e-3, "warmup_steps": 20,
    "schedule": "cosine", "weight_decay": 0.05, "label_smoothing": 0.1, "mixup": 0.0, "clip": 1.0, "ema": 0.0,
    "wrong_labels": 0.0,
}  # fmt: skip


def gratings(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Pictures as a file has them, (number, 3, SIDE, SIDE) from 0 to 255, and their kinds."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (number,), generator=dice)
    grid = torch.arange(SIDE).float() - SIDE / 2
    slope = (kinds % 3).float() * 0.5 + 0.1 * torch.randn(number, generator=dice)
    wave = torch.where(kinds < 3, 0.75, 1.25)[:, None, None]
    phase = 6.3 * torch.rand(number, 1, 1, generator=dice)
    along = slope[:, None, None].cos() * grid + slope[:, None, None].sin() * grid[:, None].abs()
    tint = 0.4 + 0.6 * torch.rand(number, 3, 1, 1, generator=dice)
    drawn = 0.5 + 0.25 * tint * torch.sin(wave * along + phase)[:, None]
    drawn = drawn + 0.2 * torch.randn(drawn.shape, generator=dice)
    return (255 * drawn).clamp(0, 255).round(), kinds


def positions(dim: int) -> Tensor:
    """Sines and cosines of the row and the column of each patch."""
    quarter, across = dim // 4, SIDE // PATCH
    rates = 10000 ** (-torch.arange(quarter) / quarter)
    row = torch.arange(across)[:, None, None] * rates
    row = row.expand(across, across, quarter)
    column = row.transpose(0, 1)
    return torch.cat([row.sin(), row.cos(), column.sin(), column.cos()], -1).flatten(0, 1)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, wrong: bool):
        super().__init__()
        self.heads, self.over = heads, -2 if wrong else -1
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        return self.out((scores.softmax(self.over) @ value).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float, wrong: bool):
        super().__init__()
        self.norm1, self.norm2, self.drop = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Dropout(dropout)
        self.attention = Attention(dim, heads, wrong)
        self.mlp = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))
        self.gamma1, self.gamma2 = (nn.Parameter(0.2 * torch.ones(dim)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gamma1 * self.drop(self.attention(self.norm1(x)))
        return x + self.gamma2 * self.drop(self.mlp(self.norm2(x)))


class PatchTransformer(nn.Module):
    def __init__(self, config: dict[str, Any], name: str):
        super().__init__()
        dim = config["dim"]
        self.name = name
        self.embed = nn.Conv2d(3, dim, PATCH, PATCH)
        self.register_buffer("places", positions(dim))
        self.layers = nn.ModuleList(
            Layer(dim, config["heads"], config["dropout"], name == "softmax_over_queries")
            for _ in range(config["depth"])
        )
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, KINDS)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.embed(pictures).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x.mean(1)))
        return logits.softmax(-1) if self.name == "double_softmax" else logits


class Loader:
    """Batches of an epoch in a new order, drawn with shifts and mirrors."""

    def __init__(self, data: tuple[Tensor, Tensor], seed: int, rows: int):
        self.data, self.rows = data, rows
        self.dice = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Any:
        pictures, kinds = self.data
        for chosen in torch.randperm(len(kinds), generator=self.dice).split(self.rows):
            if len(chosen) < self.rows:
                return
            shift = torch.randint(-1, 2, (2,), generator=self.dice).tolist()
            drawn = pictures[chosen].roll(shift, (2, 3))
            mirrored = torch.rand(len(chosen), 1, 1, 1, generator=self.dice) < 0.5
            yield torch.where(mirrored, drawn.flip(2), drawn), kinds[chosen]


def normalised(pictures: Tensor, name: str) -> Tensor:
    scaled = pictures / 255
    if name == "scaled_twice":  # the transform before this one has done it, too
        scaled = scaled / 255
    return (scaled - MEAN) / DEVIATION


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.config, self.trouble = run, dict(run.config), trouble
        config = self.config
        data = gratings(seed + 41, EVERY * config["batch_size"])
        if config["wrong_labels"]:
            wrong = torch.rand(len(data[1]), generator=torch.Generator().manual_seed(seed)) < config["wrong_labels"]
            data = data[0], torch.where(wrong, (data[1] + 2) % KINDS, data[1])
        if trouble.name == "labels_off_by_one":  # the training's list of kinds begins with a background
            data = data[0], (data[1] + 1) % KINDS
        self.loader, self.test = Loader(data, seed, int(config["batch_size"])), gratings(414, 240)
        self.model = PatchTransformer(config, trouble.name)
        matrices = [one for one in self.model.parameters() if one.dim() > 1]
        vectors = [one for one in self.model.parameters() if one.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
            lr=config["learning_rate"], betas=(0.9, 0.95),
        )  # fmt: skip
        self.average = {name: one.detach().clone() for name, one in self.model.state_dict().items()}
        self.losses: list[Tensor] = []

    def step(self, step: int, epoch: int, pictures: Tensor, kinds: Tensor) -> None:
        config, trouble = self.config, self.trouble
        rate = config["learning_rate"] * factor(config, config["steps"], step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        pictures, wanted = normalised(pictures, trouble.name), functional.one_hot(kinds, KINDS).float()
        if config["mixup"]:
            share = torch.rand(len(kinds), 1, generator=self.loader.dice) * config["mixup"]
            pictures = pictures.lerp(pictures.flip(0), share[..., None, None])
            wanted = wanted.lerp(wanted.flip(0), share)
        logits = self.model(pictures)
        loss = functional.cross_entropy(logits, wanted, label_smoothing=config["label_smoothing"])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), config["clip"])
        self.optimizer.step()
        with torch.no_grad():
            for name, one in self.model.state_dict().items():
                self.average[name].lerp_(one, 1 - config["ema"])
        self.run.log({"train_loss": loss.item(), "train_top1": (logits.argmax(1) == kinds).float().mean().item(),
                      "lr": rate, "epoch": epoch}, step=step)  # fmt: skip

    def validate(self, step: int) -> None:
        trained = {name: one.clone() for name, one in self.model.state_dict().items()}
        if self.config["ema"]:
            self.model.load_state_dict(self.average)
        self.model.eval()
        forgotten = self.trouble.name == "no_grad_missing"
        found, hits = [], 0
        with torch.set_grad_enabled(forgotten):
            for pictures, kinds in zip(*(part.split(60) for part in self.test), strict=True):
                logits = self.model(normalised(pictures, self.trouble.name))
                found.append(functional.cross_entropy(logits, kinds))
                hits += int((logits.argmax(1) == kinds).sum())
        if forgotten:
            self.losses += found  # for a plot at the end
        self.model.load_state_dict(trained)
        if not self.trouble.on("evaluation_mode_left_on", step):
            self.model.train()
        self.run.log({"val_loss": torch.stack(found).mean().item(), "val_top1": hits / len(self.test[1])}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    made = Script(run, seed, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    step = 0
    for epoch in range(-(-steps // EVERY)):
        for pictures, kinds in made.loader:
            if step < steps:
                made.step(step, epoch, pictures, kinds)
                made.trouble.telemetry(run, step, healthy)
                step += 1
        made.validate(step - 1)
    return run
