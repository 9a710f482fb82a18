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


def trained(folder: Path, keep: Callable[[Any, Any, Any], Any], model: Any = None, steps: int = 45) -> list[Any]:
    """Findings of a short training. keep: what is done with model, loss and output behind each step."""
    torch.manual_seed(3)
    model = model or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    run = barograph.init(dir=folder, console="none", machine=False, sidecar=False)
    run.watch(model, optimizer)
    for step in range(1, steps + 1):
        given = torch.randn(16, 6)
        output = model(given)
        loss = functional.cross_entropy(output, given[:, :3].argmax(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        keep(model, loss, output)
        run.log({"loss": loss}, step=step)
    run.finish()
    return [
        one
        for one in barograph.diagnose(barograph.read(str(run.dir))[0])["findings"]
        if one["rule"] in ("kept_graph", "average_graph")
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
