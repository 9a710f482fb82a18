"""A range of a column for a chart: exact where it fits, else the extremes of each pixel.

In:   x and y [n], a range of x, how many buckets there is room for.
Out:  points as they are, or buckets with their exact minimum and maximum; NaN and infinities as marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.columns import buckets

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_MARKS = 200


class Sampled(NamedTuple):
    """columns: by name, of one length. points: in the range. marks: the non-finite ones, the first 200 of marks_total.

    before, after: the nearest finite point outside the range, (x, y), None if there is none: a line goes on to it.
    """

    columns: dict[str, NDArray[Any]]
    points: int
    exact: bool
    marks: list[dict[str, Any]]
    marks_total: int
    before: tuple[float, float] | None
    after: tuple[float, float] | None


def sampled(
    x: NDArray[Any],
    y: NDArray[Any],
    step: NDArray[Any],
    smoothed: NDArray[Any] | None,
    low: float | None,
    high: float | None,
    most: int,
    places: bool = False,
    log: bool = False,
) -> Sampled:
    """At most `most` buckets of the points with low ≤ x ≤ high; all of them, exactly, if there are not more.

    x, y, step, smoothed [n] (None: no smoothing). Points without a finite x are left out. places: also the exact x of
    each bucket's minimum and maximum. log: buckets as wide as pixels of a logarithmic x axis.
    """
    import numpy

    x, y, step, smoothed = _in_order(x, y, step, smoothed)
    first = 0 if low is None else int(numpy.searchsorted(x, low, "left"))
    stop = len(x) if high is None else int(numpy.searchsorted(x, high, "right"))
    stop = max(first, stop)
    inside = slice(first, stop)
    along, values = x[inside], y[inside]
    odd = numpy.flatnonzero(~numpy.isfinite(values))
    marks = [_mark(float(along[at]), int(step[first + at]), float(values[at])) for at in odd[:MOST_MARKS].tolist()]
    edges = _neighbour(x[:first], y[:first], -1), _neighbour(x[stop:], y[stop:], 0)
    if len(values) <= most:
        columns = {"x": along, "y": values}
        if smoothed is not None:
            columns["smooth"] = smoothed[inside]
        return Sampled(columns, len(values), True, marks, len(odd), *edges)
    made = buckets(along, values, most, log)
    starts = numpy.cumsum(made.points) - made.points
    ends = starts + made.points - 1
    finite = made.points - made.nan - made.inf - made.minus_inf
    columns = {
        "x": made.x_first,
        "min": made.y_min,
        "max": made.y_max,
        "first": values[starts],
        "last": made.y_last,
        "mean": _means(values, starts, finite, len(odd) > 0),
        "count": made.points,
    }
    if places:
        columns |= {"x_min": made.x_min, "x_max": made.x_max, "x_last": made.x_last}
    if smoothed is not None:
        columns["smooth"] = _last_finite(smoothed[inside], starts, ends, len(odd) > 0)
    return Sampled(columns, len(values), False, marks, len(odd), *edges)


def _in_order(
    x: NDArray[Any], y: NDArray[Any], step: NDArray[Any], smoothed: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Everything in the order of x, without points that have none."""
    import numpy

    if x.dtype.kind == "f" and not bool((good := numpy.isfinite(x)).all()):
        x, y, step = x[good], y[good], step[good]
        smoothed = None if smoothed is None else smoothed[good]
    if bool((x[1:] < x[:-1]).any()):
        order = numpy.argsort(x, kind="stable")
        x, y, step = x[order], y[order], step[order]
        smoothed = None if smoothed is None else smoothed[order]
    return x, y, step, smoothed


def _means(values: NDArray[Any], starts: NDArray[Any], finite: NDArray[Any], any_odd: bool) -> NDArray[Any]:
    """The mean of each bucket's finite values, NaN if it has none."""
    import numpy

    source = numpy.where(numpy.isfinite(values), values, 0.0) if any_odd else values
    with numpy.errstate(over="ignore", invalid="ignore"):
        sums = numpy.add.reduceat(source, starts)
        means = numpy.where(finite > 0, sums / numpy.maximum(finite, 1), numpy.nan)
        wild = ~numpy.isfinite(sums) & (finite > 0)  # values near 1e308 add up to more than there is
        if wild.any():
            halves = numpy.add.reduceat(
                source / numpy.repeat(finite.clip(1), numpy.diff(starts, append=len(values))), starts
            )
            means[wild] = halves[wild]
    return numpy.asarray(means)


def _last_finite(smoothed: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any], any_odd: bool) -> NDArray[Any]:
    """Each bucket's last smoothed value; where that is none, because the point is not finite, the one before it."""
    import numpy

    if not any_odd:
        return numpy.asarray(smoothed[ends])
    place = numpy.where(numpy.isfinite(smoothed), numpy.arange(len(smoothed)), -1)
    last = numpy.maximum.accumulate(place)[ends]
    return numpy.asarray(numpy.where(last >= starts, smoothed[last], numpy.nan))


def _mark(x: float, step: int, value: float) -> dict[str, Any]:
    kind = "nan" if value != value else "+inf" if value > 0 else "-inf"
    return {"x": x, "step": step, "kind": kind}


def _neighbour(x: NDArray[Any], y: NDArray[Any], which: int) -> tuple[float, float] | None:
    """The finite point nearest to the range; looked for among the nearest thousand."""
    import numpy

    near = slice(-1000, None) if which else slice(0, 1000)
    good = numpy.flatnonzero(numpy.isfinite(y[near]))
    if not len(good):
        return None
    at = good[which]
    return float(x[near][at]), float(y[near][at])
