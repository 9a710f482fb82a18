"""Adapters of low rank on a frozen base: a decoder that knows one language learns another.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`. Most parameters are frozen, on purpose.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import loop
from .language import Letters, pretrained

EVERY = Letters.every
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 2, "layers": 2, "length": 32, "dropout": 0.0, "batch_size": 16, "learning_rate": 1e-2,
    "warmup_steps": 10, "schedule": "cosine", "weight_decay": 0.0, "clip": 1.0, "rank": 8, "alpha": 16,
    "adapter_dropout": 0.05, "bits": 32,
}  # fmt: skip


class Adapted(nn.Module):
    """A frozen layer with an adapter beside it. bits 4: the layer's weight is kept in blocks of 32 numbers of four
    bits, each block with its scale, and is multiplied out for each use, as bfloat16."""

    def __init__(self, base: nn.Linear, config: dict[str, Any]):
        super().__init__()
        rank = config["rank"]
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale, self.dropout, self.bits = (
            config["alpha"] / rank,
            nn.Dropout(config["adapter_dropout"]),
            config["bits"],
        )
        if self.bits == 4:
            blocks = base.weight.detach().reshape(-1, 32)
            scale = blocks.abs().amax(1, keepdim=True) / 7
            self.register_buffer("codes", (blocks / scale).round().to(torch.int8))
            self.register_buffer("scales", scale)
            self.register_buffer("bias", base.bias.detach().clone())
            self.shape = base.weight.shape
        else:
            self.base = base

    def forward(self, x: Tensor) -> Tensor:
        if self.bits == 4:
            weight = (self.codes * self.scales).view(self.shape).bfloat16()
            plain = functional.linear(x.bfloat16(), weight).float() + self.bias
        else:
            plain = self.base(x)
        return plain + self.scale * (self.dropout(x) @ self.lora_a.T) @ self.lora_b.T


class Adapting(Letters):
    language = 31

    def make(self) -> nn.Module:
        model = pretrained(self.config, language=12, steps=120).requires_grad_(False)
        for block in model.blocks:
            for name in ("qkv", "proj", "up", "down"):
                setattr(block, name, Adapted(getattr(block, name), self.config))
        if self.trouble.name == "adapters_zero":
            for name, parameter in model.named_parameters():
                if "lora" in name:
                    nn.init.zeros_(parameter)
        return model

    def freeze_wrongly(self) -> None:
        """Adapters are frozen with the base; its norms, which should be, are not."""
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_("norm" in name)


train = partial(loop.train, Adapting)
