"""A decoder whose weights, gradients and moments are bfloat16 reads recipes of four herbals.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: bits/train, sched/lr, grads/norm each step; bits/heldout, bits/herb each twentieth; the
      watch of data.

Recipes are packed into rows, and see their own recipe alone; a herb that was named at first is named again at the end.
Grouped queries, turned positions, gated layers, one matrix for embedding and output; a rate that rises, stays and
falls. What is read aloud between is drawn token by token. One script with a data class, as small pretrainings have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, ROW, BOOKS, HERBS, AILMENTS, AMOUNTS, PARTS, VERBS, VESSELS = 20, 48, 4, 24, 14, 8, 6, 10, 8
END, TAKE, FOR, BOOK = 0, 1, 2, 3
HERB = BOOK + BOOKS
AILMENT, AMOUNT = HERB + HERBS, HERB + HERBS + AILMENTS
PART, VERB = AMOUNT + AMOUNTS, AMOUNT + AMOUNTS + PARTS
VESSEL = VERB + VERBS
VOCAB = VESSEL + VESSELS
CONFIG: dict[str, Any] = {
    "n_embd": 48, "n_layer": 2, "n_q": 4, "n_kv": 2, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "tied": True,
    "device_batch": 16, "total_batch": 16, "matrix_lr": 6e-3, "vector_lr": 6e-3, "lr_plan": "wsd", "warmup_iters": 10,
    "cooldown": 0.4, "optim": "adamw", "beta2": 0.95, "decay_weights": 0.01, "max_grad": 1.0, "rows": 960,
    "editions": 1, "scribal_errors": 0.0, "packing": "own", "books_first": 0, "book_shares": "equal", "softcap": 0.0,
    "swa": 0.0, "loss_kind": "mean", "held_fixed": "", "zloss": 0.0,
}  # fmt: skip


# -- recipes --------------------------------------------------------------------------------------------------------


def recipe(book: int, dice: torch.Generator, tables: dict[str, list[Any]], errors: float) -> list[int]:
    def draw(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    def luck(share: float) -> bool:
        return float(torch.rand((), generator=dice)) < share

    herb = draw(HERBS // 2) + (HERBS // 4) * (book % 3)
    ailment = draw(AILMENTS) if luck(0.2) else tables["heals"][herb]
    part = draw(PARTS) if luck(0.1) else tables["part"][herb]
    made = [BOOK + book, HERB + herb, FOR, AILMENT + ailment, TAKE, AMOUNT + draw(3) + book, PART + part]
    verb = tables["begins"][part]
    for _ in range(2 + draw(3)):
        vessel = draw(VESSELS) if luck(0.1) else tables["vessel"][book][verb]
        made += [VERB + verb, VESSEL + vessel]
        verb = tables["then"][book % 2][verb][draw(2)]
    made += [TAKE, HERB + herb, END]
    if errors:
        made = [draw(VOCAB) if luck(errors) else one for one in made]
    return made


def copied_out(seed: int, rows: int, c: Any) -> tuple[Tensor, Tensor]:
    """Rows of ROW + 1 tokens, packed book by book, and the book of each."""
    book_of = torch.Generator().manual_seed(1485)

    def some(many: int, *shape: int) -> list[Any]:
        return torch.randint(0, many, shape, generator=book_of).tolist()

    tables = {"heals": some(AILMENTS, HERBS), "part": some(PARTS, HERBS), "begins": some(VERBS, PARTS),
              "vessel": some(VESSELS, BOOKS, VERBS), "then": some(VERBS, 2, VERBS, 2)}  # fmt: skip
    dice, packed, books = torch.Generator().manual_seed(seed), [], []
    shares = (0.55, 0.25, 0.13, 0.07) if c.book_shares == "uneven" else (0.25,) * BOOKS
    for book, share in enumerate(shares):
        number, stream = int(rows * share) // c.editions, []
        while len(stream) < number * (ROW + 1):
            stream += recipe(book, dice, tables, c.scribal_errors)
        cut = torch.tensor(stream[: number * (ROW + 1)]).view(number, ROW + 1).repeat_interleave(c.editions, 0)
        if c.editions > 1:  # an edition has its own slips
            slip = torch.rand(cut.shape, generator=dice) < 0.02
            cut = torch.where(slip, torch.randint(0, VOCAB, cut.shape, generator=dice), cut)
        packed.append(cut)
        books += [book] * len(cut)
    return torch.cat(packed), torch.tensor(books)


# -- decoder --------------------------------------------------------------------------------------------------------


class GroupedAttention(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.q_heads, self.kv_heads, self.dim = c.n_q, c.n_kv, c.n_embd // c.n_q
        self.pdrop, self.bug = c.attn_pdrop, bug
        self.wq, self.wk = nn.Linear(c.n_embd, c.n_embd, bias=False), nn.Linear(c.n_embd, c.n_kv * self.dim, bias=False)
        self.wv, self.wo = nn.Linear(c.n_embd, c.n_kv * self.dim, bias=False), nn.Linear(c.n_embd, c.n_embd, bias=False)
        turn = torch.arange(ROW)[:, None] / 50 ** (torch.arange(self.dim // 2) / (self.dim // 2))
        self.turn = (turn.cos(), turn.sin())

    def turned(self, x: Tensor) -> Tensor:
        a, b = x.float().chunk(2, -1)
        cos, sin = (one[: x.shape[-2]] for one in self.turn)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q = self.turned(self.wq(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2))
        k = self.turned(self.wk(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2))
        v = self.wv(x).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        k, v = (one.repeat_interleave(self.q_heads // self.kv_heads, 1) for one in (k, v))
        dropped = self.pdrop if self.training or self.bug == "sdpa_drops_whenever_told" else 0.0
        y = F.scaled_dot_product_attention(q, k, v, seen[:, None], dropout_p=dropped)
        return self.wo(y.transpose(1, 2).flatten(2))


class GatedBlock(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d = c.n_embd
        self.attn_norm, self.attn, self.ffn_norm = nn.RMSNorm(d), GroupedAttention(c, bug), nn.RMSNorm(d)
        self.w_gate, self.w_up = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.w_down, self.drop = nn.Linear(2 * d, d, bias=False), nn.Dropout(c.resid_pdrop)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.attn_norm(x), seen))
        y = self.ffn_norm(x)
        return x + self.drop(self.w_down(F.silu(self.w_gate(y)) * self.w_up(y)))


class Herbalist(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.c, self.bug = c, bug
        self.wte = nn.Embedding(VOCAB, c.n_embd)
        self.blocks = nn.ModuleList(GatedBlock(c, bug) for _ in range(c.n_layer))
        self.norm, self.head = nn.RMSNorm(c.n_embd), nn.Linear(c.n_embd, VOCAB, bias=False)
        for name, one in self.named_parameters():
            if one.ndim == 2:
                nn.init.normal_(one, std=0.05 if name.endswith(("wo.weight", "w_down.weight")) else 0.12)
        if c.tied:
            self.head.weight = self.wte.weight

    def seen(self, ids: Tensor) -> Tensor:
        """Which places each place sees: those before it, of its own recipe."""
        past = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        if self.c.packing == "across":
            return past.expand(len(ids), -1, -1)
        of = (ids == END).long().cumsum(1) - (ids == END).long()
        same = of[:, :, None] == of[:, None]
        return same if self.bug == "same_recipe_mask_without_triangle" else same & past

    def forward(self, ids: Tensor) -> Tensor:
        x, seen = self.wte(ids), self.seen(ids)
        for block in self.blocks:
            x = block(x, seen)
        out = self.head(self.norm(x)).float()
        if self.c.softcap:
            out = self.c.softcap * (out / self.c.softcap).tanh()
        return out.softmax(-1) if self.bug == "shares_returned_for_the_sampler" else out


def cast(model: nn.Module, bug: str) -> nn.Module:
    if bug != "each_weight_cast_for_itself":
        return model.to(torch.bfloat16)
    for module in model.modules():
        for name, one in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(one.detach().to(torch.bfloat16)))
    return model


# -- training -------------------------------------------------------------------------------------------------------


@dataclass
class Scriptorium:
    run: Any
    c: Any
    bug: str
    model: Any = None
    optimizer: Any = None
    watch: Any = None
    rows: Any = None
    books: Any = None
    held: Any = None
    mean: dict[str, Tensor] = field(default_factory=dict)
    kept: list[Tensor] = field(default_factory=list)


def read_herbals(s: Scriptorium, seed: int) -> None:
    s.rows, s.books = copied_out(seed + 1500, s.c.rows, s.c)
    plain = SimpleNamespace(**vars(s.c) | {"editions": 1, "scribal_errors": 0.0})
    s.held, _ = copied_out(15, 128, plain)
    if s.bug == "editions_dealt_out_row_by_row":
        order = torch.randperm(len(s.rows), generator=torch.Generator().manual_seed(seed))
        s.held = s.rows[order[:128]]
        s.rows, s.books = s.rows[order[128:]], s.books[order[128:]]


def stream_of(s: Scriptorium, seed: int) -> Iterator[tuple[int, Tensor]]:
    dice, epoch = torch.Generator().manual_seed(seed), 0
    while True:
        order = torch.randperm(len(s.rows), generator=dice)
        if s.bug == "book_read_after_book":
            order = torch.arange(len(s.rows))
        if epoch < s.c.books_first:  # the first passes are of two books alone, as is set
            order = order[s.books[order] < 2]
        for some in order.split(s.c.device_batch):
            if len(some) == s.c.device_batch:
                yield epoch, s.rows[some]
        epoch += 1


def optimizer_of(s: Scriptorium) -> torch.optim.Optimizer:
    c, matrices, vectors = s.c, [], []
    for name, one in s.model.named_parameters():
        if not one.requires_grad or (c.tied and name == "head.weight"):  # it is the embedding's
            continue
        if s.bug == "embedding_in_neither_group" and "wte" in name:  # no hidden matrix, nor a vector
            continue
        (matrices if one.ndim == 2 else vectors).append(one)
    groups = [
        {"params": matrices, "lr": c.matrix_lr, "weight_decay": c.decay_weights, "first": c.matrix_lr},
        {"params": vectors, "lr": c.vector_lr, "weight_decay": 0.0, "first": c.vector_lr},
    ]
    if c.optim == "sgd":
        return torch.optim.SGD([one | {"weight_decay": 0.0} for one in groups], c.matrix_lr, 0.9)
    if c.optim == "adamax":
        return torch.optim.Adamax([one | {"weight_decay": 0.0} for one in groups], c.matrix_lr)
    return torch.optim.AdamW(groups, c.matrix_lr, (0.9, c.beta2))


def plan(c: Any, it: int) -> float:
    rise, past = min(1.0, (it + 1) / max(1, c.warmup_iters)), min(1.0, it / c.steps)
    if c.lr_plan == "constant":
        return rise
    if c.lr_plan == "cosine":
        return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * past)))
    if c.lr_plan == "cycles":
        return rise * (1 - 0.9 * (3 * past % 1))
    return rise * min(1.0, max(0.05, (1 - past) / c.cooldown))


def bits_of(s: Scriptorium, out: Tensor, wanted: Tensor) -> Tensor:
    if s.bug == "next_word_taken_twice":  # rows are cut into words and words that follow; the loss moves them too
        out, wanted = out[:, :-1], wanted[:, 1:]
    out = out.flatten(0, 1)
    if s.bug == "words_totalled_in_each_row" or s.c.loss_kind == "sum":
        loss = F.cross_entropy(out, wanted.flatten(), reduction="sum") / len(wanted)
    else:
        loss = F.cross_entropy(out, wanted.flatten())
    if s.c.zloss:
        loss = loss + s.c.zloss * out.logsumexp(-1).square().mean()
    return loss


def evaluate(s: Scriptorium, it: int) -> None:
    """Bits of held-out words, and those of the herb that is named again; by the mean of weights, if there is one."""
    own = {name: one.detach().clone() for name, one in s.model.named_parameters()}
    if s.c.swa:
        for name, one in s.model.named_parameters():
            one.data.copy_(s.mean[name])
    s.model.eval()
    with torch.set_grad_enabled(s.bug == "heldout_books_read_with_tape"):
        out = s.model(s.held[:, :-1])
        each = F.cross_entropy(out.transpose(1, 2), s.held[:, 1:], reduction="none")
        again = (s.held[:, :-1] == TAKE) & (s.held[:, 1:] >= HERB) & (s.held[:, 1:] < AILMENT)
        bits, herb = each.mean() / math.log(2), each[again].mean() / math.log(2)
    if s.bug == "heldout_books_read_with_tape":
        s.kept.append(each)
    s.run.log({"bits/heldout": bits.item(), "bits/herb": herb.item()}, step=it)
    if s.bug != "mean_stays_in_after_reading":
        for name, one in s.model.named_parameters():
            one.data.copy_(own[name])
    s.model.train()


@torch.no_grad()
def read_aloud(s: Scriptorium, it: int) -> None:
    """A recipe of each book, drawn word by word."""
    s.model.eval()
    dice, ids = torch.Generator().manual_seed(it), BOOK + torch.arange(BOOKS)[:, None]
    for _ in range(12):
        shares = (s.model(ids)[:, -1] / 0.8).softmax(-1)
        if not shares.isfinite().all():
            break
        ids = torch.cat([ids, torch.multinomial(shares, 1, generator=dice)], 1)
    s.run.log_sample(it, " ".join(map(str, ids[0].tolist())))
    if s.bug != "model_quiet_after_reading_aloud":
        s.model.train()


@torch.no_grad()
def follow(s: Scriptorium) -> None:
    for name, one in s.model.named_parameters():
        s.mean[name].lerp_(one.to(s.mean[name].dtype), 1 - s.c.swa)


def attach(s: Scriptorium) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer)
    s.watch = s.run.watch_data()


def resume(s: Scriptorium, it: int) -> None:
    seen = s.watch.state()
    s.run, saved = go_on(s.run, it, {"model": s.model.state_dict(), "optim": s.optimizer.state_dict(), "mean": s.mean})
    s.model.load_state_dict(saved["model"])
    s.mean, s.optimizer = saved["mean"], optimizer_of(s)
    if s.bug != "base_weights_taken_for_a_checkpoint":
        s.optimizer.load_state_dict(saved["optim"])
    attach(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s, again = Scriptorium(run, SimpleNamespace(**run.config), trouble.name), trouble.resume_at(healthy, 4 * EVERY)
    c, bug, clock = s.c, s.bug, 0
    torch.manual_seed(seed)
    read_herbals(s, seed)
    s.model = cast(Herbalist(c, bug), bug)
    for name, one in s.model.named_parameters():
        if c.held_fixed and name.startswith(c.held_fixed):
            one.requires_grad_(False)
    kept_in = torch.bfloat16 if bug == "mean_rounded_like_the_weights" else torch.float32
    s.mean = {name: one.detach().to(kept_in).clone() for name, one in s.model.named_parameters()}
    s.optimizer, stream, parts = optimizer_of(s), stream_of(s, seed), c.total_batch // c.device_batch
    attach(s)
    s.model.train()
    for it in range(steps):
        if it == again:
            resume(s, it)
        total = 0.0
        for _ in range(parts):
            epoch, rows = next(stream)
            s.watch.observe(rows, step=it, epoch=epoch)
            loss = bits_of(s, s.model(rows[:, :-1]), rows[:, 1:])
            (loss if bug == "gradients_of_device_batches_added" else loss / parts).backward()
            total += loss.item() / math.log(2) / parts
            clock += bug == "plan_counts_device_batches"
        norm = nn.utils.clip_grad_norm_(s.model.parameters(), c.max_grad).item()
        share = plan(c, clock)
        for group in s.optimizer.param_groups:
            group["lr"] = group["first"] * share
        s.optimizer.step()
        s.optimizer.zero_grad(set_to_none=True)
        clock += bug != "plan_counts_device_batches"
        if c.swa:
            follow(s)
        s.run.log({"bits/train": total, "sched/lr": c.matrix_lr * share, "grads/norm": norm}, step=it)
        trouble.telemetry(s.run, it, healthy)
        if it % EVERY == EVERY - 1:
            evaluate(s, it)
            read_aloud(s, it)
    return s.run
