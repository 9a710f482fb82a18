"""Layers that are passed on without gradient, beside their adapters.

In:   the torch functions of one pass, each with its result, as a function mode sees them.
Out:  how often what a frozen layer made without gradient was added to what an adapter of low rank made of the same
      input with gradient, where something that is trained lies in front of both.

The layer's own gradient is missing then: what lies in front is trained through adapters alone. It is so where the
layer's output is detached, where its input is, and where it is computed under `no_grad`. An adapter is known by its
shape: two trained matrices that multiply the input one behind the other, through fewer dimensions than both have on
their other sides.
"""

from __future__ import annotations

import weakref
from typing import Any

from barograph.probes.autograd import comes_from, nodes_under

_ADDED = frozenset({"add", "__add__", "__radd__", "add_", "__iadd__"})
_CUTS = frozenset({"detach", "__get__"})  # `x.data`
_WAY = 24  # nodes from the output of an adapter to its input
_TURNS = 4  # nodes from a product to its matrix, which may be transposed or cast; and from the input to what it is of


class AdaptedLayers:
    """Follows one pass. Until it ends, nodes of the graph are kept, and no tensor."""

    def __init__(self) -> None:
        self._count = 0
        self._cut: dict[int, tuple[weakref.ref[Any], Any]] = {}  # by id: a tensor without gradient, and of which node

    def saw(self, name: str, arguments: Any, result: Any) -> None:
        """A function was called."""
        if not hasattr(result, "grad_fn") or not result.is_floating_point() or result.numel() < 2:
            return
        if result.requires_grad:
            if self._cut and name in _ADDED and len(arguments) == 2:
                self._added(*arguments)
            return
        if not name.endswith("_like") and not name.startswith("new_"):  # of its shape alone
            here = self._taken(name)
            node = next((found for one in arguments if (found := self._node(one, here)) is not None), None)
            if node is not None:
                self._cut[id(result)] = weakref.ref(result), node

    def _taken(self, name: str) -> bool:
        """Whether this function takes the gradient away."""
        import torch

        return name in _CUTS or not torch.is_grad_enabled()

    def _node(self, one: Any, here: bool) -> Any:
        """The node that a tensor without gradient is computed from. here: whether the gradient ends here."""
        kept, node = self._cut.get(id(one), (None, None))
        if kept is not None and kept() is one:
            return node
        return getattr(one, "grad_fn", None) if here else None

    def _added(self, one: Any, other: Any) -> None:
        for still, moves in ((one, other), (other, one)):
            kept, node = self._cut.get(id(still), (None, None))
            if kept is None or kept() is not still or getattr(still, "requires_grad", True):
                continue
            inputs = _input_of(getattr(moves, "grad_fn", None))
            if inputs and any(comes_from(node, each) for each in inputs) and _is_trained(inputs[-1]):
                self._count += 1
                return

    def end(self) -> int:
        """The pass is over: how many layers were seen."""
        self._cut = {}
        return self._count


def _input_of(node: Any) -> list[Any]:
    """What an adapter's two matrices multiply: its node, and those that it is a mere function of, as behind a dropout.
    Empty where it is not the output of an adapter."""
    found: list[Any] = []
    for _ in range(_WAY):
        if node is None:
            return []
        under = [one for one, _ in node.next_functions if one is not None]
        leaves = [(one, leaf) for one in under if (leaf := _matrix(one)) is not None]
        rest = [one for one in under if all(one is not other for other, _ in leaves)]
        if len(rest) != 1 or len(leaves) > 1:
            return []
        found += [leaf for _, leaf in leaves]
        node = rest[0]
        if len(found) == 2:
            return _functions_of(node) if _through_fewer(*found) else []
    return []


def _functions_of(node: Any) -> list[Any]:
    found = [node]
    for _ in range(_TURNS):
        under = [one for one, _ in found[-1].next_functions if one is not None]
        if len(under) != 1:
            break
        found += under
    return found


def _matrix(node: Any) -> Any:
    """The trained matrix that a node is, at most transposed or cast."""
    for _ in range(_TURNS):
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            return leaf if leaf.dim() == 2 else None
        under = [one for one, _ in node.next_functions if one is not None]
        if len(under) != 1:
            return None
        node = under[0]
    return None


def _through_fewer(second: Any, first: Any) -> bool:
    rank = min(*second.shape, *first.shape)
    return rank in second.shape and rank in first.shape and 2 * rank <= min(max(second.shape), max(first.shape))


def _is_trained(node: Any) -> bool:
    """Whether a parameter is in what a node is computed from."""
    import torch

    return any(isinstance(getattr(one, "variable", None), torch.nn.Parameter) for one in nodes_under(node))
