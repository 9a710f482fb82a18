"""Evaluations that build graphs, on purpose or for nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import barograph
from barograph.doctor import diagnose

torch = pytest.importorskip("torch")
from test_model_state import classifier, evaluated, loud, train  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def passes(folder: Path, beside: Callable[[nn.Module, int], bool], steps: int = 40) -> dict[str, int]:
    """The findings of a model that is in training mode all the time. beside: called behind each step with the model;
    whether it evaluated."""
    model = classifier(nn.Identity())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(
        project="p", name="n", dir=str(folder), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for step in range(1, steps + 1):
        loss = functional.cross_entropy(model(torch.randn(48, 12)), torch.randint(0, 6, (48,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"train/loss": loss.item()}
        if beside(model, step):
            row["eval/loss"] = row["train/loss"]
        run.log(row, step=step)
    run.finish()
    return dict(loud(diagnose(barograph.read(str(run.dir))[0])["findings"]))


def without(model: nn.Module, step: int) -> bool:
    with torch.no_grad():
        return evaluated(model, step)


def forces(model: nn.Module, step: int) -> bool:
    if step % 5 == 0:
        given = torch.randn(48, 12, requires_grad=True)
        torch.autograd.grad(model(given).sum(), given)
    return step % 5 == 0


def sharpness(model: nn.Module, step: int) -> bool:
    """A gradient that is asked for beside the training's."""
    if step % 5 == 0:
        torch.autograd.grad(model(torch.randn(48, 12)).sum(), list(model.parameters()))
    return step % 5 == 0


def adapted(model: nn.Module, step: int) -> bool:
    """A learner of tasks: some gradient steps of its weights, and a pass with what comes of them."""
    if step % 5 == 0:
        weights = dict(model.named_parameters())
        loss = torch.func.functional_call(model, weights, (torch.randn(48, 12),)).square().mean()
        moved = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {name: one - 0.1 * way for (name, one), way in zip(weights.items(), moved, strict=True)}
        torch.func.functional_call(model, weights, (torch.randn(48, 12),)).mean().item()
    return step % 5 == 0


@pytest.mark.parametrize("part", [nn.Dropout(0.3), nn.Identity()], ids=["dropout", "no modes"])
def test_an_evaluation_with_gradients_is_found(tmp_path: Path, part: nn.Module) -> None:
    findings, _ = train(tmp_path / "a", classifier(part), forgotten=True)
    assert ("evaluation_gradients", 5) in loud(findings)
    findings, run = train(tmp_path / "b", classifier(part))
    assert "evaluation_gradients" not in dict(loud(findings)) and "model/gradients_in_evaluation" not in run.names()


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        (evaluated, True),
        (adapted, False),
        (without, False),
        (forces, False),
        (sharpness, False),
        (lambda model, step: evaluated(model, step, 1), False),  # each step has such a pass: it is of the training
        (lambda model, step: evaluated(model, step, 3), False),
    ],
    ids=["forgotten", "adapted", "without", "forces", "sharpness", "each step", "others too"],
)
def test_graphs_that_are_never_used_are_those_of_evaluations(
    tmp_path: Path, beside: Callable[[nn.Module, int], bool], says: bool
) -> None:
    assert passes(tmp_path, beside).get("evaluation_gradients") == (5 if says else None)


def test_an_evaluation_that_asks_for_its_inputs_gradients_needs_them(tmp_path: Path) -> None:
    findings, _ = train(tmp_path, classifier(nn.Dropout(0.3)), forgotten=True, forces=True)
    assert "evaluation_gradients" not in dict(loud(findings))


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_model_that_is_trained_in_evaluation_mode_is_no_evaluation_with_gradients(
    tmp_path: Path, forgotten: bool
) -> None:
    findings, _ = train(tmp_path, classifier(nn.Dropout(0.3)), training=lambda step: False, forgotten=forgotten)
    assert ("evaluation_gradients" in dict(loud(findings))) == forgotten


@pytest.mark.parametrize("used", [True, False])
def test_an_evaluation_that_needs_its_gradients_builds_no_graph_for_nothing(tmp_path: Path, used: bool) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run = barograph.init("p", "r", dir=str(tmp_path), git=False, console="none", sidecar=False)
    run.watch(model, optimizer)
    for step in range(24):
        rows = torch.randn(16, 6)
        loss = functional.cross_entropy(model.train()(rows), rows[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
        if step % 6 == 5:
            asked = functional.cross_entropy(model.eval()(rows), rows[:, :3].argmax(1))
            if used:  # how noisy gradients are, or a model that is adapted before it is judged
                torch.autograd.grad(asked, list(model.parameters()))
            run.log({"val_loss": asked.item()}, step=step)
    run.finish()
    found = {one["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"]}
    assert ("evaluation_gradients" in found) != used
