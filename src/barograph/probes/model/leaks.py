"""Targets that are among the inputs: a column of a table, or the end of a window, that says what is to be foreseen.

In:   inputs of a pass [n, …], and its targets [n, k], as the gradient of the output shows them.
Out:  the share of the targets' columns that are, but for scale and offset, an input's column in all rows; computed on
      the device from some rows, nothing waits.

An output that is as large as half of the inputs is a reconstruction, and one with the inputs' places a sequence whose
targets are inputs of other places: nothing is said of these. In a sequence only columns of its second half count: to
remember what came first may be the task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_ROWS, _LEAST = 64, 16  # that are looked at
_COLUMNS, _TARGETS = 2048, 16  # of inputs, at most; of targets
_ENCODED = 512  # columns of a table, in which one is looked for that is made of the targets
_ENDS, _MOSTLY = 4, 0.8  # rows at each end of a column, and between; of those between, that are shares of a few rows
_GRID, _OF_FEW = 24, 11  # steps of a column that is counted; of the numbers from 2 on, those up to 12
_SHARE = 1e-5  # of a column's range: rounding of single precision
_EXACT = 1e-6  # of the variance, that is not the input's: rounding of single precision


def columns_of(inputs: Sequence[Tensor], output: Tensor) -> Tensor | None:
    """The columns of the first inputs with a row an example [rows, m]; None where there are none to look at."""
    import torch

    count = output.shape[0] if output.dim() else 0
    width = output.numel() // max(1, count)
    if count < _LEAST or output.dim() > 3:
        return None
    found = []
    for tensor in inputs:
        rows = tensor.dim() in (2, 3) and len(tensor) == count and tensor.is_floating_point()
        if not rows or (tensor.dim() == 3 and output.dim() == 3 and output.shape[1] in tensor.shape[1:]):
            continue
        size = tensor.numel() // count
        if 4 <= size <= _COLUMNS and size > 2 * width:
            found.append(_late(tensor.detach()[:_ROWS]).flatten(1).float())
    return torch.cat(found, 1).clone() if found else None


def _late(rows: Tensor) -> Tensor:
    """Of sequences the second half of their places, along the longer dimension."""
    if rows.dim() < 3:
        return rows
    along = 1 if rows.shape[1] >= rows.shape[2] else 2
    size = rows.shape[along]
    return rows.narrow(along, size // 2, size - size // 2)


def some(tensor: Tensor) -> Tensor:
    """Rows of an output or of its gradient [rows, k]."""
    line = tensor.detach()[:_ROWS].reshape(min(_ROWS, len(tensor)), -1)
    return line[:, :: max(1, -(-line.shape[1] // _TARGETS))]


def share(columns: Tensor, targets: Tensor) -> Tensor:
    """Which share of the targets' columns that vary [n, k] is one of these columns [n, m]; NaN where none varies."""
    import torch

    wide = torch.float32 if columns.device.type == "mps" else torch.float64
    ours, theirs = _scaled(targets.to(wide)), _scaled(columns.to(wide))
    varies = ours.square().sum(0) > 0.5
    alike = (ours.T @ theirs).abs().nan_to_num(0.0).amax(1) >= math.sqrt(1 - _EXACT)
    return (alike & varies).sum() / varies.sum()


def of_classes(columns: Tensor, target: Tensor) -> Tensor:
    """The same of classes [n]: a column that is their number, or that is the most frequent one."""
    import torch

    top = target.mode().values
    numbers = torch.stack([target, (target == top).to(target.dtype)], 1)
    few = target.new_tensor(3)
    enough = torch.minimum((target == top).sum(), (target != top).sum()) >= few
    return torch.where(enough, (share(columns, numbers) > 0).to(torch.float64), torch.nan)


def encoded(columns: Tensor, target: Tensor) -> Tensor:
    """The share of rows in which a column says which of two targets it is [n] by being its least or its greatest
    number, where all between are shares of 2 to 12: means of the targets of a few rows each, these among them. 0 where
    there is no such column, NaN of a table of too many."""
    import torch

    wide = torch.float32 if columns.device.type == "mps" else torch.float64
    if columns.shape[1] > _ENCODED:
        return columns.new_full((), math.nan, dtype=wide)
    columns = columns.to(wide)
    low, high = columns.amin(0), columns.amax(0)
    place = (columns - low) / (high - low).clamp_min(1e-30)
    one = (target == target.amax()).to(wide)[:, None]
    least, most = place < _SHARE, place > 1 - _SHARE
    between = ~(least | most)
    pure = torch.zeros_like(low, dtype=torch.bool)
    for bottom, top in ((least, most), (most, least)):
        pure |= (one * bottom).sum(0) + ((1 - one) * top).sum(0) == 0
    enough = torch.minimum(least.sum(0), most.sum(0)) >= _ENDS
    numbers = torch.arange(2, _GRID + 1, device=columns.device, dtype=wide)[:, None, None]
    whole = (place * numbers - (place * numbers).round()).abs() < _SHARE * numbers
    shares = (whole[:_OF_FEW].any(0) & between).sum(0) >= _MOSTLY * between.sum(0)
    on_grid = (whole | ~between).all(1).any(0)  # as counts are
    found = pure & enough & shares & ~on_grid & (between.sum(0) >= _ENDS)
    share = ((least | most).to(wide).mean(0) * found).amax()
    return torch.where(one.mean() * (1 - one.mean()) > 0, share, torch.nan)


def _scaled(columns: Tensor) -> Tensor:
    """Columns with mean 0 and length 1; those that hardly vary are 0."""
    import torch

    away = columns - columns.mean(0)
    size = away.square().sum(0).sqrt()
    enough = size > 1e-5 * columns.abs().amax(0)
    return torch.where(enough, away / size.clamp_min(1e-30), torch.zeros_like(away))
