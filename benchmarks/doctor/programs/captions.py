"""Pictures of things and their captions are brought together, as CLIP does it, by two encoders and a learnt scale.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss and scale of every second step; val_loss, val_recall, val_loss_texts after each epoch.

A thing has four properties of six values. Batch norm in both encoders, batches as dicts of a collate function, AdamW
whose rate is set by hand.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

EVERY, VALUES, PROPERTIES, PIXELS = 20, 6, 4, 32
FILLERS = 8  # words that say nothing
CONFIG: dict[str, Any] = {
    "width": 48, "joint": 32, "dropout": 0.15, "batch_size": 32, "learning_rate": 4e-3, "warmup_steps": 10,
    "schedule": "cosine", "weight_decay": 0.05, "scale": 2.66, "learn_scale": True, "norm_momentum": 0.1,
    "frozen": "", "objective": "softmax", "noise": 0.35, "things": 640,
}  # fmt: skip
Thing = dict[str, Any]


def things(seed: int, number: int, noise: float) -> list[Thing]:
    """Each with `picture` (PIXELS) and `words`, a list of numbers from 1 on; the order of words says nothing."""
    dice = torch.Generator().manual_seed(seed)
    lens = torch.randn(VALUES * PROPERTIES, PIXELS, generator=torch.Generator().manual_seed(55))
    made = []
    for _ in range(number):
        values = torch.randint(0, VALUES, (PROPERTIES,), generator=dice) + VALUES * torch.arange(PROPERTIES)
        picture = torch.tanh(lens[values].sum(0) / 2) + noise * torch.randn(PIXELS, generator=dice)
        fill = VALUES * PROPERTIES + torch.randint(0, FILLERS, (int(torch.randint(0, 7, (1,), generator=dice)),),
                                                   generator=dice)  # fmt: skip
        words = torch.cat([values, fill])[torch.randperm(PROPERTIES + len(fill), generator=dice)] + 1
        made.append({"picture": picture, "words": words})
    return made


def collate(some: list[Thing]) -> dict[str, Tensor]:
    words = nn.utils.rnn.pad_sequence([one["words"] for one in some], batch_first=True)
    return {"pixels": torch.stack([one["picture"] for one in some]), "words": words, "seen": words > 0}


class Pictures(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        width, momentum = cfg["width"], cfg["norm_momentum"]
        self.net = nn.Sequential(
            nn.Linear(PIXELS, 2 * width), nn.BatchNorm1d(2 * width, momentum=momentum), nn.ReLU(),
            nn.Dropout(cfg["dropout"]), nn.Linear(2 * width, width), nn.BatchNorm1d(width, momentum=momentum),
            nn.ReLU(), nn.Linear(width, cfg["joint"], bias=False),
        )  # fmt: skip

    def forward(self, pixels: Tensor) -> Tensor:
        return self.net(pixels)


class Texts(nn.Module):
    def __init__(self, cfg: dict[str, Any]):
        super().__init__()
        width = cfg["width"]
        self.words = nn.Embedding(VALUES * PROPERTIES + FILLERS + 1, width, padding_idx=0)
        self.weigh = nn.Linear(width, 1)
        self.norm = nn.BatchNorm1d(width, momentum=cfg["norm_momentum"])
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(cfg["dropout"]),
                                 nn.Linear(width, cfg["joint"], bias=False))  # fmt: skip

    def forward(self, words: Tensor, seen: Tensor) -> Tensor:
        x = self.words(words)
        share = self.weigh(x)[..., 0].masked_fill(~seen, float("-inf")).softmax(1)
        return self.mlp(self.norm(torch.einsum("bt,btd->bd", share, x)))


class Joint(nn.Module):
    def __init__(self, cfg: dict[str, Any], name: str):
        super().__init__()
        self.pictures, self.texts, self.name = Pictures(cfg), Texts(cfg), name
        self.log_scale = nn.Parameter(torch.tensor(float(cfg["scale"])), requires_grad=cfg["learn_scale"])
        self.offset = nn.Parameter(torch.tensor(-4.0)) if cfg["objective"] == "sigmoid" else None

    def encode_texts(self, batch: dict[str, Tensor]) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.name != "tower_without_gradient"):
            return F.normalize(self.texts(batch["words"], batch["seen"]), dim=-1)

    def similar(self, batch: dict[str, Tensor]) -> Tensor:
        pictures, texts = F.normalize(self.pictures(batch["pixels"]), dim=-1), self.encode_texts(batch)
        scale = self.log_scale if self.name == "scale_without_exponent" else self.log_scale.clamp(max=4.6).exp()
        return scale * pictures @ texts.mT + (0.0 if self.offset is None else self.offset)


def matching(similar: Tensor, objective: str, name: str) -> tuple[Tensor, Tensor]:
    """The loss of pictures, and that of texts."""
    rows = len(similar)
    right = torch.arange(rows)
    if objective == "sigmoid":  # each pair by itself
        each = -F.logsigmoid(similar * (2 * torch.eye(rows) - 1)).sum() / rows
        return each, each
    if name == "labels_off_by_one":
        right = right.roll(-1)
    if name == "double_softmax":
        return F.cross_entropy(similar.softmax(1), right), F.cross_entropy(similar.softmax(0).mT, right)
    how = "sum" if name == "summed_both_ways" else "mean"
    return F.cross_entropy(similar, right, reduction=how), F.cross_entropy(similar.mT, right, reduction=how)


def rate_at(cfg: dict[str, Any], step: int) -> float:
    if step < cfg["warmup_steps"]:
        return cfg["learning_rate"] * (step + 1) / cfg["warmup_steps"]
    if cfg["schedule"] == "constant":
        return cfg["learning_rate"]
    gone = (step - cfg["warmup_steps"]) / (cfg["steps"] - cfg["warmup_steps"])
    return cfg["learning_rate"] * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * gone)))


def evaluate(run: Any, model: Joint, test: list[Thing], trouble: Trouble, step: int, cfg: dict[str, Any]) -> None:
    shared = trouble.name if trouble.name == "double_softmax" else ""
    model.train(trouble.on("training_mode_in_evaluation", step))
    with torch.no_grad():
        found = [model.similar(batch) for batch in DataLoader(test, int(cfg["batch_size"]), collate_fn=collate)]  # type: ignore[arg-type]
    loss = torch.stack([torch.stack(matching(one, cfg["objective"], shared)) for one in found]).mean(0)
    hits = torch.cat([one.argmax(1) == torch.arange(len(one)) for one in found])
    model.train()
    run.log({"val_loss": loss.mean().item(), "val_loss_texts": loss[1].item(),
             "val_recall": hits.float().mean().item()}, step=step)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    torch.manual_seed(seed)
    cfg, trouble = dict(run.config), Trouble(fault, seed)
    if trouble.name == "stale_statistics":
        cfg["norm_momentum"] = 0.0
    rows = int(cfg["batch_size"])
    data, test = things(seed + 61, cfg["things"], cfg["noise"]), things(616, 256, cfg["noise"])
    loader = DataLoader(data, rows, shuffle=True, drop_last=True, collate_fn=collate,  # type: ignore[arg-type]
                        generator=torch.Generator().manual_seed(seed))  # fmt: skip
    model = Joint(cfg, trouble.name)
    if cfg["frozen"]:
        getattr(model, cfg["frozen"]).net[0].requires_grad_(False)
    matrices = [one for one in model.parameters() if one.requires_grad and one.dim() > 1]
    others = [one for one in model.parameters() if one.requires_grad and one.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}],
                                  lr=cfg["learning_rate"], weight_decay=cfg["weight_decay"])  # fmt: skip
    time_by_own_clock(run)
    run.watch(model, optimizer)
    step = 0
    while step < steps:
        for batch in loader:
            if step == steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = rate_at(cfg, step)
            of_pictures, of_texts = matching(model.similar(batch), cfg["objective"], trouble.name)
            loss = of_pictures + of_texts if trouble.name == "summed_both_ways" else (of_pictures + of_texts) / 2
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 2 == 0:
                run.log({"loss": loss.item(), "scale": model.log_scale.exp().item(), "epoch": step * rows // len(data)},
                        step=step)  # fmt: skip
            step += 1
            if step % EVERY == 0 or step == steps:
                evaluate(run, model, test, trouble, step - 1, cfg)
    return run
