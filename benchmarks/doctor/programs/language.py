"""What the newer language models' trainings share: windows of a text, next letters, a base that was trained before.

In:   a config; a model.
Out:  `Letters`, a task of the loop; `pretrained`, a decoder that knows a language.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import loop
from .parts import Decoder, Text, cross_entropy, once


class Letters(loop.Task):
    """Predict the next letter."""

    every = 20
    language = 12

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        self.text = Text(seed + 1, config["length"], language=self.language)
        held_out = Text(777, config["length"], words=1500, language=self.language)
        self.held_out = [held_out.take(32) for _ in range(2)]
        self.model = self.make()
        self.block = self.model.blocks[1]

    def make(self) -> nn.Module:
        return Decoder(self.config)

    def batch(self, rows: int) -> loop.Batch:
        return self.text.take(rows)

    def prepared(self, batch: loop.Batch) -> loop.Batch:
        inputs, targets = batch
        if self.trouble.name == "labels_off_by_one":  # the shift is done twice
            targets = torch.cat([targets[:, 1:], targets[:, :1]], 1)
        if self.trouble.on("labels_leak", self.step):
            targets = inputs
        if self.trouble.on("loss_masked", self.step):
            targets = torch.full_like(targets, -100)
        return inputs, targets

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1], twice=self.trouble.name == "double_softmax")

    def freeze_wrongly(self) -> None:
        """The blocks, where the embedding was meant."""
        self.model.blocks.requires_grad_(False)


@once("width", "heads", "layers", "length", "dropout")
def pretrained(config: dict[str, Any], language: int, steps: int) -> Decoder:
    """A decoder that was trained on a language before; the same for all seeds, and recorded nowhere."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model, text = Decoder(config), Text(3, config["length"], language=language)
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
        for _ in range(steps):
            inputs, targets = text.take(24)
            loss = cross_entropy(model(inputs), targets).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model
