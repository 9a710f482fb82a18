"""Ways around attention and functions between layers are seen in the graph of a loss, where they are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watched_trainings import findings_of_training

from barograph.probes.model import paths

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

WIDE, HEADS, ROWS, PLACES = 16, 2, 4, 9
Around = Callable[[Any, Any], Any]


def added(given: Any, made: Any) -> Any:
    return given + made


def forgotten(given: Any, made: Any) -> Any:
    return made


class Block(nn.Module):
    def __init__(self, attention: Around, feeding: Around, function: Any, by_hand: bool = False):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)])
        self.whole, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.up, self.down = nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)
        self.around, self.function, self.by_hand = (attention, feeding), function, by_hand

    def attends(self, x: Any) -> Any:
        q, k, v = (
            one.view(ROWS, -1, HEADS, WIDE // HEADS).transpose(1, 2) for one in self.whole(x).split(WIDE, dim=-1)
        )
        if self.by_hand:
            scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) > 0, -1e9)
            made = functional.dropout(scores.softmax(-1), 0.1) @ v
        else:
            made = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(made.transpose(1, 2).reshape(x.shape))

    def forward(self, x: Any) -> Any:
        x = self.around[0](x, self.attends(self.norms[0](x)))
        return self.around[1](x, self.down(self.function(self.up(self.norms[1](x)))))


def model(count: int = 3, attention: Around = added, feeding: Around = added, function: Any = functional.gelu,
          by_hand: bool = False) -> nn.Module:  # fmt: skip
    embedding = nn.Embedding(11, WIDE)
    made = nn.Sequential(
        embedding, *[Block(attention, feeding, function, by_hand) for _ in range(count)], nn.LayerNorm(WIDE),
        nn.Linear(WIDE, 11, bias=False),
    )  # fmt: skip
    made[-1].weight = embedding.weight
    return made


def of(made: Any) -> dict[str, float]:
    return paths.figures(made.square().mean().grad_fn)


def tokens() -> Any:
    return torch.randint(11, (ROWS, PLACES))


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("count", [2, 4])
def test_attention_that_all_goes_through_is_counted(by_hand: bool, count: int) -> None:
    assert of(model(count, attention=forgotten, by_hand=by_hand)(tokens())) == {"attention_unskipped": count}
    assert of(model(count, forgotten, forgotten, by_hand=by_hand)(tokens())) == {"attention_unskipped": count}


@pytest.mark.parametrize("by_hand", [True, False])
def test_feeding_layers_between_attention_that_all_goes_through_are_counted(by_hand: bool) -> None:
    assert of(model(3, feeding=forgotten, by_hand=by_hand)(tokens())) == {"feeding_unskipped": 2}


def test_what_joins_two_stages_needs_no_way_around_it() -> None:
    first, second = model(1)[:2], nn.Sequential(*list(model(2))[1:])
    joins = nn.Sequential(nn.Linear(WIDE, WIDE), nn.GELU(), nn.Linear(WIDE, WIDE))
    assert of(second(joins(first(tokens())))) == {}


def test_an_adapter_beside_a_frozen_layer_is_no_layer_behind_another() -> None:
    frozen, down, up = nn.Linear(5, 8), nn.Linear(5, 8, bias=False), nn.Linear(8, 8, bias=False)
    frozen.requires_grad_(False)
    inputs = torch.randn(7, 5)
    assert of(frozen(inputs) + 2 * up(down(inputs))) == {}
    assert of(up(down(inputs))) == {"layers_joined": 1}


def test_linear_layers_in_a_row_are_counted_where_the_model_has_no_function_between_its_layers() -> None:
    assert of(model(3, function=nn.Identity())(tokens())) == {"layers_joined": 3}
    layers = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.1), nn.Linear(8, 8), nn.Linear(8, 1))
    assert of(layers(torch.randn(7, 5))) == {"layers_joined": 2}
    towers = layers(torch.randn(7, 5)) + layers(torch.randn(7, 5))  # the same layers twice
    assert of(towers) == {"layers_joined": 2}
    assert of(torch.sigmoid(layers(torch.randn(7, 5)))) == {"layers_joined": 2}  # of the output, not between layers


class Pooled(nn.Module):
    """Attention in several places, of which none is a block without its skip."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.query = nn.ModuleList(list(model(2))[1:3]), nn.Parameter(torch.randn(1, 1, WIDE))
        self.pool = nn.MultiheadAttention(WIDE, HEADS, batch_first=True)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        query = self.query.expand(len(x), -1, -1)
        return self.pool(query, x, x, need_weights=False)[0]


class Graphs(nn.Module):
    """Attention of graphs, whose scores are sums: two layers in a row, as they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)])
        self.sides = nn.ParameterList([torch.randn(WIDE, 2) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        for layer, side in zip(self.layers, self.sides, strict=True):
            here, there = (layer(x) @ side).unbind(-1)
            x = functional.elu((here[:, :, None] + there[:, None]).softmax(-1) @ layer(x))
        return x


@pytest.mark.parametrize(
    "made",
    [
        lambda: model(3)(tokens()),
        lambda: model(3, by_hand=True)(tokens()),
        lambda: model(1, forgotten, forgotten)(tokens()),  # one layer of attention may be a way of pooling
        lambda: Pooled()(torch.randn(ROWS, PLACES, WIDE)),
        lambda: Graphs()(torch.randn(ROWS, PLACES, WIDE)),
        lambda: nn.Transformer(WIDE, HEADS, 2, 1, 32, batch_first=True)(
            torch.randn(ROWS, PLACES, WIDE), torch.randn(ROWS, 7, WIDE)
        ),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDE, HEADS, 32, 0.1, batch_first=True), 2)(
            torch.randn(ROWS, PLACES, WIDE)
        ),
        lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))(torch.randn(7, 5)),
        lambda: nn.Sequential(nn.Linear(5, 2), nn.Linear(2, 5))(torch.randn(7, 5)),  # narrower between: an autoencoder
        lambda: nn.LSTM(5, 6, batch_first=True)(nn.Linear(3, 5)(nn.Linear(3, 3)(torch.randn(7, 4, 3))))[0],
        lambda: nn.Linear(5, 3)(torch.randn(7, 5)),
    ],
)
def test_ways_around_pooling_and_bottlenecks_are_not_counted(made: Callable[[], Any]) -> None:
    assert of(made()) == {}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"attention": forgotten}, "skip_missing"),
        ({"feeding": forgotten}, "feeding_skip_missing"),
        ({"function": nn.Identity()}, "activation_missing"),
        ({}, ""),
    ],
)
def test_what_is_forgotten_is_said_at_once_and_nothing_else(tmp_path: Path, changes: Any, rule: str) -> None:
    torch.manual_seed(0)
    texts = (torch.arange(ROWS)[:, None] * 3 + torch.arange(PLACES + 1) * 5) % 11

    def loss(model: Any, step: int) -> Any:
        text = (texts + step) % 11
        return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    found = findings_of_training(tmp_path, model(3, **changes), loss, steps=30)
    ours = ("skip_missing", "feeding_skip_missing", "activation_missing")
    said = {name: one["step"] for name, one in found.items() if name in ours}
    assert said == ({rule: 0} if rule else {})
