"""Losses that say how far what a model gives for two sets of examples is apart, as those of energies and critics.

In:   the loss, its logged parts, and series whose names differ in the set alone: `energy_pos` and `energy_neg`.
Out:  whether the loss is, or has as a part, the difference of two such series.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy

from barograph.core.patterns import expression
from barograph.doctor.kernel.sums import weights_of

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory

_GIVEN = expression(r"(?i)(?<![a-z])(?:pos|positive|real|data|true)(?![a-z])")
_MADE = expression(r"(?i)(?<![a-z])(?:neg|negative|fake|model|samples?|sampled|generated|gen)(?![a-z])")
_ROWS = 32  # of the loss, in which the numbers must agree
_MOST = 16  # series that are looked at
_EXACT = 1e-4  # of how the loss varies: what is logged may be rounded


def opposes_sets(history: RunHistory, loss: Channel) -> bool:
    """Whether the loss tells two sets of examples apart: a mean of a layer's outputs less another one of the same layer
    by its graph (`model/loss_opposed`), or the difference of two logged series that are named alike."""
    if history.channel("model/loss_opposed") is not None:
        return True
    rows = loss.rows()
    known = int((rows.time <= loss.clock.now).sum())
    rows = rows.part(max(known - _ROWS, 0), known)
    if len(rows) < _ROWS or not rows.all_of(int(rows.segment[0])):
        return False
    beside: dict[str, Any] = {}
    for name, channel in history.channels.items():
        if channel is loss or name.count("/") > 1 or name.startswith("model/") or len(beside) == _MOST:
            continue
        theirs = channel.rows()
        here = numpy.isin(theirs.step, rows.step) & (theirs.segment == rows.segment[0])
        if here.sum() == _ROWS and numpy.isfinite(theirs.value[here]).all():
            beside[name] = theirs.value[here]
    apart = [beside[name] - beside[other] for name, other in _pairs(beside)]
    return any(_is_part(one, rows.value, list(beside.values())) for one in apart)


def _pairs(names: Any) -> list[tuple[str, str]]:
    """Names that are one name but for the set."""
    given = {_GIVEN.sub("*", name, count=1): name for name in names if _GIVEN.search(name)}
    made = {_MADE.sub("*", name, count=1): name for name in names if _MADE.search(name)}
    return [(given[name], made[name]) for name in given if name in made]


def _is_part(apart: Any, loss: Any, parts: list[Any]) -> bool:
    """Whether the loss is this difference, or with one or two of these parts adds up from it."""
    some = [one for one in parts if one.std() > 0]
    for count in (0, 1, 2):
        for others in combinations(some, count):
            weights = weights_of(numpy.stack([apart, *others], axis=1), loss, _EXACT)
            if weights is not None and weights[0] != 0:
                return True
    return False
