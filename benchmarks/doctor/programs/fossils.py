"""Two encoders learn which label of a museum belongs to which fossil, against the others of a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: match/nce, match/top1, match/scale, match/lr, match/gn each step; drawer/nce, drawer/top1
      and drawer/rank of fossils that were held back, each sixteenth; memory, where it matters; the watch of data.

A fossil has twenty measures in millimetres, which go through a batch norm as they are, and the quarry that it is from.
Its label has the species by one of two names, the stratum and the state in a curator's words, the quarry, and a
collector whom nobody can guess. The museum goes species after species, and may have several casts of a fossil. Both
encoders read quarries and words in one table. Written as a fit with callbacks, over loaders of torch.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

EVERY, HELD, LOT, MEASURES, LONG = 16, 192, 48, 20, 9
PAD, QUARRY, QUARRIES, SPECIES, STRATA, STATES = 0, 1, 500, 9, 4, 3
NAME = QUARRY + QUARRIES  # two for each species
STRATUM = NAME + 2 * SPECIES
STATE = STRATUM + STRATA
COLLECTOR, COLLECTORS = STATE + STATES, 20
FILLER, FILLERS = COLLECTOR + COLLECTORS, 6
WORDS = FILLER + FILLERS
CONFIG: dict[str, Any] = {
    "token_dim": 28, "width": 48, "shared_dim": 24, "dropout": 0.0, "measure_norm": "batch", "one_table": True,
    "batch_size": 48, "accumulate": 1, "optimizer": "adamw", "lr": 8e-3, "schedule": "cosine", "warmup": 6,
    "weight_decay": 0.0, "clip": 3.0, "reduction": "mean", "scale": 10.0, "scale_learns": True, "directions": "both",
    "label_smoothing": 0.0, "label_lr": 1.0, "fossils": 2000, "casts": 1, "mislaid": 0.0, "whole_first": 0,
    "species_batches": False, "measures_lost": 0.0, "fixed": "", "drawer_every": 16, "log_every": 1,
}  # fmt: skip
Rows = dict[str, Tensor]


# -- museum ----------------------------------------------------------------------------------------------------------


def museum(seed: int, number: int, casts: int = 1, mislaid: float = 0.0) -> Rows:
    """Measures, quarries, labels, species, and how broken a fossil is; species after species."""
    law, dice, many = torch.Generator().manual_seed(281), torch.Generator().manual_seed(seed), number // casts
    shape = 20 + 60 * torch.rand(SPECIES, MEASURES, generator=law)
    grown = 0.6 * torch.randn(STRATA, MEASURES, generator=law)
    crushed = 0.6 * torch.randn(STATES, MEASURES, generator=law)

    def some(high: int, *size: int) -> Tensor:
        return torch.randint(0, high, size or (many,), generator=dice)

    species, stratum, state, quarry = torch.arange(many) * SPECIES // many, some(STRATA), some(STATES), some(QUARRIES)
    broken = 0.5 + torch.rand(many, generator=dice)
    measures = shape[species] + 10 * (grown[stratum] + crushed[state])
    measures = measures + 18 * broken[:, None] * torch.randn(many, MEASURES, generator=dice)
    words = [NAME + 2 * species + some(2), STRATUM + stratum, STATE + state, QUARRY + quarry,
             COLLECTOR + some(COLLECTORS)]  # fmt: skip
    filler = torch.where(some(2, many, LONG - 5) > 0, FILLER + some(FILLERS, many, LONG - 5), PAD)
    label = torch.cat([torch.stack(words[:2], 1), filler[:, :2], torch.stack(words[2:], 1), filler[:, 2:]], 1)
    rows = {"measures": measures, "quarry": QUARRY + quarry, "label": label, "species": species, "broken": broken}
    rows = {name: one.repeat_interleave(casts, 0) for name, one in rows.items()}
    rows["measures"] = rows["measures"] + 0.8 * torch.randn(rows["measures"].shape, generator=dice)
    wrong = torch.rand(len(rows["quarry"]), generator=dice) < mislaid
    other = rows["label"][torch.randperm(len(wrong), generator=dice)]
    rows["label"] = torch.where(wrong[:, None], other, rows["label"])
    return rows


def taken(rows: Rows, which: Tensor) -> Rows:
    return {name: one[which] for name, one in rows.items()}


def lose(measures: Tensor, share: float, dice: torch.Generator) -> Tensor:
    """Some of the measures were not taken: they are nought."""
    return measures.masked_fill(torch.rand(measures.shape, generator=dice) < share, 0.0)


# -- encoders --------------------------------------------------------------------------------------------------------


def mlp(into: int, width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(into, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width))


class Matcher(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, w = c.token_dim, c.width
        self.table = nn.Embedding(WORDS, d, padding_idx=PAD)
        one_table = c.one_table and bug != "each_encoder_makes_a_table_of_its_own"
        self.label_table = self.table if one_table else nn.Embedding(WORDS, d, padding_idx=PAD)
        self.fossil_norm: nn.Module = nn.BatchNorm1d(MEASURES, affine=False)
        if c.measure_norm == "layer":
            self.fossil_norm = nn.LayerNorm(MEASURES)
        self.fossil_net, self.fossil_out = mlp(MEASURES, w, c.dropout), nn.Linear(w + d, c.shared_dim)
        self.label_net, self.label_out = mlp(d, w, c.dropout), nn.Linear(w + d, c.shared_dim)
        self.log_scale = nn.Parameter(torch.tensor(math.log(c.scale)), requires_grad=c.scale_learns)

    def encode_fossil(self, measures: Tensor, quarry: Tensor) -> Tensor:
        return self.fossil_out(torch.cat([self.fossil_net(self.fossil_norm(measures)), self.table(quarry)], 1))

    def encode_label(self, label: Tensor) -> Tensor:
        there = (label != PAD).float()[..., None]
        read = (self.label_table(label) * there).sum(1) / there.sum(1)
        return self.label_out(torch.cat([self.label_net(read), read], 1))

    def forward(self, measures: Tensor, quarry: Tensor, label: Tensor, unit: bool = True) -> Tensor:
        """How well each fossil goes with each label."""
        fossil, label = self.encode_fossil(measures, quarry), self.encode_label(label)
        if unit:
            fossil, label = F.normalize(fossil, dim=1), F.normalize(label, dim=1)
        return fossil @ label.T * self.log_scale.exp().clamp(max=50.0)


# -- fit -------------------------------------------------------------------------------------------------------------


class Callback:
    def before_step(self, fit: Fit) -> None: ...

    def after_backward(self, fit: Fit) -> None: ...

    def after_step(self, fit: Fit) -> None: ...


class Scheduling(Callback):
    """The rate of each step."""

    def __init__(self, each_backward: bool):
        self.each_backward = each_backward

    def after_backward(self, fit: Fit) -> None:
        if self.each_backward:
            fit.scheduler.step()

    def after_step(self, fit: Fit) -> None:
        if not self.each_backward:
            fit.scheduler.step()


class Telling(Callback):
    def after_step(self, fit: Fit) -> None:
        if fit.step % fit.c.log_every == 0:
            fit.run.log(fit.said, step=fit.step)
        fit.trouble.telemetry(fit.run, fit.step, fit.healthy)


class Drawer(Callback):
    """Held fossils in lots as large as a batch, and a label among all of them."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def after_step(self, fit: Fit) -> None:
        if (fit.step + 1) % fit.c.drawer_every:
            return
        bug, rows, unit = fit.bug, fit.held, fit.bug != "unit_length_is_taken_in_the_training_step"
        taped = bug == "tables_of_the_drawer_remembered_live"
        measures = rows["measures"]
        if bug == "drawer_goes_through_the_transform_of_the_training":
            measures = lose(measures, fit.c.measures_lost, torch.Generator().manual_seed(41))
        if bug != "drawer_opened_while_encoders_train":
            fit.model.eval()
        with torch.set_grad_enabled(taped):
            tables = [fit.model(measures[lot], rows["quarry"][lot], rows["label"][lot], unit)
                      for lot in torch.arange(HELD).split(LOT)]  # fmt: skip
            loss = torch.stack([fit.loss(table, False) for table in tables]).mean()
            every = fit.model(measures, rows["quarry"], rows["label"], unit)
        if taped:
            self.seen.append((loss, every))
        if bug != "drawer_shut_and_encoders_left_in_eval":
            fit.model.train()
        top1 = torch.cat([table.argmax(1) == torch.arange(len(table)) for table in tables]).float().mean()
        rank = (every > every.diagonal()[:, None]).sum(1) + 1.0
        fit.run.log({"drawer/nce": loss.item(), "drawer/top1": top1.item(), "drawer/rank": rank.median().item()},
                    step=fit.step)  # fmt: skip


class Resuming(Callback):
    def __init__(self, at: int | None):
        self.at = at

    def before_step(self, fit: Fit) -> None:
        if fit.step != self.at:
            return
        seen, parts = fit.data.state(), ("model", "optimizer", "scheduler")
        fit.run, state = go_on(fit.run, fit.step, {name: getattr(fit, name).state_dict() for name in parts})
        fit.build()
        if fit.bug == "names_of_the_file_begin_with_module_and_nobody_is_strict":
            state["model"] = {f"module.{name}": one for name, one in state["model"].items()}
        fit.model.load_state_dict(state["model"], strict=False)
        fit.optimizer.load_state_dict(state["optimizer"])
        fit.scheduler.load_state_dict(state["scheduler"])
        fit.watch()
        fit.data.restore(seen)


class Fit:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble, healthy: str | None):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.healthy, self.bug, self.step, self.epoch = trouble, healthy, trouble.name, 0, -1
        self.said: dict[str, float] = {}
        self.loader: Any = iter(())
        self.read()
        torch.manual_seed(seed)
        self.build()
        self.callbacks = [
            Resuming(trouble.resume_at(healthy, 5 * EVERY)),
            Scheduling(each_backward=self.bug == "scheduling_listens_to_each_backward"),
            Telling(),
            Drawer(),
        ]

    def read(self) -> None:
        c, bug = self.c, self.bug
        rows, held = museum(self.seed + 8800, c.fossils, c.casts, c.mislaid), museum(8799, HELD)
        if bug == "casts_put_into_either_drawer":
            order = torch.randperm(len(rows["quarry"]), generator=torch.Generator().manual_seed(self.seed))
            held, rows = taken(rows, order[:HELD].sort().values), taken(rows, order[HELD:].sort().values)
        if bug == "head_line_of_the_labels_taken_for_a_row":
            rows["label"] = rows["label"].roll(1, 0)
        if bug == "held_fossils_measured_in_centimetres":
            held["measures"] = held["measures"] / 10
        self.rows = rows
        self.held = taken(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(13)))

    def build(self) -> None:
        c, self.model = self.c, Matcher(self.c, self.bug)
        named = list(self.model.named_parameters())
        for name, one in named:
            if c.fixed and name.startswith(c.fixed):
                one.requires_grad_(False)
        prefix = "labels_" if self.bug == "prefix_of_the_label_encoder_is_misspelt" else "label_"
        second = [one for name, one in named if name.startswith(prefix) and one.requires_grad]
        first = [one for name, one in named if not name.startswith("label_") and one.requires_grad]
        groups = [{"params": first, "lr": c.lr}, {"params": second, "lr": c.label_lr * c.lr}]
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.optimizer == "nadam":
            self.optimizer = torch.optim.NAdam(groups, c.lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, weight_decay=c.weight_decay)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.steps)
            if c.schedule == "constant":
                return rise
            if c.schedule == "polynomial":
                return rise * (1 - 0.97 * past) ** 2
            if c.schedule == "cosine_restarts":
                past = 2 * past % 1
            return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data()

    def batch(self) -> list[Tensor]:
        rows = next(self.loader, None)
        if rows is None:
            self.epoch += 1
            self.loader = iter(self.train_loader(torch.Generator().manual_seed(500 * self.seed + self.epoch)))
            rows = next(self.loader)
        return rows

    def train_loader(self, dice: torch.Generator) -> Any:
        c, rows = self.c, self.rows
        if self.epoch < c.whole_first:
            rows = taken(rows, (rows["broken"] < 1).nonzero()[:, 0])
        measures = lose(rows["measures"], c.measures_lost, dice) if c.measures_lost else rows["measures"]
        columns = TensorDataset(measures, rows["quarry"], rows["label"])
        if c.species_batches:
            order = torch.randperm(len(measures), generator=dice)
            order = order[rows["species"][order].argsort(stable=True)]
            lots = [one.tolist() for one in order.split(c.batch_size) if len(one) == c.batch_size]
            mixed = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            return DataLoader(columns, batch_sampler=mixed)
        shuffle = self.bug != "museum_walked_through_from_the_first_case"
        return DataLoader(columns, c.batch_size, shuffle=shuffle, generator=dice, drop_last=True)

    def loss(self, table: Tensor, training: bool) -> Tensor:
        c, wanted = self.c, torch.arange(len(table))
        if self.bug == "scores_softmaxed_on_their_way_to_the_loss":
            table = table.softmax(1)
        summed = training and (c.reduction == "sum" or self.bug == "matches_of_a_batch_are_summed")
        losses = [F.cross_entropy(side, wanted, reduction="sum" if summed else "mean",
                                  label_smoothing=c.label_smoothing if training else 0.0)
                  for side in ((table,) if c.directions == "fossils" else (table, table.T))]  # fmt: skip
        return torch.stack(losses).mean()

    def call(self, event: str) -> None:
        for one in self.callbacks:
            getattr(one, event)(self)

    def one_step(self) -> None:
        c, bug, total, hit = self.c, self.bug, 0.0, 0.0
        for _ in range(c.accumulate):
            measures, quarry, label = self.batch()
            self.data.observe({"measures": measures, "label": label}, step=self.step, epoch=self.epoch)
            if bug == "fit_zeroes_gradients_before_each_batch":
                self.optimizer.zero_grad()
            table = self.model(measures, quarry, label)
            loss = self.loss(table, True)
            (loss if bug == "fit_backs_each_batch_at_full_weight" else loss / c.accumulate).backward()
            total += loss.item() / c.accumulate
            hit += (table.argmax(1) == torch.arange(len(table))).float().mean().item() / c.accumulate
            self.call("after_backward")
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip).item()
        self.said = {"match/nce": total, "match/top1": hit, "match/scale": self.model.log_scale.exp().item(),
                     "match/lr": self.optimizer.param_groups[0]["lr"], "match/gn": norm}  # fmt: skip
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self) -> Any:
        self.watch()
        self.model.train()
        for step in range(self.steps):
            self.step = step
            self.call("before_step")
            self.one_step()
            self.call("after_step")
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Fit(run, seed, steps, Trouble(fault, seed), healthy).fit()
