"""The x of points: steps, times, tokens, samples, or another series.

In:   a run's points; the name of an axis.
Out:  x for each of them, as `StoredRun.series` has it; NaN where it is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.analysis.compare.member import ComparedMember
from barograph.core.columns import align
from barograph.query import axes
from barograph.views.server.places import RunPlace
from barograph.views.server.reading import SeriesPoints, SeriesReading, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIMED = ("time", "relative")


class Axis:
    """One axis of one run. Raises KeyError, with a sentence, where the run has not got it."""

    def __init__(self, reading: SeriesReading, place: RunPlace, x: str, rank: int | None, state: State):
        self._reading, self._place, self._x, self._rank, self._state = reading, place, x, rank, state
        self._known: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._start: int | None = None

    def of(self, points: SeriesPoints) -> NDArray[Any]:
        """x [n] of points. `relative` counts from the first points that were asked for."""
        if self._x == "step":
            return points.step
        if self._x in TIMED:
            assert points.time is not None
            if self._x == "time":
                return points.time / 1e6
            if self._start is None:
                self._start = int(points.time.min()) if len(points) else 0
            return (points.time - self._start) / 1e6  # whole µs first: the difference of seconds loses digits
        steps, values = self._pairs()
        if self._x in axes.SEEN:  # as comparisons have it
            return axes.at(points.step, (steps, values))
        return align(points.step, steps, values)

    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._known is None:
            self._known = self._counted() if self._x in axes.SEEN else self._series(self._x)
        return self._known

    def _series(self, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        live = self._reading.named(self._place, name, self._rank, False, self._state)[1].live()
        return live.step, live.value

    def _counted(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Tokens or samples so far, as they were logged; else as comparisons count them."""
        found = self._reading.series(self._place, axes.names_of(self._x), self._rank, False, self._state)
        parts = ((name, item.live()) for name, item in found.items())
        known = axes.counted(self._x, ((name, (live.step, live.value)) for name, live in parts))
        return self._compared() if known is None else known

    def _compared(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where the configuration alone says how many there are in each step."""
        import numpy

        axes = ComparedMember(self._reading.run(self._place)).axes
        reason = "it has logged no step" if axes is None else axes.reason(self._x)
        if axes is None or reason is not None:
            raise KeyError(f"run {self._place.dir.name} can't be drawn over {self._x}: {reason}")
        steps = numpy.unique(self._steps())
        along = axes.at(self._x, steps)
        assert along is not None
        return steps, along

    def _steps(self) -> NDArray[Any]:
        import numpy

        names = self._reading.names(self._place)
        main = self._reading.losses(self._place).loss or next(
            (name for name in ("train/step_tokens", *names[:1]) if name in names), None
        )
        if main is None:
            return numpy.empty(0, numpy.int64)
        found = self._reading.series(self._place, [main], self._rank, False, self._state).get(main)
        return numpy.empty(0, numpy.int64) if found is None else found.live().step
