"""A number for each row of a tensor, by which rows are known again.

In:   rows of tokens or numbers.
Out:  whole numbers, computed where the tensor is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.probes.model.parameters import local

if TYPE_CHECKING:
    from torch import Tensor

_ELEMENTS = 1024  # of a row
BITS = (1 << 52) - 1  # what a double holds
_HIGH = (1 << 35) - 1  # what is left of a whole number without its 29 lowest bits
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # 2⁶⁴ / golden ratio: consecutive multiples differ in all bits


def fingerprints(rows: Tensor) -> Tensor:
    """A number a row [n]: sums of products of whole numbers, which no order of adding changes. Padding behind the
    longest row of a batch does not change it."""
    import torch

    lines = elements(rows)
    if lines.is_floating_point():
        lines = lines.float().contiguous().view(torch.int32)
        values = lines.long()
    else:
        values = lines.long()
        last = values[:, -1:]
        values = values[:, :-1] - last
        if values.shape[1]:  # with what they are differences of: a row that is moved by one is another
            values = torch.cat([last, values], 1)
    places = torch.arange(1, values.shape[1] + 1, device=values.device) * _FACTOR
    mixed = values * ((places ^ (places >> 31)) * (_FACTOR + 2) | 1)  # no multiples: 3 at one place is not 1 at another
    high = (mixed >> 29) & _HIGH  # without the sign, which would make a number and its negative alike
    return ((mixed ^ high) * _FACTOR >> 7).sum(1) & BITS


def elements(rows: Tensor) -> Tensor:
    """Rows of elements [n, k], some of each where there are many."""
    tensor = local(rows.detach())
    lines = tensor.reshape(len(tensor), -1)
    if tensor.is_floating_point():
        return lines[:, :: max(1, lines.shape[1] // _ELEMENTS)]
    return lines[:, :_ELEMENTS]
