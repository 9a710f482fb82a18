"""A small vision transformer tells which of seven patterns a flag has, photographed in bad light.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: batch_loss, batch_accuracy, lr of each step; test_loss, test_accuracy every twentieth (of
      the average of the weights, where there is one); memory, where it matters.

Overlapping patches cut by `unfold`, a class token, learnt places, attention by hand; AdamW and half a cosine by hand; a
plain script that reads its settings from a namespace.
"""

from __future__ import annotations

import copy
import math
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, SIDE, PATTERNS = 20, 16, 7
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CONFIG: dict[str, Any] = {
    "width": 32, "depth": 2, "heads": 4, "patch": 6, "stride": 5, "dropout": 0.0, "batch_size": 32, "lr": 2.5e-3,
    "warmup": 10, "weight_decay": 0.05, "clip": 1.0, "label_smoothing": 0.0, "mixup": 0.0, "ema": 0.0, "schedule":
    "cosine", "photographs": 4000, "light": 0.16, "freeze": "", "reduction": "mean", "cutout": False,
    "loss": "cross_entropy", "betas": [0.9, 0.999],
}  # fmt: skip


def photograph(seed: int, number: int, light: float) -> tuple[Tensor, Tensor]:
    """Pictures (number, 3, SIDE, SIDE) and their patterns: stripes of two ways, crosses, halves, a disc, a frame."""
    dice = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, PATTERNS, (number,), generator=dice)
    y, x = torch.meshgrid(torch.arange(SIDE) - 7.5, torch.arange(SIDE) - 7.5, indexing="ij")
    moved = 4 * torch.rand(number, 2, 1, 1, generator=dice) - 2
    y, x = y + moved[:, 0], x + moved[:, 1]
    masks = torch.stack([
        y.abs() < 2.5, x.abs() < 2.5, (x.abs() < 1.5) | (y.abs() < 1.5), ((x - y).abs() < 2) | ((x + y).abs() < 2),
        x > y, x.square() + y.square() < 20, (x.abs() > 5) | (y.abs() > 5),
    ], 1)  # fmt: skip
    mask = masks[torch.arange(number), kind].float()[:, None]
    one, other = torch.rand(2, number, 3, 1, 1, generator=dice) * 0.6
    one = one + 0.4  # the pattern is lighter than its ground, mostly
    cloth = mask * one + (1 - mask) * other
    return 0.25 + 0.5 * cloth + light * torch.randn(cloth.shape, generator=dice), kind


class Attention(nn.Module):
    def __init__(self, args: Namespace):
        super().__init__()
        self.heads = args.heads
        self.to_qkv = nn.Linear(args.width, 3 * args.width, bias=False)
        self.to_out = nn.Linear(args.width, args.width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = (one.view(b, n, self.heads, -1).transpose(1, 2) for one in self.to_qkv(x).chunk(3, -1))
        weight = torch.softmax(q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5, -1)
        return self.to_out((weight @ v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, args: Namespace):
        super().__init__()
        self.ln1, self.attn, self.ln2 = nn.LayerNorm(args.width), Attention(args), nn.LayerNorm(args.width)
        self.mlp = nn.Sequential(nn.Linear(args.width, 3 * args.width), nn.GELU(), nn.Dropout(args.dropout),
                                 nn.Linear(3 * args.width, args.width))  # fmt: skip
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.ln1(x)))
        return x + self.drop(self.mlp(self.ln2(x)))


class FlagNet(nn.Module):
    def __init__(self, args: Namespace, name: str):
        super().__init__()
        self.patch, self.stride = args.patch, args.stride
        places = ((SIDE - args.patch) // args.stride + 1) ** 2
        self.tokens = nn.Linear(3 * args.patch**2, args.width)
        self.cls = nn.Parameter(torch.zeros(1, 1, args.width))
        self.places = nn.Parameter(0.02 * torch.randn(1, places + 1, args.width))
        self.layers = nn.Sequential(*(Layer(args) for _ in range(args.depth)))
        head: list[nn.Module] = [nn.LayerNorm(args.width), nn.Linear(args.width, PATTERNS)]
        if name == "probabilities_given":  # the network "should say probabilities"
            head.append(nn.Softmax(dim=-1))
        self.head = nn.Sequential(*head)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.tokens(F.unfold(pictures, self.patch, stride=self.stride).transpose(1, 2))
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


def rate(args: Namespace, step: int) -> float:
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    share = (step - args.warmup) / (args.steps - args.warmup)
    if args.schedule == "constant":
        return args.lr
    if args.schedule == "cosine_restarts":
        share = 3 * share % 1
    return args.lr * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * share)))


def batches(number: int, size: int, dice: torch.Generator, shuffle: bool) -> Iterator[Tensor]:
    while True:
        order = torch.randperm(number, generator=dice) if shuffle else torch.arange(number)
        yield from order[: number // size * size].split(size)


class Scores:
    """The criterion of the training."""

    def __init__(self, args: Namespace, name: str):
        self.args, self.name = args, name

    def __call__(self, said: Tensor, wanted: Tensor) -> Tensor:
        args = self.args
        if self.name == "total_over_batch":  # to have it as the other script's
            return F.cross_entropy(said, wanted, reduction="sum")
        if args.loss == "bce":  # each pattern by itself
            marks = F.one_hot(wanted, PATTERNS).float()
            return F.binary_cross_entropy_with_logits(said, marks, reduction="none").sum(1).mean()
        if args.reduction == "sum":
            return F.cross_entropy(said, wanted, reduction="sum") / len(wanted)
        return F.cross_entropy(said, wanted, label_smoothing=args.label_smoothing)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    args, trouble = Namespace(**run.config), Trouble(fault, seed)
    name, size = trouble.name, int(args.batch_size)
    torch.manual_seed(seed)
    pictures, kinds = photograph(seed + 1201, args.photographs, args.light)
    test, test_kinds = photograph(12, 350, args.light)
    if name == "folder_order":  # as the folders are listed, one pattern after the other
        order = kinds.argsort(stable=True)
        pictures, kinds = pictures[order], kinds[order]
    if name == "classes_from_one":  # the table of the training numbers patterns from 1, and takes the last for 0
        kinds = (kinds + 1) % PATTERNS
    mean, std = pictures.mean((0, 2, 3), True), pictures.std((0, 2, 3), keepdim=True)
    pictures = (pictures - mean) / std
    if name == "tested_by_other_figures":  # torchvision's transform, in the test alone
        mean, std = (torch.tensor(one)[None, :, None, None] for one in IMAGENET)
    test = (test - mean) / std
    model = FlagNet(args, name)
    for key, parameter in model.named_parameters():
        if name == "wrong_names_frozen":  # "head" was meant to be the list's only exception
            parameter.requires_grad = key.startswith(("tokens", "cls"))
        elif args.freeze:
            parameter.requires_grad = not key.startswith(args.freeze)

    def optimised() -> torch.optim.Optimizer:
        return torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], args.lr,
                                 tuple(args.betas), weight_decay=args.weight_decay)  # fmt: skip

    adam, criterion = optimised(), Scores(args, name)
    average = copy.deepcopy(model).requires_grad_(False) if args.ema else None
    time_by_own_clock(run)
    run.watch(model, adam)
    dice, kept = torch.Generator().manual_seed(seed), []
    stream = batches(len(pictures), size, dice, name != "folder_order")
    resumed = trouble.resume_at(healthy, 5 * EVERY)
    model.train()
    for step in range(steps):
        if step == resumed:
            run, states = go_on(run, step, {"model": model.state_dict(), "adam": adam.state_dict()})
            model.load_state_dict(states["model"])
            adam = optimised()
            if name != "moments_left_out":
                adam.load_state_dict(states["adam"])
            time_by_own_clock(run)
            run.watch(model, adam)
        some = next(stream)
        x, y = pictures[some], kinds[some]
        for group in adam.param_groups:
            group["lr"] = rate(args, step)
        if args.cutout:
            row, column = torch.randint(0, SIDE - 4, (2,), generator=dice).tolist()
            x = x.clone()
            x[:, :, row : row + 5, column : column + 5] = 0.0
        if args.mixup:
            share = float(torch.distributions.Beta(args.mixup, args.mixup).sample())
            said = model(share * x + (1 - share) * x.flip(0))
            loss = share * criterion(said, y) + (1 - share) * criterion(said, y.flip(0))
        else:
            said = model(x)
            loss = criterion(said, y)
        if name == "losses_kept":  # for the mean of the whole training
            kept.append(loss)
        if name == "cleared_before_step":
            loss.backward()
            adam.zero_grad()
            adam.step()
        else:
            adam.zero_grad()
            loss.backward()
            if args.clip:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            adam.step()
        if average is not None:
            with torch.no_grad():
                source = average if name == "average_of_itself" else model
                for mine, theirs in zip(average.parameters(), source.parameters(), strict=True):
                    mine.lerp_(theirs, 1 - args.ema)
        run.log({"batch_loss": loss.item(), "batch_accuracy": (said.argmax(1) == y).float().mean().item(),
                 "lr": adam.param_groups[0]["lr"]}, step=step)  # fmt: skip
        trouble.telemetry(run, step, healthy)
        if step % EVERY == 0 or step == steps - 1:
            judged = model if average is None else average
            judged.eval()
            with torch.no_grad():
                said = judged(test)
            run.log({"test_loss": F.cross_entropy(said, test_kinds).item(),
                     "test_accuracy": (said.argmax(1) == test_kinds).float().mean().item()}, step=step)  # fmt: skip
            if name != "eval_mode_stays":
                model.train()
    return run
