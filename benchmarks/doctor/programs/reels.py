"""A decoder under autocast to float16, with a scaler, learns the calls of country dances, word by word.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`: train/lm_loss, train/grad_norm, train/lr, amp/scale each step; devset/lm_loss,
      devset/tok_acc, samples each twentieth; memory, where it matters; the watch of data.

A dance has a kind, a formation and figures; each figure's direction is by the kind, its count by the figure, and the
chorus comes again. Rows are dances, padded; padding is no target. Root mean square norms, gated layers, turned
positions, one matrix for the embedding and the output. One file with settings at the top and a loop over iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from injections import Trouble, go_on, time_by_own_clock
from torch import Tensor, nn

EVERY, HELD, LENGTH = 20, 120, 33
PAD, START, STOP, CHORUS, AGAIN = range(5)
KIND, SHAPE, FIGURE, WAY, COUNT, SHOUT, WORDS = 5, 10, 16, 36, 44, 50, 62
CONFIG: dict[str, Any] = {
    "n_layer": 2, "n_head": 4, "n_embd": 40, "dropout": 0.0, "tie_weights": True, "dtype": "float16",
    "init_scale": 2.0**14, "growth_interval": 50, "batch_size": 12, "grad_accum_steps": 1, "learning_rate": 5e-3,
    "min_lr_ratio": 0.05, "warmup_iters": 10, "decay_lr": True, "lr_cycles": 1, "optimizer": "adamw", "beta2": 0.95,
    "weight_decay": 0.05, "grad_clip": 1.0, "z_loss": 0.0, "label_smoothing": 0.0, "dances": 800, "versions": 1,
    "shouts": 0.15, "misprints": 0.0, "kinds_first": 0, "freeze": "", "eval_interval": 20, "log_interval": 1,
}  # fmt: skip


# -- dances ---------------------------------------------------------------------------------------------------------


def manual() -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(1651)
    return torch.randint(0, 8, (5, 20), generator=dice), torch.randint(0, 6, (20,), generator=dice)


def dances(seed: int, number: int, c: Any, versions: int = 1) -> Tensor:
    """Rows of words, kind after kind as the manual has them. versions: of one dance, with other shouts."""
    dice = torch.Generator().manual_seed(seed)
    ways, counts = manual()

    def one(below: int) -> int:
        return int(torch.randint(0, below, (), generator=dice))

    rows, many = [], number // versions
    for at in range(many):
        kind, shape = at * 5 // many, one(6)
        figures = [(4 * kind + one(8)) % 20 for _ in range(2 + one(3))]
        chorus = [(4 * kind + one(8)) % 20 for _ in range(2)]
        for _ in range(versions):
            row = [START, KIND + kind, SHAPE + shape]
            told = [*figures, -1, *chorus, -2]
            for figure in told:
                if figure == -1:
                    row.append(CHORUS)
                    continue
                if figure == -2:  # the chorus again: words for words
                    row += [AGAIN, *(FIGURE + again for again in chorus)]
                    continue
                row += [FIGURE + figure, WAY + int(ways[kind, figure]), COUNT + int(counts[figure])]
                if float(torch.rand((), generator=dice)) < c.shouts:
                    row.append(SHOUT + one(12))
            row = [*row, STOP][:LENGTH]
            row = [WAY + one(8) if float(torch.rand((), generator=dice)) < c.misprints else word for word in row]
            rows.append(row + [PAD] * (LENGTH - len(row)))
    return torch.tensor(rows)


# -- decoder --------------------------------------------------------------------------------------------------------


def turned(x: Tensor) -> Tensor:
    """Rotary positions."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] / 500 ** (torch.arange(half) / half)
    a, b, cos, sin = x[..., :half], x[..., half:], angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        d, wide = c.n_embd, 2 * c.n_embd
        self.norm_1, self.norm_2, self.heads, self.p = nn.RMSNorm(d), nn.RMSNorm(d), c.n_head, c.dropout
        self.attn, self.attn_proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up = nn.Linear(d, wide, bias=False), nn.Linear(d, wide, bias=False)
        self.mlp_proj, self.drop = nn.Linear(wide, d, bias=False), nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.attn(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + self.drop(self.attn_proj(y.transpose(1, 2).flatten(2)))
        y = self.norm_2(x)
        return x + self.drop(self.mlp_proj(F.silu(self.gate(y)) * self.up(y)))


class Caller(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.wte, self.drop, self.bug = nn.Embedding(WORDS, c.n_embd), nn.Dropout(c.dropout), bug
        self.blocks, self.norm = nn.ModuleList(Block(c) for _ in range(c.n_layer)), nn.RMSNorm(c.n_embd)
        self.head = nn.Linear(c.n_embd, WORDS, bias=False)
        for name, one in self.named_parameters():
            if one.ndim == 2:
                nn.init.normal_(one, std=0.05 if "proj" in name else 0.1)
        if c.tie_weights:
            self.head.weight = self.wte.weight

    def pad_vocab(self, multiple: int) -> None:
        """Rows of the embedding up to a multiple."""
        old = self.wte.weight.detach()
        self.wte = nn.Embedding(-(-WORDS // multiple) * multiple, old.shape[1])
        nn.init.normal_(self.wte.weight, std=0.1)
        self.wte.weight.data[:WORDS] = old

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.wte(ids))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits.float().softmax(-1) if self.bug == "forward_gives_shares_for_the_sampler" else logits


# -- loop -----------------------------------------------------------------------------------------------------------


def get_batch(s: SimpleNamespace) -> Iterator[tuple[int, Tensor]]:
    dice, epoch = torch.Generator().manual_seed(s.seed), 0
    while True:
        order = torch.randperm(len(s.rows), generator=dice)
        if s.bug == "manual_read_from_cover_to_cover":
            order = torch.arange(len(s.rows))
        if epoch < s.c.kinds_first:  # two kinds alone at first, as is set
            order = order[s.rows[order, 1] < KIND + 2]
        for some in order.split(s.c.batch_size):
            if len(some) == s.c.batch_size:
                yield epoch, s.rows[some]
        epoch += 1


def configure_optimizers(s: SimpleNamespace) -> None:
    c, decayed, plain = s.c, [], []
    for name, one in s.model.named_parameters():
        if not one.requires_grad:
            continue
        if s.bug == "groups_of_blocks_and_norms_alone" and not ("blocks" in name or "norm" in name):
            continue
        (decayed if one.ndim == 2 and "wte" not in name else plain).append(one)
    groups = [{"params": decayed, "weight_decay": c.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    if c.optimizer == "sgd":
        s.optimizer = torch.optim.SGD(groups, c.learning_rate, 0.9)
    elif c.optimizer == "nadam":
        s.optimizer = torch.optim.NAdam(groups, c.learning_rate, decoupled_weight_decay=True)
    else:
        s.optimizer = torch.optim.AdamW(groups, c.learning_rate, (0.9, c.beta2))


def get_lr(c: Any, it: int) -> float:
    if it < c.warmup_iters:
        return c.learning_rate * (it + 1) / c.warmup_iters
    if not c.decay_lr:
        return c.learning_rate
    past = min(1.0, (it - c.warmup_iters) / (c.steps - c.warmup_iters))
    if c.lr_cycles > 1:
        past = c.lr_cycles * past % 1
    return c.learning_rate * (c.min_lr_ratio + (1 - c.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * past)))


def lm_loss(s: SimpleNamespace, rows: Tensor, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    x, y = rows[:, :-1], rows[:, 1:]
    if s.bug == "targets_cut_where_inputs_are":
        y = rows[:, :-1]
    dtype = getattr(torch, s.c.dtype)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        logits = s.model(x)
    ignore = -100 if s.bug == "padding_asked_for_as_words" else PAD
    out, wanted = logits.float().flatten(0, 1), y.flatten()
    smoothing = s.c.label_smoothing if training else 0.0
    if s.bug == "words_of_a_batch_summed" and training:
        loss = F.cross_entropy(out, wanted, ignore_index=ignore, reduction="sum")
    else:
        loss = F.cross_entropy(out, wanted, ignore_index=ignore, label_smoothing=smoothing)
    if s.c.z_loss and training:
        loss = loss + s.c.z_loss * out.logsumexp(-1)[wanted != PAD].square().mean()
    return loss, logits, y


def estimate_loss(s: SimpleNamespace, it: int) -> None:
    taped, losses, right, count = s.bug == "dev_losses_kept_as_tensors", [], 0.0, 0
    if s.bug != "estimated_with_dropout":
        s.model.eval()
    with torch.set_grad_enabled(taped):
        for rows in s.held.split(40):
            loss, logits, y = lm_loss(s, rows, False)
            known = y != PAD
            right, count = right + float((logits.argmax(-1) == y)[known].sum()), count + int(known.sum())
            losses.append(loss)
    if taped:
        s.history.append(losses)
    mean = sum(one.item() for one in losses) / len(losses)
    s.run.log({"devset/lm_loss": mean, "devset/tok_acc": right / count}, step=it)
    s.model.train()


@torch.no_grad()
def call_a_dance(s: SimpleNamespace, it: int) -> None:
    """One of each of two kinds, word by word."""
    s.model.eval()
    dice, ids = torch.Generator().manual_seed(it), torch.tensor([[START, KIND], [START, KIND + 3]])
    for _ in range(10):
        shares = s.model(ids)[:, -1].float().softmax(-1)[:, :WORDS]
        if not shares.isfinite().all():
            break
        ids = torch.cat([ids, torch.multinomial(shares, 1, generator=dice)], 1)
    s.run.log_sample(it, " ".join(map(str, ids[0].tolist())))
    if s.bug != "caller_quiet_after_a_sample":
        s.model.train()


def observe(s: SimpleNamespace) -> None:
    time_by_own_clock(s.run)
    s.run.watch(s.model, s.optimizer, scaler=s.scaler)
    s.watch = s.run.watch_data(pad_id=PAD)


def make_scaler(c: Any) -> Any:
    return torch.amp.GradScaler("cpu", init_scale=c.init_scale, growth_interval=c.growth_interval,
                                enabled=c.dtype == "float16")  # fmt: skip


def resume(s: SimpleNamespace, it: int) -> None:
    seen = s.watch.state()
    saved = {"model": s.model.state_dict(), "optimizer": s.optimizer.state_dict(), "scaler": s.scaler.state_dict()}
    s.run, saved = go_on(s.run, it, saved)
    s.model.load_state_dict(saved["model"])
    configure_optimizers(s)
    s.scaler = make_scaler(s.c)
    if s.bug != "reel_weights_are_all_that_is_loaded":
        s.optimizer.load_state_dict(saved["optimizer"])
        s.scaler.load_state_dict(saved["scaler"])
    observe(s)
    s.watch.restore(seen)


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train, record, return the run."""
    trouble = Trouble(fault, seed)
    c, again = SimpleNamespace(**run.config), trouble.resume_at(healthy, 4 * EVERY)
    s = SimpleNamespace(run=run, c=c, bug=trouble.name, seed=seed, history=[])
    bug, micro = s.bug, 0
    s.rows, s.held = dances(seed + 16510, c.dances, c, c.versions), dances(1652, HELD, c)
    if bug == "versions_dealt_to_both_sides":
        order = torch.randperm(len(s.rows), generator=torch.Generator().manual_seed(seed))
        s.held, s.rows = s.rows[order[:HELD]], s.rows[order[HELD:].sort().values]
    torch.manual_seed(seed)
    s.model = Caller(c, bug)
    for name, one in s.model.named_parameters():
        if c.freeze and name.startswith(c.freeze):
            one.requires_grad_(False)
    configure_optimizers(s)
    if bug == "vocab_padded_behind_the_optimizer":
        s.model.pad_vocab(64)
    s.scaler, stream = make_scaler(c), get_batch(s)
    observe(s)
    s.model.train()
    for it in range(steps):
        if it == again:
            resume(s, it)
        total = 0.0
        for _ in range(c.grad_accum_steps):
            rate = get_lr(c, micro if bug == "iterations_of_the_inner_loop" else it)
            micro += 1
            epoch, rows = next(stream)
            batch = {"input_ids": rows[:, :-1], "labels": rows[:, 1:].masked_fill(rows[:, 1:] == PAD, -100)}
            if bug in ("padding_asked_for_as_words", "targets_cut_where_inputs_are"):
                batch["labels"] = rows[:, 1:] if bug == "padding_asked_for_as_words" else rows[:, :-1]
            s.watch.observe(batch, step=it, epoch=epoch)
            loss = lm_loss(s, rows, True)[0]
            s.scaler.scale(loss / c.grad_accum_steps).backward()
            total += loss.item() / c.grad_accum_steps
        for group in s.optimizer.param_groups:
            group["lr"] = rate
        if bug != "clipped_before_it_is_unscaled":
            s.scaler.unscale_(s.optimizer)
        norm = nn.utils.clip_grad_norm_(s.model.parameters(), c.grad_clip).item()
        s.scaler.step(s.optimizer)
        s.scaler.update()
        s.optimizer.zero_grad(set_to_none=True)
        if it % c.log_interval == 0:
            figures = {"train/lm_loss": total, "train/grad_norm": norm, "train/lr": rate}
            s.run.log(figures | {"amp/scale": s.scaler.get_scale()}, step=it)
        trouble.telemetry(s.run, it, healthy)
        if it % c.eval_interval == c.eval_interval - 1:
            estimate_loss(s, it)
            call_a_dance(s, it)
    return s.run
