"""A decoder under autocast to float16, with a scaler that `run.watch` has been given.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by plain `run.log` with names of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import loop
from .language import Letters

EVERY = Letters.every
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 2, "layers": 2, "length": 32, "dropout": 0.0, "batch_size": 16, "learning_rate": 5e-3,
    "warmup_steps": 10, "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "precision": "fp16",
}  # fmt: skip


class Scaled(Letters):
    language = 66
    names = {"loss": "train_loss", "norm": "gnorm", "lr": "lr"}  # noqa: RUF012

    def losses(self, model: nn.Module, batch: loop.Batch) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return super().losses(model, batch)


train = partial(loop.train, Scaled)
