"""The two factors of an adapter in the graph of its layer's output: what multiplies their product, and whether anything
is added to it.

In:   the last node of an output's graph, while it is whole; ids of the factors.
Out:  a number, or whether it is so; nothing waits for a device.
"""

from __future__ import annotations

import math
from typing import Any

from barograph.probes.autograd import setting, tensor
from barograph.probes.model.objective import kind

_NODES = 96  # of a graph, from an output to a factor
_TURNS = 4  # nodes from a product to its factor
_THROUGH = frozenset({"Mul", "Div", "View", "UnsafeView", "Reshape", "ReshapeAlias", "T", "Transpose", "Permute",
                      "ToCopy", "Alias", "Clone", "Squeeze", "Unsqueeze", "Expand", "NativeDropout"})  # fmt: skip


def scale_of(root: Any, factors: set[int]) -> float | None:
    """What multiplies the product of two factors on the nearest ways from an output to both, or to the one of them that
    is multiplied by itself; None where that number cannot be read at once, or where there is no such way.
    factors: ids of the parameters."""
    waiting, seen, found = [(root, 1.0)], set[Any](), dict[int, float]()
    for _ in range(_NODES):
        if not waiting or len(found) == len(factors):
            break
        node, scale = waiting.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if (leaf := id(getattr(node, "variable", None))) in factors:
            found.setdefault(leaf, scale)
            continue
        under, name = [one for one, _ in node.next_functions], kind(node)
        scales = [scale] * len(under)
        if name in ("Mul", "Div"):
            scales = [scale * _number(node, name)] * len(under)
        elif name == "Add" and len(under) == 2:
            scales[1] *= float(setting(node, "alpha", 1))
        elif name in ("Addmm", "Baddbmm", "Addbmm"):
            scales[1:] = [scale * float(setting(node, "alpha", 1))] * (len(under) - 1)
        waiting += [(one, by) for one, by in zip(under, scales, strict=True) if one is not None]
    scales = sorted(found.values(), key=lambda scale: scale == 1) if all(map(math.isfinite, found.values())) else []
    return scales[0] if scales else None


def _number(node: Any, name: str) -> float:
    """By which number a node multiplies; NaN where it is on another device, or is learnt; 1 of a product with a tensor,
    as of a mask or of lengths."""
    sides = [one for one, _ in node.next_functions]
    learnt = [one for one in sides if one is not None and getattr(getattr(one, "variable", None), "shape", None) == ()]
    if learnt:
        return math.nan
    whole = [place for place, one in enumerate(sides) if one is not None]
    if len(whole) != 1:
        return 1.0
    factor = tensor(node, "other" if whole[0] == 0 else "self")
    if factor is None:
        return math.nan
    if factor.numel() != 1:
        return 1.0
    value = float(factor) if factor.device.type == "cpu" else math.nan
    return value if name == "Mul" else 1 / value if value and whole[0] == 0 else math.nan


def is_product(root: Any, factors: set[int]) -> bool:
    """Whether a graph, as far as it is whole, makes an output of nothing but both factors' product with an input: on
    the way to both are products, scales and changes of shape, and nothing is added. factors: ids of the parameters."""
    node, left = root, set(factors)
    for _ in range(_NODES):
        if node is None:
            return False
        under = [one for one, _ in node.next_functions if one is not None]
        held = [one for one in under if (leaf := _leaf(one)) is not None and id(leaf) in left]
        if kind(node) in ("Mm", "Bmm") and len(held) == 1:
            left.discard(id(_leaf(held[0])))
            if not left:
                return True
            under = [one for one in under if one is not held[0]]
        elif kind(node) not in _THROUGH:
            return False
        if len(under) != 1:
            return False
        node = under[0]
    return False


def _leaf(node: Any) -> Any:
    """The parameter that a node is, at most transposed or cast."""
    for _ in range(_TURNS):
        if (leaf := getattr(node, "variable", None)) is not None:
            return leaf
        under = [one for one, _ in node.next_functions if one is not None]
        if len(under) != 1 or kind(node) not in _THROUGH:
            return None
        node = under[0]
    return None
