"""Two towers bring a compound's spectrum and its formula together, by the others of the batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: clip/loss_in, clip/batch_acc, clip/scale, clip/lr each step; clip/loss_val, clip/r1_val
      each twentieth, over a gallery of held-out compounds; memory, where it matters; the watch of data.

Spectra are counts in bins, whose logarithm is scaled by the library's mean and spread; convolutions with batch norm
read them. A formula is a row of groups in any order. The temperature is learnt; descent with momentum. The library's
file is ordered by family. Two tables are joined: spectra, and formulas.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, BINS, GROUPS, FAMILIES, LONGEST, GALLERY = 20, 64, 18, 6, 6, 120
CONFIG: dict[str, Any] = {
    "width": 16, "embed_dim": 32, "dropout": 0.0, "bn_momentum": 0.1, "batch_norm": True, "batch_size": 40,
    "accum_freq": 1, "opt": "sgd", "lr": 0.03, "momentum": 0.9, "wd": 1e-4, "scheduler": "cosine", "warmup": 10,
    "grad_clip_norm": 5.0, "init_scale": 1 / 0.1, "learn_scale": True, "loss": "clip", "reduction": "mean",
    "label_smoothing": 0.0, "lock": "", "spectra": 960, "replicates": 1, "noise": 1.0, "wrong_formulas": 0.0,
    "shift_bins": 2,
    "strong_first": 0, "same_family": False, "val_frequency": 20, "log_every_n_steps": 1,
}  # fmt: skip


# -- library --------------------------------------------------------------------------------------------------------


def library(seed: int, number: int, c: Any, replicates: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Counts, formulas (0 is nothing) and the compound of each row: the library's tables, family after family."""
    dice, lines = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(1804)
    where = torch.rand(GROUPS, 2, generator=lines) * (BINS - 10) + 5
    height = 0.4 + torch.rand(GROUPS, 2, generator=lines)
    counts, formulas, compounds = [], [], []
    at = torch.arange(BINS)
    many = number // replicates
    for compound in range(many):
        family = compound * FAMILIES // many
        more = int(torch.randint(2, 5, (), generator=dice))
        others = FAMILIES + torch.randperm(GROUPS - FAMILIES, generator=dice)[:more]
        groups = torch.cat([torch.tensor([family]), others])
        amount = 0.6 + 0.8 * torch.rand(len(groups), generator=dice)
        told = torch.zeros(LONGEST, dtype=torch.long)
        told[: len(groups)] = groups[torch.randperm(len(groups), generator=dice)] + 1
        for _ in range(replicates):
            shift = 1.2 * torch.randn(len(groups), 2, 1, generator=dice)
            peaks = height[groups, :, None] * torch.exp(-((at - where[groups, :, None] - shift) ** 2) / 3)
            level = 40 * (amount[:, None, None] * peaks).sum((0, 1)) + 3
            counts.append(torch.poisson(level * math.exp(0.3 * float(torch.randn((), generator=dice))), generator=dice)
                          + (c.noise * 3 * torch.randn(BINS, generator=dice)).abs())  # fmt: skip
            formulas.append(told)
            compounds.append(compound)
    return torch.stack(counts), torch.stack(formulas), torch.tensor(compounds)


class Preprocess:
    """The logarithm of counts, by the training's mean and spread."""

    def __init__(self, counts: Tensor):
        self.mean, self.std = counts.log1p().mean().item(), counts.log1p().std().item()

    def __call__(self, counts: Tensor) -> Tensor:
        return (counts.clamp(min=0).log1p() - self.mean) / self.std


class Loader:
    def __init__(self, args: Any, counts: Tensor, formulas: Tensor, seed: int, bug: str):
        self.args, self.counts, self.formulas, self.bug = args, counts, formulas, bug
        self.dice, self.epoch = torch.Generator().manual_seed(seed), 0
        self.family = torch.where(formulas.le(FAMILIES) & formulas.gt(0), formulas, 0).amax(1)

    def order(self) -> Tensor:
        if self.bug == "loader_walks_the_library":
            return torch.arange(len(self.counts))
        order = torch.randperm(len(self.counts), generator=self.dice)
        if self.epoch < self.args.strong_first:
            strong = self.counts.sum(1) > self.counts.sum(1).median()
            order = order[strong[order]]
        if self.args.same_family:  # half a batch is of like families, on purpose
            size = self.args.batch_size // 2
            near = order[self.family[order].argsort(stable=True)]
            pieces = [one for one in near.split(size) if len(one) == size]
            order = torch.cat([pieces[at] for at in torch.randperm(len(pieces), generator=self.dice).tolist()])
        return order

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        while True:
            for some in self.order().split(self.args.batch_size):
                if len(some) < self.args.batch_size:
                    continue
                counts = self.counts[some]
                if self.args.shift_bins:
                    by = int(torch.randint(-self.args.shift_bins, self.args.shift_bins + 1, (), generator=self.dice))
                    counts = counts.roll(by, 1)
                yield self.epoch, counts, self.formulas[some]
            self.epoch += 1


# -- towers ---------------------------------------------------------------------------------------------------------


class SpectrumTower(nn.Module):
    def __init__(self, args: Any):
        super().__init__()
        w, layers, into = args.width, [], 1
        for out, stride in ((w, 1), (2 * w, 2), (2 * w, 2)):
            norm: nn.Module = nn.GroupNorm(4, out)
            if args.batch_norm:
                norm = nn.BatchNorm1d(out, momentum=args.bn_momentum)
            layers += [nn.Conv1d(into, out, 5, stride, 2, bias=False), norm, nn.ReLU()]
            into = out
        self.conv, self.drop = nn.Sequential(*layers), nn.Dropout(args.dropout)
        self.proj = nn.Linear(2 * w * BINS // 4, args.embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.drop(self.conv(x[:, None]).flatten(1)))


class FormulaTower(nn.Module):
    def __init__(self, args: Any):
        super().__init__()
        w = 2 * args.embed_dim
        self.embed, self.drop = nn.Embedding(GROUPS + 1, w, padding_idx=0), nn.Dropout(args.dropout)
        self.mlp = nn.Sequential(nn.LayerNorm(w), nn.Linear(w, w), nn.GELU(), nn.Linear(w, args.embed_dim))

    def forward(self, formula: Tensor) -> Tensor:
        known = (formula > 0).unsqueeze(-1)
        return self.mlp(self.drop((self.embed(formula) * known).sum(1) / known.sum(1).sqrt()))


class SpectraCLIP(nn.Module):
    def __init__(self, args: Any, bug: str):
        super().__init__()
        self.spectrum, self.formula, self.bug = SpectrumTower(args), FormulaTower(args), bug
        self.logit_scale = nn.Parameter(torch.tensor(math.log(args.init_scale)), requires_grad=args.learn_scale)

    def forward(self, counts: Tensor, formula: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dim = 0 if self.bug == "features_normalised_over_the_batch" else -1
        a, b = F.normalize(self.spectrum(counts), dim=dim), F.normalize(self.formula(formula), dim=dim)
        scale = self.logit_scale if self.bug == "scale_used_as_its_logarithm" else self.logit_scale.exp()
        return a, b, scale


def clip_loss(args: Any, a: Tensor, b: Tensor, scale: Tensor, bug: str) -> tuple[Tensor, Tensor]:
    """Of both directions, and how many spectra find their formula."""
    logits = scale * a @ b.T
    wanted = torch.arange(len(a))
    hits = (logits.argmax(1) == wanted).float()
    if args.loss == "siglip":
        signs = 2 * torch.eye(len(a)) - 1
        return -F.logsigmoid(signs * (logits - 4)).sum() / len(a), hits
    if bug == "match_probabilities_given_to_the_loss":
        each = F.cross_entropy(logits.softmax(1), wanted), F.cross_entropy(logits.T.softmax(1), wanted)
    elif bug == "both_losses_of_a_batch_totalled" or args.reduction == "sum":
        each = F.cross_entropy(logits, wanted, reduction="sum"), F.cross_entropy(logits.T, wanted, reduction="sum")
    else:
        smoothing = args.label_smoothing
        each = (F.cross_entropy(logits, wanted, label_smoothing=smoothing),
                F.cross_entropy(logits.T, wanted, label_smoothing=smoothing))  # fmt: skip
    return (each[0] + each[1]) / 2, hits


# -- training -------------------------------------------------------------------------------------------------------


def create_optimizer(args: Any, model: nn.Module) -> tuple[Any, Any]:
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    decayed = [one for name, one in named if one.ndim >= 2]
    plain = [one for name, one in named if one.ndim < 2]
    groups = [{"params": decayed, "weight_decay": args.wd}, {"params": plain, "weight_decay": 0.0}]
    if args.opt == "adamw":
        optimizer: Any = torch.optim.AdamW(groups, args.lr, (0.9, 0.98))
    else:
        optimizer = torch.optim.SGD(groups, args.lr, args.momentum, nesterov=args.opt == "nesterov")

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, args.warmup)), min(1.0, at / args.steps)
        if args.scheduler == "const":
            return rise
        if args.scheduler == "const-cooldown":
            return rise * min(1.0, max(0.0, (1 - past) / 0.3))
        if args.scheduler == "restarts":
            return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1))))
        return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * past)))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def lock(args: Any, model: nn.Module, bug: str) -> None:
    for name, one in model.named_parameters():
        locked = args.lock and name.startswith(args.lock)
        if bug == "lock_takes_the_whole_tower" and args.lock:  # by the tower's name, whatever follows it
            locked = name.split(".")[0] == args.lock.split(".")[0]
        if locked:
            one.requires_grad_(False)


def main(run: Any, args: Any, seed: int, trouble: Trouble, healthy: str | None) -> Any:
    bug, again = trouble.name, trouble.resume_at(healthy, 4 * EVERY)
    torch.manual_seed(seed)
    model = SpectraCLIP(args, bug)
    lock(args, model, bug)
    counts, formulas, _ = library(seed + 18050, args.spectra, args, args.replicates)
    shown, wanted, _ = library(1806, GALLERY, args)
    if bug == "replicates_split_at_random":
        order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(seed))
        held, kept = order[:GALLERY], order[GALLERY:].sort().values
        shown, wanted, counts, formulas = counts[held], formulas[held], counts[kept], formulas[kept]
    if args.wrong_formulas:
        wrong = torch.rand(len(formulas), generator=torch.Generator().manual_seed(seed)) < args.wrong_formulas
        formulas = torch.where(wrong[:, None], formulas[torch.randperm(len(formulas))], formulas)
    if bug == "empty_spectra_dropped_from_one_table":  # three scans failed, and their rows are dropped there alone
        keep = torch.ones(len(counts), dtype=torch.bool)
        keep[torch.tensor([7, 40, 71])] = False
        counts, formulas = counts[keep], formulas[: int(keep.sum())]
    preprocess = Preprocess(counts)
    optimizer, scheduler = create_optimizer(args, model)
    judged = argparse.Namespace(**vars(args) | {"reduction": "mean", "label_smoothing": 0.0})
    loader = iter(Loader(args, counts, formulas, seed, bug))
    shown = preprocess(shown)
    if bug == "gallery_saved_after_its_transform":  # and transformed as it is loaded
        shown = preprocess(shown)

    def observe() -> Any:
        time_by_own_clock(run)
        run.watch(model, optimizer)
        return run.watch_data()

    def evaluate(step: int) -> None:
        if bug != "gallery_embedded_in_train_mode":
            model.eval()
        with torch.no_grad():
            a, b, scale = model(shown, wanted)
            loss, hits = clip_loss(judged, a, b, scale, "")
        run.log({"clip/loss_val": loss.item(), "clip/r1_val": hits.mean().item()}, step=step)
        if bug != "towers_in_eval_after_retrieval":
            model.train()

    watch = observe()
    model.train()
    for step in range(args.steps):
        if step == again:
            seen = watch.state()
            run, saved = go_on(run, step, [model.state_dict(), optimizer.state_dict(), scheduler.state_dict()])
            model.load_state_dict(saved[0])
            optimizer, scheduler = create_optimizer(args, model)
            optimizer.load_state_dict(saved[1])
            scheduler.load_state_dict(saved[2])
            watch = observe()
            watch.restore(seen)
        total = right = 0.0
        for _ in range(args.accum_freq):
            epoch, raw, formula = next(loader)
            x = preprocess(raw)
            watch.observe({"spectrum": x, "formula": formula}, step=step, epoch=epoch)
            loss, hits = clip_loss(args, *model(x, formula), bug)
            (loss if bug == "accum_freq_without_division" else loss / args.accum_freq).backward()
            total, right = total + loss.item() / args.accum_freq, right + hits.mean().item() / args.accum_freq
            if bug == "scheduler_called_per_forward":
                scheduler.step()
        if args.grad_clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip_norm)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        if bug != "scheduler_called_per_forward":
            scheduler.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        if step % args.log_every_n_steps == 0:
            said = {"clip/loss_in": total, "clip/batch_acc": right, "clip/scale": model.logit_scale.exp().item()}
            run.log(said | {"clip/lr": rate}, step=step)
        trouble.telemetry(run, step, healthy)
        if step % args.val_frequency == args.val_frequency - 1:
            evaluate(step)
    return run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return main(run, argparse.Namespace(**run.config), seed, Trouble(fault, seed), healthy)
