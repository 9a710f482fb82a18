"""What the newer programs are built of: transformer blocks, a decoder, text of a small language.

In:   widths and depths from a program's config.
Out:  modules; token sequences.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from injections import time_by_own_clock
from torch import Tensor, nn
from torch.nn import functional

from .moe_gpt import LETTERS, write_text


class Block(nn.Module):
    """Pre-norm attention and feed-forward layer."""

    def __init__(self, config: dict[str, Any], causal: bool):
        super().__init__()
        width = config["width"]
        self.heads, self.causal = config["heads"], causal
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(config["dropout"])

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.attention_norm(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, attn_mask=mask, is_causal=self.causal)
        x = x + self.dropout(self.proj(mixed.transpose(1, 2).reshape(rows, length, width)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.mlp_norm(x)))))


class Decoder(nn.Module):
    """A GPT whose output matrix is its embedding."""

    def __init__(self, config: dict[str, Any], vocabulary: int = LETTERS):
        super().__init__()
        width = config["width"]
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(config["length"], width)
        self.blocks = nn.ModuleList(Block(config, causal=True) for _ in range(config["layers"]))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.05)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Text:
    """Windows of a text, drawn by chance. language: which; two languages share their letters alone."""

    def __init__(self, seed: int, length: int, words: int = 6000, language: int = 12):
        self.letters, self.length = write_text(seed, words, language), length
        self.dice = torch.Generator().manual_seed(seed)

    def take(self, rows: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets (rows, length); a target is the letter that comes next."""
        starts = torch.randint(0, len(self.letters) - self.length - 1, (rows,), generator=self.dice)
        windows = self.letters[starts[:, None] + torch.arange(self.length + 1)]
        return windows[:, :-1], windows[:, 1:]


def all_steps(made: Any, steps: int, every: int, resume_at: int | None = None) -> None:
    """Every step of a script that has `step`, `validate` and, where it is resumed, `resume`."""
    for step in range(steps):
        if step == resume_at:
            made.resume(step)
        made.step(step)
        if step % every == 0 or step == steps - 1:
            made.validate(step)


def watched_rank(made: Any, run: Any, steps: int, every: int) -> Any:
    """One rank's script, watched with its batches, through all its steps: the run."""
    time_by_own_clock(run)
    run.watch(made.model, made.optimizer)
    made.watched = run.watch_data()
    all_steps(made, steps, every)
    return run


def fit(optimizer: Any, steps: int, loss_of: Callable[[], Tensor]) -> None:
    """Train for so many steps beside the run, as for a base that is taken over. loss_of: draws a batch."""
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def cross_entropy(logits: Tensor, targets: Tensor, twice: bool = False) -> Tensor:
    """The loss of each target. twice: the network's output is taken through a softmax before, by mistake."""
    logits = logits.float().flatten(0, -2)
    return functional.cross_entropy(logits.softmax(-1) if twice else logits, targets.flatten(), reduction="none")


def once(*read: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function of a config that trains a model anew is called once in a process for each model, and gives copies.

    read: the config's values that the model depends on, beside the function's other arguments, which are given by name.
    """

    def kept(train: Callable[..., Any]) -> Callable[..., Any]:
        made: dict[Any, Any] = {}

        @functools.wraps(train)
        def copied(config: dict[str, Any], **others: Any) -> Any:
            of = (*(config[name] for name in read), *sorted(others.items()))
            if of not in made:
                made[of] = train(config, **others)
            return copy.deepcopy(made[of])

        return copied

    return kept
