"""A loss of pairs whose two halves are one and the same: what its graph says, and what the rule makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_model_objective import ROWS, seen
from test_rules_objective import FALLS, every, of_graph, warned
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from barograph.probes.model import one_way

OWN, OTHER = torch.arange(ROWS), torch.arange(ROWS).roll(1)
SCALE = nn.Parameter(torch.tensor(2.0))


def scores(output: Tensor) -> Tensor:
    return normalize(output, dim=-1) @ normalize(output.flip(0) + 1, dim=-1).T * SCALE.exp().clamp(max=100)


def two_products(output: Tensor, turned: bool) -> Tensor:
    one, two = normalize(output, dim=-1), normalize(output.flip(0) + 1, dim=-1)
    again = SCALE.exp() * (two @ one.T if turned else one @ two.T)
    return (cross_entropy(SCALE.exp() * (one @ two.T), OWN) + cross_entropy(again, OWN)) / 2


def both(output: Tensor, turned: bool) -> Tensor:
    found = scores(output)
    return (cross_entropy(found, OWN) + cross_entropy(found.T if turned else found, OWN)) / 2


def halves(output: Tensor, turned: bool, first: float = 0.5) -> Tensor:
    found = scores(output)
    return first * cross_entropy(found, OWN) + (1 - first) * cross_entropy(found.T if turned else found, OWN)


def over_columns(output: Tensor) -> Tensor:
    found = scores(output)
    return cross_entropy(found, OWN) - found.log_softmax(0).diagonal().mean()


@pytest.mark.parametrize(
    ("loss_of", "value"),
    [
        (lambda x: both(x, False), float(ROWS)),
        (lambda x: both(x, True), 0.0),
        (lambda x: halves(x, False), None),  # weights are not known
        (lambda x: halves(x, False, 0.7), None),  # mixed targets
        (lambda x: cross_entropy(scores(x), OWN), None),  # one side on purpose
        (lambda x: cross_entropy(scores(x) / 0.1, OWN) + cross_entropy(scores(x) / 0.2, OWN), 0.0),
        (lambda x: cross_entropy(x, OWN % 5) + cross_entropy(x, OTHER % 5), None),  # classes of a layer
        (over_columns, None),
        (lambda x: both(x, False) + x.square().mean(), None),
    ],
)
def test_halves_of_a_loss_of_pairs_that_are_the_same_are_known(
    loss_of: Callable[[Tensor], Tensor], value: float | None
) -> None:
    assert seen(loss_of, one_way.figures).get("pairs_one_way") == value


@pytest.mark.parametrize("turned", [True, False])
def test_similarities_that_are_computed_twice_are_compared_by_what_they_are_made_of(turned: bool) -> None:
    found = seen(lambda x: two_products(x, turned), one_way.figures)
    assert found.get("pairs_one_way") == (0.0 if turned else float(ROWS))


@pytest.mark.parametrize(("figure", "said"), [(64.0, True), (0.0, False)])
def test_one_half_that_counts_twice_is_a_finding(figure: float, said: bool) -> None:
    found = warned({"loss": every(FALLS)} | of_graph(pairs_one_way=figure))
    assert ("pairs_one_way" in found) == said
