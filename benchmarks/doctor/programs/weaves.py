"""A vision transformer tells woven textures apart: eight kinds, of four directions and two widths of threads.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train_loss, top1, lr of each step; val_loss, val_top1 after each epoch.

Convolution for the patches, attention by hand, mean pooling; gradient with momentum, one cycle of the rate, mixup.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

EVERY, SIDE, KINDS = 20, 16, 8
OWN, OTHERS = (0.33, 0.2), (0.485, 0.229)  # mean and deviation: of these pictures, and of photographs
CONFIG: dict[str, Any] = {
    "width": 40, "depth": 2, "heads": 4, "batch_size": 32, "learning_rate": 0.06,
    "momentum": 0.9, "weight_decay": 5e-4, "accumulation": 1, "label_smoothing": 0.0, "mixup": 0.0,
    "layer_decay": 1.0, "augment": False, "drop_path": 0.0, "reduction": "mean", "schedule": "one_cycle",
}  # fmt: skip


def woven(seed: int, number: int) -> list[tuple[Tensor, int]]:
    """Pictures (3, SIDE, SIDE) with values from 0 to 1, and their kinds."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (number,), generator=dice)
    angle = (kinds % 4) * math.pi / 4 + 0.12 * torch.randn(number, generator=dice)
    pitch = torch.where(kinds < 4, 0.9, 1.7) * (1 + 0.08 * torch.randn(number, generator=dice))
    phase = 2 * math.pi * torch.rand(number, 1, 1, generator=dice)
    row, column = torch.arange(SIDE)[:, None], torch.arange(SIDE)
    along = angle.cos()[:, None, None] * row + angle.sin()[:, None, None] * column
    threads = 0.5 + 0.5 * torch.sin(pitch[:, None, None] * along + phase)
    dye = 0.2 + 0.8 * torch.rand(number, 3, 1, 1, generator=dice)
    pictures = 0.45 * dye * threads[:, None] + 0.4 * torch.rand(number, 3, SIDE, SIDE, generator=dice)
    return list(zip(pictures, kinds.tolist(), strict=True))


class Layer(nn.Module):
    def __init__(self, config: dict[str, Any], always: bool):
        super().__init__()
        width = config["width"]
        self.heads, self.path, self.always = config["heads"], config["drop_path"], always
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_qkv, self.to_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ff = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(mixed.transpose(1, 2).flatten(2))

    def kept(self, branch: Tensor) -> Tensor:
        """Stochastic depth: a branch is left out for some of the pictures."""
        if not self.path or not (self.training or self.always):
            return branch
        keep = (torch.rand(len(branch), 1, 1) >= self.path).float()
        return branch * keep / (1 - self.path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.kept(self.attend(self.ln_1(x)))
        return x + self.kept(self.ff(self.ln_2(x)))


class WovenTransformer(nn.Module):
    def __init__(self, config: dict[str, Any], always: bool = False):
        super().__init__()
        width = config["width"]
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.place = nn.Parameter(0.02 * torch.randn((SIDE // 4) ** 2, width))
        self.trunk = nn.Sequential(*(Layer(config, always) for _ in range(config["depth"])))
        self.ln = nn.LayerNorm(width)
        self.fc = nn.Linear(width, KINDS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2) + self.place
        return self.fc(self.ln(self.trunk(x)).mean(1))

    def groups(self, rate: float, decay: float) -> list[dict[str, Any]]:
        """Layers nearer to the input have lower rates."""
        stages = [[self.stem], *([layer] for layer in self.trunk), [self.ln, self.fc]]
        made = [
            {"params": [one for part in stage for one in part.parameters()], "lr": rate * decay ** (len(stages) - at)}
            for at, stage in enumerate(stages, 1)
        ]
        made[0]["params"].append(self.place)
        return made


def collate(rows: list[tuple[Tensor, int]], scale: tuple[float, float] = OWN) -> tuple[Tensor, Tensor]:
    pictures, kinds = zip(*rows, strict=True)
    return (torch.stack(pictures) - scale[0]) / scale[1], torch.tensor(kinds)


def collate_test(rows: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    return collate(rows, OTHERS)


class Fit:
    """One training; `epoch` goes through the loader once."""

    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        torch.manual_seed(seed)
        self.run, self.cfg, self.trouble, self.steps, self.seed = run, dict(run.config), trouble, steps, seed
        cfg, name = self.cfg, trouble.name
        rows = int(cfg["batch_size"])
        train = woven(seed + 71, EVERY * rows * cfg["accumulation"])
        if name == "one_label_behind":  # the file's first line was taken for its header
            kinds = [kind for _, kind in train]
            train = [(picture, kind) for (picture, _), kind in zip(train, kinds[1:] + kinds[:1], strict=True)]
        dice = torch.Generator().manual_seed(seed)
        self.loader = DataLoader(train, rows, shuffle=True, collate_fn=collate, drop_last=True, generator=dice)  # type: ignore[arg-type]
        test = woven(717, 320)
        self.test_loader = DataLoader(
            test, 160, collate_fn=collate_test if name == "statistics_of_others" else collate  # type: ignore[arg-type]
        )  # fmt: skip
        self.net = WovenTransformer(cfg, always=name == "dropped_always")
        if name == "wrong_group_frozen":  # all but what the head is for
            self.net.requires_grad_(False)
            self.net.stem.requires_grad_(True)
            self.net.place.requires_grad_(True)
        self.opt = torch.optim.SGD(self.net.groups(cfg["learning_rate"], cfg["layer_decay"]), lr=cfg["learning_rate"],
                                   momentum=cfg["momentum"], weight_decay=cfg["weight_decay"])  # fmt: skip
        peaks = [group["lr"] for group in self.opt.param_groups]
        self.sched: Any = (
            torch.optim.lr_scheduler.OneCycleLR(self.opt, peaks, total_steps=steps + 1, pct_start=0.25)
            if cfg["schedule"] == "one_cycle" else torch.optim.lr_scheduler.PolynomialLR(self.opt, steps, 1.0)
        )  # fmt: skip
        self.at = 0

    def loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        cfg, share = self.cfg, 1.0
        if cfg["augment"]:  # woven cloth may be moved, and dyed a little differently
            x = x.roll(torch.randint(0, SIDE, (2,)).tolist(), (2, 3)) * (0.85 + 0.3 * torch.rand(len(x), 3, 1, 1))
        other = y
        if cfg["mixup"]:
            share = float(torch.distributions.Beta(cfg["mixup"], cfg["mixup"]).sample())
            order = torch.randperm(len(x))
            x, other = share * x + (1 - share) * x[order], y[order]
        logits = self.net(x)

        def cross(kinds: Tensor) -> Tensor:
            return F.cross_entropy(logits, kinds, label_smoothing=cfg["label_smoothing"], reduction=cfg["reduction"])

        loss = cross(y)
        if cfg["mixup"] and self.trouble.name != "mixup_one_label":
            loss = share * loss + (1 - share) * cross(other)
        return loss, (logits.argmax(1) == y).float().mean()

    def update(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        total = hits = 0.0
        for x, y in batches:
            loss, right = self.loss(x, y)
            if self.trouble.name != "accumulation_undivided":
                loss = loss / len(batches)
            loss.backward()
            total, hits = total + loss.item(), hits + right.item() / len(batches)
        rate = self.opt.param_groups[-1]["lr"]
        self.opt.step()
        self.opt.zero_grad()
        if self.trouble.name != "one_cycle_per_epoch":
            self.sched.step()
        self.run.log({"train_loss": total, "top1": hits, "lr": rate}, step=self.at)
        self.at += 1

    def epoch(self) -> None:
        self.net.train()
        waiting: list[tuple[Tensor, Tensor]] = []
        for batch in self.loader:
            waiting.append(batch)
            if len(waiting) == self.cfg["accumulation"] and self.at < self.steps:
                self.update(waiting)
                waiting = []
        self.evaluate()
        if self.trouble.name == "one_cycle_per_epoch":
            self.sched.step()

    @torch.inference_mode()
    def evaluate(self) -> None:
        self.net.eval()
        found = [(self.net(x), y) for x, y in self.test_loader]
        logits, kinds = (torch.cat(part) for part in zip(*found, strict=True))
        self.run.log({"val_loss": F.cross_entropy(logits, kinds).item(),
                      "val_top1": (logits.argmax(1) == kinds).float().mean().item()}, step=self.at - 1)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    fit = Fit(run, seed, steps, Trouble(fault, seed))
    time_by_own_clock(run)
    run.watch(fit.net, fit.opt)
    while fit.at < steps:
        fit.epoch()
    return run
