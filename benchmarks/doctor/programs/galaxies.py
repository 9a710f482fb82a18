"""Two gloo processes tell types of galaxies apart, of which some are rare, under DistributedDataParallel.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: sky.ce, sky.right, sky.rate, sky.gnorm each step; survey.ce,
      survey.f1 and survey.rare_f1 each twentieth; by `run.reduce` losses of both; memory, where it matters; the watch
      of data.

An exposure is twelve by twelve counts of light, from some hundreds to some thousands; several exposures may be of one
galaxy. The catalogue has type after type. Counts are scaled by figures of the training's part, and go through
convolutions with batch norm. The logarithm of how frequent a type is is added to the outputs in the training alone, so
that rare ones are not given up. Descent with momentum, one cycle of the rate. Written as `torchrun` starts it: loaders
of torch, epochs, and `no_sync` for parts of an update.
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
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset, WeightedRandomSampler

from . import ranks

EVERY, RANKS, SIDE, HELD = 20, 2, 12, 480
TYPES = ("spiral", "elliptical", "lenticular", "ring", "merger", "irregular")
SHARES = torch.tensor([0.38, 0.32, 0.2, 0.04, 0.035, 0.025])
RARE = 3  # types from here on are rare
CONFIG: dict[str, Any] = {
    "planes": 12, "dropout": 0.0, "norm": "batch", "batch_per_rank": 16, "parts": 1, "optimizer": "sgd", "lr": 0.04,
    "policy": "one_cycle", "rise": 0.2, "weight_decay": 5e-4, "bound": 4.0, "adjust": "prior", "reduction": "mean",
    "smoothing": 0.0, "balanced": False, "exposures": 1600, "of_a_galaxy": 1, "misfiled": 0.0, "bright_first": 0,
    "flips": True, "frozen": "", "survey_every": 20, "log_every": 1, "ranks": RANKS,
}  # fmt: skip


# -- exposures -------------------------------------------------------------------------------------------------------


def exposures(seed: int, number: int, of_a_galaxy: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Counts of light, types, and how bright; type after type."""
    dice, many = torch.Generator().manual_seed(seed), number // of_a_galaxy
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    some = torch.rand(many, 6, 1, 1, generator=dice)
    kind, some = kind.repeat_interleave(of_a_galaxy), some.repeat_interleave(of_a_galaxy, 0)
    many = len(kind)
    y, x = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    shift = 0.3 * torch.rand(many, 2, 1, 1, generator=dice) - 0.15
    turn = 6.28 * some[:, 0] + 0.2 * torch.randn(many, 1, 1, generator=dice)
    x, y = x - shift[:, 0], y - shift[:, 1]
    u, v = x * turn.cos() + y * turn.sin(), y * turn.cos() - x * turn.sin()
    flat = torch.where(kind[:, None, None] == 2, 2.4, 1.0 + 0.5 * some[:, 1])
    r, angle = (u**2 + (flat * v) ** 2).sqrt(), torch.atan2(v, u)
    core, wide = torch.exp(-r * (3 + 2 * some[:, 2])), torch.exp(-((r / 0.6) ** 2))
    apart = 0.3 + 0.2 * some[:, 3]
    lumps = sum(
        torch.exp(-(((u - apart * a) ** 2 + (v - apart * b) ** 2) / 0.05)) for a, b in ((1, 0), (-0.4, 1), (-1, -1))
    )
    shapes = torch.stack([
        core + 0.7 * wide * (1 + (2 * angle + 7 * r + 6 * some[:, 4]).cos()),
        1.5 * core + 0.2 * wide, core + 0.5 * wide,
        0.3 * core + torch.exp(-(((r - 0.65) / 0.16) ** 2)),
        torch.exp(-((u - apart) ** 2 + v**2) / 0.06) + 0.8 * torch.exp(-((u + apart) ** 2 + v**2) / 0.09),
        0.7 * lumps + 0.2 * wide,
    ])  # fmt: skip
    bright = 900 + 1400 * torch.rand(many, generator=dice)
    light = bright[:, None, None] * shapes[kind, torch.arange(many)]
    return (400 + light + 170 * torch.randn(light.shape, generator=dice)).clamp(min=20), kind, bright


def catalogues(c: Any, seed: int, bug: str) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The training's and the survey's, scaled."""
    light, kind, bright = exposures(seed + 1700, c.exposures, c.of_a_galaxy)
    held, held_kind, _ = exposures(1699, HELD)
    if bug == "exposures_of_a_galaxy_in_both_catalogues":
        order = torch.randperm(len(kind), generator=torch.Generator().manual_seed(seed))
        mine, rest = order[:HELD].sort().values, order[HELD:].sort().values
        held, held_kind = light[mine], kind[mine]
        light, kind, bright = light[rest], kind[rest], bright[rest]
    if c.misfiled:
        dice = torch.Generator().manual_seed(seed)
        wrong = torch.rand(len(kind), generator=dice) < c.misfiled
        kind = torch.where(wrong, torch.multinomial(SHARES, len(kind), True, generator=dice), kind)
    mean, std = light.mean(), light.std()
    if bug == "light_of_the_survey_in_magnitudes":
        held = -2.5 * held.log10()
    if bug == "types_of_the_survey_numbered_as_they_appear":
        shuffled = torch.randperm(HELD, generator=torch.Generator().manual_seed(23)).tolist()
        seen = list(dict.fromkeys(held_kind[shuffled].tolist()))
        held_kind = torch.tensor([seen.index(one) for one in held_kind.tolist()])
    return ((light - mean) / std, kind, bright), ((held - mean) / std, held_kind)


# -- net and loss ----------------------------------------------------------------------------------------------------


class Telescope(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug = c.planes, bug
        made: list[nn.Module] = []
        for into, out, stride in ((1, d, 1), (d, 2 * d, 2), (2 * d, 2 * d, 2)):
            norm = nn.BatchNorm2d(out) if c.norm == "batch" else nn.GroupNorm(4, out)
            made += [nn.Conv2d(into, out, 3, stride, 1, bias=False), norm, nn.ReLU()]
        self.backbone, self.drop = nn.Sequential(*made), nn.Dropout(c.dropout)
        self.classifier = nn.Linear(2 * d * 9, len(TYPES))

    def forward(self, light: Tensor) -> Tensor:
        logits = self.classifier(self.drop(self.backbone(light[:, None]).flatten(1)))
        return logits.softmax(1) if self.bug == "classifier_gives_shares" else logits


def criterion(c: Any, bug: str, counts: Tensor) -> Any:
    """The loss of outputs and types. counts: of types in the training."""
    prior, weight = (counts / counts.sum()).log(), (counts.mean() / counts).sqrt()

    def loss(logits: Tensor, kind: Tensor, training: bool) -> Tensor:
        if c.adjust == "prior" and training:
            logits = logits + prior
        summed = training and (c.reduction == "sum" or bug == "criterion_made_with_a_sum")
        return F.cross_entropy(logits, kind, weight if c.adjust == "weights" and training else None,
                               label_smoothing=c.smoothing if training else 0.0,
                               reduction="sum" if summed else "mean")  # fmt: skip

    loss.prior = prior  # type: ignore[attr-defined]
    return loss


# -- torchrun --------------------------------------------------------------------------------------------------------


def loader_of(s: SimpleNamespace) -> None:
    c, rank, (light, kind, bright) = s.c, dist.get_rank(), s.rows
    rows = TensorDataset(light, kind)
    if c.bright_first:
        bright_rows = TensorDataset(*(one[bright > 1500] for one in (light, kind)))
        s.first = DataLoader(bright_rows, c.batch_per_rank, sampler=DistributedSampler(bright_rows, seed=s.seed),
                             drop_last=True)  # fmt: skip
    if s.bug == "random_sampler_seeded_alike_everywhere":
        sampler: Any = RandomSampler(rows, generator=torch.Generator().manual_seed(s.seed))
    elif c.balanced:
        rarity = 1 / kind.bincount(minlength=len(TYPES)).float().clamp(min=1)
        sampler = WeightedRandomSampler(rarity[kind].tolist(), len(kind) // RANKS,
                                        generator=torch.Generator().manual_seed(7 * s.seed + rank))  # fmt: skip
    else:
        sampler = DistributedSampler(rows, shuffle=s.bug != "distributed_sampler_with_shuffle_off", seed=s.seed)
    s.sampler, s.loader = sampler, DataLoader(rows, c.batch_per_rank, sampler=sampler, drop_last=True)


def endless(s: SimpleNamespace) -> Any:
    epoch, dice = 0, torch.Generator().manual_seed(100 * s.seed + dist.get_rank())
    while True:
        if isinstance(s.sampler, DistributedSampler):
            s.sampler.set_epoch(epoch)
        for light, kind in s.first if epoch < s.c.bright_first else s.loader:
            if s.c.flips:
                light = torch.where(torch.rand(len(light), 1, 1, generator=dice) < 0.5, light.flip(2), light)
            yield epoch, light, kind
        epoch += 1


def equipped(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.ddp.parameters() if one.requires_grad]
    if c.optimizer == "adamw":
        s.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)
    elif c.optimizer == "rmsprop":
        s.optimizer = torch.optim.RMSprop(some, c.lr, momentum=0.5)
    else:
        s.optimizer = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.weight_decay, nesterov=True)

    def by(at: int) -> float:
        past = min(1.0, at / s.steps)
        if c.policy == "constant":
            return min(1.0, (at + 1) / 8)
        if c.policy == "two_cycles":
            past = 2 * past % 1
        if past < c.rise:
            return 0.1 + 0.9 * past / c.rise
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (past - c.rise) / (1 - c.rise)))

    s.scheduler = torch.optim.lr_scheduler.LambdaLR(s.optimizer, by)


def trained(s: SimpleNamespace, step: int) -> tuple[dict[str, float], float]:
    c, bug, total, right = s.c, s.bug, 0.0, 0.0
    for part in range(c.parts):
        epoch, light, kind = next(s.batches)
        s.watch.observe({"light": light, "kind": kind}, step=step, epoch=epoch)
        last = part == c.parts - 1 and bug != "no_sync_wraps_each_backward"
        with contextlib.nullcontext() if last else s.ddp.no_sync():
            logits = s.ddp(light)
            loss = s.loss(logits, kind, True)
            (loss if bug == "parts_backed_at_their_full_loss" else loss / c.parts).backward()
        total += loss.item() / c.parts
        right += (logits.argmax(1) == kind).float().mean().item() / c.parts
        if bug == "cycle_goes_on_with_parts":
            s.scheduler.step()
    norm = nn.utils.clip_grad_norm_(s.ddp.parameters(), c.bound).item()
    rate = s.optimizer.param_groups[0]["lr"]
    s.optimizer.step()
    s.optimizer.zero_grad()
    if bug != "cycle_goes_on_with_parts":
        s.scheduler.step()
    return {"sky.ce": total, "sky.right": right, "sky.rate": rate, "sky.gnorm": norm}, total


def surveyed(s: SimpleNamespace) -> dict[str, float]:
    """Each rank looks at every second exposure; counts are added up."""
    rank, (light, kind), many, bug = dist.get_rank(), s.held, len(TYPES), s.bug
    light, kind, net = light[rank::RANKS], kind[rank::RANKS], s.ddp.module
    taped = bug == "survey_losses_listed_with_gradients_on"
    if bug == "running_statistics_reset_for_each_survey":
        for one in net.modules():
            if isinstance(one, nn.BatchNorm2d):
                one.reset_running_stats()
    if bug != "survey_in_the_mode_of_the_training":
        s.ddp.eval()
    with torch.set_grad_enabled(taped):
        logits = net(light)
        if bug == "prior_is_in_the_survey_too":
            logits = logits + s.loss.prior
        loss = s.loss(logits, kind, False)
    if taped:
        s.listed.append((loss, logits))
    if bug != "survey_is_followed_by_no_train":
        s.ddp.train()
    said, hit = logits.argmax(1), logits.argmax(1) == kind
    counts = [torch.bincount(one, minlength=many).float() for one in (kind, said, said[hit])]
    flat = torch.cat([*counts, loss.detach()[None]])
    dist.all_reduce(flat)
    there, told, hits, total = flat.split([many, many, many, 1])
    f1 = 2 * hits / (there + told).clamp(min=1)
    return {"survey.ce": total.item() / RANKS, "survey.f1": f1.mean().item(), "survey.rare_f1": f1[RARE:].mean().item()}


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, listed=[])
    s.rows, s.held = catalogues(c, seed, s.bug)
    torch.manual_seed(seed)
    net = Telescope(c, s.bug)
    frozen = "backbone" if s.bug == "backbone_frozen_as_for_a_probe" else c.frozen
    for name in filter(None, frozen.split(",")):
        net.get_submodule(name).requires_grad_(False)
    s.ddp = DistributedDataParallel(net)
    torch.manual_seed(seed + 41 * (dist.get_rank() + 1))  # of dropout
    s.loss = criterion(c, s.bug, s.rows[1].bincount(minlength=len(TYPES)).float().clamp(min=1))
    loader_of(s)
    equipped(s)
    time_by_own_clock(run)
    run.watch(s.ddp, s.optimizer)
    s.watch, s.batches = run.watch_data(), endless(s)
    s.ddp.train()
    for step in range(steps):
        began = clock()
        said, total = trained(s, step)
        if dist.get_rank() == 0 and step % c.log_every == 0:
            run.log(said, step=step)
        run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
        trouble.telemetry(run, step, healthy)
        if step % c.survey_every == c.survey_every - 1:
            said = surveyed(s)
            if dist.get_rank() == 0:
                run.log(said, step=step)
    return run


train = main
launch = partial(ranks.launch, work=main, number=RANKS)
