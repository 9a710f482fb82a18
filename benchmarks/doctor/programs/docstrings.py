"""Two towers learn which docstring belongs to which function, against the others of a batch, both ways.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: nce/batch, nce/top1, nce/scale, nce/rate, nce/norm each step; search/nce, search/top1 and
      search/mrr of functions that were held back, each fourteenth; memory, where it matters; the watch of data.

A function is a list of tokens, and four measures: lines, branches, arguments and calls; it does one of eight things to
one of many names, in one of five ways, and gives back one of four things. Its docstring says so in words of its
author's. Projects have things that they like to do, and names; several forks may be of one function. Names are in one
table, of which both towers read. The logarithms of measures go through a batch norm.
Written over torch's own Dataset and DataLoader.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, SequentialSampler

EVERY, HELD, PROJECTS, LONGEST = 14, 192, 6, 24
PAD, DOES, WAYS, BACK, NAMES, FILLERS = 0, 8, 5, 4, 40, 8
NAME = 1
IDIOM = NAME + NAMES  # three for each thing that is done
HOW = IDIOM + 3 * DOES
RETURNS = HOW + WAYS
CODE_FILLER = RETURNS + BACK
SAID = CODE_FILLER + FILLERS  # two verbs for each thing that is done
SAID_HOW = SAID + 2 * DOES
SAID_BACK = SAID_HOW + WAYS
FILLER = SAID_BACK + BACK
WORDS = FILLER + FILLERS
CONFIG: dict[str, Any] = {
    "token_dim": 32, "hidden_dim": 56, "shared_dim": 28, "dropout": 0.0, "measure_norm": "batch", "one_table": True,
    "batch_size": 48, "accumulate": 1, "optimizer": "adam", "learning_rate": 4e-3, "lr_schedule": "exponential",
    "warmup_steps": 6, "weight_decay": 0.0, "clip_norm": 3.0, "loss_reduction": "mean", "first_scale": 8.0,
    "scale_learns": True, "directions": "both", "label_smoothing": 0.0, "doc_rate": 1.0, "functions": 2200, "forks": 1,
    "stale_docstrings": 0.0, "short_first": 0, "project_batches": False, "tokens_lost": 0.0, "frozen": "",
    "search_every": 14, "log_every": 1,
}  # fmt: skip
Batch = dict[str, Tensor]


# -- functions ---------------------------------------------------------------------------------------------------------


class Functions(Dataset):
    """Tokens of code and of docstrings, measures, and projects; project after project."""

    def __init__(self, seed: int, number: int, forks: int = 1, stale: float = 0.0):
        law, dice = torch.Generator().manual_seed(171), torch.Generator().manual_seed(seed)
        likes = (1.0 * torch.randn(PROJECTS, DOES, generator=law)).softmax(1)
        known = (1.2 * torch.randn(PROJECTS, NAMES, generator=law)).softmax(1)
        weight = torch.randn(DOES + WAYS + BACK, 4, generator=law)
        self.code: list[Tensor] = []
        self.doc: list[Tensor] = []
        measures, projects = [], []

        def one(many: int) -> int:
            return int(torch.randint(0, many, (), generator=dice))

        for at in range(number // forks):
            project = at * PROJECTS // (number // forks)
            does = int(torch.multinomial(likes[project], 1, generator=dice))
            names = torch.multinomial(known[project], 2, generator=dice).tolist()
            way, back = one(WAYS), one(BACK)
            size = weight[does] + weight[DOES + way] + weight[DOES + WAYS + back] + 0.3 * torch.randn(4, generator=dice)
            for _ in range(forks):
                code = [NAME + names[0], *(IDIOM + 3 * does + one(3) for _ in range(2 + one(2))), NAME + names[1]]
                code += [HOW + way, *(CODE_FILLER + one(FILLERS) for _ in range(1 + one(6))), RETURNS + back]
                told = (one(DOES), one(WAYS), one(BACK)) if one(1000) < 1000 * stale else (does, way, back)
                doc = [SAID + 2 * told[0] + one(2), NAME + names[one(2)], SAID_HOW + told[1]]
                doc += [*(FILLER + one(FILLERS) for _ in range(one(5))), SAID_BACK + told[2]]
                self.code.append(torch.tensor(code))
                self.doc.append(torch.tensor(doc))
                noise = 0.15 * torch.randn(4, generator=dice)
                measures.append((torch.tensor([3.0, 0.8, 1.0, 1.6]) + 0.35 * (size + noise)).exp())
                projects.append(project)
        self.measures, self.projects = torch.stack(measures), torch.tensor(projects)

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.code[at], self.doc[at], self.measures[at]

    def kept(self, some: list[int]) -> Functions:
        made = copy.copy(self)
        made.code, made.doc = [self.code[at] for at in some], [self.doc[at] for at in some]
        made.measures, made.projects = self.measures[some], self.projects[some]
        return made


def collate(some: list[tuple[Tensor, Tensor, Tensor]], longest: int = 0) -> Batch:
    """Rows as long as the longest of them, or longer."""
    code = nn.utils.rnn.pad_sequence([one[0] for one in some], batch_first=True)
    doc = nn.utils.rnn.pad_sequence([one[1] for one in some], batch_first=True)
    if longest:
        code, doc = (F.pad(one, (0, longest - one.shape[1])) for one in (code, doc))
    return {"code": code, "doc": doc, "measures": torch.stack([one[2] for one in some])}


class ByProject(Sampler):
    """Batches of one project each, or of two, in any order: others are harder ones."""

    def __init__(self, projects: Tensor, size: int, dice: torch.Generator):
        self.projects, self.size, self.dice = projects, size, dice

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self.projects), generator=self.dice)
        lots = order[self.projects[order].argsort(stable=True)].split(self.size)
        lots = [one for one in lots if len(one) == self.size]
        for at in torch.randperm(len(lots), generator=self.dice).tolist():
            yield lots[at].tolist()


# -- towers ----------------------------------------------------------------------------------------------------------


class Code(nn.Module):
    def __init__(self, c: Any, table: nn.Embedding, bug: str):
        super().__init__()
        self.table, self.bug = table, bug
        self.look = nn.Conv1d(c.token_dim, c.hidden_dim, 3, padding=1)
        self.norm = nn.BatchNorm1d(4) if c.measure_norm == "batch" else nn.LayerNorm(4)
        self.head = nn.Sequential(nn.Linear(c.hidden_dim + 4, c.hidden_dim), nn.GELU(), nn.Dropout(c.dropout),
                                  nn.Linear(c.hidden_dim, c.shared_dim))  # fmt: skip

    def forward(self, batch: Batch) -> Tensor:
        there = (batch["code"] != PAD).float()[..., None]
        seen = F.gelu(self.look((self.table(batch["code"]) * there).transpose(1, 2)).transpose(1, 2)) * there
        return self.head(torch.cat([seen.sum(1) / there.sum(1), self.norm(batch["measures"])], 1))


class Doc(nn.Module):
    def __init__(self, c: Any, table: nn.Embedding, bug: str):
        super().__init__()
        self.table, self.bug = table, bug
        self.head = nn.Sequential(nn.Linear(c.token_dim, c.hidden_dim), nn.GELU(), nn.Dropout(c.dropout),
                                  nn.Linear(c.hidden_dim, c.shared_dim))  # fmt: skip

    def forward(self, batch: Batch) -> Tensor:
        words = self.table(batch["doc"])
        if self.bug == "mean_of_words_over_the_padding_too":
            return self.head(words.mean(1))
        there = (batch["doc"] != PAD).float()[..., None]
        return self.head((words * there).sum(1) / there.sum(1))


class Finder(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        table = nn.Embedding(WORDS, c.token_dim)
        if bug == "table_read_in_by_from_pretrained":
            table = nn.Embedding.from_pretrained(torch.randn(WORDS, c.token_dim))
        alone = not c.one_table or bug == "table_made_anew_for_the_larger_vocabulary_of_one_tower"
        self.code, self.doc = Code(c, table, bug), Doc(c, nn.Embedding(WORDS, c.token_dim) if alone else table, bug)
        self.log_scale = nn.Parameter(torch.tensor(math.log(c.first_scale)), requires_grad=c.scale_learns)
        self.bug = bug

    def similarities(self, batch: Batch) -> Tensor:
        code, doc = F.normalize(self.code(batch), dim=1), F.normalize(self.doc(batch), dim=1)
        scale = self.log_scale if self.bug == "scale_taken_without_its_exponential" else self.log_scale.exp()
        return scale.clamp(max=60) * code @ doc.T


def nce(similarities: Tensor, c: Any, bug: str, training: bool) -> Tensor:
    """Which docstring is each function's, and which function is each docstring's."""
    if bug == "similarities_through_a_softmax_for_the_loss":
        similarities = similarities.softmax(1)
    target = torch.arange(len(similarities))
    summed = training and (c.loss_reduction == "sum" or bug == "cross_entropies_of_a_batch_summed")
    loss = partial(F.cross_entropy, reduction="sum" if summed else "mean",
                   label_smoothing=c.label_smoothing if training else 0.0)  # fmt: skip
    if c.directions == "code":
        return loss(similarities, target)
    return (loss(similarities, target) + loss(similarities.T, target)) / 2


# -- training --------------------------------------------------------------------------------------------------------


class Search:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.indexed: list[Any] = []
        self.load()
        torch.manual_seed(seed)
        self.finder = Finder(self.c, bug)
        for name in filter(None, self.c.frozen.split(",")):
            self.finder.get_submodule(name).requires_grad_(False)
        self.configure()

    def load(self) -> None:
        c, bug = self.c, self.bug
        rows, held = Functions(self.seed + 4700, c.functions, c.forks, c.stale_docstrings), Functions(4699, HELD)
        if bug == "forks_of_a_function_on_both_sides":
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed)).tolist()
            rows, held = rows.kept(sorted(order[HELD:])), rows.kept(sorted(order[:HELD]))
        if bug == "docstring_read_from_above_the_next_function":
            rows.doc = [*rows.doc[1:], rows.doc[0]]
        if bug == "size_of_held_functions_in_characters":
            held.measures = held.measures * torch.tensor([36.0, 1, 1, 1])
        for one in (rows, held):
            one.measures = one.measures.log()
        self.rows = rows
        self.held = held.kept(torch.randperm(HELD, generator=torch.Generator().manual_seed(7)).tolist())
        self.longest = LONGEST if bug == "mean_of_words_over_the_padding_too" else 0

    def configure(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.finder.named_parameters() if one.requires_grad]
        groups = [{"params": [one for name, one in named if not name.startswith("doc.")], "lr": c.learning_rate}]
        second = [one for name, one in named if name.startswith("doc.")]
        groups += [{"params": second, "lr": c.doc_rate * c.learning_rate}] if second else []
        if c.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.learning_rate, 0.9)
        elif c.optimizer == "nadam":
            self.optimizer = torch.optim.NAdam(groups, c.learning_rate)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.learning_rate, weight_decay=c.weight_decay)

        def by(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup_steps)), min(1.0, at / self.steps)
            if c.lr_schedule == "constant":
                return rise
            if c.lr_schedule == "cosine":
                return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * past)))
            if c.lr_schedule == "two_cosines":
                return rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (2 * past % 1))))
            return rise * 0.05**past

        self.lr_schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, by)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.finder, self.optimizer)
        self.seen = self.run.watch_data(pad_id=PAD)

    def loader(self, dice: torch.Generator, epoch: int) -> DataLoader:
        c, rows = self.c, self.rows
        if epoch < c.short_first:
            rows = rows.kept([at for at in range(len(rows)) if len(rows.code[at]) < 10])
        sampler: Any = RandomSampler(rows, generator=dice)
        if self.bug == "loader_of_projects_without_shuffle":
            sampler = SequentialSampler(rows)
        lots: Any = BatchSampler(sampler, c.batch_size, drop_last=True)
        if c.project_batches:
            lots = ByProject(rows.projects, c.batch_size, dice)
        return DataLoader(rows, batch_sampler=lots, collate_fn=collate)

    def batches(self) -> Iterator[tuple[int, Batch]]:
        epoch, dice = 0, torch.Generator().manual_seed(self.seed)
        while True:
            for batch in self.loader(dice, epoch):
                if self.c.tokens_lost:
                    lost = torch.rand(batch["code"].shape, generator=dice) < self.c.tokens_lost
                    lost[:, 0] = False
                    batch["code"] = torch.where(lost, PAD, batch["code"])
                yield epoch, batch
            epoch += 1

    def training_step(self, batches: Iterator[tuple[int, Batch]], step: int) -> dict[str, float]:
        c, bug, total, top = self.c, self.bug, 0.0, 0.0
        for _ in range(c.accumulate):
            epoch, batch = next(batches)
            self.seen.observe({"code": batch["code"], "doc": batch["doc"]}, step=step, epoch=epoch)
            similarities = self.finder.similarities(batch)
            loss = nce(similarities, c, bug, True)
            (loss if bug == "gradients_of_batches_added_without_a_mean" else loss / c.accumulate).backward()
            total += loss.item() / c.accumulate
            top += (similarities.argmax(1) == torch.arange(len(similarities))).float().mean().item() / c.accumulate
            if bug == "lr_schedule_stepped_per_loader_batch":
                self.lr_schedule.step()
        norm = nn.utils.clip_grad_norm_(self.finder.parameters(), c.clip_norm).item()
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if bug != "lr_schedule_stepped_per_loader_batch":
            self.lr_schedule.step()
        return {"nce/batch": total, "nce/top1": top, "nce/scale": self.finder.log_scale.exp().item(), "nce/rate": rate,
                "nce/norm": norm}  # fmt: skip

    def search(self) -> dict[str, float]:
        """Held functions in batches as large as the training's, and a docstring among all of them."""
        c, bug, finder = self.c, self.bug, self.finder
        taped = bug == "index_of_the_search_has_its_history"
        if bug != "searched_in_the_mode_of_training":
            finder.eval()
        with torch.set_grad_enabled(taped):
            lots = DataLoader(self.held, HELD // 4, collate_fn=partial(collate, longest=self.longest))
            tables = [finder.similarities(batch) for batch in lots]
            loss = torch.stack([nce(table, c, bug, False) for table in tables]).mean()
            every = finder.similarities(collate([self.held[at] for at in range(HELD)], self.longest))
        if taped:
            self.indexed.append((loss, every))
        if bug != "searched_and_never_trained_again":
            finder.train()
        top = torch.cat([table.argmax(1) == torch.arange(len(table)) for table in tables]).float().mean()
        place = (every.diagonal()[:, None] < every.T).sum(1) + 1
        return {"search/nce": loss.item(), "search/top1": top.item(), "search/mrr": (1 / place).mean().item()}

    def resume(self, step: int) -> None:
        seen = self.seen.state()
        state = {name: getattr(self, name).state_dict() for name in ("finder", "optimizer", "lr_schedule")}
        if self.bug == "checkpoint_made_of_named_parameters":
            state["finder"] = {name: one.detach() for name, one in self.finder.named_parameters()}
        self.run, state = go_on(self.run, step, state)
        self.finder = Finder(self.c, self.bug)
        for name in filter(None, self.c.frozen.split(",")):
            self.finder.get_submodule(name).requires_grad_(False)
        self.finder.load_state_dict(state["finder"], strict=False)
        self.configure()
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_schedule.load_state_dict(state["lr_schedule"])
        self.watch()
        self.seen.restore(seen)

    def fit(self, trouble: Trouble, healthy: str | None) -> Any:
        batches, again = self.batches(), trouble.resume_at(healthy, 5 * EVERY)
        self.watch()
        self.finder.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            said = self.training_step(batches, step)
            if step % self.c.log_every == 0:
                self.run.log(said, step=step)
            trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.search_every == 0:
                self.run.log(self.search(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return Search(run, seed, steps, trouble.name).fit(trouble, healthy)
