"""Losses whose level is meant: classes told apart by cosines with a margin, and means that are set against each other.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barograph.probes.model.objective import behind, kind
from barograph.probes.model.pairs import of_length_one

_NEAR, _DEEP = 16, 40  # nodes that are looked at: of a loss, and between its softmax and the cosines
_PRODUCTS = frozenset({"Mm", "Addmm", "Bmm"})
_MARGINS = frozenset({"Acos", "Cos", "Sub", "Where", "IndexPut", "Scatter", "ScatterAdd", "CopySlices"})
_TURNED = frozenset({"T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze"})
_SIGNED = frozenset({"Add", "Sub", "Neg", "Mul", "Div", "Squeeze"})
_PARTS = frozenset({"View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Select", "Slice", "Split", "Unbind",
                    "Index", "Alias", "ToCopy"})  # fmt: skip
_SUMMED = _PARTS | {"Neg", "Add", "Sub", "Pow"}


def figures(root: Any) -> dict[str, float]:
    """`loss_margin`: 1 if a cross-entropy is of cosines, of which that of the target is made less. `loss_opposed`: 1 if
    a mean of a layer's outputs is subtracted from another one of the same layer, or outputs are within one
    mean, and their squares are beside it. Each only where it is so."""
    found = {"loss_margin": 1.0} if _margin(root) else {}
    return found | ({"loss_opposed": 1.0} if _opposed(root) else {})


def _margin(root: Any) -> bool:
    waiting = [root]
    for _ in range(_NEAR):
        if not waiting:
            break
        node = waiting.pop(0)
        if kind(node) == "LogSoftmax":
            return _of_cosines(node)
        waiting += behind(node)
    return False


def _of_cosines(softmax: Any) -> bool:
    """Whether behind a softmax are cosines, and something that is done to some of them alone."""
    waiting, seen, products, changed = behind(softmax), set[Any](), set[Any](), False
    while waiting and len(seen) < _DEEP:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if kind(node) in _PRODUCTS:
            products.add(node)
            continue
        changed = changed or kind(node) in _MARGINS
        waiting += behind(node)
    if waiting or not changed or len(products) != 1:
        return False
    sides = [_untransposed(side) for side in behind(products.pop())]
    return len(sides) == 2 and all(map(of_length_one, sides))


def _untransposed(node: Any) -> Any:
    for _ in range(4):  # `.T` is a permutation, and an einsum of two matrices has views of its own
        if kind(node) not in _TURNED or not behind(node):
            break
        node = behind(node)[0]
    return node


def _opposed(root: Any) -> bool:
    apart: dict[int, set[int]] = {1: set(), -1: set()}  # the weights of what is added, and of what is taken away
    within: dict[int, set[int]] = {1: set(), -1: set()}  # the same, in one mean
    squared, waiting = set[int](), [(root, 1)]
    for _ in range(_NEAR):
        if not waiting:
            break
        node, sign = waiting.pop()
        name, inputs = kind(node), [one for one, _ in node.next_functions]
        if name in ("Mean", "Sum"):
            parts = list(_made(node))
            for under, turned, power in parts:
                held = squared if power else (apart if len(parts) == 1 else within)[sign * turned]
                held |= _weights(under)
        elif name in _SIGNED and (name not in ("Mul", "Div") or len(behind(node)) == 1):
            for place, following in enumerate(inputs):
                if following is not None:
                    waiting.append((following, -sign if name == "Neg" or (name == "Sub" and place) else sign))
    return not apart[1].isdisjoint(apart[-1]) or bool(within[1] & within[-1] & squared)


def _made(node: Any) -> Iterator[tuple[Any, int, bool]]:
    """What a mean is of, but for its parts and shape: what is added up in it, whether that is negated, and squared."""
    waiting = [(one, 1, False) for one in behind(node)]
    for _ in range(_NEAR):
        if not waiting:
            return
        node, sign, power = waiting.pop()
        name = kind(node)
        if name not in _SUMMED:
            yield node, sign, power
            continue
        for place, (under, _) in enumerate(node.next_functions):
            if under is not None:
                turned = -sign if name == "Neg" or (name == "Sub" and place) else sign
                waiting.append((under, turned, power or name == "Pow"))


def _weights(node: Any) -> set[int]:
    """The parameters that a layer's product is with."""
    if node is None or kind(node) not in _PRODUCTS:
        return set()
    leaves = [_untransposed(side) for side in behind(node)]
    return {id(leaf.variable) for leaf in leaves if hasattr(leaf, "variable")}
