"""Groups of runs for the page: the heads of its table, and one curve with a band for each group.

In:   rows; the runs of a group, the name of a series.
Out:  groups as `query.groups` makes them, with their numbers; mean and deviation along the axis.

A curve of a group is the mean over its runs at shared places of the axis, with the mean less and plus the standard
deviation from run to run as minimum and maximum, and how many runs there are as count. Each run is aligned as
comparisons align it: the mean of its points around a place, on the line between its neighbours where there are none,
nothing beyond its ends.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.analysis.compare.curves import ComparisonCurve
from barograph.core.columns import smoother
from barograph.core.record import encode_fields, mark_non_finite
from barograph.query.groups import FAILED, RunGroup, full_keys, group_runs, statistics
from barograph.query.leaves import number_in
from barograph.query.losses import all_told
from barograph.query.metrics import direction
from barograph.views.server.axes import TIMED, Axis
from barograph.views.server.places import RunPlace
from barograph.views.server.reading import SeriesReading
from barograph.views.server.rows import RunRow
from barograph.views.server.sampling import MOST_MARKS, Sampled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.views.server.series import Request, SeriesWanted

MOST_COLUMNS = 100  # with a statistic in the heads of groups
MOST_GROUPED = 1_000  # runs of a group whose curves are read
_FACTS = {"step": "step", "duration": "wall_seconds"}
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def groups_as_json(groups: list[dict[str, Any]]) -> bytes:
    """The answer: thousands of groups, in which nothing but the values of the keys may be not finite."""
    try:
        marked = [group | {"values": mark_non_finite(group["values"])} for group in groups]
        return msgspec.json.encode({"groups": marked})
    except (TypeError, ValueError, OverflowError):  # such as half a surrogate pair in a name
        return encode_fields({"groups": groups})


def grouped(rows: Iterable[RunRow], keys: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Groups of rows as the page has them. keys: as a person writes them; KeyError for one that no row has.

    columns: what is wanted of each group, such as `last:train/loss`, `best:eval/loss`, `config:lr`, `step`, `duration`.
    """
    every = list(rows)
    full = full_keys(keys, [row.traits for row in every]) if every else []
    wanted = [(column, *column.partition(":")[::2]) for column in columns]
    better = {name: direction(name) for _, _, name in wanted}
    return [_shown(group, wanted, better) for group in group_runs(every, full, lambda row: row.traits)]


def _shown(group: RunGroup[RunRow], columns: Sequence[tuple[str, str, str]], better: dict[str, int]) -> dict[str, Any]:
    found = {}
    told = all_told(row.told for row in group.runs)
    for column, kind, name in columns:
        way = better[name] or direction(name, told)
        made = statistics(_numbers([row.data for row in group.runs], kind, name), way)
        if made.count or made.not_finite:
            found[column] = made.as_dict()
    return {
        "label": group.label,
        "values": group.values,
        "runs": [row.data["key"] for row in group.runs],
        "failed": sum(row.data["status"] in FAILED for row in group.runs),
        "statistics": found,
    }


def _numbers(rows: Sequence[dict[str, Any]], kind: str, name: str) -> list[float]:
    """The numbers of a column, of the rows that have one."""
    if kind in ("last", "best"):
        each = [row[kind].get(name) for row in rows]
    elif kind == "config":
        each = [number_in(row["config"].get(name)) for row in rows]
    else:
        each = [row.get(_FACTS.get(kind, "")) for row in rows]
    values = [_NUMBERS.get(value) if isinstance(value, str) else value for value in each]
    return [value for value in values if value is not None]


# -- curves ------------------------------------------------------------------------------------------------


class GroupMember:
    """A run's part in a group's curve. x, y [n]: its points, x finite and rising, y as logged or smoothed.

    last_step: of its last point.
    """

    def __init__(self, x: NDArray[Any], y: NDArray[Any], step: NDArray[Any]):
        import numpy

        placed = numpy.isfinite(x)
        x, y, step = x[placed], y[placed], step[placed]
        if len(x) > 1 and bool((x[1:] < x[:-1]).any()):
            order = numpy.argsort(x, kind="stable")
            x, y, step = x[order], y[order], step[order]
        self.x, self.y, self.step = x, y, step
        self.finite = numpy.isfinite(y)
        self.curve = ComparisonCurve(x[self.finite], y[self.finite])


def band(
    members: Sequence[GroupMember], low: float | None, high: float | None, most: int, log: bool = False
) -> Sampled:
    """Mean and deviation over runs at no more than `most` places of the axis, within low ≤ x ≤ high.

    The places are those of the points where there are few enough, else the middles of equal parts of the range; log: of
    the logarithm's range.
    """
    import numpy

    curves = [member.curve for member in members if len(member.curve)]
    if log:
        above = [(curve, curve.x > 0) for curve in curves]
        curves = [ComparisonCurve(numpy.log10(curve.x[some]), curve.y[some]) for curve, some in above if some.any()]
        edges = [None if edge is None or edge <= 0 else math.log10(edge) for edge in (low, high)]
    else:
        edges = [low, high]
    marks = _marks(members, low, high)
    if not curves:
        nothing = numpy.empty(0)
        return Sampled(_columns(nothing, nothing, nothing, nothing), 0, False, marks, len(marks), None, None)
    first = max(min(float(curve.x[0]) for curve in curves), -math.inf if edges[0] is None else edges[0])
    last = min(max(float(curve.x[-1]) for curve in curves), math.inf if edges[1] is None else edges[1])
    inside = [curve.x[(curve.x >= first) & (curve.x <= last)] for curve in curves]
    places, window = _union(inside, most), 0.0
    if places is None:
        window = (last - first) / most
        places = first + window * (numpy.arange(most) + 0.5)
    values = numpy.stack([curve.at(places, window) for curve in curves])
    there = numpy.isfinite(values)
    count = there.sum(axis=0)
    mean = numpy.where(there, values, 0.0).sum(axis=0) / numpy.maximum(count, 1)
    squares = (numpy.where(there, values - mean, 0.0) ** 2).sum(axis=0)
    deviation = numpy.sqrt(squares / numpy.maximum(count - 1, 1))
    some = count > 0
    x = 10.0**places if log else places
    columns = _columns(x[some], mean[some], deviation[some], count[some].astype(float))
    return Sampled(columns, sum(map(len, inside)), False, marks, len(marks), None, None)


def _columns(x: NDArray[Any], mean: NDArray[Any], deviation: NDArray[Any], count: NDArray[Any]) -> dict[str, Any]:
    spread = {"min": mean - deviation, "max": mean + deviation}
    return {"x": x, **spread, "first": mean, "last": mean, "mean": mean, "count": count}


def _union(inside: Sequence[NDArray[Any]], most: int) -> NDArray[Any] | None:
    """All places of points, if there are no more than `most`."""
    import numpy

    if max(map(len, inside)) > most:
        return None
    found = numpy.unique(numpy.concatenate(inside))
    return found if len(found) <= most else None


def _marks(members: Sequence[GroupMember], low: float | None, high: float | None) -> list[dict[str, Any]]:
    """Where each run's values stop being finite: its first point of that kind in the range."""
    import numpy

    marks: list[dict[str, Any]] = []
    for member in members:
        for at in numpy.flatnonzero(~member.finite).tolist():
            x = float(member.x[at])
            if (low is None or x >= low) and (high is None or x <= high):
                value = float(member.y[at])
                kind = "nan" if math.isnan(value) else "+inf" if value > 0 else "-inf"
                marks.append({"x": x, "step": int(member.step[at]), "kind": kind})
                break
    return sorted(marks, key=lambda mark: mark["x"])[:MOST_MARKS]


def curves(
    reading: SeriesReading, keys: Sequence[str], wanted: Sequence[SeriesWanted], request: Request, until: float
) -> dict[SeriesWanted, dict[str, Any]]:
    """The answers for series of a group of runs. until: when to give up, by `time.monotonic`."""
    if len(keys) > MOST_GROUPED:
        sentence = f"{len(keys):,} runs are too many for one curve; {MOST_GROUPED:,} are allowed"
        return {item: {"error": sentence} for item in wanted}
    members: dict[SeriesWanted, list[GroupMember]] = {item: [] for item in wanted}
    for key in keys:
        if time.monotonic() > until:
            return {item: {"error": "reading took too long; ask for fewer runs at once"} for item in wanted}
        with contextlib.suppress(KeyError, OSError, ValueError):  # a run that is gone or damaged takes no part
            for item, member in _members(reading, reading.places.find(key), wanted, request):
                members[item].append(member)
    return {item: _answer(found, request) for item, found in members.items()}


def _answer(members: Sequence[GroupMember], request: Request) -> dict[str, Any]:
    if not members:
        return {"error": "no run of the group has it"}
    made = band(members, request.low, request.high, request.buckets, request.log)
    mean = made.columns["mean"]
    return {
        "live": made,
        "total": sum(len(member.y) for member in members),
        "last_step": max((int(member.step[-1]) for member in members if len(member.step)), default=None),
        "last_value": float(mean[-1]) if len(mean) else None,
    }


def _members(
    reading: SeriesReading, place: RunPlace, wanted: Sequence[SeriesWanted], request: Request
) -> Iterator[tuple[SeriesWanted, GroupMember]]:
    """One run's parts in the series of its group that it has."""
    state, timed = reading.state(place), request.x in TIMED
    smoothed = smoother(request.smooth)
    reading.series(place, [item.name for item in wanted], wanted[0].rank, timed, state)  # in one look
    for item in wanted:
        with contextlib.suppress(KeyError):  # the run lacks the series or the axis
            points = reading.named(place, item.name, item.rank, timed, state)[1].live()
            y = points.value if smoothed is None else smoothed(points.value)
            axis = Axis(reading, place, request.x, item.rank, state)  # time since start counts from each series' start
            yield item, GroupMember(axis.of(points), y, points.step)
