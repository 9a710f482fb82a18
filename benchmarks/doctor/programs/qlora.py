"""Adapters on a base of four bits, as QLoRA has them: the base is decoded to bfloat16 for each use.

In:   a run; what goes wrong, or which healthy variant it is.
Out:  the run, by plain `run.log` with the Trainer's names.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from . import loop, lora
from .lora import Adapting

EVERY = Adapting.every
CONFIG: dict[str, Any] = lora.CONFIG | {"bits": 4, "learning_rate": 8e-3, "rank": 4, "alpha": 8, "length": 24}


class Quantised(Adapting):
    language = 47
    names = {"loss": "loss", "norm": "grad_norm", "lr": "learning_rate", "epoch": "epoch"}  # noqa: RUF012


train = partial(loop.train, Quantised)
