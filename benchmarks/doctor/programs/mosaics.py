"""A small vision transformer tells six ways of laying tiles apart.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/acc1, train/lr of each step; val/loss, val/acc1 of the average of the
      weights, after each epoch, and val/acc1_raw of the weights themselves; memory, where it matters.

A stem of convolutions, a class token and two registers, root mean square norms, gated layers; AdamW; functions that
take all they need, in the manner of torchvision's references.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
from injections import Trouble, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

EVERY, SIDE, KINDS = 20, 16, 6
OURS, PHOTOGRAPHS = ((0.2, 0.15), (0.485, 0.229))
CONFIG: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0, "batch_size": 24, "learning_rate": 4e-3, "weight_decay": 0.02,
    "warmup_steps": 12, "accumulation": 1, "label_smoothing": 0.0, "ema": 0.9, "frozen_stem": False,
    "normalisation": "own", "pictures": 0, "augment": True,
}  # fmt: skip


def lay(seed: int, number: int) -> tuple[Tensor, Tensor]:
    """Pictures (number, 3, SIDE, SIDE) between 0 and 1, and how their tiles lie."""
    dice = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (number,), generator=dice)
    row, column = torch.meshgrid(torch.arange(SIDE) // 2, torch.arange(SIDE) // 2, indexing="ij")
    shift = torch.randint(0, 4, (number, 2, 1, 1), generator=dice)
    r, c = row + shift[:, 0], column + shift[:, 1]
    ways = torch.stack([r % 2, c % 2, (r + c) % 2, (r + c) // 2 % 2, (r - c) // 2 % 2, (r // 2 + c // 2) % 2], 1)
    light = ways[torch.arange(number), kinds].float()[:, None]
    one, other = (torch.rand(number, 3, 1, 1, generator=dice) for _ in range(2))
    noise = torch.randn(number, 3, SIDE, SIDE, generator=dice)
    return 0.4 * (light * one + (1 - light) * other + 0.2 * noise), kinds


class Attend(nn.Module):
    def __init__(self, args: Any, cut: str):
        super().__init__()
        self.heads, self.cut, self.rate = args.heads, cut, args.dropout
        self.q, self.kv = nn.Linear(args.dim, args.dim), nn.Linear(args.dim, 2 * args.dim)
        self.o = nn.Linear(args.dim, args.dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, (k, v) = self.q(x), self.kv(x).chunk(2, -1)
        if self.cut == "heads_by_view":
            q, k, v = (part.reshape(b, self.heads, n, d // self.heads) for part in (q, k, v))
        else:
            q, k, v = (part.view(b, n, self.heads, -1).transpose(1, 2) for part in (q, k, v))
        weights = (q @ k.mT / math.sqrt(d // self.heads)).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, args: Any, cut: str):
        super().__init__()
        self.before, self.between = nn.RMSNorm(args.dim), nn.RMSNorm(args.dim)
        self.attend, self.drop = Attend(args, cut), nn.Dropout(args.dropout)
        self.gate, self.value, self.back = (nn.Linear(args.dim, 2 * args.dim), nn.Linear(args.dim, 2 * args.dim),
                                            nn.Linear(2 * args.dim, args.dim))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attend(self.before(x)))
        y = self.between(x)
        return x + self.drop(self.back(nn.functional.silu(self.gate(y)) * self.value(y)))


class TileViT(nn.Module):
    def __init__(self, args: Any, cut: str):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, args.dim, 3, 2, 1))
        self.cls = nn.Parameter(torch.zeros(1, 1, args.dim))
        self.registers = nn.Parameter(0.02 * torch.randn(1, 2, args.dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (SIDE // 4) ** 2, args.dim))
        self.blocks = nn.ModuleList(Block(args, cut) for _ in range(args.depth))
        self.norm, self.head = nn.RMSNorm(args.dim), nn.Linear(args.dim, KINDS)
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2) + self.pos
        x = torch.cat([self.cls.expand(len(x), -1, -1), self.registers.expand(len(x), -1, -1), x], 1)
        for block in self.blocks:
            x = block(x)
        x = self.head(self.norm(x[:, 0]))
        return torch.softmax(x, dim=-1) if self.cut == "double_softmax" else x


class ModelEma:
    def __init__(self, model: nn.Module, decay: float):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for mine, theirs in zip(self.module.parameters(), model.parameters(), strict=True):
            mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)


def loaders(args: Any, seed: int, name: str) -> tuple[DataLoader[Any], DataLoader[Any]]:
    number = args.pictures or EVERY * int(args.batch_size) * args.accumulation
    pictures, kinds = lay(seed + 17, number)
    test, test_kinds = lay(171, 288)
    if name == "labels_off_by_one":  # the list of the training counts its kinds from 1; those of the test from 0
        kinds = (kinds + 1) % KINDS
    mean, deviation = OURS if args.normalisation == "own" else PHOTOGRAPHS
    test_mean, test_deviation = PHOTOGRAPHS if name == "statistics_of_others" else (mean, deviation)
    held = TensorDataset((test - test_mean) / test_deviation, test_kinds)
    shown = TensorDataset((pictures - mean) / deviation, kinds)
    dice = torch.Generator().manual_seed(seed)
    return (DataLoader(shown, int(args.batch_size), shuffle=True, drop_last=True, generator=dice),
            DataLoader(held, 96))  # fmt: skip


def train_one_epoch(run: Any, model: Any, ema: ModelEma, criterion: Any, optimizer: Any, scheduler: Any,
                    loader: Any, step: int, args: Any, trouble: Trouble, healthy: str | None) -> int:  # fmt: skip
    if not trouble.on("evaluation_mode_left_on", step):
        model.train()
    seen = hits = total = 0.0
    for number, (image, target) in enumerate(loader, 1):
        if args.augment:  # tiles may lie a little further on
            image = image.roll(torch.randint(0, SIDE, (2,)).tolist(), (2, 3))
        output = model(image)
        loss = criterion(output, target) / args.accumulation
        loss.backward()
        total += loss.item()
        hits, seen = hits + (output.argmax(1) == target).sum().item(), seen + len(target)
        if trouble.name == "scheduler_per_micro_batch":
            scheduler.step()
        if number % args.accumulation:
            continue
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if trouble.name != "scheduler_per_micro_batch":
            scheduler.step()
        ema.update(model)
        run.log({"train/loss": total, "train/acc1": hits / seen, "train/lr": rate}, step=step)
        trouble.telemetry(run, step, healthy)
        seen = hits = total = 0.0
        step += 1
        if step == args.steps:
            break
    return step


def evaluate(model: nn.Module, criterion: Any, loader: Any, kept: list[Tensor], forgotten: bool) -> dict[str, float]:
    model.eval()
    losses, hits = [], []
    with torch.set_grad_enabled(forgotten):
        for image, target in loader:
            output = model(image)
            losses.append(criterion(output, target))
            hits.append((output.softmax(-1).argmax(1) == target).float().mean())
    kept += losses if forgotten else [loss.detach() for loss in losses]
    return {"val/loss": torch.stack(losses).mean().item(), "val/acc1": torch.stack(hits).mean().item()}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    args, trouble = SimpleNamespace(**run.config), Trouble(fault, seed)
    torch.manual_seed(seed)
    model = TileViT(args, trouble.name)
    if args.frozen_stem:
        model.stem.requires_grad_(False)
    if trouble.name == "wrong_group_frozen":  # "all but the head", with the test the wrong way round
        for name, parameter in model.named_parameters():
            parameter.requires_grad = "head" not in name and "blocks" not in name
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=args.learning_rate,
                                  weight_decay=args.weight_decay)  # fmt: skip
    down = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - args.warmup_steps, args.learning_rate / 50)
    up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, args.warmup_steps)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [up, down], [args.warmup_steps])
    loader, test_loader = loaders(args, seed, trouble.name)
    ema = ModelEma(model, args.ema)
    kept: list[Tensor] = []
    time_by_own_clock(run)
    run.watch(model, optimizer)
    step = 0
    forgotten = trouble.name == "no_grad_missing"
    while step < steps:
        step = train_one_epoch(run, model, ema, criterion, optimizer, scheduler, loader, step, args, trouble,
                               healthy)  # fmt: skip
        raw = evaluate(model, criterion, test_loader, kept, forgotten)
        averaged = evaluate(ema.module, criterion, test_loader, kept, forgotten)
        run.log(averaged | {"val/acc1_raw": raw["val/acc1"]}, step=step - 1)
    return run
