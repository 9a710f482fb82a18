"""Rows of the steps between two looks: remembered as those that are looked at, once they are trained on."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from watched_models import QUIET, Notes  # noqa: E402

from barograph.probes.model.between import RowsBetween  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402

STEPS, BATCH, WIDTH = 60, 8, 6
TRAINED = torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(3))
BETWEEN = (33, 41, 51)  # not looked at


def shares(order: str, passes: int = 1) -> tuple[list[float], list[float]]:
    """Shares of an evaluation's rows that were trained on, by looks and by all steps. The evaluation has rows of steps
    that are not looked at. order: when it comes; "without" trains on others."""
    torch.manual_seed(0)
    run, model = Notes(), nn.Sequential(nn.Linear(WIDTH, 12), nn.Tanh(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(STEPS):
        if step in BETWEEN and order == "before":
            with torch.no_grad():
                model(TRAINED[step])
        if step in BETWEEN and order == "without gradients":
            for part in TRAINED[step].chunk(passes):
                model(part)
        optimizer.zero_grad()
        rows = TRAINED[step] + (step in BETWEEN and order.startswith("without"))
        for part in rows.chunk(passes):
            model(part).square().mean().backward()
        optimizer.step()
        run.log(step)
        if step in BETWEEN and order != "before":
            with torch.no_grad():
                model(TRAINED[step])
    watch.close()
    told = [run.fields(step) for step in run.steps]
    evaluations = [fields for fields in told if "evaluated_known" in fields]
    return [one["evaluated_trained"] for one in evaluations], [one["evaluated_known"] for one in evaluations]


@pytest.mark.parametrize("passes", [1, 2])
def test_rows_of_steps_that_are_not_looked_at_are_known(passes: int) -> None:
    looked, known = shares("behind", passes)
    assert known == [1.0] * 3 and looked == [0.0] * 3


def test_rows_that_are_evaluated_first_and_then_trained_on_were_not_trained_on() -> None:
    assert shares("before")[1] == [0.0] * 3


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("order", ["without", "without gradients"])
def test_rows_that_no_gradient_came_back_to_were_not_trained_on(order: str, passes: int) -> None:
    assert shares(order, passes)[1] == [0.0] * 3


def test_large_pictures_of_steps_that_are_not_looked_at_are_known_too() -> None:
    torch.manual_seed(0)
    pictures = torch.randn(40, 4, 3, 64, 64)
    run, model = Notes(), nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = ModelWatch(run, model, optimizer, **QUIET)
    for step in range(40):
        optimizer.zero_grad()
        model(pictures[step]).square().mean().backward()
        optimizer.step()
        run.log(step)
        if step == 33:
            with torch.no_grad():
                model(pictures[33])
    watch.close()
    told = [run.fields(step) for step in run.steps]
    assert [one["evaluated_known"] for one in told if "evaluated_known" in one] == [1.0]


def everything(number: int) -> bool:
    return True


def test_rows_of_one_form_come_together_with_how_long_ago_they_were() -> None:
    between = RowsBetween()
    for at, width in enumerate((4, 5, 4)):
        between.given(0, torch.full((3, width), at), torch.zeros(3, 2) if width == 5 else None)
        between.ended(everything)
        between.rested()
    four, five = between.take()
    assert four.rows.tolist() == [[0] * 4] * 3 + [[2] * 4] * 3 and four.steps == [3, 3, 3, 1, 1, 1]
    assert five.rows.tolist() == [[1] * 5] * 3 and five.numbers is not None and four.numbers is None
    assert not between.take()


def test_copies_take_no_more_memory_than_eight_megabytes_and_end_when_enough_are_known() -> None:
    between, rows = RowsBetween(), torch.zeros(32, 1 << 15)  # 4 MB
    for number in range(4):
        between.given(number, rows, None)
    between.ended(everything)
    assert sum(len(one.rows) for one in between.take()) == 64
    between.given(0, rows, None)
    between.ended(lambda number: False)
    assert not between.take() and between.is_wanted
    for _ in range(1024):
        between.given(0, torch.zeros(32, 4), None)
        between.ended(everything)
        between.take()
    assert not between.is_wanted


def test_what_is_kept_is_a_copy() -> None:
    between, rows = RowsBetween(), torch.ones(4, 4)
    between.given(0, rows, None)
    rows.zero_()
    between.ended(everything)
    kept: Any = between.take()[0].rows
    assert kept.sum() == 16
