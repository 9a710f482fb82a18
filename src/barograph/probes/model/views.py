"""Views that give a tensor the sizes of its transposed, so that the numbers of one place are in several others.

In:   the last node of a loss's graph, when a backward pass is over.
Out:  a figure for the `model` record; sizes alone are read.

A convolution gives [rows, channels, height, width]. Seen as [rows, places, channels] without a transposition before,
each place holds numbers of one channel at many places. So it is with what a layer gives, [rows, places, channels], seen
as [rows, heads, places, channels of a head], and with what attention gives, seen the other way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from barograph.probes.autograd import setting
from barograph.probes.model.objective import behind, kind, shape

_WHOLE = 20_000  # nodes of a graph: more are not walked
_VIEWS = frozenset({"View", "UnsafeView", "ReshapeAlias"})
_ALIKE = (
    "Relu",
    "Gelu",
    "Silu",
    "LeakyRelu",
    "Elu",
    "Hardtanh",
    "Tanh",
    "Sigmoid",
    "Dropout",
    "NativeDropout",
    "NativeBatchNorm",
    "CudnnBatchNorm",
    "NativeGroupNorm",
    "Clone",
    "ToCopy",
    "Alias",
    "MaxPool",
    "AvgPool",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "Add",
    "Mul",
)  # that leave the order of dimensions as it is
_FAR = 8  # such nodes between a layer and a view of it


def figures(root: Any) -> dict[str, float]:
    """`mixed_views`: how many views of a layer's output exchange two of its dimensions, if any."""
    count = sum(map(_mixes, _all(root)))
    return {"mixed_views": float(count)} if count else {}


def _all(root: Any) -> Iterator[Any]:
    """The views of a graph; none of one that is too large."""
    waiting, seen, found = [root], {root}, []
    while waiting:
        node = waiting.pop()
        if len(seen) > _WHOLE:
            return
        if kind(node) in _VIEWS and setting(node, "self_sym_sizes") is not None:
            found.append(node)
        for following in behind(node):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    yield from found


def _mixes(node: Any) -> bool:
    before, after = tuple(int(size) for size in setting(node, "self_sym_sizes")), shape(node)
    if len(before) not in (3, 4) or len(after) not in (3, 4) or before[0] != after[0] or 1 in (*before[1:], *after[1:]):
        return False
    ends = {math.prod(before[: at + 1]) for at in range(len(before))}
    if math.prod(after[:2]) in ends:  # dimensions are joined, or divided
        return False
    if len(before) == 4 and len(after) == 3:
        channels, high, wide = before[1:]
        places = after[1:] in ((high * wide, channels), (high, channels * wide), (wide, channels * high))
        heads = after[1:] == (high, channels * wide)
        return (places and _is_of(node, ("Convolution",))) or (heads and _is_of(node, ("Bmm", "ScaledDotProduct")))
    if len(before) == len(after) == 3:
        return after[1:] == before[:0:-1] and _is_of(node, ("Convolution",))
    split = len(before) == 3 and after[2] == before[1] and after[1] * after[3] == before[2]
    return split and _is_of(node, ("Addmm", "Mm"))


def _is_of(node: Any, makers: tuple[str, ...]) -> bool:
    """Whether what is seen was made by such a layer, with its dimensions in the layer's order."""
    size = tuple(int(size) for size in setting(node, "self_sym_sizes"))
    for _ in range(_FAR):
        node = node.next_functions[0][0]
        if node is None or kind(node).startswith(makers):
            return node is not None
        # of a matrix product, whose batches or places are one dimension
        unfolded = kind(node) in _VIEWS and shape(node) == size
        if not unfolded and not kind(node).startswith(_ALIKE):
            return False
    return False
