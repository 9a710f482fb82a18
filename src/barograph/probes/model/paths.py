"""Which ways lead around the layers of a model: skip connections that are missing, layers with no function between.

In:   the last node of a loss's graph, when a backward pass is over.
Out:  figures for the `model` record; nodes and sizes alone are read.

A graph is put into an order in which each node stands before what it was made of. Where no edge from before a node
leads past it, all that is made earlier goes through it: there is no way around.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from barograph.probes.model.objective import behind, kind, shape

_WHOLE = 20_000  # nodes of a graph: more are not walked
_SHAPED = frozenset(
    {
        "View",
        "UnsafeView",
        "Reshape",
        "ReshapeAlias",
        "Permute",
        "Transpose",
        "T",
        "Unsqueeze",
        "Squeeze",
        "Expand",
        "ToCopy",
        "Clone",
        "Alias",
        "Slice",
        "Select",
        "NativeDropout",
    }
)
_FACTORS = frozenset({"Mul", "Div"})  # dropout is one of a tensor of zeros and others
_SCORED = _SHAPED | _FACTORS | {"Add", "Sub", "MaskedFill", "Where", "Tril", "CopySlices"}  # from softmax to scores
_WHOLE_ATTENTION = ("ScaledDotProduct", "EfficientAttention", "FlashAttention")
_PRODUCTS = ("Bmm", "Baddbmm")
_LINEAR = ("Addmm", "Mm")
_FUNCTIONS = frozenset(
    {"Relu", "Gelu", "Silu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "Hardswish", "Hardtanh", "Mish", "Softplus",
     "Threshold", "Prelu", "PreluKernel"}
)  # fmt: skip
_STRAIGHT = _SHAPED | {
    *_LINEAR, *_PRODUCTS, "Add", "Sub", "Neg", "Div", "Mul", "Cat", "Stack", "Mean", "Sum", "Embedding", "Softmax",
    "NativeLayerNorm", "NativeBatchNorm", "NativeGroupNorm", "CudnnBatchNorm", "Convolution", "MkldnnConvolution",
    "AvgPool2D", "AdaptiveAvgPool2D", "AdaptiveAvgPool1D", "MaskedFill", "Where", "Index", "IndexSelect", "Split",
    "SplitWithSizes", "Unbind", "AccumulateGrad", "Pow", "Rsqrt", "Sqrt", "FusedRmsNorm",
}  # fmt: skip
"""Nodes that work on whole rows, or add and scale: a graph with others is left alone."""


def figures(root: Any) -> dict[str, float]:
    """`attention_unskipped`: layers of attention, two at least, that all of what is before them goes through.
    `feeding_unskipped`: functions of single numbers between attentions, which have ways around, of which it is so.
    `layers_joined`: linear layers that stand right behind another one, as wide as the narrower of what they join, where
    no function of single numbers is anywhere between the layers."""
    graph = _Graph(root)
    if not graph.order:
        return {}
    found: dict[str, float] = {}
    attention = [at for at in graph.order if graph.attends(at)]
    if len(attention) > 1:
        through = graph.passed()
        skipless = [at for at in attention if at in through]
        if len(skipless) > 1 and len({shape(graph.nodes[at]) for at in skipless}) == 1:
            found["attention_unskipped"] = float(len(skipless))
        elif not skipless and (count := graph.fed(attention, through)):
            found["feeding_unskipped"] = float(count)
    joined = graph.joined()
    return found | ({"layers_joined": float(joined)} if joined else {})


class _Graph:
    """A graph with its weights left out, each node asked once: nodes are numbers."""

    def __init__(self, root: Any) -> None:
        self.nodes: list[Any] = [root]
        self.kinds: list[str] = []
        self.made_of: list[list[int]] = []  # without weights, each once
        self.weights: list[list[Any]] = []  # nodes that are changes of a weight's shape, or weights
        self.order: list[int] = []  # each before what it was made of; empty of a graph that is too large
        numbers, names = {root: 0}, dict[type, str]()
        weighs = dict[Any, bool]()
        for node in self.nodes:  # it grows as it is read
            self.kinds.append(_name(node, names))
            parts, weights = list[int](), list[Any]()
            for one in dict.fromkeys(behind(node)):
                if one not in numbers and _is_weight(one, names, weighs):
                    weights.append(one)
                    continue
                if one not in numbers:
                    numbers[one] = len(self.nodes)
                    self.nodes.append(one)
                parts.append(numbers[one])
            self.made_of.append(parts)
            self.weights.append(weights)
            if len(self.nodes) > _WHOLE:
                return
        self.users = [0] * len(self.nodes)
        for parts in self.made_of:
            for at in parts:
                self.users[at] += 1
        waits, ready = list(self.users), [0]
        while ready:
            at = ready.pop()
            self.order.append(at)
            for one in self.made_of[at]:
                waits[one] -= 1
                if not waits[one]:
                    ready.append(one)

    def passed(self) -> set[int]:
        """Nodes that no way leads around."""
        place = [0] * len(self.nodes)
        for number, at in enumerate(self.order):
            place[at] = number
        found, far = set[int](), 0
        for number, at in enumerate(self.order):
            if far == number:
                found.add(at)
            far = max([far, *(place[one] for one in self.made_of[at])])
        return found

    def attends(self, at: int) -> bool:
        """Whether a node averages values with the softmax of products of queries and keys."""
        if self.kinds[at].startswith(_WHOLE_ATTENTION):
            return True
        return self.kinds[at] == "Bmm" and any(
            self.kinds[one] == "Softmax" and any(map(self._is_product, self.under(self.made_of[one], _SCORED)))
            for one in self.under(self.made_of[at], _SHAPED | _FACTORS)
        )

    def _is_product(self, at: int) -> bool:
        return self.kinds[at] in _PRODUCTS and len(self.made_of[at]) > 1

    def under(self, numbers: Iterable[int], through: frozenset[str]) -> Iterator[int]:
        """What stands behind some nodes but for those kinds of nodes."""
        waiting = list(numbers)
        for _ in range(32):
            if not waiting:
                return
            at = waiting.pop()
            if self.kinds[at] in through:
                waiting += self.made_of[at]
            else:
                yield at

    def fed(self, attention: list[int], through: set[int]) -> int:
        """How many functions behind linear layers, of those between two layers of attention, all goes through."""
        first, last = (self.order.index(at) for at in (attention[0], attention[-1]))
        inside = self.order[first:last]
        if any(self.kinds[at].endswith("Convolution") for at in inside):
            return 0
        functions = [at for at in inside if self._is_function(at)]
        alone = [at for at in functions if at in through]
        rows = min((math.prod(shape(self.nodes[at])[:-1]) for at in alone), default=0)
        # what joins two stages, as a projector does, stands beside feed-forward layers that have a way around; one row
        # a sequence, as of a condition, is none of these
        beside = any(
            len(sizes) > 2 or math.prod(sizes[:-1]) >= rows
            for sizes in (shape(self.nodes[at]) for at in functions if at not in through)
        )
        return 0 if beside else len(alone)

    def _is_function(self, at: int) -> bool:
        """Whether a node is a function of what a linear layer gave, or a product with one."""
        sides = self.made_of[at] if self.kinds[at] == "Mul" else [at]
        return any(
            self.kinds[one] in _FUNCTIONS
            and any(self.kinds[layer] in _LINEAR for layer in self.under(self.made_of[one], _SHAPED))
            for one in sides
        )

    def joined(self) -> int:
        """How many linear layers stand right behind another one, each by its weights once."""
        inside = [False] * len(self.nodes)  # behind some layer with weights, from the loss on
        for at in self.order:
            if inside[at] or self.weights[at]:
                for one in self.made_of[at]:
                    inside[one] = True
        if any((within or self.weights[at]) and not self._is_straight(at) for at, within in enumerate(inside)):
            return 0
        found, adapters = set[Any](), self._adapters()
        for at in self.order:
            if at in adapters:
                continue
            given = self.made_of[at] if self.kinds[at] in _LINEAR else []
            while len(given) == 1 and self.kinds[given[0]] in _SHAPED | _FACTORS and self.users[given[0]] == 1:
                given = self.made_of[given[0]]
            if len(given) == 1 and self.kinds[given[0]] in _LINEAR and self.users[given[0]] == 1:
                first, second = self._matrix(given[0]), self._matrix(at)
                if first is not None and second is not None and first[1] >= min(first[0], second[1]):
                    found.add(second[2])
        return len(found)

    def _adapters(self) -> set[int]:
        """Linear layers that are added to what has no gradient: to a layer that is frozen, and is given the inputs."""
        return {
            one
            for at in self.order
            if self.kinds[at] == "Add" and len(self.made_of[at]) == 1 and not self.weights[at]
            for one in self.under(self.made_of[at], _SHAPED | _FACTORS)
            if self.kinds[one] in _LINEAR
        }

    def _is_straight(self, at: int) -> bool:
        several = self.kinds[at] in _FACTORS and len(self.made_of[at]) > 1
        sizes = several and any(self.kinds[one] in ("Rsqrt", "Sqrt") for one in self.under(self.made_of[at], _SHAPED))
        straight = self.kinds[at] in _STRAIGHT or self.kinds[at].startswith(_WHOLE_ATTENTION)
        return straight and (sizes or not several)  # by their own size, or by a tensor that depends on nothing

    def _matrix(self, at: int) -> tuple[int, int, Any] | None:
        """Of a linear layer: the sizes of what it is given, and of what it gives, and its weights."""
        sides = [one for one in self.weights[at] if len(shape(one)) == 2]
        if len(sides) != 1:
            return None
        weight, (given, gives) = sides[0], shape(sides[0])
        while behind(weight):
            weight = behind(weight)[0]
        return given, gives, weight


def _name(node: Any, names: dict[type, str]) -> str:
    """`kind`, asked once of each class of nodes."""
    made = type(node)
    name = names.get(made)
    if name is None:
        name = kind(node)
        if made.__name__.startswith(name):  # a class of its own, not one of many functions
            names[made] = name
    return name


def _is_weight(node: Any, names: dict[type, str], known: dict[Any, bool]) -> bool:
    """Whether a node is a weight, or a change of a weight's shape."""
    found, line = False, []
    for _ in range(4):
        if node in known:
            found = known[node]
            break
        line.append(node)
        name, following = _name(node, names), behind(node)
        if name == "AccumulateGrad":
            found = True
            break
        if name not in _SHAPED or len(following) != 1:
            break
        node = following[0]
    known.update(dict.fromkeys(line, found))
    return found
