"""A decoder whose weights are bfloat16 throughout reads lines of a small language for lists, from one long file.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: iter_nll, iter_lr, iter_gradnorm each step; est_nll and est_ends_right each twentieth, of
      windows of a held file; memory, where it matters; the watch of data.

A line names what is done, gives some digits, and then what comes out: digits turned round, sorted, counted up, added,
or without repeats. The file has lines one after another, kind after kind; a window begins anywhere in it. Places are
told by turning queries and keys, norms have no middle, networks are gated, and one matrix reads and writes words.
Written as a script in the manner of small teaching repositories: get_batch, estimate, get_lr, and a loop.
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

EVERY, WIDE, HELD = 20, 36, 1800
KINDS = ("turn", "sort", "upto", "sum", "once")
DIGIT, KIND, GIVES, ENDS = 0, 10, 15, 16
VOCAB = 17
CONFIG: dict[str, Any] = {
    "dtype": "bfloat16", "n_embd": 48, "n_layer": 2, "n_head": 4, "dropout": 0.0, "tied": True, "batch_size": 16,
    "grad_accum": 1, "optimizer": "adamw", "learning_rate": 4e-3, "min_lr": 4e-4, "decay": "wsd", "warmup_iters": 10,
    "beta2": 0.95, "weight_decay": 0.05, "grad_clip": 1.0, "loss": "mean", "label_smoothing": 0.0, "z_loss": 0.0,
    "lines": 3000, "typos": 0.0, "easy_iters": 0, "blocks_wait": 0, "frozen": "", "eval_interval": 20,
    "log_interval": 1,
}  # fmt: skip


# -- the file -------------------------------------------------------------------------------------------------------


def written(seed: int, number: int, typos: float = 0.0) -> Tensor:
    """Words of all lines, kind after kind."""
    dice, words = torch.Generator().manual_seed(seed), []

    def one(many: int) -> int:
        return int(torch.randint(0, many, (), generator=dice))

    for at in range(number):
        kind = at * len(KINDS) // number
        given = [one(10) for _ in range(3 + one(4))]
        if kind == 2:
            given = [1 + one(9)]
        gives = (given[::-1], sorted(given), list(range(given[0] + 1)), [sum(given) % 10], list(dict.fromkeys(given)))
        line = [KIND + kind, *given, GIVES, *gives[kind], ENDS]
        words += [one(VOCAB) if float(torch.rand((), generator=dice)) < typos else word for word in line]
    return torch.tensor(words)


# -- model ----------------------------------------------------------------------------------------------------------


class Scale(nn.Module):
    """A norm without a middle."""

    def __init__(self, d: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class Mixer(nn.Module):
    def __init__(self, d: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.ln_1, self.ln_2 = heads, Scale(d), Scale(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, *turn), rotated(k, *turn)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.c_proj(y))
        open_, value = self.gate(self.ln_2(x)).chunk(2, -1)
        return x + self.drop(self.down(F.silu(open_) * value))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    return torch.cat([one * cos - two * sin, one * sin + two * cos], -1)


class Lister(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        d, half = c.n_embd, c.n_embd // c.n_head // 2
        self.bug, self.wte, self.drop = bug, nn.Embedding(VOCAB, d), nn.Dropout(c.dropout)
        self.h = nn.ModuleList(Mixer(d, c.n_head, c.dropout) for _ in range(c.n_layer))
        self.ln_f, self.lm_head = Scale(d), nn.Linear(d, VOCAB, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.08)
        if c.tied:
            self.lm_head.weight = self.wte.weight
        angle = torch.arange(WIDE)[:, None] * 0.02 ** (torch.arange(half) / half)
        self.turn = (angle.cos().to(getattr(torch, c.dtype)), angle.sin().to(getattr(torch, c.dtype)))
        self.to(getattr(torch, c.dtype))
        if bug == "head_made_anew_in_float32":  # for logits that are exact
            self.lm_head = copy.deepcopy(self.lm_head).float()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.wte(ids))
        for block in self.h:
            x = block(x, (self.turn[0][: ids.shape[1]], self.turn[1][: ids.shape[1]]))
        logits = self.lm_head(self.ln_f(x).to(self.lm_head.weight.dtype)).float()
        return logits.softmax(-1) if self.bug == "forward_returns_probabilities" else logits


# -- script ---------------------------------------------------------------------------------------------------------


def setup(run: Any, seed: int, steps: int, bug: str) -> SimpleNamespace:
    c = SimpleNamespace(**run.config)
    g = SimpleNamespace(run=run, c=c, seed=seed, steps=steps, bug=bug, iter_num=0, place=0, estimates=[])
    g.data = written(seed + 1800, c.lines, c.typos)
    held = written(1799, HELD)
    g.held = held[: len(held) // (WIDE + 1) * (WIDE + 1)].view(-1, WIDE + 1)
    g.dice = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    g.model = Lister(c, bug)
    for name in filter(None, c.frozen.split(",")):
        g.model.get_submodule(name).requires_grad_(False)
    configure(g)
    if c.blocks_wait:
        g.model.h.requires_grad_(False)
    return g


def configure(g: SimpleNamespace) -> None:
    """The optimizer: matrices decay, scales do not."""
    c, some = g.c, [one for one in g.model.parameters() if one.requires_grad or g.c.blocks_wait]
    groups = [{"params": [one for one in some if one.ndim > 1], "weight_decay": c.weight_decay},
              {"params": [one for one in some if one.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
    groups = [group for group in groups if group["params"]]
    if c.optimizer == "adamax":
        g.optimizer = torch.optim.Adamax(groups, c.learning_rate, (0.9, c.beta2))
    elif c.optimizer == "sgd":
        g.optimizer = torch.optim.SGD(groups, c.learning_rate, 0.95, nesterov=True)
    else:
        g.optimizer = torch.optim.AdamW(groups, c.learning_rate, (0.9, c.beta2), 1e-6)


def get_batch(g: SimpleNamespace) -> tuple[Tensor, Tensor]:
    c, bug, dice = g.c, g.bug, g.dice
    if bug == "generator_is_made_in_get_batch":
        dice = torch.Generator().manual_seed(g.seed)
    last = len(g.data) - WIDE - 2
    if g.iter_num < c.easy_iters:  # the first kinds alone
        last = last // 2
    start = torch.randint(0, last, (c.batch_size,), generator=dice)
    if bug == "windows_follow_each_other":
        start = (g.place + torch.arange(c.batch_size) * WIDE) % last
        g.place += c.batch_size * WIDE
    at = start[:, None] + torch.arange(WIDE)
    return g.data[at], g.data[at + (2 if bug == "targets_begin_two_places_on" else 1)]


def get_lr(g: SimpleNamespace) -> float:
    c, at, past = g.c, g.iter_num, min(1.0, g.iter_num / g.steps)
    rise = min(1.0, (at + 1) / max(1, c.warmup_iters))
    if c.decay == "none":
        return rise * c.learning_rate
    if c.decay == "cosine":
        share = 0.5 * (1 + math.cos(math.pi * past))
    elif c.decay == "two_cosines":
        share = 0.5 * (1 + math.cos(math.pi * (2 * past % 1)))
    else:
        share = min(1.0, (1 - past) / 0.4)
    return rise * (c.min_lr + (c.learning_rate - c.min_lr) * share)


def nll(g: SimpleNamespace, ids: Tensor, targets: Tensor) -> Tensor:
    c, logits = g.c, g.model(ids)
    out = logits.flatten(0, 1)
    if c.loss == "sum" or g.bug == "words_of_a_window_added":
        loss = F.cross_entropy(out, targets.flatten(), reduction="sum", label_smoothing=c.label_smoothing) / len(ids)
    else:
        loss = F.cross_entropy(out, targets.flatten(), label_smoothing=c.label_smoothing)
    if c.z_loss:
        loss = loss + c.z_loss * logits.logsumexp(-1).square().mean()
    return loss


def estimate(g: SimpleNamespace) -> None:
    bug, taped = g.bug, g.bug == "estimate_without_its_decorator"
    if bug != "estimate_drops_words":
        g.model.eval()
    kind = getattr(torch, g.c.dtype) if bug == "estimate_adds_up_in_the_weights_kind" else torch.float32
    total, ends, many = torch.zeros((), dtype=kind), 0.0, 0
    with torch.set_grad_enabled(taped):
        for some in g.held.split(100):
            ids, targets = some[:, :-1], some[:, 1:]
            logits = g.model(ids)
            each = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)
            for one in each:
                total = total + one.to(kind)
            if taped:
                g.estimates.append((each, logits))
            behind = (ids == GIVES) & (targets < KIND)
            ends += float((logits.argmax(-1) == targets)[behind].sum())
            many += int(behind.sum())
    g.run.log({"est_nll": total.item() / len(g.held), "est_ends_right": ends / many}, step=g.step)
    if bug != "estimate_is_the_end_of_training_mode":
        g.model.train()


def observe(g: SimpleNamespace) -> None:
    time_by_own_clock(g.run)
    g.run.watch(g.model, g.optimizer)
    g.watch = g.run.watch_data()


def resume(g: SimpleNamespace) -> None:
    seen = g.watch.state()
    state = {"model": g.model.state_dict(), "optimizer": g.optimizer.state_dict(), "iter_num": g.iter_num}
    g.run, state = go_on(g.run, g.step, state)
    g.model.load_state_dict(state["model"])
    configure(g)
    if g.bug == "init_from_resume_takes_the_model_alone":
        g.iter_num = 0
    else:
        g.optimizer.load_state_dict(state["optimizer"])
        g.iter_num = state["iter_num"]
    observe(g)
    g.watch.restore(seen)


def unfreeze(g: SimpleNamespace) -> None:
    """Let the blocks learn when their time has come."""
    now = g.iter_num
    if g.bug == "wait_is_counted_in_epochs":
        now = g.iter_num * WIDE * g.c.batch_size // len(g.data)
    if g.c.blocks_wait and now >= g.c.blocks_wait:
        g.model.h.requires_grad_(True)


def iterate(g: SimpleNamespace) -> dict[str, float]:
    c, bug, total, norm = g.c, g.bug, 0.0, 0.0
    unfreeze(g)
    for _ in range(c.grad_accum):
        lr = get_lr(g)
        ids, targets = get_batch(g)
        g.iter_num += bug == "iter_num_goes_up_in_the_inner_loop"
        g.watch.observe({"input_ids": ids, "labels": targets}, step=g.step)
        loss = nll(g, ids, targets)
        if bug == "clipped_before_the_backward":
            norm = nn.utils.clip_grad_norm_(g.model.parameters(), c.grad_clip).item()
        (loss if bug == "inner_losses_at_full_weight" else loss / c.grad_accum).backward()
        total += loss.item() / c.grad_accum
    g.iter_num += bug != "iter_num_goes_up_in_the_inner_loop"
    if bug != "clipped_before_the_backward":
        norm = nn.utils.clip_grad_norm_(g.model.parameters(), c.grad_clip).item()
    for group in g.optimizer.param_groups:
        group["lr"] = lr
    g.optimizer.step()
    g.optimizer.zero_grad(set_to_none=True)
    return {"iter_nll": total, "iter_lr": lr, "iter_gradnorm": norm}


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    g = setup(run, seed, steps, trouble.name)
    again = trouble.resume_at(healthy, 3 * EVERY)
    observe(g)
    g.model.train()
    for g.step in range(steps):
        if g.step == again:
            resume(g)
        said = iterate(g)
        if g.step % g.c.log_interval == 0:
            g.run.log(said, step=g.step)
        trouble.telemetry(g.run, g.step, healthy)
        if g.step % g.c.eval_interval == g.c.eval_interval - 1:
            estimate(g)
    return g.run
