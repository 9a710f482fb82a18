"""Layers that are held as whole numbers, and what these are multiplied by in a pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import barograph  # noqa: E402
from barograph.doctor import diagnose  # noqa: E402
from barograph.doctor.rules.activations.adapters import AdapterAlone  # noqa: E402
from barograph.doctor.rules.activations.packed import PackedUnscaled  # noqa: E402
from barograph.probes.model.guest import Shown  # noqa: E402
from barograph.probes.model.packed import PackedLayers  # noqa: E402

CODES = torch.linspace(-1, 1, 16)


class Packed(nn.Module):
    """Codes of a table, with a scale for each 32 of them."""

    codes: Any
    absmax: Any
    table: Any

    def __init__(self, how: str) -> None:
        super().__init__()
        weight = torch.randn(32, 32, generator=torch.Generator().manual_seed(3)).view(-1, 32)
        size = weight.abs().amax(1, keepdim=True)
        self.register_buffer("codes", (weight / size)[..., None].sub(CODES).abs().argmin(-1).to(torch.uint8))
        self.register_buffer("absmax", size)
        self.register_buffer("table", CODES.clone())
        self.how = how

    def forward(self, given: Any) -> Any:
        if self.how == "not read":
            return given
        weight = self.table[self.codes.long()]
        if self.how == "scaled":
            weight = weight * self.absmax
        elif self.how == "behind":  # one scale a row, which the outputs are multiplied by
            return functional.linear(given, weight) * self.absmax.view(-1)
        return functional.linear(given, weight)


class Whole(nn.Module):
    """Whole numbers with a scale and a zero point a row."""

    weight: Any
    scale: Any
    zero_point: Any

    def __init__(self, how: str) -> None:
        super().__init__()
        dice = torch.Generator().manual_seed(4)
        self.register_buffer("weight", torch.randint(0, 255, (32, 32), generator=dice).to(torch.uint8))
        self.register_buffer("scale", torch.rand(32, 1, generator=dice) + 0.1)
        even = torch.full((32, 1), 128)
        points = even if how == "even" else torch.randint(100, 150, (32, 1), generator=dice)
        self.register_buffer("zero_point", points)
        self.how = how

    def forward(self, given: Any) -> Any:
        weight = self.weight.float()
        if self.how == "shifted":
            weight = weight - self.zero_point
        return functional.linear(given, torch.mul(weight, other=self.scale))


def seen(*layers: nn.Module) -> dict[str, float]:
    model = nn.Sequential(*layers)
    look = PackedLayers(model)
    with Shown(ended=lambda function, arguments, named, result: look.saw(arguments, named)):
        model(torch.randn(4, 32, requires_grad=True))
    return {name: float(value) for name, value in look.end().items()}


def test_scales_that_no_pass_reads_are_seen() -> None:
    assert seen(Packed("bare"), Packed("bare"), Packed("scaled"))["packed_unscaled"] == 2
    for how in ("scaled", "behind"):
        assert seen(Packed(how)) == {"packed_unscaled": 0, "packed_unshifted": 0}
    assert seen(Packed("not read")) == {} and seen(nn.Linear(32, 32)) == {}


def test_scales_that_are_all_one_number_say_nothing() -> None:
    layer = Packed("bare")
    layer.absmax.fill_(1.0)
    assert seen(layer)["packed_unscaled"] == 0


@pytest.mark.parametrize(("how", "count"), [("bare", 1), ("shifted", 0), ("even", 0)])
def test_zero_points_that_no_pass_reads_are_seen(how: str, count: int) -> None:
    assert seen(Whole(how)) == {"packed_unscaled": 0, "packed_unshifted": count}


@pytest.mark.parametrize(("values", "says"), [((1.0, 2.0), 1), ((2.0, 0.0), 0), ((0.0, 0.0), 0)])
def test_scales_and_zero_points_that_are_not_read_are_a_finding(values: tuple[float, ...], says: int) -> None:
    for name in ("packed_unscaled", "packed_unshifted"):
        columns = {f"model/{one}": (np.array([7, 107]), np.array(values if one == name else (0.0, 0.0)))
                   for one in ("packed_unscaled", "packed_unshifted")}  # fmt: skip
        found = list(findings([PackedUnscaled()], columns).values())
        assert len(found) == says and all(("zero" in one.message) == (name != "packed_unscaled") for one in found)
    column = {"model/adapter_alone": (np.array([1]), np.array(values[:1]))}
    assert len(findings([AdapterAlone()], column)) == (values[0] == 1)


@pytest.mark.parametrize("how", ["bare", "scaled"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_training_beside_layers_in_few_bits_is_looked_at(tmp_path: Path, how: str, alone: bool) -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_layer = Packed(how)
            self.lora_A, self.lora_B = nn.Linear(32, 4, bias=False), nn.Linear(4, 32, bias=False)
            nn.init.zeros_(self.lora_B.weight)

        def forward(self, given: Any) -> Any:
            added = self.lora_B(self.lora_A(given))
            return added if alone else self.base_layer(given) + added

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(32, 32), Adapted(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run = barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(12):
        loss = functional.cross_entropy(model(torch.randn(16, 32)), torch.randint(4, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    said = {part["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"]
            for part in (*one["evidence"].get("story", ()), one)}  # fmt: skip
    told = {"adapter_alone"} if alone else {"packed_unscaled"} if how == "bare" else set()
    assert said & {"adapter_alone", "packed_unscaled"} == told
