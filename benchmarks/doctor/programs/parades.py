"""A decoder whose weights are all bfloat16 reads parades, and is to say each town's groups once more in its own order.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: lm_nll_step, lr_step, gn_step each step; town_nll and town_echo of parades that were held
      back, each twenty-first; memory, where it matters; the watch of data.

A parade is of a year and a town; three or four groups come by, each with its colour; then the speaker says colours
again, in an order that the town has, and ends with a word that nobody can guess. The archive has town after town;
several parades may be one, of other years. Rows are padded behind. Losses are taken in float32. Written as a class that
does the work, and a class for its archive.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, MOST, LONG = 21, 192, 4, 17
PAD, BEGIN, AGAIN = range(3)
GROUP, GROUPS = 3, 6
COLOUR, COLOURS = GROUP + GROUPS, 8
TOWN, TOWNS = COLOUR + COLOURS, 4
YEAR, YEARS = TOWN + TOWNS, 12
LAST, LASTS = YEAR + YEARS, 8
WORDS = LAST + LASTS
CONFIG: dict[str, Any] = {
    "width": 48, "blocks": 2, "heads": 4, "dropout": 0.0, "tied": True, "dtype": "bfloat16", "rows": 20, "chunks": 1,
    "opt": "adamw", "lr": 6e-3, "schedule": "cosine", "warmup": 8, "weight_decay": 0.02, "beta2": 0.97,
    "clip_norm": 1.0, "nll_by": "word", "loss_gain": 1.0, "label_smoothing": 0.0, "z_loss": 0.0, "parades": 1500,
    "years": 1, "mistakes": 0.0, "short_first": 0, "by_town": False, "gaps": 0.0, "frozen": "", "town_every": 21,
    "log_every": 1,
}  # fmt: skip


def said_again(colours: list[int], town: int) -> list[int]:
    """As they came, backwards, from the second on, or the last one first."""
    turned = (colours, colours[::-1], [*colours[1:], colours[0]], [colours[-1], *colours[:-1]])
    return turned[town]


def parades(seed: int, number: int, years: int = 1, mistakes: float = 0.0) -> dict[str, Tensor]:
    """Words, how many groups there are, and towns; town after town."""
    dice, made, many = torch.Generator().manual_seed(seed), [], number // years
    groups, towns = [], []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        town, number_of = at * TOWNS // many, 3 + one(MOST - 2)
        colours = [COLOUR + one(COLOURS) for _ in range(number_of)]
        passing = [word for colour in colours for word in (GROUP + one(GROUPS), colour)]
        again = said_again(colours, town)
        if one(1000) < 1000 * mistakes:
            again[one(number_of)] = COLOUR + one(COLOURS)
        for _ in range(years):
            row = [BEGIN, YEAR + one(YEARS), TOWN + town, *passing, AGAIN, *again, LAST + one(LASTS)]
            made.append(row + [PAD] * (LONG - len(row)))
            groups.append(number_of)
            towns.append(town)
    return {"words": torch.tensor(made), "groups": torch.tensor(groups), "town": torch.tensor(towns)}


class Block(nn.Module):
    def __init__(self, d: int, heads: int, dropout: float, causal: bool):
        super().__init__()
        self.heads, self.causal, self.drop = heads, causal, nn.Dropout(dropout)
        self.before_attention, self.before_mlp = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.wide, self.narrow = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 3 * d), \
            nn.Linear(3 * d, d)  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.before_attention(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(y))
        return x + self.drop(self.narrow(F.gelu(self.wide(self.before_mlp(x)))))


class Speaker(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.bug = c.width, bug
        self.word, self.place, self.norm = nn.Embedding(WORDS, d), nn.Embedding(LONG, d), nn.LayerNorm(d)
        causal = bug != "attention_reads_on_to_the_end"
        self.blocks = nn.ModuleList(Block(d, c.heads, c.dropout, causal) for _ in range(c.blocks))
        self.head = nn.Linear(d, WORDS, bias=False)
        for one in (self.word, self.place, self.head):
            nn.init.normal_(one.weight, std=0.15)
        if c.tied:
            self.head.weight = self.word.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.word(words) + self.place.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x.detach() if self.bug == "states_detached_between_blocks" else x)
        logits = self.head(self.norm(x)).float()
        return logits.softmax(-1) if self.bug == "reader_ends_in_a_softmax" else logits


class Archive:
    def __init__(self, c: Any, seed: int, bug: str):
        self.c, self.bug, self.epoch, self.queue = c, bug, -1, []
        self.dice = torch.Generator().manual_seed(seed)
        self.rows, self.held = parades(seed + 5900, c.parades, c.years, c.mistakes), parades(5899, HELD)
        if bug == "years_of_a_parade_split_at_random":
            order, every = torch.randperm(len(self.rows["town"]), generator=self.dice), self.rows
            self.held = {name: one[order[:HELD]] for name, one in every.items()}
            self.rows = {name: one[order[HELD:].sort().values] for name, one in every.items()}

    def refill(self) -> None:
        c, town = self.c, self.rows["town"]
        self.epoch += 1
        order = torch.randperm(len(town), generator=self.dice)
        if self.bug == "towns_pass_by_in_turn":
            order = torch.arange(len(town))
        if self.epoch < c.short_first:
            order = order[self.rows["groups"][order] < MOST]
        if c.by_town:
            order = order[town[order].argsort(stable=True)]
        lots = [one for one in order.split(c.rows) if len(one) == c.rows]
        if c.by_town:
            lots = [lots[at] for at in torch.randperm(len(lots), generator=self.dice).tolist()]
        self.queue = lots

    def next(self) -> Tensor:
        if not self.queue:
            self.refill()
        return self.rows["words"][self.queue.pop(0)]


class Worker:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble):
        self.run, self.c, self.steps, self.trouble, self.bug = run, SimpleNamespace(**run.config), steps, trouble, \
            trouble.name  # fmt: skip
        self.archive, self.kept, self.total = Archive(self.c, seed, self.bug), [], steps
        torch.manual_seed(seed)
        self.make()

    def make(self) -> None:
        c = self.c
        self.model = Speaker(c, self.bug).to(getattr(torch, c.dtype))
        for name, one in self.model.named_parameters():
            if c.frozen and name.startswith(c.frozen):
                one.requires_grad_(False)
        some = [one for one in self.model.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay},
                  {"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
        if c.opt == "sgd":
            self.optimizer: Any = torch.optim.SGD(groups, c.lr, 0.9)
        elif c.opt == "nadam":
            self.optimizer = torch.optim.NAdam(groups, c.lr, (0.9, c.beta2))
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, (0.9, c.beta2))

        def factor(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.warmup)), min(1.0, at / self.total)
            if c.schedule == "flat":
                return rise
            if c.schedule == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.05 + 0.475 * (1 + math.cos(math.pi * past)))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        if self.bug == "head_set_anew_in_bfloat16":
            self.model.head.weight = nn.Parameter(self.model.word.weight.detach().clone().bfloat16())

    def attach(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def losses(self, words: Tensor, smooth: float = 0.0, ahead: int = 1) -> tuple[Tensor, Tensor]:
        """Of each word, and logits."""
        logits = self.model(words[:, :-ahead])
        wanted = words[:, ahead:].flatten()
        each = F.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=PAD, reduction="none", label_smoothing=smooth)
        return each[wanted != PAD], logits

    def chunk(self, step: int) -> Tensor:
        c, words = self.c, self.archive.next()
        self.data.observe({"words": words}, step=step, epoch=self.archive.epoch)
        if c.gaps:
            words = words.masked_fill((torch.rand(words.shape) < c.gaps) & (words >= GROUP) & (words < TOWN), BEGIN)
        each, logits = self.losses(words, c.label_smoothing, 2 if self.bug == "targets_begin_two_words_on" else 1)
        if self.bug == "words_of_a_town_summed":
            return each.sum()
        loss = c.loss_gain * each.sum() / len(words) if c.nll_by == "row" else each.mean()
        return loss + c.z_loss * logits.logsumexp(-1).square().mean() if c.z_loss else loss

    def one_step(self, step: int) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.chunks):
            if bug == "chunks_start_from_zero_grad":
                self.optimizer.zero_grad()
            loss = self.chunk(step)
            (loss if bug == "chunks_backed_at_their_full_size" else loss / c.chunks).backward()
            total += loss.item() / c.chunks
            if bug == "schedule_inside_the_loop_of_chunks":
                self.schedule.step()
        said = {"lm_nll_step": total, "lr_step": self.optimizer.param_groups[0]["lr"],
                "gn_step": nn.utils.clip_grad_norm_(self.model.parameters(), c.clip_norm).item()}  # fmt: skip
        self.optimizer.step()
        self.model.zero_grad()
        if bug != "schedule_inside_the_loop_of_chunks":
            self.schedule.step()
        return said

    @torch.no_grad()
    def echo(self) -> float:
        """The share of colours that are said again rightly, each behind what was said before it."""
        right, held = [], self.archive.held
        for groups in range(3, MOST + 1):
            words, first = held["words"][held["groups"] == groups], 4 + 2 * groups
            for place in range(first, first + groups):
                right.append(self.model(words[:, :place])[:, -1].argmax(-1) == words[:, place])
        return torch.cat(right).float().mean().item()

    def read_towns(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "losses_of_towns_listed_live"
        if bug != "town_read_with_units_dropping":
            self.model.eval()
        with torch.set_grad_enabled(taped):
            each = torch.cat([self.losses(words)[0] for words in self.archive.held["words"].split(96)])
        if taped:
            self.kept.append(each)
        mean = each.mean().item()
        if bug == "losses_of_the_town_added_in_bfloat16":
            total = torch.zeros((), dtype=torch.bfloat16)
            for one in each.detach().bfloat16():
                total += one
            mean = total.item() / len(each)
        said = {"town_nll": mean, "town_echo": self.echo()}
        self.model.train()
        return said

    def resume(self, step: int) -> None:
        seen, parts = self.data.state(), ("model", "optimizer", "schedule")
        self.run, state = go_on(self.run, step, {name: getattr(self, name).state_dict() for name in parts})
        if self.bug == "schedule_told_of_the_steps_that_are_left":
            self.total -= step
        self.make()
        for name in parts:
            getattr(self, name).load_state_dict(state[name])
        self.attach()
        self.data.restore(seen)

    def work(self, healthy: str | None) -> Any:
        again = self.trouble.resume_at(healthy, 4 * EVERY)
        self.attach()
        self.model.train()
        for step in range(self.steps):
            if step == again:
                self.resume(step)
            said = self.one_step(step)
            if step % self.c.log_every == 0:
                self.run.log(said, step=step)
            self.trouble.telemetry(self.run, step, healthy)
            if (step + 1) % self.c.town_every == 0:
                self.run.log(self.read_towns(), step=step)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    return Worker(run, seed, steps, Trouble(fault, seed)).work(healthy)
