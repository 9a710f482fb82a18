"""Signs and sums in losses that compare: what the graph says of cosines of pairs, and of margins."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_model_objective import ROWS, seen
from torch import Tensor, nn
from torch.nn import functional

from barograph.probes.model import contrasts

ANSWER = torch.arange(ROWS)
SCALE = nn.Parameter(torch.tensor(1.0))


def unit(output: Tensor) -> Tensor:
    return functional.normalize(output, dim=-1)


def cosines(output: Tensor) -> Tensor:
    return unit(output) @ unit(output.flip(0)).T


def all_with_all(output: Tensor) -> Tensor:
    return functional.cosine_similarity(output[:, None], output.flip(0)[None], dim=-1)


def both_ways(scores: Tensor) -> Tensor:
    return (functional.cross_entropy(scores, ANSWER) + functional.cross_entropy(scores.T, ANSWER)) / 2


def by_hand(scores: Tensor) -> Tensor:
    scores = scores.masked_fill(torch.eye(ROWS, dtype=torch.bool), -1e9)
    return -(scores - scores.logsumexp(1, keepdim=True))[ANSWER, ANSWER.roll(1)].mean()


@pytest.mark.parametrize(
    ("loss_of", "value"),
    [
        (lambda x: functional.cross_entropy(-cosines(x) / 0.1, ANSWER), 1.0),
        (lambda x: both_ways(-cosines(x) * SCALE.exp()), 1.0),
        (lambda x: by_hand(-cosines(x) / 0.2), 1.0),
        (lambda x: -(-cosines(x) / 0.1).log_softmax(1).diagonal()[ANSWER].mean(), None),  # a diagonal is no index
        (lambda x: functional.cross_entropy((1 - cosines(x)) / 0.1, ANSWER), 1.0),  # distances, without their minus
        (lambda x: functional.cross_entropy(-(1 - cosines(x)) / 0.1, ANSWER), 0.0),
        (lambda x: both_ways(cosines(x) * SCALE.exp()), 0.0),
        (lambda x: by_hand(cosines(x) / 0.2), 0.0),
        (lambda x: functional.cross_entropy(-torch.einsum("id,jd->ij", unit(x), unit(x.flip(0))) / 0.1, ANSWER), 1.0),
        (lambda x: functional.cross_entropy(torch.einsum("id,jd->ij", unit(x), unit(x.flip(0))) / 0.1, ANSWER), 0.0),
        (lambda x: functional.cross_entropy(-all_with_all(x) / 0.1, ANSWER), 1.0),
        (lambda x: functional.cross_entropy(all_with_all(x) / 0.1, ANSWER), 0.0),
        (lambda x: functional.cross_entropy(-(x[:, None] * x.flip(0)).sum(-1), ANSWER), None),
        (lambda x: functional.cross_entropy(-(x[:, None] - x.flip(0)).square().sum(-1), ANSWER), None),  # distances
        (lambda x: functional.cross_entropy(-(x @ x.flip(0).T), ANSWER), None),  # an energy that a model gives
        (lambda x: functional.cross_entropy(-torch.cdist(x, x.flip(0)), ANSWER), None),
        (lambda x: functional.cross_entropy(-x, ANSWER % x.shape[1]), None),
    ],
)
def test_cosines_that_go_into_a_softmax_with_a_minus_are_known(
    loss_of: Callable[[Tensor], Tensor], value: float | None
) -> None:
    assert seen(loss_of, contrasts.figures).get("pairs_repelled") == value


def margin(output: Tensor) -> Tensor:
    return output.sum(1) - (output * 0.5).sum(1) - torch.ones(ROWS)


def of_a_layer(output: Tensor) -> Tensor:
    return functional.linear(output, torch.ones(1, output.shape[1]), torch.zeros(1)).squeeze(-1)


@pytest.mark.parametrize(
    ("loss_of", "value"),
    [
        (lambda x: -functional.logsigmoid(0.1 * margin(x).sum()), float(ROWS)),
        (lambda x: -functional.logsigmoid((0.1 * margin(x)).mean()), -float(ROWS)),
        (lambda x: functional.softplus(-margin(x).sum()), float(ROWS)),
        (lambda x: -torch.log(torch.sigmoid(margin(x).sum())), float(ROWS)),
        (lambda x: -functional.logsigmoid((of_a_layer(x) - of_a_layer(x * 2)).sum()), float(ROWS)),
        (lambda x: -functional.logsigmoid(x.sum(1).mean() - (2 * x).sum(1).mean()), -float(ROWS)),
        (lambda x: -functional.logsigmoid(margin(x)).mean(), None),
        (lambda x: -functional.logsigmoid(margin(x)).sum(), None),
        (lambda x: -functional.logsigmoid(x[0].sum() - x[1].sum()), None),  # one pair, token by token
        (lambda x: -functional.logsigmoid((x.log_softmax(1) * torch.ones(ROWS, x.shape[1])).sum(1).sum()), None),
        (lambda x: functional.cross_entropy(x, ANSWER % x.shape[1]), None),
        (lambda x: -functional.logsigmoid(margin(x)[:1].sum()), None),
    ],
)
def test_margins_that_are_joined_before_the_logarithm_are_known(
    loss_of: Callable[[Tensor], Tensor], value: float | None
) -> None:
    assert seen(loss_of, contrasts.figures).get("margins_joined") == value
