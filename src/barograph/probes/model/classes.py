"""Which classes a classifier's targets have, and how much each counts in the loss.

In:   counts of some rows by class and their weights in the loss, from steps that a watch looks at; where a row has many
      places with a target each, as of taggers and segmentation, of more places than the other looks take.
Out:  figures for the `model` record: targets that were looked at, classes that were never one, the share of a batch
      whose classes were in the first batches, whether frequent classes have larger weights than rare ones, whether
      weights that make up for rare classes are those of others, and whether examples are drawn for that already. Of
      places, which are alike within a row, only the first and the fourth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy

from barograph.probes.model import offsets, softmaxes

if TYPE_CHECKING:
    from torch import Tensor

    from barograph.probes.model.softmaxes import Softmax

_NAMED = 32  # classes whose targets are counted
_PLACES = 2048  # that are counted of a batch
_FIRST = 8  # looks, which are of steps in a row
_FAMILIES = ("classes", "classes_of_places", "logistic_classes")

_ENOUGH = 16  # targets of a class: fewer say little of a frequency
_SOME = 5  # the same, where it is asked whether a weight fits
_UNEQUAL = 2.0  # times as frequent
_OFF = 0.25  # of the variance of the weights' logarithms, that a power of the frequency leaves
_EVEN = 0.05  # below it the weights are equal
_SEVERAL = 4  # classes: fewer weights fit some frequencies in one order or another
_APART = 3.0  # times the least weight: the largest
_STEADY = 0.02  # of a class's weight beside another's, from look to look
_POWERS = (1.0, 0.5)  # of a frequency, that weights make up for
_EXACT = 0.03  # of a weight, beside what chance gives of a frequency
_ASKED = 64  # rows of an evaluation, from which on it says how frequent classes are
_MANY = 1000  # targets of the training, among which a class of an evaluation has to be
_INVERTED = 0.9  # correlation of the logarithms of weights and frequencies: these are the wrong way round
_FITS, _FAR = 2.5, 20.0  # times what chance gives, at most and at least


def are_named(tensor: Tensor) -> bool:
    """Whether an output is of few classes, for each row or for each place of it."""
    width = tensor.shape[-1 if tensor.dim() < 4 else 1] if tensor.dim() > 1 else 1
    return 2 <= width <= _NAMED


def some(tensor: Tensor) -> Tensor:
    """Rows [n, k] of an output with places: of all rows, places at even distances."""
    if tensor.dim() > 3:
        tensor = tensor.movedim(1, -1)
    sizes = tensor.shape[1:-1]
    each = max(1, _PLACES // max(1, len(tensor)))
    stride = math.ceil((max(1, math.prod(sizes)) / each) ** (1 / len(sizes)))
    part = tensor[(slice(None, _PLACES), *(slice(None, None, stride) for _ in sizes))]
    return part.reshape(-1, tensor.shape[-1])[: 2 * _PLACES]


def by_class(found: Softmax, width: int) -> Tensor:
    """How many rows have each class as target, and the sum of the weights that their losses have in the whole [2, k];
    NaN where no cross-entropy follows."""
    import torch

    table = torch.zeros(2, width, dtype=found.weight.dtype, device=found.weight.device)
    table[0].index_add_(0, found.target, found.alive.to(table.dtype))
    table[1].index_add_(0, found.target, found.weight.nan_to_num(0.0))
    return torch.where(found.follows, table, torch.nan)


def of_rows(found: Softmax, output: Tensor, gradient: Tensor) -> Tensor:
    """`by_class` of rows and their gradient [n, k], and below it what `offsets` says of them [4, k]."""
    return offsets.below(by_class(found, output.shape[1]), output, gradient)


def of_places(output: Tensor, gradient: Tensor) -> Tensor:
    """`by_class` of places and their gradient [n, k]."""
    import torch

    exact = gradient.dtype in (torch.float32, torch.float64) and output.dtype == gradient.dtype
    wide = torch.float32 if output.device.type == "mps" else torch.float64
    found = softmaxes.find(output.to(wide), gradient.to(wide), softmaxes.EXACT if exact else softmaxes.HALF)
    return by_class(found, output.shape[1])


def logistic(output: Tensor, gradient: Tensor) -> Tensor:
    """`by_class` of rows [n, k] of which each number has its own logistic loss: how many targets of each column are 1,
    and the sum of their weights, where one that is 0 has a weight of 1; of one column that of 0, too. NaN where no such
    loss follows: all targets that are 0 have one weight, and of each column all that are 1."""
    import torch

    wide = torch.float32 if output.device.type == "mps" else torch.float64
    output, gradient = output.to(wide), gradient.to(wide)
    one, zero = gradient < 0, gradient > 0
    scale = gradient.abs() / torch.sigmoid(torch.where(one, -output, output))
    unit, least = scale.masked_fill(~zero, 0.0).amax(), scale.masked_fill(~zero, math.inf).amin()
    high, low = scale.masked_fill(~one, 0.0).amax(0), scale.masked_fill(~one, math.inf).amin(0)
    fits = (unit > 0) & (unit - least <= softmaxes.EXACT * unit)
    fits = fits & ((high - low <= softmaxes.EXACT * high) | (high == 0)).all() & one.any()
    table = torch.stack([one.sum(0).to(wide), (scale / unit).masked_fill(~one, 0.0).sum(0)])
    if table.shape[1] == 1:
        table = torch.cat([zero.sum().to(wide).expand(2, 1), table], 1)
    return torch.where(fits, table, torch.nan)


class ClassCounts:
    """Counts over the looks of a launch."""

    def __init__(self) -> None:
        self._targets: Any = None
        self._weights: Any = None
        self._of_means: Any = None
        self._beside: Any = None  # each class's weight beside that of the most frequent one, where a batch had both
        self._again: Any = None  # which of these a second look has shown alike
        self._most = -1
        self._looks, self._first = 0, numpy.zeros(0, bool)
        self._asked: Any = None  # rows of each class in an evaluation
        self._offsets = offsets.ClassOffsets()

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        found = self._offsets.fields_of(numbers["classes"][1]) if "classes" in numbers else {}
        if "asked_classes" in numbers:
            self._asked = numpy.ravel(numbers["asked_classes"][1])
            found |= self._never_trained()
        known = (name for name in _FAMILIES if name in numbers and numpy.isfinite(numbers[name][1][:2]).all())
        family = next(known, None)
        if family is None:
            return found
        by_row = family == "classes"
        counts, weights = numbers[family][1][:2]
        if self._targets is None or len(self._targets) != len(counts):
            self._targets, self._weights, self._of_means = (numpy.zeros(len(counts)) for _ in range(3))
            self._looks, self._first, self._most = 0, numpy.zeros(len(counts), bool), -1
        self._targets = self._targets + counts
        self._weights = self._weights + weights
        if weights.sum() > 0:  # a batch's rows beside each other: a mean's rows weigh less in larger batches
            self._of_means = self._of_means + weights * counts.sum() / weights.sum()
        found["class_targets"] = float(self._targets.sum())
        if by_row:
            found["untargeted_classes"] = float((self._targets == 0).sum())
            if self._looks < _FIRST:
                self._first |= counts > 0
            elif not self._first.all() and counts.sum() > 0:
                found["first_classes"] = float(counts[self._first].sum() / counts.sum())
            self._looks += 1
        if found.get("untargeted_classes") == 1:
            found["untargeted_class"] = float(self._targets.argmin())
        if by_row:
            self._compare(counts, weights)
            steady = numpy.where(self._again, self._beside, math.nan)
            if (elsewhere := _elsewhere(self._targets, steady)) is not None:
                found["class_weights_elsewhere"] = elsewhere
            if (inverted := _by_frequency(self._targets, steady)) is not None:
                found["class_weights_inverted"] = float(inverted)
            if (squared := _squared(self._targets, steady)) is not None:
                found["class_weights_squared"] = float(squared)
            if (doubled := _doubled(self._targets, steady, self._asked)) is not None:
                found["class_weights_doubled"] = float(doubled)
        slopes = [_slope(self._targets, some) for some in (self._weights, self._of_means)]
        slope = None if None in slopes else min((one for one in slopes if one is not None), key=abs)
        return found if slope is None else found | {"class_weight_slope": slope}

    def _never_trained(self) -> dict[str, float]:
        """`asked_untargeted`, `asked_class`: of an evaluation's rows, the share whose class was never a target of the
        training, of a thousand or more; and the most frequent such class."""
        known = self._targets is not None and self._targets.shape == self._asked.shape
        if not known or self._targets.sum() < _MANY or self._asked.sum() < _ASKED:
            return {}
        never = numpy.where(self._targets == 0, self._asked, 0.0)
        share = float(never.sum() / self._asked.sum())
        return {"asked_untargeted": share} | ({"asked_class": float(never.argmax())} if share > 0 else {})

    def _compare(self, counts: Any, weights: Any) -> None:
        """Of a batch: a mean that is over its weights has another unit in each, so they are compared within it. What
        one look shows may not come again: a focal loss weights rows, and so the classes of each batch otherwise."""
        most = int(self._targets.argmax())
        if most != self._most:
            if self._most >= 0 and math.isfinite(self._beside[most]) and self._again[most]:
                self._beside = self._beside / self._beside[most]
            else:
                self._beside, self._again = numpy.full(len(counts), math.nan), numpy.zeros(len(counts), bool)
            self._most = most
        here = (counts > 0) & (weights > 0)
        if not here[most]:
            return
        each = weights / numpy.maximum(counts, 1) / (weights[most] / counts[most])
        known = here & numpy.isfinite(self._beside)
        changes = (numpy.abs(each - self._beside) > _STEADY * self._beside)[known].any()
        self._again = self._again & ~here if changes else self._again | known
        self._beside = numpy.where(here, math.inf if changes else each, self._beside)


def _elsewhere(counts: Any, weights: Any) -> float | None:
    """Whether the weights make up for how rare classes are, but not each for its own: 1 where they are in another
    order, 2 where they are those of the class before or behind, 0 where each is its own. None where nothing fits, and
    where they rise with the frequencies: `_slope` is about that."""
    if not _say_enough(counts, weights):
        return None
    if numpy.corrcoef(numpy.log(weights), numpy.log(counts))[0, 1] > _INVERTED:
        return None
    for power in _POWERS:
        own, before, behind = (_off(weights, numpy.roll(counts, by), power) for by in (0, 1, -1))
        if own <= _FITS:
            return 0.0
        if own >= _FAR and _off(numpy.sort(weights), numpy.sort(counts)[::-1], power) <= _FITS:
            return 2.0 if min(before, behind) <= _FITS else 1.0
    return None


def _by_frequency(counts: Any, weights: Any) -> bool | None:
    """Whether the weights are the frequencies themselves, or their roots, to what chance leaves open; None where there
    are too few to say. Classes of which few targets have come are left out."""
    some = (counts >= _SOME) & numpy.isfinite(weights)
    counts, weights = counts[some], weights[some]
    if not _say_enough(counts, weights):
        return None
    return any(_off(weights, counts, -power) <= _FITS for power in _POWERS)


def _squared(counts: Any, weights: Any) -> bool | None:
    """Whether the weights are one over the squares of the frequencies, to what chance leaves open, and far from one
    over these themselves; None where there are too few to say. Classes of which few targets have come are left out."""
    some = (counts >= _SOME) & numpy.isfinite(weights)
    counts, weights = counts[some], weights[some]
    if not _say_enough(counts, weights):
        return None
    return _off(weights, counts, 2.0) <= _FITS and _off(weights, counts, 1.0) >= _FAR


def _doubled(counts: Any, weights: Any, asked: Any) -> bool | None:
    """Whether targets are drawn from all classes alike, and the weights make up for how rare classes are in an
    evaluation, to what chance leaves open; None where there are too few to say."""
    if asked is None or asked.shape != counts.shape or not (asked.sum() >= _ASKED and (asked > 0).all()):
        return None
    if not _say_enough(counts, weights):
        return None
    even = counts.max() < _UNEQUAL * counts.min() and asked.max() >= _APART * asked.min()
    return bool(even and any(_off(weights, asked, power) <= _FITS for power in _POWERS))


def _say_enough(counts: Any, weights: Any) -> bool:
    """Whether several classes, each known from some targets, have weights that are apart."""
    known = (counts >= _SOME) & numpy.isfinite(weights) & (weights > 0)
    return len(counts) >= _SEVERAL and bool(known.all()) and bool(weights.max() >= _APART * weights.min())


def _off(weights: Any, counts: Any, power: float) -> float:
    """How far weights are from a power of the frequencies, of what chance gives."""
    value, error = numpy.log(weights) + power * numpy.log(counts), power * power / counts + _EXACT * _EXACT
    middle = (value / error).sum() / (1 / error).sum()
    return float(((value - middle) ** 2 / error).sum()) / (len(counts) - 1)


def _slope(counts: Any, weights: Any) -> float | None:
    """By which power of a class's frequency its weight goes: 0 for equal weights, −1 for those that make up for rare
    classes. None where classes are about equally frequent, or their weights rise and fall with frequency."""
    known = (counts >= _ENOUGH) & (weights > 0)
    if known.sum() < 2 or counts[known].max() < _UNEQUAL * counts[known].min():
        return None
    frequency, weight = numpy.log(counts[known]), numpy.log(weights[known] / counts[known])
    away = frequency - frequency.mean()
    slope = float((away * weight).sum() / (away * away).sum())
    off = weight - weight.mean() - slope * away
    fits = float((off * off).sum()) <= _OFF * float(((weight - weight.mean()) ** 2).sum())
    return round(slope, 3) if fits or abs(slope) < _EVEN else None
