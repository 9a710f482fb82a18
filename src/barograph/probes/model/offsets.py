"""Numbers that are added to logits before a cross-entropy, one for each class, told from the gradient of the logits.

In:   some rows of an output and their gradient; counts and offsets of steps that a watch looks at.
Out:  the class offsets of these rows; by which power of a class's frequency they go, for the `model` record.

Beside the target, the gradient of a cross-entropy of output + a is proportional to exp(output + a): of each row and
class its logarithm, less the output, is one number of the row and one of the class. No other loss gives that, and the
second is `a` but for a number that all classes share. Adding the logarithms of the frequencies, as logit adjustment
does, goes by the power 1, and holds frequent classes down at evaluation; by −1, rare ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from torch import Tensor

_CLASSES, _ROWS = 4, 8  # at least
_TURNS = 24  # in which rows and classes are found one after the other
_OFF = 2e-3  # of the logarithms: rounding
_SEEN = -40.0  # logarithm of a chance below which a gradient is rounded away
_APART = 0.1  # offsets: below it there are none
_ENOUGH = 16  # targets of a class: fewer say little of a frequency
_UNEQUAL = 2.0  # times as frequent
_LEFT = 0.25  # of the offsets' variance, that a power of the frequency leaves
_EXACT, _FITS = 0.03, 2.5  # of an offset, beside what chance gives of a frequency; times what chance gives, at most


def below(counts: Tensor, output: Tensor, gradient: Tensor) -> Tensor:
    """Counts of these rows [2, k], and below them their targets by class and the classes' offsets, NaN where no
    cross-entropy of logits with offsets follows [4, k]."""
    import torch

    wide = torch.float32 if output.device.type == "mps" else torch.float64
    exact = gradient.dtype in (torch.float32, torch.float64) and output.dtype in (torch.float32, torch.float64)
    if not exact or output.shape[1] < _CLASSES or len(output) < _ROWS:
        return torch.cat([counts, torch.full_like(counts, math.nan)])
    return torch.cat([counts, _offsets(output.to(wide), gradient.to(wide)).to(counts.dtype)])


def _offsets(output: Tensor, gradient: Tensor) -> Tensor:
    """Targets by class, and the offsets of the classes [2, k]."""
    import torch

    target, size = gradient.argmin(1), gradient.abs().sum(1)
    seen = gradient > 0
    both = torch.where(seen, gradient, 1.0).log() - output
    seen = seen & (torch.log_softmax(output, 1) > _SEEN)
    seen.scatter_(1, target[:, None], False)
    count = seen.sum(1, keepdim=True).clamp_min(1), seen.sum(0, keepdim=True).clamp_min(1)
    of_class = torch.zeros_like(both[:1])
    for _ in range(_TURNS):
        of_row = (both - of_class).masked_fill(~seen, 0.0).sum(1, keepdim=True) / count[0]
        of_class = (both - of_row).masked_fill(~seen, 0.0).sum(0, keepdim=True) / count[1]
        of_class = of_class - of_class.mean()
    off = (both - of_row - of_class).masked_fill(~seen, 0.0).abs().amax()
    adds = (gradient.sum(1).abs() <= _OFF * size).all() & (size > 0).all()
    # each class is beside the target of several rows, and each row has several such classes
    fits = adds & (off <= _OFF) & (seen.sum(0) >= _CLASSES).all() & (seen.sum(1) >= 2).all()
    fits = fits & ((gradient < 0).sum(1) == 1).all() & (of_class.amax() - of_class.amin() > _APART)
    targets = torch.zeros_like(of_class[0]).index_add_(0, target, torch.ones_like(size))
    return torch.where(fits, torch.stack([targets, of_class[0]]), math.nan)


class ClassOffsets:
    """Counts over the looks of a launch."""

    def __init__(self) -> None:
        self._targets: Any = None

    def fields_of(self, values: Any) -> dict[str, float]:
        """What is recorded of a step, by its counts [4, k]."""
        if len(values) < 4 or not numpy.isfinite(values[2:]).all():
            return {}
        targets, offsets = values[2:]
        if self._targets is None or len(self._targets) != len(targets):
            self._targets = numpy.zeros(len(targets))
        self._targets = self._targets + targets
        known = self._targets >= _ENOUGH
        frequency, some = numpy.log(self._targets[known]), offsets[known]
        if known.sum() < _CLASSES - 1 or frequency.max() - frequency.min() < math.log(_UNEQUAL):
            return {}
        away, some = frequency - frequency.mean(), some - some.mean()
        slope = float((away * some).sum() / (away * away).sum())
        left = (some - slope * away) ** 2
        by_chance = slope * slope / self._targets[known] + _EXACT * _EXACT
        fits = left.sum() <= _LEFT * (some * some).sum() and (left / by_chance).mean() <= _FITS
        return {"class_offset_slope": round(slope, 3)} if fits else {}
