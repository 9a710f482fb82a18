"""Frozen layers beside adapters: does the gradient pass through them?"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from rule_curves import found as findings_of

from barograph.doctor.rules.activations.forward import DetachedLayer

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from barograph.probes.model.attention import AttentionLook, watch  # noqa: E402
from barograph.probes.model.forward import ForwardSigns  # noqa: E402

Base = Callable[[Any, Any], Any]


def count_of(base: Base, rank: int = 4, layers: int = 3, given: bool = False) -> float:
    """What is counted in one pass of a few layers of which each is `base` of its input beside an adapter."""
    weights = [torch.randn(24, 24) for _ in range(layers)]
    factors = [(nn.Parameter(torch.randn(rank, 24)), nn.Parameter(torch.randn(24, rank))) for _ in weights]
    hidden, drop = torch.randn(2, 5, 24, requires_grad=given), nn.Dropout(0.1)
    signs = ForwardSigns()
    with watch(AttentionLook(), signs):
        hidden = hidden * 1.0
        for weight, (first, second) in zip(weights, factors, strict=True):
            hidden = base(hidden, weight) + functional.linear(functional.linear(drop(hidden), first), second) * 2
    return float(signs.end()["detached_layers"])


def without(x: Any, weight: Any) -> Any:
    with torch.no_grad():
        return x @ weight.T + 1


@pytest.mark.parametrize(
    ("base", "count"),
    [
        (functional.linear, 0),
        (lambda x, weight: functional.linear(x, weight).detach(), 2),
        (lambda x, weight: functional.linear(x, weight).data.float(), 2),
        (lambda x, weight: functional.linear(x.detach(), weight), 2),
        (without, 2),
        (lambda x, weight: torch.zeros_like(x), 0),  # a sum over several begins
        (lambda x, weight: x + (x.round() - x).detach(), 0),  # straight through
    ],
)
def test_a_layer_without_gradient_beside_its_adapter_is_counted(base: Base, count: int) -> None:
    assert count_of(base) == count


class Marked(torch.autograd.Function):
    """A node of the graph on which something hangs that says when it is gone."""

    marks: ClassVar[list[weakref.ref[Any]]] = []

    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        context.mark = type("Mark", (), {})()
        Marked.marks.append(weakref.ref(context.mark))
        return x * 2

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient * 2


def test_nothing_of_the_graph_is_kept_when_the_pass_is_over() -> None:
    signs = ForwardSigns()
    with watch(AttentionLook(), signs):
        kept = Marked.apply(torch.randn(4, requires_grad=True)).detach()
    assert Marked.marks[-1]() is not None
    signs.end()
    gc.collect()
    assert Marked.marks[-1]() is None and kept.sum() is not None


def test_only_adapters_with_something_trained_in_front_are_counted() -> None:
    cut: Base = lambda x, weight: functional.linear(x, weight).detach()  # noqa: E731
    assert count_of(cut, rank=20) == 0  # no low rank
    assert count_of(cut, layers=1, given=True) == 0  # the input has a gradient, and nothing is trained in front
    assert count_of(cut, layers=3, given=True) == 2


@pytest.mark.parametrize(("count", "told"), [(0.0, False), (1.0, False), (2.0, True)])
def test_two_layers_without_gradient_are_told(count: float, told: bool) -> None:
    assert bool(findings_of([DetachedLayer()], {"model/detached_layers": (np.arange(1), np.array([count]))})) is told
