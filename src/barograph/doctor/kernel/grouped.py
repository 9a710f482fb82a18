"""Batches of texts of one length each.

In:   a history, and a step.
Out:  whether the batches are grouped by length, and the step's is the one with the shortest, or the longest, texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from barograph.doctor.kernel.curve import between

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

_LEAST = 32  # batches
_BACK = 128  # steps
_ALIKE = 0.5  # a batch's deviation, of that between batches
_NEAR = 0.05  # of a length


def is_outermost(history: RunHistory, step: int, segment: int) -> bool:
    """Whether the lengths within batches differ half as much as the batches' means do, or less, and no batch of the
    128 steps before has a mean that is further from all others, on one side, than that of a step."""
    mean, within = (history.channel(f"data/length_{name}") for name in ("mean", "std"))
    here = between(mean, step, step + 1, segment)
    known, apart = (between(one, step - _BACK, step, segment) for one in (mean, within))
    if len(here) != 1 or len(known) < _LEAST or len(apart) < _LEAST:
        return False
    length, spread = float(here[0]), float(known.std())
    if spread <= 0 or float(numpy.median(apart)) > _ALIKE * spread:
        return False
    return bool(length <= known.min() * (1 + _NEAR) or length >= known.max() * (1 - _NEAR))
