"""Batch norm's running statistics that are as torch makes them in an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

import barograph
from barograph.doctor.rules.evaluation.running import StatisticsUnset
from barograph.query.stored import StoredRun

STEPS, OFTEN = 40, 10


@pytest.mark.parametrize("cuts", [(), (3, 5)])
@pytest.mark.parametrize(
    ("unset", "times", "whose", "told"),
    [
        ([1, 1, 1, 1], 1.51, 0, True),
        ([1, 1, 1, 1], 1.49, 0, False),  # no worse
        ([1, 0, 1, 0], 3.0, 0, False),  # once
        ([0, 1, 1, 0], 3.0, 0, True),
        ([-1, -1, -1, -1], 3.0, 0, False),  # no batch norm
        ([1, 1, 1, 1], 3.0, 2, False),  # of a copy another rule says it
    ],
)
def test_two_evaluations_with_statistics_as_torch_makes_them_and_a_worse_loss_are_told(
    unset: list[float], times: float, whose: float, told: bool, cuts: tuple[int, ...]
) -> None:
    steps, evaluated = numpy.arange(50), numpy.array([9, 19, 29, 39])
    columns = {
        "loss": (steps, numpy.full(50, 0.7)),
        "val_loss": (evaluated, numpy.full(4, 0.7 * times)),
        "model/evaluated_unset": (evaluated + 1, numpy.array(unset, float)),
        "model/evaluated_whose": (evaluated + 1, numpy.full(4, float(whose))),
    }
    found = only(findings([StatisticsUnset()], columns, cuts=cuts), "statistics_unset")
    assert [one.step for one in found] == ([10 + 10 * unset.index(1)] if told else [])


@pytest.mark.parametrize(("apart", "told"), [(0.0, True), (0.2, False)])
def test_a_copy_with_the_trained_weights_and_without_their_statistics_is_no_average(apart: float, told: bool) -> None:
    steps, evaluated = numpy.arange(50), numpy.array([9, 19, 29, 39])
    figures = {"evaluated_unset": 1.0, "evaluated_whose": 2.0, "evaluated_apart": apart}
    columns = {"loss": (steps, numpy.full(50, 0.7)), "val_loss": (evaluated, numpy.full(4, 2.1))}
    columns |= {f"model/{name}": (evaluated + 1, numpy.full(4, value)) for name, value in figures.items()}
    assert bool(only(findings([StatisticsUnset()], columns), "statistics_unset")) == told


@pytest.mark.parametrize("kind", ["left", "reset", "gathered", "of the batch", "frozen"])
def test_what_an_evaluation_is_made_with_is_asked_when_its_passes_begin(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    )
    optimizer, inputs = torch.optim.SGD(model.parameters(), 0.01), torch.randn(32, 6)
    with barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False) as run:
        run.watch(model, optimizer)
        for step in range(STEPS):
            model.train()
            model[1].train(kind != "frozen")
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), torch.arange(32) % 3)
            loss.backward()
            optimizer.step()
            run.log({"loss": loss.item()}, step=step)
            if step % OFTEN == OFTEN - 1:
                if kind in ("reset", "gathered", "of the batch"):
                    model[1].reset_running_stats()
                with torch.no_grad():
                    if kind == "gathered":
                        model(inputs)
                    model.train(kind == "of the batch")
                    model(inputs)
                run.log({"val_loss": loss.item()}, step=step)
    series = StoredRun(run.dir).series("model/evaluated_unset")
    assert set(series.y) <= {{"reset": 1.0, "of the batch": -1.0}.get(kind, 0.0)}, series.y
    assert len(series.y) >= 2


@pytest.mark.parametrize("cuts", [(), (30, 65)])
@pytest.mark.parametrize(
    ("looks", "value", "times", "severity"),
    [(6, 1.0, 1.3, "warning"), (6, 1.0, 1.0, "info"), (4, 1.0, 1.3, None), (6, 0.0, 1.3, None)],
)
def test_statistics_that_nothing_ever_moves_are_told_of(
    looks: int, value: float, times: float, severity: str | None, cuts: tuple[int, ...]
) -> None:
    steps = numpy.arange(160)
    loss, at = 3 - steps / 80, 21 + 10 * numpy.arange(looks)
    columns = {"loss": loss, "eval/loss": (steps[16::17], times * loss[16::17])}
    columns["model/unset_buffers"] = at, numpy.full(looks, value)
    said = only(findings([StatisticsUnset()], columns, cuts=cuts), "statistics_unset")
    assert [(one.severity, one.step, one.found) for one in said] == [(severity, 0, 61)] * (severity is not None)


@pytest.mark.parametrize("cuts", [(), (30, 65, 100)])
def test_statistics_that_nothing_moves_are_a_warning_as_soon_as_evaluations_are_worse(cuts: tuple[int, ...]) -> None:
    steps, at = numpy.arange(160), numpy.arange(21, 160, 10)
    loss = 3 - steps / 80
    columns = {"loss": loss, "eval/loss": (steps[16::17], numpy.maximum(loss, 1.9)[16::17])}
    columns["model/unset_buffers"] = at, numpy.ones(len(at))
    (one,) = only(findings([StatisticsUnset()], columns, cuts=cuts), "statistics_unset")
    assert one.severity == "warning" and one.found > 100 and "has come to" in one.message
