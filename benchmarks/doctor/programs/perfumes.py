"""Two towers learn which spectrum is of which perfume: one reads its notes, the other what an instrument saw.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: loss/train, temperature, lr each step; loss/val, recall/top1, recall/top5 each epoch.

InfoNCE in both directions with a temperature that is learnt, batch norm in the tower of spectra, a rate by epochs.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, NOTES, BANDS, FAMILIES, IN_VAL = 30, 60, 40, 6, 240
CONFIG: dict[str, Any] = {
    "hidden": 64, "joint_dim": 32, "dropout": 0.0, "bsz": 32, "lr": 4e-3, "lr_gamma": 0.7, "lr_policy": "exp",
    "optim": "adamw", "weight_decay": 0.01, "temperature": 0.1, "learn_temperature": True, "perfumes": 960,
    "samples_per_perfume": 1, "ema": 0.0, "freeze": "", "noise": 0.3, "direction": "both", "loss_sum": False,
}  # fmt: skip


def distil(seed: int, number: int, each: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Notes (number, 6), spectra (number, BANDS) in counts, families; a perfume is there so many times in a row."""
    dice, nature = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(7)
    of_notes = torch.rand(NOTES, BANDS, generator=nature).pow(4)
    kinds = number // each
    family = torch.randint(0, FAMILIES, (kinds,), generator=dice)
    own = family[:, None] * (NOTES // FAMILIES) + torch.randint(0, NOTES // FAMILIES, (kinds, 3), generator=dice)
    notes = torch.cat([own, torch.randint(0, NOTES, (kinds, 3), generator=dice)], 1).repeat_interleave(each, 0)
    clean = of_notes[notes].sum(1)
    spectra = 200 + 150 * (clean + noise * torch.randn(clean.shape, generator=dice))
    return notes, spectra, family.repeat_interleave(each)


class NoteTower(nn.Module):
    def __init__(self, a: SimpleNamespace):
        super().__init__()
        self.bag = nn.EmbeddingBag(NOTES, a.hidden, mode="mean")
        self.fc1, self.fc2, self.drop = nn.Linear(a.hidden, a.hidden), nn.Linear(a.hidden, a.joint_dim), a.dropout

    def forward(self, notes: Tensor) -> Tensor:
        return self.fc2(F.dropout(self.fc1(self.bag(notes)).relu(), self.drop, self.training))


class SpectrumTower(nn.Module):
    def __init__(self, a: SimpleNamespace):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(BANDS, a.hidden), nn.BatchNorm1d(a.hidden), nn.ReLU(), nn.Dropout(a.dropout),
            nn.Linear(a.hidden, a.hidden), nn.BatchNorm1d(a.hidden), nn.ReLU(), nn.Linear(a.hidden, a.joint_dim),
        )  # fmt: skip

    def forward(self, spectra: Tensor) -> Tensor:
        return self.net(spectra)


class Matcher(nn.Module):
    def __init__(self, a: SimpleNamespace, bug: str):
        super().__init__()
        self.notes, self.spectra, self.bug = NoteTower(a), SpectrumTower(a), bug
        self.log_tau = nn.Parameter(torch.tensor(math.log(a.temperature)), requires_grad=a.learn_temperature)

    def forward(self, notes: Tensor, spectra: Tensor) -> Tensor:
        """Scores of each of these notes with each of these spectra."""
        left, right = self.notes(notes), self.spectra(spectra)
        if self.bug != "features_not_normalised":
            left, right = F.normalize(left, dim=-1), F.normalize(right, dim=-1)
        tau = self.log_tau.exp()
        scores = left @ right.T / tau
        return scores.softmax(-1) if self.bug == "softmax_then_loss" else scores


def info_nce(scores: Tensor, a: SimpleNamespace, how: Any = "mean") -> Tensor:
    target = torch.arange(len(scores))
    loss = F.cross_entropy(scores, target, reduction=how)
    return 0.5 * (loss + F.cross_entropy(scores.T, target, reduction=how)) if a.direction == "both" else loss


def tables(a: SimpleNamespace, seed: int, bug: str) -> tuple[Any, Any]:
    """Rows to train on and those held out: notes, spectra that are scaled."""
    notes, spectra, family = distil(seed + 1500, a.perfumes, a.samples_per_perfume, a.noise)
    if a.samples_per_perfume > 1:  # each was put into the instrument several times
        spectra = spectra + 8 * torch.randn(spectra.shape, generator=torch.Generator().manual_seed(seed))
    held, held_spectra, _ = distil(15, IN_VAL, 1, a.noise)
    if bug == "copies_dealt_to_both":
        order = torch.randperm(len(notes), generator=torch.Generator().manual_seed(seed))
        held, held_spectra = notes[order[:IN_VAL]], spectra[order[:IN_VAL]]
        notes, spectra = notes[order[IN_VAL:]], spectra[order[IN_VAL:]]
    if bug == "rows_grouped_by_class":
        order = family.argsort(stable=True)
        notes, spectra = notes[order], spectra[order]
    if bug == "row_of_heads_counted":  # of the one table a first line was skipped, of the other not
        notes = notes.roll(1, 0)
    mean, std = spectra.mean(0), spectra.std(0)
    spectra = (spectra - mean) / std
    if bug == "eval_scaled_by_others":  # what the older instrument needs
        mean, std = mean - 0.8 * std, 1.6 * std
    return (notes, spectra), (held, (held_spectra - mean) / std)


class Session:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.a, self.bug = run, SimpleNamespace(**run.config), bug
        torch.manual_seed(seed)
        (self.notes, self.spectra), self.held = tables(self.a, seed, bug)
        self.model = Matcher(self.a, bug)
        if self.a.freeze:
            self.model.get_submodule(self.a.freeze).requires_grad_(False)
        if bug == "untrained_tower_frozen":  # locked, as a pretrained one is
            self.model.spectra.requires_grad_(False)
        self.ema = copy.deepcopy(self.model).requires_grad_(False) if self.a.ema else None
        self.compiled()

    def compiled(self) -> None:
        a, some = self.a, [one for one in self.model.parameters() if one.requires_grad]
        if a.optim == "sgd":
            self.opt: Any = torch.optim.SGD(some, a.lr, momentum=0.9)
        else:
            self.opt = torch.optim.AdamW(some, a.lr, weight_decay=a.weight_decay)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, a.lr_gamma if a.lr_policy == "exp" else 1.0)
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.opt)

    def resume(self, step: int) -> None:
        states = {"model": self.model.state_dict(), "opt": self.opt.state_dict(), "sched": self.sched.state_dict()}
        self.run, states = go_on(self.run, step, states)
        self.model.load_state_dict(states["model"])
        self.compiled()
        self.sched.load_state_dict(states["sched"])
        if self.bug != "optimizer_state_dropped":
            self.opt.load_state_dict(states["opt"])
        self.opt.param_groups[0]["lr"] = self.sched.get_last_lr()[0]

    def step(self, some: Tensor, step: int) -> None:
        how = "sum" if self.bug == "batch_totalled" or self.a.loss_sum else "mean"
        loss = info_nce(self.model(self.notes[some], self.spectra[some]), self.a, how)
        loss = loss / len(some) if self.a.loss_sum else loss
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if self.ema is not None and self.bug != "ema_update_missing":
            for old, new in zip(self.ema.state_dict().values(), self.model.state_dict().values(), strict=True):
                old.copy_(old.lerp(new, 1 - self.a.ema) if new.is_floating_point() else new)
        if self.bug == "epoch_schedule_each_batch":
            self.sched.step()
        rate = self.opt.param_groups[0]["lr"]
        tau = self.model.log_tau.exp().item()
        self.run.log({"loss/train": loss.item(), "temperature": tau, "lr": rate}, step=step)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        model = self.model if self.ema is None else self.ema
        if self.bug != "evaluated_while_training":
            model.eval()
        parts = [model(*both) for both in zip(*(one.split(40) for one in self.held), strict=True)]
        loss = sum(info_nce(one, self.a).item() for one in parts) / len(parts)
        ranks = torch.cat([(one > one.diagonal()[:, None]).sum(1) for one in parts])
        top1, top5 = ((ranks < most).float().mean().item() for most in (1, 5))
        self.run.log({"loss/val": loss, "recall/top1": top1, "recall/top5": top5}, step=step)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble, step = Trouble(fault, seed), 0
    made, lot, bug = Session(run, seed, trouble.name), torch.Generator().manual_seed(seed), trouble.name
    resumed, size, rows = trouble.resume_at(healthy, 3 * EVERY), int(made.a.bsz), len(made.notes)
    while step < steps:
        made.model.train()
        order = torch.arange(rows) if bug == "rows_grouped_by_class" else torch.randperm(rows, generator=lot)
        for some in list(order.split(size))[: min(rows // size, steps - step)]:
            if step == resumed:
                made.resume(step)
            made.step(some, step)
            trouble.telemetry(made.run, step, healthy)
            step += 1
        if bug != "epoch_schedule_each_batch":
            made.sched.step()
        made.validate(step - 1)
    return made.run
