"""Whether the rows of a batch have more in common than those of any batches.

In:   of batches of new rows, with a sketch a row: means and variances [batches, columns], rows and steps.
Out:  figures for the `model` record: which part of the variance of the batches' means is more than their rows' variance
      gives them, whether batches that follow each other are alike, and whether they come in blocks.

The mean of n rows that are drawn has an n-th of their variance. Whatever else the means of batches differ by is what
the rows of each have in common: a source, a speaker, a kind. Of what is drawn for each batch, those that follow each
other are as far apart as any two. Where sources are read one behind the other, batches are as far apart as chance has
it for a while, and then far apart at once; what changes little by little, or anew with each batch, is neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

_FOLLOWING = 5  # batches right behind another one, at least
_STAYS, _JUMPS = 3.0, 10.0  # times the squared distance by chance: at most; at least
_MOSTLY, _BETWEEN, _OFTEN = 0.75, 2, 3  # of all neighbours, that do one or the other; stays between jumps; jumps

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


def blocks(steps: Sequence[int], means: Floats, variances: Floats, counts: Sequence[int] | Floats) -> int:
    """How many blocks of batches that are alike, and unlike those of all other blocks, come one behind the other, at
    least; 0 where they don't.

    Neighbours among the batches that were looked at are as far apart as chance makes them, by the variance of rows, or
    ten times as far, and few of them between. Nearly all that follow each other directly are the former. Three jumps or
    more, and twice or more two that are some steps apart stay alike between jumps.
    """
    within = variances.mean(0)
    told, apart = within > 0, numpy.diff(steps)
    follows = apart == 1
    if follows.sum() < _FOLLOWING or not told.any():
        return 0
    shown, shares = means[:, told] / numpy.sqrt(within[told]), 1 / numpy.asarray(counts, float)
    squares = (numpy.diff(shown, axis=0) ** 2).mean(1) / (shares[:-1] + shares[1:])
    stays, jumps = squares <= _STAYS, squares >= _JUMPS
    at = numpy.flatnonzero(jumps)
    if len(at) < _OFTEN or (follows & ~stays).sum() > max(1, follows.sum() // 8):
        return 0
    if (stays & ~follows)[at[0] : at[-1]].sum() < _BETWEEN or (stays | jumps).mean() < _MOSTLY:
        return 0
    different = [0]
    for one in at + 1:  # the first batch of a block
        away = ((shown[different] - shown[one]) ** 2).mean(1) / (shares[different] + shares[one])
        different += [int(one)] if away.min() >= _JUMPS else []
    return len(different)
