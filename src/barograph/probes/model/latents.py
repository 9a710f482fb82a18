"""The divergence of latent numbers from a normal distribution, as the graph of a loss shows it, and what is beside it.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read.

The divergence is known by its make, -½ (1 + log σ² - μ² - σ²): a square, a logarithm, and what the logarithm is of.
"""

from __future__ import annotations

import contextlib
from typing import Any

from barograph.probes.model.objective import kind, shape

_MOST = 64  # nodes of what is added up
_NEAR = 24  # nodes behind the latent numbers, whose parameters count as theirs
_WHOLE = 2000  # nodes that are looked at for a way to the latent numbers
_ADDED = frozenset({
    "Mean", "Sum", "Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Squeeze", "Unsqueeze", "View", "UnsafeView",
    "ReshapeAlias", "Alias", "ToCopy",
})  # fmt: skip
Place = tuple[Any, int]  # a node, and which of its outputs


def figures(root: Any) -> dict[str, float]:
    """Of a loss with one such divergence: `latent_cut`, 1 where no way leads from the rest of the loss to the latent
    numbers; `latent_logistic`, 1 where the rest is nothing but logistic losses."""
    with contextlib.suppress(Exception):  # a node of another make says nothing
        return _figures(root)
    return {}


def _figures(root: Any) -> dict[str, float]:
    ends = _ends(root, frozenset())
    inner = frozenset(under for node, _ in ends if kind(node) in ("Exp", "Log") for under in _under(node))
    if not inner:
        return {}
    ends = _ends(root, inner)
    own = _divergence(ends)
    rest = [end for end in ends if end not in own]
    if not own or not rest:
        return {}
    found = {"latent_logistic": float(all(kind(node).startswith("BinaryCrossEntropy") for node, _ in rest))}
    numbers = {_source(end)[0] for end in own}
    reached = _reaches([node for node, _ in rest], numbers | _weights(numbers))
    return found if reached is None else found | {"latent_cut": float(not reached)}


def _ends(root: Any, inner: frozenset[Place]) -> list[Place]:
    """What a loss is the sum of, but for factors; nothing where that is too much. inner: where it ends anyway."""
    ends: dict[Place, None] = {}
    waiting: list[Place] = [(root, 0)]
    for _ in range(_MOST):
        if not waiting:
            return list(ends)
        place = waiting.pop()
        under = _under(place[0])
        product = len(under) > 1 and kind(place[0]) in ("Mul", "Div")
        if place in inner or product or kind(place[0]) not in _ADDED:
            ends[place] = None
        else:
            waiting += under
    return []


def _under(node: Any) -> list[Place]:
    return [(following, place) for following, place in node.next_functions if following is not None]


def _source(place: Place) -> Place:
    """What a square, a logarithm or an exponential is of, but for shifts and factors."""
    for _ in range(6):
        under = _under(place[0])
        square = kind(place[0]) == "Mul" and len(under) == 2 and under[0] == under[1]
        if not square and (len(under) != 1 or kind(place[0]) not in _ADDED | {"Pow", "Exp", "Log"}):
            break
        place = under[0]
    return place


def _divergence(ends: list[Place]) -> list[Place]:
    """The ends that are those of one divergence; none where it is not certain which."""
    squares = [end for end in ends if _is_square(end)]
    spreads = [
        pair
        for end in ends
        for pair in ([(end, under) for under in _under(end[0]) if under in ends] if kind(end[0]) == "Exp" else
                     [(end, one) for one in squares if _source(one) == _source(end)] if kind(end[0]) == "Log" else [])
    ]  # fmt: skip
    if len(spreads) != 1:
        return []
    pair = spreads[0]
    means = [one for one in squares if one not in pair and shape(one[0]) == shape(pair[0][0])]
    return [*pair, *means] if len(means) == 1 else []


def _is_square(end: Place) -> bool:
    under = _under(end[0])
    if kind(end[0]) == "Pow":
        return getattr(end[0], "_saved_exponent", 0) == 2
    return kind(end[0]) == "Mul" and len(under) == 2 and under[0] == under[1]


def _weights(numbers: set[Any]) -> set[Any]:
    """Parameters of the layers that say the latent numbers: of an encoder that ran twice, the rest reaches these."""
    waiting, found = list(numbers), set[Any]()
    for _ in range(_NEAR):
        if not waiting:
            break
        node = waiting.pop(0)
        found |= {node} if kind(node) == "AccumulateGrad" else set()
        waiting += [following for following, _ in _under(node)]
    return found


def _reaches(roots: list[Any], wanted: set[Any]) -> bool | None:
    """Whether a way leads from these nodes to those; None where the graph is too large to say."""
    waiting, seen = list(roots), set(roots)
    while waiting:
        if len(seen) > _WHOLE:
            return None
        node = waiting.pop()
        if node in wanted:
            return True
        fresh = {following for following, _ in _under(node)} - seen
        seen |= fresh
        waiting += fresh
    return False
