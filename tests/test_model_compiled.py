"""Calls of a model that was compiled in place are seen, before the watch or behind it, and leave nothing behind."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from barograph.probes.model.compiled import CompiledCall, in_place, made_of, restore, surround  # noqa: E402
from barograph.probes.model.watch import ModelWatch  # noqa: E402
from barograph.testing import FakeRun  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x: Any) -> Any:
        if len(x) == 3:
            raise ValueError("three rows")
        return self.layers(x)


def compiled(net: Any) -> None:
    """As `net.compile()` does it, with a compiler that calls what it is given without the module's hooks."""
    net._compiled_call_impl = net.forward


@pytest.mark.parametrize("when", ["before", "behind", "never"])
def test_figures_are_those_of_a_model_that_was_not_compiled(when: str) -> None:
    torch.manual_seed(0)
    run, net = FakeRun(), Net()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    if when == "before":
        compiled(net)
    watch = ModelWatch(run, net, optimizer, gradients=1)
    if when == "behind":
        compiled(net)
    for _ in range(12):
        nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(5, (8,))).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.current_step += 1
    watch.close()
    fields = [fields for kind, _, fields in run.records if kind == "model"]
    passes = [one["passes"] for one in fields if "passes" in one]
    assert len(passes) >= 4 and set(passes) == {1.0}
    assert any(abs(one.get("loss_weight", 0.0) - 1) < 1e-3 for one in fields)
    assert not isinstance(vars(net).get("_compiled_call_impl"), CompiledCall)


def test_a_call_that_fails_is_over_and_fails() -> None:
    net, seen = Net(), list[str]()
    compiled(net)
    assert surround(net, lambda *given: seen.append("began"), lambda *given: seen.append(str(given[2] is None)))
    assert not surround(net, lambda *given: None, lambda *given: None)
    with pytest.raises(ValueError, match="three rows"):
        net(torch.randn(3, 6))
    net(torch.randn(2, 6))
    assert seen == ["began", "True", "began", "False"]


def test_copies_and_pickles_are_without_it_and_what_was_compiled_comes_back() -> None:
    net = Net()
    assert not in_place(net) and not surround(net, lambda *given: None, lambda *given: None)
    compiled(net)
    before = net._compiled_call_impl
    surround(net, lambda *given: None, lambda *given: None)
    assert not in_place(copy.deepcopy(net)) and not in_place(pickle.loads(pickle.dumps(net)))
    restore(net)
    assert net._compiled_call_impl == before


def test_what_torch_makes_of_a_watched_model_is_found_while_it_lives() -> None:
    net, other = Net(), Net()
    assert made_of(net) is None
    made = torch.compile(net, backend="eager")
    torch.compile(other, backend="eager")
    assert made_of(net) is made
    again = torch.compile(net, backend="eager")
    assert again is not made and made_of(net) is None  # which one is called can't be said


def test_a_model_that_is_trained_through_what_torch_made_of_it_is_seen() -> None:
    torch.manual_seed(0)
    run, net = FakeRun(), Net()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    watch = ModelWatch(run, net, optimizer, gradients=1)
    made = torch.compile(net, backend="eager")
    for _ in range(12):
        nn.functional.cross_entropy(made(torch.randn(8, 6)), torch.randint(5, (8,))).backward()
        optimizer.step()
        optimizer.zero_grad()
        run.current_step += 1
    watch.close()
    fields = [fields for kind, _, fields in run.records if kind == "model"]
    assert sum(one.get("passes") == 1 for one in fields) >= 3
    assert not made._forward_hooks and not made._forward_pre_hooks
