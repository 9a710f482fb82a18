"""Optimizer state: Adam's second moment against eps, the step it takes, momentum, what is not finite."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.optimizers import COLUMNS, measure  # noqa: E402
from barograph.probes.model.parameters import owned  # noqa: E402


def table(optimizer: Any, model: nn.Module) -> dict[str, dict[str, float]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = measure(optimizer, owned(optimizer, names))
    if found is None:
        return {}
    return {
        name: dict(zip(COLUMNS, column, strict=True))
        for name, column in zip(found.names, found.columns.T.tolist(), strict=True)
    }


def stepped(make: Any, steps: int = 3) -> tuple[Any, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = make(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 6)).square().sum().backward()
        optimizer.step()
    return optimizer, model


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.Adam, lambda p: torch.optim.Adam(p, amsgrad=True)])
def test_adams_step_is_what_the_weights_move_by(make: Any) -> None:
    optimizer, model = stepped(lambda p: make(p) if make is not torch.optim.AdamW else make(p, weight_decay=0.0), 2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.zero_grad()
    model(torch.randn(5, 6)).square().sum().backward()
    optimizer.step()
    for name, row in table(optimizer, model).items():
        change = (dict(model.named_parameters())[name].detach() - before[name]).abs()
        assert row["sampled"] == change.numel()
        assert row["step_sum"] / row["sampled"] == pytest.approx(float(change.mean()), rel=1e-3)
        assert row["step_max"] == pytest.approx(float(change.max()), rel=1e-2)
        state = optimizer.state[dict(model.named_parameters())[name]]
        assert row["momentum_square"] == pytest.approx(float(state["exp_avg"].square().sum()), rel=1e-5)


def test_second_moments_below_eps_are_counted() -> None:
    optimizer, model = stepped(lambda p: torch.optim.Adam(p, eps=1e-8))
    weight = model[0].weight
    state = optimizer.state[weight]
    correction = 1 - 0.999 ** float(state["step"])
    # sqrt(v / correction) is half of eps for a quarter of the elements, twice eps for the rest
    state["exp_avg_sq"].fill_((2e-8) ** 2 * correction)
    state["exp_avg_sq"].view(-1)[:12] = (0.5e-8) ** 2 * correction
    row = table(optimizer, model)["0.weight"]
    assert row["below_eps"] / row["sampled"] == pytest.approx(0.25)


def test_a_state_that_is_not_finite_shows() -> None:
    optimizer, model = stepped(torch.optim.AdamW)
    optimizer.state[model[2].bias]["exp_avg_sq"][1] = math.inf
    rows = table(optimizer, model)
    assert not math.isfinite(rows["2.bias"]["second_square"]) and math.isfinite(rows["0.bias"]["second_square"])


@pytest.mark.parametrize(
    "make, momentum, second",
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), True, False),
        (lambda p: torch.optim.RMSprop(p), False, True),
        (lambda p: torch.optim.SGD(p, lr=0.1), False, False),
    ],
)
def test_other_optimizers_show_what_they_keep(make: Any, momentum: bool, second: bool) -> None:
    rows = table(*stepped(make))
    if not momentum and not second:
        assert rows == {}
        return
    for row in rows.values():
        assert bool(row["has_momentum_square"]) is momentum and bool(row["has_second_square"]) is second
        assert row["sampled"] == 0


def test_a_large_tensor_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph.probes.model.optimizers.SAMPLE", 10)
    rows = table(*stepped(torch.optim.AdamW))
    assert rows["0.weight"]["sampled"] == 10  # of 48, every fifth
    assert rows["2.bias"]["sampled"] == 4


def test_a_parameter_without_state_stands_with_zeros_beside_others() -> None:
    optimizer, model = stepped(torch.optim.AdamW)
    optimizer.state.pop(model[0].weight)
    rows = table(optimizer, model)
    assert rows["0.weight"]["has_momentum_square"] == 0 and rows["0.bias"]["has_momentum_square"] == 1


def test_before_the_first_step_there_is_no_state() -> None:
    model = nn.Linear(2, 2)
    assert table(torch.optim.AdamW(model.parameters()), model) == {}
