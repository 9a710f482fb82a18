"""The demo's model: a small GPT over bytes, dense or with a mixture of experts in each block.

In:   a `ModelShape`; byte values as a tensor of whole numbers, shape (batch, time).
Out:  logits over the next byte, shape (batch, time, 256); for a mixture of experts also what its
      routers did (`Routing`), from which `router_loss` and `moe_stats` are computed.

Importing this file loads torch; `barograph.demo.train` does so only once a training starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256
# Weights of the router's losses in the sum that is minimised: Switch Transformer section 2.2, ST-MoE section 3.
AUX_WEIGHT = 0.01
Z_WEIGHT = 0.001


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model. `experts` 0 means one dense feed-forward layer in each block.

    `hidden` is the inner width of the dense layer; each expert has `hidden / top_k`, so that a token
    costs the same either way.
    """

    context: int = 128
    width: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int = 512
    experts: int = 0
    top_k: int = 2


class Routing(NamedTuple):
    """What one router did in one forward pass. `loads` sum to tokens × top_k: no token is dropped."""

    aux_loss: Tensor  # scalar: 1.0 when balanced, up to the number of experts
    z_loss: Tensor  # scalar: mean squared log of the router's partition function
    loads: Tensor  # (experts,) whole numbers: tokens sent to each expert


class RoutingStats(TypedDict):
    """Router health of a forward pass, in Surogate's terms; `valid` is False for a dense model."""

    aux_loss: float
    z_loss: float
    expert_utilization: float
    load_imbalance: float
    valid: bool


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021): the pair (i, i + size / 2) is turned by its angle at each time.

    heads: (batch, heads, time, size); cosine, sine: (time, size / 2).
    """
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Attention(nn.Module):
    """Causal self-attention over (batch, time, width)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, time, width = x.shape
        split = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return result


class FeedForward(nn.Module):
    """The dense layer: up, squared ReLU (So et al. 2021; cheaper than GELU on a CPU), down."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Routing | None]:
        return self.down(functional.relu(self.up(x)).square()), None


class Experts(nn.Module):
    """A mixture of experts: each token goes to the `top_k` experts that its router finds most probable."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        inner = shape.hidden // shape.top_k
        self.top_k = shape.top_k
        self.router = nn.Linear(shape.width, shape.experts, bias=False)
        self.up = nn.Parameter(torch.empty(shape.experts, inner, shape.width))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.width, inner))

    def forward(self, x: Tensor) -> tuple[Tensor, Routing]:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen, routing = route(self.router(tokens), self.top_k)
        order = chosen.flatten().argsort(stable=True)  # the (token, choice) pairs, expert by expert
        sent = torch.split(tokens.index_select(0, order // self.top_k), routing.loads.tolist())
        done = [
            functional.linear(functional.relu(functional.linear(part, up)).square(), down)
            for part, up, down in zip(sent, self.up, self.down, strict=True)
        ]
        # back in the order of tokens by the inverse permutation: sums in a fixed order, the same every time
        answers = torch.cat(done).index_select(0, order.argsort()).view(*chosen.shape, -1)
        return (answers * weights.unsqueeze(-1)).sum(1).view_as(x), routing


def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor, Routing]:
    """Weights and numbers of the chosen experts, each (tokens, top_k), for router logits (tokens, experts).

    The weights of a token's choices sum to 1. The auxiliary loss is that of Switch Transformer (equation 4)
    over all choices: experts × Σ share of choices × mean probability; the z-loss that of ST-MoE (equation 5).
    """
    tokens, experts = logits.shape
    probabilities = logits.softmax(-1)
    best, chosen = probabilities.topk(top_k, dim=-1)
    loads = torch.bincount(chosen.flatten(), minlength=experts)
    aux_loss = experts * (loads / (tokens * top_k) * probabilities.mean(0)).sum()
    z_loss = logits.logsumexp(-1).square().mean()
    return best / best.sum(-1, keepdim=True), chosen, Routing(aux_loss, z_loss, loads)


class TransformerBlock(nn.Module):
    """Attention, then a feed-forward layer or experts, each on normalised input and added to the stream."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.feed_norm = nn.RMSNorm(shape.width)
        self.feed = Experts(shape) if shape.experts else FeedForward(shape)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Routing | None]:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        update, routing = self.feed(self.feed_norm(x))
        return x + update, routing


class ByteGPT(nn.Module):
    """The whole model; the embedding is also the last layer's weight."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, shape: ModelShape) -> None:
        """Weights are drawn from torch's global generator: seed it first."""
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(BYTES, shape.width)
        self.blocks = nn.ModuleList(TransformerBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        size = shape.width // shape.heads
        angles = torch.outer(torch.arange(shape.context), 10_000.0 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        self._draw_weights()

    @torch.no_grad()
    def _draw_weights(self) -> None:
        """Zeros where a layer writes to the stream, so that the model starts as its embedding alone: in the
        few hundred steps of a demo this is worth 0.3 nats against the usual small random weights."""
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight", "feed.down")):
                weight.zero_()
            elif name.endswith(("embedding.weight", "router.weight")):
                weight.normal_(std=0.05)
            elif weight.dim() > 1:
                weight.normal_(std=weight.shape[-1] ** -0.5)

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[Routing]]:
        """Logits (batch, time, 256) for bytes (batch, time), time ≤ context; one `Routing` a layer of experts."""
        time = tokens.shape[1]
        x = self.embedding(tokens)
        routings: list[Routing] = []
        for block in self.blocks:
            x, routing = block(x, self.cosine[:time], self.sine[:time])
            if routing is not None:
                routings.append(routing)
        return functional.linear(self.norm(x), self.embedding.weight), routings


def next_byte_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats a byte. logits: (batch, time, 256); targets: (batch, time)."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def router_loss(routings: Sequence[Routing]) -> Tensor:
    """What the routers add to the loss that is minimised: the weighted sum over layers."""
    return sum((AUX_WEIGHT * routing.aux_loss + Z_WEIGHT * routing.z_loss for routing in routings), torch.zeros(()))


@torch.no_grad()
def moe_stats(routings: Sequence[Routing]) -> RoutingStats:
    """Surogate's router health: the weighted losses summed over layers; the share of experts that got tokens and
    the greatest load over the mean load, both averaged over layers."""
    if not routings:
        return RoutingStats(aux_loss=0.0, z_loss=0.0, expert_utilization=0.0, load_imbalance=0.0, valid=False)
    loads = torch.stack([routing.loads for routing in routings]).double()
    return RoutingStats(
        aux_loss=AUX_WEIGHT * sum(routing.aux_loss.item() for routing in routings),
        z_loss=Z_WEIGHT * sum(routing.z_loss.item() for routing in routings),
        expert_utilization=(loads > 0).double().mean().item(),
        load_imbalance=(loads.amax(1) / loads.mean(1)).mean().item(),
        valid=True,
    )


@torch.inference_mode()
def generate(model: ByteGPT, prompt: bytes, length: int, seed: int, temperature: float = 0.7) -> bytes:
    """`length` bytes drawn one by one after a prompt that is not empty; the same seed draws the same."""
    generator = torch.Generator().manual_seed(seed)
    text = list(prompt)
    for _ in range(length):
        logits, _ = model(torch.tensor([text[-model.shape.context :]]))
        chances = (logits[0, -1] / temperature).softmax(-1)
        if not bool(torch.isfinite(chances).all()):  # a model that broke writes anything
            chances = torch.ones_like(chances)
        text.append(int(torch.multinomial(chances, 1, generator=generator)))
    return bytes(text[len(prompt) :])
