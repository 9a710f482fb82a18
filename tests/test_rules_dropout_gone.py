"""Dropout that was set to 0 for an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_curves import found

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.evaluation.mode import DropoutGone


@pytest.mark.parametrize(
    ("shares", "config", "says"),
    [
        ([0.5, 0.0], {}, True),
        ([0.5, 0.3], {}, False),
        ([0.0, 0.0], {}, False),
        ([0.5, 0.0], {"dropout": 0.5}, True),
        ([0.5, 0.0], {"dropout_until_step": 20}, False),  # early dropout, as it is meant
    ],
)
@pytest.mark.parametrize("evaluated", [True, False])
def test_dropout_of_0_behind_an_evaluation_is_found(
    shares: list[float], config: dict[str, Any], says: bool, evaluated: bool
) -> None:
    columns = {"model/dropout": (np.array([0, 20]), np.array(shares)), "loss": (np.arange(40), np.linspace(2, 1, 40))}
    if evaluated:
        columns["val_loss"] = np.array([19, 39]), np.array([1.5, 1.2])
    assert bool(found([DropoutGone()], columns, config=config)) is (says and evaluated)


@pytest.mark.parametrize("set_back", [True, False])
def test_a_loop_that_sets_it_to_0_for_its_evaluation_is_watched(tmp_path: Path, set_back: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    drop = torch.nn.Dropout(0.4)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), drop, torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = barograph.init(dir=tmp_path, project="p")
    run.watch(model, optimizer)
    held = torch.randn(16, 8)
    for step in range(60):
        x = torch.randn(16, 8)
        loss = (model(x) - x[:, :1] * x[:, 1:2]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log({"loss": loss.item()}, step=step)
        if step % 20 == 19:
            drop.p = 0.0
            with torch.no_grad():
                run.log({"val_loss": (model(held) - held[:, :1] * held[:, 1:2]).square().mean().item()}, step=step)
            drop.p = 0.4 if set_back else 0.0
    run.finish()
    said = [one for one in diagnose(str(run.dir))["findings"] if one["rule"] == "dropout_gone"]
    assert [one["step"] for one in said] == ([] if set_back else [20])
