"""Losses of a special make, told from autograd's graph: errors beside targets, alignments, divergences, values.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read. What the nodes kept as tensors is gone; lengths are numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable
from typing import Any

from barograph.probes.autograd import setting
from barograph.probes.model.objective import behind, kind, nodes, shape
from barograph.probes.model.pairs import of_length_one

_MOST = 64  # nodes that are looked at, from the loss on
_WHOLE = 20_000  # of a graph: more are not walked
_ERRORS = ("MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy")
_LAYERS = ("Convolution", "Addmm", "Mm", "NativeBatchNorm", "CudnnBatchNorm")  # whose outputs have no bounds
_BOUNDED = {"Sigmoid": 1.0, "Softmax": 1.0, "Tanh": 2.0}
_LEAST = frozenset({"Sub", "Clamp", "ClampMin"})
_OF_TERMS = frozenset({"Mean", "Sum", "Add", "Squeeze", "Unsqueeze", "View", "Reshape", "Alias"})
_SIZES = frozenset({"Abs", "Norm", "LinalgVectorNorm"})
_OF_DISTANCES = frozenset({"Neg", "Mul", "Div", "Pow", "Abs", "Sqrt", "Norm", "LinalgVectorNorm", "Rsub"})
_LOSSES = ("NllLoss", "BinaryCrossEntropy")
_BY_NUMBERS = frozenset({"Neg", "Mul", "Div", "Squeeze", "View"})
_OF_CHANCE = _BY_NUMBERS | {"Pow", "Rsub", "Sub", "Add", "Clamp", "ClampMin", "ClampMax"}
_SHAPED = _OF_TERMS - {"Mean", "Sum", "Add"} | {"Transpose", "Permute", "ToCopy", "Clone", "UnsafeView", "Select"}


def figures(root: Any) -> dict[str, float]:
    """Of the loss whose last node this is: `loss_error`, `loss_bounded`, `loss_of_chosen`, `loss_logistic`,
    `ctc_short`, `ctc_full`, `ctc_reshaped`, `ctc_unnormalised`, `ctc_across`, `ctc_alone`, `divergence_of_chances`,
    `divergence_averaged`, `loss_ranks`, `loss_attracts`, `loss_aligns`, `loss_hinge`, `overlap_minimised`,
    `overlap_of_scores`, `focal_of_mean`; each only where it can be said."""
    found: dict[str, float] = {}
    for look in (_errors, _logistic, _walk, _between, _hinge, _overlap, _focal, _alignment_alone):
        with contextlib.suppress(Exception):  # a node of another make says nothing
            found |= look(root)
    return found


def _errors(root: Any) -> dict[str, float]:
    """`loss_error`: 1 where the loss is made of nothing but squares or sizes of differences from what has no gradient,
    or of logistic losses: of finite outputs it is finite unless a target is not. `loss_of_chosen`: 1 where the outputs
    were picked by an index, one of each row, as the values of chosen actions are. `loss_bounded`: how wide the range of
    the function is that made the outputs of such differences, where it has one."""
    waiting, picked, made = [root], False, set[str]()
    for _ in range(_MOST):
        if not waiting:
            found = {"loss_error": 1.0} | ({"loss_of_chosen": 1.0} if picked else {})
            bounded = made <= _BOUNDED.keys() and bool(made)
            return found | ({"loss_bounded": max(_BOUNDED[one] for one in made)} if bounded else {})
        node = waiting.pop()
        name, under = kind(node), behind(node)
        if name in ("Pow", "Abs") and len(under) == 1 and kind(under[0]) == "Sub":
            if name == "Pow" and setting(node, "exponent", 0) != 2:
                return {}
            under = behind(under[0])
        elif name in _OF_TERMS:
            waiting += under
            continue
        elif not name.startswith(_ERRORS):
            return {}
        if len(under) != 1:
            return {}
        picked |= _is_of_chosen(under[0])
        made.add("" if name.startswith("BinaryCrossEntropy") else _plain(under[0]))
    return {}


def _logistic(root: Any) -> dict[str, float]:
    """`loss_logistic`: where the loss is made of torch's logistic losses alone, added up, averaged, or times a number,
    of how many columns each example's are, 1 of outputs that have more or fewer than two dimensions; 0 where none of
    what is added up is one."""
    waiting, widths = [root], set[float]()
    for _ in range(_MOST):
        if not waiting:
            return {"loss_logistic": widths.pop()} if len(widths) == 1 else {}
        node = waiting.pop()
        name, under = kind(node), behind(node)
        if name in _OF_TERMS or (name in ("Mul", "Div") and len(under) == 1):
            waiting += under
        elif name.startswith("BinaryCrossEntropy"):
            sizes = shape(under[0]) if len(under) == 1 else ()
            widths.add(float(sizes[1]) if len(sizes) == 2 else 1.0)
        else:
            widths.add(0.0)
    return {}


def of_differences(near: Iterable[Any]) -> bool:
    """Whether there are squares or sizes of differences among the nodes near the loss, and no cross-entropies."""
    found = False
    for node in near:
        name, under = kind(node), behind(node)
        if name.startswith(("NllLoss", "BinaryCrossEntropy")):
            return False
        away = name in ("Pow", "Abs") and len(under) == 1 and kind(under[0]) == "Sub"
        found = found or away or name.startswith(_ERRORS[:3])
    return found


def as_distance(value: Any, near: Iterable[Any]) -> Any:
    """A mean of errors as a distance between outputs and targets: squares are none, nor is Huber's loss, which is delta
    times one."""
    squares, delta = False, 1.0
    for node in near:
        name = kind(node)
        squares = squares or name in ("Pow", "MseLoss")
        if name == "HuberLoss":
            delta = max(delta, float(setting(node, "delta", 1.0)))
    value = value / delta
    return value.sqrt() if squares else value


def _plain(node: Any) -> str:
    return kind(_shaped(node))


def _shaped(node: Any) -> Any:
    """What was given another shape, or other places."""
    for _ in range(4):
        following = behind(node)
        if kind(node) not in _SHAPED or len(following) != 1:
            break
        node = following[0]
    return node


def _is_of_chosen(node: Any) -> bool:
    """Whether one number of each row was picked, as the value of an action; of masked places rows are picked."""
    node = _shaped(node)
    sizes = shape(node)
    one = kind(node) == "Gather" and len(sizes) > 1 and sizes[-1] == 1
    return one or (kind(node) == "Index" and len(sizes) == 1)


def _between(root: Any) -> dict[str, float]:
    """`loss_attracts`: 1 where the loss is made of nothing but distances or similarities between outputs that both have
    gradients: it is least where all outputs are one. 2 where one of them was picked by an index, as a value is: the
    target is not detached. `loss_aligns`: 1 where it is made of cosines between outputs and what has no gradient. A
    difference is a distance beneath a square, a size or a length; beneath none, it may be one term less another."""
    waiting, found, aligned = [(root, False)], 0.0, 0.0
    for _ in range(_MOST):
        if not waiting:
            return {"loss_attracts": found} if found else {"loss_aligns": aligned} if aligned else {}
        node, sized = waiting.pop()
        name, under = kind(node), behind(node)
        alike = len(under) == 2 and under[0] is not under[1] and shape(under[0]) == shape(under[1])
        alike = alike and not any(kind(side) in ("Log", "Logsumexp") for side in under)  # of all that is compared
        if alike and (name.startswith(_ERRORS[:3]) or (sized and name == "Sub" and shape(node))):
            found = max(found, 1.0 + any(_plain(side) in ("Gather", "Index") for side in under))
        elif alike and name == "Mul" and len(shape(node)) > 1 and all(kind(side) == "Div" for side in under):
            found = max(found, 1.0)  # both are divided by their lengths
        elif name == "Mul" and len(under) == 1 and len(shape(node)) == 2 and of_length_one(under[0]):
            aligned = 1.0
        elif name in _OF_TERMS | _OF_DISTANCES and (len(under) == 1 or name == "Add"):
            even = name in _SIZES or (name == "Pow" and setting(node, "exponent", 1) % 2 == 0)
            waiting += [(side, sized or even) for side in under]
        else:
            return {}
    return {}


def _hinge(root: Any) -> dict[str, float]:
    """`loss_hinge`: 1 where the loss is the mean or sum of what is above 0 of a difference, as of a margin."""
    under = behind(root)
    if kind(root) not in ("Mean", "Sum") or len(under) != 1:
        return {}
    if kind(under[0]) == "ClampMin" and setting(under[0], "min", 0) != 0:
        return {}
    inner = behind(under[0])
    differs = len(inner) == 1 and kind(inner[0]) in ("Add", "Sub") and len(_terms(inner[0])) > 1
    return {"loss_hinge": 1.0} if kind(under[0]) in ("ClampMin", "Relu") and differs else {}


def _overlap(root: Any) -> dict[str, float]:
    """`overlap_minimised`: whether an overlap of the output with what has no gradient, such as Dice's or the
    intersection over the union, is in the loss with a plus: 1 is the best of it, and 0 is what the steps go for.
    `overlap_of_scores`: whether it is of what a layer gave, which may be above 1 and below 0."""
    waiting, signs, scores = [(root, 1)], set(), False
    for _ in range(_MOST):
        if not waiting:
            break
        node, sign = waiting.pop()
        name, under = kind(node), behind(node)
        if name == "Div" and len(under) == 2:
            made = _overlapping(*under)
            signs |= {sign} if made else set()
            scores |= made.startswith(_LAYERS)
        elif name in ("Neg", "Rsub") and len(under) == 1:
            waiting.append((under[0], -sign))
        elif name == "Sub":
            sides = [(following, place) for place, (following, _) in enumerate(node.next_functions)]
            waiting += [(side, -sign if place else sign) for side, place in sides if side is not None]
        elif name in _OF_TERMS:
            waiting += [(side, sign) for side in under]
    return {"overlap_minimised": float(signs == {1}), "overlap_of_scores": float(scores)} if signs else {}


def _overlapping(above: Any, below: Any) -> str:
    """What made the output, where a sum of its products with what has no gradient is divided by sums that it is a part
    of, or that its double belongs to; empty of another quotient."""
    doubled = False
    for _ in range(6):
        under = behind(above)
        if len(under) != 1 or kind(above) not in _OF_TERMS | {"Mul", "Div"} or kind(above) == "Sum":
            break
        doubled |= kind(above) == "Mul"
        above = under[0]
    products = kind(above) == "Sum" and len(behind(above)) == 1 and kind(behind(above)[0]) == "Mul"
    if not products or len(behind(behind(above)[0])) != 1:
        return ""
    sums, shared, waiting = False, False, [below]
    for _ in range(12):
        if not waiting:
            break
        node = waiting.pop()
        shared |= node is above
        sums |= kind(node) == "Sum" and node is not above
        waiting += behind(node) if kind(node) in _OF_TERMS | _LEAST and kind(node) != "Sum" else []
    found = sums and kind(below) != "Sum" and (doubled or shared)
    return _plain(behind(behind(above)[0])[0]) if found else ""


def _focal(root: Any) -> dict[str, float]:
    """`focal_of_mean`: 1 where a mean of losses is multiplied by a power of one less the exponential of its negative:
    by how wrong the batch is on the average, not by how wrong each row is. Where there are several of these, as of
    pictures one by one, nothing is said."""
    found = set[Any]()
    for node, _ in nodes([root], 16):
        sides = behind(node) if kind(node) == "Mul" and not shape(node) else []
        for factor, loss in zip(sides, sides[::-1], strict=True) if len(sides) == 2 else ():
            chance, powers = _within(factor, _OF_CHANCE)
            mean = _within(loss, _BY_NUMBERS)[0]
            if kind(chance) == "Exp" and powers and mean is _within(behind(chance)[0], _BY_NUMBERS)[0]:
                found.add(mean)
    several = len(found) == 1 and _is_mean_of_several(found.pop())
    return {"focal_of_mean": 1.0} if several else {}


def _within(node: Any, through: Collection[str]) -> tuple[Any, bool]:
    """What a number is made of but for other numbers, and whether a power other than 0 is taken of it."""
    powers = False
    for _ in range(8):
        if kind(node) not in through or len(behind(node)) != 1:
            break
        powers |= kind(node) == "Pow" and setting(node, "exponent", 1) != 0
        node = behind(node)[0]
    return node, powers


def _is_mean_of_several(node: Any) -> bool:
    """Whether it is a mean of more losses than one."""
    under = behind(node)
    if len(under) != 1 or shape(node):
        return False
    sizes, classes = shape(under[0]), kind(node).startswith("NllLoss")
    averages = kind(node) == "Mean" or (kind(node).startswith(_LOSSES) and setting(node, "reduction", 0) == 1)
    return averages and math.prod(sizes) > (sizes[1 if len(sizes) > 1 else 0] if classes else 1)


def _alignment_alone(root: Any) -> dict[str, float]:
    """`ctc_alone`: 1 where the loss is a mean or sum of alignments' losses, of a log-softmax over the classes, and of
    nothing else."""
    node = root
    for _ in range(8):
        if kind(node) not in _OF_TERMS | {"Div", "Where"} or len(behind(node)) != 1:
            break
        node = behind(node)[0]
    alone = kind(node).startswith("CtcLoss") and _of_alignment(node).get("ctc_across") == 0
    return {"ctc_alone": 1.0} if alone else {}


def _terms(node: Any) -> list[Any]:
    """What is added and taken away, at most three deep."""
    terms = [node]
    for _ in range(3):
        terms = [part for item in terms for part in (behind(item) if kind(item) in ("Add", "Sub") else [item])]
    return terms


def _margin(node: Any) -> Any:
    """What a logistic loss is of, behind numbers that it is multiplied by and what has no gradient, as a reference's
    margin."""
    for _ in range(6):
        under = behind(node)
        if len(under) != 1 or (kind(node) not in ("LogSigmoid", "Mul", "Div", "Sub", "Add", "Neg")):
            break
        node = under[0]
    return node


def _walk(root: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for node, _ in nodes([root], _MOST):
        name = kind(node)
        if name.startswith("CtcLoss"):
            found |= _of_alignment(node)
        elif name == "LogSigmoid":
            margin = _margin(node)
            found["loss_ranks"] = float(kind(margin) == "Sub" and len(behind(margin)) == 2)
        elif name in ("Sum", "Mean") and len(behind(node)) == 1 and (given := _divergence(behind(node)[0])):
            if _plain(given) in ("Softmax", "Sigmoid"):
                found["divergence_of_chances"] = 1.0
            if _plain(given) == "LogSoftmax":  # of several, the one that most classes average
                averaged = float(shape(given)[-1]) if name == "Mean" and len(shape(given)) > 1 else 0.0
                found["divergence_averaged"] = max(found.get("divergence_averaged", 0.0), averaged)
    return found


def _of_alignment(node: Any) -> dict[str, float]:
    """Of connectionist temporal classification: the share of sequences with fewer places than targets, whether the
    lengths are those of all that the model gives, or even that has not more places than there are targets, of different
    numbers of targets, and what comes before it."""
    given, wanted = (list(map(int, setting(node, f"{name}_lengths", ()))) for name in ("input", "target"))
    under = behind(node)
    found: dict[str, float] = {}
    if given and len(given) == len(wanted):
        found["ctc_short"] = sum(one < other for one, other in zip(given, wanted, strict=True)) / len(given)
    whole = shape(under[0]) if len(under) == 1 else ()
    if given and wanted and whole:
        found["ctc_full"] = float(max(*given, *wanted) >= whole[0] and len(set(wanted)) > 1)
    reshaped, inner = 0.0, under[0] if len(under) == 1 else None
    for _ in range(6):
        if inner is None or kind(inner) not in _SHAPED or len(behind(inner)) != 1:
            break
        following = behind(inner)[0]
        before, after = tuple(map(int, setting(inner, "self_sym_sizes", ()))), shape(inner)
        if kind(inner) in ("View", "Reshape", "UnsafeView") and len(before) == len(after) == 3:
            # rows and places change sides though the numbers stay where they are
            reshaped = max(reshaped, float(before[:2] == (after[1], after[0]) and before[0] != before[1]))
        inner = following
    if inner is not None and kind(inner) == "LogSoftmax" and len(whole) == 3:
        sizes, at = shape(inner), int(setting(inner, "dim"))
        found["ctc_across"] = float(sizes[at if at < len(sizes) else at - (1 << 64)] != whole[2])
    if inner is not None:
        found["ctc_reshaped"] = reshaped
        found["ctc_unnormalised"] = float(kind(inner) not in ("LogSoftmax", "Log", "Sub", "AccumulateGrad"))
    return found


def _divergence(node: Any) -> Any:
    """What torch's Kullback-Leibler divergence from a target without gradient takes for logarithms of chances; None of
    other sums."""
    if kind(node) != "Sub":
        return None
    (first, _), (second, _) = node.next_functions
    if first is not None or second is None or kind(second) != "Mul" or len(behind(second)) != 1:
        return None
    return behind(second)[0]


def trained_target(root: Any) -> list[Any]:
    """Parameters that a loss reaches by nothing but the target of a divergence, whose other side has parameters of its
    own: they learn to say what the other side says. Empty where there are none, or the graph is too large."""
    for node, _ in nodes([root], _MOST):
        under = behind(node)
        if kind(node) != "Sub" or [kind(side) for side in under] != ["Xlogy", "Mul"]:
            continue
        targets, sides = behind(under[0]), behind(under[1])
        if len(sides) != 2 or not targets or any(one is not targets[0] for one in targets) or targets[0] not in sides:
            continue
        target = targets[0]
        other = sides[1] if sides[0] is target else sides[0]
        wanted, said = leaves(target), leaves(other)
        # where the target is used elsewhere, too, its parameters are found from there
        rest = leaves(root, {(under[0], target), (under[1], target)}) if wanted and said else {}
        if rest and not wanted.keys() & rest.keys():
            return list(wanted.values())
    return []


def leaves(root: Any, without: Collection[tuple[Any, Any]] = ()) -> dict[int, Any]:
    """The parameters behind a node, but for these edges; none of a graph that is too large."""
    waiting, seen, found = [root], {root}, {}
    while waiting:
        node = waiting.pop()
        if len(seen) > _WHOLE:
            return {}
        if (leaf := getattr(node, "variable", None)) is not None:
            found[id(leaf)] = leaf
        for following in behind(node):
            if following not in seen and (node, following) not in without:
                seen.add(following)
                waiting.append(following)
    return found
