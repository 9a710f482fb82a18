"""An MLP and a GPT in the standard parametrisation and in muP, after Yang et al. 2022 (arXiv:2203.03466).

muP here is the paper's table 8 for Adam, against the standard parametrisation at every width:
input weights and biases: variance 1 / fan_in, rate unchanged; hidden weights: variance 1 / fan_in, rate
∝ 1 / fan_in; output weights: variance 1, multiplied by 1 / fan_in, rate unchanged; attention: 1 / d instead
of 1 / sqrt(d) (definition 4.1). Widths are relative to `BASE`, where both parametrisations are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BASE = 64
INPUTS, CLASSES = 16, 10
VOCABULARY, CONTEXT, HEADS = 32, 16, 4


class Readout(nn.Linear):
    """The last layer: in muP its answer is divided by width / BASE."""

    def __init__(self, width: int, out: int, mup: bool) -> None:
        super().__init__(width, out, bias=False)
        self.factor = BASE / width if mup else 1.0
        # in table 8 the variance is constant and the factor shrinks by the width
        nn.init.normal_(self.weight, std=(BASE if mup else width) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor


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


class Attention(nn.Module):
    def __init__(self, width: int, mup: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.scores = nn.Identity()  # so that attention logits can be looked at
        size = width // HEADS
        self.scale = (BASE / HEADS) ** 0.5 / size if mup else size**-0.5

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        query, key, value = self.qkv(x).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        logits = self.scores(query @ key.transpose(-1, -2) * self.scale)
        mask = torch.ones(time, time, dtype=torch.bool).triu(1)
        mixed = logits.masked_fill(mask, -1e9).softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    def __init__(self, width: int, mup: bool) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, mup)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(functional.gelu(self.up(self.feed_norm(x))))


class GPT(nn.Module):
    def __init__(self, width: int, mup: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, mup) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.readout = Readout(width, VOCABULARY, mup)
        for name, weight in self.named_parameters():
            if name.endswith(("tokens.weight", "places.weight")):
                nn.init.normal_(weight, std=0.5)
            elif weight.dim() == 2 and "readout" not in name:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        with torch.no_grad():  # appendix D.2: queries and readout start at 0, so that no chance is left in either
            self.readout.weight.zero_()
            for block in self.blocks:
                block.attention.qkv.weight[:width].zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.readout(self.norm(x))


def adam(rate: float, mup: bool) -> Any:
    """The optimizer at a width: in muP the rate of hidden matrices is divided by width / BASE."""

    def make(model: nn.Module, width: int) -> torch.optim.Optimizer:
        hidden, others = [], []
        for name, weight in model.named_parameters():
            inside = weight.dim() == 2 and not name.startswith(("first", "readout", "tokens", "places"))
            (hidden if inside else others).append(weight)
        groups = [{"params": hidden, "lr": rate * BASE / width if mup else rate}, {"params": others}]
        return torch.optim.Adam(groups, lr=rate)

    return make


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
