"""Layers that the loss does not reach, and weights that should be tied and are two tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from rule_columns import findings
from rule_curves import found as found_in

from barograph.core.record import Record
from barograph.doctor.rules.activations.reach import UnreachedParameters

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from watched_losses import classes, net, train  # noqa: E402


class Branches(nn.Module):
    """A trunk and a branch beside it; how the trunk's output goes on is a test's."""

    def __init__(self, cut: Callable[[Any], Any], used: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.trunk, self.branch, self.head = nn.Linear(12, 24), nn.Linear(12, 24), nn.Linear(24, 6)
        self.spare = nn.Linear(24, 6)
        self.cut, self.used = cut, used

    def forward(self, inputs: Any) -> Any:
        return self.head(self.branch(inputs) + (self.cut(self.trunk(inputs)) if self.used else 0))


@pytest.mark.parametrize(
    ("cut", "used", "severity"),
    [
        (lambda values: values.detach(), True, "warning"),
        (lambda values: torch.tensor(values.tolist()), True, "warning"),
        (lambda values: values, True, None),
        (lambda values: values, False, None),
    ],
    ids=["detached", "made anew", "whole", "not run"],
)
def test_layers_that_run_and_are_not_reached_are_proven(
    tmp_path: Path, cut: Callable[[Any], Any], used: bool, severity: str | None
) -> None:
    found, run = train(tmp_path, Branches(cut, used), functional.cross_entropy, classes, 40)
    assert found.get("unreached_parameters") == severity
    assert ("model/unreached_parameters" in run.names()) == (severity is not None)


class OwnLayer(nn.Module):
    """A layer of one's own make, with a layer without parameters in it."""

    def __init__(self) -> None:
        super().__init__()
        self.A, self.drop = nn.Parameter(0.3 * torch.randn(24, 12)), nn.Dropout(0.1)

    def forward(self, inputs: Any) -> Any:
        return self.drop(inputs) @ self.A.T


@pytest.mark.parametrize("cut", [True, False])
def test_layers_with_a_dropout_in_them_are_looked_at_as_well(tmp_path: Path, cut: bool) -> None:
    model = Branches((lambda values: values.detach()) if cut else lambda values: values)
    model.trunk = OwnLayer()
    found, run = train(tmp_path, model, functional.cross_entropy, classes, 40)
    assert found.get("unreached_parameters") == ("warning" if cut else None)
    assert not cut or run.series("model/unreached_parameters").value.tolist() == [1.0]


@pytest.mark.parametrize(
    ("name", "share", "logged", "severity"),
    [("critic", 0.001, "train/value_loss", "warning"), ("v", 0.001, "losses/v_loss", "warning"),
     ("critic", 0.001, "train/entropy", "info"), ("pooler", 0.001, "train/value_loss", "info"),
     ("router", 0.001, "train/entropy", "warning"), ("bert.pooler.dense", 0.07, "train/entropy", "info"),
     ("trunk", 0.07, "train/entropy", "warning")],
)  # fmt: skip
def test_a_critic_that_nobody_asks_is_a_fault_where_a_loss_of_values_is_logged(
    name: str, share: float, logged: str, severity: str
) -> None:
    columns = {"model/unreached_parameters": (numpy.array([21]), numpy.array([2.0])),
               "model/unreached_share": (numpy.array([21]), numpy.array([share])),
               logged: (numpy.arange(30), numpy.ones(30))}  # fmt: skip
    event = Record("model", 0, 21, {"unreached": f"{name}.weight, {name}.bias"})
    (found,) = findings([UnreachedParameters()], columns, events=[event]).values()
    assert found.severity == severity


def test_a_loss_that_is_cut_off_from_the_whole_model_trains_nothing(tmp_path: Path) -> None:
    def cut(output: Any, target: Any) -> Any:
        return functional.cross_entropy(output.detach().requires_grad_(), target)

    found, run = train(tmp_path, net(6), cut, classes, 30)
    assert found["unreached_parameters"] == "critical"
    assert run.series("model/unreached_parameters").value.tolist() == [4.0]


class Tied(nn.Module):
    """An embedding and an output layer of one shape."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embedding, self.places = nn.Embedding(30, 16), nn.Embedding(16, 16)  # places: of a layer's shape
        self.between, self.head = nn.Linear(16, 16), nn.Linear(16, 30, bias=False)
        if how not in ("apart", "said"):
            self.head.weight = self.embedding.weight
        if how == "copied":
            self.head.weight = nn.Parameter(self.head.weight.detach().clone())
        if how.startswith("one memory"):
            self.head.weight = nn.Parameter(self.embedding.weight.data, requires_grad=how == "one memory")
        if how.startswith("grown"):
            more = nn.Embedding(33 if how == "grown" else 90, 16)
            more.weight.data[:30] = self.embedding.weight.data
            self.embedding = more
        if how.startswith("resized"):  # each by itself: the new rows are others
            self.head.weight = nn.Parameter(self.embedding.weight.detach().clone())
            self.head.weight.data[{"resized": 28, "resized far": 12, "resized still": 28}[how] :] += 0.1
            self.head.weight.requires_grad_(False)
            self.embedding.weight.requires_grad_(how != "resized still")
        self.config = SimpleNamespace(tie_word_embeddings=how == "said")

    def forward(self, tokens: Any) -> Any:
        placed = self.embedding(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.between(placed)).mean(1)


class Sides(nn.Module):
    """Two tables of one shape: as they were drawn, one a copy of the other, or one."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.ours, self.theirs = nn.Embedding(30, 16), nn.Embedding(30, 16)
        if how != "apart":
            self.theirs = copy.deepcopy(self.ours) if how == "copied" else self.ours
        self.head = nn.Linear(32, 5)

    def forward(self, tokens: Any) -> Any:
        return self.head(torch.cat([self.ours(tokens).mean(1), self.theirs(tokens).mean(1)], 1))


@pytest.mark.parametrize(
    ("how", "config", "warns"),
    [("copied", {"share_titles": True}, True), ("copied", {}, False), ("copied", {"share_titles": False}, False),
     ("copied", {"share_layers": True}, False), ("apart", {"share_titles": True}, False),
     ("apart", {"one_table": True}, True), ("apart", {"share_embedding": True}, True),
     ("apart", {"one_table": False}, False),
     ("apart", {"one_embedding_layer": True}, False), ("one", {"one_table": True}, False),
     ("one", {"share_titles": True}, False)],
)  # fmt: skip
def test_tables_that_are_shared_by_the_configuration_are_one_tensor(
    tmp_path: Path, how: str, config: dict[str, Any], warns: bool
) -> None:
    found, _ = train(
        tmp_path, Sides(how), functional.cross_entropy,
        lambda step: (torch.randint(0, 30, (8, 12)), torch.randint(0, 5, (8,))), 10, config,
    )  # fmt: skip
    assert (found.get("untied_weights") == "warning") == warns


@pytest.mark.parametrize(
    ("how", "config", "warns"),
    [("tied", {"tie_word_embeddings": True}, False), ("copied", {}, True), ("apart", {}, False),
     ("copied", {"tie_embeddings": False}, False),
     ("apart", {"tie_word_embeddings": True}, True), ("apart", {"tie_word_embeddings": False}, False),
     ("apart", {"tied": True}, True), ("apart", {"share_decoder_input_output_embed": True}, True),
     ("apart", {"share_encoder": True, "tied_towers": True, "share_embeddings": True}, False),
     ("apart", {"share_embeddings": True}, True), ("copied", {"share_embeddings": False}, False),
     ("copied", {"share_table": False}, False),
     ("grown", {}, True), ("grown far", {}, False), ("said", {}, True),
     ("one memory", {}, True), ("one memory, frozen", {}, False),
     ("resized", {}, True), ("resized far", {}, False), ("resized still", {}, False)],
)  # fmt: skip
def test_tied_weights_that_are_two_tensors_are_proven(
    tmp_path: Path, how: str, config: dict[str, Any], warns: bool
) -> None:
    found, _ = train(
        tmp_path, Tied(how), functional.cross_entropy,
        lambda step: (torch.randint(0, 30, (8, 12)), torch.randint(0, 30, (8,))), 10, config,
    )  # fmt: skip
    assert (found.get("untied_weights") == "warning") == warns


@pytest.mark.parametrize(
    ("layers", "config", "severity"),
    [
        ([nn.Linear(16, 16)] * 3, {"layers": 3}, "warning"),
        ([nn.Linear(16, 16)] * 3, {"share_layers": True}, "info"),
        ([nn.Linear(16, 16) for _ in range(3)], {}, None),
        ([nn.ReLU()] * 3, {}, None),  # nothing is trained in it
        ([layer := nn.Linear(16, 16), nn.ReLU(), layer], {}, None),
    ],
)
def test_a_list_of_layers_that_is_one_layer_is_told(
    tmp_path: Path, layers: list[nn.Module], config: dict[str, Any], severity: str | None
) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Sequential(*layers), nn.Linear(16, 4))
    found, _ = train(
        tmp_path, model, functional.cross_entropy,
        lambda step: (torch.randn(8, 16), torch.randint(0, 4, (8,))), 10, config,
    )  # fmt: skip
    assert found.get("repeated_layer") == severity


class Kinds(nn.Module):
    """An encoder of tokens of two kinds, and a classifier of two classes: the tables have one shape."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        self.tokens, self.token_type_embeddings = nn.Embedding(30, 16), nn.Embedding(2, 16)
        self.classifier = nn.Linear(16, 2)
        if named:
            self.pieces, self.token_type_embeddings = self.token_type_embeddings, nn.Embedding(3, 16)

    def get_output_embeddings(self) -> None:  # as transformers' classifiers answer
        return None

    def forward(self, tokens: Any) -> Any:
        table = getattr(self, "pieces", self.token_type_embeddings)
        return self.classifier((self.tokens(tokens) + table(tokens % 2)).mean(1))


@pytest.mark.parametrize("named", [False, True])
def test_a_classifier_of_as_many_classes_as_kinds_of_tokens_is_not_to_be_tied(tmp_path: Path, named: bool) -> None:
    found, _ = train(
        tmp_path, Kinds(named), functional.cross_entropy,
        lambda step: (torch.randint(0, 30, (8, 12)), torch.randint(0, 2, (8,))), 10, {"tie_word_embeddings": True},
    )  # fmt: skip
    assert "untied_weights" not in found


class Looked(nn.Module):
    """Words are looked up under `no_grad()`, or not."""

    def __init__(self, without: bool) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words, self.norm, self.head = nn.Embedding(64, 24), nn.LayerNorm(24), nn.Linear(24, 6)
        nn.init.normal_(self.words.weight, std=0.2)
        self.without = without

    def forward(self, inputs: Any) -> Any:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.without):
            words = self.words(inputs.argsort(-1))
        return self.head(self.norm(words).mean(1))


@pytest.mark.parametrize("without", [True, False])
def test_a_random_embedding_that_is_looked_up_without_gradients_is_seen(tmp_path: Path, without: bool) -> None:
    _, run = train(tmp_path, Looked(without), functional.cross_entropy, classes, 40)
    assert ("model/without_graph_random_tables" in run.names()) == without


@pytest.mark.parametrize(
    ("config", "new", "severity"),
    [
        ({"lr": 0.1, "width": 24, "depth": 2}, 1.0, "warning"),
        ({"lr": 0.1, "width": 24, "depth": 2}, 0.0, "info"),
        ({}, 1.0, "info"),
        ({"lr": 0.1, "width": 24, "freeze": "words"}, 1.0, "info"),
    ],
)
def test_a_random_embedding_under_no_grad_warns_in_a_new_model(config: dict, new: float, severity: str) -> None:
    at = numpy.array([20])
    columns = {f"model/{name}": (at, numpy.array([value])) for name, value in {
        "without_graph_parameters": 1.0, "without_graph_share": 0.2, "without_graph_random_tables": 1.0,
        "untrained": new}.items()}  # fmt: skip
    assert [one.severity for one in found_in([UnreachedParameters()], columns, config=config)] == [severity]


class Adapted(nn.Module):
    """A linear layer that was trained before, frozen, with an adapter of low rank beside it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width)
        nn.init.orthogonal_(self.base.weight)
        self.base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(3, width) / width)
        self.lora_b = nn.Parameter(torch.zeros(width, 3))

    def forward(self, inputs: Any) -> Any:
        return self.base(inputs) + functional.linear(functional.linear(inputs, self.lora_a), self.lora_b)


class PackedLora(nn.Module):
    """The same beside a layer of eight bits, which is no parameter."""

    def __init__(self, width: int) -> None:
        super().__init__()
        weight = nn.init.orthogonal_(torch.empty(width, width))
        self.register_buffer("packed", (100 * weight).round().to(torch.int8))
        self.lora_a = nn.Parameter(torch.randn(3, width) / width)
        self.lora_b = nn.Parameter(torch.zeros(width, 3))

    def base(self, inputs: Any) -> Any:
        return functional.linear(inputs, self.packed.float() / 100)

    def forward(self, inputs: Any) -> Any:
        return self.base(inputs) + functional.linear(functional.linear(inputs, self.lora_a), self.lora_b)


class PackedInside(PackedLora):
    """The same, with the adapter in a module around the layer."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.layer = nn.Module()
        self.layer.register_buffer("packed", self.packed)
        self.layer.bias = nn.Parameter(torch.zeros(width), requires_grad=False)
        del self.packed

    def base(self, inputs: Any) -> Any:
        return functional.linear(inputs, self.layer.packed.float() / 100, self.layer.bias)


class Layered(nn.Module):
    """Adapted layers, of which the first may run under `no_grad()`: always, now and then, or not at all."""

    def __init__(self, without: str, make: Any = Adapted) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second, self.head = make(12), make(12), nn.Linear(12, 6)
        self.without, self.passes = without, 0

    def forward(self, inputs: Any) -> Any:
        self.passes += 1
        off = self.without == "always" or (self.without == "at first" and self.passes < 15)
        if self.without == "left out":
            return self.head(self.second(self.first.base(inputs)).relu())
        if self.without == "checkpointed":
            values = checkpoint(self.first, inputs, use_reentrant=True).relu()
            return self.head(self.second(values))
        with torch.set_grad_enabled(torch.is_grad_enabled() and not off):
            values = self.first(inputs).relu()
        return self.head(self.second(values))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("make", [Adapted, PackedLora, PackedInside])
@pytest.mark.parametrize(
    ("without", "trained", "severity"),
    [
        ("always", False, "warning"),
        ("checkpointed", False, "warning"),
        ("always", True, "info"),  # an adapter that was trained before
        ("at first", False, None),
        ("left out", False, None),
        ("", False, None),
    ],
)
def test_adapters_in_layers_that_run_without_gradients_are_told(
    tmp_path: Path, without: str, trained: bool, severity: str | None, make: Any
) -> None:
    model = Layered(without, make)
    if trained:
        nn.init.normal_(model.first.lora_b, std=0.1)
    found, _ = train(tmp_path, model, functional.cross_entropy, classes, 40)
    assert found.get("unreached_parameters") == severity
