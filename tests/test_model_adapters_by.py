"""Adapters that evaluations have in another strength than the training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.activations.adapters import AdaptersStrength

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from barograph.probes.model.adapters import Adapters  # noqa: E402
from barograph.probes.model.adapters_by import FIGURES  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

SCALE = 4.0


class LoraLinear(nn.Module):
    """A layer of whole numbers, with an adapter."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(-7, 8, (24, 12), dtype=torch.int8))
        self.lora_a, self.lora_b = nn.Parameter(torch.randn(2, 12)), nn.Parameter(torch.randn(24, 2))
        if turned:
            self.lora_a, self.lora_b = (nn.Parameter(one.detach().T) for one in (self.lora_a, self.lora_b))
        self.drop, self.merged, self.added, self.turned = nn.Dropout(0.0), 0.0, True, turned

    def forward(self, x: Any) -> Any:
        first, second = (self.lora_a.T, self.lora_b.T) if self.turned else (self.lora_a, self.lora_b)
        y = x @ (0.1 * self.codes + self.merged * second @ first).T + 0.5
        return y + SCALE * (self.drop(x) @ first.T @ second.T) if self.added else y


WAYS = {"plain": ((0.0, True),), "merged": ((SCALE, False),), "twice": ((SCALE, True),), "bare": ((1.0, False),),
        "off": ((0.0, False),), "both": ((0.0, False), (SCALE, False)), "seldom": ((SCALE, True),)}  # fmt: skip


def told(way: str, turned: bool, drop: float = 0.0) -> dict[str, float]:
    """What is said behind the last evaluation."""
    torch.manual_seed(0)
    model = nn.Sequential(LoraLinear(turned), nn.ReLU(), nn.Linear(24, 2))
    adapters, layer, said = Adapters(model), model[0], {}
    layer.drop.p = drop
    for step in range(6):
        rows = 2 if way == "seldom" else 40
        for item in (layer.lora_a, layer.lora_b):
            item.data += 0.1 * torch.randn(item.shape)
        model(torch.randn(rows, 3, 12)[:, :1] if way == "seldom" else torch.randn(rows, 3, 12)).sum().backward()
        current = ModelRound(step, frozenset())
        model.eval()
        with torch.no_grad():
            for layer.merged, layer.added in WAYS[way]:
                model(torch.randn(rows, 3, 12))
        layer.merged, layer.added = 0.0, True
        model.train()
        adapters.put(current)
        for one in current.columns:
            if one.family == "adapters_by":
                said = dict(zip(FIGURES, one.values.flatten().tolist(), strict=True))
    adapters.close()
    assert not any(one._forward_hooks for one in model.modules())
    return said


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("way", "by", "sure"),
    [("plain", 1.0, True), ("merged", 1.0, True), ("twice", 2.0, True), ("bare", 1 / SCALE, True), ("off", 0.0, True),
     ("both", 0.5, False)],
)  # fmt: skip
def test_the_strength_of_adapters_in_an_evaluation_is_known(way: str, by: float, sure: bool, turned: bool) -> None:
    said = told(way, turned)
    assert said["adapters_by"] == pytest.approx(by, abs=0.01 if sure else 0.2)
    assert said["adapters_by_error"] < 1e-3 and said["adapters_by_scale"] == SCALE
    assert by == 1.0 or (said["adapters_by_rest"] < 0.01) == sure


def test_what_dropout_leaves_unknown_is_in_the_error() -> None:
    said = told("plain", False, drop=0.3)
    assert abs(said["adapters_by"] - 1) < 6 * said["adapters_by_error"] and said["adapters_by_error"] > 0.005


def test_a_layer_of_which_few_rows_are_known_says_nothing() -> None:
    assert math.isnan(told("seldom", False).get("adapters_by", math.nan))


@pytest.mark.parametrize("pieces", [(), (45,)])
@pytest.mark.parametrize(
    ("by", "error", "rest", "scale", "config", "cause"),
    [
        (2.05, 0.01, 0.1, 4.0, {}, "applied twice"),
        (0.25, 0.01, 0.1, 4.0, {}, "merged without scaling"),
        (0.25, 0.01, 0.1, 4.0, {"merge_scale": 1.0}, ""),
        (2.05, 0.2, 0.1, 4.0, {}, ""),
        (2.05, 0.01, 0.7, 4.0, {}, ""),
        (1.5, 0.01, 0.1, 4.0, {}, ""),
        (0.0, 0.01, 0.1, 4.0, {}, ""),
        (1.1, 0.01, 0.1, 1.0, {}, ""),
    ],
)
def test_adapters_of_another_strength_warn(
    by: float, error: float, rest: float, scale: float, config: dict[str, float], cause: str, pieces: tuple[int, ...]
) -> None:
    rows = np.arange(19, 100, 20)
    seen = {"adapters_by_error": error, "adapters_by_rest": rest, "adapters_by_scale": scale, "adapters_by": by}
    series = {f"model/{name}": (rows + 1, value + 0.0 * rows) for name, value in seen.items()}
    said = found([AdaptersStrength()], series, pieces, config=config)
    assert [one.step for one in said] == [20] * bool(cause) and all(cause in one.causes[0] for one in said)
