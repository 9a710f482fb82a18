"""Dropout that is written by hand: a mask that is drawn, and what it leaves made larger for what it takes.

In:   the functions of a pass, one by one, with what they are given and give.
Out:  whether one of them ended such a dropout.

A mask is `bernoulli` with a number, a comparison of uniform numbers with one, or `floor(keep + rand)`. It is dropout
where the share that is kept divides the mask, what is multiplied by it, or the product: so the mean stays what it was.
Masks without that are other things, such as places that are hidden as the task itself. No tensor is read or kept.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_COMPARES = frozenset({"gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal"})
_KEEPS = frozenset({
    "float", "half", "bfloat16", "double", "to", "type", "type_as", "view", "reshape", "unsqueeze", "expand",
    "expand_as", "invert", "logical_not", "rsub", "getitem", "clone", "detach", "contiguous",
})  # fmt: skip
_FILLS = frozenset({"full", "full_like", "new_full", "fill"})
_SAME = 1e-6


class _Mark(NamedTuple):
    """What a tensor is: `uniform`, `plus` (a share added to it), `filled`, `mask`, `scaled` (a mask that was divided),
    `masked`, `divided`; and the shares that may be kept, or by which it was divided."""

    kind: str
    shares: tuple[float, ...] = ()


class HandDrops:
    """Follows masks through one pass."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[weakref.ref[Any], _Mark]] = {}

    def saw(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> bool:
        """A function of torch was called; whether it ended a dropout."""
        mark = self._next(name.strip("_"), [*arguments, *named.values()])
        if not hasattr(result, "is_floating_point"):
            return False
        if mark is None:
            self._marks.pop(id(result), None)  # in place: it is another thing now
            return False
        if mark.kind == "dropped":
            return True
        self._marks[id(result)] = weakref.ref(result), mark
        return False

    def _of(self, thing: Any) -> _Mark:
        known = self._marks.get(id(thing))
        return known[1] if known is not None and known[0]() is thing else _Mark("")

    def _next(self, name: str, given: list[Any]) -> _Mark | None:
        if name in ("rand", "rand_like") or (name == "uniform" and len(given) == 1):
            return _Mark("uniform")
        numbers = [float(one) for one in given if isinstance(one, (int, float)) and not isinstance(one, bool)]
        marks = [self._of(one) for one in given]
        first = next((mark for mark in marks if mark.kind), _Mark(""))
        share = numbers[-1] if numbers and 0 < numbers[-1] < 1 else math.nan
        if name in _FILLS or name == "bernoulli":
            kind = "mask" if name == "bernoulli" else "filled"
            kept = first.shares if first.kind == "filled" and name == "bernoulli" else (share,)
            return _Mark(kind, kept) if kept[0] == kept[0] else None
        if name in _COMPARES or name in ("add", "radd"):
            if first.kind != "uniform" or share != share:
                return None
            return _Mark("mask", (share, 1 - share)) if name in _COMPARES else _Mark("plus", (share,))
        if name == "floor" and first.kind == "plus":
            return _Mark("mask", first.shares)
        if name in _KEEPS:
            return first if first.kind in ("uniform", "mask", "scaled") else None
        if name in ("div", "truediv", "true_divide", "mul", "rmul", "multiply"):
            if numbers:
                return _divided(first, 1 / numbers[-1] if "mul" in name and numbers[-1] else numbers[-1])
            return _multiplied(given, marks) if "mul" in name else None
        if name in ("where", "masked_fill") and numbers and numbers[-1] == 0:
            return _multiplied([one for one in given if not isinstance(one, (int, float))], marks[:2])
        return None


def _divided(mark: _Mark, by: float) -> _Mark | None:
    """A tensor divided by a number."""
    kept = any(abs(by - share) < _SAME for share in mark.shares)
    if mark.kind in ("mask", "masked"):
        return (_Mark("scaled", mark.shares) if mark.kind == "mask" else _Mark("dropped")) if kept else None
    return _Mark("divided", (by,)) if not mark.kind and 0 < by < 1 else None


def _multiplied(given: Sequence[Any], marks: Sequence[_Mark]) -> _Mark | None:
    """The product of two tensors, one of which is a mask."""
    masks = [mark for mark in marks if mark.kind in ("mask", "scaled")]
    others = [
        (one, mark) for one, mark in zip(given, marks, strict=False)
        if mark.kind not in ("mask", "scaled") and hasattr(one, "is_floating_point") and one.is_floating_point()
    ]  # fmt: skip
    if len(masks) != 1 or len(others) != 1:
        return None
    mask, other = masks[0], others[0][1]
    same = other.kind == "divided" and any(abs(other.shares[0] - share) < _SAME for share in mask.shares)
    return _Mark("dropped") if mask.kind == "scaled" or same else _Mark("masked", mask.shares)
