"""A small residual network sorts connections of a network into eight kinds on two gloo processes; four are rare.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first rank: ids/loss, ids/hit, ids/lr, ids/grad each step; ids_dev/loss,
      ids_dev/balanced, ids_dev/rare_recall each twentieth; by `run.reduce` losses of both ranks; the watch of data;
      memory, where it matters.

A connection has ten numbers, some of which span decades, a protocol and a port. Captures are written kind after kind.
Numbers are scaled by figures of the training's part; a network with batch norm reads them beside two tables. The
gradient is averaged by DistributedDataParallel; parts of an update go without it. Written as a script with flags.
"""

from __future__ import annotations

import contextlib
import math
import os
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

EVERY, RANKS, NUMBERS, PROTOCOLS, PORTS, HELD = 20, 2, 10, 4, 30, 480
KINDS = ("web", "mail", "backup", "calls", "scan", "flood", "guesses", "tunnel")
SHARES = torch.tensor([0.35, 0.25, 0.18, 0.12, 0.035, 0.025, 0.02, 0.02])
RARE = 4  # from here on
CONFIG: dict[str, Any] = {
    "width": 48, "depth": 2, "drop": 0.0, "norm": "batch", "batch": 20, "accumulate": 1, "opt": "adamw", "lr": 5e-3,
    "head_lr": 1.0, "sched": "cosine", "warmup": 8, "wd": 1e-3, "clip": 2.0, "balance": "effective", "sampling": "all",
    "reduction": "mean", "smoothing": 0.0, "gamma": 0.0, "connections": 1920, "copies_of_rare": 1, "repeats": 1,
    "wrong_kinds": 0.0, "jitter": 0.0, "hold": "", "clear_first_epochs": 0, "dev_every": 20, "log_every": 1,
    "ranks": RANKS,
}  # fmt: skip


# -- captures -------------------------------------------------------------------------------------------------------


def capture(seed: int, number: int, repeats: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers, codes and kinds, kind after kind. repeats: packets of one connection that were counted apart."""
    laws, dice, many = torch.Generator().manual_seed(99), torch.Generator().manual_seed(seed), number // repeats
    centre = 0.6 * torch.randn(len(KINDS), NUMBERS, generator=laws)
    spread = 0.6 + 0.5 * torch.rand(len(KINDS), NUMBERS, generator=laws)
    ports = torch.rand(len(KINDS), PORTS, generator=laws) ** 4
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    latent = centre[kind] + spread[kind] * torch.randn(many, NUMBERS, generator=dice)
    port = torch.multinomial(ports[kind], 1, generator=dice)[:, 0]
    protocol = torch.where(torch.rand(many, generator=dice) < 0.7, kind % PROTOCOLS,
                           torch.randint(0, PROTOCOLS, (many,), generator=dice))  # fmt: skip
    latent, port, protocol, kind = (one.repeat_interleave(repeats, 0) for one in (latent, port, protocol, kind))
    latent = latent + 0.1 * torch.randn(latent.shape, generator=dice)
    numbers = torch.cat([(4 + latent[:, :4]).exp(), 30 + 12 * latent[:, 4:7], latent[:, 7:]], 1)  # bytes, ms, shares
    return numbers, torch.stack([protocol, port], 1), kind


def figures(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation, bytes by their logarithm."""
    numbers = logged(numbers)
    return numbers.mean(0), numbers.std(0)


def logged(numbers: Tensor) -> Tensor:
    return torch.cat([numbers[:, :4].log(), numbers[:, 4:]], 1)


# -- network --------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, f: Any):
        super().__init__()
        norm = nn.BatchNorm1d if f.norm == "batch" else nn.LayerNorm
        self.norm, self.into, self.out = norm(f.width), nn.Linear(f.width, 2 * f.width), nn.Linear(2 * f.width, f.width)
        self.drop = nn.Dropout(f.drop)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.out(F.relu(self.into(self.norm(x)))))


class Sorter(nn.Module):
    def __init__(self, f: Any, bug: str):
        super().__init__()
        self.f, self.bug = f, bug
        self.protocol, self.port = nn.Embedding(PROTOCOLS, 6), nn.Embedding(PORTS, 10)
        self.first = nn.Linear(NUMBERS + 16, f.width)
        self.blocks = nn.ModuleList(Residual(f) for _ in range(f.depth))
        self.last = nn.BatchNorm1d(f.width) if f.norm == "batch" else nn.LayerNorm(f.width)
        self.head = nn.Linear(f.width, len(KINDS))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        if self.training and self.f.jitter:
            numbers = numbers + self.f.jitter * torch.randn_like(numbers)
        x = self.first(torch.cat([numbers, self.protocol(codes[:, 0]), self.port(codes[:, 1])], 1))
        for block in self.blocks:
            x = block(x)
        out = self.head(F.relu(self.last(x)))
        return out.softmax(1) if self.bug == "head_ends_in_softmax_for_the_alarm" else out


# -- training -------------------------------------------------------------------------------------------------------


def read(s: SimpleNamespace) -> None:
    f, bug, dice = s.f, s.bug, torch.Generator().manual_seed(s.seed)
    numbers, codes, kind = capture(s.seed + 940, f.connections, f.repeats)
    held = capture(939, HELD)
    if f.copies_of_rare > 1:
        times = torch.where(kind >= RARE, f.copies_of_rare, 1)
        numbers, codes, kind = (one.repeat_interleave(times, 0) for one in (numbers, codes, kind))
    if bug == "packets_split_and_not_connections":
        order = torch.randperm(len(kind), generator=dice)
        mine, rest = order[:HELD], order[HELD:].sort().values
        held = numbers[mine], codes[mine], kind[mine]
        numbers, codes, kind = numbers[rest], codes[rest], kind[rest]
    if f.wrong_kinds:
        wrong = torch.rand(len(kind), generator=dice) < f.wrong_kinds
        kind = torch.where(wrong, torch.multinomial(SHARES, len(kind), True, generator=dice), kind)
    mean, std = figures(numbers)
    s.numbers, s.codes, s.kind = (logged(numbers) - mean) / std, codes, kind
    s.clear = s.numbers.abs().amax(1) < 2.2
    scaled = (logged(held[0]) - mean) / std
    if bug == "logarithm_of_bytes_forgotten_for_dev":
        scaled = (held[0] - mean) / std
    told = held[2]
    if bug == "kinds_of_dev_counted_by_their_own_names":  # sorted by name there, by number in the training
        by_name = sorted(range(len(KINDS)), key=lambda at: KINDS[at])
        told = torch.tensor([by_name.index(at) for at in range(len(KINDS))])[told]
    s.held = scaled, held[1], told
    many = torch.bincount(kind, minlength=len(KINDS)).float().clamp(min=1)
    weight = {"none": torch.ones(len(KINDS)), "inverse": 1 / many,
              "effective": 1 / (1 - 0.995**many)}[f.balance]  # fmt: skip
    if bug == "weights_in_the_order_of_the_counter":  # most_common() has kinds by their number
        weight = weight.sort(descending=True).values
    s.weight = weight * many.sum() / (weight * many).sum()


def optimizer_of(s: SimpleNamespace) -> None:
    f, groups = s.f, []
    for name, one in s.net.named_parameters():
        if not one.requires_grad or (s.bug == "groups_made_from_the_blocks_alone" and not name.startswith("blocks")):
            continue
        groups.append({"params": [one], "lr": f.lr * (f.head_lr if name.startswith("head") else 1.0),
                       "weight_decay": f.wd if one.ndim > 1 else 0.0})  # fmt: skip
    if f.opt == "sgd":
        s.optimizer = torch.optim.SGD(groups, f.lr, 0.9)
    elif f.opt == "adamax":
        s.optimizer = torch.optim.Adamax(groups, f.lr)
    else:
        s.optimizer = torch.optim.AdamW(groups, f.lr)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, f.warmup)), min(1.0, at / s.steps)
        if f.sched == "flat":
            return rise
        if f.sched == "triangles":
            return rise * (1 - 0.95 * abs(2 * (3 * past % 1) - 1))
        return rise * 0.5 * (1 + math.cos(math.pi * past))

    s.sched = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


def shard(s: SimpleNamespace, epoch: int) -> Tensor:
    """Rows of this rank in an epoch."""
    f, bug, many, rank = s.f, s.bug, len(s.kind), dist.get_rank()
    dice = torch.Generator().manual_seed(1000 * s.seed + epoch)
    if f.sampling == "balanced":
        each = 1 / torch.bincount(s.kind, minlength=len(KINDS)).float().clamp(min=1)[s.kind]
        return torch.multinomial(each, many, True, generator=dice)[rank::RANKS]
    order = torch.randperm(many, generator=dice)
    if bug == "shuffle_flag_not_passed_on":
        order = torch.arange(many)
    if bug == "each_rank_permutes_by_the_same_seed":  # a sampler of its own in the place of the one for ranks
        return torch.randperm(many, generator=torch.Generator().manual_seed(1000 * s.seed + epoch))
    if bug == "each_rank_reads_a_half_of_the_capture":  # rows are kind after kind: one rank has no rare ones
        half = torch.arange(many).chunk(RANKS)[rank]
        order = half[torch.randperm(len(half), generator=dice)]
        return order
    if epoch < f.clear_first_epochs:
        order = order[s.clear[order]]
    if bug == "rank_read_from_another_launcher":
        rank = int(os.environ.get("SLURM_PROCID", "0"))
    return order[rank::RANKS][: many // RANKS - 8]


def loss_of(s: SimpleNamespace, out: Tensor, kind: Tensor) -> Tensor:
    f, weight = s.f, s.weight[kind]
    each = F.cross_entropy(out, kind, reduction="none", label_smoothing=f.smoothing)
    if f.gamma:
        each = each * (1 - out.detach().softmax(1).gather(1, kind[:, None])[:, 0]) ** f.gamma
    if f.reduction == "sum" or s.bug == "weighted_losses_summed_up":
        return (each * weight).sum()
    return (each * weight).sum() / weight.sum()


def develop(s: SimpleNamespace, step: int) -> None:
    """Both ranks judge their half of the held rows."""
    net = s.net
    if s.bug != "dev_rows_meet_the_training_mode":
        net.eval()
    numbers, codes, kind = (one[dist.get_rank() :: RANKS] for one in s.held)
    with torch.no_grad():
        out = net(numbers, codes)
        total = F.cross_entropy(out, kind, reduction="sum")
    right = out.argmax(1) == kind
    sums = torch.stack([torch.bincount(kind, minlength=len(KINDS)).float(),
                        torch.bincount(kind[right], minlength=len(KINDS)).float()])  # fmt: skip
    sums = torch.cat([sums.flatten(), total[None]])
    dist.all_reduce(sums)
    if s.bug != "training_goes_on_in_dev_mode":
        net.train()
    many, hits = sums[:-1].view(2, -1)
    recall = hits / many.clamp(min=1)
    if dist.get_rank() == 0:
        s.run.log({"ids_dev/loss": float(sums[-1] / many.sum()), "ids_dev/balanced": recall.mean().item(),
                   "ids_dev/rare_recall": recall[RARE:].mean().item()}, step=step)  # fmt: skip


def update(s: SimpleNamespace, step: int, epoch: int, lots: tuple[Tensor, ...]) -> tuple[float, float]:
    """Gradients of the parts of an update."""
    f, bug, total, hit = s.f, s.bug, 0.0, 0.0
    for part, some in enumerate(lots):
        numbers, codes, kind = s.numbers[some], s.codes[some], s.kind[some]
        s.watch.observe({"numbers": numbers, "codes": codes, "kind": kind}, step=step, epoch=epoch)
        alone = part < f.accumulate - 1 or bug == "no_sync_around_the_whole_update"
        with s.ddp.no_sync() if alone else contextlib.nullcontext():
            out = s.ddp(numbers, codes)
            loss = loss_of(s, out, kind)
            (loss if bug == "parts_go_backward_whole" else loss / f.accumulate).backward()
        total += loss.item() / f.accumulate
        hit += (out.argmax(1) == kind).float().mean().item() / f.accumulate
        if bug == "sched_step_inside_the_parts":
            s.sched.step()
    return total, hit


def fit(s: SimpleNamespace, trouble: Trouble, healthy: str | None) -> None:
    f, step, epoch = s.f, 0, 0
    s.net.train()
    while True:
        lots = [one for one in shard(s, epoch).split(f.batch) if len(one) == f.batch]
        for parts in zip(*(lots[at :: f.accumulate] for at in range(f.accumulate)), strict=False):
            began = clock()
            total, hit = update(s, step, epoch, parts)
            norm = nn.utils.clip_grad_norm_(s.net.parameters(), f.clip).item()
            rate = s.optimizer.param_groups[0]["lr"]
            s.optimizer.step()
            s.net.zero_grad()
            if s.bug != "sched_step_inside_the_parts":
                s.sched.step()
            if dist.get_rank() == 0 and step % f.log_every == 0:
                s.run.log({"ids/loss": total, "ids/hit": hit, "ids/lr": rate, "ids/grad": norm}, step=step)
            s.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
            trouble.telemetry(s.run, step, healthy)
            if step % f.dev_every == f.dev_every - 1:
                develop(s, step)
            step += 1
            if step == s.steps:
                return
        epoch += 1


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    trouble = Trouble(fault, seed)
    s = SimpleNamespace(run=run, f=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name)
    read(s)
    s.net = Sorter(s.f, s.bug)
    for name, one in s.net.named_parameters():
        if s.f.hold and name.startswith(tuple(s.f.hold.split(","))):
            one.requires_grad_(False)
    optimizer_of(s)
    s.ddp = DistributedDataParallel(s.net)
    time_by_own_clock(run)
    run.watch(s.net, s.optimizer)
    s.watch = run.watch_data()
    torch.manual_seed(seed + 17 * (dist.get_rank() + 1))  # of dropout
    fit(s, trouble, healthy)
    return run


train = main
launch = partial(ranks.launch, work=main, number=RANKS)
