"""Two towers learn which merchant's words belong to which timber, against the others of a batch.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: pair_nce, pair_hit, pair_scale, pair_lr, pair_gn each step; yard_nce, yard_hit, yard_rank
      of timbers that were held back, each sixteenth; memory, where it matters; the watch of data.

A timber has eighteen measures as the laboratory gives them, of which the first six are densities of its rings in
kilograms a cubic metre, and the stamp of its mill. The merchant writes its name by one of two, the region, the cut, the
stamp, and what he always writes. The file goes mill after mill, and may have several samples of a timber. Measures go
through a batch norm as they are; words are read with their places by a layer of attention. Both towers look stamps and
words up in one table. Written as a study with a fit of its own, over loaders of torch.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

EVERY, HELD, LOT, MEASURES, RINGS, LONG = 16, 192, 48, 18, 6, 8
PAD, STAMP, STAMPS, NAMES, REGIONS, CUTS = 0, 1, 100, 9, 4, 3
NAME = STAMP + STAMPS  # two for each
REGION = NAME + 2 * NAMES
CUT = REGION + REGIONS
PHRASE, PHRASES = CUT + CUTS, 10
WORDS = PHRASE + PHRASES
CONFIG: dict[str, Any] = {
    "embed_dim": 32, "hidden_dim": 48, "out_dim": 24, "p_dropout": 0.0, "input_norm": "batch", "joint_table": True,
    "train_batch": 48, "accumulate_steps": 1, "optim_name": "adamw", "base_lr": 6e-3, "lr_plan": "cosine",
    "warm_steps": 8, "l2": 0.0, "grad_norm_max": 3.0, "loss_reduction": "mean", "first_scale": 10.0,
    "scale_trains": True, "sides": "both", "smooth": 0.0, "text_lr_factor": 1.0, "timbers": 2000, "samples": 1,
    "swapped": 0.0, "dry_first": 0, "batch_by_name": False, "measures_missing": 0.0, "freeze_prefix": "",
    "yard_steps": 16, "log_steps": 1,
}  # fmt: skip
Rows = dict[str, Tensor]


def timbers(seed: int, number: int, samples: int = 1, swapped: float = 0.0) -> Rows:
    """Measures, stamps, words, names, and how wet a timber is; mill after mill."""
    law, dice, many = torch.Generator().manual_seed(331), torch.Generator().manual_seed(seed), number // samples
    level = 5 + 60 * torch.rand(MEASURES, generator=law)
    level[:RINGS] = 620.0
    spread = level / 6
    of_name, of_region, of_cut = (torch.randn(many, MEASURES, generator=law) for many in (NAMES, REGIONS, CUTS))

    def some(high: int, *size: int) -> Tensor:
        return torch.randint(0, high, size or (many,), generator=dice)

    name, region, cut, stamp = some(NAMES), some(REGIONS), some(CUTS), some(STAMPS).sort().values
    wet = 0.5 + torch.rand(many, generator=dice)
    measures = of_name[name] + 0.6 * of_region[region] + 0.6 * of_cut[cut]
    measures = measures + 1.4 * wet[:, None] * torch.randn(many, MEASURES, generator=dice)
    said = [NAME + 2 * name + some(2), REGION + region, CUT + cut, STAMP + stamp]
    phrases = torch.where(some(2, many, LONG - 4) > 0, PHRASE + some(PHRASES, many, LONG - 4), PAD)
    words = torch.cat([torch.stack(said[:3], 1), phrases[:, :1] + (phrases[:, :1] == PAD) * PHRASE,
                       torch.stack(said[3:], 1), phrases[:, 1:].sort(1, descending=True).values], 1)  # fmt: skip
    rows = {"measures": measures, "stamp": STAMP + stamp, "words": words, "name": name, "wet": wet}
    rows = {key: one.repeat_interleave(samples, 0) for key, one in rows.items()}
    rows["measures"] = level + spread * (rows["measures"] + 0.1 * torch.randn(rows["measures"].shape, generator=dice))
    wrong = torch.rand(len(rows["stamp"]), generator=dice) < swapped
    other = rows["words"][torch.randperm(len(wrong), generator=dice)]
    rows["words"] = torch.where(wrong[:, None], other, rows["words"])
    return rows


def subset(rows: Rows, which: Tensor) -> Rows:
    return {key: one[which] for key, one in rows.items()}


class Timbers(Dataset[Any]):
    """late: how many rows the words of a timber are behind it."""

    def __init__(self, rows: Rows, late: int = 0):
        self.rows, self.late = rows, late

    def __len__(self) -> int:
        return len(self.rows["stamp"])

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.rows["measures"][at], self.rows["stamp"][at], self.rows["words"][(at + self.late) % len(self)]


class Towers(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, h, self.bug = c.embed_dim, c.hidden_dim, bug
        self.table = nn.Embedding(WORDS, d, padding_idx=PAD)
        joint = c.joint_table and bug != "text_tower_comes_with_its_own_table"
        self.text_table = self.table if joint else nn.Embedding(WORDS, d, padding_idx=PAD)
        self.timber_norm: nn.Module = nn.BatchNorm1d(MEASURES, affine=False)
        if c.input_norm == "layer":
            self.timber_norm = nn.LayerNorm(MEASURES)
        self.timber_net = nn.Sequential(nn.Linear(MEASURES, h), nn.ReLU(), nn.Dropout(c.p_dropout), nn.Linear(h, h))
        self.timber_out, self.text_out = nn.Linear(h + d, c.out_dim), nn.Linear(d, c.out_dim)
        self.text_places, self.text_qkv = nn.Embedding(LONG, d), nn.Linear(d, 3 * d)
        self.text_net = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Dropout(c.p_dropout), nn.Linear(h, d))
        self.log_scale = nn.Parameter(torch.tensor(math.log(c.first_scale)), requires_grad=c.scale_trains)

    def of_timber(self, measures: Tensor, stamp: Tensor) -> Tensor:
        return self.timber_out(torch.cat([self.timber_net(self.timber_norm(measures)), self.table(stamp)], 1))

    def of_text(self, words: Tensor) -> Tensor:
        there, x = words != PAD, self.text_table(words)
        q, k, v = self.text_qkv(x + self.text_places.weight).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, there[:, None])
        x = x + self.text_net(x)
        return self.text_out((x * there[..., None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1))

    def forward(self, measures: Tensor, stamp: Tensor, words: Tensor) -> Tensor:
        """How well each timber goes with each text."""
        if self.bug == "text_tower_encodes_under_no_grad":
            with torch.no_grad():
                text = self.of_text(words)
        else:
            text = self.of_text(words)
        table = F.normalize(self.of_timber(measures, stamp), dim=1) @ F.normalize(text, dim=1).T
        scale = self.log_scale.exp().clamp(max=50.0)
        return table / scale if self.bug == "table_divided_by_its_scale" else table * scale


class Study:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.bug, self.epoch, self.seen = trouble, trouble.name, -1, []
        self.loader: Any = iter(())
        self.read_file()
        torch.manual_seed(seed)
        self.build()

    def read_file(self) -> None:
        c, bug = self.c, self.bug
        rows, held = timbers(self.seed + 8600, c.timbers, c.samples, c.swapped), timbers(8599, HELD)
        if bug == "samples_of_a_timber_in_yard_and_file":
            order = torch.randperm(len(rows["stamp"]), generator=torch.Generator().manual_seed(self.seed))
            held, rows = subset(rows, order[:HELD].sort().values), subset(rows, order[HELD:].sort().values)
        if bug == "held_densities_are_in_grams":
            held["measures"] = held["measures"] * torch.tensor([0.001] * RINGS + [1.0] * (MEASURES - RINGS))
        if bug == "words_of_the_yard_numbered_anew":
            held["words"] = held["words"].unique(return_inverse=True)[1]
        self.train_rows = rows
        self.held = subset(held, torch.randperm(HELD, generator=torch.Generator().manual_seed(23)))

    def build(self) -> None:
        self.towers = Towers(self.c, self.bug)
        for name, one in self.towers.named_parameters():
            if self.c.freeze_prefix and name.startswith(self.c.freeze_prefix):
                one.requires_grad_(False)
        self.make_optimizer()

    def make_optimizer(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.towers.named_parameters() if one.requires_grad]
        groups = [{"params": [one for name, one in named if not name.startswith("text_")], "lr": c.base_lr},
                  {"params": [one for name, one in named if name.startswith("text_")],
                   "lr": c.text_lr_factor * c.base_lr}]  # fmt: skip
        if c.optim_name == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.base_lr, 0.9)
        elif c.optim_name == "adamax":
            self.optimizer = torch.optim.Adamax(groups, c.base_lr)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.base_lr, weight_decay=c.l2)

        def plan(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warm_steps)), min(1.0, at / self.steps)
            if c.lr_plan == "constant":
                return rise
            if c.lr_plan == "two_cosines":
                past = 2 * past % 1
            return rise * (0.03 + 0.485 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, plan)

    def begin(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.towers, self.optimizer)
        self.data = self.run.watch_data()

    def next_rows(self) -> list[Tensor]:
        rows = next(self.loader, None)
        if rows is None:
            self.epoch += 1
            self.loader = iter(self.make_loader(torch.Generator().manual_seed(900 * self.seed + self.epoch)))
            rows = next(self.loader)
        return rows

    def make_loader(self, dice: torch.Generator) -> Any:
        c, rows = self.c, self.train_rows
        if self.epoch < c.dry_first:
            rows = subset(rows, (rows["wet"] < 1).nonzero()[:, 0])
        made = Timbers(rows, int(self.bug == "words_are_those_of_the_next_timber"))
        if c.batch_by_name:
            order = torch.randperm(len(made), generator=dice)
            order = order[rows["name"][order].argsort(stable=True)]
            lots = [one.tolist() for one in order.split(c.train_batch) if len(one) == c.train_batch]
            mixed = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            return DataLoader(made, batch_sampler=mixed)
        shuffle = self.bug != "yard_walked_through_mill_by_mill"
        return DataLoader(made, c.train_batch, shuffle=shuffle, generator=dice, drop_last=True)

    def nce(self, table: Tensor, training: bool) -> Tensor:
        c, wanted = self.c, torch.arange(len(table))
        if self.bug == "similarities_become_shares_first":
            table = table.softmax(1)
        both = (table,) if c.sides == "timbers" else (table, table.T)
        smooth = c.smooth if training else 0.0
        each = torch.stack([F.cross_entropy(side, wanted, reduction="none", label_smoothing=smooth) for side in both])
        if training and self.bug == "nce_of_a_batch_added_up":
            return each.mean(0).sum()
        return each.mean(0).sum() / 8 if training and c.loss_reduction == "sum_of_eighths" else each.mean()

    def train_step(self, step: int) -> dict[str, float]:
        c, bug, total, hit = self.c, self.bug, 0.0, 0.0
        for _ in range(c.accumulate_steps):
            measures, stamp, words = self.next_rows()
            self.data.observe({"measures": measures, "words": words}, step=step, epoch=self.epoch)
            if c.measures_missing:
                mean = measures.mean(0, keepdim=True)
                measures = torch.where(torch.rand(measures.shape) < c.measures_missing, mean, measures)
            if bug == "step_zeroes_gradients_for_each_lot":
                self.towers.zero_grad()
            table = self.towers(measures, stamp, words)
            loss = self.nce(table, True)
            (loss if bug == "lots_back_their_loss_in_full" else loss / c.accumulate_steps).backward()
            total += loss.item() / c.accumulate_steps
            hit += (table.argmax(1) == torch.arange(len(table))).float().mean().item() / c.accumulate_steps
            if bug == "plan_goes_on_with_each_lot":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.towers.parameters(), c.grad_norm_max).item()
        said = {"pair_nce": total, "pair_hit": hit, "pair_scale": self.towers.log_scale.exp().item(),
                "pair_lr": self.optimizer.param_groups[0]["lr"], "pair_gn": norm}  # fmt: skip
        self.optimizer.step()
        self.towers.zero_grad()
        if bug != "plan_goes_on_with_each_lot":
            self.scheduler.step()
        return said

    def yard(self) -> dict[str, float]:
        """Held timbers in lots as large as a batch, and a text among all of them."""
        bug, rows, taped = self.bug, self.held, self.bug == "tables_of_the_yard_kept_on_the_tape"
        if bug != "yard_searched_by_towers_in_training":
            self.towers.eval()
        with torch.set_grad_enabled(taped):
            tables = [self.towers(rows["measures"][lot], rows["stamp"][lot], rows["words"][lot])
                      for lot in torch.arange(HELD).split(LOT)]  # fmt: skip
            loss = torch.stack([self.nce(table, False) for table in tables]).mean()
            every = self.towers(rows["measures"], rows["stamp"], rows["words"])
        if taped:
            self.seen.append((loss, every))
        if bug != "towers_stay_in_eval_when_the_yard_is_done":
            self.towers.train()
        hit = torch.cat([table.argmax(1) == torch.arange(len(table)) for table in tables]).float().mean()
        rank = (every > every.diagonal()[:, None]).sum(1) + 1.0
        return {"yard_nce": loss.item(), "yard_hit": hit.item(), "yard_rank": rank.median().item()}

    def load(self, step: int) -> None:
        seen, parts = self.data.state(), ("towers", "optimizer", "scheduler")
        alone, state = self.bug == "file_has_the_tower_of_timbers_alone", {}
        for part in parts:
            state[part] = getattr(self, part).state_dict()
        if alone:
            state["towers"] = {name: one for name, one in state["towers"].items() if not name.startswith("text_")}
        self.run, state = go_on(self.run, step, state)
        self.build()
        self.towers.load_state_dict(state["towers"], strict=not alone)
        for name in parts[1:]:
            getattr(self, name).load_state_dict(state[name])
        self.begin()
        self.data.restore(seen)

    def fit(self, healthy: str | None) -> Any:
        again = self.trouble.resume_at(healthy, 5 * EVERY)
        self.begin()
        self.towers.train()
        for step in range(self.steps):
            if step == again:
                self.load(step)
            said = self.train_step(step)
            if step % self.c.log_steps == 0:
                self.run.log(said, step=step)
            self.trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.yard_steps == 0:
                self.run.log(self.yard(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Study(run, seed, steps, Trouble(fault, seed)).fit(healthy)
