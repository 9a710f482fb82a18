"""The divergence of latent numbers from a normal distribution, as the graph of a loss shows it, and what is beside it.

In:   the last node of a loss's graph, when its backward pass is over.
Out:  figures for the `model` record; no tensor is read.

The divergence is known by its make, -½ (1 + log σ² - μ² - σ²): a square, a logarithm, and what the logarithm is of.
"""

from __future__ import annotations

import contextlib
from typing import Any

from barograph.probes.autograd import setting
from barograph.probes.model.objective import kind, shape

_MOST = 64  # nodes of what is added up
_NEAR = 24  # nodes behind the latent numbers, whose parameters count as theirs
_WHOLE = 2000  # nodes that are looked at for a way to the latent numbers
_ADDED = frozenset({
    "Mean", "Sum", "Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Squeeze", "Unsqueeze", "View", "UnsafeView",
    "ReshapeAlias", "Alias", "ToCopy",
})  # fmt: skip
_SHAPED = frozenset(
    {"Expand", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Alias", "ToCopy", "Clone"}
)
Place = tuple[Any, int]  # a node, and which of its outputs


def figures(root: Any) -> dict[str, float]:
    """Of a loss with one such divergence: `latent_cut`, 1 where no way leads from the rest of the loss to the latent
    numbers; `latent_logistic`, 1 where the rest is nothing but logistic losses; `latent_noise`, where it can be said of
    what is noised: 0 where nothing is, 1 with the deviation, 2 with the variance, 3 with its logarithm."""
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
    if reached is None:
        return found
    noise = _noise(rest, own) if reached else None
    return found | {"latent_cut": float(not reached)} | ({} if noise is None else {"latent_noise": noise})


def _noise(rest: list[Place], own: list[Place]) -> float | None:
    """What the noise of the latent numbers is multiplied with; None where that is not certain."""
    spread = next((under for node, _ in own if kind(node) == "Exp" for under in _under(node) if under in own), None)
    square = next((end for end in own if end != spread and kind(end[0]) != "Exp"), None)
    if spread is None or square is None:
        return None
    mean = _under(square[0])[0]
    used = _uses(rest, spread)
    if used is None:
        return None
    seen, ways = used
    if not ways:
        return 0.0 if mean in seen else None
    said = {_factor(way) for way in ways}
    return said.pop() if len(said) == 1 else None


def _uses(roots: list[Place], wanted: Place) -> tuple[set[Place], list[tuple[str, ...]]] | None:
    """All that is behind these, and for each use of a place the kinds of nodes from there on, three at most, without
    changes of shape; None where the graph is too large."""
    users: dict[Place, list[Place]] = {}
    waiting, seen = list(roots), set(roots)
    while waiting:
        if len(seen) > _WHOLE:
            return None
        place = waiting.pop()
        for under in _under(place[0]):
            users.setdefault(under, []).append(place)
            if under not in seen:
                seen.add(under)
                waiting.append(under)

    def following(place: Place, left: int) -> list[tuple[str, ...]]:
        found = []
        for user in dict.fromkeys(users.get(place, ())):
            shaped = kind(user[0]) in _SHAPED
            rest = following(user, left - (not shaped)) if left > 1 or shaped else []
            found += [(() if shaped else (kind(user[0]),)) + way for way in rest or [()]]
        return found[:8]

    return seen, following(wanted, 3)


def _factor(way: tuple[str, ...]) -> float | None:
    """What a logarithm of the variance becomes before noise is multiplied: by the kinds of nodes behind one another."""
    if way[:2] == ("Exp", "Mul"):
        return 2.0
    if way[:2] in (("Mul", "Exp"), ("Div", "Exp")) or way[:2] in (("Exp", "Sqrt"), ("Exp", "Pow")):
        return 1.0
    return 3.0 if way[:2] == ("Mul", "Add") else None


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
        return bool(setting(end[0], "exponent", 0) == 2)
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
