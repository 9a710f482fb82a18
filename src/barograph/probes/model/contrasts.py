"""Signs and sums in losses that compare: similarities of pairs that are turned round, margins that are joined.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

from barograph.probes.model.objective import behind, kind, nodes, shape
from barograph.probes.model.pairs import of_length_one

_NEAR, _DEEP = 32, 12  # nodes from the loss on to its softmax, and from there to the similarities
_TURNS = frozenset({"Neg", "Rsub"})
_PASSED = frozenset({"Mul", "Div", "T", "Transpose", "Permute", "MaskedFill", "Fill", "FillDiagonal", "Where", "Add",
                     "Sub", "Scatter", "IndexPut", "CopySlices", "ToCopy", "Clone", "View", "Index"})  # fmt: skip
_SHAPED = frozenset({"View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "ToCopy", "Clone", "Select",
                     "Slice", "Split", "SplitWithSizes", "Unbind", "Index"})  # fmt: skip
_TURNED = frozenset({"T", "Transpose", "Permute"})
_LINE = frozenset({"Mul", "Div", "Neg", "Sub", "Add", "Rsub"})
_CHANCES = frozenset({"LogSoftmax", "Softmax", "Log"})
_LAYERS = frozenset({"Addmm", "Mm"})
_LOGARITHM = re.compile(r"(?:.*[._])?log(?:[._].*|scale|temp|temperature|tau)?")  # a word of the name


def figures(root: Any) -> dict[str, float]:
    """`pairs_repelled`: of a cross-entropy over the cosines of pairs, 1 if they go into its softmax with a minus, 0 if
    not. `margins_joined`: how many margins of a batch are added before the logarithm of a logistic loss, or averaged,
    which is a number below 0. Each only where it can be said."""
    found: dict[str, float] = {}
    for look in (_repelled, _joined):
        with contextlib.suppress(Exception):  # a node of another make says nothing
            found |= look(root)
    return found


def plain_scale(root: Any) -> Any:
    """Of a cross-entropy, or logistic losses, over the cosines of pairs: the parameter of one number that they, or one
    side's embeddings, are multiplied by as it is; None without one."""
    start = next((node for node, _ in nodes([root], _NEAR) if kind(node) in ("LogSoftmax", "LogSigmoid")), None)
    size = shape(start) if start is not None else ()
    if len(size) != 2 or size[0] != size[1]:
        return None
    node, found = behind(start)[0], None
    for _ in range(_DEEP):
        name = kind(node)
        if name == "Mul" and (factor := _factor(node)) is not None:
            found, node = factor
        elif name == "Mm":
            sides = [_bare(side) for side in behind(node)]
            factors = [_factor(side) if kind(side) == "Mul" else None for side in sides]
            parts = [side if one is None else one[1] for side, one in zip(sides, factors, strict=True)]
            found = next((one[0] for one in factors if one is not None), found)
            return found if len(parts) == 2 and all(map(of_length_one, parts)) else None
        elif name in _PASSED | _SHAPED and len(behind(node)) == 1:
            node = behind(node)[0]
        elif name == "Add":
            whole = [one for one in behind(node) if math.prod(shape(one)) == math.prod(size)]
            if len(whole) != 1:
                return None
            node = whole[0]
        else:
            return None
    return None


def _factor(node: Any) -> tuple[Any, Any] | None:
    """The parameter of one number that a tensor is multiplied by, and that tensor; None where it is none as it is."""
    sides = behind(node)
    for side, other in zip(sides, reversed(sides), strict=True):
        while kind(side) in _SHAPED | {"Clamp", "Expand"} and len(behind(side)) == 1:
            side = behind(side)[0]
        leaf = getattr(side, "variable", None)
        if len(sides) == 2 and leaf is not None and leaf.numel() == 1:
            return leaf, other
    return None


def is_logarithm(name: str) -> bool:
    """Whether a parameter's name says that it is a logarithm: `log_scale`, and not `logit_scale`."""
    return _LOGARITHM.fullmatch(name.lower()) is not None


def _repelled(root: Any) -> dict[str, float]:
    signs: set[int] = set()
    waiting = [(root, 1)]
    for _ in range(_NEAR):
        if not waiting:
            break
        node, sign = waiting.pop()
        name = kind(node)
        if name.startswith("NllLoss"):  # minus the logarithm that it is given
            node = next((one for one, _ in nodes(behind(node), 4) if kind(one) == "LogSoftmax"), None)
        elif name in ("LogSoftmax", "Logsumexp"):
            sign = -sign if name == "LogSoftmax" else sign
        else:
            if name in _SHAPED | _LINE | {"Mean", "Sum"} and (name not in ("Mul", "Div") or len(behind(node)) == 1):
                waiting += [(one, -sign if name in _TURNS or (name == "Sub" and place) else sign)
                            for place, (one, _) in enumerate(node.next_functions) if one is not None]  # fmt: skip
            continue
        size = shape(behind(node)[0]) if node is not None and behind(node) else ()
        if len(size) == 2 and size[0] == size[1] and (turned := _turned(behind(node)[0], size[0])):
            signs.add(turned * sign)
    return {"pairs_repelled": float(signs == {-1})} if len(signs) == 1 else {}


def _turned(node: Any, count: int) -> int:
    """−1 if the cosines of `count` by `count` pairs have been negated before a softmax, 1 if not, 0 if it can't be
    said."""
    sign = 1
    for _ in range(_DEEP):
        name, inputs = kind(node), [one for one, _ in node.next_functions]
        if name in ("Mm", "Bmm"):
            return sign if len(behind(node)) == 2 and all(map(of_length_one, behind(node))) else 0
        if name == "Sum":  # of products, as `cosine_similarity` of all with all
            parts = [part for one in behind(node) if kind(one) == "Mul" for part in behind(one)]
            return sign if len(parts) == 2 and all(map(of_length_one, parts)) else 0
        if name not in _PASSED | _SHAPED | _TURNS:
            return 0
        whole = [one for one in inputs if one is not None and math.prod(shape(one)) == count * count]
        if len(whole) != 1 or (name == "Sub" and inputs[0] is not whole[0]):
            return 0
        sign, node = -sign if name in _TURNS else sign, whole[0]  # what it is multiplied by is gone with the graph
    return 0


def _bare(node: Any) -> Any:
    for _ in range(6):
        if kind(node) not in _SHAPED | _TURNED or len(behind(node)) != 1:
            break
        node = behind(node)[0]
    return node


def _joined(root: Any) -> dict[str, float]:
    for node, _ in nodes([root], _NEAR):
        of_sigmoid = kind(node) == "Log" and [kind(one) for one in behind(node)] == ["Sigmoid"]
        if kind(node) not in ("LogSigmoid", "Softplus") and not of_sigmoid:
            continue
        under = behind(behind(node)[0] if of_sigmoid else node)
        if len(under) != 1 or math.prod(shape(under[0])) != 1:
            return {}
        return _of_margins(under[0])
    return {}


def _of_margins(node: Any) -> dict[str, float]:
    """Of one number: whether it is the sum, or the mean, of numbers of rows."""
    waiting, counts, how = [node], set[int](), set[str]()
    for _ in range(_NEAR):
        if not waiting:
            break
        node = waiting.pop()
        name, under = kind(node), behind(node)
        if name in ("Sum", "Mean") and len(under) == 1 and math.prod(shape(node)) == 1:
            if not _of_rows(under[0]):
                return {}
            counts.add(math.prod(shape(under[0])))
            how.add(name)
        elif name in _LINE | _SHAPED:
            waiting += under
        else:
            return {}
    if waiting or len(counts) != 1 or len(how) != 1 or min(counts) < 2:
        return {}
    return {"margins_joined": float(counts.pop() * (-1 if how == {"Mean"} else 1))}


def _of_rows(node: Any) -> bool:
    """Whether a line of numbers has one for each row: made of sums or means over what belongs to a row, or of the one
    column that a layer gives. Log probabilities of a text's tokens are no such numbers."""
    count, waiting, known = math.prod(shape(node)), [node], False
    for _ in range(_NEAR):
        if not waiting:
            return known
        node = waiting.pop()
        name, under = kind(node), behind(node)
        if name in ("Sum", "Mean") and len(under) == 1 and math.prod(shape(node)) in (count, 2 * count):
            size = shape(under[0])
            of_classes = any(kind(one) in _CHANCES and shape(one) == size for one, _ in nodes([under[0]], 3))
            if len(size) < 2 or of_classes:
                return False
            known = True
        elif name in _LAYERS and shape(node)[-1] == 1 and len(shape(node)) == 2 and shape(node)[0] >= 2:
            known = True
        elif name in _LINE | _SHAPED:
            waiting += under
        else:
            return False
    return False
