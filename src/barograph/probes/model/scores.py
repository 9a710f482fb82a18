"""Whether attention divides its scores: products of queries and keys that go into a softmax as they are.

In:   the torch functions of one pass, each with its result, as a function mode sees them.
Out:  of scores that nothing divides or multiplies, nor their queries and keys before: the size of a head, and how far
      the scores of a query lie apart. Of some queries; nothing waits, and no tensor is kept.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

_SCALES = frozenset(
    ("mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply", "div", "__truediv__", "div_", "__itruediv__",
     "divide", "true_divide")
)  # fmt: skip
_SHAPES = frozenset(
    ("view", "reshape", "transpose", "permute", "contiguous", "__getitem__", "unbind", "chunk", "split", "expand",
     "flatten", "unflatten", "squeeze", "unsqueeze", "to", "type_as", "float", "half", "bfloat16", "t", "movedim",
     "swapaxes", "repeat_interleave", "__get__", "clone")
)  # fmt: skip
_MASKS = frozenset(
    ("masked_fill", "masked_fill_", "where", "add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__")
)
_PRODUCTS = frozenset(("matmul", "__matmul__", "bmm", "einsum"))
_QUERIES, _SEQUENCES = 32, 2
_FAR = 5000.0  # below the largest score of a query: masked
_LEAST = 8  # keys


class ScoreScale:
    """Follows one pass. Tensors are known by weak references."""

    def __init__(self) -> None:
        self._scaled: dict[int, Any] = {}
        self._scores: dict[int, tuple[Any, int]] = {}  # a product that nothing scaled, and over how many it sums
        self._found: list[tuple[int, Any]] = []

    def saw(self, name: str, arguments: Any, named: Any, result: Any) -> None:
        """A function was called."""
        if name in _SCALES:
            if any(_is_number(one) for one in arguments[1:]) or (arguments and _is_number(arguments[0])):
                self._scores.pop(id(result), None)
                self._keep_scaled(result)
        elif name in _PRODUCTS:
            self._multiplied([one for one in _flat(arguments) if hasattr(one, "dim")], result)
        elif name in _SHAPES or name in _MASKS:
            self._passed_on(_flat(arguments), result)
        elif name == "softmax":
            self._softmax(arguments, named)

    def _is_scaled(self, tensor: Any) -> bool:
        known = self._scaled.get(id(tensor))
        return known is not None and known() is tensor

    def _keep_scaled(self, result: Any) -> None:
        for one in result if isinstance(result, (tuple, list)) else (result,):
            if hasattr(one, "dim"):
                self._scaled[id(one)] = weakref.ref(one)

    def _width(self, tensor: Any) -> int:
        known = self._scores.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else 0

    def _multiplied(self, sides: list[Any], result: Any) -> None:
        if len(sides) != 2 or getattr(result, "dim", lambda: 0)() < 3 or any(map(self._is_scaled, sides)):
            return
        if sides[0].dim() >= 3 and sides[1].dim() >= 3:
            self._scores[id(result)] = weakref.ref(result), int(sides[0].shape[-1])

    def _passed_on(self, arguments: list[Any], result: Any) -> None:
        if any(map(self._is_scaled, arguments)):
            self._keep_scaled(result)
        width = max((self._width(one) for one in arguments), default=0)
        if width and hasattr(result, "dim"):
            self._scores[id(result)] = weakref.ref(result), width

    def _softmax(self, arguments: Any, named: Any) -> None:
        scores = arguments[0] if arguments else named.get("input")
        width = self._width(scores)
        dim = named.get("dim", arguments[1] if len(arguments) > 1 else None)
        if not width or not isinstance(dim, int) or dim % scores.dim() != scores.dim() - 1:
            return
        if scores.shape[-1] < _LEAST or not scores.is_floating_point():
            return
        import torch

        with torch._C.DisableTorchFunction(), torch.no_grad():
            some = scores.detach()[:_SEQUENCES, ..., -_QUERIES:, :].float()
            seen = (some > some.amax(-1, keepdim=True) - _FAR) & some.isfinite()
            count = seen.sum(-1)
            known = some.masked_fill(~seen, 0.0)
            middle = known.sum(-1) / count.clamp_min(1)
            square = (known - middle[..., None]).masked_fill(~seen, 0.0).square().sum(-1) / count.clamp_min(1)
            self._found.append((width, square.masked_fill(count < _LEAST, math.nan).nanmean().sqrt()))

    def end(self) -> dict[str, Any]:
        """The pass is over: what was seen of it."""
        found, self._found, self._scaled, self._scores = self._found, [], {}, {}
        if not found:
            return {}
        import torch

        home = found[0][1].device
        deviation = torch.stack([one.to(home) for _, one in found]).nanmean()
        return {"attention/undivided": torch.tensor(float(max(width for width, _ in found))),
                "attention/deviation": deviation}  # fmt: skip


def _is_number(item: Any) -> bool:
    return isinstance(item, (int, float)) or (hasattr(item, "numel") and item.numel() == 1)


def _flat(arguments: Any) -> list[Any]:
    found: list[Any] = []
    for item in arguments:
        found += item if isinstance(item, (tuple, list)) else [item]
    return found
