"""A series as its live points and each stretch that a resume or rewind superseded, for charts that dim the old ones.

In:   a stored run, the name of a series, an axis.
Out:  `Stretches`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barograph.core.columns import align, thin_indices
from barograph.query.given import GivenRun, stored_run
from barograph.query.stored import Series, StoredRun

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Integers = NDArray[numpy.int64]
    Floats = NDArray[numpy.float64]


@dataclass(frozen=True)
class Stretches:
    """A series as it is drawn. live: the points that count, a fork's history among them.

    old: what was superseded, one series a segment, in the order of segments; to be drawn dimmed.
    """

    live: Series
    old: tuple[Series, ...] = ()


def stretches(
    run: GivenRun, name: str, x: str = "step", max_points: int | None = None, rank: int | None = None
) -> Stretches:
    """One series as its live points and each stretch that a resume or rewind superseded.

    The arguments are those of `StoredRun.series`; max_points counts for each stretch. Along tokens, or another series,
    a superseded stretch lies where it was when it was trained: its own way there is counted, and nothing that came
    later. Raises KeyError naming the nearest series if there is none of that name.
    """
    import numpy

    run = stored_run(run)
    live = run.series(name, x, max_points, rank=rank)
    step, time, value, number = run.columns(live.name, "all", rank)
    if len(run.segments) < 2 or not len(step):
        return Stretches(live)
    way = _Way(run, step, number)
    along = run.series(live.name, "time", rank=rank).x if x == "relative" else None
    origin = float(along.min()) if along is not None and len(along) else float(time.min()) / 1e6
    found = []
    for segment in run.segments:
        chosen = way.old(segment.number)
        if not chosen.any():
            continue
        at = numpy.flatnonzero(chosen)
        at = at[numpy.lexsort((time[at], step[at]))]
        seconds = time[at] / 1e6
        if x in ("step", "time", "relative"):
            places: Any = {"step": step[at], "time": seconds, "relative": seconds - origin}[x]
        else:
            places = _along(run, x, segment.number, step[at], rank)
        series = Series(live.name, places, value[at], step[at], seconds, number[at], live.rank[:1].repeat(len(at)))
        found.append(_thinned(series, max_points))
    return Stretches(live, tuple(found))


class _Way:
    """Which points of a series belong to the way to a segment. step, number [n]: of all its points."""

    def __init__(self, run: StoredRun, step: Integers, number: NDArray[Any]):
        self.run, self.step, self.number = run, step, number

    def to(self, last: int) -> NDArray[Any]:
        """Points on the way that ends with a segment [n]: a fork's history, then each segment up to the next."""
        chosen = self.run.branch(last).mask(self.step, self.number)
        assert chosen is not None  # of some of the segments
        return chosen

    def old(self, number: int) -> NDArray[Any]:
        """A segment's superseded points [n]."""
        live = self.run.branch().mask(self.step, self.number)
        mine: NDArray[Any] = self.number == number
        return mine & ~live if live is not None else mine & False


def _along(run: StoredRun, x: str, number: int, step: Integers, rank: int | None) -> Floats:
    import numpy

    full = run.series("train/step_tokens" if x == "tokens" else x, rank=rank).name
    steps, times, values, numbers = run.columns(full, "all", rank)
    mine = numpy.flatnonzero(_Way(run, steps, numbers).to(number))
    mine = mine[numpy.lexsort((times[mine], steps[mine]))]
    held = numpy.cumsum(values[mine]) if x == "tokens" else values[mine]
    placed: Floats = align(step, steps[mine], held)
    return placed


def _thinned(series: Series, most: int | None) -> Series:
    if most is None or len(series) <= most:
        return series

    keep = thin_indices(series.value, most, series.x)
    return series.points(keep)
