"""The x of points: steps, times, tokens, samples, or another series.

In:   a run's points; the name of an axis.
Out:  x for each of them, as `StoredRun.series` has it; NaN where it is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barograph.analysis.compare.member import ComparedMember
from barograph.core.columns import align, strides
from barograph.views.server.places import RunPlace
from barograph.views.server.reading import SeriesPoints, SeriesReading, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIMED = ("time", "relative")
_SEEN = {
    "tokens": ("data/tokens_seen", "train/tokens_seen"),
    "samples": ("data/samples_seen", "train/samples_seen", "samples_seen", "consumed_samples"),
}


class Axis:
    """One axis of one run. Raises KeyError, with a sentence, where the run has not got it."""

    def __init__(self, reading: SeriesReading, place: RunPlace, x: str, rank: int | None, state: State):
        self._reading, self._place, self._x, self._rank, self._state = reading, place, x, rank, state
        self._known: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._start: int | None = None

    def of(self, points: SeriesPoints) -> NDArray[Any]:
        """x [n] of points. `relative` counts from the first points that were asked for."""
        import numpy

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
        if self._x in _SEEN:  # a count that goes on: on the line between what is known, as comparisons have it
            return numpy.interp(points.step, steps, values) if len(steps) else numpy.full(len(points), numpy.nan)

        return align(points.step, steps, values)

    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._known is None:
            self._known = self._counted() if self._x in _SEEN else self._series(self._x)
        return self._known

    def _series(self, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        found = self._reading.series(self._place, [name], self._rank, False, self._state).get(name)
        if found is None:
            name = self._reading.resolve(self._place, name)
            found = self._reading.series(self._place, [name], self._rank, False, self._state)[name]
        live = found.live()
        return live.step, live.value

    def _counted(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Tokens or samples so far, as they were logged; else as `comparing` counts them."""
        import numpy

        names = [*_SEEN[self._x], *(["train/step_tokens"] if self._x == "tokens" else [])]
        for name, found in self._reading.series(self._place, names, self._rank, False, self._state).items():
            live = found.live()
            good = numpy.isfinite(live.value)
            steps, values = live.step[good], live.value[good]
            if not len(steps):
                continue
            if name == "train/step_tokens":  # a row that is logged each ten steps stands for ten
                return steps, numpy.cumsum(values * strides(steps))
            return steps, numpy.maximum.accumulate(values)
        return self._compared()

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
        main = next((name for name in ("train/loss", "train/step_tokens", "loss", *names[:1]) if name in names), None)
        if main is None:
            return numpy.empty(0, numpy.int64)
        found = self._reading.series(self._place, [main], self._rank, False, self._state).get(main)
        return numpy.empty(0, numpy.int64) if found is None else found.live().step
