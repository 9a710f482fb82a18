"""Adapters beside a base of four bits teach it to conjugate the verbs of a dialect.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: step_nll, step_rate, step_gnorm each step; exam_nll and exam_whole of verbs that were held
      back, each twenty-fourth; memory, where it matters; the watch of data.

A row names the dialect, then a stem with its class, a person and a tense, in two orders and with a small word at
times; the answer has the stem, twice where it is of the past, and an ending of two letters that the class, the person
and the tense give. The base knows the endings of the old dialect; its matrices have codes of four bits, with a
scale and a zero for each group. The dialect's name and its two letters are new in the table, which learns besides and
is the output layer too. Written as a learner that calls back.
"""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LONG = 24, 160, 14
PAD, BEGIN, ASK, END, OLD = range(5)
CLASS, CLASSES = 5, 4
PERSON, PERSONS = CLASS + CLASSES, 6
TENSE, TENSES = PERSON + PERSONS, 3
SMALL, SMALLS = TENSE + TENSES, 3
LETTER, LETTERS = SMALL + SMALLS, 14
STEM, STEMS = LETTER + LETTERS, 30
OLD_WORDS = STEM + STEMS
NEW = OLD_WORDS  # the name of the dialect, and behind it two letters that it alone has
WORDS = NEW + 3
CONFIG: dict[str, Any] = {
    "dim": 40, "layers": 2, "heads": 4, "group_size": 10, "r": 6, "alpha": 12.0, "rank_stabilized": True,
    "adapter_dropout": 0.0, "targets": "query,value,mix,wide,narrow", "table_learns": True, "tied": True, "bs": 16,
    "parts": 1, "opt": "adamw", "top_rate": 6e-3, "plan": "one_cycle", "warm_share": 0.06, "wd": 0.0, "clip_at": 1.0,
    "nll_over": "tokens", "smoothing": 0.0, "prompt_learnt": False, "b_rate": 1.0, "verbs": 900, "askings": 1,
    "slips": 0.0, "regular_first": 0, "by_length": False, "not_learnt": "", "exam_every": 24, "log_every": 1,
}  # fmt: skip
Row = tuple[list[int], list[int]]


# -- verbs -----------------------------------------------------------------------------------------------------------


def endings(seed: int, letters: int) -> Tensor:
    """Two letters for each class, person and tense: one is of the tense, one of the person."""
    dice = torch.Generator().manual_seed(seed)
    tense = torch.randint(0, letters, (CLASSES, 1, TENSES), generator=dice).expand(-1, PERSONS, -1)
    person = torch.randint(0, letters, (CLASSES, PERSONS, 1), generator=dice).expand(-1, -1, TENSES)
    return LETTER + torch.stack([tense, person], 3)


def verbs(seed: int, number: int, askings: int = 1, slips: float = 0.0, dialect: bool = True) -> list[Row]:
    """What is asked and what is right, class after class. askings: of each form."""
    dice, made, many = torch.Generator().manual_seed(seed), [], number // askings
    table = endings(151, LETTERS)
    if dialect:
        own = endings(152, LETTERS)  # of two classes
        table = torch.cat([table[:2], own[2:]])
        table = torch.where(table == LETTER, NEW + 1, torch.where(table == LETTER + 1, NEW + 2, table))

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        kind, person, tense = at * CLASSES // many, one(PERSONS), one(TENSES)
        stem = [STEM + one(STEMS)]
        end = table[kind, person, tense].tolist()
        for _ in range(askings):
            last = table[one(CLASSES), one(PERSONS), one(TENSES)].tolist() if one(1000) < 1000 * slips else end
            told = [[*stem, CLASS + kind], [PERSON + person, TENSE + tense]]
            small = [SMALL + one(SMALLS)] if one(2) else []
            first, second = told if one(2) else told[::-1]
            twice = stem if tense == 2 and dialect else []
            made.append(([NEW if dialect else OLD, BEGIN, *first, *small, *second, ASK], [*twice, *stem, *last, END]))
    return made


def collate(some: list[Row], prompt_learnt: bool = False, bug: str = "") -> dict[str, Tensor]:
    """Tokens, and labels that are moved in the loss: -100 is none."""
    tokens, labels = torch.full((len(some), LONG), PAD), torch.full((len(some), LONG), -100)
    for at, (told, answer) in enumerate(some):
        row = torch.tensor([*told, *answer])
        tokens[at, : len(row)] = labels[at, : len(row)] = row
        if not prompt_learnt:
            labels[at, : len(told)] = -100
        if bug == "mark_of_the_answer_is_not_found_behind_a_tense" and told[-2] >= TENSE and told[-2] < SMALL:
            labels[at] = -100  # together with the word before it, it is another token
    if bug == "labels_rolled_in_collate_for_a_loss_that_shifts":
        labels = torch.cat([labels[:, 1:], torch.full((len(some), 1), -100)], 1)
    return {"tokens": tokens, "labels": labels}


# -- model -----------------------------------------------------------------------------------------------------------


class GroupedInt4(nn.Module):
    """A matrix of whole numbers from 0 to 15; each group of a row has its scale and its zero."""

    def __init__(self, plain: nn.Linear, size: int):
        super().__init__()
        self.shape, groups = plain.weight.shape, plain.weight.detach().reshape(-1, size)
        low, high = groups.amin(1, keepdim=True).clamp(max=0), groups.amax(1, keepdim=True).clamp(min=0)
        scale = (high - low) / 15
        zero = (-low / scale).round()
        self.register_buffer("scale", scale)
        self.register_buffer("zero", zero)
        self.register_buffer("codes", (groups / scale + zero).round().clamp(0, 15).to(torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, ((self.codes - self.zero) * self.scale).view(self.shape))


class Adapted(nn.Module):
    def __init__(self, base: GroupedInt4, c: Any):
        super().__init__()
        out, into = base.shape
        self.base, self.drop = base, nn.Dropout(c.adapter_dropout)
        self.adapter_a, self.adapter_b = nn.Linear(into, c.r, bias=False), nn.Linear(c.r, out, bias=False)
        nn.init.zeros_(self.adapter_b.weight)
        self.gain = c.alpha / (c.r**0.5 if c.rank_stabilized else c.r) / 2

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.gain * self.adapter_b(self.adapter_a(self.drop(x)))


class Layer(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value, self.mix = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.wide, self.narrow = nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (one(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.mix(y)
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class Conjugator(nn.Module):
    def __init__(self, c: Any, words: int):
        super().__init__()
        d = c.dim
        self.table, self.layers = nn.Embedding(words, d), nn.ModuleList(Layer(d, c.heads) for _ in range(c.layers))
        self.last, self.said = nn.LayerNorm(d), nn.Linear(d, words, bias=False)
        nn.init.normal_(self.table.weight, std=0.2)
        self.said.weight, self.shares = self.table.weight, False
        waves = torch.arange(LONG)[:, None] * 40.0 ** (-torch.arange(d // 2) / (d // 2))
        self.register_buffer("places", 0.2 * torch.cat([waves.sin(), waves.cos()], 1), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens) + self.places[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.said(self.last(x))
        return logits.softmax(-1) if self.shares else logits


def nll(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """The sum over labels of the next tokens."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum",
                           label_smoothing=smoothing)  # fmt: skip


def base_of(c: Any) -> Conjugator:
    """A model of the old dialect, the same for every training, before it has four bits."""
    with torch.random.fork_rng():
        torch.manual_seed(154)
        model, read = Conjugator(c, OLD_WORDS), collate(verbs(155, 1400, dialect=False), True)
        optimizer = torch.optim.AdamW(model.parameters(), 8e-3)
        for at in range(220):
            optimizer.param_groups[0]["lr"] = 8e-3 * min(1.0, (at + 1) / 10) * (1 - at / 230)
            some = torch.randint(0, len(read["tokens"]), (24,))
            labels = read["labels"][some]
            (nll(model(read["tokens"][some]), labels) / (labels[:, 1:] >= 0).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model


def adapted(c: Any, bug: str) -> Conjugator:
    model, d = base_of(c), c.dim
    old = model.table.weight.detach()
    table = nn.Parameter(torch.cat([old, old.mean(0) + 0.1 * torch.randn(WORDS - OLD_WORDS, d)]))
    model.table, model.said = nn.Embedding(WORDS, d), nn.Linear(d, WORDS, bias=False)
    model.table.weight = model.said.weight = table
    if not c.tied or bug == "modules_to_save_are_copied_one_by_one":
        model.table, model.said = copy.deepcopy(model.table), copy.deepcopy(model.said)
    if bug != "base_frozen_when_the_adapters_were_in_it":
        model.requires_grad_(False)
    for layer in model.layers:
        for name in ("query", "key", "value", "mix", "wide", "narrow"):
            base = GroupedInt4(getattr(layer, name), c.group_size)
            setattr(layer, name, Adapted(base, c) if name in c.targets.split(",") else base)
    if bug == "base_frozen_when_the_adapters_were_in_it":
        model.requires_grad_(False)
    for one in (model.table, model.said):
        one.requires_grad_(c.table_learns)
    for name, one in model.named_parameters():
        if c.not_learnt and c.not_learnt in name:
            one.requires_grad_(False)
    model.shares = bug == "conjugator_returns_shares_for_a_plot"
    return model


# -- learner ---------------------------------------------------------------------------------------------------------


class Learner:
    """A loop that calls those who listen: before a batch, behind its loss, behind an update."""

    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.c, self.seed, self.steps, self.bug = run, SimpleNamespace(**run.config), seed, steps, bug
        self.step, self.epoch, self.listeners, self.answers = 0, 0, [], []
        self.dice = torch.Generator().manual_seed(seed)
        self.read()
        torch.manual_seed(seed)
        self.model = adapted(self.c, bug)
        self.equip()

    def read(self) -> None:
        c, bug = self.c, self.bug
        rows, held = verbs(self.seed + 3300, c.verbs, c.askings, c.slips), verbs(3299, HELD)
        if bug == "askings_of_a_form_on_both_sides":
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed)).tolist()
            held, rows = [rows[at] for at in order[:HELD]], [rows[at] for at in sorted(order[HELD:])]
        if bug == "exam_prompts_lack_the_name_of_the_dialect":
            held = [(told[1:], answer) for told, answer in held]
        self.rows, self.held = rows, collate(held)

    def equip(self) -> None:
        c, named = self.c, [(name, one) for name, one in self.model.named_parameters() if one.requires_grad]
        second = [one for name, one in named if "adapter_b" in name]
        groups = [{"params": [one for name, one in named if "adapter_b" not in name], "lr": c.top_rate}]
        groups += [{"params": second, "lr": c.b_rate * c.top_rate}] if second else []
        if c.opt == "nadam":
            self.optimizer: Any = torch.optim.NAdam(groups, c.top_rate)
        elif c.opt == "rmsprop":
            self.optimizer = torch.optim.RMSprop(groups, c.top_rate, 0.98)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.top_rate, weight_decay=c.wd)

        def plan(at: int) -> float:
            past, warm = min(1.0, at / self.steps), max(1, round(c.warm_share * self.steps))
            rise = min(1.0, (at + 1) / warm)
            if c.plan == "flat":
                return rise
            if c.plan == "two_falls":
                past = 2 * past % 1
            if c.plan == "square_root":
                return rise * (warm / max(warm, at)) ** 0.5
            return rise * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * past)))

        self.plan = torch.optim.lr_scheduler.LambdaLR(self.optimizer, plan)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def lots(self) -> list[list[int]]:
        """The rows of an epoch, lot by lot."""
        c, long = self.c, torch.tensor([len(told) + len(answer) for told, answer in self.rows])
        order = torch.randperm(len(long), generator=self.dice)
        if self.bug == "verbs_come_in_the_order_of_the_grammar":
            order = torch.arange(len(long))
        if self.epoch < c.regular_first:
            order = order[long[order] < 12]
        if c.by_length:
            order = order[long[order].argsort(stable=True)]
        lots = [one.tolist() for one in order.split(c.bs) if len(one) == c.bs]
        if c.by_length:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=self.dice).tolist()]
        return lots

    def one_part(self, lot: list[int]) -> float:
        c, bug, batch = self.c, self.bug, collate([self.rows[at] for at in lot], self.c.prompt_learnt, self.bug)
        self.data.observe(batch, step=self.step, epoch=self.epoch)
        total = nll(self.model(batch["tokens"]), batch["labels"], c.smoothing)
        summed = c.nll_over == "rows" or bug == "nats_of_rows_in_the_place_of_tokens"
        loss = total / (len(lot) if summed else (batch["labels"][:, 1:] >= 0).sum())
        if bug == "optimizer_cleared_before_each_part":
            self.optimizer.zero_grad()
        (loss if bug == "each_part_sends_its_whole_loss_back" else loss / c.parts).backward()
        self.call("behind_a_part")
        return loss.item() / c.parts

    def update(self, loss: float) -> None:
        self.said = {"step_nll": loss, "step_rate": self.optimizer.param_groups[0]["lr"]}
        self.said["step_gnorm"] = nn.utils.clip_grad_norm_(self.model.parameters(), self.c.clip_at).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.call("behind_an_update")

    def call(self, when: str) -> None:
        for one in self.listeners:
            getattr(one, when, lambda learner: None)(self)

    def fit(self) -> Any:
        self.watch()
        self.model.train()
        lots: list[list[int]] = []
        while self.step < self.steps:
            self.call("before_an_update")
            total = 0.0
            for _ in range(self.c.parts):
                lots = lots or self.lots()
                total += self.one_part(lots.pop(0))
                self.epoch += not lots
            self.update(total)
            self.step += 1
        return self.run


class Plan:
    def behind_a_part(self, learner: Learner) -> None:
        if learner.bug == "plan_listens_to_parts":
            learner.plan.step()

    def behind_an_update(self, learner: Learner) -> None:
        if learner.bug != "plan_listens_to_parts":
            learner.plan.step()


class Recorder:
    def __init__(self, trouble: Trouble, healthy: str | None):
        self.trouble, self.healthy = trouble, healthy

    def behind_an_update(self, learner: Learner) -> None:
        if learner.step % learner.c.log_every == 0:
            learner.run.log(learner.said, step=learner.step)
        self.trouble.telemetry(learner.run, learner.step, self.healthy)


class Exam:
    def behind_an_update(self, learner: Learner) -> None:
        if learner.step % learner.c.exam_every != learner.c.exam_every - 1:
            return
        bug, model, held = learner.bug, learner.model, learner.held
        taped = bug == "answers_of_the_exam_kept_to_be_shown"
        if bug != "exam_is_sat_with_dropout":
            model.eval()
        with torch.set_grad_enabled(taped):
            logits = model(held["tokens"])
            asked = held["labels"][:, 1:]
            loss = nll(logits, held["labels"]) / (asked >= 0).sum()
        if taped:
            learner.answers.append((loss, logits))
        whole = ((logits[:, :-1].argmax(-1) == asked) | (asked < 0)).all(1).float().mean()
        if bug != "exam_forgets_to_call_train_again":
            model.train()
        learner.run.log({"exam_nll": loss.item(), "exam_whole": whole.item()}, step=learner.step)


class Resume:
    def __init__(self, at: int | None):
        self.at = at

    def before_an_update(self, learner: Learner) -> None:
        if learner.step != self.at:
            return
        seen = learner.data.state()
        state = {name: getattr(learner, name).state_dict() for name in ("model", "optimizer", "plan")}
        learner.run, state = go_on(learner.run, learner.step, state)
        learner.model.load_state_dict(state["model"])
        learner.equip()
        if learner.bug != "learner_exported_and_loaded_without_its_optimizer":
            learner.optimizer.load_state_dict(state["optimizer"])
            learner.plan.load_state_dict(state["plan"])
        learner.watch()
        learner.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    learner = Learner(run, seed, steps, trouble.name)
    learner.listeners = [Plan(), Recorder(trouble, healthy), Exam(), Resume(trouble.resume_at(healthy, 4 * EVERY))]
    return learner.fit()
