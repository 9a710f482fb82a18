"""A decoder in bfloat16 alone reads listings of a machine with three registers, and is to write what it shows.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: asm/xent, asm/lr, asm/norm each step; test/xent and test/shown of listings that were held
      back, each twenty-first; memory, where it matters; the watch of data.

A listing is of a programmer and a dialect, sets two registers, moves and counts, and has the machine show three of
them; what it shows is what the register holds. The dialect says in which order a statement has its parts. The last word
is a day that nobody can guess. The archive has dialect after dialect; several listings may be one, typed by others.
Rows are padded behind. Weights, gradients and moments are in bfloat16; logits are made float for their loss. Written as
a class with a configuration of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, REGISTERS, DIGITS, LONG = 21, 160, 3, 6, 27
PAD, BEGIN, SET, MOVE, COUNT, SHOW = range(6)
REGISTER = 6
DIGIT = REGISTER + REGISTERS
DIALECT, DIALECTS = DIGIT + DIGITS, 4
TYPIST, TYPISTS = DIALECT + DIALECTS, 14
DAY, DAYS = TYPIST + TYPISTS, 12
WORDS = DAY + DAYS  # 45


@dataclass
class Config:
    embed: int = 40
    blocks: int = 2
    heads: int = 4
    drop: float = 0.0
    tie: bool = True
    dtype: str = "bfloat16"
    listings_a_step: int = 20
    split: int = 1
    algorithm: str = "adamw"
    rate: float = 6e-3
    decays: str = "cosine"
    rise: int = 8
    weight_decay: float = 0.02
    beta2: float = 0.97
    eps: float = 1e-6
    clip: float = 1.0
    xent_over: str = "words"
    smooth: float = 0.0
    normaliser: float = 0.0
    listings: int = 1400
    typed: int = 1
    misprints: float = 0.0
    short_first: int = 0
    dialect_batches: bool = False
    words_lost: float = 0.0
    held_still: str = ""
    test_every: int = 21
    log_every: int = 1


CONFIG: dict[str, Any] = {one.name: one.default for one in fields(Config)}


# -- listings --------------------------------------------------------------------------------------------------------


def listings(seed: int, number: int, typed: int = 1, misprints: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Words, where something is shown, and how many statements there are; dialect after dialect."""
    dice, rows, shown, long, many = torch.Generator().manual_seed(seed), [], [], [], number // typed

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        dialect, holds = at * DIALECTS // many, [0] * REGISTERS
        words: list[int] = []
        places: list[int] = []

        def state(word: int, first: int, second: int, dialect: int = dialect, words: list[int] = words) -> None:
            parts = [word, first, second]
            words += [parts[at] for at in ((0, 1, 2), (0, 2, 1))[dialect % 2]]

        for register in range(REGISTERS - 1):
            holds[register] = one(DIGITS)
            state(SET, REGISTER + register, DIGIT + holds[register])
        steps = one(2)
        for _ in range(steps):
            source, goal = one(REGISTERS), one(REGISTERS)
            if one(2):
                holds[goal] = holds[source]
                state(MOVE, REGISTER + goal, REGISTER + source)
            else:
                holds[goal] = (holds[goal] + 1) % DIGITS
                state(COUNT, REGISTER + goal, DIGIT + 1)
        for register in range(REGISTERS):
            said = one(DIGITS) if one(1000) < 1000 * misprints else holds[register]
            words += [SHOW, REGISTER + register, DIGIT + said]
            places.append(len(words) + 2)
        day = DAY + one(DAYS)
        for _ in range(typed):
            row = [BEGIN, TYPIST + one(TYPISTS), DIALECT + dialect, *words, day]
            rows.append(row + [PAD] * (LONG - len(row)))
            shown.append(places)
            long.append(steps)
    return torch.tensor(rows), torch.tensor(shown), torch.tensor(long)


# -- decoder ---------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        d = c.embed
        self.heads, self.attn_norm, self.mlp_norm = c.heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w1, self.w2, self.drop = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Dropout(c.drop)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attn_norm(x)
        q, k, v = (one(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.wo(y))
        return x + self.drop(self.w2(F.gelu(self.w1(self.mlp_norm(x)))))


class Machine(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        d = c.embed
        self.tokens, self.places = nn.Embedding(WORDS, d), nn.Embedding(LONG, d)
        self.blocks, self.norm = nn.ModuleList(Block(c) for _ in range(c.blocks)), nn.RMSNorm(d)
        self.head, self.to_shares = nn.Linear(d, WORDS, bias=False), False
        nn.init.normal_(self.tokens.weight, std=0.12)
        nn.init.normal_(self.places.weight, std=0.12)
        nn.init.normal_(self.head.weight, std=0.12)
        if c.tie:
            self.head.weight = self.tokens.weight

    def forward(self, words: Tensor, first: int = 0) -> Tensor:
        x = self.tokens(words) + self.places.weight[first : first + words.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return logits.softmax(-1) if self.to_shares else logits


# -- training --------------------------------------------------------------------------------------------------------


class Assembler:
    def __init__(self, run: Any, seed: int, steps: int, bug: str):
        self.run, self.seed, self.steps, self.bug = run, seed, steps, bug
        self.c = Config(**{name: one for name, one in dict(run.config).items() if name in CONFIG})
        self.report: list[Any] = []
        self.load_listings()
        torch.manual_seed(seed)
        self.load_model()

    def load_listings(self) -> None:
        c = self.c
        rows, held = listings(self.seed + 9900, c.listings, c.typed, c.misprints), listings(9899, HELD)
        if self.bug == "listings_of_one_program_in_both_archives":
            order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(self.seed))
            first, rest = order[:HELD].sort().values, order[HELD:].sort().values
            held, rows = tuple(one[first] for one in rows), tuple(one[rest] for one in rows)  # type: ignore[assignment]
        (self.rows, _, self.long), (self.held, self.shown, _) = rows, held

    def load_model(self) -> None:
        c = self.c
        self.model = Machine(c).to(getattr(torch, c.dtype))
        self.model.to_shares = self.bug == "machine_answers_in_shares_of_one"
        for name, one in self.model.named_parameters():
            if c.held_still and name.startswith(c.held_still):
                one.requires_grad_(False)
        self.load_optimizer()
        if self.bug == "first_weights_assigned_behind_the_optimizer":
            state = {name: one.detach().clone() for name, one in self.model.state_dict().items()}
            self.model.load_state_dict(state, assign=True)
            self.model.head.weight = self.model.tokens.weight
        if self.bug == "head_turned_to_its_dtype_by_a_new_parameter":
            self.model.head.weight = nn.Parameter(self.model.tokens.weight.detach().clone())

    def load_optimizer(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay},
                  {"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
        if c.algorithm == "adamax":
            self.optimizer: Any = torch.optim.Adamax(groups, c.rate, (0.9, c.beta2), c.eps)
        elif c.algorithm == "sgd":
            self.optimizer = torch.optim.SGD(groups, c.rate, 0.9)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.rate, (0.9, c.beta2), c.eps)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.rise)), min(1.0, at / self.steps)
            if c.decays == "never":
                return rise
            if c.decays == "at_the_end":
                return rise * min(1.0, 0.06 + 3 * (1 - past))
            if c.decays == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.06 + 0.47 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def watch(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer)
        self.data = self.run.watch_data(pad_id=PAD)

    def batches(self) -> Iterator[tuple[int, Tensor]]:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.rows), generator=dice)
            if self.bug == "archive_read_dialect_by_dialect":
                order = torch.arange(len(self.rows))
            if epoch < c.short_first:
                order = order[self.long[order] == 0]
            if c.dialect_batches:
                order = order[self.rows[order, 2].argsort(stable=True)]
            lots = [one for one in order.split(c.listings_a_step) if len(one) == c.listings_a_step]
            if c.dialect_batches:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, self.rows[some]
            epoch += 1

    def xent(self, listing: Tensor, training: bool) -> Tensor:
        c, bug = self.c, self.bug
        read, wanted = listing[:, :-1], listing[:, 1:]
        if training and bug == "wanted_words_are_those_that_are_read":
            wanted = read
        if training and c.words_lost:
            lost = (torch.rand(read.shape) < c.words_lost) & (read >= TYPIST)
            read = read.masked_fill(lost, BEGIN)
        logits = self.model(read)
        none = -100 if bug == "padding_is_a_word_like_any_other" else PAD
        summed = training and (c.xent_over == "listings" or bug == "xent_of_a_listing_is_not_divided")
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=none,
                               reduction="sum" if summed else "mean",
                               label_smoothing=c.smooth if training else 0.0)  # fmt: skip
        loss = loss / len(listing) if summed else loss
        return loss + c.normaliser * logits.logsumexp(-1).square().mean() if training and c.normaliser else loss

    def step(self, at: int) -> dict[str, float]:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.split):
            if bug == "gradients_set_to_none_for_each_part":
                self.model.zero_grad(set_to_none=True)
            epoch, listing = next(self.source)
            self.data.observe({"words": listing}, step=at, epoch=epoch)
            loss = self.xent(listing, True)
            (loss if bug == "parts_add_up_in_bfloat16" else loss / c.split).backward()
            total += loss.item() / c.split
            if bug == "scheduler_ticks_with_each_part":
                self.scheduler.step()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.clip).item()
        said = {"asm/xent": total, "asm/lr": self.optimizer.param_groups[0]["lr"], "asm/norm": norm}
        self.optimizer.step()
        self.optimizer.zero_grad()
        if bug != "scheduler_ticks_with_each_part":
            self.scheduler.step()
        return said

    @torch.no_grad()
    def shows(self) -> float:
        """The share of what is shown that is right, when the machine writes it word by word."""
        right = []
        for at in range(self.shown.shape[1]):
            for place in self.shown[:, at].unique().tolist():
                rows = self.held[self.shown[:, at] == place]
                front, first = rows[:, :place], 0
                if self.bug == "places_of_what_is_written_begin_anew":
                    front, first = rows[:, max(0, place - 8) : place], 0  # what the cache has left, at its own places
                right.append(self.model(front, first)[:, -1].argmax(-1) == rows[:, place])
        return torch.cat(right).float().mean().item()

    def test(self) -> dict[str, float]:
        bug, taped = self.bug, self.bug == "test_losses_reported_with_their_past"
        if bug != "tested_while_units_drop_out":
            self.model.eval()
        with torch.set_grad_enabled(taped):
            loss = torch.stack([self.xent(listing, False) for listing in self.held.split(80)]).mean()
        if taped:
            self.report.append(loss)
        said = {"test/xent": loss.item(), "test/shown": self.shows()}
        if bug != "tested_and_kept_in_eval":
            self.model.train()
        return said

    def resume(self, at: int) -> None:
        seen, parts = self.data.state(), ("model", "optimizer", "scheduler")
        self.run, state = go_on(self.run, at, {name: getattr(self, name).state_dict() for name in parts})
        self.load_model()
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.watch()
        self.data.restore(seen)

    def train(self, trouble: Trouble, healthy: str | None) -> Any:
        again = trouble.resume_at(healthy, 4 * EVERY)
        self.watch()
        self.source = self.batches()
        self.model.train()
        for at in range(self.steps):
            if at == again:
                self.resume(at)
            said = self.step(at)
            if at % self.c.log_every == 0:
                self.run.log(said, step=at)
            trouble.telemetry(self.run, at, healthy)
            if (at + 1) % self.c.test_every == 0:
                self.run.log(self.test(), step=at)
        return self.run


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    return Assembler(run, seed, steps, trouble.name).train(trouble, healthy)
