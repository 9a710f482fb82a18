"""Units of a layer that begin as copies of one another are found; layers that begin at 0 on purpose are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watched_trainings import findings_of_training

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

INPUTS = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
CLASSES = (INPUTS[:, 0] > 0).long() + 2 * (INPUTS[:, 1] > 0).long()


def constant(model: nn.Sequential) -> None:
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.constant_(layer.weight, 0.05)
            nn.init.zeros_(layer.bias)


def hidden_ones(model: nn.Sequential) -> None:
    nn.init.ones_(model[0].weight)  # type: ignore[arg-type]
    nn.init.zeros_(model[0].bias)  # type: ignore[arg-type]
    nn.init.ones_(model[2].weight)  # type: ignore[arg-type]


def last_zero(model: nn.Sequential) -> None:
    nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]


def left(model: nn.Sequential) -> None:
    """As torch draws it."""


@pytest.mark.parametrize(("begins", "says"), [(constant, True), (hidden_ones, True), (last_zero, False), (left, False)])
def test_layers_of_one_unit_are_said(tmp_path: Path, begins: Callable[[Any], None], says: bool) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))
    begins(model)
    found = findings_of_training(
        tmp_path, model, lambda model, step: functional.cross_entropy(model(INPUTS), CLASSES), steps=40
    )
    assert ("units_alike" in found) == says
    assert not says or found["units_alike"]["step"] == 0
