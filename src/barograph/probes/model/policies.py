"""A policy's loss, as autograd's graph shows it: products of log probabilities, or of their ratios, with advantages.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read. Whether it is a policy's loss the rules know, by a reward.
"""

from __future__ import annotations

import math
from typing import Any

from barograph.probes.autograd import setting
from barograph.probes.model.objective import behind, kind, nodes, shape

_MOST = 200  # nodes that are looked at, from the loss on
_SHAPES = frozenset(
    {"View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Select", "Clone"}
)
_SCORES = ("Addmm", "Mm", "Add", "UnsafeView")
_ERRORS = ("MseLoss", "SmoothL1Loss", "HuberLoss", "Pow")


def figures(root: Any) -> dict[str, float]:
    """`policy_crossed`: of how many actions each is multiplied with the advantages of all, by a product's shape.
    `ratio_of_chances`: whether a clipped ratio is the exponential of a difference of probabilities; `ratio_not_raised`:
    whether it is the difference of log probabilities itself; `ratio_greater`: whether the greater of the two products
    is maximised. `likelihood`: what of the chosen actions is multiplied with advantages where nothing is clipped: 1 for
    probabilities, 2 for scores that no softmax has seen, 0 for others. `greatest_trained`: whether an error is of the
    greatest output of each row, not of a chosen one."""
    found: dict[str, float] = {}
    clipped = False
    for node, sign in nodes([root], _MOST):
        name = kind(node)
        if name in ("Minimum", "Maximum"):
            clipped |= _clipped(node, name, sign, found)
        elif name in ("Mean", "Sum") and len(behind(node)) == 1:
            _product(behind(node)[0], found)
        elif name.startswith(_ERRORS) and _is_greatest(node):
            found["greatest_trained"] = 1.0
    if clipped:
        found.pop("likelihood", None)
    return found


def _plain(node: Any) -> Any:
    """What is behind changes of shape."""
    for _ in range(5):
        following = behind(node)
        if kind(node) not in _SHAPES or len(following) != 1:
            break
        node = following[0]
    return node


def _clipped(node: Any, name: str, sign: int, found: dict[str, float]) -> bool:
    """Of the lesser or greater of two products, of which one is clipped; whether it is such a one."""
    inner = [one for side in behind(node) for one, _ in nodes([side], 10)]
    clamps = [one for one in inner if kind(one) == "Clamp"]
    low, high = (setting(clamps[0], end) if clamps else None for end in ("min", "max"))
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)) or not low < 1 < high:
        return False
    _crossed(node, clamps[0], found)
    under = _plain(behind(clamps[0])[0]) if len(behind(clamps[0])) == 1 else None
    if under is None:
        return True
    found["ratio_not_raised"] = float(kind(under) == "Sub")
    if kind(under) == "Exp" and len(behind(under)) == 1:
        difference = _plain(behind(under)[0])
        first = behind(difference)[0] if kind(difference) == "Sub" and behind(difference) else None
        found["ratio_of_chances"] = float(first is not None and _chosen(first) == "Softmax")
    negated = any(kind(one) == "Neg" for one in inner if one is not under)
    if sign and not negated:
        found["ratio_greater"] = float(name == "Maximum" and sign < 0)
    return True


def _product(node: Any, found: dict[str, float]) -> None:
    """Of a product with what has no gradient, whose mean or sum is in the loss."""
    for _ in range(3):  # -(a * b) and (-a * b) alike
        if kind(node) != "Neg" or len(behind(node)) != 1:
            break
        node = behind(node)[0]
    sides = behind(node) if kind(node) == "Mul" else []
    if len(sides) != 1:
        return
    side = sides[0]
    while kind(side) == "Neg" and len(behind(side)) == 1:
        side = behind(side)[0]
    made = _chosen(side)
    if not made:
        return
    _crossed(node, side, found)
    said = {"Softmax": 1.0}.get(made, 2.0 if made in _SCORES else 0.0)
    found["likelihood"] = max(found.get("likelihood", 0.0), said)


def _chosen(node: Any) -> str:
    """What made the outputs that an index picks one of in each row; empty where there is no such index."""
    picked = _plain(node)
    if kind(picked) not in ("Gather", "Index") or len(behind(picked)) != 1:
        return ""
    under = _plain(behind(picked)[0])
    if kind(under) == "Sub" or len(shape(behind(picked)[0])) < 2:
        return "other"
    return kind(under)


def _crossed(node: Any, side: Any, found: dict[str, float]) -> None:
    """Whether a product of n actions has n × n elements."""
    whole = shape(node)
    size = math.prod(shape(side))
    if len(whole) == 2 and whole[0] == whole[1] == size > 1:
        found["policy_crossed"] = float(size)


def _is_greatest(node: Any) -> bool:
    under = behind(node)
    if kind(node) == "Pow":
        under = behind(under[0]) if len(under) == 1 and kind(under[0]) == "Sub" else []
    if len(under) != 1:
        return False
    picked = _plain(under[0])
    wide = behind(picked)[0] if len(behind(picked)) == 1 else None
    return kind(picked) in ("Max", "Amax") and wide is not None and len(shape(wide)) == 2 and shape(wide)[1] > 1
