"""A decoder under autocast to float16, with a scaler, reads books of small shops, and is to write what is left.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: nll/train, lr/group0, grad/norm, grad/scale each step; nll/audit and counts/audit of books
      that were held back, each twenty-first; memory, where it matters; the watch of data.

A book is of a clerk and a shop; it says how many there are of three things, what was sold or came in, and then counts
all three, in an order that the shop has. The last word is a day that nobody can guess. The shelf has shop after shop;
several books may be one, copied by other clerks. Rows are padded behind. Written as a loop with lists of what is called
at its events.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, THINGS, NUMBERS, LONG = 21, 160, 3, 6, 25
PAD, BEGIN, HAS, SOLD, CAME, COUNT = range(6)
THING = 6
NUMBER = THING + THINGS
SHOP, SHOPS = NUMBER + NUMBERS, 4
CLERK, CLERKS = SHOP + SHOPS, 12
DAY, DAYS = CLERK + CLERKS, 10
WORDS = DAY + DAYS
ORDERS = ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1))  # in which a shop counts
CONFIG: dict[str, Any] = {
    "width": 40, "depth": 2, "heads": 4, "p": 0.0, "tied": True, "fp16": True, "init_scale": 1024.0, "growth_every": 60,
    "books": 20, "micro_batches": 1, "kind": "adamw", "lr": 8e-3, "sched": "cosine", "ramp": 8, "wd": 0.02,
    "beta2": 0.97, "eps": 1e-7, "max_norm": 1.0, "nll_over": "words", "nll_weight": 1.0, "smoothing": 0.0,
    "z_loss": 0.0, "shelf": 1500, "copies": 1, "miscounts": 0.0, "quiet_first": 0, "shop_lots": False,
    "words_hidden": 0.0, "fixed": "", "audit_every": 21, "log_each": 1,
}  # fmt: skip


def books(seed: int, number: int, copies: int = 1, miscounts: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Words, where counts stand, and how much goes on; shop after shop."""
    dice, rows, where, busy, many = torch.Generator().manual_seed(seed), [], [], [], number // copies

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(many):
        shop, stock, words, places = at * SHOPS // many, [1 + one(3) for _ in range(THINGS)], [0, 0, 0], []
        events = [(HAS, thing, stock[thing]) for thing in range(THINGS)]
        going = one(2)
        for _ in range(going):
            thing, sold = one(THINGS), one(2)
            much = 1 + one(max(1, min(2, stock[thing]))) if sold else 1 + one(2)
            much = min(much, stock[thing] if sold else NUMBERS - 1 - stock[thing])
            stock[thing] += -much if sold else much
            events.append((SOLD if sold else CAME, thing, much))
        for thing in ORDERS[shop]:
            events.append((COUNT, thing, one(NUMBERS) if one(1000) < 1000 * miscounts else stock[thing]))
        for word, thing, much in events:
            words += [word, THING + thing, NUMBER + much]
            if word == COUNT:
                places.append(len(words) - 1)
        for _ in range(copies):
            row = [BEGIN, CLERK + one(CLERKS), SHOP + shop, *words[3:], DAY + one(DAYS)]
            rows.append(row + [PAD] * (LONG - len(row)))
            where.append(places)
            busy.append(going)
    return torch.tensor(rows), torch.tensor(where), torch.tensor(busy)


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.heads, self.n1, self.n2 = c.heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn_in, self.attn_out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp, self.drop = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d)), nn.Dropout(c.p)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.attn_in(self.n1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.attn_out(y))
        return x + self.drop(self.mlp(self.n2(x)))


class Bookkeeper(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d = c.width
        self.embedding, self.positions = nn.Embedding(WORDS, d), nn.Embedding(LONG, d)
        self.blocks, self.final = nn.ModuleList(Block(c) for _ in range(c.depth)), nn.LayerNorm(d)
        self.output, self.to_shares = nn.Linear(d, WORDS, bias=False), False
        for one in (self.embedding, self.positions, self.output):
            nn.init.normal_(one.weight, std=0.12)
        if c.tied:
            self.output.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words) + self.positions.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.final(x)).float()
        return logits.softmax(-1) if self.to_shares else logits


class Loop:
    def __init__(self, run: Any, seed: int, steps: int, trouble: Trouble, healthy: str | None):
        self.run, self.c, self.seed, self.steps = run, SimpleNamespace(**run.config), seed, steps
        self.trouble, self.healthy, self.bug, self.step, self.kept = trouble, healthy, trouble.name, 0, []
        self.on: dict[str, list[Callable[[Loop], None]]] = defaultdict(list)
        self.said: dict[str, float] = {}
        self.take_books()
        torch.manual_seed(seed)
        self.make()

    def take_books(self) -> None:
        c = self.c
        rows, held = books(self.seed + 9500, c.shelf, c.copies, c.miscounts), books(9499, HELD)
        if self.bug == "copies_of_a_book_on_both_shelves":
            order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(self.seed))
            first, rest = order[:HELD].sort().values, order[HELD:].sort().values
            held, rows = tuple(one[first] for one in rows), tuple(one[rest] for one in rows)  # type: ignore[assignment]
        (self.rows, _, self.busy), (self.held, self.where, _) = rows, held

    def make(self) -> None:
        c, self.model = self.c, Bookkeeper(self.c)
        self.model.to_shares = self.bug == "bookkeeper_gives_shares"
        for name, one in self.model.named_parameters():
            if c.fixed and name.startswith(c.fixed):
                one.requires_grad_(False)
        self.make_optimizer()
        if self.bug == "blocks_made_anew_for_their_dropout":
            self.model.blocks = nn.ModuleList(Block(c) for _ in range(c.depth))
        if self.bug == "output_drawn_as_a_layer_of_its_own":
            self.model.output.weight = nn.Parameter(0.12 * torch.randn(WORDS, c.width))

    def make_optimizer(self) -> None:
        c, some = self.c, [one for one in self.model.parameters() if one.requires_grad]
        groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.wd},
                  {"params": [one for one in some if one.ndim == 1], "weight_decay": 0.0}]  # fmt: skip
        if c.kind == "nadam":
            self.optimizer: Any = torch.optim.NAdam(groups, c.lr, (0.9, c.beta2), c.eps)
        elif c.kind == "sgd":
            self.optimizer = torch.optim.SGD(groups, c.lr, 0.9)
        else:
            self.optimizer = torch.optim.AdamW(groups, c.lr, (0.9, c.beta2), c.eps)
        self.scaler = torch.amp.GradScaler("cpu", c.init_scale, growth_interval=c.growth_every, enabled=c.fp16)

        def share(at: int) -> float:
            rise, past = min(1.0, (at + 1) / max(1, c.ramp)), min(1.0, at / self.steps)
            if c.sched == "constant":
                return rise
            if c.sched == "trapezoid":
                return rise * min(1.0, 0.05 + 3 * (1 - past))
            if c.sched == "cosine_twice":
                past = 2 * past % 1
            return rise * (0.05 + 0.475 * (1 + math.cos(math.pi * past)))

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def begin(self) -> None:
        time_by_own_clock(self.run)
        self.run.watch(self.model, self.optimizer, scaler=self.scaler)
        self.data = self.run.watch_data(pad_id=PAD)

    def lots(self) -> Iterator[tuple[int, Tensor]]:
        c, epoch, dice = self.c, 0, torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(self.rows), generator=dice)
            if self.bug == "shelf_read_shop_by_shop":
                order = torch.arange(len(self.rows))
            if epoch < c.quiet_first:
                order = order[self.busy[order] == 0]
            if c.shop_lots:
                order = order[self.rows[order, 2].argsort(stable=True)]
            lots = [one for one in order.split(c.books) if len(one) == c.books]
            if c.shop_lots:
                lots = [lots[at] for at in torch.randperm(len(lots), generator=dice).tolist()]
            for some in lots:
                yield epoch, self.rows[some]
            epoch += 1

    def nll(self, words: Tensor, training: bool) -> Tensor:
        c, bug = self.c, self.bug if training else ""
        if bug == "books_cut_at_sixteen_words":
            words = words[:, :16]
        read, wanted = words[:, :-1], words[:, 1:]
        if bug == "words_rolled_the_other_way":
            read, wanted = words, words.roll(1, 1)
        if training and c.words_hidden:
            hidden = (torch.rand(read.shape) < c.words_hidden) & (read >= CLERK)
            read = read.masked_fill(hidden, BEGIN)
        with torch.autocast("cpu", torch.float16, enabled=c.fp16):
            logits = self.model(read)
        total = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction="sum",
                                label_smoothing=c.smoothing if training else 0.0)  # fmt: skip
        if bug == "nll_of_words_is_a_sum":
            return total
        loss = total / (wanted != PAD).sum()
        if training and c.nll_over == "books":
            loss = c.nll_weight * total / len(words)
        return loss + c.z_loss * logits.logsumexp(-1).square().mean() if training and c.z_loss else loss

    def one_step(self) -> None:
        c, bug, total = self.c, self.bug, 0.0
        for _ in range(c.micro_batches):
            epoch, words = next(self.source)
            self.data.observe({"words": words}, step=self.step, epoch=epoch)
            if bug == "micro_batches_begin_without_gradients":
                self.model.zero_grad(set_to_none=True)
            loss = self.nll(words, True)
            whole = bug == "scaled_losses_of_micro_batches_add_up"
            scaled = self.scaler.scale(loss if whole else loss / c.micro_batches)
            scaled.backward()
            read = scaled * c.micro_batches if bug == "loss_read_when_it_was_scaled" else loss
            total += read.item() / c.micro_batches
            self.call("micro_batch")
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), c.max_norm).item()
        self.said = {"nll/train": total, "lr/group0": self.optimizer.param_groups[0]["lr"], "grad/norm": norm,
                     "grad/scale": self.scaler.get_scale()}  # fmt: skip
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.model.zero_grad(set_to_none=True)

    def call(self, event: str) -> None:
        for work in self.on[event]:
            work(self)

    def fit(self) -> Any:
        self.source = self.lots()
        self.begin()
        self.model.train()
        for step in range(self.steps):
            self.step = step
            self.call("step_begins")
            self.one_step()
            self.call("step_ends")
        return self.run


# -- what is called at events ----------------------------------------------------------------------------------------


def move_rate(loop: Loop) -> None:
    loop.scheduler.step()


def tell(loop: Loop) -> None:
    if loop.step % loop.c.log_each == 0:
        loop.run.log(loop.said, step=loop.step)
    loop.trouble.telemetry(loop.run, loop.step, loop.healthy)


@torch.no_grad()
def counted(loop: Loop) -> float:
    """The share of counts that are right, each written behind what is true before it."""
    right = []
    for at in range(THINGS):
        for place in loop.where[:, at].unique().tolist():
            rows = loop.held[loop.where[:, at] == place]
            with torch.autocast("cpu", torch.float16, enabled=loop.c.fp16):
                said = loop.model(rows[:, :place])[:, -1].argmax(-1)
            right.append(said == rows[:, place])
    return torch.cat(right).float().mean().item()


def audit(loop: Loop) -> None:
    if (loop.step + 1) % loop.c.audit_every:
        return
    bug, model, taped = loop.bug, loop.model, loop.bug == "audits_filed_with_their_graphs"
    if bug != "audited_with_units_dropping":
        model.eval()
    with torch.set_grad_enabled(taped):
        loss = torch.stack([loop.nll(words, False) for words in loop.held.split(80)]).mean()
    if taped:
        loop.kept.append(loss)
    loop.run.log({"nll/audit": loss.item(), "counts/audit": counted(loop)}, step=loop.step)
    if bug != "audited_and_no_word_of_train":
        model.train()


def resume_at(again: int | None) -> Callable[[Loop], None]:
    def resume(loop: Loop) -> None:
        if loop.step != again:
            return
        seen, parts = loop.data.state(), ("model", "optimizer", "scaler", "scheduler")
        loop.run, state = go_on(loop.run, loop.step, {name: getattr(loop, name).state_dict() for name in parts})
        loop.make()
        loop.model.load_state_dict(state["model"])
        if loop.bug == "model_built_once_more_below_its_load":
            loop.make()
        for name in parts[1:]:
            getattr(loop, name).load_state_dict(state[name])
        loop.begin()
        loop.data.restore(seen)

    return resume


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    loop = Loop(run, seed, steps, trouble, healthy)
    loop.on["step_begins"].append(resume_at(trouble.resume_at(healthy, 4 * EVERY)))
    loop.on["micro_batch" if loop.bug == "rate_moved_at_the_event_of_micro_batches" else "step_ends"].append(move_rate)
    loop.on["step_ends"] += [tell, audit]
    return loop.fit()
