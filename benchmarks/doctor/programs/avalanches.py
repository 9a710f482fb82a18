"""Two gloo processes tell kinds of avalanches by their snow, sharded by `fully_shard`; three of six are rare.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: slope_xent, slope_right, slope_lr, slope_norm each step;
      patrol_xent, patrol_f1 and patrol_rare each eighteenth; by `run.reduce` losses of both; memory, where it matters;
      the watch of data.

A slope is a profile of its snow at twelve depths, of eight measures each, and three figures of its place: height in
metres, angle, and days since it snowed, which are standardised by those of the training. Two kinds differ by the depth
of one weak layer alone. Several profiles may be of one slope. The file has kind after kind, and each rank has a half of
it. Kinds weigh by the root of their rarity. Written as functions around a station of each rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn

from . import ranks

EVERY, WORLD, DEPTHS, MEASURES, HELD, KINDS, RARE = 18, 2, 12, 8, 480, 6, (1, 4, 5)
SHARES = torch.tensor([0.4, 0.045, 0.27, 0.21, 0.04, 0.035])
CONFIG: dict[str, Any] = {
    "width": 32, "joint": 40, "dropout": 0.0, "pooling": "flat", "rows_per_rank": 24, "micro": 1, "optim": "adamw",
    "peak": 4e-3, "decay_shape": "cosine", "ramp": 6, "l2": 0.01, "norm_bound": 2.0, "weights": "root",
    "reduction": "mean", "loss_unit": 1.0, "smoothing": 0.0, "focus": 0.0, "balanced_draw": False, "profiles": 2000,
    "per_slope": 1, "mistaken": 0.0, "fresh_first": 0, "layers_lost": 0.0, "held_part": "", "patrol_every": 18,
    "log_every": 1, "world": WORLD,
}  # fmt: skip
Rows = dict[str, Tensor]


def slopes(seed: int, number: int, per_slope: int = 1) -> Rows:
    """Profiles, figures, kinds and how old the snow is; kind after kind."""
    law, dice, many = torch.Generator().manual_seed(441), torch.Generator().manual_seed(seed), number // per_slope
    weak = torch.tensor([3.0, 7.5, 5.5, 9.0, 2.0, 6.5])
    layer = 0.6 * torch.randn(KINDS, MEASURES, generator=law)
    middle = 0.5 * torch.randn(KINDS, 3, generator=law)
    layer[1], middle[1] = layer[0], middle[0]
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    plain, old = middle[kind] + 0.9 * torch.randn(many, 3, generator=dice), 0.5 + torch.rand(many, generator=dice)
    own = 0.9 * torch.randn(many, DEPTHS, MEASURES, generator=dice)
    kind, plain, old, own = (one.repeat_interleave(per_slope, 0) for one in (kind, plain, old, own))
    depth = weak[kind] + 0.8 * torch.randn(len(kind), generator=dice)
    share = torch.exp(-0.5 * (torch.arange(DEPTHS) - depth[:, None]).square())
    snow = 1.6 * share[..., None] * layer[kind][:, None] / old[:, None, None].sqrt()
    snow = snow + own + 0.3 * torch.randn(own.shape, generator=dice)
    figures = torch.tensor([2100.0, 34.0, 6.0]) + torch.tensor([350.0, 4.0, 2.0]) * plain
    return {"snow": snow, "figures": figures, "kind": kind, "old": old}


def rows_at(rows: Rows, which: Tensor) -> Rows:
    return {name: one[which] for name, one in rows.items()}


class Watcher(nn.Module):
    def __init__(self, c: Any, shares: bool):
        super().__init__()
        d, self.shares, self.pooling = c.width, shares, c.pooling
        self.stem, self.drop = nn.Conv1d(MEASURES, d, 3, padding=1), nn.Dropout(c.dropout)
        self.body = nn.Sequential(nn.Conv1d(d, d, 3, stride=2, padding=1), nn.GELU(), nn.Conv1d(d, d, 3, padding=1))
        self.figures, self.norm = nn.Linear(3, d), nn.LayerNorm(d)
        self.joint = nn.Linear((1 if c.pooling == "mean" else DEPTHS // 2) * d + d, c.joint)
        self.head = nn.Linear(c.joint, KINDS)

    def forward(self, snow: Tensor, figures: Tensor) -> Tensor:
        x = self.body(F.gelu(self.stem(snow.transpose(1, 2))))
        x = F.gelu(self.norm(x.transpose(1, 2)))
        x = x.mean(1) if self.pooling == "mean" else x.flatten(1)
        x = self.drop(torch.cat([x, F.gelu(self.figures(figures))], 1))
        logits = self.head(self.drop(F.gelu(self.joint(x))))
        return logits.softmax(1) if self.shares else logits


@dataclass
class Station:
    run: Any
    c: Any
    seed: int
    steps: int
    bug: str
    rank: int
    rows: Rows = field(default_factory=dict)
    held: Rows = field(default_factory=dict)
    weight: Tensor | None = None
    net: Any = None
    optimizer: Any = None
    schedule: Any = None
    data: Any = None
    queue: list[int] = field(default_factory=list)
    epoch: int = -1
    kept: list[Any] = field(default_factory=list)


# -- what is made once -----------------------------------------------------------------------------------------------


def read_file(s: Station) -> None:
    c, bug, dice = s.c, s.bug, torch.Generator().manual_seed(s.seed)
    rows, held = slopes(s.seed + 7300, c.profiles, c.per_slope), slopes(7299, HELD)
    if bug == "profiles_of_a_slope_on_piste_and_patrol":
        order = torch.randperm(len(rows["kind"]), generator=dice)
        held, rows = rows_at(rows, order[:HELD].sort().values), rows_at(rows, order[HELD:].sort().values)
    if c.mistaken:
        wrong = torch.rand(len(rows["kind"]), generator=dice) < c.mistaken
        other = torch.multinomial(SHARES, len(wrong), True, generator=dice)
        rows["kind"] = torch.where(wrong, other, rows["kind"])
    if bug == "kinds_of_the_file_taken_to_begin_at_one":
        rows["kind"] = (rows["kind"] - 1) % KINDS
    std, mean = torch.std_mean(rows["figures"], 0)
    rows["figures"] = (rows["figures"] - mean) / std
    if bug == "heights_of_the_patrol_in_feet":
        held["figures"][:, 0] = 3.281 * held["figures"][:, 0]
    held["figures"] = (held["figures"] - mean) / std
    counts = rows["kind"].bincount(minlength=KINDS).float().clamp(min=1)
    if c.weights == "root":
        share = counts / counts.mean()
        s.weight = share.sqrt() if bug == "kinds_weigh_by_their_share" else share.rsqrt()
    if bug == "patrol_meets_each_kind_as_often":
        drawn = torch.multinomial(1 / held["kind"].bincount(minlength=KINDS).float()[held["kind"]], HELD, True,
                                  generator=dice)  # fmt: skip
        held = rows_at(held, drawn)
    s.rows = rows_at(rows, torch.arange(s.rank, len(rows["kind"]) // WORLD * WORLD, WORLD))
    if bug == "every_rank_opens_the_first_half":
        s.rows = rows_at(rows, torch.arange(0, len(rows["kind"]) // WORLD * WORLD, WORLD))
    s.held = rows_at(held, torch.arange(s.rank, HELD, WORLD))


def build(s: Station) -> None:
    from torch.distributed.fsdp import fully_shard

    c = s.c
    torch.manual_seed(s.seed)
    s.net = Watcher(c, s.bug == "watcher_puts_out_probabilities")
    for name, one in s.net.named_parameters():
        if c.held_part and name.startswith(c.held_part):
            one.requires_grad_(False)
    fully_shard(s.net)
    some = [one for one in s.net.parameters() if one.requires_grad]
    if s.bug == "head_and_norm_are_what_the_optimizer_has":
        some = [*s.net.norm.parameters(), *s.net.head.parameters()]
    if c.optim == "sgd":
        s.optimizer = torch.optim.SGD(some, c.peak, 0.9, weight_decay=c.l2)
    elif c.optim == "nadam":
        s.optimizer = torch.optim.NAdam(some, c.peak)
    else:
        s.optimizer = torch.optim.AdamW(some, c.peak, weight_decay=c.l2)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.ramp)), min(1.0, at / s.steps)
        if c.decay_shape == "flat":
            return rise
        if c.decay_shape == "cosine_twice":
            past = 2 * past % 1
        return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, share)


# -- what is done each step ------------------------------------------------------------------------------------------


def fill_queue(s: Station) -> None:
    c, kind = s.c, s.rows["kind"]
    s.epoch += 1
    mine = 0 if s.bug == "every_rank_opens_the_first_half" else s.rank
    dice = torch.Generator().manual_seed(900 * s.seed + 10 * s.epoch + mine)
    order = torch.randperm(len(kind), generator=dice)
    if s.bug == "halves_of_the_file_read_without_mixing":
        order = torch.arange(len(kind))
    if c.balanced_draw:
        rarity = (1 / kind.bincount(minlength=KINDS).clamp(min=1)).sqrt()
        order = torch.multinomial(rarity[kind], len(kind), True, generator=dice)
    if s.epoch < c.fresh_first:
        order = order[s.rows["old"][order] < 1]
    s.queue = order.tolist()


def next_rows(s: Station) -> Rows:
    while len(s.queue) < s.c.rows_per_rank:
        fill_queue(s)
    some, s.queue = s.queue[: s.c.rows_per_rank], s.queue[s.c.rows_per_rank :]
    return rows_at(s.rows, torch.tensor(some))


def criterion(s: Station, logits: Tensor, kind: Tensor, training: bool) -> Tensor:
    c, weight = s.c, s.weight if training else None
    each = F.cross_entropy(logits, kind, weight, reduction="none", label_smoothing=c.smoothing if training else 0.0)
    if training and c.focus:
        each = (1 - logits.softmax(1).gather(1, kind[:, None])[:, 0]) ** c.focus * each
    if training and s.bug == "losses_of_a_rank_are_summed":
        return each.sum()
    if training and c.reduction == "sum":
        return c.loss_unit * each.sum()
    return each.sum() / (len(kind) if weight is None or c.focus else weight[kind].sum())


def update(s: Station, step: int) -> dict[str, float]:
    c, bug, said = s.c, s.bug, {"slope_xent": 0.0, "slope_right": 0.0}
    for part in range(c.micro):
        rows = next_rows(s)
        s.data.observe({"snow": rows["snow"].flatten(1), "figures": rows["figures"], "kind": rows["kind"]}, step=step,
                       epoch=s.epoch)  # fmt: skip
        cleared = bug == "shards_lose_their_gradients_before_each_part"
        if cleared:
            s.optimizer.zero_grad()
        s.net.set_requires_gradient_sync(cleared or part == c.micro - 1)
        snow = rows["snow"]
        if c.layers_lost:
            snow = snow.masked_fill(torch.rand(snow.shape[:2])[..., None] < c.layers_lost, 0.0)
        logits = s.net(snow, rows["figures"])
        loss = criterion(s, logits, rows["kind"], True)
        (loss if bug == "parts_are_added_on_every_shard" else loss / c.micro).backward()
        said["slope_xent"] += loss.item() / c.micro
        said["slope_right"] += (logits.argmax(1) == rows["kind"]).float().mean().item() / c.micro
        if bug == "schedule_advances_with_every_part":
            s.schedule.step()
    said["slope_lr"] = s.optimizer.param_groups[0]["lr"]
    norm: Any = nn.utils.clip_grad_norm_(s.net.parameters(), c.norm_bound)
    said["slope_norm"] = norm.full_tensor().item()
    s.optimizer.step()
    s.net.zero_grad()
    if bug != "schedule_advances_with_every_part":
        s.schedule.step()
    return said


def patrol(s: Station) -> dict[str, float]:
    """Each rank has a half of the held slopes; what they find is added up."""
    bug, rows, taped = s.bug, s.held, s.bug == "patrol_files_what_it_said_with_gradients"
    if bug != "patrol_goes_out_in_training_mode":
        s.net.eval()
    with torch.set_grad_enabled(taped):
        logits = s.net(rows["snow"], rows["figures"])
        loss = criterion(s, logits, rows["kind"], False)
    if taped:
        s.kept.append((logits, loss))
    s.net.train()
    table = torch.bincount(rows["kind"] * KINDS + logits.argmax(1), minlength=KINDS**2).float()
    found = torch.cat([loss.detach()[None] / WORLD, table])
    dist.all_reduce(found)
    table, rare = found[1:].view(KINDS, KINDS), list(RARE)
    hits = table.diagonal()
    f1 = 2 * hits / (table.sum(0) + table.sum(1)).clamp(min=1)
    return {"patrol_xent": found[0].item(), "patrol_f1": f1.mean().item(),
            "patrol_rare": (hits[rare].sum() / table[rare].sum().clamp(min=1)).item()}  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble = Trouble(fault, seed)
    s = Station(run, SimpleNamespace(**run.config), seed, steps, trouble.name, dist.get_rank())
    read_file(s)
    build(s)
    torch.manual_seed(100 * seed + s.rank)
    time_by_own_clock(run)
    run.watch(s.net, s.optimizer)
    s.data = run.watch_data()
    s.net.train()
    for step in range(steps):
        began = clock()
        said = update(s, step)
        if s.rank == 0 and step % s.c.log_every == 0:
            run.log(said, step=step)
        run.reduce(step, {"loss": said["slope_xent"]}, step_ms=(clock() - began) * 1000)
        trouble.telemetry(run, step, healthy)
        if (step + 1) % s.c.patrol_every == 0:
            found = patrol(s)
            if s.rank == 0:
                run.log(found, step=step)
    return run


launch = partial(ranks.launch, work=train, number=WORLD)
