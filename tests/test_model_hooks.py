"""Hooks around an optimizer's step: what others want done at rest never reaches the step."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from barograph.probes.model.hooks import OptimizerHooks  # noqa: E402


class TakenBack(deque[Any]):
    """A queue whose entry another thread takes back between the look and the taking."""

    def popleft(self) -> Any:
        self.clear()
        return super().popleft()


def test_what_is_wanted_at_rest_is_done_once_behind_a_step_and_its_failure_ends_no_step() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    order: list[str] = []
    hooks = OptimizerHooks((optimizer,), dict, lambda one: order.append("before"), lambda one: order.append("after"))
    hooks.at_rest.extend([lambda: [][1], lambda: order.append("at rest")])
    for _ in range(2):
        weight.grad = torch.ones(2)
        optimizer.step()
    assert order == ["before", "after", "at rest", "before", "after"]
    hooks.at_rest = TakenBack([lambda: order.append("never")])
    optimizer.step()
    assert order[-1] == "after" and weight.tolist() == pytest.approx([0.7, 0.7])
    hooks.close()
