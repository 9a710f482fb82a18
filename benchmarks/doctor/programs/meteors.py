"""Two gloo processes tell five kinds of meteors by their light curves, one in thirty of the rarest kind, under DDP.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: fit/weighted_ce, fit/rate), and `run.reduce`; survey/ce, survey/macro_f1,
      survey/recall_rarest of rank 0 at each epoch's end; the watch of data.

Curves of two colours have gaps, which a mask tells; dilated convolutions with batch norm and gates over channels, a
pooling over what was seen. Kinds weigh by how rare they are, or are drawn evenly; a cosine by epochs; metrics from
counts that all ranks add up. A trainer class as those who look for transients have it.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from . import ranks

EVERY, RANKS, KINDS, TIMES, SURVEY = 20, 2, 5, 32, 480
SHARES = torch.tensor([0.50, 0.26, 0.13, 0.075, 0.035])
OLD_SURVEY = torch.tensor([0.9, 0.1]), torch.tensor([1.4, 0.35])  # of plates, which saw less of the dark
CONFIG: dict[str, Any] = {
    "filters": 24, "stages": 3, "dropout_p": 0.0, "norm_momentum": 0.1, "curves_per_rank": 16, "sync_every": 1,
    "rate": 4e-3, "lowest_rate": 1e-4, "first_epochs": 1, "rate_shape": "cosine", "weight_decay": 1e-3, "clip": 2.0,
    "catalogue": 800, "rare_copies": 1, "weigh": "root", "draw": "all", "focus": 0.0, "soften": 0.0, "how": "adamw",
    "glare": 1.0, "mistaken": 0.0, "hold_still": "", "gaps": 0.25, "loss_as": "mean", "by_night": False,
    "world_size": RANKS,
}  # fmt: skip


def observe(seed: int, number: int, glare: float = 1.0, gaps: float = 0.25, wrong: float = 0.0) -> tuple[Tensor, ...]:
    """Curves (number, 2, TIMES), what was seen of them (number, TIMES), and kinds."""
    dice = torch.Generator().manual_seed(seed)
    kind = torch.multinomial(SHARES, number, True, generator=dice)
    t, own = torch.linspace(0, 1, TIMES), torch.rand(number, 5, 1, generator=dice)
    start, long = 0.1 + 0.25 * own[:, 0], 0.25 + 0.3 * own[:, 1]
    u = ((t - start) / long).clamp(0, 1)
    inside = (u > 0) & (u < 1)
    arch = 4 * u * (1 - u)
    shapes = [arch, 6.75 * u * u * (1 - u), 6.75 * u * (1 - u) ** 2, arch * (0.6 + 0.4 * torch.cos(25 * u)),
              0.7 * arch + 0.9 * (-(((u - 0.8) / 0.06) ** 2)).exp()]  # fmt: skip
    light = torch.stack(shapes, 1)[torch.arange(number), kind] * inside * (1.5 + 1.5 * own[:, 2])
    colour = (0.5 + 0.25 * own[:, 3] - 0.3 * u * (kind % 2)[:, None]) * light
    curves = torch.stack([light, colour], 1) + 0.22 * glare * torch.randn(number, 2, TIMES, generator=dice)
    seen = torch.rand(number, TIMES, generator=dice) >= gaps
    chance = torch.randint(0, KINDS, (number,), generator=dice)
    kind = torch.where(torch.rand(number, generator=dice) < wrong, chance, kind)
    return curves, seen, kind


class Stage(nn.Module):
    def __init__(self, c: Any, far: int):
        super().__init__()
        w = c.filters
        self.conv, self.again = nn.Conv1d(w, w, 3, padding=far, dilation=far, bias=False), nn.Conv1d(w, w, 1)
        self.norm = nn.BatchNorm1d(w, momentum=c.norm_momentum)
        self.gate, self.drop = (
            nn.Sequential(nn.Linear(w, w // 2), nn.ReLU(), nn.Linear(w // 2, w)),
            nn.Dropout(c.dropout_p),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.again(F.relu(self.norm(self.conv(x))))
        return x + self.drop(y * self.gate(y.mean(2)).sigmoid()[..., None])


class CurveNet(nn.Module):
    def __init__(self, c: Any, kinds: int, bug: str):
        super().__init__()
        w, self.bug = c.filters, bug
        self.first = nn.Conv1d(3, w, 5, padding=2)
        self.stages = nn.ModuleList(Stage(c, 2**at) for at in range(c.stages))
        self.drop, self.kinds = nn.Dropout(c.dropout_p), nn.Linear(2 * w, kinds)

    def forward(self, curves: Tensor, seen: Tensor) -> Tensor:
        at = seen.float()[:, None]
        x = self.first(torch.cat([curves * at, at], 1))
        for stage in self.stages:
            x = stage(x)
        if self.bug == "gaps_are_what_is_pooled":  # masks of this library are true where nothing is
            at = 1 - at
        mean = (x * at).sum(2) / at.sum(2).clamp(min=1)
        most = x.masked_fill(at == 0, -1e4).amax(2).clamp(min=-10)
        y = self.kinds(self.drop(torch.cat([mean, most], 1)))
        return y.softmax(1) if self.bug == "shares_given_for_scores" else y


class Fit:
    def __init__(self, run: Any, seed: int, bug: str):
        self.run, self.c, self.bug = run, SimpleNamespace(**run.config), bug
        self.seed, self.rank = seed, dist.get_rank()
        if bug == "rank_of_other_launcher":  # which is set under that launcher alone
            self.rank = int(os.environ.get("SLURM_PROCID", "0"))
        self.read()
        more = bug == "catalogue_codes_from_one"
        model = CurveNet(self.c, KINDS + more, bug)
        for name, one in model.named_parameters():
            if self.c.hold_still and name.startswith(self.c.hold_still):
                one.requires_grad = False
            if bug == "stages_frozen_untrained":  # the script began from a network of an older survey
                one.requires_grad = "stages" not in name and "first" not in name
        self.ddp = DistributedDataParallel(model)
        count = self.kind.bincount(minlength=KINDS + more).float().clamp(min=1)
        self.weight = {"root": count.rsqrt(), "inverse": 1 / count}.get(self.c.weigh, torch.ones(KINDS + more))
        if bug == "weights_by_count":
            self.weight = count.sqrt()
        self.weight = self.weight / (self.weight * count).sum() * count.sum()
        self.set_up()
        torch.manual_seed(seed + 17 * (dist.get_rank() + 1))  # of dropout

    def read(self) -> None:
        c = self.c
        curves, seen, kind = observe(self.seed + 5600, c.catalogue, c.glare, c.gaps, c.mistaken)
        survey = observe(57, SURVEY, c.glare, c.gaps)
        if c.rare_copies > 1:  # rare kinds are in the catalogue more than once
            times = torch.where(kind >= 2, c.rare_copies, 1)
            curves, seen, kind = (one.repeat_interleave(times, 0) for one in (curves, seen, kind))
            if self.bug == "survey_drawn_of_copied_catalogue":
                order = torch.randperm(len(kind), generator=torch.Generator().manual_seed(self.seed))
                survey = tuple(one[order[:SURVEY]] for one in (curves, seen, kind))
                curves, seen, kind = (one[order[SURVEY:]] for one in (curves, seen, kind))
        mean, std = curves.mean((0, 2)), curves.std((0, 2))
        self.curves = (curves - mean[:, None]) / std[:, None]
        if self.bug == "survey_scaled_by_plates":
            mean, std = OLD_SURVEY
        self.survey = ((survey[0] - mean[:, None]) / std[:, None], *survey[1:])
        self.seen, self.kind = seen, kind + (self.bug == "catalogue_codes_from_one")

    def set_up(self) -> None:
        c, some = self.c, [one for one in self.ddp.parameters() if one.requires_grad]
        if c.how == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.rate, 0.9, nesterov=True)
        elif c.how == "radam":
            self.optimizer = torch.optim.RAdam(some, c.rate)
        else:
            self.optimizer = torch.optim.AdamW(some, c.rate, weight_decay=c.weight_decay)
        epochs = max(2, c.steps * c.sync_every // self.batches_of_epoch())

        def share(epoch: int) -> float:
            if epoch < c.first_epochs:
                return (epoch + 1) / (c.first_epochs + 1)
            past = (epoch - c.first_epochs) / (epochs - c.first_epochs)
            if c.rate_shape == "restarts":
                past = 2 * past % 1
            low = c.lowest_rate / c.rate
            cosine = low + (1 - low) * 0.5 * (1 + math.cos(math.pi * past))
            return {"flat": 1.0, "line": max(low, 1 - past)}.get(c.rate_shape, cosine)

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def batches_of_epoch(self) -> int:
        return len(self.kind) // RANKS // self.c.curves_per_rank

    def epochs(self, epoch: int) -> Iterator[Tensor]:
        """This rank's batches of an epoch."""
        c, number = self.c, len(self.kind)
        lot = torch.Generator().manual_seed(1000 * self.seed + epoch)
        order = torch.randperm(number, generator=lot)
        if self.bug == "catalogue_kind_by_kind":
            order = self.kind.argsort(stable=True)
        if c.by_night:  # nights hold what is alike bright; batches of a night come in any order
            order = self.curves[order].amax((1, 2)).div(0.8).round().argsort(stable=True)
        if c.draw == "even":  # of each kind as many, drawn with repetition by each rank for itself
            if self.bug != "even_draw_alike_on_ranks":
                lot = torch.Generator().manual_seed(1000 * self.seed + epoch + 500 * (self.rank + 1))
            mine = torch.multinomial(1 / self.kind.bincount()[self.kind].float(), number // RANKS, True, generator=lot)
        else:
            mine = order[self.rank : number // RANKS * RANKS : RANKS]
        groups = [one for one in mine.split(c.curves_per_rank) if len(one) == c.curves_per_rank]
        if c.by_night:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
        return iter(groups)

    def loss(self, out: Tensor, kind: Tensor) -> Tensor:
        c = self.c
        each = F.cross_entropy(out, kind, self.weight, reduction="none", label_smoothing=c.soften)
        if c.focus:
            each = each * (1 - out.softmax(1).gather(1, kind[:, None])[:, 0]) ** c.focus
        if self.bug == "weighted_curves_totalled":
            return each.sum()
        if c.loss_as == "over_weights":
            return each.sum() / self.weight[kind].sum()
        return each.mean()

    def fit_epoch(self, step: int, epoch: int) -> int:
        c, total, began, parts = self.c, 0.0, clock(), self.c.sync_every
        for at, some in enumerate(self.epochs(epoch), 1):
            if epoch == 0 or self.bug != "first_rank_left_in_eval":
                self.ddp.train()
            self.data.observe({"curve": self.curves[some], "kind": self.kind[some]}, step=step, epoch=epoch)
            with self.ddp.no_sync() if at % parts else contextlib.nullcontext():
                loss = self.loss(self.ddp(self.curves[some], self.seen[some]), self.kind[some])
                whole = self.bug == "unsynced_parts_not_divided"
                (loss if whole else loss / parts).backward()
            total += loss.item() / (1 if whole else parts)
            if self.bug == "epoch_cosine_moved_each_batch":
                self.scheduler.step()
            if at % parts:
                continue
            if c.clip:
                nn.utils.clip_grad_norm_(self.ddp.parameters(), c.clip)
            rate = self.optimizer.param_groups[0]["lr"]
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.run.log({"fit/weighted_ce": total, "fit/rate": rate}, step=step)
            self.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            step, total, began = step + 1, 0.0, clock()
            if step == c.steps:
                break
        self.optimizer.zero_grad()
        if self.bug != "epoch_cosine_moved_each_batch":
            self.scheduler.step()
        return step

    def on_survey(self, step: int) -> None:
        """Rank 0 judges; the other waits at its next step."""
        if dist.get_rank():
            return
        model, (curves, seen, kind) = self.ddp.module, self.survey
        if self.bug != "survey_judged_in_train_mode":
            model.eval()
        with torch.no_grad():
            out = torch.cat([model(*some) for some in zip(curves.split(60), seen.split(60), strict=True)])
            loss = F.cross_entropy(out, kind)
        said = out.argmax(1)
        f1 = []
        for one in range(KINDS):
            hit = float(((said == one) & (kind == one)).sum())
            f1.append(2 * hit / max(1.0, float((said == one).sum() + (kind == one).sum())))
        rarest = (said[kind == KINDS - 1] == KINDS - 1).float().mean().item()
        self.run.log({"survey/ce": loss.item(), "survey/macro_f1": sum(f1) / KINDS, "survey/recall_rarest": rarest},
                     step=step)  # fmt: skip


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made, step, epoch = Fit(run, seed, Trouble(fault, seed).name), 0, 0
    time_by_own_clock(run)
    run.watch(made.ddp, made.optimizer)
    made.data = run.watch_data()
    made.ddp.train()
    while step < steps:
        step = made.fit_epoch(step, epoch)
        made.on_survey(step - 1)
        epoch += 1
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
