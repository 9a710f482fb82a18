"""Graphs that are kept from step to step are found, and what nobody keeps is not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barograph

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


class Cyclic(nn.Module):
    """Whose output is held by an object that refers to itself, until a collection of garbage."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, given: Any) -> Any:
        holder: dict[str, Any] = {"output": self.layer(given)}
        holder["self"] = holder
        return holder["output"]


class Showing(nn.Module):
    """That keeps what its first layer gives. how: what of it."""

    def __init__(self, how: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.last, self.how, self.shown = nn.Linear(6, 16), nn.Linear(16, 3), how, []

    def forward(self, given: Any) -> Any:
        hidden = self.first(given).relu()
        if self.training:
            self.shown.append(self.how(hidden))
        return self.last(hidden)


class Placed(nn.Module):
    """Whose places are a view of a parameter, made once."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.last = nn.Parameter(torch.randn(6)), nn.Linear(6, 3)
        self.row = self.places[None]

    def forward(self, given: Any) -> Any:
        return self.last(self.row + given)


def trained(
    folder: Path, keep: Callable[[Any, Any, Any], Any], model: Any = None, steps: int = 45, every: int = 0
) -> list[Any]:
    """Findings of a short training. keep: what is done with model, loss and output behind each step, or each so many in
    evaluation mode."""
    torch.manual_seed(3)
    model = model or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    run = barograph.init(dir=folder, console="none", machine=False, sidecar=False)
    run.watch(model, optimizer)
    for step in range(1, steps + 1):
        given = torch.randn(16, 6)
        output = model(given)
        output = output[0] * output[1] if isinstance(output, tuple) else output
        loss = functional.cross_entropy(output, given[:, :3].argmax(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not every:
            keep(model, loss, output)
        elif step % every == 0:
            model.eval()
            keep(model, loss, output)
            model.train()
        run.log({"loss": loss}, step=step)
    run.finish()
    return [
        one
        for one in barograph.diagnose(barograph.read(str(run.dir))[0])["findings"]
        if one["rule"] in ("kept_graph", "evaluated_graph", "average_graph")
    ]


class Summed:
    """A sum of losses."""

    def __init__(self) -> None:
        self.total: Any = 0.0

    def __call__(self, model: Any, loss: Any, output: Any) -> None:
        self.total = self.total + loss


@pytest.mark.parametrize("what", ["sum", "losses", "outputs"])
def test_graphs_that_are_kept_are_found_with_their_step(tmp_path: Path, what: str) -> None:
    kept: list[Any] = []
    keep = {
        "sum": Summed(),
        "losses": lambda model, loss, output: kept.append(loss),
        "outputs": lambda model, loss, output: kept.append(output),
    }[what]
    (found,) = trained(tmp_path, keep)
    assert found["severity"] == "warning" and found["step"] <= 3 and found["found"] <= 24
    assert "graph" in found["causes"][0]


def test_what_a_layer_gives_keeps_the_graph_up_to_there(tmp_path: Path) -> None:
    (found,) = trained(tmp_path / "kept", lambda *_: None, Showing(lambda hidden: hidden))
    assert found["rule"] == "kept_graph" and found["step"] <= 3
    assert trained(tmp_path / "detached", lambda *_: None, Showing(lambda hidden: hidden.detach())) == []


class Sides(nn.Module):
    """That returns the two sides of a pair, and keeps the second. how: what of it."""

    def __init__(self, how: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.second, self.how, self.shown = nn.Linear(6, 3), nn.Linear(6, 3), how, []

    def forward(self, given: Any) -> Any:
        sides = self.first(given), self.second(given)
        if self.training:
            self.shown.append(self.how(sides[1]))
        return sides


def test_each_part_of_what_a_model_returns_has_a_graph_that_may_be_kept(tmp_path: Path) -> None:
    (found,) = trained(tmp_path / "kept", lambda *_: None, Sides(lambda side: side))
    assert found["rule"] == "kept_graph" and found["step"] <= 3
    assert trained(tmp_path / "detached", lambda *_: None, Sides(lambda side: side.detach())) == []


def test_a_view_of_a_parameter_that_is_made_once_is_no_kept_graph(tmp_path: Path) -> None:
    assert trained(tmp_path, lambda *_: None, Placed()) == []


class Features:
    """What an evaluation computes of a part of a model, as features: the last `most` are kept, by `how`."""

    def __init__(self, most: int, how: Callable[[Any], Any], grad: bool = True) -> None:
        self.kept: list[Any] = []
        self.most, self.how, self.grad = most, how, grad

    def __call__(self, model: Any, loss: Any, output: Any) -> None:
        with torch.set_grad_enabled(self.grad):
            self.kept = [*self.kept, self.how(model[0](torch.ones(20, 6)))][-self.most :]


def test_features_of_evaluations_that_keep_their_graphs_are_found(tmp_path: Path) -> None:
    (found,) = trained(tmp_path, Features(99, lambda made: made), every=5)
    assert found["rule"] == "evaluated_graph" and found["severity"] == "warning"
    assert found["step"] <= 6 and found["found"] <= 26


class CopyEvaluated:
    """An evaluation of a copy of the model. kept: of how many the outputs are kept."""

    def __init__(self, model: Any, kept: int, back: bool = False) -> None:
        self.copy, self.most, self.back, self.kept = copy.deepcopy(model), kept, back, list[Any]()

    def __call__(self, model: Any, loss: Any, output: Any) -> None:
        self.copy.load_state_dict(model.state_dict())
        self.copy.eval()
        made = self.copy(torch.ones(20, 6))
        if self.back:
            made.sum().backward()
        self.kept = [*self.kept, made][-self.most :] if self.most else []


@pytest.mark.parametrize(("kept", "back"), [(99, False), (0, False), (2, True)])
def test_a_copy_that_is_evaluated_with_gradients_is_found(tmp_path: Path, kept: int, back: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    found = trained(tmp_path, CopyEvaluated(model, kept, back), model, every=5)
    assert [one["rule"] for one in found] == ["evaluated_graph"] * (kept == 99)
    run = barograph.read(tmp_path)[0]
    assert ("model/gradients_in_evaluation" in run.names()) == (not back)
    if not back:
        said = run.series("model/gradients_in_evaluation")
        assert said.step[said.value == 1].tolist()[:3] == [6, 11, 16]


def test_evaluations_whose_graphs_go_and_those_of_each_step_are_not(tmp_path: Path) -> None:
    every = {
        "without": Features(99, lambda made: made, grad=False),
        "detached": Features(99, lambda made: made.detach()),
        "newest": Features(2, lambda made: made),
    }
    for name, keep in every.items():
        assert trained(tmp_path / name, keep, every=5) == []
    keep = Features(10, lambda made: made)
    assert trained(tmp_path / "each", keep, every=1) == []  # of the training itself, and a few of them


def test_numbers_detached_tensors_and_the_last_few_losses_are_no_kept_graphs(tmp_path: Path) -> None:
    kept: list[Any] = []

    def keep(model: Any, loss: Any, output: Any) -> None:
        kept.extend((loss.item(), loss.detach(), output.detach()))

    last: list[Any] = []

    def keep_some(model: Any, loss: Any, output: Any) -> None:
        last.append(loss)
        del last[:-15]  # a window of a mean, or an epoch of 15 batches

    assert not trained(tmp_path / "numbers", keep)
    assert not trained(tmp_path / "window", keep_some)
    assert not trained(tmp_path / "cycle", lambda *given: None, Cyclic())


def average(**options: Any) -> Callable[[Any, Any, Any], Any]:
    """An average of the weights in a dictionary."""
    weights: dict[str, Any] = {}

    def keep(model: Any, loss: Any, output: Any) -> None:
        for name, parameter in model.named_parameters():
            value = parameter.detach() if options["detach"] else parameter
            weights[name] = 0.9 * weights[name] + 0.1 * value if name in weights else value

    return keep


def copied(enabled: bool) -> Callable[[Any, Any, Any], Any]:
    """An average of the weights in a copy of the model."""
    other: list[Any] = []

    def keep(model: Any, loss: Any, output: Any) -> None:
        other.append(copy.deepcopy(model).requires_grad_(False)) if not other else None
        with torch.set_grad_enabled(enabled):
            for one, parameter in zip(other[0].parameters(), model.parameters(), strict=True):
                one.mul_(0.9).add_(parameter, alpha=0.1)

    return keep


@pytest.mark.parametrize("make", [average(detach=False), copied(True)], ids=["dictionary", "model"])
def test_an_average_that_is_taken_with_gradients_is_found(tmp_path: Path, make: Any) -> None:
    (found,) = trained(tmp_path, make)
    assert found["found"] <= 24 and "no_grad" in found["causes"][0] and "average" in found["causes"][0]


def test_an_average_without_gradients_is_none_with_a_graph(tmp_path: Path) -> None:
    assert not trained(tmp_path / "dictionary", average(detach=True))
    assert not trained(tmp_path / "model", copied(False))
