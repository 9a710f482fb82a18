"""One training on paper and what is true of it.

In:   what a family says of the training that it made.
Out:  a `Case`; its label, as it is in `labels.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from logs.curves import Training

HEALTHY, ALIKE, TROUBLE = GROUPS = ("healthy", "alike", "trouble")
TEXT = "text"  # not a training at all: there is nothing to say of it
TOLERANCE = 0.05  # of the run, that a finding's step may lie off the onset
TOLERANCE_ROWS = 12  # and never less than this many rows


@dataclass(frozen=True)
class Case:
    """A training, the formats that can tell it, and what a doctor should say.

    kinds: kinds of finding that are right. onset: the first and the last row that may be called its beginning; None
    where there is no such row. least: the mildest severity that counts. tolerance: a part of the run.
    """

    training: Training
    formats: tuple[str, ...]
    group: str = HEALTHY
    kinds: tuple[str, ...] = ()
    onset: tuple[int, int] | None = None
    least: str = "warning"
    tolerance: float = TOLERANCE

    def label(self, steps: list[int]) -> dict[str, Any]:
        """What is true, with the onset as the lowest and highest step at which a finding is right.

        steps: those of the rows, as the format tells them.
        """
        window = None
        if self.onset is not None:
            first, last = (steps[min(row, len(steps) - 1)] for row in self.onset)
            span = max(steps) - min(steps)
            off = max(self.tolerance * span, TOLERANCE_ROWS * span / max(1, len(steps) - 1))
            window = [first - off, last + off]
        return {"group": self.group, "kinds": list(self.kinds), "window": window, "least": self.least}


Family = Callable[[Generator, int], Case]


def trouble(
    training: Training,
    formats: tuple[str, ...],
    kinds: tuple[str, ...],
    onset: int | tuple[int, int] | None,
    least: str = "warning",
    tolerance: float = TOLERANCE,
) -> Case:
    """A training that went wrong: with the row since when, or the first and the last that may be called so."""
    window = (onset, onset) if isinstance(onset, int) else onset
    return Case(training, formats, TROUBLE, kinds, window, least, tolerance)


def alike(training: Training, formats: tuple[str, ...]) -> Case:
    """A healthy training that looks ill to a nervous doctor."""
    return Case(training, formats, ALIKE)


def no_training(lines: list[str], told: str = "words") -> Case:
    """A text that is not of a training."""
    return Case(Training(np.zeros(0, np.int64), np.zeros(0), last_words=lines), (told,), TEXT)
