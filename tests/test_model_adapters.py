"""Which parameters are adapters, however written; adapters that begin at random, and those that count twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from rule_curves import found  # noqa: E402
from torch import nn  # noqa: E402

from barograph.doctor.rules.activations.groups import AdaptersDrawn, AdaptersMerged, AdaptersZero  # noqa: E402
from barograph.probes.model.adapters import Adapters, find  # noqa: E402
from barograph.probes.model.adapters_drawn import as_drawn  # noqa: E402
from barograph.probes.model.frozen import frozen_figures  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402

WIDTH, RANK = 64, 8


class LowRankLinear(nn.Module):
    """Factors as layers."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.down, self.up = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.up.weight)

    def factors(self) -> tuple[Any, Any]:
        return self.up.weight, self.down.weight


class LoRALinear(nn.Linear):
    """Factors as parameters, multiplied from the right."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 3 * WIDTH)
        self.requires_grad_(False)
        self.A, self.B = nn.Parameter(torch.randn(WIDTH, RANK) / 8), nn.Parameter(torch.zeros(RANK, 3 * WIDTH))

    def factors(self) -> tuple[Any, Any]:
        return self.B.T, self.A.T


class PackedLoRA(nn.Module):
    """A layer that is held in few bits, and its adapter."""

    packed: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("packed", torch.zeros(WIDTH * WIDTH // 2, 1, dtype=torch.uint8))
        self.lora_A, self.lora_B = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)
        nn.init.zeros_(self.lora_B.weight)


class Bottleneck(nn.Module):
    """Three layers of which two are narrow, and nothing is added to anything."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.down, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, RANK), nn.Linear(RANK, WIDTH)


def layers(kind: type[nn.Module]) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*(kind() for _ in range(4)))


def figures(adapters: Adapters) -> dict[str, float]:
    current = ModelRound(0, frozenset())
    with torch.no_grad():
        adapters.put(current)
    return {column.family: float(column.values) for column in current.columns}


@pytest.mark.parametrize("kind", [LowRankLinear, LoRALinear])
def test_adapters_are_known_by_their_shapes(kind: type[nn.Module]) -> None:
    model = layers(kind)
    adapters = Adapters(model)
    assert len(find(model)) == 4 and find(layers(Bottleneck)) == []
    is_part = [adapters.has("0.x", item) for item in model[0].parameters()]
    assert is_part == [item.requires_grad for item in model[0].parameters()]
    assert adapters.trained_layers({id(item) for item in model.parameters() if item.requires_grad}) == []
    assert len(adapters.trained_layers({id(item) for item in model.parameters()})) == 4


@pytest.mark.parametrize("kind", [LowRankLinear, LoRALinear])
@pytest.mark.parametrize(
    ("way", "drawn"),
    [("zero", 0.0), ("normal", 1.0), ("uniform", 1.0), ("trained", 0.0), ("singular vectors", 0.0), ("layers", 0.0)],
)
def test_second_factors_that_are_random_numbers_are_known(kind: type[nn.Module], way: str, drawn: float) -> None:
    model = layers(kind)
    with torch.no_grad():
        for at, layer in enumerate(model):
            second = layer.factors()[0]
            size = second.shape
            second.copy_({
                "zero": torch.zeros(size), "normal": 0.02 * torch.randn(size), "uniform": torch.rand(size) - 0.5,
                "trained": torch.randn(size[0], 3) @ torch.randn(3, size[1]),
                "singular vectors": torch.linalg.qr(torch.randn(size))[0], "layers": (1 + at) * torch.randn(size),
            }[way])  # fmt: skip
    assert figures(Adapters(model))["adapters_drawn"] == drawn


@pytest.mark.parametrize(("way", "drawn", "zero"), [("zero", 0.0, 0.0), ("normal", 1.0, 0.0), ("both zero", 0.0, 4.0)])
def test_adapters_of_a_layer_that_is_held_in_few_bits_are_known_by_their_names(
    way: str, drawn: float, zero: float
) -> None:
    model = layers(PackedLoRA)
    with torch.no_grad():
        for layer in model:
            if way == "normal":
                nn.init.normal_(layer.lora_B.weight, std=0.1)
            elif way == "both zero":
                nn.init.zeros_(layer.lora_A.weight)
    assert find(model) == []
    assert figures(Adapters(model)) == {"adapters_drawn": drawn, "adapters_zero": zero}
    assert figures(Adapters(layers(Bottleneck))) == {}


class LoraBesideBuffer(nn.Module):
    """Factors of plain names beside whole numbers that are no parameter."""

    def __init__(self, name: str = "q") -> None:
        super().__init__()
        if name:
            self.register_buffer(name, torch.randint(-127, 128, (16, 8), dtype=torch.int8))
        self.A, self.B = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.zeros(16, 2))


def test_adapters_beside_a_buffer_are_known_by_the_name_of_their_module() -> None:
    for name, told in (("q", True), ("", False)):
        model = nn.ModuleList([LoraBesideBuffer(name)])
        adapters = Adapters(model)
        assert [adapters.has(*item) for item in model.named_parameters()] == [told, told]


@pytest.mark.parametrize(("first", "second", "count"), [(0, 0, 4), (1, 0, 0), (0, 1, 0), (1, 1, 0)])
def test_adapters_of_which_both_factors_are_zero_are_counted(first: int, second: int, count: int) -> None:
    model = layers(LoRALinear)
    with torch.no_grad():
        for one in find(model):
            one.first.copy_(first * torch.randn(one.first.shape))
            one.second.copy_(second * torch.randn(one.second.shape))
    assert figures(Adapters(model))["adapters_zero"] == count
    row = (np.array([1]), np.array([float(count)]))
    assert [one.rule for one in found([AdaptersZero()], {"model/adapters_zero": row})] == ["adapters_zero"] * (
        count > 0
    )


@pytest.mark.parametrize("way", ["random", "trained", "singular vectors"])
def test_factors_of_few_columns_are_judged_together(way: str) -> None:
    drawn = 0.0
    for seed in range(12):
        torch.manual_seed(seed)
        seconds = [torch.randn(rows, 4) for rows in (96, 32, 128, 32) * 2]
        if way == "trained":
            seconds = [one @ (torch.eye(4) + torch.randn(4, 4)) for one in seconds]
        elif way == "singular vectors":
            seconds = [torch.linalg.qr(one)[0] for one in seconds]
        drawn += float(as_drawn(seconds, [torch.ones(4, 8)] * 8))
    assert drawn >= 10 if way == "random" else drawn == 0


@pytest.mark.parametrize("kind", [LowRankLinear, LoRALinear])
@pytest.mark.parametrize(
    ("way", "along"),
    [("merged", 1.0), ("taken back", 0.0), ("begun anew", 0.0), ("replaced", 0.0), ("left alone", 0.0)],
)
def test_layers_to_which_their_adapters_were_added_are_known(kind: type[nn.Module], way: str, along: float) -> None:
    model = layers(kind)
    adapters = Adapters(model)
    seen = []
    for step in range(21):
        for layer in model:
            matrix, (second, first) = (
                next(item for item in layer.parameters() if not item.requires_grad),
                layer.factors(),
            )
            second.data += 0.1 * torch.randn(second.shape) if step else 0.0  # trained
            if step == 15 and way != "left alone":
                added = 2.0 * second.data @ first.data
                matrix.data += torch.randn(added.shape) if way == "replaced" else added
                if way == "taken back":
                    matrix.data -= added
                elif way == "begun anew":
                    second.data.zero_()
                    first.data.copy_(torch.randn(first.shape))
        if step > 15 and way == "merged":  # what was trained since is a part of what is added now
            for layer in model:
                layer.factors()[0].data *= 1.01
        seen.append(figures(adapters).get("adapters_merged", math.nan))
    assert seen[10] == 0 and np.isnan(seen[11:20]).all()
    assert abs(seen[20] - along) < 0.3 and (seen[20] > 0.6) == (along == 1)


class EightBits(nn.Module):
    """A low-rank adapter beside a layer of eight bits, with a scale for each row, and a zero where it has no sign."""

    def __init__(self, dtype: Any, seed: int) -> None:
        super().__init__()
        dice = torch.Generator().manual_seed(seed)
        self.dtype = dtype
        self.lora_a = nn.Parameter(torch.randn(4, 48, generator=dice) / 7)
        self.lora_b = nn.Parameter(0.1 * torch.randn(64, 4, generator=dice))
        self.hold(torch.randn(64, 48, generator=dice) / 7)

    def hold(self, weight: Any) -> None:
        self.zero = 0.0 if self.dtype is torch.int8 else 128.0
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 127)
        self.register_buffer("packed", ((weight / self.scale).round() + self.zero).to(self.dtype))

    def weight(self) -> Any:
        return (self.packed.float() - self.zero) * self.scale


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("way", ["merged", "taken back", "begun anew", "replaced", "scaled", "left alone"])
def test_layers_of_eight_bits_to_which_their_adapters_were_added_are_known(way: str, dtype: Any) -> None:
    model = nn.ModuleList(EightBits(dtype, seed) for seed in range(5))
    adapters, seen = Adapters(model), []
    for step in range(32):
        for layer in model:
            layer.lora_b.data += 0.01 * torch.randn(layer.lora_b.shape)  # trained
            added = 2.0 * layer.lora_b.data @ layer.lora_a.data
            if step == 15 and way == "replaced":
                layer.hold(layer.weight() + torch.randn(added.shape) / 20)
            elif step == 15 and way == "scaled":
                layer.hold(layer.weight() * (1 + 0.3 * torch.rand(64, 1)))
            elif step == 15 and way != "left alone":
                layer.hold(layer.weight() + added)
                if way == "taken back":
                    layer.hold(layer.weight() - added)
                elif way == "begun anew":
                    layer.lora_b.data.zero_()
                    layer.lora_a.data.copy_(torch.randn(layer.lora_a.shape))
        seen.append(figures(adapters).get("codes_merged", math.nan))
    assert seen[10] == 0 and seen[30] == 0 and np.isnan(seen[11:20]).all()
    assert (seen[20] > 0.7) if way == "merged" else (seen[20] < 0.2)


@pytest.mark.parametrize("cuts", [(), (1,)])
@pytest.mark.parametrize(("shares", "told"), [([0.0, 0.03, 0.6], True), ([0.0, 0.03, 0.4], False)])
def test_adapters_that_were_added_to_whole_numbers_are_told(
    shares: list[float], told: bool, cuts: tuple[int, ...]
) -> None:
    said = found([AdaptersMerged()], {"model/codes_merged": (np.array([10, 20, 30]), np.array(shares))}, cuts)
    assert [(one.rule, one.step) for one in said] == [("adapters_merged", 30)] * told


@pytest.mark.parametrize("cuts", [(), (1,)])
def test_what_was_seen_of_adapters_is_said_once(cuts: tuple[int, ...]) -> None:
    steps = np.arange(10, 60, 10)
    series = {
        "model/adapters_drawn": (np.array([1]), np.array([1.0])),
        "model/adapters_merged": (steps, np.array([0.0, 0.3, 0.93, 0.0, 0.95])),
    }
    said = found([AdaptersDrawn(), AdaptersMerged()], series, cuts)
    assert {(one.rule, one.step) for one in said} == {("adapters_drawn", 1), ("adapters_merged", 30)}
    well = {"model/adapters_drawn": (np.array([1]), np.array([0.0])), "model/adapters_merged": (steps, np.full(5, 0.3))}
    assert found([AdaptersDrawn(), AdaptersMerged()], well, cuts) == []


@pytest.mark.parametrize(
    ("config", "severity"),
    [
        ({"adapter_checkpoint": "out/first.safetensors"}, "info"),
        ({"adapter_checkpoint": ""}, "warning"),
        ({}, "warning"),
    ],
)
def test_adapters_that_are_loaded_may_look_random(config: dict[str, str], severity: str) -> None:
    said = found([AdaptersDrawn()], {"model/adapters_drawn": (np.array([1]), np.array([1.0]))}, config=config)
    assert [one.severity for one in said] == [severity]


def frozen_of(model: nn.Module, trained: list[str]) -> dict[str, float]:
    for name, item in model.named_parameters():
        item.requires_grad_(name in trained)
    current = ModelRound(0, frozenset())
    frozen_figures(current, model, tuple(item for item in model.parameters() if item.requires_grad), Adapters(model))
    single = {column.family: float(column.values) for column in current.columns if column.values.numel() == 1}
    return single | {name: value for name, value in current.figures.items() if isinstance(value, float)}


def test_frozen_layers_that_are_all_0_are_counted() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    for layer in model[:3]:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    nn.init.ones_(model[2].bias)  # one that passes something on
    assert frozen_of(model, ["1.weight", "1.bias", "3.weight", "3.bias"])["frozen_zero"] == 1.0
    assert "frozen_zero" not in frozen_of(model, [name for name, _ in model.named_parameters()])


@pytest.mark.parametrize(("path", "counts"), [("kinds", True), ("pos_emb", False), ("codes", False)])
def test_a_table_that_is_frozen_at_0_is_counted(path: str, counts: bool) -> None:
    table = nn.Embedding.from_pretrained(torch.zeros(4, 8))
    model = nn.ModuleDict({path: table, "layer": nn.Linear(8, 8)})
    assert frozen_of(model, ["layer.weight", "layer.bias"]).get("frozen_zero", 0.0) == float(counts)
    table.weight.data[1] = 1.0
    assert frozen_of(model, ["layer.weight", "layer.bias"]).get("frozen_zero", 0.0) == 0.0


class Beside(nn.Module):
    """Factors by the names of the field, of two adapters: three matrices and two more."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(WIDTH, WIDTH)
        self.lora_A = nn.ModuleDict({name: nn.Linear(WIDTH, RANK, bias=False) for name in ("default", "other")})
        self.lora_B = nn.ModuleDict({name: nn.Linear(RANK, WIDTH, bias=False) for name in ("default", "other")})
        for item in self.lora_B.parameters():
            nn.init.zeros_(item)


@pytest.mark.parametrize(
    ("kind", "trained", "idle"),
    [
        (LowRankLinear, ["down.weight"], 4),
        (LowRankLinear, ["down.weight", "up.weight"], 0),
        (LowRankLinear, ["up.weight"], 0),  # the first factor is frozen, and random
        (LoRALinear, ["A"], 4),
        (LoRALinear, ["A", "B"], 0),
        (Beside, ["lora_A.default.weight"], 4),
        (Beside, ["lora_A.default.weight", "lora_B.default.weight"], 0),  # the other adapter is not in use
    ],
)
def test_a_factor_that_is_frozen_at_zero_beside_one_that_is_trained_is_counted(
    kind: type[nn.Module], trained: list[str], idle: int
) -> None:
    model = layers(kind)
    seen = frozen_of(model, [f"{layer}.{name}" for layer in range(4) for name in trained])
    assert seen.get("zero_adapters", 0) == idle


class Turned(nn.Module):
    """A layer held in few bits, and two factors of a product under names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.zeros(WIDTH, WIDTH, dtype=torch.uint8))
        self.low, self.high = nn.Parameter(torch.randn(RANK, WIDTH)), nn.Parameter(torch.zeros(WIDTH, RANK))
        self.length = nn.Parameter(torch.ones(WIDTH))


class Narrow(nn.Module):
    """The same as layers within a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)
        self.length = nn.Parameter(torch.ones(WIDTH))
        nn.init.zeros_(self.wide.weight)


@pytest.mark.parametrize(
    ("kind", "trained", "products"),
    [
        (Turned, ["length"], 4),
        (Turned, ["length", "low", "high"], 0),
        (Turned, ["length", "high"], 0),
        (Narrow, ["length"], 4),
        (Narrow, ["length", "wide.weight"], 0),
    ],
)
def test_products_that_are_frozen_at_zero_are_counted_whatever_they_are_called(
    kind: type[nn.Module], trained: list[str], products: int
) -> None:
    model = layers(kind)
    assert frozen_of(model, [f"{layer}.{name}" for layer in range(4) for name in trained]).get("zero_products", 0) == (
        products
    )
    assert frozen_of(model, ["0.length", "0.low", "0.narrow.weight"]).get("zero_products", 0) == 0  # one is trained
    for layer in model:
        for item in layer.parameters():
            nn.init.normal_(item)  # they were trained before
    assert frozen_of(model, ["0.length"]).get("zero_products", 0) == 0


def test_adapters_that_differ_by_a_letter_are_no_factors_of_each_other() -> None:
    model = nn.ModuleDict({f"adapter_{name}": nn.Sequential(nn.Linear(WIDTH, RANK), nn.Linear(RANK, WIDTH))
                           for name in "ab"})  # fmt: skip
    nn.init.zeros_(model["adapter_a"][1].weight)
    assert frozen_of(model, ["adapter_b.0.weight", "adapter_b.1.weight"]).get("zero_adapters", 0) == 0


@pytest.mark.parametrize(
    ("trained", "lone"),
    [(["0.bias"], 1), (["1.weight"], 1), (["0.weight"], 0), (["1.weight", "1.bias"], 0), (["2"], 0), (["3.scale"], 0)],
)
def test_a_single_vector_of_a_layer_is_known(trained: list[str], lone: int) -> None:
    steering = nn.Module()
    steering.scale = nn.Parameter(torch.ones(WIDTH))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Identity(), steering)
    assert frozen_of(model, trained).get("lone_vector", 0) == lone


@pytest.mark.parametrize(
    ("trained", "norms"),
    [
        (["1.weight", "1.bias"], 1),
        (["1.weight", "1.bias", "3.bias"], 2),
        (["1.weight", "3.weight", "5.weight"], 3),  # all of them are
        (["1.weight", "1.bias", "4.bias"], 0),
        (["1.bias"], 0),  # known as a single one
    ],
)
def test_normalisations_that_are_all_that_is_trained_are_counted(trained: list[str], norms: int) -> None:
    parts = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))]
    assert frozen_of(nn.Sequential(*parts), trained).get("lone_norms", 0) == norms


def test_the_one_normalisation_of_a_model_that_is_all_that_is_trained_is_counted() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH))
    assert frozen_of(model, ["1.weight", "1.bias"])["lone_norms"] == 1
    assert "lone_norms" not in frozen_of(model, ["1.weight", "1.bias", "2.bias"])


@pytest.mark.parametrize(("follows", "own"), [(True, 0.0), (False, 1.0)])
def test_a_copy_that_follows_what_is_trained_is_not_frozen_as_drawn(follows: bool, own: float) -> None:
    query, key = (nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 16)) for _ in range(2))
    if follows:
        key.load_state_dict(query.state_dict())
    model = nn.ModuleDict({"q": query, "k": key})
    seen = frozen_of(model, [name for name, _ in model.named_parameters() if name.startswith("q")])
    assert min(1.0, seen.get("frozen_as_drawn", 0.0)) == own


@pytest.mark.parametrize(("trains", "drawn"), [([], 1.0), (["1.weight", "1.bias"], 0.0)])
def test_a_head_that_is_frozen_as_drawn_behind_adapters_beside_their_layer_is_counted(
    trains: list[str], drawn: float
) -> None:
    torch.manual_seed(3)
    around = nn.Module()
    around.base = nn.Linear(WIDTH, WIDTH)
    nn.init.normal_(around.base.weight)
    around.lora_A, around.lora_B = nn.Parameter(torch.randn(RANK, WIDTH)), nn.Parameter(torch.zeros(WIDTH, RANK))
    model = nn.Sequential(around, nn.Linear(WIDTH, 8))
    assert frozen_of(model, ["0.lora_A", "0.lora_B", *trains]).get("frozen_as_drawn", 0.0) == drawn
