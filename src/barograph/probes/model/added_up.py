"""What a sum adds up: cross-entropies or logistic losses, told from autograd's graph of a loss.

In:   nodes of the graph.
Out:  how many they are; figures of a sum whose rows have weights.
"""

from __future__ import annotations

import math
from typing import Any

from barograph.probes.autograd import has, setting
from barograph.probes.model.objective import behind, kind, nodes, shape

SHAPED = {
    "View", "UnsafeView", "Reshape", "ReshapeAlias", "Permute", "Transpose", "T", "Select", "Slice", "Squeeze",
    "Unsqueeze", "Expand", "ToCopy", "Clone", "Alias", "Index", "Split", "SplitWithSizes", "Unbind",
}  # fmt: skip
_NEAR = 32  # nodes between a loss and its terms
_ENTROPIES = ("NllLoss", "BinaryCrossEntropy")


def under(node: Any) -> Any:
    """What is behind a node but for changes of shape; None where that is not one node."""
    for _ in range(8):
        following = behind(node)
        if len(following) != 1:
            return None
        node = following[0]
        if kind(node) not in SHAPED:
            return node
    return None


def classes_of(term: Any) -> float:
    """Of a cross-entropy; NaN of another loss."""
    inner = under(term) if kind(term).startswith("NllLoss") else None
    if inner is None or kind(inner) != "LogSoftmax":
        return math.nan
    sizes, at = inner._input_metadata[0].shape, setting(inner, "dim")
    return float(sizes[at if at < len(sizes) else at - (1 << 64)])


def elements(term: Any) -> float:
    """How many cross-entropies or logistic losses a sum adds up; NaN of a sum of anything else."""
    if kind(term) != "Sum":
        return _of_function(term)
    inner = next(iter(behind(term)), None)
    each = each_of(inner) if inner is not None else math.nan
    return float(math.prod(setting(term, "self_sym_sizes"))) / each


def weighed(root: Any) -> dict[str, float]:
    """`weighed_sum`: how many cross-entropies or logistic losses are added up, each times a weight of its own that has
    no gradient, or that of its class, in a loss that is nothing but this sum. Numbers may multiply or divide it, that
    of micro-batches or the sum of the weights: the graph does not know them."""
    node = root
    for _ in range(6):
        if kind(node) not in SHAPED | {"Neg", "Div", "Mul"} or len(behind(node)) != 1 or shape(node) not in ((), (1,)):
            break
        node = behind(node)[0]
    added = kind(node).startswith("NllLoss") and setting(node, "reduction", None) == 2
    if added and has(node, "weight") is not False:  # of classes; or it was let go of with the graph
        count = elements(node)
        return {"weighed_sum": count} if math.isfinite(count) else {}
    rows = under(node) if kind(node) == "Sum" else None
    if rows is not None and kind(rows).startswith("NllLoss") and has(rows, "weight") is not False:
        return {"weighed_sum": float(math.prod(shape(rows)))} if each_of(rows) == 1.0 else {}
    if rows is not None and kind(rows) == "Neg":
        rows = under(rows)
    if rows is None or kind(rows) != "Mul" or len(behind(rows)) != 1 or _is_soft(rows):
        return {}
    each = behind(rows)[0]
    whole = shape(each) == shape(rows) and each_of(each) == 1.0
    return {"weighed_sum": float(math.prod(shape(rows)))} if whole else {}


def crossed(root: Any) -> dict[str, float]:
    """`weights_crossed`: of a loss that is the mean of products with weights that have no gradient, how many rows of
    one number each became as many columns there, for the weights lie the other way: each of them weighs all rows."""
    node = root
    for _ in range(8):
        if kind(node) == "Mean" or kind(node) not in SHAPED | {"Neg", "Div", "Mul"} or len(behind(node)) != 1:
            break
        node = behind(node)[0]
    product = next(iter(behind(node)), None) if kind(node) == "Mean" and shape(node) == () else None
    rows = behind(product) if product is not None and kind(product) in ("Mul", "Div") else []
    if len(rows) != 1:
        return {}
    size, whole, node = shape(rows[0]), shape(product), rows[0]
    count = math.prod(size)
    if whole != (count, count) or size not in ((count,), (count, 1)):
        return {}
    for _ in range(6):
        name, following = kind(node), behind(node)
        if name.startswith(_ENTROPIES) or name in ("LogSigmoid", "MseLoss", "SmoothL1Loss", "HuberLoss"):
            return {"weights_crossed": float(count)}
        if len(following) != 1:
            break
        if name in ("Mean", "Sum") and math.prod(shape(following[0])) > count:  # of what belongs to a row
            return {"weights_crossed": float(count)}
        if name == "Pow" or (name == "Abs" and kind(following[0]) == "Sub"):
            return {"weights_crossed": float(count)}
        if name not in SHAPED | {"Neg"}:
            break
        node = following[0]
    return {}


def total_beside(root: Any) -> dict[str, float]:
    """`total_beside_mean`: of a mean of logistic losses to which a sum of all log probabilities of texts is added,
    times a number and divided by none: how many texts it is of. What divides both is not meant."""
    node = root
    while kind(node) in SHAPED | {"Mul", "Div", "Neg"} and len(behind(node)) == 1:
        node = behind(node)[0]
    waiting, mean, count = [(node, False)], False, 0.0
    for _ in range(_NEAR):
        if not waiting:
            break
        node, divided = waiting.pop()
        name, following = kind(node), behind(node)
        if name == "Mean":
            mean |= any(kind(one) == "LogSigmoid" for one, _ in nodes([node], 6))
        elif name == "Sum" and len(following) == 1 and len(shape(following[0])) == 1 and shape(node) == ():
            count = max(count, 0.0 if divided else _texts(following[0]))
        elif name in ("Neg", "Add", "Sub", "Mul", "Div", *SHAPED) and shape(node) in ((), (1,)):
            waiting += [(one, divided or name == "Div") for one in following]
    return {"total_beside_mean": count} if mean and count else {}


def _texts(node: Any) -> float:
    """Of how many texts a line of numbers has the log probabilities, each a sum over a text's tokens; 0 of others."""
    count = math.prod(shape(node))
    for _ in range(8):
        following = behind(node)
        if len(following) != 1 or kind(node) not in SHAPED | {"Neg"}:
            break
        node = following[0]
    inner = behind(node) if kind(node) == "Sum" and len(shape(node)) == 1 else []
    if len(inner) != 1 or len(shape(inner[0])) != 2:
        return 0.0
    chances = any(kind(one) == "LogSoftmax" for one, _ in nodes(inner, 8))
    return float(count) if chances else 0.0


def _of_function(term: Any) -> float:
    """The same as `elements` of a function of torch's that adds up."""
    if not kind(term).startswith(_ENTROPIES):
        return math.nan
    inner = under(term)
    sizes = inner._input_metadata[0].shape if inner is not None else ()
    size = float(math.prod(sizes)) if sizes else math.nan
    return size / classes_of(term) if kind(term).startswith("NllLoss") else size


def each_of(node: Any, products: int = 3) -> float:
    """Of how many elements one loss is, among those that are added up: 1, or the classes of targets that are soft; NaN
    of anything else. Of chances that are multiplied, as by advantages, nothing is said."""
    picked = False
    for _ in range(12):
        name, following = kind(node), behind(node)
        if name == "LogSigmoid" or name.startswith(_ENTROPIES):
            return 1.0
        if name == "LogSoftmax":
            return 1.0 if picked else math.nan
        if name == "Mul" and len(following) == 2:  # a loss that its own chance weighs
            some = (each_of(one, products - 1) for one in following if products)
            return 1.0 if any(each == 1 for each in some) else math.nan
        if len(following) != 1:
            return math.nan
        if name == "Sum":
            return 1.0 if _is_soft(following[0]) else math.nan
        if name == "Mul":
            return float(shape(following[0])[-1]) if _is_soft(node) else math.nan
        if name not in SHAPED | {"Neg", "Gather"}:
            return math.nan
        picked |= name in ("Gather", "Select", "Index")
        node = following[0]
    return math.nan


def _is_soft(node: Any) -> bool:
    """Whether a node is the product of targets with the logarithms of chances, of one size."""
    for _ in range(3):
        following = behind(node)
        if len(following) != 1:
            return False
        if kind(node) == "Mul":
            return kind(following[0]) == "LogSoftmax" and shape(node) == shape(following[0])
        if kind(node) != "Neg":
            return False
        node = following[0]
    return False
