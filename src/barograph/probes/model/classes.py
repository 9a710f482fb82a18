"""Which classes a classifier's targets have, and how much each counts in the loss.

In:   counts of some rows by class and their weights in the loss, from steps that a watch looks at.
Out:  figures for the `model` record: targets that were looked at, classes that were never one, and whether frequent
      classes have larger weights than rare ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

_ENOUGH = 16  # targets of a class: fewer say little of a frequency
_UNEQUAL = 2.0  # times as frequent
_OFF = 0.25  # of the variance of the weights' logarithms, that a power of the frequency leaves
_EVEN = 0.05  # below it the weights are equal


class ClassCounts:
    """Counts over the looks of a launch."""

    def __init__(self) -> None:
        self._targets: Any = None
        self._weights: Any = None

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        if "classes" not in numbers:
            return {}
        counts, weights = numbers["classes"][1]
        if not (numpy.isfinite(counts).all() and numpy.isfinite(weights).all()):
            return {}
        if self._targets is None or len(self._targets) != len(counts):
            self._targets, self._weights = numpy.zeros(len(counts)), numpy.zeros(len(counts))
        self._targets = self._targets + counts
        self._weights = self._weights + weights
        found = {
            "class_targets": float(self._targets.sum()),
            "untargeted_classes": float((self._targets == 0).sum()),
        }
        if found["untargeted_classes"] == 1:
            found["untargeted_class"] = float(self._targets.argmin())
        slope = _slope(self._targets, self._weights)
        return found if slope is None else found | {"class_weight_slope": slope}


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
