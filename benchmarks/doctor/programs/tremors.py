"""Tells what shook a seismograph: mostly wind, now and then a quarry, a train, and seldom an earthquake.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_loss, lr each step; val_loss, val_f1, val_recall_rare at each epoch's end.

Windows of three channels through strided convolutions with batch norm and a recurrent layer; kinds weigh by how rare
they are; SGD with momentum, half a cosine by epochs; a class `Experiment` with `setup`, `train_epoch`, `validate`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
import torch.nn as nn
from injections import Trouble, go_on, time_by_own_clock
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

EVERY, KINDS, CHANNELS, LONG = 20, 4, 3, 64
SHARES = (0.80, 0.11, 0.06, 0.03)
CONFIG: dict[str, Any] = {
    "width": 24, "hidden": 32, "dropout": 0.0, "batch_size": 64, "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4,
    "windows": 1280, "class_weights": "balanced", "sampler": "none", "oversample": 1, "norm": "batch", "loss":
    "cross_entropy", "label_smoothing": 0.0, "scheduler": "cosine", "frozen": "", "swa_from": 0.0, "optimizer": "sgd",
    "reduction": "mean", "noise": 0.8, "clip_grad": 5.0, "nesterov": True,
}  # fmt: skip


def shake(seed: int, number: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the digitiser (number, CHANNELS, LONG), and what it was."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(KINDS, number, p=SHARES)
    t = np.arange(LONG)
    begin = rng.integers(8, 36, (number, 1))
    later = np.maximum(t - begin, 0)
    on = t >= begin
    pace = rng.uniform(0.8, 1.25, (number, 1))
    wind = np.cumsum(rng.normal(0, 0.25, (number, LONG)), 1)
    blast = on * np.exp(-later / 5) * np.sin(2.2 * pace * later)
    train = np.exp(-(((t - 32) / 16) ** 2)) * np.sin(1.1 * pace * t)
    quake = on * np.exp(-later / 9) * np.sin(1.4 * pace * later) + 1.3 * (later > 12) * np.exp(
        -np.maximum(later - 12, 0) / 9) * np.sin(0.8 * pace * later)  # fmt: skip
    what = np.select([kind[:, None] == one for one in range(KINDS)], [0 * wind, blast, train, quake])
    gains = rng.uniform(0.6, 1.4, (number, CHANNELS, 1))
    strong = np.exp(rng.normal(1.0, 0.3, (number, 1, 1)))
    seen = gains * strong * what[:, None] + 0.5 * wind[:, None] + noise * rng.normal(0, 1, (number, CHANNELS, LONG))
    return 1000 * seen.astype(np.float32), kind


class SeismoNet(nn.Module):
    def __init__(self, cfg: dict[str, Any], kinds: int, name: str):
        super().__init__()
        wide = cfg["width"]

        def normal() -> nn.Module:
            return nn.GroupNorm(4, wide) if cfg["norm"] == "group" else nn.BatchNorm1d(wide)

        self.features = nn.Sequential(
            nn.Conv1d(CHANNELS, wide, 7, 2, 3, bias=False), normal(), nn.ReLU(),
            nn.Conv1d(wide, wide, 5, 2, 2, bias=False), normal(), nn.ReLU(),
        )  # fmt: skip
        self.gru = nn.GRU(wide, cfg["hidden"], batch_first=True, bidirectional=True)
        self.drop, self.classifier = nn.Dropout(cfg["dropout"]), nn.Linear(2 * cfg["hidden"], kinds)
        self.softmax = name == "softmax_at_the_end"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.gru(self.features(x).transpose(1, 2))
        logits = self.classifier(self.drop(hidden.amax(1)))
        return logits.softmax(dim=1) if self.softmax else logits


class Experiment:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.cfg, self.name = run, dict(run.config), trouble.name
        self.seed, self.steps, self.step = seed, steps, 0
        torch.manual_seed(seed)
        self.data()
        self.model = SeismoNet(self.cfg, KINDS + (self.name == "ids_count_from_one"), self.name)
        for key, one in self.model.named_parameters():
            if self.name == "all_but_named_frozen":  # as when a network of another array is tuned
                one.requires_grad = "classifier" in key
            elif self.cfg["frozen"]:
                one.requires_grad = not key.startswith(self.cfg["frozen"])
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.averaged = 0
        self.setup()

    def data(self) -> None:
        cfg, name = self.cfg, self.name
        x, y = shake(self.seed + 404, cfg["windows"], cfg["noise"])
        vx, vy = shake(44, 500, cfg["noise"])
        rng = np.random.default_rng(self.seed)
        if cfg["oversample"] > 1:
            rows = np.repeat(np.arange(len(y)), np.where(y > 0, cfg["oversample"], 1))
            rng.shuffle(rows)
            if name == "oversampled_then_split":
                x, y = x[rows], y[rows]
                vx, vy, x, y = x[:500], y[:500], x[500:], y[500:]
            else:
                x, y = x[rows], y[rows]
        if name == "one_kind_behind_another":  # the catalogue is sorted by what it was
            order = np.argsort(y, kind="stable")
            x, y = x[order], y[order]
        middle, spread = x.mean(), x.std()
        x = (x - middle) / spread
        vx = (vx - middle) / spread
        counts = np.bincount(y, minlength=KINDS)
        if name == "shuffled_apart":  # windows and kinds, each in an order of its own
            rng.shuffle(y)
        weights = counts.sum() / (KINDS * counts)
        if name == "weights_by_count":
            weights = counts / counts.mean()
        self.weights = torch.tensor(weights, dtype=torch.float32) if cfg["class_weights"] == "balanced" else None
        if name == "ids_count_from_one":
            y = y + 1
            self.weights = F.pad(self.weights, (1, 0), value=1.0) if self.weights is not None else None
        lot = torch.Generator().manual_seed(self.seed)
        made = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        sampler = None
        if cfg["sampler"] == "weighted":
            sampler = WeightedRandomSampler((1 / counts)[y].tolist(), len(y), generator=lot)
        shuffle = sampler is None and name != "one_kind_behind_another"
        self.loader = DataLoader(made, int(cfg["batch_size"]), shuffle, sampler, drop_last=True, generator=lot)
        self.valid = (torch.from_numpy(vx.astype(np.float32)), torch.from_numpy(vy))

    def setup(self) -> None:
        cfg, some = self.cfg, [one for one in self.model.parameters() if one.requires_grad]
        if cfg["optimizer"] == "adam":
            self.optimizer: Any = torch.optim.Adam(some, 0.1 * cfg["lr"])
        else:
            self.optimizer = torch.optim.SGD(some, cfg["lr"], cfg["momentum"], weight_decay=cfg["weight_decay"],
                                             nesterov=cfg["nesterov"])  # fmt: skip
        epochs = math.ceil(self.steps / len(self.loader))
        if cfg["scheduler"] == "constant":
            self.scheduler: Any = torch.optim.lr_scheduler.ConstantLR(self.optimizer, 1.0)
        elif cfg["scheduler"] == "restarts":
            self.scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, max(1, epochs // 3))
        else:
            self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs)
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def resume(self) -> None:
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self.run, states = go_on(self.run, self.step, {key: one.state_dict() for key, one in parts.items()})
        self.model.load_state_dict(states["model"])
        self.setup()
        self.scheduler.load_state_dict(states["scheduler"])
        if self.name == "optimizer_not_reloaded":
            self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        else:
            self.optimizer.load_state_dict(states["optimizer"])

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        cfg = self.cfg
        if self.name == "summed_not_averaged":
            return F.cross_entropy(logits, y, self.weights, reduction="sum")
        if cfg["loss"] == "focal":
            chance = logits.log_softmax(1).gather(1, y[:, None])[:, 0]
            return (-((1 - chance.exp()) ** 2) * chance).mean()
        if cfg["reduction"] == "sum":
            weigh = self.weights[y].sum() if self.weights is not None else len(y)
            return F.cross_entropy(logits, y, self.weights, reduction="sum") / weigh
        return F.cross_entropy(logits, y, self.weights, label_smoothing=cfg["label_smoothing"])

    def train_epoch(self, resumed: int | None) -> None:
        self.model.train()
        for x, y in self.loader:
            if self.step == resumed:
                self.resume()
            loss = self.loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["clip_grad"])
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            if self.name == "scheduler_each_batch":  # its length is in epochs
                self.scheduler.step()
            self.run.log({"train_loss": loss.item(), "lr": rate}, step=self.step)
            self.step += 1
            if self.cfg["swa_from"] and self.step >= self.cfg["swa_from"] * self.steps:
                self.update_average()
            if self.step == self.steps:
                break
        if self.name != "scheduler_each_batch":
            self.scheduler.step()

    @torch.no_grad()
    def update_average(self) -> None:
        """The plain mean of the weights since it began."""
        self.averaged += 1
        source = self.average if self.name == "average_of_the_average" else self.model
        for mine, theirs in zip(self.average.parameters(), source.parameters(), strict=True):
            mine.lerp_(theirs, 1 / self.averaged)
        if self.name != "statistics_not_taken_anew":
            for mine, theirs in zip(self.average.buffers(), self.model.buffers(), strict=True):
                mine.copy_(theirs)

    @torch.no_grad()
    def validate(self) -> None:
        model = self.average if self.averaged else self.model
        if self.name != "no_eval_call":
            model.eval()
        x, y = self.valid
        logits = torch.cat([model(some) for some in x.split(100)])
        guess, f1, recall = logits.argmax(1), 0.0, 0.0
        for kind in range(KINDS):
            hit = int(((guess == kind) & (y == kind)).sum())
            f1 += 2 * hit / max(1, int((guess == kind).sum() + (y == kind).sum())) / KINDS
            recall = hit / max(1, int((y == kind).sum()))
        loss = F.cross_entropy(logits, y).item()
        self.run.log({"val_loss": loss, "val_f1": f1, "val_recall_rare": recall}, step=self.step - 1)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    made, resumed = Experiment(run, seed, steps, trouble), trouble.resume_at(healthy, 4 * EVERY)
    while made.step < steps:
        made.train_epoch(resumed)
        made.validate()
    return made.run
