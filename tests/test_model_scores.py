"""Scores of attention that nothing divides are seen, however the attention is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_trainings import findings_of_training  # noqa: E402

from barograph.probes.model.attention import AttentionLook, watch  # noqa: E402
from barograph.probes.model.forward import ForwardSigns  # noqa: E402

PLACES, LETTERS = 16, 30


class Attention(nn.Module):
    """One layer; `kind` is how its scores come about."""

    def __init__(self, kind: str, size: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.kind, self.size, self.heads = kind, size, heads
        self.mix = nn.Linear(size * heads, 3 * size * heads)

    def forward(self, x: Any) -> Any:
        rows, places, _ = x.shape
        q, k, v = self.mix(x).chunk(3, -1)
        q = q / math.sqrt(self.size) if self.kind == "queries divided" else q
        q, k, v = (one.view(rows, places, self.heads, self.size).transpose(1, 2) for one in (q, k, v))
        mask = torch.ones(places, places, dtype=torch.bool).triu(1)
        if self.kind == "torch's":
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = self.scores(q, k, mask).softmax(-1) @ v
        return x + mixed.transpose(1, 2).reshape(x.shape)

    def scores(self, q: Any, k: Any, mask: Any) -> Any:
        if self.kind == "einsum":
            scores = torch.einsum("bhid,bhjd->bhij", q, k)
        elif self.kind == "bmm":
            flat = (-1, q.shape[2], self.size)
            scores = torch.bmm(q.reshape(flat), k.reshape(flat).transpose(1, 2)).view(*q.shape[:3], -1)
        else:
            scores = q @ k.transpose(-2, -1)
        if self.kind == "divided":
            scores = scores / math.sqrt(self.size)
        elif self.kind == "divided in place":
            scores /= math.sqrt(self.size)
        elif self.kind == "multiplied by a tensor":
            scores = scores * torch.tensor(self.size**-0.5)
        if self.kind == "mask added":
            return scores + torch.zeros(mask.shape).masked_fill(mask, -math.inf)
        return scores.masked_fill(mask, -1e9)


class Language(nn.Module):
    def __init__(self, kind: str, size: int) -> None:
        super().__init__()
        torch.manual_seed(5)
        width = 2 * size
        self.words, self.norm = nn.Embedding(LETTERS, width), nn.LayerNorm(width)
        self.attention, self.head = Attention(kind, size), nn.Linear(width, LETTERS)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.attention(self.norm(self.words(tokens))))


@pytest.mark.parametrize("kind", ["plain", "einsum", "bmm", "mask added"])
def test_products_that_nothing_divides_are_seen(kind: str) -> None:
    torch.manual_seed(1)
    found = signs(Attention(kind))
    assert float(found["attention/undivided"]) == 64
    assert float(found["attention/deviation"]) == pytest.approx(math.sqrt(64) / 3, rel=0.25)


@pytest.mark.parametrize(
    "kind", ["divided", "divided in place", "multiplied by a tensor", "queries divided", "torch's"]
)
def test_scores_that_were_divided_or_their_queries_are_not(kind: str) -> None:
    torch.manual_seed(1)
    assert "attention/undivided" not in signs(Attention(kind))


def signs(model: nn.Module) -> dict[str, Any]:
    seen = ForwardSigns()
    with watch(AttentionLook(), seen):
        model(functional.layer_norm(torch.randn(4, PLACES, 128), (128,)))
    return seen.end()


@pytest.mark.parametrize(
    ("kind", "size", "warns"), [("plain", 64, True), ("divided", 64, False), ("plain", 4, False), ("small", 64, False)]
)
def test_a_language_model_whose_attention_begins_sharp_is_found(
    tmp_path: Path, kind: str, size: int, warns: bool
) -> None:
    torch.set_num_threads(1)
    model = Language("plain" if kind == "small" else kind, size)
    if kind == "small":  # queries that are drawn smaller, as T5's
        with torch.no_grad():
            model.attention.mix.weight[: 2 * size] *= size**-0.5

    def loss_of(model: nn.Module, step: int) -> Any:
        text = torch.randint(LETTERS, (8, PLACES + 1), generator=torch.Generator().manual_seed(step))
        return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    found = findings_of_training(tmp_path, model, loss_of, 24, activations=10)
    assert ("undivided_scores" in found) == warns
    assert not warns or (found["undivided_scores"]["step"], found["undivided_scores"]["severity"]) == (0, "warning")
