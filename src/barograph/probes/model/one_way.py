"""Cross-entropies over a batch's pairs that are added, of which each is along the same side.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read.
"""

from __future__ import annotations

import contextlib
from typing import Any

from barograph.probes.autograd import setting
from barograph.probes.model.objective import behind, kind, shape
from barograph.probes.model.pairs import scores_of

_NEAR, _DEEP = 16, 12  # nodes from a loss on to its cross-entropies, and from scores to what both are made of
_SCALED = frozenset({"Mul", "Div"})
_PLAIN = frozenset({"LogSoftmax", "Mm", "Mul", "Div", "Exp", "Clamp", "T", "Transpose", "Permute"})
_SETTINGS = ("dim", "dims", "dim0", "dim1")


def figures(root: Any) -> dict[str, float]:
    """`pairs_one_way`: of a loss that is two or more cross-entropies over the similarities of all pairs of a batch,
    added: how many pairs there are if all are along the same rows of the same similarities, 0 if some are along the
    others. Of one cross-entropy, of others, and of such that have weights of their own, nothing is said."""
    with contextlib.suppress(Exception):  # a node of another make says nothing
        terms = _terms(root)
        starts = [one for one in (_scores(term) for term in terms) if one is not None]
        if len(terms) < 2 or len(starts) < len(terms):
            return {}
        first = starts[0]
        return {"pairs_one_way": float(shape(first)[0]) if all(_alike(one, first) for one in starts) else 0.0}
    return {}


def _terms(root: Any) -> list[Any]:
    """The mean cross-entropies that a loss adds up, whatever number divides all of it; none where one of them has a
    weight of its own, which the graph does not know, or where it is made of anything else."""
    while kind(root) in _SCALED and len(behind(root)) == 1 and not shape(root):
        root = behind(root)[0]
    waiting, found = [root], list[Any]()
    for _ in range(_NEAR):
        if not waiting:
            return found
        node = waiting.pop()
        if kind(node) == "Add":
            waiting += behind(node)
        elif kind(node).startswith("NllLoss") and setting(node, "reduction", None) == 1:
            found.append(node)
        else:
            return []
    return []


def _scores(term: Any) -> Any:
    """The softmax of a cross-entropy over the similarities of all pairs of two sides; None of another one."""
    soft = behind(term)[0] if len(behind(term)) == 1 else None
    size = shape(soft) if soft is not None and kind(soft) == "LogSoftmax" else ()
    if len(size) != 2 or size[0] != size[1] or size[0] < 2:
        return None
    scores = scores_of(behind(soft)[0], size[0])
    sides = [side for one in scores.products.values() for side in one] if scores is not None else []
    two = len(sides) == 2 and None not in sides and sides[0] is not sides[1]
    return soft if two and not any(kind(side) == "AccumulateGrad" for side in sides) else None


def _alike(one: Any, other: Any, deep: int = _DEEP) -> bool:
    """Whether two softmaxes, or what goes into them, are surely of the same numbers in the same order."""
    if one is other:
        return True
    leaf = getattr(one, "variable", None)
    if leaf is not None:
        return leaf is getattr(other, "variable", None)
    name, ours, theirs = kind(one), one.next_functions, other.next_functions
    if not deep or name != kind(other) or name not in _PLAIN or len(ours) != len(theirs):
        return False
    if any(setting(one, wanted) != setting(other, wanted) for wanted in _SETTINGS):
        return False
    if name in _SCALED | {"Mm"} and len(behind(one)) < 2:
        return False  # what has no gradient is gone with the graph
    return all(
        at == at_other and mine is not None and its is not None and _alike(mine, its, deep - 1)
        for (mine, at), (its, at_other) in zip(ours, theirs, strict=True)
        if (mine, its) != (None, None)
    )
