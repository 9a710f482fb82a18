"""The live branch: which of a run's points count, and which a resume, rewind or fork has superseded.

In:   a run's segments, the first step that each of them logged.
Out:  masks over points, for everybody who shows or hands out any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.core.segments import Segment, live_cuts

if TYPE_CHECKING:
    from numpy.typing import NDArray

BEFORE_FORK = 0
"""The segment that points have which a fork took over from its source."""


class Branch:
    """first: segment → the first step that it logged, for segments that began without one. some: there are points of
    segments that are not given.

    whole: nothing is superseded. cuts: live segment → the step before which its points count; None: all of them.
    """

    def __init__(self, segments: Sequence[Segment], first: Mapping[int, int], some: bool = False):
        self.whole = not some and len(segments) < 2
        self.cuts = live_cuts(list(segments), dict(first))

    def mask(self, step: NDArray[Any], segment: NDArray[Any]) -> NDArray[Any] | None:
        """Which points are live, bool [n]; None: all of them."""
        if self.whole:
            return None
        import numpy

        live = numpy.zeros(len(step), bool)
        for number in numpy.unique(segment).tolist():
            if number in self.cuts or number == BEFORE_FORK:
                rows, cut = segment == number, self.cuts.get(number)
                live |= rows if cut is None else rows & (step < cut)
        return live

    def split(self, step: NDArray[Any], segment: NDArray[Any]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        """Which points are live, and a mask for those of each segment that are superseded."""
        import numpy

        live = self.mask(step, segment)
        if live is None:
            return numpy.ones(len(step), bool), []
        gone = [(segment == number) & ~live for number in numpy.unique(segment).tolist()]
        return live, [rows for rows in gone if rows.any()]
