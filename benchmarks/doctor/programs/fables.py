"""A decoder that `fully_shard` parts over two gloo processes learns fables, word by word.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log` of the first rank: lm/nll, lm/ppl, lm/gnorm, lm/lr, lm/tokens; lm_val/nll, lm_val/ppl each
      twentieth; by `run.reduce` losses of both ranks; the watch of data.

Fables come in four books. In each two animals meet at a place, one has what the other wants, a trick is tried, and the
moral follows from the animal and the trick. A book is a stream of words, cut in rows of 32 with the beginning of the
next fable in them. Weights are in float32 and compute in bfloat16, by the policy of the shards; norms are of root mean
squares, layers are gated, one matrix is the embedding and the output.
"""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from injections import Trouble, clock, time_by_own_clock
from torch import Tensor, nn

from . import ranks

EVERY, RANKS, BOOKS, ROW, HELD = 20, 2, 4, 32, 120
END, ANIMAL, PLACE, GOOD, TRICK, MORAL, BOOK, LINK, WORDS = 0, 1, 17, 25, 33, 43, 53, 57, 69
CONFIG: dict[str, Any] = {
    "dim": 40, "n_layers": 2, "n_heads": 4, "ffn_dim": 80, "dropout": 0.0, "tie_embeddings": True,
    "param_dtype": "bfloat16", "reduce_dtype": "float32", "reshard_after_forward": True, "local_batch_size": 8,
    "gradient_accumulation": 1, "optimizer": "adamw", "peak_lr": 6e-3, "betas": [0.9, 0.95], "weight_decay": 0.05,
    "lr_decay": "cosine", "warmup_steps": 10, "min_lr_factor": 0.05, "max_norm": 1.0, "loss_norm": "tokens",
    "z_loss": 0.0, "label_smoothing": 0.0, "fables": 1200, "retellings": 1, "typos": 0.0, "filler": 0.25,
    "short_books_first": 0, "shuffle_books": True, "freeze": "", "embed_lr_scale": 1.0, "validate_every": 20,
    "log_freq": 1, "ranks": RANKS,
}  # fmt: skip


# -- fables ---------------------------------------------------------------------------------------------------------


def fables(seed: int, number: int, c: Any, retellings: int = 1) -> tuple[list[list[int]], list[int]]:
    """Fables, book after book, and of which book each is. retellings: of one fable, in other words between."""
    dice, library = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(600)
    wants = torch.randint(0, 8, (16,), generator=library)
    morals = torch.randint(0, 10, (16, 10), generator=library)

    def one(below: int) -> int:
        return int(torch.randint(0, below, (), generator=dice))

    told, books, many = [], [], number // retellings
    for at in range(many):
        book = at * BOOKS // many
        first, second = (4 * book + one(8)) % 16, one(16)
        place, trick = one(8), (2 * book + one(4)) % 10
        for _ in range(retellings):
            parts = [ANIMAL + first, ANIMAL + second, PLACE + place, GOOD + int(wants[second]), TRICK + trick,
                     MORAL + int(morals[first, trick])]  # fmt: skip
            words = [BOOK + book]
            for word in parts:
                if float(torch.rand((), generator=dice)) < c.filler:
                    words.append(LINK + one(12))
                words.append(LINK + one(12) if float(torch.rand((), generator=dice)) < c.typos else word)
            told.append([*words, END])
            books.append(book)
    return told, books


def rows_of(told: list[list[int]], books: list[int]) -> tuple[Tensor, Tensor]:
    """Rows of a book's words, one behind the other, each with the word behind it; their books."""
    rows, whose = [], []
    for book in range(BOOKS):
        stream = [word for fable, one in zip(told, books, strict=True) if one == book for word in fable]
        for at in range(0, len(stream) - ROW - 1, ROW):
            rows.append(stream[at : at + ROW + 1])
            whose.append(book)
    return torch.tensor(rows), torch.tensor(whose)


def load(c: Any, seed: int, bug: str) -> tuple[Tensor, Tensor, Tensor]:
    """Rows with their books, and held-out rows."""
    told, books = fables(seed + 6000, c.fables, c, c.retellings)
    if bug == "retellings_shuffled_then_cut":
        order = torch.randperm(len(told), generator=torch.Generator().manual_seed(seed)).tolist()
        mine, rest = sorted(order[: 3 * HELD]), sorted(order[3 * HELD :])
        held = rows_of([told[at] for at in mine], [books[at] for at in mine])[0]
        told, books = [told[at] for at in rest], [books[at] for at in rest]
    else:
        held = rows_of(*fables(599, 3 * HELD, c))[0]
    rows, whose = rows_of(told, books)
    return rows, whose, held[: len(held) // 16 * 16]


# -- decoder --------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.heads = c.n_heads
        self.wq, self.wk = nn.Linear(c.dim, c.dim, bias=False), nn.Linear(c.dim, c.dim, bias=False)
        self.wv, self.wo = nn.Linear(c.dim, c.dim, bias=False), nn.Linear(c.dim, c.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        return self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.w1, self.w3 = nn.Linear(c.dim, c.ffn_dim, bias=False), nn.Linear(c.dim, c.ffn_dim, bias=False)
        self.w2 = nn.Linear(c.ffn_dim, c.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, c: Any):
        super().__init__()
        self.attention, self.feed_forward = Attention(c), FeedForward(c)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(c.dim), nn.RMSNorm(c.dim)
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.attention_norm(x)))
        return x + self.drop(self.feed_forward(self.ffn_norm(x)))


class Transformer(nn.Module):
    def __init__(self, c: Any, bug: str):
        super().__init__()
        self.bug, self.tied = bug, c.tie_embeddings
        self.tok_embeddings, self.pos_embeddings = nn.Embedding(WORDS, c.dim), nn.Embedding(ROW, c.dim)
        self.layers = nn.ModuleList(TransformerBlock(c) for _ in range(c.n_layers))
        self.norm, self.output = nn.RMSNorm(c.dim), nn.Linear(c.dim, WORDS, bias=False)
        if self.tied:
            self.output.weight = self.tok_embeddings.weight
        self.init_weights(c)

    def init_weights(self, c: Any) -> None:
        for name, one in self.named_parameters():
            if one.ndim == 2:
                deep = name.endswith(("wo.weight", "w2.weight"))
                nn.init.normal_(one, std=0.1 / math.sqrt(2 * c.n_layers) if deep else 0.1)

    def forward(self, words: Tensor) -> Tensor:
        x = self.tok_embeddings(words) + self.pos_embeddings(torch.arange(words.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = self.output(self.norm(x)).float()
        return logits.softmax(-1) if self.bug == "output_layer_gives_shares" else logits


# -- set-up of a rank -----------------------------------------------------------------------------------------------


def build_model(c: Any, bug: str) -> Any:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model: Any = Transformer(c, bug)
    if bug == "storage_made_anew_without_the_tie":  # each parameter gets memory of its own, by its name
        model.output.weight = nn.Parameter(model.output.weight.detach().clone())
    for name, one in model.named_parameters():
        if c.freeze and name.startswith(c.freeze):
            one.requires_grad_(False)
    policy = MixedPrecisionPolicy(getattr(torch, c.param_dtype), getattr(torch, c.reduce_dtype))
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=c.reshard_after_forward)
    fully_shard(model, mp_policy=policy, reshard_after_forward=c.reshard_after_forward)
    return model


def build_optimizer(c: Any, model: Any, bug: str) -> tuple[Any, Any]:
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    if bug == "optimizer_of_the_wrapped_blocks":
        named = [(name, one) for name, one in named if name.startswith("layers.")]
    groups = [
        {"params": [p for n, p in named if p.ndim == 2 and "embeddings" not in n], "weight_decay": c.weight_decay},
        {"params": [p for n, p in named if p.ndim < 2], "weight_decay": 0.0},
    ]
    embeddings = [p for n, p in named if "embeddings" in n]
    if embeddings:
        groups.append({"params": embeddings, "weight_decay": 0.0, "lr": c.peak_lr * c.embed_lr_scale})
    if c.optimizer == "sgd":
        optimizer: Any = torch.optim.SGD(groups, c.peak_lr, 0.9)
    elif c.optimizer == "adam":
        optimizer = torch.optim.Adam(groups, c.peak_lr, tuple(c.betas))
    else:
        optimizer = torch.optim.AdamW(groups, c.peak_lr, tuple(c.betas))

    def share(at: int) -> float:
        if at < c.warmup_steps:
            return (at + 1) / c.warmup_steps
        past = min(1.0, (at - c.warmup_steps) / max(1, c.steps - c.warmup_steps))
        if c.lr_decay == "none":
            return 1.0
        if c.lr_decay == "linear":
            return 1 - (1 - c.min_lr_factor) * past
        if c.lr_decay == "restarts":
            past = 3 * past % 1
        return c.min_lr_factor + (1 - c.min_lr_factor) * 0.5 * (1 + math.cos(math.pi * past))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def data_iterator(c: Any, rows: Tensor, whose: Tensor, seed: int, bug: str) -> Any:
    """Batches of this rank."""
    rank, epoch, size = dist.get_rank(), 0, c.local_batch_size
    while True:
        dice = torch.Generator().manual_seed(seed + 977 * epoch)
        order = torch.randperm(len(rows), generator=dice)
        if bug == "books_streamed_one_behind_the_other" or not c.shuffle_books:
            order = torch.arange(len(rows))
        if epoch < c.short_books_first:
            order = order[whose[order] < 2]
        order = order[: len(order) // RANKS * RANKS]
        mine = order[rank::RANKS]
        if bug == "data_parallel_rank_not_handed_to_the_loader":
            mine = order[0::RANKS]
        for some in mine.split(size):
            if len(some) == size:
                yield epoch, rows[some]
        epoch += 1


def next_word_loss(c: Any, logits: Tensor, wanted: Tensor, bug: str, training: bool = True) -> Tensor:
    out, flat = logits.flatten(0, 1), wanted.flatten()
    if bug == "shifted_in_the_loader_and_in_the_loss":
        out, flat = logits[:, :-1].flatten(0, 1), wanted[:, 1:].flatten()
    if not training:
        return F.cross_entropy(out, flat)
    if bug == "token_losses_over_the_number_of_rows":
        return F.cross_entropy(out, flat, reduction="sum") / len(wanted)
    loss = F.cross_entropy(out, flat, label_smoothing=c.label_smoothing,
                           reduction="sum" if c.loss_norm == "none" else "mean")  # fmt: skip
    if c.z_loss:
        loss = loss + c.z_loss * out.logsumexp(-1).square().mean()
    return loss


# -- training -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def validate(s: Any, step: int) -> None:
    """Both ranks call it, each with a half of the rows."""
    if s.bug != "validated_between_two_updates_as_it_is":
        s.model.eval()
    mine = s.held[dist.get_rank() :: RANKS]
    losses = [next_word_loss(s.c, s.model(rows[:, :-1]), rows[:, 1:], s.bug, False) for rows in mine.split(16)]
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    mean = mean.item() / RANKS
    if s.bug != "model_validated_and_kept_so":
        s.model.train()
    if dist.get_rank() == 0:
        s.run.log({"lm_val/nll": mean, "lm_val/ppl": math.exp(min(mean, 20))}, step=step)


def train_step(s: Any, stream: Any, step: int) -> None:
    c, total, began, parts = s.c, 0.0, clock(), s.c.gradient_accumulation
    for part in range(parts):
        epoch, rows = next(stream)
        words, wanted = rows[:, :-1], rows[:, 1:]
        s.watch.observe({"input_ids": words, "labels": wanted}, step=step, epoch=epoch)
        last = part == parts if s.bug == "last_part_counted_from_one" else part == parts - 1
        s.model.set_requires_gradient_sync(last)
        loss = next_word_loss(c, s.model(words), wanted, s.bug)
        (loss if s.bug == "each_part_backward_in_full" else loss / parts).backward()
        total += loss.item() / parts
        if s.bug == "lr_moves_with_each_part":
            s.scheduler.step()
    norm: Any = nn.utils.clip_grad_norm_(s.model.parameters(), c.max_norm)
    norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    rate = s.optimizer.param_groups[0]["lr"]
    s.optimizer.step()
    s.optimizer.zero_grad()
    if s.bug != "lr_moves_with_each_part":
        s.scheduler.step()
    s.tokens += parts * RANKS * c.local_batch_size * ROW
    if dist.get_rank() == 0 and step % c.log_freq == 0:
        said = {"lm/nll": total, "lm/ppl": math.exp(min(total, 20)), "lm/gnorm": norm, "lm/lr": rate}
        s.run.log(said | {"lm/tokens": float(s.tokens)}, step=step)
    s.run.reduce(step, {"loss": total}, step_ms=(clock() - began) * 1000)


def work(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    c, bug = SimpleNamespace(**run.config), Trouble(fault, seed).name
    s = SimpleNamespace(run=run, c=c, bug=bug, tokens=0)
    rows, whose, s.held = load(c, seed, bug)
    s.model = build_model(c, bug)
    s.optimizer, s.scheduler = build_optimizer(c, s.model, bug)
    time_by_own_clock(run)
    run.watch(s.model, s.optimizer)
    s.watch = run.watch_data()
    torch.manual_seed(seed + 53 * (1 + dist.get_rank()))  # of dropout
    stream = data_iterator(c, rows, whose, seed, bug)
    s.model.train()
    for step in range(steps):
        train_step(s, stream, step)
        if step % c.validate_every == c.validate_every - 1:
            validate(s, step)
    return run


train = work
launch = partial(ranks.launch, work=work, number=RANKS)
