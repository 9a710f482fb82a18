"""Layers whose weights are held as whole numbers: whether a pass reads what these are multiplied by.

In:   the modules of a model; the torch functions of one pass, as a function mode sees them.
Out:  how many layers had their whole numbers read and none of their scales; how many had a scale read, and not the
      zero points beside it, though these differ.

A scale is a tensor of a layer's own: positive numbers, one for each block, row or column of its weights. What a table
of the numbers that codes stand for holds is not positive throughout. A layer whose numbers no torch function reads, as
where a kernel of others does, says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from barograph.probes.model.parameters import mesh_of

_LEAST = 256  # whole numbers of a layer
_FEWEST = 2  # numbers of a scale
_WIDEST = 8  # weights, at most, that one whole number holds
_LAYERS = 64
_ZERO = re.compile(r"zero|(?<![a-z])zp(?![a-z])|offset|(?<![a-z])min(?:imum|s)?(?![a-z])", re.I)
_BESIDE = re.compile(r"bias|input|act", re.I)  # a layer's bias; scales of what it is given


class _Layer(NamedTuple):
    codes: Any
    scales: list[Any]
    zeros: list[Any]


class PackedLayers:
    """Follows one pass. Keeps no tensor of it."""

    def __init__(self, model: Any = None) -> None:
        self._layers = _find(model) if model is not None else []
        parts = (item for one in self._layers for item in (one.codes, *one.scales, *one.zeros))
        self._unread = {id(item) for item in parts}

    def saw(self, arguments: Any, named: Any) -> None:
        """A function was called."""
        if self._unread:
            self._read(arguments)
            if named:
                self._read(named.values())

    def _read(self, arguments: Any) -> None:
        for one in arguments:
            if isinstance(one, (list, tuple)):
                self._unread.difference_update(map(id, one))
            else:
                self._unread.discard(id(one))

    def end(self) -> dict[str, Any]:
        """The pass is over: `packed_unscaled` and `packed_unshifted`, where there are such layers."""
        import torch

        layers = [one for one in self._layers if id(one.codes) not in self._unread]
        if not layers:
            return {}
        home = layers[0].codes.device
        bare, unshifted = [], []
        for one in layers:
            unread = [scale for scale in one.scales if id(scale) in self._unread]
            read = [scale for scale in one.scales if id(scale) not in self._unread]
            if unread:
                bare.append(_any(map(_is_scale, unread), home) & ~_any(((scale > 0).all() for scale in read), home))
            zeros = [zero for zero in one.zeros if id(zero) in self._unread] if read else []
            unshifted += [_varies(zero).to(home) & _any(map(_is_scale, read), home) for zero in zeros]
        none = torch.zeros((), device=home)
        return {
            "packed_unscaled": sum((one.float().to(home) for one in bare), none),
            "packed_unshifted": sum((one.float().to(home) for one in unshifted), none),
        }


def _any(told: Iterable[Any], home: Any) -> Any:
    """Whether any of these is true."""
    import torch

    return torch.stack([torch.zeros((), dtype=torch.bool, device=home), *(one.to(home) for one in told)]).any()


def _varies(item: Any) -> Any:
    return (item != item.reshape(-1)[0]).any()


def _is_scale(item: Any) -> Any:
    """Whether all of it is above 0, and not one number."""
    return (item > 0).all() & _varies(item)


def _find(model: Any) -> list[_Layer]:
    found: list[_Layer] = []
    for module in model.modules():
        items = {**module._buffers, **module._parameters}
        own = {name: item for name, item in items.items() if item is not None and _is_held(item)}
        whole = [item for name, item in own.items() if _is_whole(name, item) and item.numel() >= _LEAST]
        if len(whole) != 1 or len(found) >= _LAYERS:
            continue
        weights = whole[0].numel() * _WIDEST
        floats = {name: item for name, item in own.items()
                  if item.is_floating_point() and item.numel() >= _FEWEST and weights % item.numel() == 0
                  and item.numel() * 4 <= whole[0].numel() and not _BESIDE.search(name)}  # fmt: skip
        zeros = {name: item for name, item in own.items() if _ZERO.search(name)}
        scales = [item for name, item in floats.items() if name not in zeros]
        if scales:
            fitting = [item for item in zeros.values() if any(item.numel() == one.numel() for one in scales)]
            found.append(_Layer(whole[0], scales, fitting))
    return found


def _is_held(item: Any) -> bool:
    return not item.is_meta and not item.requires_grad and mesh_of(item) is None


def _is_whole(name: str, item: Any) -> bool:
    """Whether it is weights as whole numbers: of eight bits, or several in one of 32 bits."""
    kind = str(item.dtype)
    return kind in ("torch.uint8", "torch.int8") or (kind == "torch.int32" and "weight" in name)
