"""Batch norm's running statistics that passes without gradients move ahead of an evaluation, and those of single
examples: which of them warn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

import barograph
from barograph.doctor import diagnose
from barograph.doctor.rules.evaluation.running import StatisticsAlone, StatisticsMoved

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


@pytest.mark.parametrize("cuts", [(), (25, 45)])
@pytest.mark.parametrize(
    ("apart", "told", "warns"),
    [
        ([0.05, 0.05], True, True),
        ([0.05, 0.049], True, False),
        ([0.3], True, False),
        ([0.3, 0.0, 0.3], True, False),  # one evaluation in batches
        ([0.3, 0.3], False, False),  # nothing is judged: single examples may be generated
    ],
)
def test_single_examples_that_are_far_from_their_batch_warn(
    apart: list[float], told: bool, warns: bool, cuts: tuple[int, ...]
) -> None:
    columns: dict[str, Any] = {"model/statistics_alone": (LOOKS[: len(apart)], apart)}
    columns |= {"train/loss": numpy.linspace(2, 1, 121)}
    columns |= {"val/loss": (LOOKS - 1, numpy.full(5, 2.0))} if told else {}
    found = only(findings([StatisticsAlone()], columns, cuts=cuts), "statistics_alone")
    assert [(one.severity, one.step, one.found) for one in found] == [("warning", 20, 40)] * warns


@pytest.mark.parametrize(
    ("how", "rows", "one", "says"),
    [
        ("own levels", 16, True, True),
        ("own levels", 16, False, False),
        ("own levels", 1, True, False),  # nor has the training more
        ("running", 16, True, None),
        ("alike", 16, True, False),
    ],
)
def test_how_far_single_examples_are_from_their_batch(how: str, rows: int, one: bool, says: bool | None) -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(6, track_running_stats=how == "running")
    look, put = MovedStatistics(nn.Sequential(layer)), []
    current: Any = type("Round", (), {"put": lambda _, family, names, values: put.append((family, float(values)))})()
    level = 0.0 if how == "alike" else 1.0
    for _ in range(5):
        layer.train()(torch.randn(rows, 6, 400) + level * torch.randn(rows, 6, 1))
        look.put(current)
        with torch.no_grad():
            for piece in (torch.randn(12, 6, 400) + level * torch.randn(12, 6, 1)).split(1 if one else 5):
                layer.eval()(piece)
    found = [value for family, value in put if family == "statistics_alone"]
    assert len(found) == (0 if says is None else 3)
    assert all((value > 0.05) is says for value in found)


def test_layers_of_no_place_and_of_other_inputs_say_nothing() -> None:
    layer = nn.BatchNorm1d(6, track_running_stats=False)
    look, put = MovedStatistics(nn.Sequential(layer)), []
    current: Any = type("Round", (), {"put": lambda _, family, names, values: put.append(float(values))})()
    with torch.no_grad():
        layer(torch.randn(2, 6))
    layer(torch.randn(16, 6))
    look._called_alone(layer, ())
    look.put(current)
    assert put == [0.0] and look._alone is None
    look.close()
    assert not layer._forward_pre_hooks
