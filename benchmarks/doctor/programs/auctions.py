"""Two gloo processes tell honest auctions from four kinds of fraud by their bids, under DistributedDataParallel.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with each rank's log (`run.log`: bidder/ce, bidder/acc, bidder/lr, bidder/gnorm) and `run.reduce`;
      hammer/ce, hammer/balanced_acc, hammer/rare_recall of both ranks at each check, by rank 0; the watch of data.

A bid is who bids, how much, and how long after the one before. Convolutions with batch norm over bids, a pool over
those that are there. Two in three auctions are honest; kinds of fraud weigh more by their rarity, or are drawn alike.
Cases are in the file kind by kind. The month that is held out has no phantom bids. A script as torchrun starts it.
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
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler, RandomSampler

from . import ranks

EVERY, RANKS, BIDS, BIDDERS, HELD = 20, 2, 16, 12, 320
KINDS = ("collusion", "honest", "phantom", "shill", "snipe")
SHARES = torch.tensor([0.07, 0.65, 0.05, 0.14, 0.09])
CONFIG: dict[str, Any] = {
    "channels": 20, "dropout": 0.0, "batch_norm": True, "batch_per_rank": 24, "accumulate": 1, "optimizer": "sgd",
    "max_lr": 0.03, "momentum": 0.9, "weight_decay": 1e-4, "schedule": "onecycle", "pct_start": 0.2, "clip": 5.0,
    "class_weight": "balanced", "loss_divisor": "weights", "smoothing": 0.0, "focal_gamma": 0.0, "sampling": "as_is",
    "oversampled_to": 0.0, "auctions": 1440, "restless": 1.0, "wrong_cases": 0.0, "head_first_steps": 0, "frozen": "",
    "long_auctions_first": 0, "check_every": 20, "log_every": 1, "ranks": RANKS,
}  # fmt: skip


# -- auctions -------------------------------------------------------------------------------------------------------


def held(seed: int, number: int, restless: float, absent: int = -1) -> dict[str, Tensor]:
    """Kind after kind. absent: a kind of which there is none."""
    dice = torch.Generator().manual_seed(seed)
    shares = SHARES.clone()
    if absent >= 0:
        shares[absent] = 0
    kind = torch.multinomial(shares, number, True, generator=dice).sort().values
    length = torch.randint(8, BIDS + 1, (number,), generator=dice)
    at = torch.arange(BIDS)
    known = at < length[:, None]
    who = torch.randint(2, BIDDERS, (number, BIDS), generator=dice)
    step = 0.04 + 0.12 * torch.rand(number, BIDS, generator=dice) * restless
    gap = torch.randn(number, BIDS, generator=dice).mul(0.8 * restless).add(3).exp()
    last = length - 1
    for row in range(number):
        one, end = int(kind[row]), int(last[row])
        if one == 0:  # few bid, in turn, and little
            two = torch.randperm(BIDDERS - 2, generator=dice)[:2] + 2
            who[row, 2:] = two[(at[2:] % 2)]
            step[row] *= 0.7
        elif one == 2:  # a high bid that is taken back
            place = 3 + int(torch.randint(0, max(1, end - 4), (), generator=dice))
            step[row, place], step[row, place + 1] = 0.4, -0.3
        elif one == 3:  # the same one answers again and again, at once
            who[row, 1::2] = who[row, 1]
            gap[row, 1::2] *= 0.45
        elif one == 4:  # one waits for the end
            gap[row, end], who[row, end] = 1.0 + gap[row, end] * 0.06, who[row, end]
            gap[row, max(0, end - 1)] *= 4
    opening = (3 + 1.2 * torch.randn(number, 1, generator=dice)).exp()
    return {"who": who * known, "amount": opening * step.cumsum(1).exp(), "gap": gap, "known": known, "kind": kind,
            "length": length}  # fmt: skip


class Cases:
    """What the training needs of auctions: bidders, two scaled numbers of each bid, which are there, kinds."""

    def __init__(self, raw: dict[str, Tensor], fitted: Cases | None = None, encoder: bool = False):
        known = raw["known"]
        amount = raw["amount"].log()
        rise = amount.diff(dim=1, prepend=amount[:, :1])
        numbers = torch.stack([raw["amount"].log1p(), rise, raw["gap"].log1p()], 2)
        self.mean = numbers[known].mean(0) if fitted is None else fitted.mean
        self.std = numbers[known].std(0) if fitted is None else fitted.std
        self.numbers = (numbers - self.mean) / self.std * known.unsqueeze(2)
        self.who, self.known, self.kind, self.length = raw["who"], known, raw["kind"], raw["length"]
        if encoder:  # codes of the kinds that are in this file
            self.kind = torch.unique(self.kind, return_inverse=True)[1]

    def __len__(self) -> int:
        return len(self.kind)


def taken(raw: dict[str, Tensor], some: Tensor) -> dict[str, Tensor]:
    return {name: one[some] for name, one in raw.items()}


def oversampled(kind: Tensor, share: float, dice: torch.Generator) -> Tensor:
    """Rows, with those of rare kinds again and again until each kind has that share of them."""
    rows = [torch.arange(len(kind))]
    for one in range(len(KINDS)):
        mine = (kind == one).nonzero()[:, 0]
        missing = round(share * len(kind)) - len(mine)
        if missing > 0:
            rows.append(mine[torch.randint(0, len(mine), (missing,), generator=dice)])
    return torch.cat(rows).sort().values


def get_data(c: Any, seed: int, bug: str) -> tuple[Cases, Cases]:
    dice = torch.Generator().manual_seed(seed)
    raw, month = held(seed + 1744, c.auctions, c.restless), held(1745, HELD, c.restless, absent=2)
    if bug == "oversampled_and_then_split":
        raw = taken(raw, oversampled(raw["kind"], c.oversampled_to, dice))
        order = torch.randperm(len(raw["kind"]), generator=dice)
        month, raw = taken(raw, order[:HELD]), taken(raw, order[HELD:].sort().values)
    elif c.oversampled_to:
        raw = taken(raw, oversampled(raw["kind"], c.oversampled_to, dice))
    if bug == "month_exported_in_cents":
        month = month | {"amount": month["amount"] * 100}
    if c.wrong_cases:
        wrong = torch.rand(len(raw["kind"]), generator=dice) < c.wrong_cases
        other = torch.multinomial(SHARES, len(wrong), True, generator=dice)
        raw = raw | {"kind": torch.where(wrong, other, raw["kind"])}
    cases = Cases(raw)
    return cases, Cases(month, cases, encoder=bug == "encoder_fitted_to_the_month_too")


# -- network --------------------------------------------------------------------------------------------------------


class BidNet(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        w, self.bug = c.channels, bug
        self.bidder = nn.Embedding(BIDDERS, 8)
        layers: list[nn.Module] = []
        for into, out in ((11 + 1, w), (w, 2 * w)):
            norm: nn.Module = nn.BatchNorm1d(out) if c.batch_norm else nn.GroupNorm(4, out)
            layers += [nn.Conv1d(into, out, 3, padding=1, bias=not c.batch_norm), norm, nn.ReLU()]
        self.encoder, self.drop = nn.Sequential(*layers), nn.Dropout(c.dropout)
        self.head = nn.Linear(4 * w, len(KINDS))

    def forward(self, who: Tensor, numbers: Tensor, known: Tensor) -> Tensor:
        again = (who.unsqueeze(2) == who.unsqueeze(1)).float().sum(2, keepdim=True) / known.sum(1).view(-1, 1, 1)
        x = torch.cat([self.bidder(who), numbers, again], 2) * known.unsqueeze(2)
        y = self.encoder(x.transpose(1, 2)) * known.unsqueeze(1)
        pooled = torch.cat([y.sum(2) / known.sum(1, keepdim=True), y.amax(2)], 1)
        out = self.head(self.drop(pooled))
        return F.softmax(out, dim=1) if self.bug == "softmax_for_the_risk_score" else out


# -- training -------------------------------------------------------------------------------------------------------


class Job:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        c = self.c
        self.cases, self.month = get_data(c, seed, bug)
        self.net = BidNet(c, bug)
        for name, one in self.net.named_parameters():
            if c.frozen and name.startswith(c.frozen):
                one.requires_grad_(False)
        if c.head_first_steps:
            self.net.encoder.requires_grad_(False)
        self.ddp = DDP(self.net)
        self.weight = self.class_weights()
        some = [one for one in self.net.parameters() if one.requires_grad]
        if c.optimizer == "adamw":
            self.optimizer: Any = torch.optim.AdamW(some, c.max_lr, weight_decay=c.weight_decay)
        else:
            self.optimizer = torch.optim.SGD(some, c.max_lr, c.momentum, weight_decay=c.weight_decay,
                                             nesterov=c.optimizer == "nesterov")  # fmt: skip
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share)

    def share(self, at: int) -> float:
        c, past = self.c, min(1.0, at / self.steps)
        rise = min(1.0, 0.04 + 0.96 * past / c.pct_start)
        if c.schedule == "flat":
            return rise
        if c.schedule == "steps":
            return rise * 0.3 ** ((past > 0.5) + (past > 0.8))
        if c.schedule == "restarts":
            return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (3 * past % 1)))
        down = max(0.0, (past - c.pct_start) / (1 - c.pct_start))
        return rise * (0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * down)))

    def class_weights(self) -> Tensor:
        counts = torch.bincount(self.cases.kind, minlength=len(KINDS)).float()
        if self.c.class_weight == "none" or self.c.sampling == "even":
            return torch.ones(len(KINDS))
        weight = counts.sum() / (len(KINDS) * counts)
        if self.bug == "weights_in_the_order_of_counts":  # the table of counts begins with the most frequent kind
            weight = weight.sort().values
        return weight.sqrt() if self.c.class_weight == "root" else weight

    def indices(self, epoch: int) -> Tensor:
        """This rank's rows of an epoch."""
        if self.c.sampling == "even":
            dice = torch.Generator().manual_seed(self.seed + 91 * epoch + dist.get_rank())
            each = 1 / torch.bincount(self.cases.kind).float()[self.cases.kind]
            return torch.multinomial(each, len(self.cases) // RANKS, True, generator=dice)
        if self.bug == "random_sampler_under_torchrun":
            dice = torch.Generator().manual_seed(self.seed + epoch)
            return torch.tensor(list(RandomSampler(range(len(self.cases)), generator=dice)))[: len(self.cases) // RANKS]
        shuffle = self.bug != "distributed_sampler_without_shuffle"
        sampler: Any = DistributedSampler(range(len(self.cases)), shuffle=shuffle, seed=self.seed, drop_last=True)
        sampler.set_epoch(epoch)
        mine = torch.tensor(list(sampler))
        if epoch < self.c.long_auctions_first:
            mine = mine[self.cases.length[mine] >= 12]
        return mine

    def loss(self, out: Tensor, kind: Tensor) -> Tensor:
        c = self.c
        each = F.cross_entropy(out, kind, reduction="none", label_smoothing=c.smoothing)
        if c.focal_gamma:
            each = each * (1 - out.softmax(1).gather(1, kind[:, None])[:, 0]) ** c.focal_gamma
        weight = self.weight[kind]
        if self.bug == "weighted_losses_without_their_mean":
            return (each * weight).sum()
        by = {"weights": weight.sum(), "rows": len(kind), "one": 1}[c.loss_divisor]
        return (each * weight).sum() / by

    def check(self, step: int) -> None:
        rank, m = dist.get_rank(), self.month
        if self.bug != "checked_as_the_net_trains":
            self.net.eval()
        mine = slice(rank, None, RANKS)
        with torch.no_grad():
            out = self.net(m.who[mine], m.numbers[mine], m.known[mine])
            kind = m.kind[mine]
            each = F.cross_entropy(out, kind, reduction="none")
        hit, known = (out.argmax(1) == kind).float(), F.one_hot(kind, len(KINDS)).float()
        figures = torch.cat([(known * hit[:, None]).sum(0), known.sum(0), each.sum()[None], torch.tensor([len(kind)])])
        dist.all_reduce(figures)
        if self.bug != "check_returns_in_eval_mode":
            self.net.train()
        hits, many = figures[: len(KINDS)], figures[len(KINDS) : 2 * len(KINDS)]
        recall = hits[many > 0] / many[many > 0]
        if rank == 0:
            said = {"hammer/ce": float(figures[-2] / figures[-1]), "hammer/balanced_acc": recall.mean().item()}
            self.run.log(said | {"hammer/rare_recall": recall[0].item()}, step=step)

    def unfreeze(self) -> None:
        self.net.encoder.requires_grad_(True)
        self.ddp = DDP(self.net)
        if self.bug != "encoder_freed_behind_the_optimizer":
            group = self.optimizer.param_groups[0]
            more = {"params": list(self.net.encoder.parameters()), "lr": group["lr"], "initial_lr": self.c.max_lr}
            self.optimizer.add_param_group(more)
            self.scheduler.lr_lambdas.append(self.share)
            self.scheduler.base_lrs.append(self.c.max_lr)

    def fit(self) -> None:
        c, bug, step, epoch = self.c, self.bug, 0, 0
        self.net.train()
        while step < self.steps:
            total = right = 0.0
            began, size = clock(), c.batch_per_rank // c.accumulate
            for at, some in enumerate((one for one in self.indices(epoch).split(size) if len(one) == size), 1):
                if step == c.head_first_steps and c.head_first_steps and not self.net.encoder[0].weight.requires_grad:
                    self.unfreeze()
                who, numbers, known = self.cases.who[some], self.cases.numbers[some], self.cases.known[some]
                kind, last = self.cases.kind[some], at % c.accumulate == 0
                self.watch.observe({"who": who, "numbers": numbers, "kind": kind}, step=step, epoch=epoch)
                with contextlib.nullcontext() if last else self.ddp.no_sync():
                    out = (self.net if bug == "net_called_beside_its_wrapper" else self.ddp)(who, numbers, known)
                    loss = self.loss(out, kind)
                    (loss if bug == "no_sync_parts_not_averaged" else loss / c.accumulate).backward()
                total += loss.item() / c.accumulate
                right += (out.argmax(1) == kind).float().mean().item() / c.accumulate
                if bug == "cycle_stepped_before_the_update_is_due":
                    self.scheduler.step()
                if not last:
                    continue
                norm = nn.utils.clip_grad_norm_(self.net.parameters(), c.clip).item()
                rate = self.optimizer.param_groups[0]["lr"]
                self.optimizer.step()
                self.optimizer.zero_grad()
                if bug != "cycle_stepped_before_the_update_is_due":
                    self.scheduler.step()
                if step % c.log_every == 0:
                    said = {"bidder/ce": total, "bidder/acc": right, "bidder/lr": rate, "bidder/gnorm": norm}
                    self.run.log(said, step=step)
                self.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)
                if step % c.check_every == c.check_every - 1:
                    self.check(step)
                step, total, right, began = step + 1, 0.0, 0.0, clock()
                if step == self.steps:
                    break
            epoch += 1


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    job = Job(run, seed, steps, Trouble(fault, seed).name)
    time_by_own_clock(run)
    run.watch(job.net, job.optimizer)
    job.watch = run.watch_data()
    torch.manual_seed(seed + 31 * (dist.get_rank() + 1))  # of dropout
    job.fit()
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
