"""A teacher that is never updated is found where it is a copy of what was drawn, and called in the steps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_rules_objective import FALLS, ROWS, STEP, every, of_graph, warned

import barograph
from barograph.doctor import diagnose

AWAY = 0.01 + 0.002 * STEP


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("apart", "moved", "asked", "drawn", "more", "told"),
    [
        (AWAY, 0.0, 1.0, 1.0, {}, True),
        (AWAY, 1e-6, 1.0, 1.0, {}, False),  # an average that is slow
        (0.6 + AWAY, 0.0, 1.0, 1.0, {}, False),  # another network, which was trained somewhere, or draws the targets
        (AWAY, 0.0, 1.0, 0.0, {}, False),  # weights that were loaded: what it knows is to be kept
        (AWAY, 0.0, 0.0, 1.0, {}, False),  # called in evaluations alone
        (0.01 + 0 * STEP, 0.0, 1.0, 1.0, {}, False),  # the trained one does not move either
        (AWAY, 0.0, 1.0, 1.0, {"loss_of_chosen": 1.0}, False),
    ],
)
def test_a_teacher_that_stays_as_it_was_drawn(
    apart: np.ndarray, moved: float, asked: float, drawn: float, more: dict[str, float], told: bool, rows: int
) -> None:
    columns = {"loss": every(FALLS), "model/other_apart": every(apart), **of_graph(drawn=drawn, **more)}
    columns |= {"model/other_moved": (STEP[1:], np.full(ROWS - 1, moved))}
    columns |= {"model/other_asked": (STEP[:20], np.full(20, asked))}
    found = warned(columns, rows)
    assert ("teacher_still" in found) is told
    assert not told or found["teacher_still"].step == 0


@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_a_teacher_is_found_beside_a_model_of_any_kind(tmp_path: Path, decay: float) -> None:
    torch = pytest.importorskip("torch")
    nn, functional = torch.nn, torch.nn.functional
    torch.manual_seed(2)
    student = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 8))
    teacher: Any = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), 3e-3)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(student, optimizer)
    for step in range(150):
        first = torch.randn(24, 12)
        target = teacher(input=first + 0.3 * torch.randn(24, 12))  # by name, as Trainers call it
        loss = 2 - 2 * functional.cosine_similarity(student(first), target).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, other in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.mul_(decay).add_(other, alpha=1 - decay)
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    rules = [one["rule"] for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["severity"] == "warning"]
    assert ("teacher_still" in rules) == (decay == 1.0)


@pytest.mark.parametrize(
    ("how", "told"),
    [("average", True), ("data", True), ("without", False), ("detached", False), ("learns", False), ("still", False)],
)
def test_a_teacher_that_is_an_average_needs_no_gradients(tmp_path: Path, how: str, told: bool) -> None:
    torch = pytest.importorskip("torch")
    nn, functional = torch.nn, torch.nn.functional
    torch.manual_seed(2)
    student = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 8))
    teacher: Any = copy.deepcopy(student)
    for one in teacher.parameters():
        one.data += 0.01 * torch.randn_like(one)
    optimizer = torch.optim.AdamW(student.parameters(), 3e-3)
    others = torch.optim.SGD(teacher.parameters(), 0.1)  # of networks that learn from each other
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(student, optimizer)
    for step in range(40):
        first = torch.randn(24, 12)
        with torch.set_grad_enabled(how != "without"):
            target = teacher(first + 0.3 * torch.randn(24, 12))
        target = target.detach() if how == "detached" else target
        loss = 2 - 2 * functional.cosine_similarity(student(first), target).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if how == "learns":
            others.step()
        for mine, other in zip(teacher.parameters(), student.parameters(), strict=True):
            if how == "data":
                mine.data = 0.99 * mine.data + 0.01 * other.data
            elif how not in ("learns", "still"):
                mine.data.mul_(0.9).add_(other.data, alpha=0.1)
        run.log({"train/loss": loss.item()}, step=step)
    run.finish()
    findings = diagnose(barograph.StoredRun(run.dir))["findings"]
    rules = {part["rule"] for one in findings for part in (one, *one["evidence"].get("story", ()))}
    assert ("teacher_gradients" in rules) == told


@pytest.mark.parametrize("rows", [7, ROWS])
@pytest.mark.parametrize(
    ("along", "told"), [([1.0, 1.0, 1.0], True), ([1.0, 1.0], False), ([1.0, 0.99, 1.0], False), ([-1.0] * 4, False)]
)
def test_three_moves_straight_towards_the_trained_weights_are_an_average(
    along: list[float], told: bool, rows: int
) -> None:
    columns = {"loss": every(FALLS), "model/other_along": (STEP[4 : 4 + len(along)], np.array(along))}
    columns |= {"model/other_gradient": (STEP[3:4], np.ones(1))}
    found = warned(columns, rows)
    assert ("teacher_gradients" in found) is told
    assert not told or found["teacher_gradients"].step == STEP[4]


def test_a_training_that_ends_while_modules_are_listened_to_is_not_listened_to_for_good(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    before = len(hooks)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    for _ in range(2):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    assert len(hooks) == before + 1
    for _ in range(70):
        model(torch.ones(3, 4))
    assert len(hooks) == before
    run.finish()


@pytest.mark.parametrize(
    ("first", "itself", "cause"),
    [(1.9, False, "averaged weights not updated"), (1.9, True, "overfitting"), (1.5, False, "overfitting")],
)
def test_an_evaluation_of_another_model_that_was_never_better_than_the_start_is_of_old_weights(
    first: float, itself: bool, cause: str
) -> None:
    steps, at = np.arange(1, 401), np.arange(20, 401, 20)
    rises = np.where(np.arange(20) < 3, first, 1.9 + 0.03 * np.arange(20))
    series = {
        "train/loss": (steps, 1.0 + 1.1 * np.exp(-steps / 60) * np.random.default_rng(2).normal(1, 0.02, 400)),
        "eval/loss": (at, rises), "model/passes": (steps, np.ones(400)),
    }  # fmt: skip
    if itself:
        series["model/passes_without_gradients"] = np.array([20]), np.ones(1)
    told = warned(series, len(steps))["overfitting"]
    assert told.causes[0].startswith(cause)
