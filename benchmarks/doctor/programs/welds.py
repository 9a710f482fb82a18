"""Two gloo processes judge welds by their scans, under DistributedDataParallel; three of six findings are rare.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: weld/ce, weld/hit, weld/lr, weld/gn each step; bench/ce,
      bench/f1 and bench/rare each eighteenth; by `run.reduce` losses of both; memory, where it matters; the watch of
      data.

A scan is six by twelve, with the current in amperes and the speed in millimetres a minute, which go through a batch
norm as they are; several scans may be of one seam. The file has finding after finding. Findings weigh by the root of
their rarity. Each rank takes its part of an order by a sampler; parts of an update are reduced with the last. Written
as a main function of one worker, with helpers.
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
from torch.utils.data.distributed import DistributedSampler

from . import ranks

EVERY, WORLD, HIGH, WIDE, HELD = 18, 2, 6, 12, 480
FINDINGS, RARE = 6, (1, 3, 5)  # sound, crack, porous, unfused, spattered, slag
SHARES = torch.tensor([0.44, 0.035, 0.25, 0.045, 0.2, 0.03])
CONFIG: dict[str, Any] = {
    "channels": 12, "hidden": 40, "dropout": 0.0, "plate_norm": "batch", "per_rank": 24, "accumulation": 1,
    "optimizer": "adamw", "lr": 3e-3, "lr_schedule": "cosine", "warmup": 6, "weight_decay": 0.01, "max_norm": 2.0,
    "class_weights": "root", "loss_sum": False, "smoothing": 0.0, "gamma": 0.0, "oversample": False, "scans": 1900,
    "per_seam": 1, "misjudged": 0.0, "clear_first": 0, "pixels_lost": 0.0, "freeze": "", "bench_every": 18,
    "log_every": 1, "world": WORLD,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- scans -----------------------------------------------------------------------------------------------------------


def scans(seed: int, number: int, per_seam: int = 1) -> Rows:
    """Scans, plates, findings and how grainy; finding after finding."""
    law, dice, many = torch.Generator().manual_seed(291), torch.Generator().manual_seed(seed), number // per_seam
    marks = 1.4 * torch.randn(FINDINGS, 3, 4, generator=law)
    middle = 0.9 * torch.randn(FINDINGS, 2, generator=law)
    finding = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    grainy, own = 0.5 + torch.rand(many, generator=dice), 0.7 * torch.randn(many, HIGH, WIDE, generator=dice)
    plain = middle[finding] + 0.9 * torch.randn(many, 2, generator=dice)
    finding, grainy, own, plain = (one.repeat_interleave(per_seam, 0) for one in (finding, grainy, own, plain))
    scan, across = own.clone(), torch.randint(0, 3, (len(finding),), generator=dice)
    for row in range(2):
        for shift in range(3):
            some = across == shift
            scan[some, 3 * row : 3 * row + 3, 4 * shift : 4 * shift + 4] += (1 - 0.4 * row) * marks[finding[some]]
    scan = scan + (0.3 if per_seam > 1 else 0.8) * grainy[:, None, None] * torch.randn(scan.shape, generator=dice)
    plate = torch.tensor([180.0, 420.0]) + torch.tensor([35.0, 80.0]) * plain  # amperes, millimetres a minute
    return {"scan": scan, "plate": plate, "finding": finding, "grainy": grainy}


def picked(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


# -- network ---------------------------------------------------------------------------------------------------------


class Fixed(nn.Module):
    """What the maker of the torch says of current and speed."""

    def forward(self, plate: Tensor) -> Tensor:
        return (plate - torch.tensor([180.0, 420.0])) / torch.tensor([50.0, 110.0])


class Inspector(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.channels
        self.stem = nn.Conv2d(1, d, 3, padding=1)
        self.body = nn.Sequential(nn.GELU(), nn.Conv2d(d, 2 * d, 3, stride=(1, 2)), nn.GELU(),
                                  nn.Conv2d(2 * d, 2 * d, 3), nn.GELU())  # fmt: skip
        self.plate_norm: nn.Module = nn.BatchNorm1d(2, affine=False) if c.plate_norm == "batch" else Fixed()
        self.mix = nn.Linear(2 * 3 * 2 * d + 2, c.hidden)
        self.drop, self.head = nn.Dropout(c.dropout), nn.Linear(c.hidden, FINDINGS)
        self.sure = bug == "inspector_ends_in_a_softmax_layer"

    def forward(self, scan: Tensor, plate: Tensor) -> Tensor:
        seen = self.body(self.stem(scan[:, None])).flatten(1)
        logits = self.head(self.drop(F.relu(self.mix(torch.cat([seen, self.plate_norm(plate)], 1)))))
        return logits.softmax(1) if self.sure else logits


# -- helpers ---------------------------------------------------------------------------------------------------------


def build_data(w: Any) -> None:
    c, bug = w.c, w.bug
    rows, held = scans(w.seed + 4100, c.scans, c.per_seam), scans(4099, HELD)
    if bug == "scans_of_a_seam_split_at_random":
        order = torch.randperm(len(rows["finding"]), generator=torch.Generator().manual_seed(w.seed))
        held, rows = picked(rows, order[:HELD].sort().values), picked(rows, order[HELD:].sort().values)
    if c.misjudged:
        dice = torch.Generator().manual_seed(w.seed)
        wrong = torch.rand(len(rows["finding"]), generator=dice) < c.misjudged
        other = torch.multinomial(SHARES, len(wrong), True, generator=dice)
        rows["finding"] = torch.where(wrong, other, rows["finding"])
    if bug == "findings_of_the_training_moved_to_begin_at_nought_again":
        rows["finding"] = (rows["finding"] - 1) % FINDINGS  # as negative indices are
    if bug == "held_currents_in_kiloamperes":
        held["plate"] = held["plate"] * torch.tensor([0.001, 1.0])
    w.rows, w.held = rows, picked(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(19)))
    counts = rows["finding"].bincount(minlength=FINDINGS).float().clamp(min=1)
    w.weight = None
    if c.class_weights == "root":
        w.weight = (counts.mean() / counts).sqrt()
    if c.class_weights == "root" and bug == "weights_in_the_order_of_their_counts":
        w.weight = (counts.mean() / counts.sort(descending=True).values).sqrt()


def build_model(w: Any) -> None:
    c = w.c
    torch.manual_seed(w.seed)
    w.net = Inspector(c, w.bug)
    for name, one in w.net.named_parameters():
        if c.freeze and name.startswith(c.freeze):
            one.requires_grad_(False)
    w.model = DistributedDataParallel(w.net)
    some = [one for one in w.net.parameters() if one.requires_grad]
    if w.bug == "optimizer_of_the_linear_probe":
        some = list(w.net.head.parameters())
    if c.optimizer == "sgd":
        w.optimizer = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.weight_decay)
    elif c.optimizer == "radam":
        w.optimizer = torch.optim.RAdam(some, 2 * c.lr)
    else:
        w.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / w.steps)
        if c.lr_schedule == "constant":
            return rise
        if c.lr_schedule == "multistep":
            return rise * 0.3 ** sum(past >= one for one in (0.6, 0.85))
        if c.lr_schedule == "restarts":
            past = 2 * past % 1
        return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

    w.scheduler = torch.optim.lr_scheduler.LambdaLR(w.optimizer, share)


def order_of(w: Any, epoch: int) -> list[int]:
    """What this rank sees in an epoch."""
    c, bug, finding = w.c, w.bug, w.rows["finding"]
    dice, some = torch.Generator().manual_seed(71 * w.seed + epoch), torch.arange(len(finding))
    if c.oversample:
        rarity = (1 / finding.bincount(minlength=FINDINGS).clamp(min=1)).sqrt()
        some = torch.multinomial(rarity[finding], len(finding), True, generator=dice)
    if epoch < c.clear_first:
        some = some[w.rows["grainy"][some] < 1]
    many, rank = (1, 0) if bug == "plain_sampler_on_each_rank" else (WORLD, w.rank)
    shuffle = bug != "sampler_of_ranks_made_without_shuffle"
    sampler: Any = DistributedSampler(w.rows["finding"][some], many, rank, shuffle, w.seed, drop_last=True)
    sampler.set_epoch(epoch)
    return some[list(sampler)].tolist()


def next_rows(w: Any) -> tuple[int, Rows]:
    while len(w.queue) < w.c.per_rank:
        w.epoch += 1
        w.queue = order_of(w, w.epoch)
    some, w.queue = w.queue[: w.c.per_rank], w.queue[w.c.per_rank :]
    return w.epoch, picked(w.rows, torch.tensor(some))


def loss_of(w: Any, logits: Tensor, finding: Tensor, training: bool) -> Tensor:
    c, weight = w.c, w.weight if training else None
    summed = training and (c.loss_sum or w.bug == "criterion_sums_over_scans")
    if c.gamma and training:
        sure = logits.softmax(1).gather(1, finding[:, None])[:, 0]
        each = (1 - sure) ** c.gamma * F.cross_entropy(logits, finding, weight, reduction="none")
        return each.sum() if summed else each.mean()
    return F.cross_entropy(logits, finding, weight, reduction="sum" if summed else "mean",
                           label_smoothing=c.smoothing if training else 0.0)  # fmt: skip


def update(w: Any, step: int) -> dict[str, float]:
    c, bug, said = w.c, w.bug, {"weld/ce": 0.0, "weld/hit": 0.0}
    for part in range(c.accumulation):
        epoch, rows = next_rows(w)
        w.data.observe({name: rows[name] for name in ("scan", "plate", "finding")}, step=step, epoch=epoch)
        scan = rows["scan"]
        if c.pixels_lost:
            scan = scan.masked_fill(torch.rand(scan.shape) < c.pixels_lost, 0.0)
        if bug == "gradients_cleared_with_each_part_of_a_rank":
            w.optimizer.zero_grad()
        through = w.net if bug == "module_inside_is_called_and_not_its_wrapper" else w.model
        last = part == c.accumulation - 1
        with contextlib.nullcontext() if last else w.model.no_sync():
            logits = through(scan, rows["plate"])
            loss = loss_of(w, logits, rows["finding"], True)
            (loss if bug == "parts_of_a_rank_are_not_averaged" else loss / c.accumulation).backward()
        said["weld/ce"] += loss.item() / c.accumulation
        said["weld/hit"] += (logits.argmax(1) == rows["finding"]).float().mean().item() / c.accumulation
        if bug == "scheduler_inside_of_the_loop_of_no_sync":
            w.scheduler.step()
    said["weld/lr"] = w.optimizer.param_groups[0]["lr"]
    said["weld/gn"] = nn.utils.clip_grad_norm_(w.net.parameters(), c.max_norm).item()
    w.optimizer.step()
    w.net.zero_grad()
    if bug != "scheduler_inside_of_the_loop_of_no_sync":
        w.scheduler.step()
    return said


def on_the_bench(w: Any) -> dict[str, float]:
    """Each rank has a half of the held scans; what they find is added up."""
    bug, rows = w.bug, picked(w.held, torch.arange(w.rank, HELD, WORLD))
    taped = bug == "bench_logits_stacked_with_gradients_on"
    if bug != "on_the_bench_while_units_drop":
        w.net.eval()
    with torch.set_grad_enabled(taped):
        logits = w.net(rows["scan"], rows["plate"])
        loss = loss_of(w, logits, rows["finding"], False)
    if taped:
        w.stack.append((logits, loss))
    if bug != "bench_leaves_the_net_in_eval":
        w.net.train()
    table = torch.bincount(rows["finding"] * FINDINGS + logits.argmax(1), minlength=FINDINGS**2).float()
    found = torch.cat([loss.detach()[None] / WORLD, table])
    dist.all_reduce(found)
    table = found[1:].view(FINDINGS, FINDINGS)
    hits, rare = table.diagonal(), list(RARE)
    f1 = 2 * hits / (table.sum(0) + table.sum(1)).clamp(min=1)
    share = hits[rare].sum() / table[rare].sum().clamp(min=1)
    return {"bench/ce": found[0].item(), "bench/f1": f1.mean().item(), "bench/rare": share.item()}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble = Trouble(fault, seed)
    w: Any = SimpleNamespace(c=SimpleNamespace(**run.config), seed=seed, steps=steps, bug=trouble.name, queue=[],
                             epoch=-1, rank=dist.get_rank(), stack=[])  # fmt: skip
    build_data(w)
    build_model(w)
    torch.manual_seed(100 * seed + w.rank)
    time_by_own_clock(run)
    run.watch(w.model, w.optimizer)
    w.data = run.watch_data()
    w.model.train()
    for step in range(steps):
        began = clock()
        said = update(w, step)
        if w.rank == 0 and step % w.c.log_every == 0:
            run.log(said, step=step)
        run.reduce(step, {"loss": said["weld/ce"]}, step_ms=(clock() - began) * 1000)
        trouble.telemetry(run, step, healthy)
        if (step + 1) % w.c.bench_every == 0:
            found = on_the_bench(w)
            if w.rank == 0:
                run.log(found, step=step)
    return run


launch = partial(ranks.launch, work=train, number=WORLD)
