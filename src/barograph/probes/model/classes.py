"""Which classes a classifier's targets have.

In:   counts of some rows by class, from steps that a watch looks at.
Out:  figures for the `model` record: targets that were looked at, and classes that were never one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy


class ClassCounts:
    """Counts over the looks of a launch."""

    def __init__(self) -> None:
        self._targets: Any = None

    def fields_of(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """What is recorded of a step, in the order of steps."""
        if "classes" not in numbers:
            return {}
        counts = numbers["classes"][1][0]
        if not numpy.isfinite(counts).all():
            return {}
        if self._targets is None or len(self._targets) != len(counts):
            self._targets = numpy.zeros(len(counts))
        self._targets = self._targets + counts
        return {
            "class_targets": float(self._targets.sum()),
            "untargeted_classes": float((self._targets == 0).sum()),
        }
