"""Losses written out in single operations: cross-entropies of pairs, divergences, preferences, sums of squares.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record, of the names that the same losses by torch's functions have; no tensor is read.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from barograph.probes.autograd import setting
from barograph.probes.model.objective import behind, kind, nodes, of_queue, plain_kind, shape, unscaled
from barograph.probes.model.pairs import PICKS, of_pairs, softmax_of

_NEAR = 32  # nodes from the loss on, between it and its terms
_SHAPED = frozenset({"View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "ToCopy",
                     "Select", "Clone"})  # fmt: skip
_HIDES = frozenset({"Mul", "MaskedFill", "Where", "Index", "MaskedSelect", "Sub", "Add", "Fill", "FillDiagonal"})
_MASKS = frozenset({"MaskedFill", "Where", "Index", "MaskedSelect", "Fill", "FillDiagonal"})
_OF_TERMS = _SHAPED | {"Neg", "Mean", "Sum", "Add", "Sub"}
_OF_SIDES = {"Mul", "Div", "Split", "SplitWithSizes", "Slice", "Index", "Unbind", "Select", "Stack", "Cat"}
_PRODUCTS = ("Addmm", "Mm", "Bmm", "NativeLayerNorm")
_CHANCES = ("LogSoftmax", "Softmax", "Logsumexp", "NllLoss")
_ERRORS = ("MseLoss", "SmoothL1Loss", "HuberLoss")
_HINGES = frozenset({"Relu", "Clamp", "ClampMin"})


def figures(root: Any) -> dict[str, float]:
    """`loss_reversed`, `loss_multiplied`, `loss_summed`, `loss_pairs` and what belongs to it, as `objective` and
    `loss_graph` have them; `loss_hides`: 1 if some of what a cross-entropy's sums are over is hidden, or left out,
    which may be the answers themselves; `preference_averaged`: whether the log probabilities of a preference's answers
    are averaged over their tokens; `preference_compared`: 1 or 2 where such answers are compared by squares or hinges;
    `squares_added`: how many squares, or sizes, of differences are added up for each that an average is over, and
    `squares_of_batch`: whether no average is over them; `scaled_squares_added`: the same number where the whole is
    multiplied or divided by one that is not to be seen, as by the number of micro-batches; `errors_averaged`: how many
    differences are averaged, or added up, before each square or size is taken."""
    found: dict[str, float] = {}
    for look in (_cross_entropy, _divergence, _preference, _compared, _squares, _averaged):
        with contextlib.suppress(Exception):  # a node of another make says nothing
            found |= look(root)
    return found


def _terms(root: Any) -> tuple[list[tuple[Any, int]], bool, bool]:
    """What a loss is made of by means, sums and differences, each with its sign; whether something multiplies or
    divides it; whether it has means."""
    waiting, found = [(root, 1)], list[tuple[Any, int]]()
    scaled = averaged = False
    for _ in range(_NEAR):
        if not waiting:
            return found, scaled, averaged
        node, sign = waiting.pop()
        name, given = kind(node), node.next_functions
        ends = _exponentials(node) is not None or _is_divergence(node)
        if ends or name not in _OF_TERMS | {"Mul", "Div"} or (name in ("Mul", "Div") and len(behind(node)) != 1):
            found.append((node, sign))
            continue
        scaled |= name in ("Mul", "Div")
        averaged |= name == "Mean"
        sides = [(one, -sign if name == "Neg" or (name == "Sub" and place) else sign)
                 for place, (one, _) in enumerate(given) if one is not None]  # fmt: skip
        beside = name in ("Add", "Sub") and any(_exponentials(one) is not None for one, _ in sides)
        if beside and len({shape(one) for one, _ in sides}) == 1:  # a row's answer is one of them
            found += sides
        else:
            waiting += sides
    return [], False, False


def _exponentials(node: Any) -> tuple[Any, bool, int] | None:
    """Of the logarithm of a sum of exponentials, or of a share in such a sum: what goes into the exponentials; whether
    some of them are hidden; 1 where the loss has it with a plus, and −1 of a share. None of another node."""
    if kind(node) == "Logsumexp":
        return behind(node)[0], False, 1
    if (softmax := _picked(node)) is not None:
        return behind(softmax)[0], False, -1
    inner, sign = (behind(node)[0] if kind(node) == "Log" and len(behind(node)) == 1 else None), 1
    if inner is not None and kind(inner) == "Div" and len(behind(inner)) == 2:
        if plain_kind(behind(inner)[0]) == "Sum":
            return None  # of several answers
        inner, sign = behind(inner)[1], -1
    hidden = False
    for _ in range(3):  # what is added to a sum, or taken from it, such as a row's own
        sums = [one for one in behind(inner) if kind(one) == "Sum"] if inner is not None else []
        if inner is None or kind(inner) not in _SHAPED | {"Add", "Sub"} or (kind(inner) in ("Add", "Sub") and not sums):
            break
        hidden |= kind(inner) in ("Add", "Sub")
        inner = sums[0] if kind(inner) in ("Add", "Sub") else behind(inner)[0]
    if inner is None or kind(inner) != "Sum" or len(shape(inner)) == 0:
        return None
    under = behind(inner)
    for _ in range(6):
        if len(under) != 1 or kind(under[0]) not in _SHAPED | _HIDES:
            break
        hidden |= kind(under[0]) in _HIDES
        under = behind(under[0])
    return (under[0], hidden, sign) if len(under) == 1 and kind(under[0]) == "Exp" else None


def _is_masked(node: Any) -> bool:
    """Whether something is hidden in what goes into a sum of exponentials."""
    for _ in range(6):
        if kind(node) in _MASKS:
            return True
        if len(behind(node)) != 1 or kind(node) not in _SHAPED | {"Mul", "Div", "Add", "Sub", "Transpose", "T"}:
            return False
        node = behind(node)[0]
    return False


def _picked(node: Any) -> Any:
    """The softmax of which this is the logarithm of each row's answer; None of another node."""
    if kind(node) in PICKS:
        softmax = softmax_of(node)
        return softmax if softmax is not None and kind(softmax) == "LogSoftmax" else None
    for _ in range(2):  # something small is added, or is the least
        node = behind(node)[0] if kind(node) in ("Log", "Add", "ClampMin") and len(behind(node)) == 1 else node
    softmax = softmax_of(node) if kind(node) in PICKS else None
    return softmax if softmax is not None and kind(softmax) == "Softmax" else None


def _cross_entropy(root: Any) -> dict[str, float]:
    terms, scaled, averaged = _terms(root)
    wholes = [(node, sign, made) for node, sign in terms if (made := _exponentials(node)) is not None]
    if not wholes:
        return {}
    signs = {sign * made[2] for _, sign, made in wholes}
    others = [(shape(node), sign) for node, sign in terms if _exponentials(node) is None]
    answers = [(shape(node), -sign) for node, sign, made in wholes if made[2] > 0]
    if len(signs) != 1 or sorted(others) != sorted(answers):  # each beside its answer, and nothing else
        return {}
    picked = any(_picked(node) is not None for node, _, _ in wholes)
    if picked and scaled:
        return {}  # weights of rows, which may be those of a policy's advantages
    found = {"loss_multiplied": 1.0} if scaled else {"loss_reversed": float(signs == {-1})}
    if picked:
        return found  # the rest is known of every pick
    if any(hidden or _is_masked(exponent) for _, _, (exponent, hidden, _) in wholes):
        found["loss_hides"] = 1.0
    if not scaled and not averaged and len(wholes) == 1:
        found["loss_summed"] = float(math.prod(shape(wholes[0][0])))
    for _, _, (exponent, hidden, _) in wholes:
        start = behind(exponent)[0] if kind(exponent) == "Exp" else exponent
        of_pairs(start, shape(exponent), hidden, found)
        of_queue(start if kind(start) == "Cat" else unscaled(start), found)
    return found


def _is_divergence(node: Any) -> bool:
    """Whether a node is torch's Kullback-Leibler divergence of a log-softmax from chances without gradient."""
    if kind(node) != "Sub" or len(node.next_functions) != 2:
        return False
    (first, _), (second, _) = node.next_functions
    product = first is None and second is not None and kind(second) == "Mul" and len(behind(second)) == 1
    return product and plain_kind(behind(second)[0]) == "LogSoftmax"


def _divergence(root: Any) -> dict[str, float]:
    terms, scaled, averaged = _terms(root)
    if len(terms) != 1 or not _is_divergence(terms[0][0]):
        return {}
    (node, sign), *_ = terms
    if scaled:
        return {"loss_multiplied": 1.0}
    found = {"loss_reversed": float(sign < 0)}
    rows = math.prod(shape(node)[:-1])
    return found if averaged else found | {"loss_summed": float(rows)}


def _preference(root: Any) -> dict[str, float]:
    """Of the logistic loss of a difference of log probabilities, from which those of a reference are subtracted: where
    there is none, as in SimPO, averages are meant. `preference_averaged`: the share of the answers that are averaged;
    `preference_of_chances`: 1 where what is added up over an answer's tokens are chances, and not their logarithms;
    `preference_divided`: whether they are so by a division alone, and by what is gone with the backward pass. Where it
    is of two answers' log probabilities alone, `preference_alone`: 1."""
    start = next((node for node, _ in nodes([root], 8) if kind(node) == "LogSigmoid"), None)
    means, sums, others, apart = _of_answers(start) if start is not None else (0, 0, 0, False)
    if not (others or means + sums > 2):
        alone = {"preference_alone": 1.0} if apart and means + sums == 2 else {}
        return _unbounded(root) if start is None else alone
    found = {"preference_averaged": means / (means + sums)}
    if start is not None and any(map(_adds_chances, (node for node, _ in nodes([start], _NEAR)))):
        found["preference_of_chances"] = 1.0
    mean = any(kind(node) == "Mean" and len(shape(node)) == 1 for node, _ in nodes([start], _NEAR))
    return found | ({} if mean or not means else {"preference_divided": 1.0})


def _unbounded(root: Any) -> dict[str, float]:
    """`preference_unbounded`: whether a loss is nothing but the difference of two answers' log probabilities, less what
    has no gradient, and times a number or not. Where each answer is multiplied by a number of its own, as by an
    advantage, nothing is said."""
    means, sums, others, apart = _of_answers(root)
    if not (others and apart and means + sums == 2):
        return {}
    node = root
    while len(behind(node)) == 1:
        node = behind(node)[0]
    waiting = behind(node)
    while waiting:  # down to the answers, which are numbers of one dimension
        node = waiting.pop()
        if kind(node) == "Mul":
            return {}
        if kind(node) not in ("Sum", "Mean"):
            waiting += behind(node)
    return {"preference_unbounded": 1.0}


def _compared(root: Any) -> dict[str, float]:
    """Of a loss that is nothing but squares, or hinges, of differences between the log probabilities of answers, as
    IPO's and SLiC's are, less a number or not: 2 of squares where more than one number without gradient is added or
    subtracted, so that those of a reference are among them."""
    node = root
    for _ in range(8):
        name, under = kind(node), behind(node)
        if len(under) != 1:
            return {}
        if name == "MseLoss" or name in _HINGES or (name == "Pow" and setting(node, "exponent", 0) == 2):
            break
        if name not in _SHAPED | {"Mean", "Sum", "Mul", "Div"}:
            return {}
        node = under[0]
    else:
        return {}
    means, sums, others, apart = _of_answers(node)
    referred = others > 1 and kind(node) not in _HINGES
    return {"preference_compared": 1.0 + referred} if apart and means + sums else {}


def _of_answers(start: Any) -> tuple[int, int, int, bool]:
    """Of a function of log probabilities that were averaged, or added up, over the tokens of answers: how many are
    averages, and how many are sums; how often something without gradient is added or subtracted; whether one is
    subtracted from another. Nothing of other numbers."""
    means, sums, others, apart = 0, 0, 0, False
    waiting, averaged = behind(start), list[Any]()
    for _ in range(_NEAR):
        if not waiting:
            break
        node = waiting.pop()
        name, under = kind(node), behind(node)
        inner = under[0] if len(under) == 1 else None
        others += name in ("Sub", "Add") and inner is not None
        apart |= name == "Sub" and len(under) == 2
        if name in ("Mean", "Sum") and inner is not None and len(shape(node)) == 1 and len(shape(inner)) == 2:
            means, sums = means + (name == "Mean"), sums + (name == "Sum")
            averaged.append(inner)
        elif name == "Div" and inner is not None and kind(inner) == "Sum" and len(shape(behind(inner)[0])) == 2:
            means += len(shape(node)) == 1  # by each answer's count
            averaged += behind(inner)
        elif name in _OF_TERMS | _OF_SIDES | {"Rsub"}:
            waiting += under
        else:
            return 0, 0, 0, False
    of_chances = bool(averaged) and all(map(_is_log_probability, averaged))
    return (means, sums, others, apart) if of_chances else (0, 0, 0, False)


def _adds_chances(node: Any) -> bool:
    """Whether a node adds up, or averages, over the tokens of answers what a softmax gave, without a logarithm."""
    under = behind(node)
    if kind(node) not in ("Sum", "Mean") or len(shape(node)) != 1 or len(under) != 1 or len(shape(under[0])) != 2:
        return False
    for _ in range(8):
        name = kind(under[0])
        if name in ("Exp", "Softmax"):
            return True
        under = behind(under[0])
        if len(under) != 1 or name in ("Log", "LogSoftmax"):
            return False
    return False


def _is_log_probability(node: Any) -> bool:
    """Whether a softmax is right behind numbers, and not the scores of a reward."""
    waiting = [node]
    for _ in range(16):
        if not waiting:
            break
        node = waiting.pop(0)
        if kind(node).startswith(_CHANCES):
            return True
        waiting += behind(node) if kind(node) not in _PRODUCTS else []  # attention has a softmax of its own
    return False


def _squares(root: Any) -> dict[str, float]:
    """Of a loss that is one sum of squares or sizes of differences from what has no gradient, or averages of such sums,
    that nothing multiplies or divides, or weights of rows alone, ahead of the square or behind it, or, apart from the
    others, one number the whole."""
    scaled = kind(root) in ("Mul", "Div") and not shape(root) and len(behind(root)) == 1
    node, averaged, summed, weighted = behind(root)[0] if scaled else root, 1.0, False, False
    for _ in range(8):
        name, under = kind(node), behind(node)
        if name.startswith(_ERRORS) and len(under) == 1:
            size, whole = math.prod(shape(under[0])), setting(node, "reduction", 0)
            break
        inner = _unweighed(under[0]) if len(under) == 1 else None
        squared = name in ("Pow", "Abs") and inner is not None and _is_difference(inner)
        if squared and (name == "Abs" or setting(node, "exponent", 0) == 2):
            size, whole, weighted = math.prod(shape(node)), 0, weighted or inner is not under[0]
            break
        weighs = name == "Mul" and not weighted and len(shape(node)) > 0
        if not (weighs or name in _SHAPED | {"Mean", "Sum"}) or len(under) != 1:
            return {}
        if weighs and shape(node) != shape(under[0]):
            return {}  # a product that is wider than what goes into it
        weighted |= weighs
        if name == "Mean":
            averaged *= math.prod(shape(under[0])) / max(1, math.prod(shape(node)))
        summed |= name == "Sum"
        node = under[0]
    else:
        return {}
    if scaled:
        return {"scaled_squares_added": size / averaged} if summed or whole == 2 else {}
    prefix = "weighted_" if weighted else ""
    if whole == 1 or not (summed or whole == 2):
        return {} if weighted else {"squares_added": 1.0}
    return {f"{prefix}squares_added": size / averaged} | (
        {} if weighted else {"squares_of_batch": float(averaged == 1)}
    )


def _unweighed(node: Any) -> Any:
    """What is multiplied by weights without gradient before it is squared; what is not multiplied so itself."""
    under = behind(node)
    weighs = kind(node) == "Mul" and len(under) == 1 and shape(node) == shape(under[0]) and len(shape(node)) > 0
    return under[0] if weighs else node


def _is_difference(node: Any) -> bool:
    """Whether a node is the difference between an output and what has no gradient; or their sum, as of the noise that a
    score is to undo, times its level."""
    return kind(node) in ("Sub", "Add") and len(behind(node)) == 1


def _averaged(root: Any) -> dict[str, float]:
    """Of a loss that is nothing but squares or sizes of means, or sums, of differences between an output and what has
    no gradient: with either sign they make up for each other."""
    node = root
    for _ in range(8):
        name, under = kind(node), behind(node)
        if len(under) != 1:
            return {}
        if name == "Abs" or (name == "Pow" and setting(node, "exponent", 0) == 2):
            break
        if name not in _SHAPED | {"Mean", "Sum"} and not (name in ("Mul", "Div") and not shape(node)):
            return {}
        node = under[0]
    else:
        return {}
    size, node = max(1, math.prod(shape(node))), behind(node)[0]
    for _ in range(4):
        if kind(node) not in _SHAPED | {"Mean", "Sum"} or len(behind(node)) != 1:
            break
        node = behind(node)[0]
    whole = math.prod(shape(node)) if shape(node) else 1
    alike = kind(node) == "Sub" and len(behind(node)) == 1 and shape(behind(node)[0]) == shape(node)
    return {"errors_averaged": whole / size} if alike and whole > size else {}
