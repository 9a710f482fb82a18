"""A decoder whose weights, gradients and moments are all bfloat16, with no copy in full precision.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by `run.step`. Weights of eight bits of mantissa lose an update that is less than 1/512 of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from . import loop
from .language import Letters
from .parts import Decoder

EVERY = Letters.every
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 2, "layers": 2, "length": 32, "dropout": 0.0, "batch_size": 16, "learning_rate": 4e-3,
    "warmup_steps": 10, "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "precision": "bf16",
}  # fmt: skip


class Pure(Letters):
    language = 58

    def make(self) -> nn.Module:
        return Decoder(self.config).to(torch.bfloat16)


train = partial(loop.train, Pure)
