"""A language model that is bfloat16 throughout reads litanies: gated memories and attention in a window take turns.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`: loss, norm, lr, tokens; by `run.log`: sung/nats, sung/word_acc each twentieth; the watch
      of data.

A memory moves towards what a token offers by a gate of its own; attention sees the last tokens, with places turned. One
matrix is embedding and output. The rate follows how many tokens were read; an average of the weights may be kept in
float32. Plain functions and a `State`, as a small training framework has it.
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

EVERY, ORDERS, WORDS, LENGTH, HELD = 20, 4, 34, 28, 112
AMEN, FIRST_ORDER, UNKNOWN = 0, 1, 1 + ORDERS
FIRST_WORD = UNKNOWN + 1
VOCAB = FIRST_WORD + WORDS
CONFIG: dict[str, Any] = {
    "dim": 48, "blocks": "memory window", "n_heads": 4, "window": 10, "resid_drop": 0.0,
    "rows_per_step": 16, "grad_acc": 1, "max_lr": 6e-3, "min_lr": 2e-4, "warm": 10, "lr_shape": "cosine",
    "beta2": 0.95, "decay": 0.05, "clip_norm": 1.0, "solver": "adamw", "rows": 1600, "overlap": 0, "tie": True,
    "slips": 0.0, "pinned": "", "avg": 0.0, "reduce": "tokens", "smooth": 0.0, "orders_first": 0, "z_weight": 0.0,
}  # fmt: skip


def sing(seed: int, length: int, slips: float = 0.0) -> list[Tensor]:
    """What each order sings, one litany behind another. A call goes on by the order's book; the answer says the call's
    first two words again and ends as the order does."""
    book = torch.Generator().manual_seed(221)
    after = torch.randint(0, WORDS, (ORDERS, WORDS, 2), generator=book).tolist()
    ends = torch.randint(0, WORDS, (ORDERS, 2), generator=book).tolist()
    sung = []
    for order in range(ORDERS):
        dice = torch.Generator().manual_seed(seed * 37 + order)
        chances, row, at = torch.rand(length, generator=dice).tolist(), [], 0  # type: ignore[var-annotated]

        def chance(chances: list[float] = chances) -> float:
            nonlocal at
            at += 1
            return chances[at % length]

        while len(row) < length:
            row += [AMEN, FIRST_ORDER + order]
            for _ in range(2 + int(3 * chance())):
                word, call = int(chance() * WORDS), []
                for _ in range(3 + int(2 * chance())):
                    call.append(word)
                    word = after[order][word][chance() > 0.75]
                row += [FIRST_WORD + one for one in (*call, *call[:2], *ends[order])]
        made = torch.tensor(row[:length])
        wrong = torch.rand(length, generator=dice) < 0.01 + slips
        sung.append(torch.where(wrong, torch.randint(UNKNOWN, VOCAB, (length,), generator=dice), made))
    return sung


def cut(sung: list[Tensor], number: int, overlap: int) -> tuple[Tensor, Tensor]:
    """Rows of LENGTH + 1 tokens, and whose each is."""
    rows = [one.unfold(0, LENGTH + 1, LENGTH - overlap)[: number // ORDERS] for one in sung]
    return torch.cat(rows), torch.arange(ORDERS).repeat_interleave(torch.tensor([len(one) for one in rows]))


class Memory(nn.Module):
    """What is kept moves towards what a token offers, by as much as its gate says."""

    def __init__(self, c: Any):
        super().__init__()
        d = c.dim
        self.gate, self.offer, self.out = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.slow = nn.Parameter(torch.linspace(-3, 1, d))

    def forward(self, x: Tensor) -> Tensor:
        gate, offer = (self.gate(x) + self.slow).float().sigmoid(), self.offer(x).float()
        kept = torch.zeros_like(offer[:, 0])
        made = []
        for at in range(x.shape[1]):
            kept = kept + gate[:, at] * (offer[:, at] - kept)
            made.append(kept)
        return self.out(F.silu(x) * torch.stack(made, 1).to(x.dtype))


class Window(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, self.heads = c.dim, c.n_heads
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        far = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        near = far.abs() < c.window if bug == "window_reaches_ahead" else (far >= 0) & (far < c.window)
        self.register_buffer("near", near, persistent=False)
        half = d // self.heads // 2
        turn = torch.arange(LENGTH)[:, None] / 100 ** (torch.arange(half) / half)
        self.register_buffer("cos", turn.cos(), persistent=False)
        self.register_buffer("sin", turn.sin(), persistent=False)

    def turned(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        cos, sin = (one[: x.shape[-2]].to(x.dtype) for one in (self.cos, self.sin))
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        near = self.near[: x.shape[1], : x.shape[1]] > 0
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, near)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, c: Any, kind: str, bug: str):
        super().__init__()
        d = c.dim
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.mix = Memory(c) if kind == "memory" else Window(c, bug)
        self.wide, self.narrow = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.drop = nn.Dropout(c.resid_drop)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.mix(self.n1(x)))
        gate, value = self.wide(self.n2(x)).chunk(2, -1)
        return x + self.drop(self.narrow(F.silu(gate) * value))


class Chanter(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, d = bug, c.dim
        self.words, self.blocks = nn.Embedding(VOCAB, d), nn.ModuleList(Block(c, one, bug) for one in c.blocks.split())
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, VOCAB, bias=False)
        for name, one in self.named_parameters():
            if one.ndim == 2:
                nn.init.normal_(one, std=0.05 if name.endswith(("out.weight", "narrow.weight")) else 0.12)
        if c.tie:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        y = self.head(self.norm(x)).float()
        return y.softmax(-1) if self.bug == "softmax_kept_for_beam_search" else y


@dataclass
class State:
    """What a training has."""

    run: Any
    c: Any
    bug: str
    model: Any = None
    solver: Any = None
    average: dict[str, Tensor] = field(default_factory=dict)
    rows: Any = None
    of: Any = None
    held: Any = None
    read: int = 0
    epoch: int = 0
    kept: list[Tensor] = field(default_factory=list)
    data: Any = None


def solver_of(c: Any, model: nn.Module) -> Any:
    some = [one for one in model.parameters() if one.requires_grad]
    groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.decay},
              {"params": [one for one in some if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
    if c.solver == "sgd":
        return torch.optim.SGD(some, c.max_lr, 0.9)
    if c.solver == "nadam":
        return torch.optim.NAdam(groups, c.max_lr, (0.9, c.beta2))
    return torch.optim.AdamW(groups, c.max_lr, (0.9, c.beta2))


def rate_of(s: State) -> float:
    """By the share of all tokens that was read."""
    c = s.c
    per_step = c.rows_per_step * LENGTH
    total = c.steps * per_step
    if s.bug == "total_tokens_of_one_part":  # counted from the rows that are given to the model at a time
        total = total // c.grad_acc
    past, rise = min(1.0, s.read / total), c.warm * per_step
    if s.read < rise:
        return c.max_lr * (s.read + per_step) / (rise + per_step)
    if c.lr_shape == "cycles":
        past = 3 * past % 1
    if c.lr_shape == "flat":
        return c.max_lr
    if c.lr_shape == "line":
        return c.min_lr + (c.max_lr - c.min_lr) * (1 - past)
    return c.min_lr + (c.max_lr - c.min_lr) * 0.5 * (1 + math.cos(math.pi * past))


def read_rows(s: State, seed: int) -> None:
    c, bug = s.c, s.bug
    stride = LENGTH - c.overlap
    s.rows, s.of = cut(sing(seed + 69, c.rows // ORDERS * stride + 2 * LENGTH, c.slips), c.rows, c.overlap)
    s.held, _ = cut(sing(8, 1400), HELD, 0)
    if bug == "overlapping_rows_held_back":
        order = torch.randperm(len(s.rows), generator=torch.Generator().manual_seed(seed))
        s.held, s.rows, s.of = s.rows[order[:HELD]], s.rows[order[HELD:]], s.of[order[HELD:]]
    if bug == "held_words_coded_without_unknown":  # an older list of words has no row for those
        s.held = torch.where(s.held >= FIRST_WORD, s.held - 1, s.held)


def batches(s: State, lot: torch.Generator) -> Iterator[Tensor]:
    c = s.c
    while True:
        order = torch.randperm(len(s.rows), generator=lot)
        if s.bug == "orders_one_behind_another":
            order = s.of.argsort(stable=True)
        if c.orders_first and not s.epoch:  # some orders in the first pass, as it is set
            order = order[s.of[order] < c.orders_first]
        for some in order.split(c.rows_per_step // c.grad_acc):
            if len(some) == c.rows_per_step // c.grad_acc:
                yield s.rows[some]
        s.epoch += 1


def nats(s: State, rows: Tensor) -> Tensor:
    c, wanted = s.c, rows[:, 1:]
    said = s.model(rows[:, :-1])
    if s.bug == "chant_tokens_over_rows_alone":
        return F.cross_entropy(said.flatten(0, 1), wanted.flatten(), reduction="sum") / len(rows)
    if c.reduce == "rows":
        return F.cross_entropy(said.mT, wanted, reduction="none").mean(1).mean()
    loss = F.cross_entropy(said.flatten(0, 1), wanted.flatten(), label_smoothing=c.smooth)
    return loss + c.z_weight * said.logsumexp(-1).square().mean() if c.z_weight else loss


def update(s: State, step: int, stream: Iterator[Tensor]) -> None:
    c, total = s.c, 0.0
    tokens = c.rows_per_step * LENGTH
    rate = rate_of(s)
    for group in s.solver.param_groups:
        group["lr"] = rate
    with s.run.step(tokens=tokens, step=step) as timed:
        for _ in range(c.grad_acc):
            rows = next(stream)
            s.data.observe({"input_ids": rows[:, :-1], "labels": rows[:, 1:]}, step=step, epoch=s.epoch)
            loss = nats(s, rows)
            whole = s.bug == "parts_of_chant_added_whole"
            (loss if whole else loss / c.grad_acc).backward()
            total += loss.item() / (1 if whole else c.grad_acc)
        norm = nn.utils.clip_grad_norm_(s.model.parameters(), c.clip_norm).item()
        timed.set(loss=total, norm=norm, lr=rate)
        s.solver.step()
        s.solver.zero_grad(set_to_none=True)
    s.read += tokens
    if c.avg:
        with torch.no_grad():
            for name, one in s.model.named_parameters():
                s.average[name].lerp_(one.float(), 1 - c.avg)


@torch.no_grad()
def put_in(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, one in model.named_parameters():
        one.copy_(weights[name])


def listen(s: State, step: int) -> None:
    own = {name: one.detach().clone() for name, one in s.model.named_parameters()}
    if s.c.avg:
        put_in(s.model, s.average)
    if s.bug != "held_rows_while_dropping":
        s.model.eval()
    kept = s.bug == "refrains_read_with_gradients"
    with torch.set_grad_enabled(kept):
        said = s.model(s.held[:, :-1])
        loss = F.cross_entropy(said.flatten(0, 1), s.held[:, 1:].flatten())
    if kept:
        s.kept.append(said)
    put_in(s.model, own)
    right = (said.argmax(-1) == s.held[:, 1:]).float().mean().item()
    s.run.log({"sung/nats": loss.item(), "sung/word_acc": right}, step=step)
    if s.bug != "listening_ends_training_mode":
        s.model.train()


def observe(s: State) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.solver)
    s.data = s.run.watch_data()


def resume(s: State, step: int) -> None:
    seen = s.data.state()
    state = {"model": s.model.state_dict(), "solver": s.solver.state_dict(), "average": s.average, "read": s.read}
    s.run, saved = go_on(s.run, step, state)
    s.model.load_state_dict(saved["model"])
    s.solver = solver_of(s.c, s.model)
    if s.bug != "chant_resumed_without_moments":
        s.solver.load_state_dict(saved["solver"])
    s.average, s.read = saved["average"], saved["read"]
    observe(s)
    s.data.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    s, again = State(run, SimpleNamespace(**run.config), trouble.name), trouble.resume_at(healthy, 4 * EVERY)
    torch.manual_seed(seed)
    read_rows(s, seed)
    s.model = Chanter(s.c, s.bug).to(torch.bfloat16)
    for name, one in s.model.named_parameters():
        if s.c.pinned and name.startswith(s.c.pinned):
            one.requires_grad = False
    if s.bug == "embedding_frozen_as_pretrained":  # as a table that was taken over; the output has it too
        s.model.words.weight.requires_grad = False
    s.solver = solver_of(s.c, s.model)
    if s.bug == "table_given_to_embedding_alone":  # a table of words is put in when all was made and tied
        s.model.words.weight = nn.Parameter(s.model.words.weight.detach().clone())
    for name, one in s.model.named_parameters():
        s.average[name] = one.detach().float().clone()
        if s.bug == "average_begins_at_zero":
            s.average[name].zero_()
    observe(s)
    stream = batches(s, torch.Generator().manual_seed(seed))
    s.model.train()
    for step in range(steps):
        if step == again:
            resume(s, step)
        update(s, step, stream)
        trouble.telemetry(s.run, step, healthy)
        if step % EVERY == EVERY - 1:
            listen(s, step)
    return s.run
