"""Noise on embeddings: evenly drawn numbers that are added to what was looked up in a table, as NEFTune has it.

In:   the functions of a pass, one by one, with what they are given and give.
Out:  whether one of them added such noise.

Numbers are drawn by `rand`, or by `uniform_` in place, and scaled and moved before they are added. Those that become a
mask by a comparison are something else, and so is noise that data or hidden numbers get. No tensor is read or kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

_ADDS = frozenset({"add", "radd", "iadd", "sub", "rsub", "isub", "subtract"})
_SCALES = frozenset({
    "mul", "rmul", "imul", "multiply", "div", "truediv", "itruediv", "true_divide", "to", "type", "type_as", "float",
    "half", "bfloat16", "double", "view", "reshape", "unsqueeze", "expand", "expand_as", "clone", "detach",
    "contiguous", "neg",
})  # fmt: skip
_DRAWN, _LOOKED_UP = "drawn", "looked up"


class TableNoise:
    """Follows drawn numbers and looked up ones through one pass."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[weakref.ref[Any], str]] = {}

    def saw(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> bool:
        """A function of torch was called; whether it added noise to what was looked up."""
        if not hasattr(result, "is_floating_point"):
            return False
        marks = {self._of(one) for one in (*arguments, *named.values())} - {""}
        plain, mark = name.strip("_"), ""
        if plain in ("rand", "rand_like", "uniform"):
            mark = _DRAWN
        elif plain == "embedding" and result.dim() > 2:
            mark = _LOOKED_UP  # of rows of tokens: one number for each example may be anything
        elif plain in _ADDS and len(marks) == 2:
            return True
        elif len(marks) == 1 and (plain in _SCALES or plain in _ADDS):
            mark = marks.pop()
        if mark:
            self._marks[id(result)] = weakref.ref(result), mark
        else:
            self._marks.pop(id(result), None)  # in place: it is another thing now
        return False

    def _of(self, thing: Any) -> str:
        known = self._marks.get(id(thing))
        return known[1] if known is not None and known[0]() is thing else ""
