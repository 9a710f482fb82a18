"""What is called an average's evaluation, and is one of the trained weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_columns import findings

import barograph
from barograph.doctor.rules.evaluation.average_named import AverageNamed

AT = np.arange(20, 160, 20)


def said(names: list[str], apart: Any = 0.0, whose: float = 1.0, changed: float = 0.1) -> list[str]:
    columns: dict[str, Any] = {name: (AT, 2.0 - AT / 200) for name in names} | {"train/loss": np.full(160, 2.0)}
    columns |= {
        "model/evaluated_apart": (AT + 1, 0.0 * AT + apart),
        "model/evaluated_whose": (AT + 1, 0.0 * AT + whose), "model/evaluated_changed": (AT + 1, 0.0 * AT + changed),
        "goodput/evaluation_seconds": (AT + 1, 0.0 * AT + 0.1),
    }  # fmt: skip
    return [str(one.severity) for one in findings([AverageNamed()], columns, cuts=(50, 90)).values()]


@pytest.mark.parametrize(
    ("names", "figures", "told"),
    [
        (["ema/val_loss"], {}, ["warning"]),
        (["val_loss_ema", "val_accuracy_ema"], {}, ["warning"]),
        (["val_loss"], {}, []),
        (["ema/val_loss", "raw/val_loss"], {}, []),  # perhaps the passes that were seen
        (["ema/val_loss"], {"apart": 0.02}, []),
        (["ema/val_loss"], {"apart": np.where(AT > 20, 0.02, 0.0)}, []),
        (["ema/val_loss"], {"whose": 2.0}, []),
        (["schema/val_loss"], {}, []),
        (
            ["valid_ema_mse"],
            {"apart": np.where(AT > 20, 0.0, 0.14), "whose": 0.0},
            ["warning"],
        ),  # left in
        (["valid_mse"], {"apart": np.where(AT > 20, 0.0, 0.14), "whose": 0.0}, []),
        (["valid_ema_mse"], {"apart": np.where(AT > 20, 0.0, 0.14), "whose": 0.0, "changed": 0.0}, []),
        (["valid_ema_mse"], {"apart": np.where(AT > 40, 0.0, 0.14), "whose": 0.0}, []),
    ],
)
def test_the_trained_weights_under_the_name_of_an_average(names: list[str], figures: Any, told: list[str]) -> None:
    assert said(names, **figures) == told


torch = pytest.importorskip("torch")


@pytest.mark.parametrize("way", ["own", "copy", "call", "swap"])
def test_an_average_that_is_evaluated_in_whatever_way_is_none_of_the_trained_weights(tmp_path: Path, way: str) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    average, optimizer = copy.deepcopy(model), torch.optim.SGD(model.parameters(), 0.05)
    run = barograph.init(
        project="p", name="n", dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False
    )
    run.watch(model, optimizer)
    x = torch.randn(64, 8)
    y = x.sum(1, keepdim=True)
    for step in range(1, 131):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"train/loss": loss.item()}
        with torch.no_grad():
            for mean, new in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(new, 0.05)
            if step % 20 == 0:
                if way == "swap":
                    kept = copy.deepcopy(model.state_dict())
                    model.load_state_dict(average.state_dict())
                given = (
                    torch.func.functional_call(model, dict(average.named_parameters()), (x,)) if way == "call"
                    else (average if way == "copy" else model)(x)
                )  # fmt: skip
                row["ema/val_loss"] = (given - y).square().mean().item()
                if way == "swap":
                    model.load_state_dict(kept)
        run.log(row, step=step)
    run.finish()
    found = barograph.doctor.diagnose(barograph.read(str(run.dir))[0])["findings"]
    assert ("average_named" in {one["rule"] for one in found}) is (way == "own")
