"""In which mode an evaluation was, where other passes without gradients come beside it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.pass_modes import PassModes  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

Pass = tuple[bool, int]  # training mode, rows


@pytest.mark.parametrize(
    ("passes", "norm", "training"),
    [
        ([(True, 40), (True, 40), (False, 2), (False, 2)], False, True),  # a sample is drawn behind it
        ([(False, 2), (True, 40)], False, True),
        ([(True, 40), (False, 40)], False, False),
        ([(True, 40), (False, 11)], False, False),
        ([(True, 7), (False, 1)], False, False),  # few in either
        ([(False, 40), (True, 2)], False, False),
        ([(True, 40), (False, 2)], True, False),  # statistics of batch norm may be gathered
        ([(True, 40)], False, True),
        ([(False, 40)], False, False),
    ],
)
def test_the_mode_of_an_evaluation_is_that_of_its_large_passes(passes: list[Pass], norm: bool, training: bool) -> None:
    parts: list[nn.Module] = [nn.Linear(4, 4), nn.Dropout(0.5), *([nn.BatchNorm1d(4)] if norm else [])]
    modes = PassModes(nn.Sequential(*parts))
    for mode, rows in passes:
        modes.passed(mode, [torch.randn(rows, 4)])
    found = modes.put(ModelRound(1, frozenset()))
    assert found["training_in_evaluation"] == training
    assert "statistics_gathered" not in found or not training
