"""Names of what is frozen say no more than what is; layers are as torch draws them, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import barograph  # noqa: E402
from barograph.probes.model.frozen import _in_short, as_drawn, is_random_table  # noqa: E402


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


@pytest.mark.parametrize(
    "layer", [nn.Linear(24, 48), nn.Conv2d(4, 16, 3), nn.LSTM(12, 32), nn.GRU(40, 24, num_layers=2), nn.RNN(16, 64)]
)
def test_a_layer_is_as_torch_draws_it_until_it_is_trained(layer: nn.Module) -> None:
    assert as_drawn(layer) == 1
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    assert as_drawn(layer) == 0
    assert as_drawn(nn.LayerNorm(32)) is None


def table(kind: str) -> nn.Embedding:
    torch.manual_seed(7)
    one = nn.Embedding(78, 32, padding_idx=0)
    weight = 0.3 * torch.randn(78, 32)
    if kind == "even":
        weight = torch.rand(78, 32) - 0.5
    elif kind == "sines":
        angle = torch.arange(78)[:, None] / 50.0 ** (torch.arange(16) / 16)
        weight = torch.cat([angle.sin(), angle.cos()], 1)
    elif kind == "of one length":
        weight = nn.functional.normalize(weight, dim=1)
    elif kind == "of frequent words":
        weight *= torch.linspace(0.5, 2, 78)[:, None]
    elif kind == "with strong columns":
        weight *= torch.linspace(0.5, 2, 32)
    elif kind == "with directions":
        weight += 0.3 * torch.randn(78, 2) @ torch.randn(2, 32)
    elif kind == "off zero":
        weight += 0.1
    elif kind == "orthogonal":
        weight = nn.init.orthogonal_(weight)
    one.weight.data = weight
    return one


@pytest.mark.parametrize(
    ("kind", "random"),
    [("normal", 1), ("even", 1), ("sines", 0), ("of one length", 0), ("of frequent words", 0), ("orthogonal", 0),
     ("with strong columns", 0), ("with directions", 0), ("off zero", 0)],
)  # fmt: skip
def test_a_table_of_random_numbers_is_told_from_others(kind: str, random: int) -> None:
    model = nn.ModuleDict({"words": table(kind), "norm": nn.LayerNorm(32)})
    assert is_random_table(model["words"], model) == random


def test_codebooks_and_small_tables_are_not_judged() -> None:
    one = table("normal")
    assert is_random_table(one, nn.ModuleDict({"codebook": one})) is None
    assert is_random_table(one, nn.ModuleDict({"positions": one})) is None
    assert is_random_table(one, nn.ModuleDict({"words": nn.Embedding(99, 32), "kinds": one})) is None
    few = nn.Embedding(8, 16)
    assert is_random_table(few, nn.ModuleDict({"words": few})) is None


@pytest.mark.parametrize(("trained", "told"), [(False, 1), (True, 0)])
def test_a_table_beside_frozen_layers_that_were_trained_is_not_as_it_was_drawn(
    tmp_path: Path, trained: bool, told: int
) -> None:
    torch.manual_seed(3)
    words = nn.ModuleDict({"table": nn.Embedding(99, 32), "layer": nn.Linear(32, 32), "last": nn.Linear(32, 32)})
    tower = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 32))
    if trained:
        with torch.no_grad():
            words["last"].bias += 0.2 * torch.randn(32)
    optimizer = torch.optim.SGD(tower.parameters(), 0.01)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(nn.ModuleDict({"words": words.requires_grad_(False), "tower": tower}), optimizer)
    for step in range(3):
        found = words["last"](words["layer"](words["table"](torch.arange(16))))
        loss = (tower(torch.randn(16, 8)) - found).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    assert list(barograph.StoredRun(run.dir).series("model/frozen_tables").value) == [told]
