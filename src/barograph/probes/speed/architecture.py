"""The sizes of a transformer that decide what a token costs, and its parameters.

In:   the sizes themselves, or a configuration that `configurations.architecture` has read.
Out:  a checked `Architecture`; its `Parameters`, total and active; the attention span of each layer.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from barograph.core.text import quoted

# Above these no model has been built; a value beyond them is a slip of units.
MOST = 2**31
MOST_PARAMETERS = 10**15


class FlopsError(ValueError):
    """Sizes that are missing, impossible, or not known to us; the sentence names what to pass."""


def whole(value: Any, name: str, least: int = 1) -> int:
    """The value as a whole number from `least`, or a FlopsError that names it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise FlopsError(f"{name} is {quoted(value)}; give a whole number from {least}.")
    if value > MOST:  # type: ignore[operator]
        raise FlopsError(f"{name} is {quoted(value)}, more than any model has; check its unit.")
    number = float(value)
    if not number.is_integer() or number < least:  # so is NaN, and minus infinity
        raise FlopsError(f"{name} is {quoted(value)}; give a whole number from {least}.")
    return int(number)


@dataclass(frozen=True)
class Architecture:
    """Sizes of a decoder-only transformer; widths and counts, no units.

    sequence: tokens of one training sequence. gated: the feed-forward layer has three matrices (SwiGLU,
    GeGLU), else two. tied: the head is the embedding's matrix. windows: keys that a token of each layer
    attends to, None for all before it; empty means all layers see everything.

    Mixture of experts: `experts` of width `expert_ffn`, of which a token goes to `top_k`, and experts
    that every token goes to, `shared_ffn` wide together; the first or other `dense_layers` layers have
    a dense feed-forward layer of width `ffn` instead.

    Multi-head latent attention (DeepSeek-V2 section 2.1): `key_rank` > 0; keys and values come from a
    latent of that width, queries from one of `query_rank` (0: directly from the stream); `head_dim` is
    the width of a query, of which `rope_dim` are positions' own; `value_dim` that of a value.

    positions: learned position embeddings. vectors: norms and biases, all together. others: weights of
    further matrices that each token is multiplied with once (gates), all layers together.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    sequence: int
    gated: bool
    tied: bool
    windows: tuple[int | None, ...] = ()
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    value_dim: int = 0  # 0: as head_dim
    query_rank: int = 0
    key_rank: int = 0
    rope_dim: int = 0
    positions: int = 0
    vectors: int = 0
    others: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("gated", "tied"):
                if not isinstance(value, bool):
                    raise FlopsError(f"{item.name} is {quoted(value)}; give true or false.")
            elif item.name != "windows":
                required = item.name in _REQUIRED and not (item.name == "ffn" and self._all_experts())
                object.__setattr__(self, item.name, whole(value, item.name, 1 if required else 0))
        self._check_attention()
        self._check_experts()
        if parameters(self).total > MOST_PARAMETERS:
            raise FlopsError(f"these sizes make {parameters(self).total:.2g} parameters; check their units.")

    def _all_experts(self) -> bool:
        return bool(self.experts) and not self.dense_layers

    def _check_attention(self) -> None:
        if self.heads % self.kv_heads:
            raise FlopsError(f"heads ({self.heads}) is not a multiple of kv_heads ({self.kv_heads}).")
        if not self.value_dim:
            object.__setattr__(self, "value_dim", self.head_dim)
        if self.key_rank and self.rope_dim > self.head_dim:
            raise FlopsError(f"rope_dim ({self.rope_dim}) is more than head_dim ({self.head_dim}), which includes it.")
        if not self.key_rank and self.query_rank:
            raise FlopsError("query_rank is given without key_rank; latent attention needs both.")
        if self.windows and len(self.windows) != self.layers:
            raise FlopsError(f"windows has {len(self.windows)} entries for {self.layers} layers; give one a layer.")
        windows = tuple(
            None if window is None or whole(window, "windows") >= self.sequence else int(window)
            for window in self.windows
        )
        object.__setattr__(self, "windows", windows if any(windows) else ())

    def _check_experts(self) -> None:
        if not self.experts:
            stray = [n for n in ("top_k", "expert_ffn", "shared_ffn", "dense_layers") if getattr(self, n)]
            if stray:
                raise FlopsError(f"{stray[0]} is given without experts; pass experts too.")
            return
        whole(self.top_k, "top_k")
        whole(self.expert_ffn, "expert_ffn")
        if self.top_k > self.experts:
            raise FlopsError(f"top_k ({self.top_k}) is more than experts ({self.experts}).")
        if self.dense_layers >= self.layers:
            raise FlopsError(f"dense_layers ({self.dense_layers}) leaves none of {self.layers} layers to the experts.")

    @property
    def matrices(self) -> int:
        """Matrices of one feed-forward layer."""
        return 3 if self.gated else 2

    @property
    def expert_layers(self) -> int:
        """Layers with a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def attention_weights(self) -> int:
        """Weights of one layer's projections: queries, keys, values, output."""
        out = self.heads * self.value_dim * self.hidden
        query = self.heads * self.head_dim
        if not self.key_rank:
            return self.hidden * query + self.hidden * self.kv_heads * (self.head_dim + self.value_dim) + out
        queries = self.query_rank * (self.hidden + query) if self.query_rank else self.hidden * query
        latent = self.hidden * (self.key_rank + self.rope_dim)
        return queries + latent + self.key_rank * self.heads * (self.head_dim - self.rope_dim + self.value_dim) + out

    @property
    def dense_weights(self) -> int:
        """Weights of all dense feed-forward layers."""
        return (self.layers - self.expert_layers) * self.matrices * self.hidden * self.ffn

    @property
    def router_weights(self) -> int:
        """Weights of all routers."""
        return self.expert_layers * self.hidden * self.experts

    def expert_weights(self, chosen: int) -> int:
        """Weights of all experts if `chosen` a layer count, with the shared ones."""
        return self.expert_layers * self.matrices * self.hidden * (chosen * self.expert_ffn + self.shared_ffn)

    def spans(self, causal: bool) -> float:
        """Sum over layers of the keys that a token is multiplied with.

        A layer with a window of w keys counts min(w, T). causal: only keys that the mask leaves, on the
        average of the sequence's T tokens: T / 2, and with a window w − w² / 2T (a token near the start
        has fewer than w before it). Otherwise the whole rectangle, as PaLM's formula has it.
        """
        total = 0.0
        for window in self.windows or (None,) * self.layers:
            keys = window or self.sequence
            total += keys - keys * keys / (2 * self.sequence) if causal else keys
        return total


_REQUIRED = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "sequence")


class Parameters(NamedTuple):
    """Numbers of weights. A tied head is not a weight of its own: `head` is 0 then."""

    total: int
    active: int  # what one token meets: of the routed experts only top_k; all else whole
    embedding: int  # the token table
    positions: int
    head: int
    blocks: int  # matrices of all layers, with every expert
    active_blocks: int
    vectors: int  # norms and biases


def parameters(arch: Architecture) -> Parameters:
    """The weights of a model with these sizes."""
    embedding = arch.vocab * arch.hidden
    head = 0 if arch.tied else embedding
    positions = arch.positions * arch.hidden
    common = arch.layers * arch.attention_weights + arch.dense_weights + arch.router_weights + arch.others
    blocks = common + arch.expert_weights(arch.experts)
    active = common + arch.expert_weights(arch.top_k)
    outside = embedding + head + positions + arch.vectors
    return Parameters(blocks + outside, active + outside, embedding, positions, head, blocks, active, arch.vectors)
