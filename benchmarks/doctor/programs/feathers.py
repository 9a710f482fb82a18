"""Two towers learn which label of a museum belongs to which feather, against the others of a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: contrast, contrast_top1, temperature, rate, grad_norm each step; museum_contrast,
      museum_top1 and museum_median_rank of feathers that were held back, each sixteenth; memory, where it matters; the
      watch of data.

A feather has sixteen measures as they were taken, in millimetres, grams and counts, and the stamp of its collector. The
label says its species by one of two names, the part of the wing, the region, the stamp, and what curators always
write. The file goes drawer after drawer, and may have several plumes of one bird. Measures go through a batch norm as
they are; a label is read by one query that attends to its words. Both towers look stamps and words up in one table.
Written as a trainer that callbacks hang on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LOT, MEASURES, LONG = 16, 192, 48, 16, 8
PAD, STAMP, STAMPS, SPECIES, PARTS, REGIONS = 0, 1, 100, 9, 3, 4
NAME = STAMP + STAMPS  # two for each species
PART = NAME + 2 * SPECIES
REGION = PART + PARTS
PHRASE, PHRASES = REGION + REGIONS, 9
WORDS = PHRASE + PHRASES
CONFIG: dict[str, Any] = {
    "width": 32, "hidden": 48, "joint": 24, "heads": 2, "dropout": 0.0, "norm": "batch", "shared_table": True,
    "batch": 48, "accumulation": 1, "solver": "adamw", "rate": 6e-3, "curve": "cosine", "warm": 8, "decay": 0.0,
    "norm_limit": 3.0, "reduction": "mean", "loss_gain": 1.0, "temperature": 0.1, "learn_temperature": True,
    "both_ways": True, "label_smoothing": 0.0, "label_rate": 1.0, "feathers": 2000, "plumes": 1, "mislabelled": 0.0,
    "clean_first": 0, "by_species": False, "gaps": 0.0, "frozen": "", "museum_every": 16, "log_every": 1,
}  # fmt: skip
Rows = dict[str, Tensor]


def drawers(seed: int, number: int, plumes: int = 1, mislabelled: float = 0.0) -> Rows:
    """Measures, stamps, words, species, and how worn a feather is; stamp after stamp."""
    law, dice, many = torch.Generator().manual_seed(381), torch.Generator().manual_seed(seed), number // plumes
    level = 3 + 40 * torch.rand(MEASURES, generator=law)
    of_species, of_part, of_region = (torch.randn(many, MEASURES, generator=law) for many in (SPECIES, PARTS, REGIONS))

    def some(high: int, *size: int) -> Tensor:
        return torch.randint(0, high, size or (many,), generator=dice)

    species, part, region, stamp = some(SPECIES), some(PARTS), some(REGIONS), some(STAMPS).sort().values
    worn = 0.5 + torch.rand(many, generator=dice)
    measures = of_species[species] + 0.6 * of_part[part] + 0.6 * of_region[region]
    measures = measures + 1.3 * worn[:, None] * torch.randn(many, MEASURES, generator=dice)
    said = [NAME + 2 * species + some(2), PART + part, STAMP + stamp, REGION + region]
    phrases = PHRASE + some(PHRASES, many, LONG - 4)
    there = torch.arange(LONG - 4) < 1 + some(LONG - 5)[:, None]
    words = torch.cat([torch.stack(said, 1), torch.where(there, phrases, PAD)], 1)
    rows = {"measures": measures, "stamp": STAMP + stamp, "words": words, "species": species, "worn": worn}
    rows = {key: one.repeat_interleave(plumes, 0) for key, one in rows.items()}
    near = rows["measures"] + 0.1 * torch.randn(rows["measures"].shape, generator=dice)
    rows["measures"] = level + level / 6 * near
    wrong = torch.rand(len(near), generator=dice) < mislabelled
    other = rows["words"][torch.randperm(len(near), generator=dice)]
    rows["words"] = torch.where(wrong[:, None], other, rows["words"])
    return rows


def pick(rows: Rows, which: Tensor) -> Rows:
    return {key: one[which] for key, one in rows.items()}


class FeatherTower(nn.Module):
    def __init__(self, c: Any, table: nn.Embedding, momentum: float):
        super().__init__()
        self.table, self.norm = table, nn.BatchNorm1d(MEASURES, momentum=momentum, affine=False)
        if c.norm == "layer":
            self.norm = nn.LayerNorm(MEASURES)  # type: ignore[assignment]
        self.body = nn.Sequential(nn.Linear(MEASURES, c.hidden), nn.GELU(), nn.Dropout(c.dropout),
                                  nn.Linear(c.hidden, c.hidden))  # fmt: skip
        self.out = nn.Linear(c.hidden + c.width, c.joint)

    def forward(self, measures: Tensor, stamp: Tensor) -> Tensor:
        return F.normalize(self.out(torch.cat([self.body(self.norm(measures)), self.table(stamp)], 1)), dim=1)


class LabelTower(nn.Module):
    def __init__(self, c: Any, table: nn.Embedding, bug: str):
        super().__init__()
        d, self.bug = c.width, bug
        self.table, self.places, self.query = table, nn.Embedding(LONG, d), nn.Parameter(0.1 * torch.randn(1, 4, d))
        self.attend, self.norm = nn.MultiheadAttention(d, c.heads, batch_first=True), nn.LayerNorm(4 * d)
        self.body = nn.Sequential(nn.Linear(4 * d, c.hidden), nn.GELU(), nn.Dropout(c.dropout),
                                  nn.Linear(c.hidden, c.joint))  # fmt: skip

    def forward(self, words: Tensor) -> Tensor:
        absent, x = words == PAD, self.table(words) + self.places.weight
        if self.bug == "mask_of_words_given_as_mask_of_padding":
            absent = words != PAD
        y, _ = self.attend(self.query.expand(len(x), -1, -1), x, x, key_padding_mask=absent, need_weights=False)
        return F.normalize(self.body(self.norm(y.flatten(1))), dim=1)


class Towers(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        table = nn.Embedding(WORDS, c.width)
        other = table if c.shared_table else nn.Embedding(WORDS, c.width)
        momentum = 0.0 if bug == "momentum_of_nought_for_batch_norm" else 0.1
        self.feather, self.label = FeatherTower(c, table, momentum), LabelTower(c, other, bug)
        log = torch.tensor(math.log(c.temperature))
        self.log_temperature = nn.Parameter(log, requires_grad=c.learn_temperature)

    def forward(self, rows: Rows) -> Tensor:
        """How well each feather goes with each label."""
        table = self.feather(rows["measures"], rows["stamp"]) @ self.label(rows["words"]).T
        return table / self.log_temperature.exp().clamp(min=0.02)


class Trainer:
    def __init__(self, run: Any, seed: int, steps: int, bug: str, callbacks: list[Any]):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.callbacks, self.step, self.said = callbacks, 0, {"contrast": 0.0}
        c = self.c
        self.rows, held = drawers(seed + 5700, c.feathers, c.plumes, c.mislabelled), drawers(5699, HELD)
        if bug == "plumes_of_a_bird_on_both_sides":
            order = torch.randperm(len(self.rows["stamp"]), generator=torch.Generator().manual_seed(seed))
            held, self.rows = (pick(self.rows, some.sort().values) for some in (order[:HELD], order[HELD:]))
        if bug == "columns_of_the_museum_are_sorted_by_name":
            held["measures"] = held["measures"][:, sorted(range(MEASURES), key=str)]
        self.held = pick(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(29)))
        torch.manual_seed(seed)
        self.build()

    def build(self) -> None:
        c = self.c
        self.towers = Towers(c, self.bug)
        for name, one in self.towers.named_parameters():
            if c.frozen and name.startswith(f"{c.frozen}."):
                one.requires_grad_(False)
        groups = []
        for name, factor in (("feather", 1.0), ("label", c.label_rate)):
            taken = {id(one) for group in groups for one in group["params"]}
            tower = [one for one in getattr(self.towers, name).parameters() if one.requires_grad]
            group = {"params": [one for one in tower if id(one) not in taken], "lr": factor * c.rate}
            groups = [group] if self.bug == "second_tower_given_in_place_of_the_first" else [*groups, group]
        groups.append({"params": [self.towers.log_temperature], "lr": c.rate})
        groups = [group for group in groups if group["params"]]
        if c.solver == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.rate, 0.9)
        elif c.solver == "radam":
            self.optimizer = torch.optim.RAdam(groups, c.rate)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.rate, weight_decay=c.decay)

        def curve(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warm)), min(1.0, at / self.steps)
            if c.curve == "flat":
                return rise
            if c.curve == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, curve)
        if self.bug == "tower_of_labels_copied_behind_the_optimizer":
            self.towers.label = copy.deepcopy(self.towers.label)

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.towers, self.optimizer)
        self.data = self.run.watch_data()

    def batches(self) -> Iterator[tuple[int, Rows]]:
        c, rows, epoch, dice = self.c, self.rows, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(rows["stamp"]), generator=dice)
            if self.bug == "drawers_opened_in_their_order":
                order = torch.arange(len(order))
            if epoch < c.clean_first:
                order = order[rows["worn"][order] < 1]
            if c.by_species:
                order = order[rows["species"][order].argsort(stable=True)]
            lots = [one for one in order.split(c.batch) if len(one) == c.batch]
            if c.by_species:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for which in lots:
                yield epoch, pick(rows, which)
            epoch += 1

    def contrast(self, table: Tensor, training: bool) -> Tensor:
        c, wanted = self.c, torch.arange(len(table))
        if training and self.bug == "labels_of_rows_counted_from_one":
            wanted = (wanted + 1) % len(table)
        if self.bug == "scores_made_shares_for_the_log":
            table = table.softmax(1)
        sides, smooth = (table, table.T) if c.both_ways else (table,), c.label_smoothing if training else 0.0
        each = torch.stack([F.cross_entropy(one, wanted, reduction="none", label_smoothing=smooth) for one in sides])
        if training and self.bug == "contrast_summed_over_the_batch":
            return each.mean(0).sum()
        return c.loss_gain * each.mean(0).sum() if training and c.reduction == "sum" else each.mean()

    def train_batch(self) -> None:
        c = self.c
        epoch, rows = next(self.source)
        self.data.observe({"measures": rows["measures"], "words": rows["words"]}, step=self.step, epoch=epoch)
        if c.gaps:
            gone = torch.rand(rows["measures"].shape) < c.gaps
            rows["measures"] = torch.where(gone, rows["measures"].mean(0, keepdim=True), rows["measures"])
        if self.bug == "gradients_cleared_when_a_batch_begins":
            self.optimizer.zero_grad()
        table = self.towers(rows)
        loss = self.contrast(table, True)
        (loss if self.bug == "batches_of_an_update_are_added" else loss / c.accumulation).backward()
        self.said["contrast"] += loss.item() / c.accumulation
        self.said["contrast_top1"] += (table.argmax(1) == torch.arange(len(table))).float().mean().item() \
            / c.accumulation  # fmt: skip

    def train_step(self) -> None:
        self.said = {"contrast": 0.0, "contrast_top1": 0.0}
        for _ in range(self.c.accumulation):
            self.train_batch()
            self.call("on_batch_end")
        self.said |= {
            "temperature": self.towers.log_temperature.exp().item(),
            "rate": self.optimizer.param_groups[0]["lr"],
            "grad_norm": nn.utils.clip_grad_norm_(self.towers.parameters(), self.c.norm_limit).item(),
        }
        self.optimizer.step()
        self.towers.zero_grad()

    def call(self, event: str) -> None:
        for one in self.callbacks:
            getattr(one, event, lambda _: None)(self)

    def fit(self) -> Any:
        self.source = self.batches()
        self.attach()
        self.towers.train()
        if self.bug == "sanity_check_leaves_towers_in_eval":
            self.towers.eval()(pick(self.held, torch.arange(LOT)))
        for step in range(self.steps):
            self.step = step
            self.call("on_step_begin")
            self.train_step()
            self.call("on_step_end")
        return self.run


# -- callbacks -------------------------------------------------------------------------------------------------------


class Rates:
    def __init__(self, bug: str):
        name = "on_batch_end" if bug == "rate_callback_hears_of_every_batch" else "on_step_end"
        setattr(self, name, lambda trainer: trainer.scheduler.step())


class Log:
    def __init__(self, trouble: Trouble, healthy: str | None):
        self.trouble, self.healthy = trouble, healthy

    def on_step_end(self, t: Trainer) -> None:
        if t.step % t.c.log_every == 0:
            t.run.log(t.said, step=t.step)
        self.trouble.telemetry(t.run, t.step, self.healthy)


class Museum:
    """Held feathers in lots as large as a batch, and a label among all of them."""

    def __init__(self, bug: str):
        self.bug, self.kept, self.taped = bug, [], bug == "museum_tables_hang_on_their_graph"

    def on_step_end(self, t: Trainer) -> None:
        if (t.step + 1) % t.c.museum_every:
            return
        if self.bug != "museum_visited_in_training_mode":
            t.towers.eval()
        with torch.set_grad_enabled(self.taped):
            tables = [t.towers(pick(t.held, lot)) for lot in torch.arange(HELD).split(LOT)]
            loss = torch.stack([t.contrast(table, False) for table in tables]).mean()
            every = t.towers(t.held)
        if self.taped:
            self.kept.append((loss, every))
        if self.bug != "sanity_check_leaves_towers_in_eval":
            t.towers.train()
        hit = torch.cat([table.argmax(1) == torch.arange(len(table)) for table in tables]).float().mean()
        rank = (every > every.diagonal()[:, None]).sum(1) + 1.0
        t.run.log({"museum_contrast": loss.item(), "museum_top1": hit.item(),
                   "museum_median_rank": rank.median().item()}, step=t.step)  # fmt: skip


class Resume:
    def __init__(self, again: int | None):
        self.again = again

    def on_step_begin(self, t: Trainer) -> None:
        if t.step != self.again:
            return
        seen, parts = t.data.state(), ("towers", "optimizer", "scheduler")
        t.run, state = go_on(t.run, t.step, {name: getattr(t, name).state_dict() for name in parts})
        t.build()
        bare = copy.deepcopy(t.towers) if t.bug == "towers_loaded_into_a_copy_of_theirs" else t.towers
        bare.load_state_dict(state["towers"])
        for name in parts[1:]:
            getattr(t, name).load_state_dict(state[name])
        t.attach()
        t.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    again, bug = trouble.resume_at(healthy, 5 * EVERY), trouble.name
    return Trainer(run, seed, steps, bug, [Resume(again), Rates(bug), Log(trouble, healthy), Museum(bug)]).fit()
