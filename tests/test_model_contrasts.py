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


SCALE = torch.nn.Parameter(torch.tensor(2.66))


@pytest.mark.parametrize(
    ("similar", "plain"),
    [
        (lambda a, b: SCALE * a @ b.mT, True),
        (lambda a, b: SCALE.clamp(max=4.6) * (a @ b.mT), True),
        (lambda a, b: (a @ b.mT).T * SCALE, True),
        (lambda a, b: SCALE.exp() * a @ b.mT, False),
        (lambda a, b: a @ b.mT * SCALE.clamp(max=4.6).exp(), False),
        (lambda a, b: a @ b.mT / 0.07, False),
        (lambda a, b: SCALE * (3 * a) @ b.mT, False),  # of another length
    ],
)
def test_a_parameter_that_multiplies_the_cosines_of_pairs_as_it_is_is_known(
    similar: Callable[[Tensor, Tensor], Tensor], plain: bool
) -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(6, 6))
    a, b = (torch.nn.functional.normalize(torch.randn(8, 6) @ weight, dim=-1) for _ in range(2))
    loss = torch.nn.functional.cross_entropy(similar(a, b), torch.arange(8))
    loss.backward()
    assert contrasts.plain_scale(loss.grad_fn) is (SCALE if plain else None)


@pytest.mark.parametrize(
    ("name", "says"),
    [("log_scale", True), ("head.log_temperature", True), ("clip.logscale", True), ("scale_log", True),
     ("scale", False), ("logit_scale", False), ("logits.scale", False), ("catalog.scale", False),
     ("dialog_scale", False)],
)  # fmt: skip
def test_names_of_logarithms_are_known(name: str, says: bool) -> None:
    assert contrasts.is_logarithm(name) == says
