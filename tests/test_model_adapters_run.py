"""Adapters as they run: by what they are multiplied, which are held at 0, and which stand for their layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from rule_curves import found  # noqa: E402
from test_model_adapters import LowRankLinear  # noqa: E402
from torch import nn  # noqa: E402

from barograph.doctor.rules.activations.adapters import AdapterScale, AdaptersHeld  # noqa: E402
from barograph.probes.model.adapters import Adapters, HeldFactors, ScaleOfAdapter  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

WIDTH, RANK = 64, 8


class Scaled(nn.Module):
    """An adapter whose product is multiplied in one way or another."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.base, self.drop, self.way = nn.Linear(16, 12).requires_grad_(False), nn.Dropout(0.1), way
        self.lora_a, self.lora_b = nn.Parameter(torch.randn(4, 16)), nn.Parameter(torch.zeros(12, 4))
        self.gain = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Any) -> Any:
        inner = self.drop(x) @ self.lora_a.T
        if self.way in ("weights", "lengths"):
            whole = self.base.weight + 2.5 * self.lora_b @ self.lora_a
            return nn.functional.linear(x, whole / (whole.norm(dim=1, keepdim=True) if self.way == "lengths" else 1))
        return {
            "number": lambda: self.base(x) + 2.5 * (inner @ self.lora_b.T),
            "divided": lambda: self.base(x) + inner @ self.lora_b.T / 0.4,
            "alpha": lambda: torch.add(self.base(x), inner @ self.lora_b.T, alpha=2.5),
            "at once": lambda: torch.addmm(self.base(x), inner, self.lora_b.T, alpha=2.5),
            "nothing": lambda: self.base(x) + inner @ self.lora_b.T,
            "learnt": lambda: self.base(x) + self.gain * (inner @ self.lora_b.T),
        }[self.way]()


@pytest.mark.parametrize(
    ("way", "scale"),
    [("number", 2.5), ("divided", 2.5), ("alpha", 2.5), ("at once", 2.5), ("weights", 2.5), ("lengths", 2.5),
     ("nothing", 1.0), ("learnt", None)],
)  # fmt: skip
def test_what_multiplies_an_adapter_is_read_once(way: str, scale: float | None) -> None:
    model = nn.Sequential(nn.Linear(16, 16), Scaled(way))
    look, current = ScaleOfAdapter(model), ModelRound(0, frozenset())
    with torch.no_grad():
        model(torch.randn(5, 16))
    assert model[1]._forward_hooks
    model(torch.randn(5, 16)).sum().backward()
    look.put(current)
    assert not model[1]._forward_hooks
    assert current.figures == ({} if scale is None else {
        "adapter_scale": pytest.approx(scale), "adapter_rank": 4.0, "adapter_alone": 0.0})  # fmt: skip


@pytest.mark.parametrize(
    ("scale", "rank", "config", "says"),
    [
        (16.0, 8.0, {"lora_r": 8, "lora_alpha": 16}, "alpha itself"),
        (3.0, 8.0, {"lora_r": 8, "lora_alpha": 3}, ""),  # some call the scale so
        (128.0, 8.0, {"r": 8, "alpha": 16}, "alpha times the rank"),
        (0.25, 8.0, {"rank": 8, "alpha": 16}, "alpha over the rank twice"),
        (0.5, 8.0, {"rank": 8, "alpha": 16}, "the rank over alpha"),
        (2.0, 8.0, {"lora_r": 8, "lora_alpha": 16}, ""),
        (16 / 8**0.5, 8.0, {"lora_r": 8, "lora_alpha": 16}, ""),
        (16.0, 8.0, {"lora_r": 4, "lora_alpha": 16}, ""),  # of other adapters
        (16.0, 8.0, {"lora_r": 8, "lora_alpha": 16, "mixup": {"alpha": 0.2}}, ""),
        (16.0, 1.0, {"lora_r": 1, "lora_alpha": 16}, ""),
        (1.0, 8.0, {"lora_r": 8, "lora_alpha": 16}, ""),
        (16.0, 8.0, {"lora_r": 8, "lora_alpha": 128, "lr": 0.0045, "optimizer": "adamw"}, "too high"),
        (16.0, 8.0, {"lora_r": 8, "lora_alpha": 128, "lr": 0.0044, "optimizer": "adamw"}, ""),
        (16.0, 8.0, {"lora_r": 8, "lora_alpha": 128, "lr": 0.0045, "optimizer": "sgd"}, ""),
        (7.9, 8.0, {"lora_r": 8, "lora_alpha": 63.2, "lr": 0.1, "optimizer": "adamw"}, ""),
    ],
)
def test_adapters_are_multiplied_by_alpha_over_their_rank(
    scale: float, rank: float, config: dict[str, Any], says: str
) -> None:
    columns = {
        f"model/adapter_{name}": (np.array([1]), np.array([value]))
        for name, value in (("rank", rank), ("scale", scale))
    }
    causes = [cause for one in found([AdapterScale()], columns, config=config) for cause in one.causes]
    assert says in causes[0] if says else not causes


class Beside(nn.Module):
    """Two factors by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, given: Any) -> Any:
        return self.up(self.down(given))


@pytest.mark.parametrize(
    ("held", "used", "began", "count"),
    [
        ((0, 1), (0, 1, 2, 3), (), 2.0),
        ((0, 1), (2, 3), (), None),  # of another task
        ((0, 1), (0, 1, 2, 3), (0, 1), 0.0),  # trained before
        ((), (0, 1, 2, 3), (), None),
        ((0, 1, 2, 3), (0, 1, 2, 3), (), None),  # none is trained: see `zero_products`
    ],
)
def test_factors_that_are_frozen_at_zero_and_run_beside_trained_ones_are_counted(
    held: tuple[int, ...], used: tuple[int, ...], began: tuple[int, ...], count: float | None
) -> None:
    model = nn.ModuleList(Beside() for _ in range(4))
    for number in held:
        model[number].requires_grad_(False)
    for number in began:
        nn.init.normal_(model[number].up.weight)
    listener = HeldFactors(model)
    for step in range(6):
        for number in used:
            model[number](torch.randn(3, WIDTH))
        with torch.no_grad():
            model[0](torch.randn(3, WIDTH))  # an evaluation says nothing
        current = ModelRound(step, frozenset())
        listener.put(current)
        told = [float(one.values[0]) for one in current.columns if one.family == "held_factors"]
        assert told == ([count] if count is not None and not step else [])
    assert not any(one._forward_pre_hooks for one in model.modules())


@pytest.mark.parametrize(
    ("count", "config", "severity"),
    [(6, {}, "warning"), (1, {}, ""), (0, {}, ""), (6, {"unfreeze_at": 100}, "info")],
)
def test_adapters_that_are_held_at_zero_are_found(count: int, config: dict[str, int], severity: str) -> None:
    columns = {"model/held_factors": (np.array([1]), np.array([float(count)]))}
    told = found([AdaptersHeld()], columns, config=config)
    assert [one.severity for one in told] == [severity] * bool(severity) and all(one.step == 0 for one in told)


def test_the_close_of_a_watch_leaves_no_hook_on_adapters() -> None:
    model = nn.Sequential(*(LowRankLinear() for _ in range(4)), Beside(), Beside())
    model[4].requires_grad_(False)
    adapters = Adapters(model)
    hooks = [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules()]
    adapters.close()
    assert sum(hooks) > 1 and not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


class BesideLayer(nn.Module):
    """A frozen layer, or one in whole numbers, and an adapter; what is given back is chosen."""

    codes: Any

    def __init__(self, packed: bool, alone: bool) -> None:
        super().__init__()
        if packed:
            self.register_buffer("codes", torch.randint(1, 255, (WIDTH, WIDTH)).to(torch.uint8))
        else:
            self.base = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.packed, self.alone = packed, alone

    def forward(self, x: Any) -> Any:
        added = self.lora_B(self.lora_A(x)) * 2.0
        layer = (lambda x: x @ (self.codes.float() - 128).T) if self.packed else self.base
        return added if self.alone else layer(x) + added


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["alone", "both", "elsewhere"])
def test_an_adapter_that_stands_for_its_layer_is_known_by_the_graph(kind: str, packed: bool) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(BesideLayer(packed, kind != "both"))
    look, current = ScaleOfAdapter(model), ModelRound(0, frozenset())
    given = torch.randn(3, 5, WIDTH)
    output = model(given)
    if kind == "elsewhere" and not packed:  # who calls the module adds what the layer gives
        output = output + model[0].base(given)
    output.sum().backward()
    look.put(current)
    told = kind == "alone" or (kind == "elsewhere" and packed)
    assert current.figures["adapter_alone"] == told and current.figures["adapter_scale"] == 2
    assert not model[0]._forward_hooks and (packed or not model[0].base._forward_pre_hooks)
