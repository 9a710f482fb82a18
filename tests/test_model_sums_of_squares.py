"""Averages of sums of squares: the graph of a loss says that something is added up."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from barograph.probes.model.loss_graph import figures  # noqa: E402
from barograph.probes.model.objective import squared  # noqa: E402

TARGETS = torch.randn(8, 6, 2, generator=torch.Generator().manual_seed(1))
LOSSES: dict[str, tuple[Any, bool]] = {
    "of rows": (lambda x: functional.mse_loss(x, TARGETS, reduction="none").sum((1, 2)).mean(), True),
    "of rows, over parts": (lambda x: functional.mse_loss(x, TARGETS, reduction="none").sum((1, 2)).mean() / 1, True),
    "by hand": (lambda x: (x - TARGETS).pow(2).flatten(1).sum(1).mean() / 4, True),
    "over rows": (lambda x: functional.mse_loss(x, TARGETS, reduction="sum") / 8, True),
    "mean": (lambda x: functional.mse_loss(x, TARGETS), False),
    "times a number": (lambda x: 12 * functional.mse_loss(x, TARGETS), False),
    "means of means": (lambda x: (x - TARGETS).pow(2).mean(2).mean(), False),
    "entropy by hand": (lambda x: -(x.log_softmax(1) * TARGETS.softmax(1)).sum(1).mean(), False),
}


@pytest.mark.parametrize("name", LOSSES)
def test_whether_squares_are_added_up_is_in_the_graph(name: str) -> None:
    made, adds = LOSSES[name]
    root = made(torch.randn(8, 6, 2, requires_grad=True)).grad_fn
    assert figures(root).get("loss_adds", 0.0) == adds
    seen = squared(root)
    assert (seen is not None and seen.summed) == adds
