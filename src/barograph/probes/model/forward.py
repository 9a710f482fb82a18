"""What a forward pass does with its tensors that no figure of its layers shows.

In:   the torch functions of one pass, each with its result, as a function mode sees them.
Out:  how many detached tensors go on, how often a skip connection or a layer beside an adapter goes on without
      gradient, how often attention weights sum to 1 over the queries, whether a table of positions is asked for one
      place only, whether positions run along the places, and whether attention divides its scores.

A skip is cut where a tensor that was detached is added to one, or joined with one, that was computed from it with
gradient. What is detached and goes nowhere else (a straight-through estimate, a target, the input of a next step) is
meant. Attention weights are cut across where a matrix product sums over another dimension than their softmax did.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from barograph.probes.autograd import comes_from
from barograph.probes.model.adapted import AdaptedLayers
from barograph.probes.model.positions import PositionSigns
from barograph.probes.model.scores import ScoreScale

_JOINED = frozenset({"add", "__add__", "__radd__", "add_", "__iadd__", "cat", "concat", "concatenate"})
_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm"})
_PASSED_ON = frozenset(
    {"dropout", "to", "type_as", "float", "half", "bfloat16", "contiguous", "nan_to_num", "masked_fill"}
)
_ROW = 8  # places, at least, that are asked for at once


class ForwardSigns:
    """Follows one pass. Keeps a tensor only while the pass runs, and only what was detached or softmaxed across."""

    def __init__(self, tables: Collection[int] = ()) -> None:
        """tables: weights of positional embeddings, by id."""
        self._tables = tables
        self._asked: dict[int, tuple[Any, Any]] = {}  # by table: the lowest and the highest place
        self.detached = self.detached_skips = self.softmax_across = 0
        self._detached: dict[int, tuple[Any, Any]] = {}  # by id: the tensor, and the node that it was cut from
        self._used: set[int] = set()
        self._across: dict[int, Any] = {}
        self._scores, self._positions, self._adapted = ScoreScale(), PositionSigns(), AdaptedLayers()

    def saw(self, function: Any, arguments: Any, named: Any, result: Any) -> None:
        """A function was called."""
        name = getattr(function, "__name__", "")
        self._scores.saw(name, arguments, named, result)
        self._positions.saw(name, arguments)
        self._adapted.saw(name, arguments, result)
        if name == "detach" or (name == "__get__" and _is_data(function)):
            self._cut(arguments[0], result)
        elif (name == "softmax" and _is_across(arguments, named)) or (
            self._across and name in _PASSED_ON and id(arguments[0]) in self._across
        ):
            self._across[id(result)] = result
        elif name in _PRODUCTS and self._across:
            self.softmax_across += id(arguments[0]) in self._across
        elif name == "embedding" and id(weight := named.get("weight", arguments[1:] and arguments[1])) in self._tables:
            self._places(id(weight), arguments[0])
            self._positions.embedded(arguments[0], result)
        if self._detached and getattr(result, "grad_fn", None) is not None:
            several = bool(arguments) and isinstance(arguments[0], (tuple, list))
            self._joined(arguments[0] if several else arguments, name in _JOINED)

    def _places(self, table: int, places: Any) -> None:
        if places.dim() and places.shape[-1] >= _ROW:
            low, high = self._asked.get(table, (places.amin(), places.amax()))
            self._asked[table] = low.minimum(places.amin()), high.maximum(places.amax())

    def _cut(self, tensor: Any, result: Any) -> None:
        import torch

        node = getattr(tensor, "grad_fn", None)
        if node is not None and torch.is_grad_enabled() and result.numel() > 1:
            self._detached[id(result)] = (result, node)

    def _joined(self, parts: Any, added: bool) -> None:
        """A tensor with gradient was computed from these."""
        cut = [part for part in parts if id(part) in self._detached]
        self._used |= {id(part) for part in cut}
        self.detached = len(self._used)
        if cut and added:
            others = [part.grad_fn for part in parts if getattr(part, "grad_fn", None) is not None]
            self.detached_skips += any(
                comes_from(other, self._detached[id(part)][1]) for part in cut for other in others
            )

    def end(self, keys: Collection[int] = ()) -> dict[str, Any]:
        """The pass is over: what was seen of it; nothing of one without gradients. keys: of the attention's calls."""
        import torch

        self._detached, self._across = {}, {}
        found = {name: getattr(self, name) for name in ("detached", "detached_skips", "softmax_across")}
        found["detached_layers"] = self._adapted.end()
        figures = {name: torch.tensor(float(count)) for name, count in found.items()}
        if self._asked:
            figures["one_place"] = sum((low == high).float() for low, high in self._asked.values())
        figures |= self._scores.end() | self._positions.end(keys)
        return figures if torch.is_grad_enabled() else {}


def _is_data(function: Any) -> bool:
    import torch

    return bool(function == torch.Tensor.data.__get__)  # type: ignore[attr-defined]


def _is_across(arguments: Any, named: Any) -> bool:
    """Whether it is a softmax of matrices over another dimension than the last, along which a product will sum."""
    scores = arguments[0]
    dim = named.get("dim", arguments[1] if len(arguments) > 1 else None)
    if not isinstance(dim, int) or getattr(scores, "dim", lambda: 0)() not in (3, 4) or scores.shape[-1] < 2:
        return False
    return bool(dim % scores.dim() != scores.dim() - 1)
