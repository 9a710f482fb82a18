"""Two gloo processes tell species of bats by their calls, under DistributedDataParallel; three of six are rare.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: call_ce, call_acc, call_lr, call_gn each step; night_ce,
      night_f1 and night_rare each eighteenth; by `run.reduce` losses of both; memory, where it matters; the watch of
      data.

A call is a spectrogram of ten bands and sixteen moments, and three figures of its night: temperature in degrees
Celsius, hour and wind, which go through a batch norm as they are. Two species sweep over the same bands, one up and one
down. Several calls may be of one pass. The file has species after species, and each rank has a shard of it. Species
weigh by the root of their rarity. Written as a worker with a loader of its own.
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

from . import ranks

EVERY, WORLD, BANDS, MOMENTS, HELD, SPECIES, RARE = 18, 2, 10, 16, 480, 6, (2, 3, 5)
SHARES = torch.tensor([0.38, 0.3, 0.045, 0.04, 0.2, 0.035])
CONFIG: dict[str, Any] = {
    "filters": 16, "hidden": 40, "dropout": 0.0, "norm": "batch", "per_worker": 24, "accumulate": 1,
    "optimizer": "adamw", "lr": 3e-3, "schedule": "cosine", "warmup": 6, "weight_decay": 0.01, "grad_norm": 2.0,
    "class_weights": "root", "reduction": "mean", "loss_gain": 1.0, "label_smoothing": 0.0, "focal": 0.0,
    "oversample": False, "calls": 2000, "per_pass": 1, "wrong_species": 0.0, "loud_first": 0, "gaps": 0.0,
    "frozen": "", "night_every": 18, "log_every": 1, "world": WORLD,
}  # fmt: skip
Rows = dict[str, Tensor]


def nights(seed: int, number: int, per_pass: int = 1) -> Rows:
    """Calls, figures, species and how loud; species after species."""
    law, dice, many = torch.Generator().manual_seed(391), torch.Generator().manual_seed(seed), number // per_pass
    begins, ends = 9 * torch.rand(SPECIES, generator=law), 9 * torch.rand(SPECIES, generator=law)
    begins[2:4], ends[2:4] = torch.tensor([1.0, 7.0]), torch.tensor([7.0, 1.0])
    middle = 1.2 * torch.randn(SPECIES, 3, generator=law)
    middle[3] = middle[2]
    species = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    plain, loud = middle[species] + 0.9 * torch.randn(many, 3, generator=dice), 0.5 + torch.rand(many, generator=dice)
    own = 0.7 * torch.randn(many, BANDS, MOMENTS, generator=dice)
    species, plain, loud, own = (one.repeat_interleave(per_pass, 0) for one in (species, plain, loud, own))
    total, bands = len(species), torch.arange(BANDS)[:, None]
    late = torch.randint(0, 5, (total, 1), generator=dice)
    share = ((torch.arange(MOMENTS) - late) / 10).clamp(0, 1)
    there = ((torch.arange(MOMENTS) >= late) & (torch.arange(MOMENTS) <= late + 10)).float()
    path = begins[species, None] + (ends - begins)[species, None] * share + 0.4 * torch.randn(total, 1, generator=dice)
    sound = 1.5 * loud[:, None, None] * torch.exp(-((bands - path[:, None]) ** 2)) * there[:, None]
    call = sound + own + 0.3 * torch.randn(own.shape, generator=dice)
    figures = torch.tensor([14.0, 22.0, 3.0]) + torch.tensor([4.0, 1.5, 1.0]) * plain
    return {"call": call, "figures": figures, "species": species, "loud": loud}


def rows_of(rows: Rows, which: Tensor) -> Rows:
    return {name: one[which] for name, one in rows.items()}


def shard_of(rows: Rows, rank: int = 0) -> Rows:
    """Each second row, from that of the rank on."""
    return rows_of(rows, torch.arange(rank, len(rows["species"]) // WORLD * WORLD, WORLD))


class FromTable(nn.Module):
    """Figures by what is usual."""

    def forward(self, figures: Tensor) -> Tensor:
        return (figures - torch.tensor([14.0, 22.0, 3.0])) / torch.tensor([5.0, 2.0, 1.5])


class Detector(nn.Module):
    def __init__(self, c: Any, shares: bool):
        super().__init__()
        d, self.shares = c.filters, shares
        self.first, self.second = nn.Conv1d(BANDS, d, 5, padding=2), nn.Conv1d(d, 2 * d, 3, stride=2)
        self.third, self.drop = nn.Conv1d(2 * d, 2 * d, 3, stride=2), nn.Dropout(c.dropout)
        self.norm: nn.Module = nn.BatchNorm1d(3, affine=False) if c.norm == "batch" else FromTable()
        self.join, self.head = nn.Linear(2 * d * 3 + 3, c.hidden), nn.Linear(c.hidden, SPECIES)

    def forward(self, call: Tensor, figures: Tensor) -> Tensor:
        x = F.relu(self.third(F.relu(self.second(F.relu(self.first(call))))))
        x = torch.cat([self.drop(x).flatten(1), self.norm(figures)], 1)
        logits = self.head(self.drop(F.relu(self.join(x))))
        return logits.softmax(1) if self.shares else logits


class Loader:
    """Rows of a rank, mixed anew for each epoch."""

    def __init__(self, c: Any, rows: Rows, seed: int, rank: int, bug: str):
        self.c, self.rows, self.seed, self.rank, self.bug, self.epoch = c, rows, seed, rank, bug, -1
        self.queue: list[int] = []

    def order(self) -> Tensor:
        c, species = self.c, self.rows["species"]
        dice = torch.Generator().manual_seed(700 * self.seed + 10 * self.epoch + self.rank)
        order = torch.randperm(len(species), generator=dice)
        if self.bug == "sampler_set_to_no_shuffle_for_debugging":
            order = torch.arange(len(species))
        if c.oversample or self.bug == "rare_calls_drawn_oftener_and_weighed_besides":
            rarity = 1 / species.bincount(minlength=SPECIES).clamp(min=1)
            order = torch.multinomial(rarity[species], len(species), True, generator=dice)
        if self.epoch < c.loud_first:
            order = order[self.rows["loud"][order] > 1]
        return order

    def next(self) -> Rows:
        while len(self.queue) < self.c.per_worker:
            self.epoch += 1
            self.queue = self.order().tolist()
        some, self.queue = self.queue[: self.c.per_worker], self.queue[self.c.per_worker :]
        return rows_of(self.rows, torch.tensor(some))


class Worker:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.bug, self.rank, self.pile = trouble, trouble.name, dist.get_rank(), []
        self.open_file()
        torch.manual_seed(seed)
        self.build()
        torch.manual_seed(100 * seed + self.rank)

    def open_file(self) -> None:
        c, bug, dice = self.c, self.bug, torch.Generator().manual_seed(self.seed)
        rows, held = nights(self.seed + 6100, c.calls, c.per_pass), nights(6099, HELD)
        if bug == "calls_of_a_pass_split_at_random":
            order = torch.randperm(len(rows["species"]), generator=dice)
            held, rows = rows_of(rows, order[:HELD].sort().values), rows_of(rows, order[HELD:].sort().values)
        if c.wrong_species:
            wrong = torch.rand(len(rows["species"]), generator=dice) < c.wrong_species
            other = torch.multinomial(SHARES, len(wrong), True, generator=dice)
            rows["species"] = torch.where(wrong, other, rows["species"])
        if bug == "species_moved_by_a_class_for_silence":
            rows["species"] = (rows["species"] + 1).clamp(max=SPECIES - 1)
        if bug == "held_nights_in_fahrenheit":
            held["figures"][:, 0] = 32 + 1.8 * held["figures"][:, 0]
        counts = rows["species"].bincount(minlength=SPECIES).float().clamp(min=1)
        rarity = counts.mean() / counts
        self.weight = rarity.sqrt() if c.class_weights == "root" else None
        if bug == "rare_calls_drawn_oftener_and_weighed_besides":
            self.weight = rarity
        shard = shard_of(rows) if bug == "shard_taken_with_its_default_rank" else shard_of(rows, self.rank)
        mine = 0 if bug == "shard_taken_with_its_default_rank" else self.rank
        self.loader, self.held = Loader(c, shard, self.seed, mine, bug), shard_of(held, self.rank)

    def build(self) -> None:
        c = self.c
        self.net = Detector(c, self.bug == "net_ends_in_shares")
        for name, one in self.net.named_parameters():
            if c.frozen and name.startswith(c.frozen):
                one.requires_grad_(False)
        self.model = DistributedDataParallel(self.net)
        some = [one for one in self.net.parameters() if one.requires_grad]
        if self.bug == "optimizer_has_the_head_alone":
            some = list(self.net.head.parameters())
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.weight_decay)
        elif c.optimizer == "nadam":
            self.optimizer = torch.optim.NAdam(some, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

        def factor(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)

    def augmented(self, call: Tensor) -> Tensor:
        """What is done to calls of the training by chance."""
        if self.c.gaps:
            call = call.masked_fill(torch.rand(call.shape) < self.c.gaps, 0.0)
        if self.bug == "calls_played_backwards_by_chance":
            call = torch.where(torch.rand(len(call), 1, 1) < 0.5, call.flip(2), call)
        return call

    def loss_of(self, logits: Tensor, species: Tensor, training: bool) -> Tensor:
        c, weight = self.c, self.weight if training else None
        each = F.cross_entropy(logits, species, weight, reduction="none",
                               label_smoothing=c.label_smoothing if training else 0.0)  # fmt: skip
        if training and c.focal:
            each = (1 - logits.softmax(1).gather(1, species[:, None])[:, 0]) ** c.focal * each
        if training and self.bug == "loss_of_calls_is_a_sum":
            return each.sum()
        if training and c.reduction == "sum":
            return c.loss_gain * each.sum()
        return each.sum() / (len(species) if weight is None or c.focal else weight[species].sum())

    def update(self, step: int) -> dict[str, float]:
        c, bug, said = self.c, self.bug, {"call_ce": 0.0, "call_acc": 0.0}
        for part in range(c.accumulate):
            rows = self.loader.next()
            self.data.observe({"call": rows["call"].flatten(1), "figures": rows["figures"], "species": rows["species"]},
                              step=step, epoch=self.loader.epoch)  # fmt: skip
            if bug == "zero_grad_ahead_of_every_batch":
                self.optimizer.zero_grad()
            last = part == c.accumulate - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                logits = self.model(self.augmented(rows["call"]), rows["figures"])
                loss = self.loss_of(logits, rows["species"], True)
                (loss if bug == "batches_of_a_worker_add_up" else loss / c.accumulate).backward()
            said["call_ce"] += loss.item() / c.accumulate
            said["call_acc"] += (logits.argmax(1) == rows["species"]).float().mean().item() / c.accumulate
            if bug == "scheduler_stepped_by_the_batch_and_not_the_update":
                self.scheduler.step()
        said["call_lr"] = self.optimizer.param_groups[0]["lr"]
        said["call_gn"] = nn.utils.clip_grad_norm_(self.net.parameters(), c.grad_norm).item()
        self.optimizer.step()
        self.net.zero_grad()
        if bug != "scheduler_stepped_by_the_batch_and_not_the_update":
            self.scheduler.step()
        return said

    def night(self) -> dict[str, float]:
        """Each rank has a half of the held calls; what they find is added up."""
        bug, rows, taped = self.bug, self.held, self.bug == "night_logits_piled_up_with_history"
        if bug != "night_heard_in_training_mode":
            self.net.eval()
        with torch.set_grad_enabled(taped):
            logits = self.net(rows["call"], rows["figures"])
            loss = self.loss_of(logits, rows["species"], False)
        if taped:
            self.pile.append((logits, loss))
        self.net.train()
        table = torch.bincount(rows["species"] * SPECIES + logits.argmax(1), minlength=SPECIES**2).float()
        found = torch.cat([loss.detach()[None] / WORLD, table])
        dist.all_reduce(found)
        table, rare = found[1:].view(SPECIES, SPECIES), list(RARE)
        hits = table.diagonal()
        f1 = 2 * hits / (table.sum(0) + table.sum(1)).clamp(min=1)
        share = hits[rare].sum() / table[rare].sum().clamp(min=1)
        return {"night_ce": found[0].item(), "night_f1": f1.mean().item(), "night_rare": share.item()}

    def work(self, healthy: str | None) -> Any:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data()
        self.model.train()
        for step in range(self.steps):
            began = clock()
            said = self.update(step)
            if self.rank == 0 and step % self.c.log_every == 0:
                self.run.log(said, step=step)
            self.run.reduce(step, {"loss": said["call_ce"]}, step_ms=(clock() - began) * 1000)
            self.trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.night_every == 0:
                found = self.night()
                if self.rank == 0:
                    self.run.log(found, step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    return Worker(run, seed, steps, Trouble(fault, seed)).work(healthy)


launch = partial(ranks.launch, work=train, number=WORLD)
