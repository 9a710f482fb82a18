"""Similarities of all with all of a batch that a softmax is over, however they were masked, chosen and joined.

In:   the last node of a loss's graph, when its backward pass is over; or what goes into a softmax.
Out:  figures for the `model` record; no tensor is read.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

from barograph.probes.model.objective import behind, kind, nodes, shape

_MOST, _DEEP, _NEAR = 400, 16, 6  # nodes from a loss on; from a softmax to similarities; from a pick to its softmax
_MOVED = frozenset({"View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "ToCopy", "Clone",
                    "T", "Transpose", "Permute", "Expand"})  # fmt: skip
_MASKS = frozenset({"MaskedFill", "Fill", "FillDiagonal", "Where", "Add", "Sub", "Scatter", "IndexPut", "CopySlices",
                    "IndexFill"})  # fmt: skip
_CHOICES = frozenset({"Index", "MaskedSelect", "IndexSelect", "Gather", "Diagonal"})
_TURNED = frozenset({"T", "Transpose", "Permute"})
_PARTS = frozenset({"Select", "Slice", "Split", "SplitWithSizes", "Unbind", "Index", "IndexSelect"})
_LENGTHS = frozenset({"ClampMin", "Clamp", "LinalgVectorNorm", "Norm", "Sqrt"})
_LAYERS = frozenset({"Addmm", "Mm", "Relu", "Gelu", "Silu", "Tanh", "NativeLayerNorm", "NativeBatchNorm"})
_SIGMOIDS = frozenset({"LogSigmoid", "Softplus", "BinaryCrossEntropyWithLogits"})
PICKS = frozenset({"Gather", "Index", "Diagonal"})  # of each row's answer


class Scores(NamedTuple):
    """The products that scores are made of, each by its two sides, None where one has no gradient; whether some are
    hidden or left out, and whether anything multiplies or divides them."""

    products: dict[Any, list[Any]]
    masked: bool
    scaled: bool


def figures(root: Any) -> dict[str, float]:
    """`loss_pairs`, `similarity_to_itself`, `pairs_unscaled`, `pairs_any_length`, of softmaxes from which a loss picks
    answers; `loss_candidates` where each row is compared with more than there are rows; `sigmoid_pairs`, rows of a
    table of all with all each of which has a logistic loss; `pairs_one_length` and `pairs_across` of both; each only
    where it can be said."""
    found: dict[str, float] = {}
    with contextlib.suppress(Exception):  # a node of another make says nothing
        for node, _ in nodes([root], _MOST):
            if kind(node) in _SIGMOIDS and len(behind(node)) == 1:
                _of_sigmoids(behind(node)[0], found)
            if not (kind(node).startswith("NllLoss") or kind(node) in PICKS):
                continue
            start = softmax_of(node)
            if start is not None and len(shape(start)) == 2 and (kind(start) == "LogSoftmax" or kind(node) in PICKS):
                of_pairs(behind(start)[0], shape(start), False, found)
                _of_candidates(behind(start)[0], shape(start), found)
    return found


def _of_sigmoids(start: Any, found: dict[str, float]) -> None:
    """Of logistic losses of a table. start: what goes into them."""
    sizes = shape(start)
    scores = scores_of(start, sizes[0]) if len(sizes) == 2 and sizes[0] == sizes[1] > 1 else None
    products = list(scores.products.values()) if scores is not None else []
    two = len(products) == 1 and len(products[0]) == 2 and _of(products[0][0]) is not _of(products[0][1])
    if two and not any(map(_is_weight, products[0])):  # one side with itself are ties, as of a graph
        found["sigmoid_pairs"] = float(sizes[0])
        _of_lengths(products[0], sizes[0], found)


def _of_candidates(start: Any, sizes: tuple[int, ...], found: dict[str, float]) -> None:
    """Of a softmax over similarities to all of a batch's other side, which has more rows, as some that were mined: how
    many they are. A layer's classes are rows of a weight."""
    if len(sizes) == 2 and 2 <= sizes[0] < sizes[1] and (scores := scores_of(start, sizes[0], sizes[1])) is not None:
        sides = [side for one in scores.products.values() for side in one]
        if len(sides) == 2 and None not in sides and not any(map(_is_weight, sides)):
            found["loss_candidates"] = float(sizes[1])


def softmax_of(node: Any) -> Any:
    """The softmax, or the logarithm of one, that a node picks from; None where there is none."""
    for _ in range(_NEAR):
        if len(behind(node)) != 1:
            return None
        node = behind(node)[0]
        if kind(node) in ("LogSoftmax", "Softmax"):
            return node
        if kind(node) not in _MOVED | {"Index", "IndexSelect", "MaskedSelect", "Slice"}:
            return None
    return None


def of_pairs(start: Any, sizes: tuple[int, ...], hidden: bool, found: dict[str, float]) -> None:
    """Of a softmax over the similarities of all pairs of a batch. start: what goes into it, of these sizes. hidden:
    whether some of them are, behind it."""
    if len(sizes) != 2 or sizes[0] < 2:
        return
    rows, scores = sizes[0], scores_of(start, sizes[0])
    columns = rows * len(scores.products) if scores is not None else 0
    if scores is None or not (sizes[1] == columns or (scores.masked and sizes[1] == columns - 1)):
        return
    every = list(scores.products.values())
    if any(len(set(map(_is_weight, sides))) > 1 for sides in every):
        return  # the classes of a layer, as many as there are rows
    masked = scores.masked or hidden
    same = [len(sides) == 2 and _of(sides[0]) is not None and _of(sides[0]) is _of(sides[1]) for sides in every]
    found["loss_pairs"] = float(columns - (masked and any(same)))  # without itself
    if not masked:
        found["similarity_to_itself"] = float(any(same))
    sides = [side for one in every for side in one]
    if not masked or any(same):
        found["pairs_unscaled"] = float(not scores.scaled and all(map(of_length_one, sides)))
    for known in (_of_any_length, of_length_one):
        if all(map(known, sides)):
            found["pairs_any_length"] = float(known is _of_any_length)
    _of_lengths(sides, rows, found)


def _of_lengths(sides: list[Any], rows: int, found: dict[str, float]) -> None:
    """Of both sides of pairs, whose examples are rows: whether one alone has length 1, and whether columns of
    one have it."""
    bare = [_unmultiplied(side) for side in sides]
    unit = [one for one in bare if of_length_one(one) and not _is_weight(_untransposed(behind(one)[0]))]
    if len(bare) == 2 and unit and any(one is not None and kind(one) in ("Addmm", "Mm") for one in bare):
        found["pairs_one_length"] = 1.0
    if any(side is not None and _across(side, rows) for side in sides):
        found["pairs_across"] = 1.0


def scores_of(node: Any, rows: int, columns: int = 0) -> Scores | None:
    """What scores are made of, if that is nothing but the products of `rows` by `rows` vectors, or by as many as there
    are columns."""
    masked = scaled = False
    for _ in range(_DEEP):
        name, under = kind(node), behind(node)
        if (sides := _sides(node, rows, columns or rows)) is not None:
            return Scores({node: sides}, masked, scaled)
        if name == "Cat":
            return _joined([scores_of(one, rows, columns) for one in under], masked, scaled)
        whole = [one for one in under if math.prod(shape(one)) == math.prod(shape(node))]
        if name in ("Mul", "Div"):
            scaled, under = True, whole
        elif name in _MASKS:
            masked, under = True, whole
        elif name in _CHOICES:
            masked = True
        elif name not in _MOVED:
            return None
        if len(under) != 1:
            return None
        node = under[0]
    return None


def _joined(parts: list[Scores | None], masked: bool, scaled: bool) -> Scores | None:
    """Of an answer and others, or of several products side by side."""
    known = [one for one in parts if one is not None]
    if not known or len(known) < len(parts):
        return None
    products = {node: sides for one in known for node, sides in one.products.items()}
    masked = masked or any(one.masked for one in known)
    return Scores(products, masked, scaled or all(one.scaled for one in known))


def _sides(node: Any, rows: int, columns: int) -> list[Any] | None:
    """Of a product of all with all: what is multiplied, but for transpositions; None of another node."""
    size, under = shape(node), behind(node)
    if kind(node) == "Mm" and size == (rows, columns):
        return [_untransposed(one) for one, _ in node.next_functions]
    if kind(node) == "Bmm" and size == (1, rows, columns):  # as of einsum
        return [_untransposed(one) for one, _ in node.next_functions]
    if kind(node) == "Sum" and size == (rows, columns) and len(under) == 1 and kind(under[0]) == "Mul":
        wide = shape(under[0])
        if len(wide) == 3 and wide[:2] == size:  # as of `cosine_similarity`
            return [one for one, _ in under[0].next_functions]
    return None


def _untransposed(node: Any) -> Any:
    """What is behind a side but for changes of shape."""
    for _ in range(_NEAR):
        if node is None or kind(node) not in _MOVED or len(behind(node)) != 1:
            break
        node = behind(node)[0]
    return node


def _of(side: Any) -> Any:
    """Whose similarities these are: what a side is made of, where its length was taken once more."""
    node = _untransposed(side)
    for _ in range(2):  # torch's `cosine_similarity` divides by lengths itself
        if node is None or kind(node) != "Div" or len(behind(node)) != 2 or kind(behind(node)[0]) != "Expand":
            break
        node = _untransposed(behind(node)[0])
    return node


def _is_weight(side: Any) -> bool:
    """Whether a side is a parameter as it is."""
    return side is not None and kind(side) == "AccumulateGrad"


def of_length_one(node: Any) -> bool:
    """Whether rows were divided by their own lengths, or are some of such, or joined of such."""
    node = _untransposed(node)
    for _ in range(_NEAR):
        if node is None or kind(node) not in _PARTS | _MOVED or len(behind(node)) != 1:
            break
        if kind(node) not in _TURNED and shape(node)[-1:] != shape(behind(node)[0])[-1:]:
            return False
        node = behind(node)[0]
    under = behind(node) if node is not None else []
    if under and kind(node) == "Cat":
        return all(map(of_length_one, under))
    if len(under) != 2 or kind(node) != "Div":
        return False
    length = _untransposed(under[1])
    if kind(length) == "Add" and len(behind(length)) == 1:  # of a small number
        length = _untransposed(behind(length)[0])
    return kind(length) in _LENGTHS


def _unmultiplied(side: Any) -> Any:
    """What is behind a side but for one number that multiplies or divides all of it."""
    node = _untransposed(side)
    for _ in range(_NEAR):
        under = behind(node) if node is not None and kind(node) in ("Mul", "Div") else []
        whole = [one for one in under if shape(one) == shape(node)]
        others = [one for one in under if one not in whole]
        if len(whole) != 1 or any(math.prod(shape(one)) != 1 for one in others):
            break
        node = _untransposed(whole[0])
    return node


def _across(node: Any, rows: int) -> bool:
    """Whether the columns of a batch's embeddings were divided by their lengths, and not its rows."""
    for _ in range(_NEAR):
        node = _untransposed(node)
        size, under = shape(node), behind(node)
        whole = [one for one in under if shape(one) == size]
        if kind(node) not in ("Mul", "Div") or len(whole) != 1:
            break
        node = whole[0]  # one number multiplies or divides it
    if kind(node) != "Div" or len(under) != 2 or len(size) != 2 or size[0] != rows or rows == size[1]:
        return False
    length = _untransposed(under[1])
    return kind(length) in _LENGTHS and shape(length) in ((1, size[1]), (size[1],)) and size[1] > 1


def _of_any_length(node: Any) -> bool:
    """Whether a tensor is what a layer gave, or is joined of such: nothing has brought it to a length."""
    under = behind(node) if node is not None else []
    return (
        all(map(_of_any_length, under)) if under and kind(node) == "Cat" else node is not None and kind(node) in _LAYERS
    )
