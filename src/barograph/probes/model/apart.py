"""Whether the rows of a batch have more in common than those of any batches.

In:   of batches of new rows, with a sketch a row: means and variances [batches, columns], rows and steps.
Out:  figures for the `model` record: which part of the variance of the batches' means is more than their rows' variance
      gives them, and whether batches that follow each other are alike.

The mean of n rows that are drawn has an n-th of their variance. Whatever else the means of batches differ by is what
the rows of each have in common: a source, a speaker, a kind. Of what is drawn for each batch, those that follow each
other are as far apart as any two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

_FOLLOWING = 5  # batches right behind another one, at least

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


def beyond_chance(means: Floats, variances: Floats, counts: Sequence[int] | Floats) -> float:
    """Share, 0 to 1, of the variance of batches' means that the variance of their rows does not explain: the mean of
    all columns, each in deviations of its rows."""
    within = variances.mean(0)
    told = within > 0
    if not told.any():
        return 0.0
    between = float((means.var(0, ddof=1)[told] / within[told]).mean())
    return max(0.0, 1.0 - float(numpy.mean(1.0 / numpy.asarray(counts))) / between) if between > 0 else 0.0


def beside(steps: Sequence[int], means: Floats) -> float | None:
    """Squared distance of the means of batches that follow each other, of that of any two; None of fewer than five
    such."""
    follows, size = numpy.diff(steps) == 1, 2 * float(means.var(0, ddof=1).sum())
    if follows.sum() < _FOLLOWING or not size > 0:
        return None
    return float((numpy.diff(means, axis=0)[follows] ** 2).sum(1).mean()) / size
