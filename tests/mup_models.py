"""An MLP and a GPT in the standard parametrisation and in muP; the rules stand in `barograph.demo.widths`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from barograph.demo.widths import BASE, HEADS, Readout, adam
from barograph.demo.widths import GPT as DemoGPT

__all__ = ["BASE", "CLASSES", "GPT", "HEADS", "INPUTS", "MLP", "VOCABULARY", "Readout", "adam"]

INPUTS, CLASSES = 16, 10
VOCABULARY = 32


class GPT(DemoGPT):
    def __init__(self, width: int, mup: bool) -> None:
        super().__init__(width, mup, VOCABULARY)


class MLP(nn.Module):
    def __init__(self, width: int, mup: bool) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.readout = Readout(width, CLASSES, mup)
        for layer in (self.first, self.second, self.third):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.readout(torch.relu(self.third(x)))


def classes(step: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points and their classes, the same at each step."""
    generator = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(64, INPUTS, generator=generator)
    return x, (x @ torch.randn(INPUTS, CLASSES, generator=generator)).argmax(-1)


def sentences(step: int, seed: int) -> tuple[Tensor, Tensor]:
    """One short text whose second half repeats its first, so that attention has something to learn."""
    half = torch.randint(0, VOCABULARY, (1, 5), generator=torch.Generator().manual_seed(2000 + seed))
    tokens = torch.cat((half, half[:, :4]), 1)
    return tokens[:, :-1], tokens[:, 1:]
