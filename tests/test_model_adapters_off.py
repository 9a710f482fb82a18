"""Evaluations with adapters that are switched off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.activations.adapters import AdaptersOffInEvaluation

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from barograph.probes.model.adapters import Adapters  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402


class LoraLinear(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.base, self.way, self.on = nn.Linear(8, 8).requires_grad_(False), way, True
        self.lora_a, self.lora_b = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.zeros(8, 2))

    def forward(self, x: Any) -> Any:
        y = self.base(x)
        if self.on and self.way == "added in place":
            y += x @ self.lora_a.T @ self.lora_b.T
        elif self.on:
            y = y + x @ self.lora_a.T @ self.lora_b.T
        return y


def told(way: str) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(LoraLinear(way), nn.ReLU(), nn.Linear(8, 2))
    adapters, said, layer = Adapters(model), list[float](), model[0]
    for _ in range(3):
        if way != "at zero":
            layer.lora_b.data += 0.1
        model(torch.randn(4, 8)).sum().backward()
        model.train(way == "a reference in the training")
        kept = layer.base.weight.data.clone()
        if way == "merged":
            layer.base.weight.data += layer.lora_b.data @ layer.lora_a.data
        with torch.no_grad():
            for on in {"on": (True,), "added in place": (True,), "both": (True, False)}.get(way, (False, False)):
                layer.on = on
                model(torch.randn(4, 8))
        layer.on, layer.base.weight.data = True, kept
        model.train()
        current = ModelRound(1, frozenset())
        adapters.put(current)
        said += [float(one.values) for one in current.columns if one.family == "adapters_off"]
    adapters.close()
    assert not any(one._forward_hooks for one in model.modules())
    return said


@pytest.mark.parametrize(
    ("way", "shares"),
    [("off", [1.0] * 3), ("on", [0.0] * 3), ("added in place", [0.0] * 3), ("both", [0.5] * 3), ("merged", [0.0] * 3),
     ("at zero", [0.0] * 3), ("a reference in the training", [])],
)  # fmt: skip
def test_passes_of_an_evaluation_without_adapters_are_counted(way: str, shares: list[float]) -> None:
    assert told(way) == shares


class Bottleneck(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.down, self.up, self.way, self.on = nn.Linear(8, 2), nn.Linear(2, 8), way, True
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Any) -> Any:
        if not self.on:
            return x
        y = self.up(torch.tanh(self.down(x)))
        return y if self.way == "added outside" else x + y


class Adapted(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer, self.adapter, self.head = nn.Linear(8, 8).requires_grad_(False), Bottleneck(way), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        if self.adapter.way == "added outside":
            return self.head(y + self.adapter(y) if self.adapter.on else y)
        return self.head(self.adapter(y))


@pytest.mark.parametrize(
    ("way", "shares"),
    [("off", [1.0] * 3), ("on", [0.0] * 3), ("both", [0.5] * 3), ("at zero", [0.0] * 3), ("added outside", []),
     ("a reference in the training", [])],
)  # fmt: skip
def test_an_adapter_that_is_a_module_of_its_own_is_off_where_it_gives_what_it_is_given(
    way: str, shares: list[float]
) -> None:
    torch.manual_seed(0)
    model = Adapted(way)
    adapters, said = Adapters(model), list[float]()
    for _ in range(3):
        if way != "at zero":
            model.adapter.up.weight.data += 0.1
        model(torch.randn(4, 8)).sum().backward()
        model.train(way == "a reference in the training")
        with torch.no_grad():
            for on in {"on": (True,), "both": (True, False)}.get(way, (False, False)):
                model.adapter.on = on
                model(torch.randn(4, 8))
        model.adapter.on = True
        model.train()
        current = ModelRound(1, frozenset())
        adapters.put(current)
        said += [float(one.values) for one in current.columns if one.family == "adapters_off"]
    adapters.close()
    assert said == shares
    assert not any(one._forward_hooks for one in model.modules())


@pytest.mark.parametrize("pieces", [(), (25, 45, 70)])
@pytest.mark.parametrize(
    ("share", "every", "steps", "says"),
    [(1.0, 20, 100, True), (0.5, 20, 100, False), (1.0, 20, 40, False), (1.0, 5, 100, False)],
)
def test_evaluations_of_the_base_are_told(
    share: float, every: int, steps: int, says: bool, pieces: tuple[int, ...]
) -> None:
    looks, rows = np.arange(every, steps, every), np.arange(19, steps, 20)
    series = {
        "train/loss": (np.arange(steps), np.ones(steps)),
        "val/loss": (rows, 3.0 + 0.0 * rows),
        "model/adapters_off": (looks, share + 0.0 * looks),
    }
    assert [one.step for one in found([AdaptersOffInEvaluation()], series, pieces)] == [20] * says
