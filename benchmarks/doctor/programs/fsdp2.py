"""A decoder whose parameters are sharded over two gloo processes by `fully_shard`, each on text of its own.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with the log of each rank, and rank 0's comparison of loss and norm.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as distributed
from injections import clock
from torch import nn

from . import loop, ranks
from .language import Letters
from .parts import Text

EVERY, RANKS = Letters.every, 2
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 2, "layers": 2, "length": 32, "dropout": 0.0, "batch_size": 8, "learning_rate": 5e-3,
    "warmup_steps": 10, "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "ranks": RANKS,
}  # fmt: skip


class Sharded(Letters):
    language = 74

    def __init__(self, config: dict[str, Any], trouble: Any, seed: int):
        super().__init__(config, trouble, seed)
        rank = 0 if trouble.name == "same_seed_on_ranks" else distributed.get_rank()
        self.text = Text(seed + 1, config["length"], language=self.language)
        self.text.dice = torch.Generator().manual_seed(100 * seed + rank)
        self.began = clock()

    def make(self) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        model = super().make()
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)

    def after(self, run: Any, loss: float, norm: float) -> None:
        now = clock()
        run.reduce(self.step, {"loss": loss, "norm": norm}, step_ms=(now - self.began) * 1000)
        self.began = now


train = partial(loop.train, Sharded)
launch = partial(ranks.launch, work=train, number=RANKS)
