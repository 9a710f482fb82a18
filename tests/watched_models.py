"""Small models and a run that keeps what a watch tells it, for the tests of the watch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from barograph.testing import FakeRun

TOKENS = torch.arange(40).reshape(2, 20) % 50
OFF = {"gradients": 0, "updates": 0, "weights": 0, "histograms": 0, "activations": 0, "optimizer_state": 0}
QUIET: dict[str, Any] = OFF | {"budget": None}
EACH = dict.fromkeys(OFF, 1)


class Notes(FakeRun):
    """A stand-in whose `log` counts steps as a real run does, with what the tests of the watch ask for."""

    lock: Any = None

    def log(self, step: int) -> None:
        self.next_step = step + 1

    @property
    def steps(self) -> list[int]:
        return [record.step for record in self.records if record.kind == "model"]

    def fields(self, step: int) -> dict[str, Any]:
        return next(record.fields for record in self.records if record.kind == "model" and record.step == step)


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


@pytest.fixture
def run() -> Iterator[Notes]:
    torch.manual_seed(0)
    notes = Notes()
    yield notes
    for last_word in notes.at_finish:
        last_word()
