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


class Sub(torch.optim.SGD):
    """Its step has hooks of its own beside those of the step that it calls, once its base class was used by itself."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            raise ArithmeticError("no step")
        return super().step(closure)


@pytest.mark.parametrize("given", [True, False])
def test_a_step_that_calls_its_base_class_is_one_step_and_one_that_failed_hides_none(given: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)
    optimizer, order = Sub([weight], 0.1), []
    hooks = OptimizerHooks(
        (optimizer,) if given else None, lambda: {id(weight): "weight"}, lambda one: order.append("before"),
        lambda one: order.append("after"),
    )  # fmt: skip

    def closure() -> float:
        weight.grad = torch.ones(2)
        return 1.0

    closure()
    optimizer.step()
    optimizer.step(closure)
    assert order == ["before", "after"] * 2
    optimizer.fails = True
    with pytest.raises(ArithmeticError):
        optimizer.step()
    optimizer.fails = False
    optimizer.step()
    assert order == ["before", "after"] * 2 + ["before", "before", "after"]
    hooks.close()
