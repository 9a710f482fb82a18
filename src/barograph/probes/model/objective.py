"""What a loss is made of, beside what `loss_graph` says of it: signs, dimensions, weights and masks in its graph.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read. By then tensors that the nodes kept are gone; what is left are
      the nodes themselves, shapes, and plain numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from barograph.probes import autograd
from barograph.probes.autograd import setting

_MOST = 400  # nodes that are looked at, from the loss on
_LOSSES = ("NllLoss", "MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "KlDiv")  # 0 or more
_SIGNED = {"Neg": -1, "Mean": 1, "Sum": 1, "Add": 1}
_SIDES = ("MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy")
_NEAR = 24  # nodes between a loss and its differences
_OF_COLUMNS = 2  # dimensions of differences of one number a row, or of columns
_SUMS = 6  # one after the other, of the dimensions of a mean square
_SHAPES = frozenset({"View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "ToCopy"})
_RESHAPED = frozenset({"View", "UnsafeView", "ReshapeAlias", "Unsqueeze"})  # the order of dimensions stays
_MASKS = frozenset({"MaskedFill", "Fill", "FillDiagonal", "Where", "Add", "Sub", "Scatter", "IndexPut", "CopySlices"})
_NO_LOGARITHMS = {"nll_of_probabilities": ("Softmax", "Sigmoid"), "nll_of_scores": ("Addmm", "Mm", "Relu")}
_TERMS = frozenset({"Neg", "Mean", "Sum", "Add", "Sub", "Mul", "Div"})


def kind(node: Any) -> str:
    """A node's name without what autograd adds to it."""
    return str(node.name()).rpartition("::")[2].partition("Backward")[0]


def behind(node: Any) -> list[Any]:
    """The nodes that a node's inputs come from."""
    return [following for following, _ in node.next_functions if following is not None]


def figures(root: Any) -> dict[str, float]:
    """Of the loss whose last node this is: `loss_reversed`, `loss_multiplied`, `label_smoothing`,
    `softmax_over_rows`, `nll_of_probabilities`, `nll_of_scores`, `logits_cut`, `ignore_index`,
    `loss_queue`, `loss_crossed`, `rows_crossed`, `loss_widened`, `ratio_clip`, `ratio_constant`, `policy_reversed`,
    `attention/later`, `attention/next`; each only where it can be said."""
    found: dict[str, float] = {}
    for look in (_reversed, smoothing, _widened, _rows_crossed, _walk):
        with contextlib.suppress(Exception):  # a node of another make says nothing
            found |= look(root)
    return found


def _reversed(root: Any) -> dict[str, float]:
    """Whether nothing but the negative of losses that are never negative is minimised. Where they are multiplied by
    numbers, which are gone, `loss_multiplied`: the loss's own sign says it."""
    signs: set[int] = set()
    multiplied, waiting = False, [(root, 1)]
    for _ in range(16):
        if not waiting:
            break
        node, sign = waiting.pop()
        name, inputs = kind(node), node.next_functions
        if name.startswith(_LOSSES) or (name == "Pow" and setting(node, "exponent", 0) == 2):
            signs.add(sign)
            continue
        if name == "LogSigmoid":  # never positive: a loss is its negative
            signs.add(-sign)
            continue
        if name in ("Mul", "Div") and len(behind(node)) == 1:
            multiplied = True
        elif name not in _SIGNED and name != "Sub":
            return {}
        for place, (following, _) in enumerate(inputs):
            if following is not None:
                waiting.append((following, sign * (-1 if name == "Neg" or (name == "Sub" and place) else 1)))
    if waiting or len(signs) != 1:
        return {}
    return {"loss_multiplied": 1.0} if multiplied else {"loss_reversed": float(signs == {-1})}


def smoothing(root: Any) -> dict[str, float]:
    """Of torch's cross-entropy with label smoothing: (1 − ε) of the targets' and ε of the mean of all classes."""
    plain = False
    for node, _ in nodes([root], 16):
        plain |= kind(node).startswith("NllLoss")
        parts = behind(node) if kind(node) == "Add" else []
        scales = [part for part in parts if isinstance(setting(part, "other"), float)]
        if len(parts) != 2 or len(scales) != 2:
            continue
        for part in scales:
            under = behind(part)
            if len(under) == 1 and kind(under[0]).startswith("NllLoss"):
                return {"label_smoothing": round(1.0 - float(setting(part, "other")), 9)}
    return {"label_smoothing": 0.0} if plain else {}


def _widened(root: Any) -> dict[str, float]:
    """With how many columns of targets one column of outputs is compared, by the squares or sizes of differences."""
    waiting = [root]
    for _ in range(16):
        if not waiting:
            break
        node = waiting.pop()
        name = kind(node)
        if name in _TERMS and not (name == "Sub" and len(shape(node)) > 1):
            waiting += behind(node)
            continue
        inner = behind(node)[0] if name in ("Pow", "Abs") and len(behind(node)) == 1 else node
        sides = behind(inner) if name.startswith(_SIDES) or kind(inner) == "Sub" else []
        if len(sides) != 1:
            continue
        expanded = kind(sides[0]) == "Expand"
        whole = shape(sides[0]) if expanded else shape(inner)
        part = tuple(map(int, setting(sides[0], "self_sym_sizes"))) if expanded else shape(sides[0])
        if len(whole) == 2 and whole[0] > 1 and whole[1] > 1 and whole[0] != whole[1] and part == (whole[0], 1):
            return {"loss_widened": float(whole[1])}
    return {}


def _rows_crossed(root: Any) -> dict[str, float]:
    """Of a mean, or sum, of squares or sizes of all differences, all of one weight: how many outputs of several numbers
    each became as many times as many there, for sizes differ; 0 of such a mean of others. Of what is chosen among
    differences, or has weights, as of a matching of points, nothing is said."""
    waiting, found = [root], dict[str, float]()
    for _ in range(_NEAR):
        if not waiting:
            break
        node = waiting.pop()
        name, under = kind(node), behind(node)
        if (
            (name in _TERMS and name != "Sub" and len(under) == 1 and (not shape(node) or name in ("Mean", "Sum")))
            or (not shape(node) and name in ("Add", "Sub"))
            or (name in _SHAPES and len(under) == 1)
        ):
            waiting += under
        difference = _difference(node)
        if difference is not None and len(behind(difference)) == 1:
            side = behind(difference)[0]
            expanded = kind(side) == "Expand"
            whole = shape(side) if expanded else shape(difference)
            part = tuple(map(int, setting(side, "self_sym_sizes"))) if expanded else shape(side)
            if len(whole) > _OF_COLUMNS:
                number, across = whole[0], whole[0] == whole[1] > 1 and _lies_across(part, whole)
                found["rows_crossed"] = max(found.get("rows_crossed", 0.0), float(number if across else 0))
    return found


def _difference(node: Any) -> Any:
    """The difference that a node is the square or the size of; itself where that is a loss of two sides; else None."""
    name, under = kind(node), behind(node)
    if name.startswith(_SIDES):
        return node
    of_one = (name in ("Pow", "Abs") and len(under) == 1) or (
        name == "Mul" and len(under) == 2 and under[0] is under[1]
    )
    return under[0] if of_one and kind(under[0]) == "Sub" else None


def _lies_across(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether n outputs, of sizes part, became n × n of them."""
    number, rest = whole[0], whole[2:]
    return part in ((number, 1, *rest), (number, *rest), (1, number, *rest))


class Squared(NamedTuple):
    """Of a loss that is a mean square, or a multiple of one: of how many differences; what made the outputs, but for
    changes of shape; whether it is a multiple, or a sum; whether some are added up, and not averaged."""

    number: int
    made: str
    multiple: bool
    summed: bool


def squared(root: Any) -> Squared | None:
    """Of a loss that is nothing but squared differences with what has no gradient, added up with one weight. None of
    another one."""
    node, multiple, summed = root, False, False
    while kind(node) in ("Mul", "Div") and len(behind(node)) == 1 and not shape(node):  # by a number
        node, multiple = behind(node)[0], True
    mean = kind(node) == "Mean" or (kind(node) == "MseLoss" and setting(node, "reduction", 0) == 1)
    for _ in range(_SUMS):  # of rows first, say: all differences have one weight all the same
        if kind(node) not in ("Mean", "Sum") and not (kind(node) in _SHAPES and shape(node)):
            break
        mean, summed = mean and kind(node) != "Sum", summed or kind(node) == "Sum"
        node = _alone(node)
    name, under = kind(node), behind(node)
    if name == "MseLoss":
        sides, summed = under, summed or setting(node, "reduction", 0) == 2
    elif name == "Pow" and setting(node, "exponent", 0) == 2:
        sides = behind(under[0]) if len(under) == 1 and kind(under[0]) == "Sub" else []
    elif name == "Mul" and len(under) == 2 and under[0] is under[1] and kind(under[0]) == "Sub":
        sides = behind(under[0])
    else:
        return None
    if len(sides) != 1:
        return None
    return Squared(math.prod(shape(sides[0])), plain_kind(sides[0]), multiple or not mean, summed)


def _alone(node: Any) -> Any:
    """What is behind a node with one input."""
    return behind(node)[0] if len(behind(node)) == 1 else None


def plain_kind(node: Any) -> str:
    """What made a tensor, but for changes of its shape."""
    for _ in range(4):
        following = behind(node)
        whole = kind(node) == "Select" and len(following) == 1 and _numel(node) == _numel(following[0])
        if not (kind(node) in _SHAPES or whole) or len(following) != 1:
            break
        node = following[0]
    return kind(node)


def _of_chosen_rows(node: Any) -> Any:
    """What some of whose rows a loss is of, as of the nodes that have labels: what is behind an index."""
    for _ in range(2):
        following = behind(node)
        if kind(node) not in ("Index", "IndexSelect", "Slice", "MaskedSelect") or len(following) != 1:
            break
        node = following[0]
    return node


def _numel(node: Any) -> int:
    return math.prod(shape(node))


def _walk(root: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    later: list[float] = []
    for node, sign in nodes([root], _MOST):
        name = kind(node)
        if name.startswith("NllLoss"):
            _of_cross_entropy(node, found)
        elif name == "LogSoftmax":
            of_queue(unscaled(node), found)
        elif name.startswith(_SIDES):
            _of_sides(node, behind(node), found)
        elif name in ("Pow", "Abs") and kind(next(iter(behind(node)), root)) == "Sub":
            inner = behind(node)[0]
            _of_sides(inner, behind(inner), found)
        elif name in ("Minimum", "Maximum"):
            _of_policy(node, name, sign, found)
        elif name.startswith("ScaledDotProduct"):
            later.append(_sees_later(node))
    if later and len(set(later)) == 1 and later[0] in (0.0, 1.0):
        found |= {"attention/later": later[0], "attention/next": later[0]}
    return found


def nodes(roots: list[Any], most: int) -> Iterator[tuple[Any, int]]:
    """Nodes from these on, the nearest first, with the sign that they have in the whole: 0 where it can't be said."""
    waiting = [(root, 1) for root in roots]
    seen: set[Any] = set()
    while waiting and len(seen) < most:
        node, sign = waiting.pop(0)
        if node in seen:
            continue
        seen.add(node)
        yield node, sign
        name = kind(node)
        for place, (following, _) in enumerate(node.next_functions):
            if following is None:
                continue
            factor = _SIGNED.get(name, 0)
            if name == "Sub":
                factor = -1 if place else 1
            elif name in ("Squeeze", "Unsqueeze", "View", "Reshape"):
                factor = 1
            waiting.append((following, sign * factor))


def shape(node: Any) -> tuple[int, ...]:
    """Sizes of what a node made."""
    return tuple(int(size) for size in node._input_metadata[0].shape)


def _of_cross_entropy(node: Any, found: dict[str, float]) -> None:
    under = next(iter(behind(node)), None)
    if under is None:
        return
    sizes, index = shape(under), int(setting(node, "ignore_index", -1))
    if len(sizes) > 1 and 0 <= index < sizes[1]:
        found["ignore_index"] = float(index)
    under = _of_chosen_rows(under)
    made = under
    for _ in range(6):  # classes are put before places
        if kind(made) not in _SHAPES | {"Clone", "Transpose", "Permute"} or len(behind(made)) != 1:
            break
        made = behind(made)[0]
    made = plain_kind(made)
    for name, kinds in _NO_LOGARITHMS.items():
        found[name] = max(found.get(name, 0.0), float(made in kinds))
    found["softmax_over_rows"] = max(found.get("softmax_over_rows", 0.0), _across(under, sizes))
    if kind(under) in _RESHAPED and [kind(one) for one in behind(under)] == ["LogSoftmax"]:
        inner = behind(under)[0]
        under = inner if shape(inner)[:2] == shape(under)[:2] else under
    if kind(under) != "LogSoftmax":
        return
    found["logits_cut"] = max(found.get("logits_cut", 0.0), float(plain_kind(behind(under)[0]) == "Relu"))
    sizes, at = shape(under), int(setting(under, "dim"))
    at = at - (1 << 64) if at >= 1 << 63 else at
    at = at + len(sizes) if at < 0 else at
    over = 1.0 if len(sizes) in (2, 4) and at == 0 else 2.0 if kind(node) == "NllLoss2D" and at > 1 else 0.0
    over = over or (3.0 if _torn(behind(under)[0], sizes, at) else 0.0)
    found["softmax_over_rows"] = max(found.get("softmax_over_rows", 0.0), over)


def _across(node: Any, sizes: tuple[int, ...]) -> float:
    """1 or 2 where a log-softmax, seen in other dimensions since, is over rows or over places: over another number of
    elements than there are classes. sizes: of what goes into the cross-entropy."""
    for _ in range(4):
        if kind(node) not in _RESHAPED | {"Transpose", "Permute", "Reshape", "Clone"} or len(behind(node)) != 1:
            break
        node = behind(node)[0]
    whole = shape(node) if kind(node) == "LogSoftmax" else ()
    if len(whole) < 3 or len(sizes) < 2:  # of two dimensions there is another proof
        return 0.0
    at = int(setting(node, "dim"))
    at = at - (1 << 64) if at >= 1 << 63 else at
    at = at + len(whole) if at < 0 else at
    return 0.0 if whole[at] == sizes[1] else 2.0 if at else 1.0


def of_queue(node: Any, found: dict[str, float]) -> None:
    """Of a softmax over scores that are joined from one answer and others, the one before or behind the other, which
    are similarities to what has no gradient: how many others. The answer may stand among those of all rows of the
    batch. node: what is behind it, as of `unscaled`."""
    parts = behind(node) if node is not None and kind(node) == "Cat" else []
    if len(parts) != 2 or [len(shape(one)) for one in parts] != [2, 2]:
        return
    answer, others = sorted(parts, key=lambda one: shape(one)[1])
    if shape(answer)[1] != 1:  # all keys of the batch, and the answer is one of them
        answer, others = sorted(parts, key=lambda one: shape(one)[1] != shape(one)[0])
        if shape(answer)[1] != shape(answer)[0] or shape(others)[1] == shape(others)[0] or _product(answer) is None:
            return
    product = _product(others)
    if product is not None:
        columns = shape(others)[1] + shape(answer)[1] - 1
        found["loss_queue"] = float(columns if len(behind(product)) == 1 else 0)


def _product(node: Any) -> Any:
    """The product of matrices that scores are, but for their sizes and a factor; None of what is none."""
    for _ in range(4):
        if kind(node) in ("Mm", "Bmm"):
            return node
        if len(behind(node)) != 1 or kind(node) not in _SHAPES | {"Div", "Mul", "Permute", "Transpose"}:
            return None
        node = behind(node)[0]
    return None


def _torn(node: Any, sizes: tuple[int, ...], at: int) -> bool:
    """Whether logits were reshaped where their dimensions are to be exchanged, so that the numbers of one place are in
    the columns of several: from [rows, places, classes] to [rows, classes, places], or from the latter to a row a
    place. sizes: of what goes into the softmax, which is over dimension `at`."""
    for _ in range(3):
        following = behind(node)
        if kind(node) in _RESHAPED or kind(node) not in ("ToCopy", "Clone", "Alias", "Div", "Mul"):
            break
        if len(following) != 1 or shape(following[0]) != sizes:
            return False
        node = following[0]
    if kind(node) not in _RESHAPED or setting(node, "self_sym_sizes") is None:
        return False
    before, classes = tuple(int(size) for size in setting(node, "self_sym_sizes")), sizes[at]
    if len(before) < 3 or before.count(classes) != 1:  # which one is that of the classes can't be said
        return False
    if len(before) == len(sizes):
        return at == 1 and before != sizes and sorted(before) == sorted(sizes) and before[-1] == classes
    rest = [math.prod(before[place:]) for place in range(len(before))]
    return at == len(sizes) - 1 and before[-1] % classes > 0 and classes not in rest


def unscaled(node: Any) -> Any:
    """What is behind a softmax but for a temperature, a transposition and a mask."""
    size = math.prod(shape(node))
    for _ in range(6):
        following = [side for side in behind(node) if math.prod(shape(side)) == size or kind(side) == "Mm"]
        if len(following) != 1:
            break
        node = following[0]
        if kind(node) not in _MASKS and kind(node) not in ("Div", "Mul", "T", "Transpose", "Permute"):
            return node
    return None


def _of_sides(node: Any, sides: list[Any], found: dict[str, float]) -> None:
    """Whether rows were compared with all rows: n outputs and n targets, n × n differences. Two sides that both have
    gradients, as those of pairwise distances, are compared so on purpose."""
    if len(sides) != 1:
        return
    for side in sides:
        expanded = kind(side) == "Expand"
        whole = shape(side) if expanded else shape(node)
        part = tuple(map(int, setting(side, "self_sym_sizes"))) if expanded else shape(side)
        square = len(whole) == 2 and whole[0] == whole[1] > 1
        crossed = square and part in ((whole[0], 1), (whole[0],), (1, whole[0]))
        found["loss_crossed"] = max(found.get("loss_crossed", 0.0), float(whole[0] if crossed else 0))


def _of_policy(node: Any, name: str, sign: int, found: dict[str, float]) -> None:
    """Of the lesser of two products of ratio and advantage: how far the ratio is let, whether it can change at all,
    and whether the lesser is minimised."""
    clamps, ratios = [], []
    for side in behind(node):
        for inner, _ in nodes([side], 8):
            clamps += [inner] if kind(inner) == "Clamp" else []
            ratios += [inner] if kind(inner) == "Exp" else []
    if not clamps or not ratios:
        return
    low, high = (setting(clamps[0], end) for end in ("min", "max"))
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low < 1 < high:
        found["ratio_clip"] = float(high) - 1.0
    difference = next(iter(behind(ratios[0])), None)
    if difference is not None and kind(difference) == "Sub":
        parts = behind(difference)
        found["ratio_constant"] = float(len(parts) == 2 and parts[0] is parts[1])
    if sign and name == "Minimum":
        negated = any(kind(inner) == "Neg" for side in behind(node) for inner, _ in nodes([side], 3))
        if not negated:
            found["policy_reversed"] = float(sign > 0)


def _sees_later(node: Any) -> float:
    """1 where torch's attention has neither a mask nor `is_causal`; NaN where it has a mask, 0 where it is causal."""
    if setting(node, "is_causal"):
        return 0.0
    masked = [autograd.has(node, name) for name in ("attn_mask", "attn_bias")]
    return math.nan if None in masked or True in masked else 1.0
