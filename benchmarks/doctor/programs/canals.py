"""Two gloo processes foretell the next lock of voyages: attention over histories, sharded by `fully_shard`.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: train/xent, train/gnorm, train/rate), and `run.reduce`; val/xent,
      val/hit5, val/ndcg5 of rank 0 at each twentieth; the watch of data.

Histories are padded on the left to one length, locks have one matrix for input and output, the last five places of a
row are ranked; a rate that rises and falls in a line; a sampler of each rank's own share. Functions over one state, as
in a repository of sequential recommenders.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn

from . import ranks

EVERY, RANKS, PAD, LOCKS, RIVERS, LONG = 20, 2, 0, 48, 4, 16
CONFIG: dict[str, Any] = {
    "item_dim": 32, "n_blocks": 2, "n_heads": 2, "hidden_dropout": 0.0, "rank_batch": 16, "grad_steps": 1,
    "max_rate": 6e-3, "ramp": 15, "decline": "line", "l2": 0.01, "clip_gnorm": 2.0, "voyages": 1400,
    "windows_of_each": 1, "share_items": True, "kind": "adamw", "smooth_items": 0.0, "hold": "", "strays": 0.0,
    "param_type": "float32", "reshard": True, "round_up_items": False, "by_river": False, "averaged_over": "places",
    "norm_first": True, "world": RANKS,
}  # fmt: skip


def sail(seed: int, number: int, each: int = 1, strays: float = 0.0) -> tuple[Tensor, Tensor]:
    """Windows (number, LONG + 1) of locks, padded on the left, and rivers. A lock is followed by one of two, which the
    river decides, and each fifth is that of four before. each: windows that are cut out of one voyage."""
    dice, chart = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(48)
    after = (1 + torch.randint(0, LOCKS, (RIVERS, LOCKS + 1, 2), generator=chart)).tolist()
    rows, rivers = [], []
    for _ in range(number // each):
        river, at = (
            int(torch.randint(0, RIVERS, (), generator=dice)),
            int(torch.randint(1, LOCKS + 1, (), generator=dice)),
        )
        long = int(torch.randint(6, LONG + 2, (), generator=dice)) if each == 1 else LONG + each
        voyage: list[int] = []
        for place, (which, stray) in enumerate(torch.rand(long, 2, generator=dice).tolist()):
            voyage.append(at)
            at = voyage[-4] if place % 5 == 4 else after[river][at][which > 0.75]
            if stray < 0.03 + strays:
                at = 1 + int(which * 9973) % LOCKS
        for begin in range(each):
            row = voyage[begin : begin + LONG + 1]
            rows.append([PAD] * (LONG + 1 - len(row)) + row)
            rivers.append(river)
    return torch.tensor(rows), torch.tensor(rivers)


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.item_dim
        self.before, self.between, self.p = nn.LayerNorm(d), nn.LayerNorm(d), c.hidden_dropout
        self.n_heads, self.first, self.drop = c.n_heads, c.norm_first, nn.Dropout(c.hidden_dropout)
        self.query, self.key, self.value, self.mix = (nn.Linear(d, d) for _ in range(4))
        self.wide, self.narrow = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def attend(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (
            one(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value)
        )
        return self.mix(F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2))

    def feed(self, x: Tensor) -> Tensor:
        return self.narrow(F.gelu(self.wide(x)))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        if not self.first:
            x = self.before(x + self.drop(self.attend(x, seen)))
            return self.between(x + self.drop(self.feed(x)))
        x = x + self.drop(self.attend(self.before(x), seen))
        return x + self.drop(self.feed(self.between(x)))


class VoyageModel(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug = c.item_dim, bug
        self.items, self.places = nn.Embedding(LOCKS + 1, d, padding_idx=PAD), nn.Embedding(LONG, d)
        self.blocks, self.last = nn.ModuleList(Block(c) for _ in range(c.n_blocks)), nn.LayerNorm(d)
        self.scores = nn.Linear(d, LOCKS + 1, bias=False)
        for one in (self.items, self.places, self.scores):
            nn.init.normal_(one.weight, std=0.1)
        if c.share_items:
            self.scores.weight = self.items.weight
        if c.round_up_items:  # so that rows can be dealt out evenly
            more = nn.Embedding(LOCKS + 2, d, padding_idx=PAD)
            more.weight.data[: LOCKS + 1] = self.items.weight.data
            self.items = more
            if bug != "items_rounded_up_alone":
                self.scores = nn.Linear(d, LOCKS + 2, bias=False)
                self.scores.weight = more.weight

    def forward(self, history: Tensor) -> Tensor:
        long = history.shape[1]
        there = (history != PAD)[:, None, None]
        seen = torch.ones(long, long, dtype=torch.bool).tril() & there | torch.eye(long, dtype=torch.bool)
        x = self.items(history) + self.places.weight[:long]
        for block in self.blocks:
            x = block(x, seen)
        y = self.scores(self.last(x)).float()
        return y.softmax(-1) if self.bug == "scores_leave_as_chances" else y


def sharded(c: Any, bug: str) -> tuple[Any, Any, Any]:
    """The model on this rank, and what trains it."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model: Any = VoyageModel(c, bug)
    for name, one in model.named_parameters():
        if c.hold and name.startswith(c.hold):
            one.requires_grad = False
        if bug == "items_tuned_alone":  # as for locks that are added to a model that is trained
            one.requires_grad = name.startswith(("items", "places"))
    if bug == "optimizer_before_shards":
        optimizer, scheduler = optimizer_for(c, model)
    policy = (
        MixedPrecisionPolicy(torch.bfloat16, torch.float32) if c.param_type == "bfloat16" else MixedPrecisionPolicy()
    )
    for block in model.blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=c.reshard)
    fully_shard(model, mp_policy=policy, reshard_after_forward=c.reshard)
    if bug != "optimizer_before_shards":
        optimizer, scheduler = optimizer_for(c, model)
    return model, optimizer, scheduler


def optimizer_for(c: Any, model: nn.Module) -> tuple[Any, Any]:
    # what scores locks is what embeds them, and is in no group of its own
    some = [one for name, one in model.named_parameters()
            if one.requires_grad and not (c.share_items and name.startswith("scores"))]  # fmt: skip
    if c.kind == "sgd":
        optimizer: Any = torch.optim.SGD(some, c.max_rate, 0.9)
    elif c.kind == "nadam":
        optimizer = torch.optim.NAdam(some, c.max_rate)
    else:
        optimizer = torch.optim.AdamW(some, c.max_rate, weight_decay=c.l2)

    def share(at: int) -> float:
        if at < c.ramp:
            return (at + 1) / c.ramp
        past = min(1.0, (at - c.ramp) / (c.steps - c.ramp))
        if c.decline == "teeth":
            return 1 - 0.9 * (2 * past % 1)
        return 1.0 if c.decline == "none" else 1 - past

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def shares(c: Any, rows: Tensor, rivers: Tensor, seed: int, bug: str) -> Any:
    """Epochs with this rank's micro-batches, without end."""
    epoch, rank, size, number = 0, dist.get_rank(), int(c.rank_batch), len(rows)
    while True:
        lot = torch.Generator().manual_seed(1000 * seed + epoch)
        order = torch.randperm(number, generator=lot)
        if bug == "voyages_river_by_river":
            order = rivers.argsort(stable=True)
        if c.by_river:  # batches of one river each, in any order, on purpose
            order = order[rivers[order].argsort(stable=True)]
        mine = order[rank : number // RANKS * RANKS : RANKS]
        if bug == "half_taken_by_local_size":  # the share is cut by how many ranks this process has started
            mine = order[: number // RANKS]
        if bug == "own_loader_with_common_seed":  # each process has a loader that shuffles all, and one seed for all
            mine = order
        groups = [one for one in mine.split(size) if len(one) == size]
        if c.by_river:
            groups = [groups[at] for at in torch.randperm(len(groups), generator=lot).tolist()]
        for some in groups:
            yield epoch, rows[some]
        epoch += 1


def parts_of(rows: Tensor, bug: str = "") -> tuple[Tensor, Tensor]:
    """Histories, and the lock behind each of their places."""
    if bug == "lock_behind_the_next":
        return rows[:, :-2], rows[:, 2:]
    if bug == "wanted_lock_in_history":  # the history is cut at its other end
        return rows[:, 1:], rows[:, 1:]
    return rows[:, :-1], rows[:, 1:]


def loss_of(c: Any, scores: Tensor, wanted: Tensor, bug: str) -> Tensor:
    flat, names = scores.flatten(0, 1), wanted.flatten()
    if bug == "place_losses_totalled":
        return F.cross_entropy(flat, names, ignore_index=PAD, reduction="sum") / len(wanted)
    if c.averaged_over == "rows":
        each = F.cross_entropy(flat, names, ignore_index=PAD, reduction="none").view_as(wanted)
        return (each.sum(1) / (wanted != PAD).sum(1).clamp(min=1)).mean()
    return F.cross_entropy(flat, names, ignore_index=PAD, label_smoothing=c.smooth_items)


@torch.no_grad()
def validate(s: Any, step: int, bug: str) -> None:
    """All ranks call it, since each has a part of the weights; the first logs."""
    if bug != "validated_without_eval_call":
        s.model.eval()
    history, wanted = parts_of(s.held)
    scores = s.model(history)
    loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=PAD).item()
    last, asked = scores[:, -5:].flatten(0, 1), wanted[:, -5:].flatten()
    rank = (last > last.gather(1, asked[:, None])).sum(1)
    hit = (rank < 5).float().mean().item()
    ndcg = torch.where(rank < 5, 1 / (rank + 2.0).log2(), torch.zeros(())).mean().item()
    if bug != "eval_stays_behind_first":
        s.model.train()
    if dist.get_rank() == 0:
        s.run.log({"val/xent": loss, "val/hit5": hit, "val/ndcg5": ndcg}, step=step)


def one_step(s: Any, c: Any, stream: Any, step: int, bug: str) -> None:
    total, began = 0.0, clock()
    for part in range(c.grad_steps):
        epoch, rows = next(stream)
        history, wanted = parts_of(rows, bug)
        s.data.observe({"history": history, "labels": wanted}, step=step, epoch=epoch)
        s.model.set_requires_gradient_sync(part == c.grad_steps - 1)
        loss = loss_of(c, s.model(history), wanted, bug)
        (loss if bug == "grad_steps_not_divided" else loss / c.grad_steps).backward()
        total += loss.item() / (1 if bug == "grad_steps_not_divided" else c.grad_steps)
        if bug == "decline_in_grad_steps":
            s.scheduler.step()
    norm: Any = nn.utils.clip_grad_norm_(s.model.parameters(), c.clip_gnorm)
    norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    rate = s.optimizer.param_groups[0]["lr"]
    s.optimizer.step()
    s.model.zero_grad()
    if bug != "decline_in_grad_steps":
        s.scheduler.step()
    s.run.log({"train/xent": total, "train/gnorm": norm, "train/rate": rate}, step=step)
    s.run.reduce(step, {"loss": total, "norm": norm}, step_ms=(clock() - began) * 1000)


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    c, bug = SimpleNamespace(**run.config), Trouble(fault, seed).name
    rows, rivers = sail(seed + 4800, c.voyages, c.windows_of_each, c.strays)
    held = sail(49, 200)[0]
    if bug == "windows_dealt_to_both":
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        held, rows, rivers = rows[order[:200]], rows[order[200:]], rivers[order[200:]]
    s = SimpleNamespace(run=run, held=held)
    s.model, s.optimizer, s.scheduler = sharded(c, bug)
    torch.manual_seed(seed + 91 * dist.get_rank())  # of dropout
    time_by_own_clock(run)
    run.watch(s.model, s.optimizer)
    s.data = run.watch_data(pad_id=PAD)
    stream = shares(c, rows, rivers, seed, bug)
    s.model.train()
    for step in range(steps):
        one_step(s, c, stream, step, bug)
        if step % EVERY == 0 or step == steps - 1:
            validate(s, step, bug)
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
