"""Two gloo processes tell what kind of session a login begins, of which some are rare, with a small accelerator.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log; `run.log` of rank 0: fraud_xent, fraud_right, fraud_lr, fraud_gradnorm each step;
      audit_xent, audit_f1 and audit_rare_f1 each nineteenth; by `run.reduce` losses of both; memory, where it matters;
      the watch of data.

A session has twelve events with the seconds between them, and the account's kilometres from home, days, and devices;
several sessions may be of one account. The file has kind after kind. Seconds are scaled by figures of the training's
part; the account's figures go through a batch norm as they are. A recurrent layer reads the events. Kinds weigh by the
root of their rarity. Written over an accelerator that averages gradients, scales losses and gathers, as a library's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn

from . import ranks

EVERY, RANKS, EVENTS, KINDS_OF_EVENT, HELD = 19, 2, 12, 10, 480
KINDS = ("usual", "forgotten password", "shared account", "scripted", "stolen", "stuffing")
SHARES = torch.tensor([0.4, 0.3, 0.19, 0.045, 0.035, 0.03])
RARE = 3  # kinds from here on are rare
CONFIG: dict[str, Any] = {
    "event_dim": 16, "hidden_dim": 32, "dropout": 0.0, "account_norm": "batch", "per_rank_batch": 24,
    "gradient_accumulation": 1, "optimizer": "adamw", "lr": 4e-3, "scheduler": "linear", "warmup": 8,
    "weight_decay": 0.01, "max_grad_norm": 2.0, "kind_weights": "root", "focal_gamma": 0.0, "reduction": "mean",
    "label_smoothing": 0.0, "oversample": False, "sessions": 1800, "of_an_account": 1, "mistaken": 0.0,
    "clear_first": 0, "events_lost": 0.0, "frozen": "", "audit_every": 19, "log_every": 1, "ranks": RANKS,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- sessions --------------------------------------------------------------------------------------------------------


def sessions(seed: int, number: int, of_an_account: int = 1) -> Rows:
    """Events, seconds between them, figures of the account, kinds, and how unclear; kind after kind."""
    law, dice, many = torch.Generator().manual_seed(131), torch.Generator().manual_seed(seed), number // of_an_account
    kinds = len(KINDS)
    moves = (1.3 * torch.randn(kinds, KINDS_OF_EVENT, KINDS_OF_EVENT, generator=law)).softmax(2)
    pace = torch.tensor([2.2, 2.6, 2.4, 0.2, 1.6, -0.6])
    centre = torch.tensor([[2.0, 6.4, 0.7], [2.4, 6.0, 0.8], [4.6, 6.2, 1.6], [3.0, 3.4, 0.4], [6.6, 6.6, 1.0],
                           [5.4, 5.6, 2.0]])  # fmt: skip
    kind = torch.multinomial(SHARES, many, True, generator=dice).sort().values
    own, slow = torch.randn(many, 3, generator=dice), torch.randn(many, generator=dice)
    kind, own, slow = (one.repeat_interleave(of_an_account, 0) for one in (kind, own, slow))
    many = len(kind)
    unclear = 0.5 + torch.rand(many, generator=dice)
    account = (centre[kind] + unclear[:, None] * 0.8 * own).exp()  # kilometres, days, devices
    event = [torch.randint(0, KINDS_OF_EVENT, (many,), generator=dice)]
    for _ in range(EVENTS - 1):
        event.append(torch.multinomial(moves[kind, event[-1]], 1, generator=dice)[:, 0])
    gap = (pace[kind] + 0.4 * slow)[:, None] + 0.9 * unclear[:, None] * torch.randn(many, EVENTS, generator=dice)
    return {"event": torch.stack(event, 1), "gap": gap.exp(), "account": account, "kind": kind, "unclear": unclear}


def taken(rows: Rows, some: Tensor) -> Rows:
    return {name: one[some] for name, one in rows.items()}


def encoded(kind: Tensor, order: Tensor) -> Tensor:
    """Kinds by numbers in which they appear in an order of rows."""
    seen = list(dict.fromkeys(kind[order].tolist()))
    place = {one: at for at, one in enumerate([*seen, *(one for one in range(len(KINDS)) if one not in seen)])}
    return torch.tensor([place[one] for one in kind.tolist()])


def prepared(s: SimpleNamespace) -> None:
    """The training's sessions and those of the audit, scaled."""
    c, bug = s.c, s.bug
    rows, held = sessions(s.seed + 2200, c.sessions, c.of_an_account), sessions(2199, HELD)
    if bug == "sessions_of_an_account_in_both_files":
        order = torch.randperm(len(rows["kind"]), generator=torch.Generator().manual_seed(s.seed))
        held, rows = taken(rows, order[:HELD].sort().values), taken(rows, order[HELD:].sort().values)
    if c.mistaken:
        dice = torch.Generator().manual_seed(s.seed)
        wrong = torch.rand(len(rows["kind"]), generator=dice) < c.mistaken
        rows["kind"] = torch.where(wrong, torch.multinomial(SHARES, len(wrong), True, generator=dice), rows["kind"])
    if bug == "each_rank_numbers_kinds_as_it_meets_them":
        dice = torch.Generator().manual_seed(17 + dist.get_rank())
        rows["kind"] = encoded(rows["kind"], torch.randperm(len(rows["kind"]), generator=dice))
    mean, std = rows["gap"].mean(), rows["gap"].std()
    if bug == "gaps_of_the_audit_in_milliseconds":
        held["gap"] = held["gap"] * 1000
    held = taken(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(31)))
    for one in (rows, held):
        one["gap"] = (one["gap"] - mean) / std
    s.rows, s.held = rows, held


# -- net -------------------------------------------------------------------------------------------------------------


class Guard(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug = c.hidden_dim, bug
        self.events, self.gru = nn.Embedding(KINDS_OF_EVENT, c.event_dim), nn.GRU(c.event_dim + 1, d, batch_first=True)
        self.norm = nn.BatchNorm1d(3) if c.account_norm == "batch" else nn.LayerNorm(3)
        self.body = nn.Sequential(nn.Linear(d + 3, d), nn.ReLU(), nn.Dropout(c.dropout), nn.Linear(d, len(KINDS)))

    def forward(self, rows: Rows) -> Tensor:
        read = self.gru(torch.cat([self.events(rows["event"]), rows["gap"][..., None]], 2))[0].mean(1)
        account = rows["account"].log1p() if isinstance(self.norm, nn.LayerNorm) else rows["account"]
        logits = self.body(torch.cat([read, self.norm(account)], 1))
        return logits.softmax(1) if self.bug == "guard_ends_in_a_softmax" else logits


def criterion(c: Any, bug: str, counts: Tensor) -> Any:
    weight = (counts.mean() / counts).sqrt() if c.kind_weights == "root" else None

    def loss(logits: Tensor, kind: Tensor, training: bool) -> Tensor:
        weights = weight if training else None
        summed = training and (c.reduction == "sum" or bug == "criterion_reduces_by_a_sum")
        if c.focal_gamma and training:
            chance = logits.softmax(1).gather(1, kind[:, None])[:, 0]
            each = (1 - chance) ** c.focal_gamma * F.cross_entropy(logits, kind, weights, reduction="none")
            return each.sum() if summed else each.mean()
        return F.cross_entropy(logits, kind, weights, reduction="sum" if summed else "mean",
                               label_smoothing=c.label_smoothing if training else 0.0)  # fmt: skip

    return loss


# -- accelerator -----------------------------------------------------------------------------------------------------


class Accelerator:
    """What is done for all ranks: gradients are averaged behind the last part of an update, figures are gathered."""

    def __init__(self, net: nn.Module, parts: int, bug: str):
        self.net, self.parts, self.bug, self.part = net, parts, bug, 0

    @property
    def sync_gradients(self) -> bool:
        return self.part == 0

    def prepare(self) -> None:
        if self.bug != "weights_drawn_by_each_rank_for_itself":
            for one in [*self.net.parameters(), *self.net.buffers()]:
                dist.broadcast(one.data, 0)

    @contextmanager
    def accumulate(self) -> Iterator[None]:
        self.part = (self.part + 1) % self.parts
        yield

    def backward(self, loss: Tensor) -> None:
        (loss if self.bug == "backward_of_parts_without_their_share" else loss / self.parts).backward()
        if self.sync_gradients:
            for one in self.net.parameters():
                if one.grad is not None:
                    dist.all_reduce(one.grad)
                    one.grad /= RANKS

    def gather(self, one: Tensor) -> Tensor:
        """Rows of rank 0, and those of rank 1 behind them."""
        made = [torch.empty_like(one) for _ in range(RANKS)]
        dist.all_gather(made, one.contiguous())
        return torch.cat(made)


# -- training --------------------------------------------------------------------------------------------------------


def batches(s: SimpleNamespace) -> Iterator[tuple[int, Rows]]:
    c, epoch, rank, kind = s.c, 0, dist.get_rank(), s.rows["kind"]
    own = torch.Generator().manual_seed(1000 * s.seed + rank)
    while True:
        dice = torch.Generator().manual_seed(s.seed + 97 * epoch)  # the same on each rank: one order, dealt out
        order = torch.randperm(len(kind), generator=dice)
        if c.oversample:
            rarity = (1 / kind.bincount(minlength=len(KINDS)).clamp(min=1)).sqrt()
            order = torch.multinomial(rarity[kind], len(kind), True, generator=dice)
        if s.bug == "prepared_loader_has_lost_its_shuffle":
            order = torch.arange(len(kind))
        if epoch < c.clear_first:
            order = order[s.rows["unclear"][order] < 1.0]
        if s.bug != "one_seed_for_all_and_rows_not_dealt":
            order = order[rank::RANKS]
        for some in order.split(c.per_rank_batch):
            if len(some) == c.per_rank_batch:
                rows = taken(s.rows, some)
                if c.events_lost:
                    lost = torch.rand(rows["event"].shape, generator=own) < c.events_lost
                    rows["event"] = torch.where(lost, 0, rows["event"])
                yield epoch, rows
        epoch += 1


def equipped(s: SimpleNamespace) -> None:
    c, some = s.c, [one for one in s.net.parameters() if one.requires_grad]
    if c.optimizer == "sgd":
        s.optimizer = torch.optim.SGD(some, c.lr, 0.9, weight_decay=c.weight_decay)
    elif c.optimizer == "nadam":
        s.optimizer = torch.optim.NAdam(some, c.lr, weight_decay=c.weight_decay)
    else:
        s.optimizer = torch.optim.AdamW(some, c.lr, weight_decay=c.weight_decay)

    def by(at: int) -> float:
        rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / s.steps)
        if c.scheduler == "constant":
            return rise
        if c.scheduler == "cosine_with_restarts":
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
        return rise * (1 - 0.97 * past)

    s.schedule = torch.optim.lr_scheduler.LambdaLR(s.optimizer, by)


def in_training(s: SimpleNamespace) -> None:
    s.net.train()
    if s.bug == "norm_kept_in_eval_as_in_a_detector":
        s.net.norm.eval()


def updated(s: SimpleNamespace, step: int) -> tuple[dict[str, float], float]:
    c, bug, total, right = s.c, s.bug, 0.0, 0.0
    for _ in range(c.gradient_accumulation):
        epoch, rows = next(s.batches)
        s.watch.observe({"event": rows["event"], "kind": rows["kind"]}, step=step, epoch=epoch)
        with s.accelerator.accumulate():
            logits = s.net(rows)
            loss = s.loss(logits, rows["kind"], True)
            s.accelerator.backward(loss)
            if bug == "schedule_steps_within_accumulate":
                s.schedule.step()
        total += loss.item() / c.gradient_accumulation
        right += (logits.argmax(1) == rows["kind"]).float().mean().item() / c.gradient_accumulation
    norm = nn.utils.clip_grad_norm_(s.net.parameters(), c.max_grad_norm).item()
    rate = s.optimizer.param_groups[0]["lr"]
    s.optimizer.step()
    s.optimizer.zero_grad()
    if bug != "schedule_steps_within_accumulate":
        s.schedule.step()
    return {"fraud_xent": total, "fraud_right": right, "fraud_lr": rate, "fraud_gradnorm": norm}, total


def audited(s: SimpleNamespace) -> dict[str, float]:
    """Each rank looks at every second session; what they say is gathered."""
    rank, bug, many = dist.get_rank(), s.bug, len(KINDS)
    rows, taped = taken(s.held, torch.arange(rank, HELD, RANKS)), s.bug == "gathered_outputs_hold_their_graph"
    if bug != "audited_with_dropout_and_batch_figures":
        s.net.eval()
    with torch.set_grad_enabled(taped):
        logits = s.net(rows)
        loss = s.loss(logits, rows["kind"], False)
    if taped:
        s.outputs.append((loss, logits))
    if bug != "audit_is_over_and_train_is_not_called":
        in_training(s)
    told, kind = s.accelerator.gather(logits.detach().argmax(1)), s.accelerator.gather(rows["kind"])
    total = s.accelerator.gather(loss.detach()[None]).mean()
    if bug == "gathered_answers_against_the_file_s_order":
        kind = s.held["kind"]
    there, said, hits = (torch.bincount(one, minlength=many).float() for one in (kind, told, told[told == kind]))
    f1 = 2 * hits / (there + said).clamp(min=1)
    return {"audit_xent": total.item(), "audit_f1": f1.mean().item(), "audit_rare_f1": f1[RARE:].mean().item()}


def main(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    trouble, c = Trouble(fault, seed), SimpleNamespace(**run.config)
    s = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=trouble.name, outputs=[])
    prepared(s)
    torch.manual_seed(10 * seed + dist.get_rank())
    s.net = Guard(c, s.bug)
    frozen = "events,gru" if s.bug == "reader_of_events_frozen_as_if_pretrained" else c.frozen
    for name in filter(None, frozen.split(",")):
        s.net.get_submodule(name).requires_grad_(False)
    s.accelerator = Accelerator(s.net, c.gradient_accumulation, s.bug)
    s.accelerator.prepare()
    s.loss = criterion(c, s.bug, s.rows["kind"].bincount(minlength=len(KINDS)).float().clamp(min=1))
    equipped(s)
    time_by_own_clock(run)
    run.watch(s.net, s.optimizer)
    s.watch, s.batches = run.watch_data(), batches(s)
    in_training(s)
    for step in range(steps):
        began = clock()
        said, total = updated(s, step)
        if dist.get_rank() == 0 and step % c.log_every == 0:
            run.log(said, step=step)
        run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
        trouble.telemetry(run, step, healthy)
        if step % c.audit_every == c.audit_every - 1:
            said = audited(s)
            if dist.get_rank() == 0:
                run.log(said, step=step)
    return run


train = main
launch = partial(ranks.launch, work=main, number=RANKS)
