"""Along which dimension positions run: tables of sines and cosines, and embeddings of places, that go into activations.

In:   the torch functions of one pass, each with its result, as a function mode sees them.
Out:  how many tables run along another dimension than that of the attention's keys, on the device; nothing waits.

A table of positions has a line a place. Its first line, of place 0, has sines of 0 and cosines of 0 alone, no number
is beyond 1, and some are none of 0 and 1. Added to, or multiplied with, activations, it is spread over their other
dimensions: then the one along which its lines differ is known. Of embeddings only those of known tables count.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_JOINS = frozenset(
    ("add", "__add__", "__radd__", "__iadd__", "add_", "mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply")
)
_NEAR = 1e-5
_MOST = 16  # tables of a pass that are looked at


class PositionSigns:
    """Follows one pass."""

    def __init__(self) -> None:
        self._found: list[tuple[int, tuple[int, ...], Any]] = []  # lines, other sizes of the activations, whether it is
        self._embedded: dict[int, tuple[Any, Any]] = {}  # places with a line a row: by id the tensor, whether they vary

    def embedded(self, places: Any, result: Any) -> None:
        """A table of positions was asked for these places."""
        if places.dim() == 2 and places.shape[0] > 1 and places.shape[1] == 1 and len(self._embedded) < _MOST:
            self._embedded[id(result)] = result, (places[1:] != places[:-1]).all()

    def saw(self, name: str, arguments: Any) -> None:
        """A function was called."""
        if name not in _JOINS or len(arguments) < 2 or len(self._found) >= _MOST:
            return
        sides = [one for one in arguments[:2] if hasattr(one, "is_floating_point")]
        if len(sides) != 2 or min(one.dim() for one in sides) < 2:
            return
        small, large = sorted(sides, key=lambda one: one.numel())
        if large.dim() < 3 or small.shape[-1] != large.shape[-1] or small.shape[-1] < 2 or small.dim() > large.dim():
            return
        long = [place for place in range(-small.dim(), -1) if small.shape[place] > 1]
        if len(long) != 1 or small.shape[long[0]] != large.shape[long[0]] or small.numel() == large.numel():
            return
        known = self._embedded.get(id(small))
        if known is not None:
            is_table = known[1]
        elif small.requires_grad or not (small.is_floating_point() or small.is_complex()):
            return
        else:
            is_table = _is_table(small.reshape(-1, small.shape[-1]))
        at = long[0] % large.dim()
        others = tuple(int(size) for place, size in enumerate(large.shape[:-1]) if place != at)
        self._found.append((int(small.shape[long[0]]), others, is_table))

    def end(self, keys: Collection[int]) -> dict[str, Any]:
        """The pass is over. keys: how many the attention has."""
        found, self._found, self._embedded = self._found, [], {}
        wrong = [is_table for lines, others, is_table in found if lines not in keys and set(others) & set(keys)]
        return {"positions_elsewhere": sum(one.float() for one in wrong)} if wrong else {}


def _is_table(lines: Any) -> Any:
    import torch

    with torch._C.DisableTorchFunction(), torch.no_grad():
        lines = lines.detach()
        lines = torch.view_as_real(lines).flatten(1) if lines.is_complex() else lines
        size = lines.abs()
        edge = (size < _NEAR) | ((size - 1).abs() < _NEAR)
        return edge[0].all() & (size <= 1 + _NEAR).all() & ~edge[1:].all()
