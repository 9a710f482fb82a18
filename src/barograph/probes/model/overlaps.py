"""What rows of numbers have in common that are not the same: windows of one series that overlap, and pictures that are
mirrored, turned or rolled.

In:   inputs of a pass, with a row an example.
Out:  fingerprints [rows]: of some pieces of a series, with the place where each one begins, and of all numbers whatever
      their order. Computed on the device, exact; nothing waits.

Of all pieces of a window those with the least fingerprints are taken: two windows that overlap have some of these in
common, wherever the pieces lie in each. A row in which numbers are repeated, as one of whole numbers or of zeros has
them, has pieces that others have by chance: nothing is said of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.probes.model.parameters import local, mesh_of

if TYPE_CHECKING:
    from torch import Tensor

PIECES = 4  # of a window, that are compared
_LEAST, _LONGEST = 16, 4096  # places of a series
_PIECE, _MOST = 8, 64  # places of a piece
_VARIED = 0.75  # of a row's places: different ones
_DIFFERENT = 32  # numbers of a picture, of which 1,024 are looked at
_SOME, _WHOLE = 1024, 1 << 21  # elements of a row, of all rows
BITS = (1 << 52) - 1  # what a double holds
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd: products of different numbers differ
_BACK = pow(_FACTOR, -1, 1 << 64)  # its inverse


def even_rows(tensor: Tensor, count: int) -> Tensor:
    """Rows at even distances: the first ones of an evaluation may be those next to the training."""
    return tensor[:: max(1, len(tensor) // count)][:count]


class PassesOfEvaluation:
    """What is kept of an evaluation's passes until the next step begins: a tensor of each, ever fewer of many."""

    def __init__(self) -> None:
        self._evaluated: list[Tensor] = []

    def thin(self) -> None:
        """Forget every second pass of the evaluation."""
        del self._evaluated[1::2]

    def forget(self) -> None:
        """Forget all passes of the evaluation."""
        self._evaluated = []


def pieces(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """Of rows of series [n, places], or with several numbers a place, fingerprints of pieces [n, PIECES], and where
    these begin; -1 of rows that say nothing. None where rows are not series."""
    import torch

    if not rows.is_floating_point() or rows.dim() not in (2, 3) or mesh_of(rows) is not None:
        return None
    lines = local(rows.detach()).float()
    if lines.dim() == 3:
        lines = lines if lines.shape[1] >= lines.shape[2] else lines.transpose(1, 2)
    else:
        lines = lines[..., None]
    length = lines.shape[1]
    if not _LEAST <= length <= _LONGEST or lines.numel() > _WHOLE:
        return None
    values = mixed(lines.contiguous().view(torch.int32).long() * powers(lines.shape[2], _FACTOR + 2, lines)).sum(2)
    varied = (values.sort(1).values.diff(dim=1) != 0).sum(1) >= _VARIED * length
    size = min(_MOST, max(_PIECE, length // 4))
    sums, back = sums_before(values), back_to_begin(length - size + 1, lines)
    found = mixed((sums[:, size:] - sums[:, : length - size + 1]) * back) & BITS
    least = found.topk(PIECES, dim=1, largest=False)
    return (torch.where(varied[:, None], least.values, -1), least.indices)


def numbers(rows: Tensor) -> Tensor | None:
    """Fingerprints of all numbers of each row, whatever their order [n]; -1 of rows that have few different ones. None
    of what has no rows of numbers."""
    import torch

    if not rows.is_floating_point() or rows.dim() < 2 or mesh_of(rows) is not None:
        return None
    lines = local(rows.detach()).float().flatten(1)
    if not 2 * _DIFFERENT <= lines.shape[1] <= _WHOLE:
        return None
    lines = lines[: _WHOLE // lines.shape[1]]
    some = lines[:, :: max(1, lines.shape[1] // _SOME)].sort(1).values
    different = (some.diff(dim=1) != 0).sum(1) >= _DIFFERENT
    return torch.where(different, mixed(lines.contiguous().view(torch.int32).long()).sum(1) & BITS, -1)


def mixed(values: Tensor) -> Tensor:
    values = (values ^ (values >> 29)) * _FACTOR
    return (values ^ (values >> 32)) * (_FACTOR + 2)


def powers(count: int, base: int, like: Tensor) -> Tensor:
    """base⁰, base¹, … modulo 2⁶⁴ [count]."""
    import torch

    return torch.full((count,), base, dtype=torch.long, device=like.device).cumprod(0) * signed(pow(base, -1, 1 << 64))


def sums_before(values: Tensor) -> Tensor:
    """Of rows [n, places], what stands before each place, added up with its place [n, places + 1]: the difference of
    two, times `back_to_begin` of the first, is of what stands between them, wherever that is."""
    import torch

    return torch.nn.functional.pad((values * powers(values.shape[1], _FACTOR, values)).cumsum(1), (1, 0))


def back_to_begin(count: int, like: Tensor) -> Tensor:
    """What brings differences of `sums_before` from the first places to the beginning of a row [count]."""
    return powers(count, signed(_BACK), like)


def signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
