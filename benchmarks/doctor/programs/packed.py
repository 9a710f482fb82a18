"""A decoder pretrained on packed rows: several documents a row, none of which sees another, positions begin anew.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`, and `log_eval`; the watch of model and data as the guide shows them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .moe_gpt import LETTERS, write_text

EVERY, BEGIN, IGNORED = 20, LETTERS, -100
CONFIG: dict[str, Any] = {
    "width": 40, "heads": 4, "layers": 2, "length": 48, "batch_size": 12, "learning_rate": 5e-3, "warmup_steps": 20,
    "schedule": "cosine", "weight_decay": 0.05, "clip": 1.0, "accumulation": 1, "shortest": 6, "longest": 30,
    "words": 9000,
}  # fmt: skip


class Layer(nn.Module):
    """Attention and a gated feed-forward layer, each added to what comes in."""

    def __init__(self, config: dict[str, Any], trouble: Any):
        super().__init__()
        width, self.heads, self.trouble = config["width"], config["heads"], trouble
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, length, width = x.shape
        normed = self.attention_norm(x)
        parts = [
            linear(normed).view(rows, length, self.heads, -1).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        ]
        mixed = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        mixed = self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        x = mixed if self.trouble.name == "shortcut_forgotten" else x + mixed
        normed = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    def __init__(self, config: dict[str, Any], trouble: Any):
        super().__init__()
        width, self.trouble = config["width"], trouble
        self.tokens, self.positions = nn.Embedding(LETTERS + 1, width), nn.Embedding(config["length"], width)
        self.layers = nn.ModuleList(Layer(config, trouble) for _ in range(config["layers"]))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, LETTERS + 1, bias=False)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.05)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        mask = documents[:, :, None] == documents[:, None]
        if self.trouble.name != "causality_lost":  # with a mask of one's own, nothing else keeps the future out
            mask = mask.tril()
        x = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            x = layer(x, mask[:, None])
        return self.head(self.norm(x))


class Packs:
    """Rows of documents, cut from a text at random; each begins with a token of its own."""

    def __init__(self, seed: int, config: dict[str, Any], words: int):
        self.letters, self.config = write_text(seed, words, 96), config
        self.dice = torch.Generator().manual_seed(seed)

    def take(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, positions, numbers of documents, targets; all (rows, length)."""
        length = self.config["length"]
        many = length // self.config["shortest"] + 2
        sizes = torch.randint(self.config["shortest"], self.config["longest"] + 1, (rows, many), generator=self.dice)
        begins = torch.cat([torch.zeros(rows, 1, dtype=torch.long), sizes.cumsum(1)], 1)
        places = torch.arange(length + 1).expand(rows, -1)
        documents = torch.searchsorted(begins, places.contiguous(), right=True) - 1
        positions = places - begins.gather(1, documents)
        starts = torch.randint(0, len(self.letters) - length, (rows, many + 1), generator=self.dice)
        tokens = self.letters[starts.gather(1, documents) + positions]
        tokens = torch.where(positions == 0, BEGIN, tokens)
        targets = torch.where(positions[:, 1:] == 0, IGNORED, tokens[:, 1:])
        return tokens[:, :-1], positions[:, :-1], documents[:, :-1], targets


class Pretraining(loop.Task):
    every = EVERY
    watched: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Decoder(config, trouble)
        self.block = self.model.layers[1]
        self.packs = Packs(seed + 71, config, config["words"])
        held_out = Packs(717, config, 3000)
        self.held_out = [held_out.take(24) for _ in range(2)]

    def batch(self, rows: int) -> loop.Batch:
        return self.packs.take(rows)

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        *given, targets = batch
        if self.trouble.name == "labels_off_by_one":  # shifted by the collator, and by the model once more
            targets = torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], IGNORED)], 1)
        return *given, targets

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        *given, targets = batch
        logits = model(*given)
        return functional.cross_entropy(logits[targets != IGNORED], targets[targets != IGNORED], reduction="none")

    def observed(self, batch: loop.Batch) -> Any:
        return {"input_ids": batch[0], "position_ids": batch[1], "labels": batch[-1]}


train = partial(loop.train, Pretraining)
