"""Two gloo processes tell flaws in pictures of rolled steel, under DDP; one picture in thirty has a fold.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: mill/loss, mill/lr, mill/gnorm) and `run.reduce`; strip/ce,
      strip/balanced_acc, strip/fold_recall of rank 0 at each check; the watch of data.

Strips are cut from coils, each with a grain of its own. A small residual network with batch norm; rare flaws weigh more
by the effective number of their pictures, or are drawn as often as others. One cycle of the rate. Both ranks check a
half of the held-out coils each, and add up. A class that trains, as who comes from a framework writes it.
"""

from __future__ import annotations

import contextlib
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
from torch.utils.data import DistributedSampler, Sampler

from . import ranks

EVERY, RANKS, SIDE, FLAWS, CHECKED = 20, 2, 16, 6, 320
SHARES = torch.tensor([0.54, 0.17, 0.12, 0.08, 0.055, 0.035])  # none, scratch, pit, scale, crack, fold
OLD_CAMERA = 0.28, 0.09  # mean and spread of what the camera saw that was there before
CONFIG: dict[str, Any] = {
    "channels": 12, "stages": 3, "dropout": 0.0, "bn_momentum": 0.3, "batch_per_gpu": 24, "accumulation": 1,
    "optim": "adamw", "max_lr": 3e-3, "cycle": "one", "pct_start": 0.15, "weight_decay": 0.01, "clip_norm": 3.0,
    "coils": 24, "strips": 60, "rare_copies": 1, "class_weights": "effective", "sampler": "distributed", "focal": 0.0,
    "smoothing": 0.0, "flips": True, "dirt": 1.0, "wrong_codes": 0.0, "freeze": "", "loss_reduction": "mean",
    "plain_coils_first": 0, "check_every": 20, "ranks": RANKS,
}  # fmt: skip


# -- strips ---------------------------------------------------------------------------------------------------------


def roll(seed: int, coils: int, strips: int, dirt: float) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures (number, 1, SIDE, SIDE) from 0 to 1, flaws, coils; coil after coil."""
    dice = torch.Generator().manual_seed(seed)
    number = coils * strips
    coil = torch.arange(coils).repeat_interleave(strips)
    prone = SHARES * (0.25 + 1.5 * torch.rand(coils, FLAWS, generator=dice))
    flaw = torch.multinomial(prone[coil], 1, generator=dice)[:, 0]
    at = torch.linspace(-1, 1, SIDE)
    own = torch.rand(number, 6, generator=dice)
    angle, x0, y0 = 3.14 * own[:, 0, None, None], own[:, 1, None, None] - 0.5, own[:, 2, None, None] - 0.5
    x, y = at.view(1, 1, -1) - x0, at.view(1, -1, 1) - y0
    u, v = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    size = 0.7 + 0.6 * own[:, 3, None, None]
    marks = torch.stack([
        torch.zeros_like(u), (-(v**2) / 0.006).exp() * (u.abs() < 0.8 * size), (-(u**2 + v**2) / 0.05 / size).exp(),
        ((u**2 / 1.6 + v**2) < 0.16 * size) * 0.7 * (0.5 + torch.rand(u.shape, generator=dice)),
        (-((v - 0.25 * (5 * u).sin()) ** 2) / 0.006).exp() * (u.abs() < 0.9 * size),
        (-(v**2) / 0.006).exp() * 0.8 + (-((v - 0.45) ** 2) / 0.006).exp() * 0.8,
    ], 1)  # fmt: skip
    grain = torch.rand(coils, 1, SIDE, generator=dice)[coil] * 0.16 + 0.3 + 0.3 * torch.rand(coils, 1, 1,
                                                                                      generator=dice)[coil]  # fmt: skip
    sign = torch.tensor([0.0, 1, -1, -1, -1, 1])[flaw].view(-1, 1, 1)
    picture = grain + 0.3 * sign * marks[torch.arange(number), flaw]
    picture = picture + 0.085 * dirt * torch.randn(picture.shape, generator=dice)
    return picture.clamp(0, 1)[:, None], flaw, coil


class Strips:
    def __init__(self, c: Any, seed: int, bug: str):
        x, flaw, coil = roll(seed + 2700, c.coils, c.strips, c.dirt)
        y, y_flaw, _ = roll(27, 16, CHECKED // 16, c.dirt)
        if c.wrong_codes:
            dice = torch.Generator().manual_seed(seed + 4)
            wrong = torch.rand(len(flaw), generator=dice) < c.wrong_codes
            flaw = torch.where(wrong, torch.randint(0, FLAWS, flaw.shape, generator=dice), flaw)
        if c.rare_copies > 1:
            times = torch.where(flaw >= 3, c.rare_copies, 1)
            x, flaw, coil = (one.repeat_interleave(times, 0) for one in (x, flaw, coil))
            if bug == "rare_flaws_copied_ahead_of_the_split":
                order = torch.randperm(len(flaw), generator=torch.Generator().manual_seed(seed))
                y, y_flaw = x[order[:CHECKED]], flaw[order[:CHECKED]]
                x, flaw, coil = (one[order[CHECKED:]] for one in (x, flaw, coil))
        mean, std = x.mean(), x.std()
        self.x, self.flaw, self.coil = (x - mean) / std, flaw, coil
        if bug == "checked_by_the_old_camera":  # the figures stand in the check's own settings
            mean, std = (torch.tensor(one) for one in OLD_CAMERA)
        self.checked, self.checked_flaw = (y - mean) / std, y_flaw
        self.classes = FLAWS
        if bug == "plant_codes_lowered_in_one_place":  # the plant counts from 1; the check's table was put right
            self.flaw, self.classes = flaw + 1, FLAWS + 1

    def __len__(self) -> int:
        return len(self.flaw)

    def weights(self, how: str, bug: str) -> Tensor:
        count = self.flaw.bincount(minlength=self.classes).float().clamp(min=1)
        if how == "none":
            return torch.ones(self.classes)
        effective = (1 - 0.995**count) / 0.005
        weight = effective if bug == "weights_grow_with_the_count" else 1 / effective
        return weight / weight.sum() * self.classes


class EvenSampler(Sampler[int]):
    """Of each flaw as many, with repetition, by each rank for itself."""

    def __init__(self, data: Strips, seed: int):
        self.share = 1 / data.flaw.bincount().clamp(min=1)[data.flaw].float()
        self.number, self.seed, self.epoch = len(data) // RANKS, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        dice = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
        return iter(torch.multinomial(self.share, self.number, True, generator=dice).tolist())


def sampler_of(c: Any, data: Strips, seed: int, bug: str) -> Any:
    if c.sampler == "even":
        own = seed if bug == "even_sampler_by_the_runs_seed" else seed + 100 * (dist.get_rank() + 1)
        return EvenSampler(data, own)
    if bug == "sampler_of_one_replica":  # made before the group was: the defaults of one process were written in
        return DistributedSampler(data, num_replicas=1, rank=0, seed=seed, drop_last=True)
    straight = bug == "coils_in_the_order_of_rolling"
    return DistributedSampler(data, RANKS, dist.get_rank(), shuffle=not straight, seed=seed, drop_last=True)


# -- network --------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, i: int, o: int, stride: int, c: Any):
        super().__init__()
        m = c.bn_momentum
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o, momentum=m)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o, momentum=m)
        self.short = nn.Conv2d(i, o, 1, stride, bias=False) if i != o or stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


class FlawNet(nn.Module):
    def __init__(self, c: Any, classes: int, bug: str):
        super().__init__()
        w, self.bug = c.channels, bug
        self.stem = nn.Sequential(nn.Conv2d(1, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w, momentum=c.bn_momentum),
                                  nn.ReLU())  # fmt: skip
        wide = [w, w, 2 * w, 3 * w]
        self.stage = nn.ModuleList(Residual(wide[at], wide[at + 1], 1 + (at > 0), c) for at in range(c.stages))
        self.drop, self.fc = nn.Dropout(c.dropout), nn.Linear(2 * wide[c.stages], classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        for one in self.stage:
            y = one(y)
        y = self.fc(self.drop(torch.cat([y.mean((2, 3)), y.amax((2, 3))], 1)))
        return y.softmax(1) if self.bug == "shares_for_the_operators_panel" else y


# -- training -------------------------------------------------------------------------------------------------------


class MillTrainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.data = Strips(self.c, seed, bug)
        self.net = FlawNet(self.c, self.data.classes, bug)
        for name, one in self.net.named_parameters():
            word = "stage" if bug == "frozen_by_a_word_of_all_stages" else self.c.freeze  # stage.0 was meant
            if word and word in name:
                one.requires_grad = False
        self.wrapped = DistributedDataParallel(self.net)
        self.sampler = sampler_of(self.c, self.data, seed, bug)
        twice = bug == "drawn_evenly_and_weighed"
        how = "none" if self.c.sampler == "even" and not twice else self.c.class_weights
        if twice:  # weights are of the coils as they are, whatever is drawn
            how = "effective"
        self.weight = self.data.weights(how, bug)
        self.optimizer, self.scheduler = self.configure_optimizers()
        self.dice = torch.Generator().manual_seed(seed + 50 * (dist.get_rank() + 1))

    def configure_optimizers(self) -> tuple[Any, Any]:
        c, some = self.c, [one for one in self.net.parameters() if one.requires_grad]
        if c.optim == "sgd":
            optimizer: Any = torch.optim.SGD(some, c.max_lr, 0.9)
        elif c.optim == "radam":
            optimizer = torch.optim.RAdam(some, c.max_lr)
        else:
            optimizer = torch.optim.AdamW(some, c.max_lr, weight_decay=c.weight_decay)

        def share(at: int) -> float:
            past = min(1.0, at / self.steps)
            rise = min(1.0, 0.1 + 0.9 * past / c.pct_start)
            if c.cycle == "flat":
                return rise
            if c.cycle == "stairs":
                return rise * 0.2 ** ((past > 0.6) + (past > 0.85))
            if c.cycle == "several":
                return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1)))
            down = max(0.0, (past - c.pct_start) / (1 - c.pct_start))
            return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * down)))

        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)

    def loss(self, out: Tensor, flaw: Tensor) -> Tensor:
        c = self.c
        each = F.cross_entropy(out, flaw, reduction="none", label_smoothing=c.smoothing)
        if c.focal:
            each = each * (1 - out.softmax(1).gather(1, flaw[:, None])[:, 0]) ** c.focal
        each = each * self.weight[flaw]
        if self.bug == "weighed_losses_summed":
            return each.sum()
        return each.sum() / len(each) if c.loss_reduction == "sum" else each.mean()

    def picked(self, epoch: int) -> list[Tensor]:
        self.sampler.set_epoch(epoch)
        mine = torch.tensor(list(self.sampler))
        if epoch < self.c.plain_coils_first:
            mine = mine[self.data.coil[mine] % 2 == 0]
        if self.bug == "sampler_of_one_replica":
            mine = mine[: len(self.data) // RANKS]
        size = self.c.batch_per_gpu // self.c.accumulation
        return [one for one in mine.split(size) if len(one) == size]

    def training_batch(self, some: Tensor) -> tuple[Tensor, Tensor]:
        x, flaw = self.data.x[some], self.data.flaw[some]
        if self.c.flips:
            flip = torch.rand(len(x), 2, generator=self.dice) < 0.5
            x = torch.where(flip[:, 0].view(-1, 1, 1, 1), x.flip(3), x)
            x = torch.where(flip[:, 1].view(-1, 1, 1, 1), x.flip(2), x)
        return x, flaw

    def check(self, step: int) -> None:
        """Each rank's half of held-out strips: hits by flaw and the loss, added up."""
        rank = dist.get_rank()
        if self.bug != "strips_checked_in_training_mode":
            self.net.eval()
        x, flaw = self.data.checked[rank::RANKS], self.data.checked_flaw[rank::RANKS]
        with torch.no_grad():
            out = self.net(x)
            each = F.cross_entropy(out, flaw, reduction="none")
        said = out.argmax(1)
        hits = F.one_hot(flaw, FLAWS)[said == flaw].sum(0).float()
        figures = torch.cat([hits, F.one_hot(flaw, FLAWS).sum(0).float(), each.sum()[None], torch.tensor([len(x)])])
        dist.all_reduce(figures)
        if self.bug != "net_stays_as_it_was_checked":
            self.net.train()
        recall = figures[:FLAWS] / figures[FLAWS : 2 * FLAWS].clamp(min=1)
        if rank == 0:
            self.run.log({"strip/ce": float(figures[-2] / figures[-1]), "strip/balanced_acc": recall.mean().item(),
                          "strip/fold_recall": recall[-1].item()}, step=step)  # fmt: skip

    def fit(self) -> None:
        c, step, epoch, bug = self.c, 0, 0, self.bug
        self.net.train()
        while step < self.steps:
            total, began = 0.0, clock()
            for at, some in enumerate(self.picked(epoch), 1):
                x, flaw = self.training_batch(some)
                self.watch.observe({"strip": x, "flaw": flaw}, step=step, epoch=epoch)
                last = at % c.accumulation == 0
                with contextlib.nullcontext() if last else self.wrapped.no_sync():
                    loss = self.loss(self.wrapped(x), flaw)
                    (loss if bug == "accumulated_on_each_rank_whole" else loss / c.accumulation).backward()
                total += loss.item() / c.accumulation
                if bug == "one_cycle_stepped_by_batches_of_a_rank":
                    self.scheduler.step()
                if not last:
                    continue
                norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.clip_norm).item()
                rate = self.optimizer.param_groups[0]["lr"]
                self.optimizer.step()
                self.optimizer.zero_grad()
                if bug != "one_cycle_stepped_by_batches_of_a_rank":
                    self.scheduler.step()
                self.run.log({"mill/loss": total, "mill/lr": rate, "mill/gnorm": norm}, step=step)
                self.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
                if step % c.check_every == c.check_every - 1:
                    self.check(step)
                step, total, began = step + 1, 0.0, clock()
                if step == self.steps:
                    break
            epoch += 1


def mill(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    trainer = MillTrainer(run, seed, steps, Trouble(fault, seed).name)
    time_by_own_clock(run)
    run.watch(trainer.wrapped, trainer.optimizer)
    trainer.watch = run.watch_data()
    torch.manual_seed(seed + 17 * (dist.get_rank() + 1))  # of dropout
    trainer.fit()
    return run


train = mill
launch = partial(ranks.launch, work=mill, number=RANKS)
