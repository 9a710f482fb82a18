"""An encoder over two gloo processes, sharded by `fully_shard`, says of each token how often it comes in its row.

In:   the arguments of `barograph.init`; what goes wrong, or which healthy variant it is.
Out:  one run with the log of each rank (`run.step` with accuracy), rank 0's comparison and evaluations; the watch of
      model and data.

Each rank has its share of a list that is dealt out anew each epoch; micro-batches but the last are not synchronised.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as distributed
from injections import Trouble, clock
from torch import Tensor, nn
from torch.nn import functional

from . import ranks
from .loop import factor
from .parts import watched_rank

EVERY, RANKS, TOKENS, LENGTH, MOST = 20, 2, 12, 16, 6
CONFIG: dict[str, Any] = {
    "width": 32, "heads": 4, "layers": 2, "dropout": 0.0, "batch_size": 12, "learning_rate": 4e-3, "warmup_steps": 15,
    "schedule": "cosine", "weight_decay": 0.01, "clip": 1.0, "accumulation": 1, "examples": 3000, "precision": "fp32",
    "ranks": RANKS, "letters": 10, "optimizer": "adamw",
}  # fmt: skip


def rows(seed: int, number: int, letters: int) -> tuple[Tensor, Tensor]:
    """Tokens (number, LENGTH), drawn unevenly, and how often each comes in its row, less one."""
    dice = torch.Generator().manual_seed(seed)
    weights = torch.rand(number, letters, generator=dice) ** 2 + 0.02
    tokens = torch.multinomial(weights, LENGTH, replacement=True, generator=dice)
    return tokens, ((tokens[:, :, None] == tokens[:, None]).sum(-1) - 1).clamp(max=MOST - 1)


class Layer(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.heads, self.norm1, self.norm2 = config["heads"], nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width))
        self.drop = nn.Dropout(config["dropout"])

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.drop(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Counter(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width = config["width"]
        self.embed, self.start = nn.Embedding(TOKENS, width), nn.Parameter(0.1 * torch.randn(1, 1, width))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["layers"]))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, MOST)

    def forward(self, tokens: Tensor) -> Tensor:
        x = torch.cat([self.start.expand(len(tokens), -1, -1), self.embed(tokens)], 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, 1:]))


class Script:
    def __init__(self, run: Any, seed: int, trouble: Trouble):
        self.run, self.config, self.trouble, self.seed = run, dict(run.config), trouble, seed
        self.rank = distributed.get_rank()
        torch.manual_seed(seed)
        self.model: Any = Counter(self.config)
        if trouble.name == "sharded_after_optimizer":
            self.optimize()
            self.shard()
        else:
            self.shard()
            self.optimize()
        self.data = rows(seed + 33, self.config["examples"], self.config["letters"])
        self.test = rows(333, 192, self.config["letters"])
        self.epoch, self.order = -1, torch.empty(0, dtype=torch.long)

    def shard(self) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        low = self.config["precision"] == "bf16"
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
        for layer in self.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)

    def optimize(self) -> None:
        rate = self.config["learning_rate"]
        if self.config["optimizer"] == "sgd":
            self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=40 * rate, momentum=0.9)
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate,
                                               weight_decay=self.config["weight_decay"])  # fmt: skip
        self.peak = self.optimizer.param_groups[0]["lr"]

    def batch(self) -> tuple[Tensor, Tensor]:
        size = int(self.config["batch_size"])
        if len(self.order) < size:
            self.epoch += 1
            dice = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
            order = torch.randperm(len(self.data[0]), generator=dice)
            self.order = order if self.trouble.name == "same_seed_on_ranks" else order[self.rank :: RANKS]
        chosen, self.order = self.order[:size], self.order[size:]
        return self.data[0][chosen], self.data[1][chosen]

    def loss(self, tokens: Tensor, counts: Tensor) -> tuple[Tensor, float]:
        logits = self.model(tokens).float()
        reduction = "sum" if self.trouble.name == "loss_summed" else "mean"
        loss = functional.cross_entropy(logits.flatten(0, 1), counts.flatten(), reduction=reduction)
        return loss, (logits.argmax(-1) == counts).float().mean().item()

    def step(self, step: int) -> None:
        trouble, config, began = self.trouble, self.config, clock()
        parts = config["accumulation"]
        rate = self.peak * factor(config, trouble.early(step, config["steps"])[1], step)
        for group in self.optimizer.param_groups:
            group["lr"] = trouble.rate(step, rate)
        total = right = 0.0
        with self.run.step(step=step) as timed:
            for part in range(parts):
                with self.run.phase("data"):
                    tokens, counts = self.batch()
                    self.watched.observe({"input_ids": tokens, "labels": counts}, step=step, epoch=self.epoch)
                last = part == parts - 1 and trouble.name != "never_synchronised"
                self.model.set_requires_gradient_sync(last)
                loss, hits = self.loss(tokens, counts)
                if trouble.name != "accumulation_undivided":
                    loss = loss / parts
                loss.backward()
                total, right = total + loss.item(), right + hits / parts
            trouble.gradients(step, self.model, self.model.layers[1])
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), config["clip"])
            norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
            self.optimizer.step()
            if trouble.clears(step):
                self.optimizer.zero_grad()
            timed.set(loss=total, lr=self.optimizer.param_groups[0]["lr"], norm=norm, accuracy=right, epoch=self.epoch)
        self.run.reduce(step, {"loss": total, "norm": norm}, step_ms=(clock() - began) * 1000)

    @torch.no_grad()
    def validate(self, step: int) -> None:
        """All ranks, since each has a part of the weights; the first one logs."""
        began = clock()
        self.model.eval()
        loss, accuracy = self.loss(*self.test)
        self.model.train()
        if self.rank == 0:
            self.run.log_eval(step, self.epoch, len(self.test[0]), (clock() - began) * 1000, loss.item(),
                              accuracy=accuracy)  # fmt: skip


def train(run: Any, *, seed: int, steps: int, fault: Any = None, healthy: str | None = None) -> Any:
    """Train this rank, record, return the run."""
    torch.set_num_threads(1)
    return watched_rank(Script(run, seed, Trouble(fault, seed)), run, steps, EVERY)


launch = partial(ranks.launch, work=train, number=RANKS)
