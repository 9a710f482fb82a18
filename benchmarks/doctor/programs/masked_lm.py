"""A masked language model: an encoder that fills in the letters that were taken out, as BERT does.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.log`, with the names of a Trainer: loss, grad_norm, learning_rate, eval_loss.

Rows have lengths of their own, and are padded. Of the letters that are to be told, eight in ten are masked, one is
another letter, one stays.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .moe_gpt import LETTERS
from .parts import Block, Text

EVERY, PAD, MASK = 20, LETTERS, LETTERS + 1
CONFIG: dict[str, Any] = {
    "width": 48, "heads": 4, "layers": 2, "length": 32, "dropout": 0.05, "batch_size": 48, "learning_rate": 6e-3,
    "warmup_steps": 20, "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "told": 0.15, "shortest": 16,
}  # fmt: skip


class Filler(nn.Module):
    def __init__(self, config: dict[str, Any], trouble: Any):
        super().__init__()
        width, self.trouble = config["width"], trouble
        self.letters, self.positions = nn.Embedding(LETTERS + 2, width, PAD), nn.Embedding(config["length"], width)
        for embedding in (self.letters, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(config, causal=False) for _ in range(config["layers"]))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, letters: Tensor, there: Tensor) -> Tensor:
        seen = ~there if self.trouble.name == "padding_mask_inverted" else there  # torch has both conventions
        x = self.letters(letters) + self.positions.weight[: letters.shape[1]]
        for number, block in enumerate(self.blocks):
            x = block(x, seen[:, None, None])
            if number == 1:
                x = self.trouble.output(self.trouble.step, x)
        return self.head(self.norm(x))


class Filling(loop.Task):
    every = EVERY
    names = {"loss": "loss", "norm": "grad_norm", "lr": "learning_rate"}  # noqa: RUF012

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        trouble.step = 0
        self.model = Filler(config, trouble)
        self.block = self.model.blocks[1]
        self.text, self.dice = Text(seed + 61, config["length"]), torch.Generator().manual_seed(seed)
        held_out, dice = Text(677, config["length"], words=1500), torch.Generator().manual_seed(677)
        self.held_out = [self.collated(held_out.take(64)[0], dice) for _ in range(3)]

    def collated(self, letters: Tensor, dice: torch.Generator) -> loop.Batch:
        """Letters as the model is given them, which are there, and labels: -100 where nothing is to be told."""
        rows, length = letters.shape
        lengths = torch.randint(self.config["shortest"], length, (rows, 1), generator=dice)
        there = torch.arange(length) < lengths
        told = (torch.rand(letters.shape, generator=dice) < self.config["told"]) & there
        told[:, 3] = True  # never none
        chance = torch.rand(letters.shape, generator=dice)
        other = torch.randint(0, LETTERS, letters.shape, generator=dice)
        given = torch.where(told & (chance < 0.8), MASK, torch.where(told & (chance > 0.9), other, letters))
        if self.trouble.name == "answers_in_input":  # the copy that was masked is not the one that goes in
            given = letters
        labels = letters if self.trouble.name == "every_letter_counted" else torch.where(told, letters, -100)
        return torch.where(there, given, PAD), there, torch.where(there, labels, -100)

    def batch(self, rows: int) -> loop.Batch:
        return self.collated(self.text.take(rows)[0], self.dice)

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        if self.trouble.on("loss_masked", self.step):
            return *batch[:-1], torch.full_like(batch[-1], -100)
        return batch

    def observed(self, batch: loop.Batch) -> Any:
        return {"input_ids": batch[0], "attention_mask": batch[1].long(), "labels": batch[2]}

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        letters, there, labels = batch
        self.trouble.step = self.step
        logits = model(letters, there)
        counted = labels != -100
        hits = (logits.argmax(-1) == labels)[counted]
        self.figures = {"mlm_accuracy": float(hits.float().mean())}
        return functional.cross_entropy(logits[counted], labels[counted], reduction="none")


train = partial(loop.train, Filling)
