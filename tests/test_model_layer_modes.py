"""Layers that drop numbers by functions, or in parts that are called in the model's place: in which mode they are."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

import barograph
from barograph.doctor.rules.evaluation.mode import ModelMode

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


class Tower(nn.Module):
    """Drops numbers by a function. how: which one."""

    def __init__(self, size: int, share: float, how: str = "function"):
        super().__init__()
        self.one, self.two, self.share, self.how = nn.Linear(size, 16), nn.Linear(16, 8), share, how
        made = {"norm": lambda: nn.BatchNorm1d(16), "layer": lambda: nn.Dropout(share)}
        self.norm = made.get(how, nn.Identity)()

    def forward(self, given: Any) -> Any:
        made = self.norm(torch.relu(self.one(given)))
        if self.how == "always":
            made = functional.dropout(made, self.share)
        elif self.how == "mask" and self.training:
            made = made * torch.empty_like(made).bernoulli_(1 - self.share) / (1 - self.share)
        elif self.how == "function":
            made = functional.dropout(made, self.share, self.training)
        return self.two(made)


class Pair(nn.Module):
    """Two towers, each of which is called by itself, or all as one. how: one word, or one for each."""

    def __init__(self, share: float, how: str):
        super().__init__()
        first, second = (how.split() * 2)[:2]
        self.one, self.two = Tower(12, share, first), Tower(6, share, second)

    def forward(self, first: Any, second: Any) -> Any:
        return self.one(first) @ self.two(second).T


def train(
    folder: Path, share: float, how: str = "function", back: str = "all", called: bool = False, watched: bool = True,
    frozen: bool = False, averaged: bool = False, evaluates: bool = True,
) -> tuple[dict[str, Any], list[float]]:  # fmt: skip
    """What was recorded, and losses. back: which part is put back into training mode behind an evaluation."""
    torch.set_num_threads(1)
    torch.manual_seed(5)
    model, rows = Pair(share, how), [torch.randn(200, size) for size in (12, 6)]
    if frozen:
        model.two.requires_grad_(False)
    average = copy.deepcopy(model).requires_grad_(False).eval() if averaged else None
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], 0.05)
    run = barograph.init(project="p", dir=folder, console="none", machine=False, sidecar=False, git=False)
    if watched:
        run.watch(model, optimizer)

    def scores(of: Any, some: Any) -> Any:
        first, second = rows[0][some], rows[1][some]
        return of(first, second) if called else of.one(first) @ of.two(second).T

    losses = []
    for step in range(30):
        loss = functional.cross_entropy(scores(model, torch.arange(step * 8, step * 8 + 8) % 160), torch.arange(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        run.log({"loss": loss.item()}, step=step)
        if average is not None:
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
        if step % 6 == 5:
            whole = model if average is None else average
            whole.train(not evaluates)
            with torch.no_grad():
                run.log({"val/loss": functional.cross_entropy(scores(whole, torch.arange(160, 200)),
                                                              torch.arange(40)).item()}, step=step)  # fmt: skip
            {"all": model, "one": model.one, "none": nn.Identity(), "but dropout": model}[back].train()
            if back == "but dropout":
                model.two.norm.eval()
    run.finish()
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    stored = barograph.read(str(run.dir))[0]
    return {name[6:]: stored.series(name).value for name in stored.names() if name.startswith("model/")}, losses


@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize(
    ("share", "how", "back", "modes"),
    [
        (0.3, "function", "all", [1]),
        (0.3, "function", "none", [1, 0]),
        (0.3, "mask", "none", [1, 0]),
        (0.0, "function", "none", []),  # the mode makes no difference
        (0.3, "plain", "none", []),
    ],
)
def test_the_mode_of_a_model_that_drops_numbers_by_functions_is_known(
    tmp_path: Path, share: float, how: str, back: str, modes: list[float], called: bool
) -> None:
    seen, _ = train(tmp_path, share, how, back, called)
    assert list(seen.get("training", [])) == modes
    assert "part_in_evaluation" not in seen


@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize(
    ("how", "back", "frozen", "told"),
    [
        ("function", "one", False, True),
        ("mask", "one", False, True),
        ("plain function", "one", False, True),  # the only ones that drop numbers
        ("plain layer", "one", False, True),
        ("plain layer", "all", False, False),
        ("plain layer", "one", True, False),
        ("plain layer", "but dropout", False, False),  # switched off for good
        ("function", "all", False, False),
        ("function", "one", True, False),  # what is not trained may be kept as it is
        ("norm", "one", False, False),  # and so may batch norm
        ("always", "all", False, False),
    ],
)
def test_a_part_that_is_left_in_evaluation_mode_is_told(
    tmp_path: Path, how: str, back: str, frozen: bool, told: bool, called: bool
) -> None:
    seen, _ = train(tmp_path, 0.3, how, back, called, frozen=frozen)
    assert set(seen.get("part_in_evaluation", [])) == ({1} if told else set())


@pytest.mark.parametrize("cuts", [(), (13, 33)])
@pytest.mark.parametrize(
    ("values", "reward", "told"),
    [([1, 1, 1], False, True), ([1, 0, 1], False, False), ([1], False, False), ([1, 1, 1], True, False)],
)
def test_two_evaluations_that_leave_a_part_in_evaluation_mode_are_a_finding(
    values: list[float], reward: bool, told: bool, cuts: tuple[int, ...]
) -> None:
    steps = numpy.arange(1, len(values) + 1) * 10
    columns = {"model/part_in_evaluation": (steps, numpy.array(values, float)), "train/loss": numpy.linspace(3, 1, 40),
               "val/loss": (steps - 1, numpy.full(len(values), 2.0))}  # fmt: skip
    columns |= {"reward": numpy.ones(40)} if reward else {}
    found = only(findings([ModelMode()], columns, cuts=cuts), "model_mode")
    assert [(one.step, one.severity, one.causes[0].split(":")[0]) for one in found] == [
        (10, "warning", "evaluation mode left on")
    ] * told


@pytest.mark.parametrize("averaged", [True, False])
@pytest.mark.parametrize(("how", "dropped"), [("always", 1), ("function", 0), ("mask", 0)])
def test_a_function_that_drops_numbers_in_an_evaluation_by_parts_is_seen(
    tmp_path: Path, how: str, dropped: float, averaged: bool
) -> None:
    seen, _ = train(tmp_path, 0.3, how, averaged=averaged)
    assert list(seen["dropout_in_evaluation"]) == [dropped]


def test_an_average_that_is_called_by_its_parts_is_followed(tmp_path: Path) -> None:
    seen, _ = train(tmp_path, 0.3, averaged=True)
    assert set(seen["evaluated_whose"]) == {2} and min(seen["evaluated_apart"]) > 0
    assert list(seen["evaluated_writes"][1:]) == [6, 6, 6] and "passes_without_gradients" not in seen
    assert list(seen["evaluated_kept"][1:]) == pytest.approx([0.9**6] * 3, abs=0.01)


@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("averaged", [True, False])
@pytest.mark.parametrize("evaluates", [True, False])
def test_an_evaluation_in_training_mode_is_seen_of_functions_too(
    tmp_path: Path, called: bool, averaged: bool, evaluates: bool
) -> None:
    seen, _ = train(tmp_path, 0.3, called=called, averaged=averaged, evaluates=evaluates)
    name = "copy_training_in_evaluation" if averaged else "training_in_evaluation"
    assert set(seen[name]) == {float(not evaluates)}


@pytest.mark.parametrize("how", ["function", "mask"])
@pytest.mark.parametrize("called", [True, False])
def test_the_training_is_the_same_with_the_watch(tmp_path: Path, how: str, called: bool) -> None:
    pair = [train(tmp_path / str(on), 0.3, how, called=called, watched=on)[1] for on in (True, False)]
    assert pair[0] == pair[1]


@pytest.mark.parametrize(
    ("head", "mode", "frozen", "modes"),
    [
        ("linear", "eval", True, []),  # of what is trained nothing has a mode
        ("dropout", "eval", True, [0]),
        ("dropout", "head", True, [1]),
        ("linear", "eval", False, [0]),
        ("linear", "train", True, [1]),
    ],
)
def test_a_frozen_backbone_in_evaluation_mode_says_nothing_of_what_is_trained_on_it(
    tmp_path: Path, head: str, mode: str, frozen: bool, modes: list[float]
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(6)
    base = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8))
    top = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 3)) if head == "dropout" else nn.Linear(8, 3)
    model = nn.Sequential(base, top)
    base.requires_grad_(not frozen)
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], 1e-2)
    run = barograph.init("p", "r", dir=str(tmp_path), git=False, console="none", sidecar=False)
    run.watch(model, optimizer)
    for step in range(12):
        model.train(mode == "train")
        if mode == "head":
            top.train()
        rows = torch.randn(32, 12)
        loss = functional.cross_entropy(model(rows), rows[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item()}, step=step)
    run.finish()
    seen = barograph.StoredRun(run.dir)
    found = seen.series("model/training").y.tolist() if "model/training" in seen.names() else []
    assert found == modes


class Factor(nn.Module):
    """What a hook adds to a layer, with dropout of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.drop = nn.Linear(12, 2, bias=False), nn.Linear(2, 16, bias=False), nn.Dropout(0.3)

    def forward(self, given: Any) -> Any:
        return self.up(self.down(self.drop(given)))


@pytest.mark.parametrize(
    ("back", "judged", "modes", "wrong"),
    [("all", "eval", [1], {0}), ("none", "eval", [1, 0], {0}), ("all", "train", [1], {1})],
)
def test_the_mode_of_adapters_that_hooks_add_to_the_part_that_is_called_counts(
    tmp_path: Path, back: str, judged: str, modes: list[int], wrong: set[int]
) -> None:
    torch.manual_seed(5)
    base, beside = Tower(12, 0.0, "plain").requires_grad_(False), Factor()
    base.one.register_forward_hook(lambda layer, given, output: output + beside(given[0]))
    whole = nn.ModuleDict({"base": base, "beside": beside})
    optimizer = torch.optim.SGD(beside.parameters(), 0.05)
    run = barograph.init(dir=tmp_path, console="none", machine=False, sidecar=False)
    run.watch(whole, optimizer)
    for step in range(30):
        given = torch.randn(16, 12)
        loss = functional.cross_entropy(base(given), given[:, :8].argmax(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"train/loss": loss}, step=step)
        if step % 10 == 9:
            whole.train(judged == "train")
            with torch.no_grad():
                run.log({"val/loss": base(torch.randn(40, 12)).square().mean()}, step=step)
            if back == "all":
                whole.train()
    run.finish()
    stored = barograph.read(str(run.dir))[0]
    assert list(stored.series("model/training").value) == modes
    assert set(stored.series("model/training_in_evaluation").value) == wrong
