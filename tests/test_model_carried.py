"""A state that is carried from each step into the next is seen, whoever holds it; other arguments are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rule_curves import found

from barograph.doctor.rules.data.leaks import OrderedTargets

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.carried import CarriedState  # noqa: E402
from barograph.probes.model.rounds import ModelRound  # noqa: E402


class Held(nn.Module):
    """Keeps its state itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.state = nn.LSTM(3, 5, batch_first=True), None

    def forward(self, rows: Any) -> Any:
        output, state = self.layer(rows, self.state)
        self.state = tuple(one.detach() for one in state)
        return output


class Own(nn.Module):
    """A recurrence of its own make, that is given its state or a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 5)

    def forward(self, rows: Any, state: Any, mask: Any = None) -> Any:
        state = torch.tanh(self.layer(torch.cat([rows[:, 0], state], 1)))
        return state, state if mask is None else mask


def carried(way: str) -> list[bool]:
    """What is recorded of some steps."""
    torch.manual_seed(1)
    model: Any = {"held": Held, "cell": lambda: nn.GRUCell(3, 5)}.get(way, Own if "own" in way else None)
    model = model() if model else nn.GRU(3, 5, batch_first=True)
    look, state, seen, mask = CarriedState(model), None, [], torch.ones(4, 5)
    for step in range(6):
        rows = torch.randn(4, 2, 3)
        if way == "held":
            output = model(rows)
        elif way == "cell":
            output = state = model(rows[:, 0], state)
        elif way == "own":
            output, state = model(rows, torch.zeros(4, 5) if state is None else state)
        elif way == "own, a mask":
            output, _ = model(rows, torch.zeros(4, 5), mask)
        elif way == "first of an epoch":
            output, state = model(rows, None if step % 2 == 0 else state)
        else:
            given = {"anew": None, "zeros": torch.zeros(1, 4, 5), "drawn": torch.randn(1, 4, 5)}
            output, state = model(rows, given.get(way, state))
        state = state.detach() if state is not None else None
        output.square().mean().backward()
        current = ModelRound(step, frozenset())
        look.put(current)
        seen += [bool(one.values) for one in current.columns if one.family == "state_carried"]
    look.close()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return seen


@pytest.mark.parametrize(
    ("way", "seen"),
    [
        ("layer", [True] * 5),
        ("held", [True] * 5),
        ("cell", [True] * 5),
        ("own", [True] * 5),
        ("first of an epoch", [True] * 3),
        ("own, a mask", []),
        ("drawn", [False] * 5),
        ("zeros", [False] * 5),
        ("anew", []),
    ],
)
def test_a_state_that_goes_on_from_the_step_before_is_carried(way: str, seen: list[bool]) -> None:
    assert carried(way) == seen


@pytest.mark.parametrize(("state", "told"), [([0.0, 1.0], False), ([0.0, 0.0], True), ([], True)])
@pytest.mark.parametrize("pieces", [(), (5, 11)])
def test_targets_in_order_are_those_of_a_stream_where_the_state_is_carried(
    state: list[float], told: bool, pieces: tuple[int, ...]
) -> None:
    steps = np.arange(1, 201, 10)
    series = {
        "model/target_mean": (steps, np.linspace(-2, 2, 20)),
        "model/target_std": (steps, np.full(20, 0.05)),
        "model/example_rows": (steps, np.full(20, 16.0)),
        "model/state_carried": (np.arange(2, 2 + len(state)), np.array(state)),
    }
    assert bool(found([OrderedTargets()], series, pieces)) == told
