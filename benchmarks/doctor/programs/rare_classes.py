"""A classifier of sequences whose classes are rare: nine in ten belong to one, one in a hundred to the last.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`, with accuracy. Batches without a rare class, and with one, make the loss uneven.

Sequences have 6 to 24 tokens, padded to the longest of the batch. What the pooled features are normalised with is
batch norm.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import loop
from .parts import Block, cross_entropy

EVERY = 20
SHARES = (0.80, 0.12, 0.06, 0.02)
VOCABULARY, LONGEST, PAD, MARKS = 40, 24, 0, 4
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 4, "layers": 2, "dropout": 0.05, "batch_size": 48, "learning_rate": 3e-3, "warmup_steps": 10,
    "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "examples": 4800, "wrong_labels": 0.03,
}  # fmt: skip


def sequences(seed: int, number: int, wrong: float) -> loop.Batch:
    """Tokens (number, LONGEST) and classes. A class is the mark that is in the sequence twice; another is once."""
    dice = torch.Generator().manual_seed(seed)
    classes = torch.multinomial(torch.tensor(SHARES), number, replacement=True, generator=dice)
    tokens = torch.randint(1 + MARKS, VOCABULARY, (number, LONGEST), generator=dice)
    lengths = torch.randint(6, LONGEST + 1, (number,), generator=dice)
    places = (torch.rand(number, LONGEST, generator=dice) + 9 * (torch.arange(LONGEST) >= lengths[:, None])).argsort(1)
    rows = torch.arange(number)
    other = (classes + torch.randint(1, MARKS, (number,), generator=dice)) % MARKS
    for place, mark in enumerate((classes, classes, other)):
        tokens[rows, places[:, place]] = 1 + mark
    tokens[torch.arange(LONGEST) >= lengths[:, None]] = PAD
    mistaken = torch.rand(number, generator=dice) < wrong
    return tokens, torch.where(mistaken, torch.randint(0, MARKS, (number,), generator=dice), classes)


class Classifier(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(LONGEST, width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.3)
        self.blocks = nn.ModuleList(Block(config, causal=False) for _ in range(config["layers"]))
        self.norm, self.classifier = nn.BatchNorm1d(width), nn.Linear(width, MARKS)

    def forward(self, tokens: Tensor) -> Tensor:
        there = tokens != PAD
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, there[:, None, None])
        pooled = (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return self.classifier(self.norm(pooled))


class Classifying(loop.Task):
    every = EVERY

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Classifier(config)
        self.block = self.model.blocks[1]
        if trouble.name == "stale_statistics":
            self.model.norm.momentum = 0.0  # the momentum of the other convention would be 1
        self.data = sequences(seed + 5, config["examples"], config["wrong_labels"])
        self.held_out = [sequences(313, 400, config["wrong_labels"])]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.epoch += 1
            self.order = torch.randperm(len(self.data[0]), generator=self.dice)
            if self.trouble.name == "data_by_length":
                self.order = (self.data[0] != PAD).sum(1).argsort(stable=True)
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        if self.trouble.name == "labels_off_by_one":  # classes that count from 1, the last kept in range
            return batch[0], (batch[1] + 1).clamp(max=MARKS - 1)
        return batch

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        logits = model(batch[0])
        self.figures["accuracy"] = float((logits.argmax(-1) == batch[1]).float().mean())
        return cross_entropy(logits, batch[1], twice=self.trouble.name == "double_softmax")

    def freeze_wrongly(self) -> None:
        """All but the classifier, where the embedding was meant."""
        self.model.requires_grad_(False)
        self.model.classifier.requires_grad_(True)


train = partial(loop.train, Classifying)
