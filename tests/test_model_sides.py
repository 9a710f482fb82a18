"""Inputs behind the first, in other units in evaluations than in the training, and those that differ on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.data.sides import EvaluationUnits

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.rounds import ModelRound  # noqa: E402
from barograph.probes.model.sides import FIGURES, SideInputs, fields_of  # noqa: E402

ROWS = torch.linspace(0.1, 1, 32)


def fields(training: list[list[Any]], evaluation: list[list[Any]]) -> dict[str, float]:
    """What is recorded of passes of the training, and behind those of an evaluation."""
    look, current = SideInputs(), ModelRound(9, frozenset())
    for given in training:
        look.given(given, True, True)
        look.put(ModelRound(1, frozenset()))
    for given in evaluation:
        look.given(given, False, False)
    look.put(current)
    columns = {column.family: (column.names, column.values.numpy()) for column in current.columns}
    return {name: value for name, value in fields_of(columns).items() if name in FIGURES}


def test_the_pass_and_the_input_that_are_the_furthest_are_recorded() -> None:
    first, kinds = torch.randn(32, 4), torch.arange(32)
    training = [[first, kinds, ROWS, 2 * ROWS], [first, kinds, 0.5 * ROWS, ROWS]]
    evaluation = [[first, kinds, ROWS, ROWS], [first, kinds, ROWS, 1000 * ROWS], [first, kinds, ROWS * 0, ROWS]]
    seen = fields(training, evaluation)
    assert set(seen) == set(FIGURES) and seen["eval_side_place"] == 3
    assert seen["side_size"] == 2 and seen["side_size_least"] == 1 and seen["eval_side_size"] == 1000
    assert seen["eval_side_deviation"] == pytest.approx(float(1000 * ROWS.std()))


@pytest.mark.parametrize(
    "evaluation",
    [
        [torch.randn(32, 4), 1000 * ROWS, ROWS],  # another pass
        [torch.randn(32, 4), (1000 * ROWS)[:, None]],
        [torch.randn(32, 4), torch.full((32,), 1000.0)],  # a setting
        [torch.randn(32, 4), torch.where(ROWS > 0.5, 0.0, -1e9)],  # a mask
        [torch.randn(32, 4), torch.where(ROWS > 0.5, ROWS, -torch.inf)],
        [torch.randn(32, 4)],
        [torch.randn(32, 4), (1000 * ROWS).long()],
    ],
)
def test_other_passes_settings_and_masks_are_not_compared(evaluation: list[Any]) -> None:
    assert not fields([[torch.randn(32, 4), ROWS]], [evaluation])


def test_scores_of_pairs_of_places_are_left_out_and_two_inputs_may_change_places() -> None:
    bias = torch.randn(2, 9, 9)
    assert not fields([[ROWS, bias]], [[ROWS, 100 * bias]])
    seen = fields([[ROWS, ROWS, 1000 * ROWS]], [[ROWS, 1000 * ROWS, ROWS]])
    assert seen["side_deviation"] in (float(ROWS.std()), float((1000 * ROWS).std()))


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x: Any, times: Any) -> Any:
        return self.layers(torch.cat((x, times[:, None]), 1))


def said(folder: Path, of_evaluation: Any) -> list[dict[str, Any]]:
    model, dice = Flow(), torch.Generator().manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    run = barograph.init(dir=str(folder), console="none", machine=False, sidecar=False, git=False)
    run.watch(model, optimizer)
    for step in range(100):
        x, times = torch.randn(32, 4, generator=dice), torch.rand(32, generator=dice)
        loss = (model(x, times) - x.abs()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        row = {"train/loss": loss.item()}
        if step % 20 == 19:
            with torch.no_grad():
                model(x, of_evaluation(times))
                row["val/loss"] = (model(x, of_evaluation(times)) - x.abs()).square().mean().item()
        run.log(row, step=step)
    run.finish()
    return [one for one in diagnose(barograph.StoredRun(run.dir))["findings"] if one["rule"] == "evaluation_units"]


@pytest.mark.parametrize(
    ("name", "of_evaluation", "told"),
    [
        ("thousands", lambda times: 1000 * times, True),
        ("same", lambda times: times, False),
        ("each a tenth", lambda times: times * 0 + 0.9, False),
        ("longer", lambda times: 5 * times, False),
        ("later", lambda times: 40 + times, False),
    ],
)
def test_times_of_evaluations_in_other_units_are_found(
    tmp_path: Path, name: str, of_evaluation: Any, told: bool
) -> None:
    findings = said(tmp_path, of_evaluation)
    assert [(one["step"], one["severity"]) for one in findings] == [(20, "warning")] * told


STEPS = np.arange(1, 8) * 20
USUAL = {"side_deviation": 0.25, "side_deviation_least": 0.2, "side_size": 1.0, "side_size_least": 0.9,
         "eval_side_deviation": 7.6, "eval_side_size": 30.0, "eval_side_half": 10.5, "eval_side_place": 1}  # fmt: skip
SMALL = {"side_deviation": 300.0, "side_deviation_least": 250.0, "side_size": 999.0, "side_size_least": 900.0,
         "eval_side_deviation": 0.3, "eval_side_size": 1.0, "eval_side_half": 0.5}  # fmt: skip


@pytest.mark.parametrize("pieces", [(), tuple(range(0, 140, 9))])
@pytest.mark.parametrize(
    ("other", "worse", "told"),
    [
        ({}, 1.0, True),
        ({"eval_side_deviation": 7.4}, 1.0, False),
        ({"eval_side_half": 9.9}, 1.0, False),
        ({"side_size_least": 0.19}, 1.0, False),  # it grows with the training
        (SMALL, 1.6, True),
        (SMALL, 1.4, False),
        (SMALL | {"eval_side_deviation": 2.6}, 1.6, False),
        (SMALL | {"eval_side_size": 31.0}, 1.6, False),
        ({"side_deviation": 0.0, "side_deviation_least": 0.0}, 1.0, False),  # a setting in the training
    ],
)
def test_an_input_in_other_units_is_told_at_three_evaluations(
    other: dict[str, float], worse: float, told: bool, pieces: tuple[int, ...]
) -> None:
    series: dict[str, Any] = {
        f"model/{name}": (STEPS, np.full(len(STEPS), value)) for name, value in (USUAL | other).items()
    }
    series |= {"train/loss": (np.arange(140), np.ones(140)), "val/loss": (STEPS - 1, np.full(len(STEPS), worse))}
    assert [one.step for one in found([EvaluationUnits()], series, pieces)] == [20] * told
