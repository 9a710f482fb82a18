"""Learned rows in front of a sequence, as of a prefix, whose places are cut off at the wrong end of what comes out.

In:   the last node of a loss's graph, when a backward pass is over.
Out:  a figure for the `model` record; sizes alone are read.

Rows of a parameter are joined with a sequence in front of it, go through the model with it, and are taken off again:
`h[:, n:]`. `h[:, :-n]` has as many places, and leaves the rows where they are: each place gets the output of another,
and the last ones none.
"""

from __future__ import annotations

from typing import Any

from barograph.probes.autograd import setting
from barograph.probes.model.objective import behind, kind, shape

_WHOLE = 20_000  # nodes of a graph: more are not walked
_SHAPED = frozenset({"Expand", "Repeat", "View", "UnsafeView", "Unsqueeze", "Clone", "ToCopy", "ReshapeAlias", "Alias"})
_LEAST = 2  # rows: one fewer at the end is what a text's shift leaves
_FAR = 8  # nodes from the parameter to where it is joined
_LAYERS = ("Addmm", "Mm", "Bmm", "ScaledDotProduct", "Convolution", "Linear")


def figures(root: Any) -> dict[str, float]:
    """`prefix_left`: how many learned rows in front are left, and as many places cut off behind."""
    waiting, seen = [root], {root}
    joined, cut = dict[int, list[tuple[int, Any]]](), list[Any]()
    while waiting:
        node = waiting.pop()
        if len(seen) > _WHOLE:
            return {}
        name = kind(node)
        if name == "Cat" and (rows := _in_front(node)) >= _LEAST:
            joined.setdefault(shape(node)[1], []).append((rows, node))
        elif name == "Slice" and setting(node, "dim") == 1:
            cut.append(node)
        for following in behind(node):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    for node in cut:
        sizes = tuple(int(size) for size in setting(node, "self_sym_sizes"))
        for rows, join in joined.get(sizes[1], ()):
            whole = sizes[0] == shape(join)[0] and shape(node)[1] == sizes[1] - rows != rows
            if whole and setting(node, "start") == 0 and _behind_layers(node, join) and not _is_cut(cut, rows):
                return {"prefix_left": float(rows)}
    return {}


def _in_front(node: Any) -> int:
    """How many rows of a parameter are joined in front of a sequence; 0 if there are none."""
    parts, sizes = [one for one, _ in node.next_functions], shape(node)
    if len(sizes) != 3 or len(parts) != 2 or parts[0] is None or setting(node, "dim") not in (1, (1 << 64) - 2):
        return 0
    first, other = (0 if one is None else _sizes(one, sizes) for one in parts)
    one = parts[0]
    for _ in range(_FAR):
        if hasattr(one, "variable"):
            fits = parts[1] is None or first + other == sizes[1]  # a sequence from frozen tables has no gradient
            return first if 0 < first < sizes[1] and fits else 0
        if kind(one) not in _SHAPED or len(behind(one)) != 1:
            return 0
        one = behind(one)[0]
    return 0


def _sizes(node: Any, whole: tuple[int, ...]) -> int:
    """The places of a part; 0 where it is none of a sequence."""
    sizes = tuple(node.variable.shape) if hasattr(node, "variable") else shape(node)
    return sizes[1] if len(sizes) == 3 and sizes[2] == whole[2] else 0


def _behind_layers(node: Any, join: Any) -> bool:
    """Whether layers stand between where rows are joined and where places are cut off."""
    waiting, seen, layers = behind(node), set[Any](), False
    while waiting:
        one = waiting.pop()
        if one is join:
            return layers
        if one not in seen:
            seen.add(one)
            layers = layers or kind(one).startswith(_LAYERS)
            waiting += behind(one)
    return False


def _is_cut(cut: list[Any], rows: int) -> bool:
    """Whether as many rows are taken off in front somewhere."""
    return any(setting(one, "start") == rows for one in cut)
