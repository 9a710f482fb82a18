"""Two gloo processes name what windows of an EEG show, sharded by `fully_shard`; three of six kinds are rare.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: eeg_ce, eeg_hit, eeg_lr, eeg_gn each step; ward_ce, ward_f1 and
      ward_rare each eighteenth; by `run.reduce` losses of both; memory, where it matters; the watch of data.

A window has four channels of twenty-four samples in microvolts, and two figures: its amplitude in microvolts and its
rhythm in hertz, which go through a batch norm as they are. Two kinds differ by their sign alone. Several windows may be
of one patient's hour. The file has kind after kind, and each rank has a shard of it. Kinds weigh by the root of their
rarity. Parts of an update are reduced with the last. Written as functions that hand a context on.
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

EVERY, WORLD, CHANNELS, SAMPLES, HELD = 18, 2, 4, 24, 480
KINDS, RARE = 6, (2, 3, 5)  # awake, asleep, spike, wave, blink, absence
SHARES = torch.tensor([0.4, 0.28, 0.045, 0.04, 0.2, 0.035])
CONFIG: dict[str, Any] = {
    "filters": 16, "features": 40, "drop_rate": 0.0, "figure_norm": "batch", "windows": 24, "parts": 1,
    "method": "adamw", "step_size": 3e-3, "annealing": "cosine", "warm_up": 6, "decay": 0.01, "clip_norm": 2.0,
    "kind_weights": "root", "reduction": "mean", "smooth": 0.0, "focal": 0.0, "rare_oftener": False, "recorded": 2000,
    "per_hour": 1, "misnamed": 0.0, "quiet_first": 0, "samples_lost": 0.0, "fixed_part": "", "ward_every": 18,
    "say_every": 1, "world": WORLD,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- windows ---------------------------------------------------------------------------------------------------------


def windows(seed: int, number: int, per_hour: int = 1) -> Rows:
    """Windows, figures, kinds and how restless; kind after kind."""
    law, dice, many = torch.Generator().manual_seed(341), torch.Generator().manual_seed(seed), number // per_hour
    marks = 1.3 * torch.randn(KINDS, CHANNELS, 8, generator=law)
    marks[3] = -marks[2]
    middle = 1.2 * torch.randn(KINDS, 2, generator=law)
    middle[3] = middle[2]
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    restless, own = 0.5 + torch.rand(many, generator=dice), 0.9 * torch.randn(many, CHANNELS, SAMPLES, generator=dice)
    plain = middle[kind] + 0.9 * torch.randn(many, 2, generator=dice)
    kind, restless, own, plain = (one.repeat_interleave(per_hour, 0) for one in (kind, restless, own, plain))
    wave, begins = own.clone(), torch.randint(0, 4, (len(kind),), generator=dice)
    for at in range(4):
        some = begins == at
        wave[some, :, 4 * at + 2 : 4 * at + 10] += marks[kind[some]]
    wave = wave + 0.6 * restless[:, None, None] * torch.randn(wave.shape, generator=dice)
    figures = torch.tensor([60.0, 9.0]) + torch.tensor([14.0, 2.0]) * plain  # microvolts, hertz
    return {"wave": 30 * wave, "figures": figures, "kind": kind, "restless": restless}


def chosen(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


# -- network ---------------------------------------------------------------------------------------------------------


class Constants(nn.Module):
    """What a textbook says of amplitude and rhythm."""

    def forward(self, figures: Tensor) -> Tensor:
        return (figures - torch.tensor([60.0, 9.0])) / torch.tensor([20.0, 3.0])


class Reader(nn.Module):
    def __init__(self, c: Any, says_shares: bool):
        super().__init__()
        d = c.filters
        self.stem, self.says_shares = nn.Conv1d(CHANNELS, d, 5, padding=2), says_shares
        self.body = nn.Sequential(nn.SiLU(), nn.Conv1d(d, 2 * d, 3, stride=2), nn.SiLU(),
                                  nn.Conv1d(2 * d, 2 * d, 3, stride=2), nn.SiLU())  # fmt: skip
        self.norm: nn.Module = nn.BatchNorm1d(2, affine=False) if c.figure_norm == "batch" else Constants()
        self.join, self.drop = nn.Linear(2 * d * 5 + 2, c.features), nn.Dropout(c.drop_rate)
        self.head = nn.Linear(c.features, KINDS)

    def forward(self, wave: Tensor, figures: Tensor) -> Tensor:
        seen = self.body(self.stem(wave / 30)).flatten(1)
        logits = self.head(self.drop(F.relu(self.join(torch.cat([seen, self.norm(figures)], 1)))))
        return logits.softmax(1) if self.says_shares else logits


# -- work ------------------------------------------------------------------------------------------------------------


@dataclass
class Context:
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
    archive: list[Any] = field(default_factory=list)


def open_recordings(x: Context) -> None:
    c, bug, dice = x.c, x.bug, torch.Generator().manual_seed(x.seed)
    rows, held = windows(x.seed + 4300, c.recorded, c.per_hour), windows(4299, HELD)
    if bug == "windows_of_an_hour_dealt_to_ward_and_file":
        order = torch.randperm(len(rows["kind"]), generator=dice)
        held, rows = chosen(rows, order[:HELD].sort().values), chosen(rows, order[HELD:].sort().values)
    if c.misnamed:
        wrong = torch.rand(len(rows["kind"]), generator=dice) < c.misnamed
        other = torch.multinomial(SHARES, len(wrong), True, generator=dice)
        rows["kind"] = torch.where(wrong, other, rows["kind"])
    if bug == "kinds_moved_down_as_if_they_began_at_one":
        rows["kind"] = (rows["kind"] - 1).clamp(min=0)
    if bug == "amplitudes_of_the_ward_in_millivolts":
        held["figures"] = held["figures"] * torch.tensor([0.001, 1.0])
    counts = rows["kind"].bincount(minlength=KINDS).float().clamp(min=1)
    if c.kind_weights == "root":
        upside_down = bug == "weights_are_roots_of_counts"
        x.weight = (counts / counts.mean() if upside_down else counts.mean() / counts).sqrt()
    shard = 0 if bug == "rank_taken_from_a_variable_nobody_set" else x.rank
    x.rows = chosen(rows, torch.arange(shard, len(rows["kind"]) // WORLD * WORLD, WORLD))
    x.held = chosen(held, torch.arange(x.rank, HELD, WORLD))


def build(x: Context, freeze_body: bool = True) -> None:
    from torch.distributed.fsdp import fully_shard

    c = x.c
    torch.manual_seed(x.seed)
    x.net = Reader(c, x.bug == "reader_ends_with_shares_for_the_ward")
    if freeze_body:
        x.net.stem.requires_grad_(False)
        x.net.body.requires_grad_(False)
    for name, one in x.net.named_parameters():
        if c.fixed_part and name.startswith(c.fixed_part):
            one.requires_grad_(False)
    for part in (x.net.body, x.net):
        fully_shard(part)
    some = [one for one in x.net.parameters() if one.requires_grad]
    if c.method == "sgd":
        x.optimizer = torch.optim.SGD(some, c.step_size, 0.9, weight_decay=c.decay)
    elif c.method == "nadam":
        x.optimizer = torch.optim.NAdam(some, c.step_size)
    else:
        x.optimizer = torch.optim.AdamW(some, c.step_size, weight_decay=c.decay)

    def share(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warm_up)), min(1.0, at / x.steps)
        if c.annealing == "none":
            return rise
        if c.annealing == "twice":
            past = 2 * past % 1
        return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

    x.schedule = torch.optim.lr_scheduler.LambdaLR(x.optimizer, share)


def new_order(x: Context) -> list[int]:
    c, kind = x.c, x.rows["kind"]
    mine = 0 if x.bug == "rank_taken_from_a_variable_nobody_set" else x.rank
    dice = torch.Generator().manual_seed(1000 * x.seed + 10 * x.epoch + mine)
    order = torch.randperm(len(kind), generator=dice)
    if x.bug == "shards_read_from_their_first_row_on":
        order = torch.arange(len(kind))
    if c.rare_oftener:
        rarity = (1 / kind.bincount(minlength=KINDS).clamp(min=1)).sqrt()
        order = torch.multinomial(rarity[kind], len(kind), True, generator=dice)
    if x.epoch < c.quiet_first:
        order = order[x.rows["restless"][order] < 1]
    return order.tolist()


def next_windows(x: Context) -> Rows:
    while len(x.queue) < x.c.windows:
        x.epoch += 1
        x.queue = new_order(x)
    some, x.queue = x.queue[: x.c.windows], x.queue[x.c.windows :]
    return chosen(x.rows, torch.tensor(some))


def altered(x: Context, wave: Tensor) -> Tensor:
    """What is done to windows of the training by chance."""
    if x.c.samples_lost:
        wave = wave.masked_fill(torch.rand(wave.shape) < x.c.samples_lost, 0.0)
    if x.bug == "windows_turned_upside_down_by_chance":
        wave = wave * (1 - 2 * (torch.rand(len(wave), 1, 1) < 0.5).float())
    return wave


def criterion(x: Context, logits: Tensor, kind: Tensor, training: bool) -> Tensor:
    c, weight = x.c, x.weight if training else None
    each = F.cross_entropy(logits, kind, weight, reduction="none", label_smoothing=c.smooth if training else 0.0)
    if training and c.focal:
        each = (1 - logits.softmax(1).gather(1, kind[:, None])[:, 0]) ** c.focal * each
    if training and x.bug == "criterion_made_with_reduction_sum":
        return each.sum()
    if training and c.reduction == "sum_of_sixths":
        return each.sum() / 6
    return each.sum() / (len(kind) if weight is None or c.focal else weight[kind].sum())


def update(x: Context, step: int) -> dict[str, float]:
    c, bug, said = x.c, x.bug, {"eeg_ce": 0.0, "eeg_hit": 0.0}
    for part in range(c.parts):
        rows = next_windows(x)
        x.data.observe({"wave": rows["wave"].flatten(1), "figures": rows["figures"], "kind": rows["kind"]}, step=step,
                       epoch=x.epoch)  # fmt: skip
        if bug == "gradients_zeroed_where_a_part_begins":
            x.optimizer.zero_grad()
        x.net.set_requires_gradient_sync(part == c.parts - 1 or bug == "gradients_zeroed_where_a_part_begins")
        logits = x.net(altered(x, rows["wave"]), rows["figures"])
        loss = criterion(x, logits, rows["kind"], True)
        (loss if bug == "parts_of_a_shard_go_back_undivided" else loss / c.parts).backward()
        said["eeg_ce"] += loss.item() / c.parts
        said["eeg_hit"] += (logits.argmax(1) == rows["kind"]).float().mean().item() / c.parts
        if bug == "annealing_goes_by_parts":
            x.schedule.step()
    said["eeg_lr"] = x.optimizer.param_groups[0]["lr"]
    said["eeg_gn"] = nn.utils.clip_grad_norm_(x.net.parameters(), c.clip_norm).full_tensor().item()
    x.optimizer.step()
    x.optimizer.zero_grad()
    if bug != "annealing_goes_by_parts":
        x.schedule.step()
    return said


def on_the_ward(x: Context) -> dict[str, float]:
    """Each rank has a half of the held windows; what they say is added up, and running statistics are averaged."""
    bug, rows, taped = x.bug, x.held, x.bug == "readings_of_the_ward_archived_with_gradients"
    for one in x.net.buffers():
        if one.is_floating_point():
            dist.all_reduce(one)
            one.div_(WORLD)
    if bug != "ward_read_while_features_drop":
        x.net.eval()
    with torch.set_grad_enabled(taped):
        logits = x.net(rows["wave"], rows["figures"])
        loss = criterion(x, logits, rows["kind"], False)
    if taped:
        x.archive.append((logits, loss))
    if bug != "reader_comes_back_from_the_ward_in_eval":
        x.net.train()
    table = torch.bincount(rows["kind"] * KINDS + logits.argmax(1), minlength=KINDS**2).float()
    found = torch.cat([loss.detach()[None] / WORLD, table])
    dist.all_reduce(found)
    table = found[1:].view(KINDS, KINDS)
    hits, rare = table.diagonal(), list(RARE)
    f1 = 2 * hits / (table.sum(0) + table.sum(1)).clamp(min=1)
    share = hits[rare].sum() / table[rare].sum().clamp(min=1)
    return {"ward_ce": found[0].item(), "ward_f1": f1.mean().item(), "ward_rare": share.item()}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble = Trouble(fault, seed)
    x = Context(run, SimpleNamespace(**run.config), seed, steps, trouble.name, dist.get_rank())
    open_recordings(x)
    if x.bug == "reader_built_with_its_body_frozen_by_default":
        build(x)
    else:
        build(x, freeze_body=False)
    torch.manual_seed(100 * seed + x.rank)
    time_by_own_clock(run)
    run.watch(x.net, x.optimizer)
    x.data = run.watch_data()
    x.net.train()
    for step in range(steps):
        began = clock()
        said = update(x, step)
        if x.rank == 0 and step % x.c.say_every == 0:
            run.log(said, step=step)
        run.reduce(step, {"loss": said["eeg_ce"]}, step_ms=(clock() - began) * 1000)
        trouble.telemetry(run, step, healthy)
        if (step + 1) % x.c.ward_every == 0:
            found = on_the_ward(x)
            if x.rank == 0:
                run.log(found, step=step)
    return run


launch = partial(ranks.launch, work=train, number=WORLD)
