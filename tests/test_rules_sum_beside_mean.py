"""A sum that is added to a mean in a loss: its graph, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_columns import findings

from barograph.doctor.rules.loss.squares import SumBesideMean

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model import loss_graph  # noqa: E402

LAYER, TARGETS = nn.Linear(6, 4), torch.arange(32) % 4


def entropy(given: Any) -> Any:
    return functional.cross_entropy(given, TARGETS)


LOSSES = {
    "sum of squares": (lambda given: entropy(given) + functional.mse_loss(given, 0 * given, reduction="sum"), 128),
    "written out": (lambda given: entropy(given) + (given - 1).pow(2).sum(), 128),
    "of rows": (lambda given: entropy(given) + functional.cross_entropy(given, TARGETS, reduction="sum"), 128),
    "divided": (lambda given: entropy(given) + (given - 1).pow(2).sum() / 32, 0),
    "weighted": (lambda given: entropy(given) + 1e-3 * given.abs().sum(), 0),
    "both are means": (lambda given: entropy(given) + (given - 1).pow(2).mean(), 0),
    "both are sums": (lambda given: (given - 1).pow(2).sum() + given.abs().sum(), 0),
    "of weights": (lambda given: entropy(given) + LAYER.weight.pow(2).sum(), 0),
    "of layers": (lambda given: entropy(given) + torch.stack([given.pow(2).mean()] * 70).sum(), 0),
    "of experts": (lambda given: entropy(given) + (given.softmax(1).mean(0) * given.mean(0)).sum(), 0),
    "orthogonal": (lambda given: entropy(given) + (given.T @ given - torch.eye(4)).pow(2).sum(), 0),
    "weights of one": (
        lambda given: (
            entropy(given)
            + (functional.cross_entropy(given, TARGETS, reduction="none") * torch.full((32,), 1 / 32)).sum()
        ),
        0,
    ),
    "a plan of transport": (lambda given: entropy(given) + (torch.full((32, 4), 1 / 128) * given.square()).sum(), 0),
    "columns with themselves": (lambda given: entropy(given) + ((given.T @ given / 32).diagonal() - 1).pow(2).sum(), 0),
    "orthogonal weights": (lambda given: entropy(given) + (LAYER.weight @ LAYER.weight.T).pow(2).sum(), 0),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_sum_beside_a_mean_is_counted(kind: str) -> None:
    loss_of, numbers = LOSSES[kind]
    loss = loss_of(LAYER(torch.randn(32, 6)))
    loss.backward()
    assert loss_graph.figures(loss.grad_fn).get("sum_beside_mean", 0.0) == numbers


@pytest.mark.parametrize(("numbers", "says"), [(128.0, True), (8.0, False), (0.0, False)])
@pytest.mark.parametrize("cuts", [(), (7, 22)])
def test_many_numbers_are_a_warning(numbers: float, says: bool, cuts: tuple[int, ...]) -> None:
    columns: dict[str, Any] = {
        "train/loss": np.linspace(90, 50, 40), "model/sum_beside_mean": (np.array([0]), np.array([numbers])),
    }  # fmt: skip
    found = findings([SumBesideMean()], columns, cuts=cuts)
    assert [one.severity for one in found.values()] == ["warning"] * says
