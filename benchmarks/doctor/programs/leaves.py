"""A vision transformer tells which of six trees a leaf is of, by its lobes.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/acc, lr each step; val/loss, val/acc, epoch at each epoch's end; memory,
      where it matters.

A stem of two convolutions, torch's own encoder, the mean over places; AdamW under a one-cycle rate, loaders, an
`AveragedModel`; `train_one_epoch` and `evaluate` as in the tutorials.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

EVERY, SIDE, TREES = 30, 20, 6
CONFIG: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 4, "mlp": 64, "dropout": 0.0, "batch_size": 32, "max_lr": 3e-3, "weight_decay":
    0.03, "grad_clip": 1.0, "leaves": 960, "copies": 1, "augment": True, "label_smoothing": 0.0, "mixup": 0.0,
    "ema": 0.0, "lr_policy": "one_cycle", "freeze_stem": False, "optimizer": "adamw", "loss_reduction": "mean",
    "blur": 0.25, "stem": "conv",
}  # fmt: skip


def press(seed: int, number: int, blur: float) -> tuple[Tensor, Tensor]:
    """Scans 0 to 255 (number, 3, SIDE, SIDE) of leaves whose edge has from 0 to 7 lobes, and the trees."""
    dice = torch.Generator().manual_seed(seed)
    tree = torch.randint(0, TREES, (number,), generator=dice)
    lobes = torch.tensor([0.0, 2.0, 3.0, 4.0, 5.0, 7.0])[tree][:, None, None]
    line = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(line, line, indexing="ij")
    draw = torch.rand(number, 4, 1, 1, generator=dice)
    y, x = y - 0.2 * (draw[:, 0] - 0.5), x - 0.2 * (draw[:, 1] - 0.5)
    edge = (0.5 + 0.15 * draw[:, 2]) * (1 + 0.45 * torch.cos(lobes * (torch.atan2(y, x) + 0.5 * (draw[:, 3] - 0.5))))
    leaf = torch.sigmoid((edge - (y.square() + x.square()).sqrt()) / 0.06)[:, None]
    green = torch.tensor([0.25, 0.55, 0.2])[:, None, None] * (0.7 + 0.6 * torch.rand(number, 1, 1, 1, generator=dice))
    paper = 0.85 + 0.1 * torch.rand(number, 1, 1, 1, generator=dice)
    scan = leaf * green + (1 - leaf) * paper + blur * torch.randn(number, 3, SIDE, SIDE, generator=dice)
    return (255 * scan).clamp(0, 255), tree


class Leaves(Dataset[tuple[Tensor, int]]):
    def __init__(self, scans: Tensor, trees: Tensor, figures: tuple[Tensor, Tensor], seed: int | None):
        self.scans, self.trees = (scans - figures[0]) / figures[1], trees.tolist()
        self.dice = None if seed is None else torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        scan = self.scans[index]
        if self.dice is not None and torch.rand((), generator=self.dice) < 0.5:
            scan = scan.flip(1)  # the wobble's angle is symmetric
        return scan, self.trees[index]


class LeafViT(nn.Module):
    def __init__(self, cfg: dict[str, Any], outputs: int, name: str):
        super().__init__()
        dim = cfg["dim"]
        self.stem = nn.Sequential(nn.Conv2d(3, dim // 2, 3, 2, 1), nn.GELU(), nn.Conv2d(dim // 2, dim, 3, 2, 1))
        if cfg["stem"] == "patches":
            self.stem = nn.Sequential(nn.Conv2d(3, dim, 4, 4))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (SIDE // 4) ** 2, dim))
        layer = nn.TransformerEncoderLayer(dim, cfg["heads"], cfg["mlp"], cfg["dropout"], "gelu", batch_first=True,
                                           norm_first=True)  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, cfg["depth"], nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, outputs)
        self.activation = nn.Softmax(1) if name == "softmax_at_the_end" else nn.Identity()

    def forward(self, scans: Tensor) -> Tensor:
        tokens = self.stem(scans).flatten(2).transpose(1, 2) + self.pos
        return self.activation(self.head(self.encoder(tokens).mean(1)))


class Session:
    """What the functions below share."""

    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble, healthy: str | None):
        self.run, self.cfg, self.trouble, self.name = run, dict(run.config), trouble, trouble.name
        self.seed, self.steps, self.healthy, self.step, self.outputs_kept = seed, steps, healthy, 0, []  # type: ignore[var-annotated]
        torch.manual_seed(seed)
        self.loaders()
        self.model = LeafViT(self.cfg, TREES + (self.name == "ids_count_from_one"), self.name)
        for key, one in self.model.named_parameters():
            if self.name == "all_but_named_frozen":  # for a network that somebody has trained; this one nobody has
                one.requires_grad = key.startswith("head")
            elif self.cfg["freeze_stem"]:
                one.requires_grad = not key.startswith("stem")
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(self.cfg["ema"]), use_buffers=True) \
            if self.cfg["ema"] else None  # fmt: skip
        self.prepare()

    def loaders(self) -> None:
        cfg, name = self.cfg, self.name
        number = cfg["leaves"] // cfg["copies"]
        (scans, trees), (val, val_trees) = press(self.seed + 31, number, cfg["blur"]), press(3, 300, cfg["blur"])
        if cfg["copies"] > 1:  # each leaf is scanned several times, a little lighter or darker
            dice = torch.Generator().manual_seed(self.seed)
            light = 0.97 + 0.06 * torch.rand(number * cfg["copies"], 1, 1, 1, generator=dice)
            scans = scans.repeat_interleave(cfg["copies"], 0) * light
            trees = trees.repeat_interleave(cfg["copies"])
            if name == "scanned_again_then_split":
                order = torch.randperm(len(scans), generator=dice)
                scans, trees = scans[order], trees[order]
                val, val_trees, scans, trees = scans[:300], trees[:300], scans[300:], trees[300:]
        if name == "one_kind_behind_another":  # as the folders are read, and the loader is left so
            order = trees.argsort(stable=True)
            scans, trees = scans[order], trees[order]
        figures = (scans.mean((0, 2, 3), True), scans.std((0, 2, 3), keepdim=True))
        if name == "ids_count_from_one":  # the csv of the training does; the validation's was mended
            trees = trees + 1
        made = Leaves(scans, trees, figures, self.seed if cfg["augment"] else None)
        if name == "validated_by_older_figures":  # of the scans of the first campaign, on grey paper
            figures = (figures[0] - 45.0, 0.6 * figures[1])
        self.train_loader = DataLoader(made, int(cfg["batch_size"]), shuffle=name != "one_kind_behind_another",
                                       drop_last=True, generator=torch.Generator().manual_seed(self.seed))  # fmt: skip
        self.val_loader = DataLoader(Leaves(val, val_trees, figures, None), 100)

    def prepare(self) -> None:
        cfg, some = self.cfg, [one for one in self.model.parameters() if one.requires_grad]
        if cfg["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, cfg["max_lr"], momentum=0.9, weight_decay=1e-4)
        else:
            self.optimizer = torch.optim.AdamW(some, cfg["max_lr"], weight_decay=cfg["weight_decay"])
        if cfg["lr_policy"] == "constant":
            self.scheduler: Any = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.2, total_iters=10)
        else:
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, cfg["max_lr"], self.steps + 1,
                                                                 cycle_momentum=False)  # fmt: skip
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)

    def resume(self) -> None:
        states = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                  "scheduler": self.scheduler.state_dict()}  # fmt: skip
        self.run, states = go_on(self.run, self.step, states)
        self.model.load_state_dict(states["model"])
        self.prepare()
        self.scheduler.load_state_dict(states["scheduler"])
        if self.name == "optimizer_not_reloaded":
            self.optimizer.param_groups[0]["lr"] = self.scheduler.get_last_lr()[0]
        else:
            self.optimizer.load_state_dict(states["optimizer"])


def criterion(s: Session, logits: Tensor, trees: Tensor) -> Tensor:
    if s.name == "summed_not_averaged":
        return nn.CrossEntropyLoss(reduction="sum")(logits, trees)
    if s.cfg["loss_reduction"] == "sum":
        return nn.CrossEntropyLoss(reduction="sum")(logits, trees) / trees.numel()
    return nn.CrossEntropyLoss(label_smoothing=s.cfg["label_smoothing"])(logits, trees)


def train_one_epoch(s: Session, resumed: int | None) -> None:
    if s.name != "eval_mode_kept" or not s.step:
        s.model.train()
    for scans, trees in s.train_loader:
        if s.step == resumed:
            s.resume()
        if s.cfg["mixup"]:
            share = float(torch.distributions.Beta(s.cfg["mixup"], s.cfg["mixup"]).sample())
            logits = s.model(share * scans + (1 - share) * scans.roll(1, 0))
            loss = share * criterion(s, logits, trees) + (1 - share) * criterion(s, logits, trees.roll(1))
        else:
            logits = s.model(scans)
            loss = criterion(s, logits, trees)
        if s.name != "cleared_each_epoch" or s.step % len(s.train_loader) == 0:
            s.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(s.model.parameters(), s.cfg["grad_clip"] or math.inf)
        s.optimizer.step()
        rate = s.optimizer.param_groups[0]["lr"]
        s.scheduler.step()
        if s.ema is not None and s.name != "shadow_never_moved":
            s.ema.update_parameters(s.model)
        accuracy = (logits.argmax(1) == trees).float().mean()
        s.run.log({"train/loss": loss.item(), "train/acc": accuracy.item(), "lr": rate}, step=s.step)
        s.trouble.telemetry(s.run, s.step, s.healthy)
        s.step += 1
        if s.step == s.steps:
            break


def evaluate(s: Session, epoch: int) -> None:
    model = s.model if s.ema is None else s.ema.module
    model.eval()
    loss, right, seen = 0.0, 0, 0
    with torch.set_grad_enabled(s.name == "validation_keeps_graphs"):
        for scans, trees in s.val_loader:
            logits = model(scans)
            if s.name == "validation_keeps_graphs":  # for a table of confusions at the end
                s.outputs_kept.append(logits)
            loss += F.cross_entropy(logits, trees, reduction="sum").item()
            right += int((logits.argmax(1) == trees).sum())
            seen += len(trees)
    s.run.log({"val/loss": loss / seen, "val/acc": right / seen, "epoch": epoch}, step=s.step - 1)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s, epoch, resumed = Session(run, seed, steps, trouble, healthy), 0, trouble.resume_at(healthy, 3 * EVERY)
    while s.step < steps:
        train_one_epoch(s, resumed)
        evaluate(s, epoch)
        epoch += 1
    return s.run
