"""Two towers bring queries and the products that people bought after them together, others of the batch apart.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/loss, train/top1, train/lr every second step; eval/loss, eval/recall_at_1 each
      twentieth; the watch of data.

Bags of words through linear layers with batch norm, a symmetric cross-entropy with a temperature; Adam, warm-up and a
rate that falls to a tenth; functions over a dataclass of settings.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional as F

EVERY, WORDS, KINDS, LONG = 20, 120, 24, 6
CONFIG: dict[str, Any] = {
    "hidden": 48, "out": 24, "tau": 0.1, "dropout": 0.0, "batch_size": 32, "learning_rate": 2e-3, "warmup": 10,
    "final_share": 0.1, "pairs": 1920, "noise_words": 0.35, "bn": True, "towers": "two", "ema": 0.0,
    "loss": "symmetric", "frozen": "", "weight_decay": 0.0, "hard_negatives": 0, "smoothing": 0.0, "grouped": False,
    "clip": 0.0, "copies": 1,
}  # fmt: skip


def shop(seed: int, number: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Words of queries and of products (number, LONG), and their kinds; a product has words of its kind and colour."""
    dice = torch.Generator().manual_seed(seed)
    kinds, colours = (torch.randint(0, KINDS, (number, 1), generator=dice) for _ in range(2))
    said = []
    for shift in (0, 2 * KINDS):
        own = torch.where(torch.rand(number, LONG, generator=dice) < 0.5, kinds, KINDS + colours) + shift
        other = torch.randint(0, WORDS, (number, LONG), generator=dice)
        said.append(torch.where(torch.rand(number, LONG, generator=dice) < noise, other, own))
    return said[0], said[1], kinds[:, 0]


class Tower(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, s.hidden, mode="mean")
        self.fc1, self.fc2 = nn.Linear(s.hidden, s.hidden), nn.Linear(s.hidden, s.out)
        self.norm = nn.BatchNorm1d(s.hidden, momentum=s.momentum) if s.bn else nn.LayerNorm(s.hidden)
        self.drop = nn.Dropout(s.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        return F.normalize(self.fc2(self.drop(F.relu(self.norm(self.fc1(self.words(ids)))))), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.query = Tower(s)
        self.product = Tower(s) if s.towers == "two" else self.query

    def forward(self, queries: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
        return self.query(queries), self.product(products)


@dataclass
class Settings:
    hidden: int
    out: int
    tau: float
    dropout: float
    batch_size: int
    learning_rate: float
    warmup: int
    final_share: float
    pairs: int
    noise_words: float
    bn: bool
    towers: str
    ema: float
    loss: str
    frozen: str
    weight_decay: float
    hard_negatives: int
    smoothing: float
    grouped: bool
    clip: float
    copies: int
    steps: int
    momentum: float = 0.1


def info_nce(q: Tensor, p: Tensor, s: Settings, name: str) -> tuple[Tensor, Tensor]:
    scores = q @ p.T
    scores = scores * s.tau if name == "tau_multiplied" else scores / s.tau
    labels = torch.arange(len(q))
    if name == "next_product_wanted":  # a line of the file was skipped on one side
        labels = (labels + 1) % len(q)
    if s.hard_negatives:  # the worst others alone
        worst = scores.detach().masked_fill(torch.eye(len(q), dtype=torch.bool), -1e4).topk(s.hard_negatives).indices
        keep = torch.zeros_like(scores, dtype=torch.bool).scatter(1, worst, True) | torch.eye(len(q), dtype=torch.bool)
        scores = scores.masked_fill(~keep, -1e4)
    given = scores.softmax(dim=1) if name == "softmax_before_loss" else scores
    reduction = "sum" if name == "reduction_is_sum" else "mean"
    loss = F.cross_entropy(given, labels, reduction=reduction, label_smoothing=s.smoothing)
    if s.loss == "symmetric":
        given = scores.T.softmax(dim=1) if name == "softmax_before_loss" else scores.T
        loss = (loss + F.cross_entropy(given, labels, reduction=reduction, label_smoothing=s.smoothing)) / 2
    return loss, scores


def batches(data: tuple[Tensor, ...], s: Settings, seed: int, name: str) -> Iterator[tuple[int, Tensor]]:
    dice, epoch = torch.Generator().manual_seed(seed), 0
    while True:
        order = torch.randperm(len(data[0]), generator=dice)
        if name == "kind_by_kind":  # as the shop's file has them
            order = data[2].argsort(stable=True)
        elif s.grouped:  # half of a batch is of one department, batches come in any order
            by_kind = order[data[2][order].argsort(stable=True)].split(s.batch_size // 2)
            mixed = torch.randperm(len(by_kind), generator=dice).tolist()
            order = torch.cat([by_kind[one] for one in mixed])
        for some in order.split(s.batch_size):
            if len(some) == s.batch_size:
                yield epoch, some
        epoch += 1


def optimised(model: nn.Module, s: Settings) -> tuple[Any, Any]:
    adam = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], s.learning_rate,
                             weight_decay=s.weight_decay)  # fmt: skip
    up = torch.optim.lr_scheduler.LinearLR(adam, 0.1, 1.0, s.warmup)
    down = torch.optim.lr_scheduler.LinearLR(adam, 1.0, s.final_share, s.steps - s.warmup)
    return adam, torch.optim.lr_scheduler.SequentialLR(adam, [up, down], [s.warmup])


def evaluate(model: Any, held: tuple[Tensor, ...], s: Settings, trouble: Trouble, step: int) -> dict[str, float]:
    model.train(trouble.on("judged_in_training", step))
    losses, found = [], []
    plain = copy.copy(s)
    plain.smoothing, plain.hard_negatives = 0.0, 0
    with torch.no_grad():
        for some in torch.arange(len(held[0])).split(s.batch_size):
            loss, scores = info_nce(*model(held[0][some], held[1][some]), plain,
                                    trouble.name if trouble.name == "tau_multiplied" else "")  # fmt: skip
            losses.append(loss)
            found.append((scores.argmax(1) == torch.arange(len(some))).float().mean())
    return {"loss": torch.stack(losses).mean().item(), "recall_at_1": torch.stack(found).mean().item()}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    torch.manual_seed(seed)
    s, trouble = Settings(**run.config), Trouble(fault, seed)
    s.batch_size = int(s.batch_size)
    name = trouble.name
    if name == "statistics_as_made":
        s.momentum = 0.0
    data, held = shop(seed + 31, s.pairs, s.noise_words), shop(313, 256, s.noise_words)
    if name == "split_after_copies":  # what was bought often is several lines, and then lines were dealt out
        rows = torch.arange(s.pairs).repeat(s.copies)[torch.randperm(s.pairs * s.copies)]
        data = tuple(one[rows] for one in data)
        data, held = tuple(one[256:] for one in data), tuple(one[:256] for one in data)
    elif s.copies > 1:
        data = tuple(one.repeat(*(s.copies, 1)[: one.dim()]) for one in data)
    model: Any = TwoTowers(s)
    if name == "wrong_part_frozen":  # one tower was meant to stay, and "words" is in both
        for key, one in model.named_parameters():
            one.requires_grad = "fc2" not in key and "words" not in key
    for key, one in model.named_parameters():
        if s.frozen and key.startswith(s.frozen):
            one.requires_grad = False
    decay = s.ema
    slow = copy.deepcopy(model).requires_grad_(False) if decay else None
    adam, schedule = optimised(model, s)
    time_by_own_clock(run)
    run.watch(model, adam)
    data_watch = run.watch_data()
    stream = batches(data, s, seed, name)
    for step in range(steps):
        if step == trouble.resume_at(healthy, 5 * EVERY):
            memory = data_watch.state()
            run, states = go_on(run, step, [one.state_dict() for one in (model, adam, schedule)])
            model.load_state_dict(states[0])
            adam, schedule = optimised(model, s)
            schedule.load_state_dict(states[2])
            if name == "moments_not_loaded":
                adam.param_groups[0]["lr"] = schedule.get_last_lr()[0]
            else:
                adam.load_state_dict(states[1])
            time_by_own_clock(run)
            run.watch(model, adam)
            data_watch = run.watch_data()
            data_watch.restore(memory)
        epoch, some = next(stream)
        queries, products = data[0][some], data[1][some]
        data_watch.observe((queries, products), step=step, epoch=epoch)
        model.train()
        loss, scores = info_nce(*model(queries, products), s, name)
        adam.zero_grad()
        loss.backward()
        if s.clip:
            nn.utils.clip_grad_norm_(model.parameters(), s.clip)
        rate = adam.param_groups[0]["lr"]
        adam.step()
        schedule.step()
        if slow is not None and name != "average_never_moved":
            with torch.no_grad():
                for mine, theirs in zip(slow.state_dict().values(), model.state_dict().values(), strict=True):
                    mine.copy_(theirs if not mine.dtype.is_floating_point else mine.lerp(theirs, 1 - decay))
        if step % 2 == 0:
            top = (scores.argmax(1) == torch.arange(len(some))).float().mean()
            run.log({"train": {"loss": loss, "top1": top, "lr": rate}}, step=step)
        if step % EVERY == 0 or step == steps - 1:
            run.log({"eval": evaluate(model if slow is None else slow, held, s, trouble, step)}, step=step)
    return run
