"""Batch norm's running statistics that passes without gradients move ahead of an evaluation: which of them warn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.evaluation.running import StatisticsMoved

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.moved_statistics import MovedStatistics  # noqa: E402

LOOKS = numpy.arange(20, 120, 20)


def columns(before: float, after: Any) -> dict[str, Any]:
    values = numpy.broadcast_to(numpy.asarray(after, float), LOOKS.shape)
    found = {"model/statistics_apart_before": (LOOKS, numpy.full(5, before))}
    return found | {"model/statistics_apart_after": (LOOKS, values), "train/loss": numpy.linspace(2, 1, 121)}


@pytest.mark.parametrize("cuts", [(), (50, 90)])
@pytest.mark.parametrize(
    ("before", "after", "warns"),
    [
        (0.02, 1.7, True),
        (0.02, 0.1, True),
        (0.02, 0.099, False),
        (0.1, 0.4, True),
        (0.1, 0.39, False),
        (1.7, 0.02, False),  # they are gathered anew, and fit
        (0.02, [1.7, 1.7, 0.02, 1.7, 1.7], False),
    ],
)
def test_statistics_that_fit_worse_three_times_in_a_row_warn(
    before: float, after: Any, warns: bool, cuts: tuple[int, ...]
) -> None:
    found = only(findings([StatisticsMoved()], columns(before, after), cuts=cuts), "statistics_moved")
    assert [(one.severity, one.step, one.found) for one in found] == [("warning", 20, 60)] * warns


def train(folder: Path, how: str) -> tuple[list[str], bool]:
    """Rules that warn of a small training with batch norm, and whether statistics were compared."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    rule, inputs = torch.randn(12, 4), 2 * torch.randn(256, 12) + 1
    shifted = inputs + 3
    run = barograph.init(dir=folder, project="p", id="run", sidecar=False)
    run.watch(net, optimizer)
    for step in range(1, 121):
        net.train()
        if how == "labels in each step":
            with torch.no_grad():
                net(torch.rand(64, 12))
        batch = 2 * torch.randn(32, 12) + 1
        loss = nn.functional.cross_entropy(net(batch), (batch @ rule).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss}, step=step)
        if step % 20:
            continue
        given = shifted if how == "adapted to it" else inputs
        with torch.no_grad():
            for turn in range(30 if how != "one more" else 1):
                if how in ("noise", "one more"):
                    net(torch.rand(8, 12) if how == "noise" else batch[:8])
                elif how == "gathered anew":
                    net(2 * torch.randn(32, 12) + 1)
                elif how == "adapted to it":
                    net(given[8 * turn : 8 * turn + 8])
            net.eval()
            run.log({"val/loss": nn.functional.cross_entropy(net(given), (inputs @ rule).argmax(1))}, step=step)
    run.finish()
    found = diagnose(run.dir)["findings"]
    names = [one["rule"] for one in found if one["severity"] != "info" and one["rule"].startswith("statistics")]
    return names, "model/statistics_apart_after" in barograph.read(str(run.dir))[0].names()


@pytest.mark.parametrize(
    ("how", "rules", "told"),
    [
        ("noise", ["statistics_moved"], True),
        ("gathered anew", [], True),
        ("adapted to it", [], True),
        ("one more", [], True),
        ("labels in each step", [], False),
        ("never", [], False),
    ],
)
def test_a_training_with_passes_ahead_of_its_evaluations(
    tmp_path: Path, how: str, rules: list[str], told: bool
) -> None:
    assert train(tmp_path, how) == (rules, told)


def test_nothing_is_heard_where_there_is_no_batch_norm_and_behind_the_end() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    MovedStatistics(net).close()
    assert not any(module._forward_pre_hooks for module in net.modules())
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    look = MovedStatistics(net)
    with torch.no_grad():
        net(torch.randn(8, 4))
        net.eval()(torch.randn(1, 4))
    assert look._found is not None and look._kept is None
    look.close()
    assert not net[1]._forward_pre_hooks and look._found is None
