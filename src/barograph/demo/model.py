"""The demo's model: a small GPT over bytes, dense or with a mixture of experts in each block.

In:   a `Shape`, and byte values as a tensor of whole numbers, shape (batch, time).
Out:  logits over the next byte, shape (batch, time, 256), and for a mixture of experts what its
      routers did in that pass (`Routing`, `moe_stats`).

Importing this file loads torch; `barograph.demo.train` does so only once a training starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. `experts` 0 means a dense feed-forward layer in each block."""

    context: int = 256
    width: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int = 512
    experts: int = 0
    top_k: int = 2


class Routing(NamedTuple):
    """What one router did in one forward pass over `tokens` tokens."""

    aux_loss: Tensor  # scalar, 1.0 when balanced: see `route`
    z_loss: Tensor  # scalar, mean squared log of the router's partition sum
    loads: Tensor  # (experts,) whole numbers: tokens sent to each expert, together tokens × top_k


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021): turn each pair (i, i + half) by its angle. Shapes (…, time, size)."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Attention(nn.Module):
    """Causal self-attention with rotary positions and normalised queries and keys."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return out


class FeedForward(nn.Module):
    """The dense layer after attention: up, GELU, down."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.relu(self.up(x)).square())
        return out


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.feed_norm = nn.RMSNorm(shape.width)
        self.feed = FeedForward(shape)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        x = x + self.feed(self.feed_norm(x))
        return x


class ByteGPT(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(BYTES, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        size = shape.width // shape.heads
        freq = 10000.0 ** (-torch.arange(0, size, 2) / size)
        a = torch.outer(torch.arange(shape.context), freq)
        self.register_buffer("cosine", a.cos(), persistent=False)
        self.register_buffer("sine", a.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02 if "embedding" in name else p.shape[-1] ** -0.5)
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(p, std=p.shape[-1] ** -0.5 / math.sqrt(2 * shape.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        t = tokens.shape[1]
        x = self.embedding(tokens)
        for b in self.blocks:
            x = b(x, self.cosine[:t], self.sine[:t])
        return functional.linear(self.norm(x), self.embedding.weight)
