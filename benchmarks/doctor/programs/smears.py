"""A small vision transformer tells six kinds of blood cells on two gloo processes; two of the kinds are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first rank: cells/train_ce, cells/train_acc, cells/lr, cells/grad_norm each step;
      cells/val_ce, cells/val_bal_acc, cells/val_recall_blast each twentieth, of an average of weights where there is
      one; by `run.reduce` losses of both ranks; the watch of data.

A picture of twelve by twelve in three colours has one cell with a nucleus of lobes and grains in its plasma; it comes
from a slide, which has a stain of its own. Folders are read kind after kind. A stem of convolutions with batch norm
makes patches, on which attention works; rates fall from the head to the stem. Pictures are turned and brightened.
"""

from __future__ import annotations

import contextlib
import copy
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from . import ranks

EVERY, RANKS, SIDE, HELD = 20, 2, 12, 300
KINDS = ("neutrophil", "lymphocyte", "monocyte", "eosinophil", "basophil", "blast")
SHARES = torch.tensor([0.38, 0.30, 0.13, 0.11, 0.04, 0.04])
MEAN, STD = torch.tensor([0.78, 0.62, 0.74]), torch.tensor([0.16, 0.2, 0.14])
CONFIG: dict[str, Any] = {
    "embed_dim": 32, "depth": 2, "num_heads": 4, "drop": 0.0, "stem_norm": "batch", "batch_size": 24, "update_freq": 1,
    "opt": "adamw", "lr": 4e-3, "layer_decay": 0.8, "weight_decay": 0.05, "sched": "cosine", "warmup_steps": 12,
    "clip_grad": 2.0, "class_weights": "inverse_sqrt", "sampler": "shuffle", "reduction": "mean", "smoothing": 0.0,
    "mixup": 0.0, "model_ema": 0.0, "ema_warmup": True, "cells": 1500, "crops_of_each": 1, "wrong_kinds": 0.0,
    "stain_spread": 0.05, "flips": True, "clear_cells_first": 0, "frozen": "", "val_every": 20, "log_every": 1,
    "ranks": RANKS,
}  # fmt: skip


# -- cells ----------------------------------------------------------------------------------------------------------


def cells(seed: int, number: int, c: Any, crops: int = 1) -> tuple[Tensor, Tensor]:
    """Pictures from 0 to 1 and their kinds, kind after kind. crops: pictures of one cell, a little aside."""
    dice = torch.Generator().manual_seed(seed)
    many = number // crops
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    size = torch.tensor([3.2, 2.6, 4.2, 3.3, 3.0, 4.4])[kind] * (0.9 + 0.2 * torch.rand(many, generator=dice))
    lobes = torch.tensor([3.0, 0.0, 1.0, 2.0, 2.0, 0.0])[kind]
    share = torch.tensor([0.6, 0.8, 0.65, 0.55, 0.6, 0.85])[kind]
    grains = torch.tensor([0.05, 0.0, 0.02, 0.35, -0.35, 0.0])[kind]
    phase, stain = (
        2 * math.pi * torch.rand(many, generator=dice),
        1 + c.stain_spread * torch.randn(many, 3, generator=dice),
    )
    size, lobes, share, grains, phase, stain, kind = (
        one.repeat_interleave(crops, 0) for one in (size, lobes, share, grains, phase, stain, kind)
    )  # fmt: skip
    number = len(kind)
    at = torch.arange(SIDE).float() - (SIDE - 1) / 2
    dx = at.view(1, 1, -1) - 0.7 * torch.randn(number, 1, 1, generator=dice)
    dy = at.view(1, -1, 1) - 0.7 * torch.randn(number, 1, 1, generator=dice)
    far, angle = (dx**2 + dy**2).sqrt(), torch.atan2(dy, dx)
    size, lobes, share, grains, phase = (one.view(-1, 1, 1) for one in (size, lobes, share, grains, phase))
    body = torch.sigmoid(3 * (size - far))
    edge = size * share * (1 + 0.35 * (lobes > 0) * torch.cos(lobes * angle + phase))
    nucleus = torch.sigmoid(3 * (edge - far))
    speckle = torch.rand(number, SIDE, SIDE, generator=dice) * body * (1 - nucleus)
    red = 0.95 - 0.1 * body - 0.45 * nucleus + 0.3 * grains.clamp(min=0) * speckle + 0.6 * grains.clamp(max=0) * speckle
    green = 0.92 - 0.2 * body - 0.5 * nucleus - 0.5 * grains.abs() * speckle
    blue = 0.95 - 0.15 * body - 0.2 * nucleus - 0.6 * grains.clamp(min=0) * speckle
    picture = torch.stack([red, green, blue], 1) * stain[:, :, None, None]
    return (picture + 0.03 * torch.randn(picture.shape, generator=dice)).clamp(0, 1), kind


def normalize(picture: Tensor) -> Tensor:
    return (picture - MEAN.view(1, 3, 1, 1)) / STD.view(1, 3, 1, 1)


def augment(picture: Tensor, flips: bool) -> Tensor:
    if flips:
        picture = torch.where(torch.rand(len(picture), 1, 1, 1) < 0.5, picture.flip(3), picture)
        picture = torch.where(torch.rand(len(picture), 1, 1, 1) < 0.5, picture.flip(2), picture)
    return (picture * (0.95 + 0.1 * torch.rand(len(picture), 1, 1, 1))).clamp(0, 1)


# -- network --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.embed_dim
        self.norm1, self.norm2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), c.num_heads
        self.qkv, self.proj, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(c.drop)
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.drop(self.proj(y))
        return x + self.drop(self.fc2(self.drop(F.gelu(self.fc1(self.norm2(x))))))


class CellViT(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug = c.embed_dim, bug
        norm: nn.Module = nn.BatchNorm2d(d) if c.stem_norm == "batch" else nn.GroupNorm(4, d)
        self.stem = nn.Sequential(nn.Conv2d(3, d, 3, padding=1, bias=False), norm, nn.ReLU(), nn.Conv2d(d, d, 3, 3))
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, d))
        self.pos_embed = nn.Parameter(0.1 * torch.randn(1, 17, d))
        self.blocks, self.norm = nn.ModuleList(Block(c) for _ in range(c.depth)), nn.LayerNorm(d)
        self.head_drop, self.head = nn.Dropout(c.drop), nn.Linear(d, len(KINDS))

    def forward(self, picture: Tensor) -> Tensor:
        x = self.stem(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        out = self.head(self.head_drop(self.norm(x)[:, 0]))
        return out.softmax(1) if self.bug == "head_ends_in_a_softmax_layer" else out


def layer_of(name: str, depth: int) -> int:
    """How far from the picture a parameter lies: 0 the stem, depth + 1 the head."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return depth + 1 if name.startswith(("head", "norm")) else 0


class ModelEma:
    """A slow copy of the net, which is judged."""

    def __init__(self, net: nn.Module, c: Any, bug: str):
        self.module = copy.deepcopy(net).requires_grad_(False).eval()
        self.limit, self.warmup, self.updates, self.bug = c.model_ema, c.ema_warmup, 0, bug

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        self.updates += 1
        decay = min(self.limit, (1 + self.updates) / (10 + self.updates)) if self.warmup else self.limit
        for mean, one in zip(self.module.parameters(), net.parameters(), strict=True):
            mean.lerp_(one, 1 - decay)
        if self.bug == "average_of_parameters_without_buffers":
            return
        for mean, one in zip(self.module.buffers(), net.buffers(), strict=True):
            mean.copy_(one)


# -- training -------------------------------------------------------------------------------------------------------


class Engine:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.load_data()
        self.net = CellViT(c, bug)
        for name, one in self.net.named_parameters():
            if c.frozen and name.startswith(c.frozen):
                one.requires_grad_(False)
        self.ddp = DistributedDataParallel(self.net)
        self.ema = ModelEma(self.net, c, bug) if c.model_ema else None
        counts = torch.bincount(self.kind, minlength=len(KINDS)).float()
        self.weight = torch.ones(len(KINDS))
        if c.class_weights != "none":
            power = 0.5 if c.class_weights == "inverse_sqrt" else 1.0
            self.weight = (counts.sum() / counts) ** power
            self.weight = self.weight / (self.weight * counts).sum() * counts.sum()
        self.make_optimizer()

    def load_data(self) -> None:
        c, dice = self.c, torch.Generator().manual_seed(self.seed)
        picture, kind = cells(self.seed + 1660, c.cells, c, c.crops_of_each)
        held, held_kind = cells(1659, HELD, c)
        if self.bug == "crops_split_by_picture_and_not_by_cell":
            order = torch.randperm(len(kind), generator=dice)
            mine, rest = order[:HELD], order[HELD:].sort().values
            held, held_kind, picture, kind = picture[mine], kind[mine], picture[rest], kind[rest]
        if c.wrong_kinds:
            wrong = torch.rand(len(kind), generator=dice) < c.wrong_kinds
            kind = torch.where(wrong, torch.multinomial(SHARES, len(kind), True, generator=dice), kind)
        if self.bug == "class_to_idx_of_each_folder":  # the training's folders are sorted by name, the list isn't
            by_name = sorted(range(len(KINDS)), key=lambda one: KINDS[one])
            kind = torch.tensor([by_name.index(one) for one in range(len(KINDS))])[kind]
        self.picture, self.kind = picture, kind
        val_transform = (lambda x: x) if self.bug == "normalize_left_out_of_val_transform" else normalize
        self.held = val_transform(held), held_kind
        self.clear = picture.flatten(1).std(1) > picture.flatten(1).std(1).median()

    def make_optimizer(self) -> None:
        c, groups = self.c, []
        for at, (name, one) in enumerate(self.net.named_parameters()):
            if not one.requires_grad:
                continue
            last, layer = c.depth + 1, layer_of(name, c.depth)
            if self.bug == "layer_ids_counted_by_parameter":
                last, layer = len(list(self.net.parameters())) - 1, at
            scale = c.layer_decay ** (last - layer)
            groups.append(
                {"params": [one], "lr": c.lr * scale, "weight_decay": c.weight_decay if one.ndim > 1 else 0.0}
            )
        if c.opt == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.opt == "nadam":
            self.optimizer = torch.optim.NAdam(groups, c.lr, decoupled_weight_decay=True)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / self.steps)
            if c.sched == "constant":
                return rise
            if c.sched == "cosine_cycles":
                return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
            return rise * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def rows(self, epoch: int) -> Tensor:
        """This rank's pictures of an epoch."""
        c, number, rank = self.c, len(self.kind), dist.get_rank()
        if c.sampler == "balanced" or self.bug == "balanced_draw_beside_full_weights":
            dice = torch.Generator().manual_seed(self.seed + 71 * epoch + rank)
            each = 1 / torch.bincount(self.kind, minlength=len(KINDS)).float()[self.kind]
            return torch.multinomial(each, number // RANKS, True, generator=dice)
        if self.bug == "loader_shuffles_by_itself_on_each_rank":
            dice = torch.Generator().manual_seed(self.seed + epoch)
            return torch.randperm(number, generator=dice)
        shuffle = self.bug != "sampler_made_with_shuffle_false"
        sampler: Any = DistributedSampler(range(number), shuffle=shuffle, seed=self.seed, drop_last=True)
        sampler.set_epoch(epoch)
        mine = torch.tensor(list(sampler))
        return mine[self.clear[mine]] if epoch < c.clear_cells_first else mine

    def loss(self, picture: Tensor, kind: Tensor, part: int) -> tuple[Tensor, Tensor]:
        c = self.c
        x, other, lam = normalize(augment(picture, c.flips)), kind, 1.0
        if c.mixup:
            lam = float(torch.distributions.Beta(c.mixup, c.mixup).sample())
            order = torch.randperm(len(x))
            x = lam * x + (1 - lam) * x[order]
            other = kind if self.bug == "pictures_mixed_and_labels_kept" else kind[order]
        last = part == c.update_freq - 1
        with contextlib.nullcontext() if last else self.ddp.no_sync():
            out = self.ddp(x)

            def ce(wanted: Tensor) -> Tensor:
                each = F.cross_entropy(out, wanted, reduction="none", label_smoothing=c.smoothing) * self.weight[wanted]
                if self.bug == "weighted_sum_in_place_of_weighted_mean" or c.reduction == "sum":
                    return each.sum()
                return each.sum() / self.weight[wanted].sum()

            loss = lam * ce(kind) + (1 - lam) * ce(other) if c.mixup else ce(kind)
            (loss if self.bug == "update_freq_without_its_division" else loss / c.update_freq).backward()
        return loss.detach(), out.detach()

    @torch.no_grad()
    def validate(self, step: int) -> None:
        judged = self.ema.module if self.ema else self.net
        if self.bug != "val_loop_without_eval":
            judged.eval()
        else:
            judged.train()
        mine = slice(dist.get_rank(), None, RANKS)
        picture, kind = self.held[0][mine], self.held[1][mine]
        out = torch.cat([judged(some) for some in picture.split(50)])
        each, hit = F.cross_entropy(out, kind, reduction="none"), (out.argmax(1) == kind).float()
        known = F.one_hot(kind, len(KINDS)).float()
        sums = torch.cat([(known * hit[:, None]).sum(0), known.sum(0), each.sum()[None], torch.tensor([len(kind)])])
        dist.all_reduce(sums)
        if self.bug != "model_eval_once_and_for_all":
            self.net.train()
        hits, many = sums[: len(KINDS)], sums[len(KINDS) : 2 * len(KINDS)]
        recall = hits / many.clamp(min=1)
        if dist.get_rank() == 0:
            said = {"cells/val_ce": float(sums[-2] / sums[-1]), "cells/val_bal_acc": recall[many > 0].mean().item()}
            self.run.log(said | {"cells/val_recall_blast": recall[-1].item()}, step=step)

    def fit(self) -> None:
        c, bug, step, epoch = self.c, self.bug, 0, 0
        self.net.train()
        while step < self.steps:
            lots = [one for one in self.rows(epoch).split(c.batch_size) if len(one) == c.batch_size]
            for first in range(0, len(lots) - c.update_freq + 1, c.update_freq):
                began, total, right = clock(), 0.0, 0.0
                for part, some in enumerate(lots[first : first + c.update_freq]):
                    picture, kind = self.picture[some], self.kind[some]
                    self.watch.observe({"picture": normalize(picture), "kind": kind}, step=step, epoch=epoch)
                    loss, out = self.loss(picture, kind, part)
                    total += loss.item() / c.update_freq
                    right += (out.argmax(1) == kind).float().mean().item() / c.update_freq
                    if bug == "scheduler_in_the_loop_over_parts":
                        self.scheduler.step()
                norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.clip_grad).item()
                rate = self.optimizer.param_groups[-1]["lr"]
                self.optimizer.step()
                self.optimizer.zero_grad()
                if bug != "scheduler_in_the_loop_over_parts":
                    self.scheduler.step()
                if self.ema:
                    self.ema.update(self.net)
                if dist.get_rank() == 0 and step % c.log_every == 0:
                    said = {"cells/train_ce": total, "cells/train_acc": right, "cells/lr": rate}
                    self.run.log(said | {"cells/grad_norm": norm}, step=step)
                self.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
                if step % c.val_every == c.val_every - 1:
                    self.validate(step)
                step += 1
                if step == self.steps:
                    return
            epoch += 1


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    engine = Engine(run, seed, steps, Trouble(fault, seed).name)
    time_by_own_clock(run)
    run.watch(engine.net, engine.optimizer)
    engine.watch = run.watch_data()
    torch.manual_seed(seed + 17 * (dist.get_rank() + 1))  # of augmentation and dropout
    engine.fit()
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
