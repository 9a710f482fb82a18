"""Small models and a run that keeps what a watch tells it, for the tests of the watch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from barograph.config import Settings

TOKENS = torch.arange(40).reshape(2, 20) % 50


class Notes:
    """A run that remembers. `log` counts steps as a real one does."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.dir, self.settings = Path("."), Settings()
        self.rank, self.world_size = rank, world_size
        self.at_finish: list[Any] = []
        self._next_step = 0
        self.records: list[tuple[str, int, dict[str, Any]]] = []
        self.tables: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
        self.histograms: dict[tuple[str, int], tuple[Any, Any]] = {}
        self.warnings: dict[str, str] = {}
        self.lock: Any = None

    @property
    def current_step(self) -> int:
        return max(0, self._next_step - 1)

    @property
    def next_step(self) -> int:
        return self._next_step

    def log(self, step: int) -> None:
        self._next_step = step + 1

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> None:
        self.records.append((kind, step, fields))

    def log_layers(
        self, step: int, layers: dict[str, dict[str, float]], prefix: str = "layers", *, advance: bool = True
    ) -> None:
        self._next_step = step + 1 if advance else self._next_step  # as the real one
        self.tables[prefix, step] = {name: dict(row) for name, row in layers.items()}

    def log_histogram(self, name: str, values: Any, step: int, *, edges: Any = None, advance: bool = True) -> None:
        self._next_step = step + 1 if advance else self._next_step
        self.histograms[name, step] = (edges, values)

    def warn(self, sentence: str, key: str | None = None) -> None:
        self.warnings.setdefault(key or sentence, sentence)

    @property
    def steps(self) -> list[int]:
        return [step for kind, step, _ in self.records if kind == "model"]

    def fields(self, step: int) -> dict[str, Any]:
        return next(fields for kind, at, fields in self.records if kind == "model" and at == step)

    def said(self, words: str) -> bool:
        return any(words in sentence for sentence in self.warnings.values())


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, width: int = 8, depth: int = 3, tied: bool = False, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width, sparse=sparse)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 50, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(model: Any, tokens: Any = TOKENS) -> Any:
    return functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def gradient_norm(parameters: Any) -> float:
    squares = [float(p.grad.to_dense().double().square().sum()) for p in parameters if p.grad is not None]
    return math.sqrt(math.fsum(squares))


def hooks_left(model: nn.Module, *optimizers: Any) -> int:
    """How many hooks of any kind hang on a model and its optimizers."""
    found = 0
    for module in model.modules():
        found += len(module._forward_hooks) + len(module._forward_pre_hooks)
    for parameter in model.parameters():
        found += len(parameter._backward_hooks or ()) + len(parameter._post_accumulate_grad_hooks or ())
    for optimizer in optimizers:
        found += len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
    return found
