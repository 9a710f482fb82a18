"""Losses whose level is meant: classes told apart by cosines with a margin, and means that are set against each other.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read.
"""

from __future__ import annotations

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


def figures(root: Any) -> dict[str, float]:
    """`loss_margin`: 1 if a cross-entropy is of cosines, of which that of the target is made less. `loss_opposed`: 1 if
    a mean of a layer's outputs is subtracted from another one of the same layer. Each only where it is so."""
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
    layers: dict[int, set[int]] = {1: set(), -1: set()}
    waiting = [(root, 1)]
    for _ in range(_NEAR):
        if not waiting:
            break
        node, sign = waiting.pop()
        name, inputs = kind(node), [one for one, _ in node.next_functions]
        if name in ("Mean", "Sum"):
            under, turned = _made(node)
            layers[sign * turned] |= _weights(under)
        elif name in _SIGNED and (name not in ("Mul", "Div") or len(behind(node)) == 1):
            for place, following in enumerate(inputs):
                if following is not None:
                    waiting.append((following, -sign if name == "Neg" or (name == "Sub" and place) else sign))
    return not layers[1].isdisjoint(layers[-1])


def _made(node: Any) -> tuple[Any, int]:
    """What a mean is of, but for its parts and shape, and whether that is negated."""
    sign = 1
    for _ in range(6):
        node = next(iter(behind(node)), None)
        if node is None or kind(node) not in _PARTS | {"Neg"}:
            break
        sign = -sign if kind(node) == "Neg" else sign
    return node, sign


def _weights(node: Any) -> set[int]:
    """The parameters that a layer's product is with."""
    if node is None or kind(node) not in _PRODUCTS:
        return set()
    leaves = [_untransposed(side) for side in behind(node)]
    return {id(leaf.variable) for leaf in leaves if hasattr(leaf, "variable")}
