"""Names of what is frozen say no more than what is."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.frozen import _in_short  # noqa: E402


def model() -> nn.ModuleDict:
    def block() -> nn.ModuleDict:
        return nn.ModuleDict({"norm": nn.LayerNorm(4), "mlp": nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))})

    return nn.ModuleDict({"h": nn.ModuleList([block(), block()]), "conv1": nn.Linear(4, 4), "head": nn.Linear(4, 2)})


@pytest.mark.parametrize(
    ("frozen", "short"),
    [
        (["h.0.", "conv1."], ["h.0", "conv1"]),
        (["h.0.norm.", "h.1."], ["h.0.norm", "h.1"]),
        (["h.0.mlp.0."], ["h.0.mlp.0"]),
        (["h.0.mlp.0.weight", "h.1.mlp."], ["h.0.mlp.0.weight", "h.1.mlp"]),
        (["conv1.bias", "head."], ["conv1.bias", "head.weight", "head.bias"]),
        (["h.", "conv1.", "head."], ["h.0", "h.1", "conv1", "head.weight", "head.bias"]),
    ],
)
def test_a_numbered_part_is_named_by_its_number_where_all_of_it_is_frozen(frozen: list[str], short: list[str]) -> None:
    named = list(model().named_parameters())
    for name, item in named:
        item.requires_grad_(not name.startswith(tuple(frozen)))
    assert list(_in_short(named, [(name, item) for name, item in named if not item.requires_grad])) == short
