"""Losses whose level is meant: cosines with a margin, and means of one layer that are set against each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from watched_trainings import findings_of_training  # noqa: E402

from barograph.doctor.rules.loss.below_zero import RiseBelowZero  # noqa: E402
from barograph.probes.model.margins import figures  # noqa: E402

ROWS, CLASSES = 12, 5


def parts() -> tuple[Any, Any, Any]:
    torch.manual_seed(2)
    body, weight = nn.Linear(6, 8), nn.Parameter(torch.randn(CLASSES, 8))
    return body(torch.randn(ROWS, 6)), weight, torch.arange(ROWS) % CLASSES


def cosines(embedding: Any, weight: Any) -> Any:
    return functional.linear(functional.normalize(embedding), functional.normalize(weight)).clamp(-0.999, 0.999)


def of_angles(embedding: Any, weight: Any, target: Any) -> Any:
    cosine = cosines(embedding, weight)
    one_hot = functional.one_hot(target, CLASSES).bool()
    return 30 * torch.where(one_hot, (cosine.acos() + 0.4).cos(), cosine)


def by_sines(embedding: Any, weight: Any, target: Any) -> Any:
    cosine, one_hot = cosines(embedding, weight), functional.one_hot(target, CLASSES)
    moved = 0.92 * cosine - 0.39 * (1 - cosine**2).clamp_min(0).sqrt()
    return 64 * (one_hot * moved + (1 - one_hot) * cosine)


def subtracted(embedding: Any, weight: Any, target: Any) -> Any:
    return 30 * (cosines(embedding, weight) - 0.35 * functional.one_hot(target, CLASSES))


def in_place(embedding: Any, weight: Any, target: Any) -> Any:
    cosine = cosines(embedding, weight).clone()
    cosine[torch.arange(ROWS), target] -= 0.35
    return cosine * 30


def transposed(embedding: Any, weight: Any, target: Any) -> Any:
    cosine = functional.normalize(embedding) @ functional.normalize(weight).T
    return 30 * (cosine - 0.35 * functional.one_hot(target, CLASSES))


def by_einsum(embedding: Any, weight: Any, target: Any) -> Any:
    cosine = torch.einsum("bd,kd->bk", functional.normalize(embedding), functional.normalize(weight))
    return 30 * (cosine - 0.35 * functional.one_hot(target, CLASSES))


@pytest.mark.parametrize(
    ("logits", "told"),
    [
        (transposed, True), (by_einsum, True),
        (of_angles, True), (by_sines, True), (subtracted, True), (in_place, True),
        (lambda x, weight, target: 300 * cosines(x, weight), False),  # a scale that is too large is no margin
        (lambda x, weight, target: 30 * (x @ weight.T - functional.one_hot(target, CLASSES)), False),
        (lambda x, weight, target: functional.linear(x, weight), False),
    ],
    ids=["transposed", "einsum", "angles", "sines", "subtracted", "in place", "no margin", "any length", "plain"],
)  # fmt: skip
def test_cosines_of_which_that_of_the_target_is_made_less_are_known(logits: Callable[..., Any], told: bool) -> None:
    embedding, weight, target = parts()
    loss = functional.cross_entropy(logits(embedding, weight, target), target)
    assert ("loss_margin" in figures(loss.grad_fn)) == told


@pytest.mark.parametrize(
    ("loss_of", "told"),
    [
        (lambda f, x, y: f(x).mean() - f(y).mean(), True),
        (lambda f, x, y: f(y).mean() - f(x).squeeze(1).mean() + 0.1 * (f(x) ** 2 + f(y) ** 2).mean(), True),
        (lambda f, x, y: (-f(y)).mean() + f(x).mean(), True),
        (lambda f, x, y: f(torch.cat([x, y]))[:4].mean() - f(torch.cat([x, y]))[4:].mean(), True),
        (lambda f, x, y: f(x).mean() + f(y).mean(), False),
        (lambda f, x, y: (f(x) - 1).square().mean() - f(y).exp().mean(), False),
        (lambda f, x, y: f(x).square().mean() - nn.Linear(3, 1)(y).mean(), False),  # a flow and its log-determinant
        (lambda f, x, y: -(f(x) - f(y)).mean(), False),
        (lambda f, x, y: (f(x) - f(y)).mean() + 0.1 * (f(x) ** 2 + f(y) ** 2).mean(), True),  # energies, held near 0
        (lambda f, x, y: (f(x)[:, 0] + x.pow(2).sum(1) - f(y)[:, 0]).mean() + (f(y) ** 2 + f(x) ** 2).mean(), True),
        (lambda f, x, y: (f(x) - f(y)).mean() + 0.1 * (nn.Linear(3, 1)(x) ** 2 + f(y) * f(x)).mean(), False),
    ],
)
def test_means_of_one_layer_that_are_set_against_each_other_are_known(loss_of: Callable[..., Any], told: bool) -> None:
    torch.manual_seed(2)
    layer, first, second = nn.Linear(3, 1), torch.randn(4, 3), torch.randn(4, 3)
    assert ("loss_opposed" in figures(loss_of(layer, first, second).grad_fn)) == told


class Body(nn.Module):
    """Embeddings of length 8, and one vector a class."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer, self.vectors = nn.Linear(6, 8), nn.Parameter(torch.randn(CLASSES, 8))

    def forward(self, inputs: Any) -> Any:
        return self.layer(inputs)


@pytest.mark.parametrize("margin", [True, False])
def test_a_margin_begins_above_a_guess_on_purpose_and_a_scale_that_is_too_large_does_not(
    tmp_path: Path, margin: bool
) -> None:
    def loss_of(model: Any, step: int) -> Any:
        inputs, target = torch.randn(ROWS, 6), torch.arange(ROWS) % CLASSES
        embedding, vectors = model(inputs), model.vectors
        logits = of_angles(embedding, vectors, target) if margin else 100 * cosines(embedding, vectors)
        return functional.cross_entropy(logits, target)

    assert ("initial_loss" in findings_of_training(tmp_path, Body(), loss_of, 12)) == (not margin)


@pytest.mark.parametrize("opposed", [True, False])
def test_a_difference_of_means_of_one_layer_may_come_back_to_0(opposed: bool) -> None:
    steps = np.arange(400)
    loss = np.where(steps < 100, -steps / 100, -1 + (steps - 100) / 250).clip(-1, 0.1)
    series = {"loss": (steps, loss + np.random.default_rng(0).normal(0, 0.01, 400))}
    series |= {"model/loss_opposed": (np.array([1]), np.array([1.0]))} if opposed else {}
    assert bool(found([RiseBelowZero()], series)) == (not opposed)
