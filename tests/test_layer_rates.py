"""Learning rates by layer that fall towards the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from rule_columns import findings, only

import barograph
from barograph.doctor.rules.optimizer.layered import RatesByParameter, RatesReversed
from barograph.query.stored import StoredRun


@pytest.mark.parametrize(
    ("times", "rates", "drawn", "trained", "told"),
    [
        (30.1, 3, 1, 0, True),
        (29.9, 3, 1, 0, False),
        (500, 2, 1, 0, False),  # two rates alone may be two methods
        (500, 2, 1, 1, True),  # the rest was trained before
        (500, 3, 0, 1, False),  # and so was the head
    ],
)
def test_rates_that_fall_towards_a_new_head_are_told(
    times: float, rates: float, drawn: float, trained: float, told: bool
) -> None:
    figures = {"rate_over_last": times, "falling_rates": rates, "last_drawn": drawn, "gains_apart": trained}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    found = only(findings([RatesReversed()], columns), "rates_reversed")
    assert [one.step for one in found] == [0] * told


RATES = {
    "upside down": ([1.0, 0.1, 0.1, 0.002], True),
    "as meant": ([0.01, 0.1, 0.1, 1.0], False),
    "one rate": ([1.0, 1.0, 1.0, 1.0], False),
    "not in order": ([0.1, 1.0, 0.1, 0.01], False),
    "a head as its neighbours": ([1.0, 0.1, 0.01, 0.01], False),
    "one over the inputs": ([1.0, 0.75, 0.25, 0.002], False),  # a rate a size
    "a frozen head": ([1.0, 0.1, 0.1, 0.0], False),
}


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("scheduled", [False, True])
def test_rates_that_fall_with_the_depth_are_recorded(tmp_path: Path, kind: str, scheduled: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.Linear(8, 24), torch.nn.Linear(24, 16), torch.nn.Linear(16, 10)
    )
    rates, told = RATES[kind]
    optimizer = torch.optim.SGD(
        [{"params": list(one.parameters()), "lr": 0.1 * rate} for one, rate in zip(model, rates, strict=True)], 0.1
    )
    if scheduled:
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)  # a warm-up's first step
    with barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False) as run:
        run.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.arange(16) % 10).backward()
            optimizer.step()
            run.log({"loss": 1.0}, step=step)
    stored = StoredRun(run.dir)
    if not told:
        assert "model/rate_over_last" not in stored.names()
        return
    values = {name: stored.series(f"model/{name}").y[0] for name in ("rate_over_last", "falling_rates", "last_drawn")}
    assert values == {"rate_over_last": pytest.approx(500), "falling_rates": 3, "last_drawn": 1}


@pytest.mark.parametrize(
    ("layers", "ratio", "told"), [(3, 1.33, True), (2, 1.33, False), (3, 1.004, False), (9, 0.75, True)]
)
def test_rates_that_are_counted_by_parameter_are_told(layers: float, ratio: float, told: bool) -> None:
    figures = {"rates_by_parameter": layers, "rate_ratio": ratio}
    columns = {f"model/{name}": (numpy.array([0]), numpy.array([float(value)])) for name, value in figures.items()}
    found = only(findings([RatesByParameter()], columns), "rates_by_parameter")
    assert [one.step for one in found] == [0] * told


PARTED = {
    "by parameter": (lambda layer, at, part: 0.8 ** (8 - at), True),
    "by layer": (lambda layer, at, part: 0.8 ** (4 - layer), False),
    "biases at twice the rate": (lambda layer, at, part: 0.8 ** (4 - layer) * (1 + part), False),
    "biases at a rate of their own": (lambda layer, at, part: 1.0 + part, False),
    "one rate": (lambda layer, at, part: 1.0, False),
}


@pytest.mark.parametrize("kind", PARTED)
def test_rates_that_go_from_parameter_to_parameter_are_recorded(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(4)))
    rate_of, told = PARTED[kind]
    groups = [{"params": [one], "lr": 0.1 * rate_of(at // 2, at, at % 2)} for at, one in enumerate(model.parameters())]
    optimizer = torch.optim.SGD(groups, 0.1)
    with barograph.init(dir=str(tmp_path), console="none", machine=False, sidecar=False, git=False) as run:
        run.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()
            run.log({"loss": 1.0}, step=step)
    stored = StoredRun(run.dir)
    assert ("model/rates_by_parameter" in stored.names()) == told
    if told:
        assert stored.series("model/rates_by_parameter").y[0] == 4
        assert stored.series("model/rate_ratio").y[0] == pytest.approx(1.25)
