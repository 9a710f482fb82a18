"""How much of the weights is in an average of them with which evaluations are made: all, unless it began at zeros.

In:   some elements of a few matrices: behind the first step, as they are trained now, and as they are evaluated.
Out:  figures beside those of the evaluation. Nothing waits.

Weights lie between those of the beginning and the newest ones, and beside that line. What is evaluated is put together
from these two, as nearly as may be: their shares are 1 together in any average of weights, however far it is behind,
and less in one that has zeros in it. Of a matrix that began near zero, or that has only become longer, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_TURNED = 0.01  # of the squares: a tenth of its length, that a matrix has gone to the side
_NEAR = 0.01  # the same: no farther from where it began
NAMES = ("whole", "whole_least")


def figures(first: Tensor, newest: Tensor, evaluated: Tensor, sizes: Sequence[int]) -> Tensor:
    """`NAMES`: both shares together, of the matrix of which it is the most, and of that of which it is the least; -1
    where that can't be said of any. sizes: elements of each matrix."""
    import torch

    found = []
    for x, y, a in zip(*(torch.split(line, list(sizes)) for line in (first, newest, evaluated)), strict=True):
        xx, yy, xy, ax, ay = (x * x).sum(), (y * y).sum(), (x * y).sum(), (a * x).sum(), (a * y).sum()
        area = xx * yy - xy * xy
        both = (ax * (yy - xy) + ay * (xx - xy)) / area.clamp_min(1e-30)
        turned = (area >= _TURNED * xx * yy) & (xx >= _TURNED * yy) & (yy > 0)
        near = (x - y).square().sum() <= _NEAR * xx
        found.append(torch.where(turned, both, torch.where(near, ay / yy.clamp_min(1e-30), torch.full_like(xx, -9.0))))
    every = torch.stack(found)
    most = every.amax()
    least = torch.where(every > -9, every, most).amin()
    return torch.stack((most, least)).clamp_min(-1.0)
