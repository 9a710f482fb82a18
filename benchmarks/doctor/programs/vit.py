"""A vision transformer that tells drawn shapes apart: patches, a class token, AdamW, epochs.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step` and `run.log_eval`, with the watch of model and batches.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import loop
from .parts import Block, cross_entropy
from .vision import CLASSES, SIZE, draw

EVERY, PATCH = 20, 4
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 4, "layers": 2, "dropout": 0.05, "batch_size": 48, "learning_rate": 3e-3, "warmup_steps": 15,
    "schedule": "cosine", "weight_decay": 0.05, "clip": 1.0, "examples": 6000, "noise": 0.25,
}  # fmt: skip


class Network(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.patches = nn.Conv2d(1, width, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.05 * torch.randn(1, (SIZE // PATCH) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(config, causal=False) for _ in range(config["layers"]))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Shapes(loop.Task):
    every = EVERY

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.model = Network(config)
        self.block = self.model.blocks[1]
        if config.get("train") == "head":  # a linear probe: of random features, for here nothing was trained before
            self.model.requires_grad_(False)
            self.model.head.requires_grad_(True)
        self.data = draw(seed + 1, config["examples"], config["noise"])
        self.held_out = [draw(4242, 240, config["noise"])]
        self.dice, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.epoch = -1

    def batch(self, rows: int) -> loop.Batch:
        if len(self.order) < rows:
            self.order, self.epoch = torch.randperm(len(self.data[0]), generator=self.dice), self.epoch + 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.data[0][chosen], self.data[1][chosen]

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        if self.trouble.name == "labels_off_by_one":  # labels that count from 1, the last class kept in range
            return batch[0], (batch[1] + 1).clamp(max=CLASSES - 1)
        return batch

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        logits = model(batch[0])
        self.figures["accuracy"] = float((logits.argmax(-1) == batch[1]).float().mean())
        return cross_entropy(logits, batch[1], twice=self.trouble.name == "double_softmax")

    def freeze_wrongly(self) -> None:
        """`freeze` says "patches"; the test of names is the wrong way round."""
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name.startswith(("patches", "head")))


train = partial(loop.train, Shapes)
