"""The answer to a request for series: many series of many runs in one frame.

In:   the request's JSON.
Out:  a frame, its columns as `sampling` makes them. What was made is kept while the run has no new points.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import msgspec

from barograph.core import columns
from barograph.views.server import grouping
from barograph.views.server.axes import TIMED, Axis
from barograph.views.server.frames import Frame
from barograph.views.server.memory import Memory
from barograph.views.server.reading import SeriesPoints, SeriesReading, State
from barograph.views.server.sampling import Sampled, sampled
from barograph.views.server.slow import StillWorking

MOST_SERIES = 500
MOST_BUCKETS = 4_000
MOST_POINTS = 1_000_000  # buckets times series: about 60 MB
_SECONDS = 20.0  # what is not read by then is left out, with a sentence


class SeriesWanted(msgspec.Struct, frozen=True):
    """One series that is asked for."""

    run: str
    name: str
    rank: int | None = None


class Request(msgspec.Struct, frozen=True, rename={"low": "from", "high": "to"}):
    """What is asked for. low, high: the range of x, None: to its end. places: also where minima and maxima are.

    smooth: a factor, or what `core.columns.smoother` reads. log: buckets for a logarithmic axis of x.
    groups: runs by the word that takes their place as `run` of a series: the curve is then their mean (`grouping`).
    """

    series: list[SeriesWanted]
    x: str = "step"
    low: float | None = None
    high: float | None = None
    buckets: int = 400
    branch: str = "live"
    smooth: float | str = 0.0
    places: bool = False
    log: bool = False
    groups: dict[str, tuple[str, ...]] = {}


def parse(body: bytes) -> Request:
    """The request. Raises ValueError with a sentence."""
    try:
        request = msgspec.json.decode(body, type=Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the request for series can't be read: {error}") from None
    if len(request.series) > MOST_SERIES:
        raise ValueError(f"{len(request.series):,} series are too many for one request; ask for up to {MOST_SERIES}")
    if not 1 <= request.buckets <= MOST_BUCKETS:
        raise ValueError(f"there can be 1 to {MOST_BUCKETS:,} buckets, not {request.buckets}")
    if len(request.series) * request.buckets > MOST_POINTS:
        raise ValueError(f"{len(request.series)} series of {request.buckets} buckets are too much for one answer")
    if request.branch not in ("live", "all"):
        raise ValueError(f"a branch is live or all, not {request.branch[:40]!r}")
    columns.smoother(request.smooth)  # raises the sentence
    for edge in (request.low, request.high):
        if edge is not None and not math.isfinite(edge):
            raise ValueError("a range goes from one number to another")
    return request


def of_runs(request: Request) -> list[SeriesWanted]:
    """The series wanted with each group's runs in its place."""
    result: list[SeriesWanted] = []
    for item in request.series:
        runs = request.groups.get(item.run)
        result += [item] if runs is None else [SeriesWanted(run, item.name, item.rank) for run in runs]
    return result


class SeriesAnswers:
    """Makes frames of series. Any thread may call; several are at work on one request with several runs."""

    def __init__(self, reading: SeriesReading, memory: Memory):
        self._reading = reading
        self._memory = memory
        self._threads = ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="barograph-series")
        self._closed = False

    def answer(self, request: Request) -> bytes:
        """The frame."""
        until = time.monotonic() + _SECONDS
        by_run: dict[str, list[SeriesWanted]] = {}
        for item in request.series:
            by_run.setdefault(item.run, []).append(item)
        if self._closed:
            raise StillWorking("the server is ending")
        if len(by_run) > 1:
            jobs = [self._threads.submit(self._of_key, key, wanted, request, until) for key, wanted in by_run.items()]
            try:
                parts = [job.result() for job in jobs]
            except CancelledError:
                raise StillWorking("the server is ending") from None
        else:
            parts = [self._of_key(key, wanted, request, until) for key, wanted in by_run.items()]
        made = {wanted: item for part in parts for wanted, item in part.items()}
        frame = Frame()
        entries = [_entry(frame, wanted, made[wanted]) for wanted in request.series]
        return frame.bytes({"x": request.x, "smooth": request.smooth, "branch": request.branch, "series": entries})

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- inside ---------------------------------------------------------------------------------------

    def _of_key(
        self, key: str, wanted: list[SeriesWanted], request: Request, until: float
    ) -> dict[SeriesWanted, dict[str, Any]]:
        members = request.groups.get(key)
        if members is None:
            return self._of_run(key, wanted, request, until)
        return grouping.curves(self._reading, members, wanted, request, until)

    def _of_run(
        self, key: str, wanted: list[SeriesWanted], request: Request, until: float
    ) -> dict[SeriesWanted, dict[str, Any]]:
        try:
            place = self._reading.places.find(key)
            state = self._reading.state(place)
        except (KeyError, OSError) as error:
            return {item: {"error": sentence(error)} for item in wanted}
        result: dict[SeriesWanted, dict[str, Any]] = {}
        missing: dict[int | None, list[SeriesWanted]] = {}
        for item in wanted:
            seen, known = self._memory.get(_answer_key(item, request)) or (None, None)
            if seen == state and known is not None:
                result[item] = known
            else:
                missing.setdefault(item.rank, []).append(item)
        for rank, group in missing.items():
            axis = Axis(self._reading, place, request.x, rank, state)
            # some at a time: what was read is used before the memory for columns lets go of it
            for start in range(0, len(group), 16):
                some = group[start : start + 16]
                if time.monotonic() > until:
                    late = {"error": "reading took too long; ask for fewer series at once"}
                    result |= {item: late for item in some}
                    continue
                result |= self._read(some, axis, state, request)
        return result

    def _read(
        self, group: list[SeriesWanted], axis: Axis, state: State, request: Request
    ) -> dict[SeriesWanted, dict[str, Any]]:
        place, rank = self._reading.places.find(group[0].run), group[0].rank
        timed = request.x in TIMED
        result: dict[SeriesWanted, dict[str, Any]] = {}
        try:
            found = self._reading.series(place, [item.name for item in group], rank, timed, state)
        except (KeyError, ValueError, OSError) as error:
            return {item: {"error": sentence(error)} for item in group}
        for item in group:
            try:
                name, got = item.name, found.get(item.name)
                if got is None:
                    name, got = self._reading.named(place, item.name, rank, timed, state)
                if request.x == "relative":  # counts from each series' own first point
                    axis = Axis(self._reading, place, request.x, rank, state)
                live = got.live()
                made: dict[str, Any] = {
                    "name": name,
                    "live": _sampled(live, axis, request),
                    "total": got.total,
                    "last_step": int(live.step[-1]) if len(live) else None,
                    "last_value": float(live.value[-1]) if len(live) else None,
                }
                if request.branch == "all":
                    made["old"] = [_sampled(points, axis, request) for points in got.old()]
                result[item] = made
                size = 8 * sum(column.size for part in _parts(made) for column in part.columns.values())
                self._memory.put(_answer_key(item, request), (state, made), size + 1000)
            except (KeyError, ValueError, OSError) as error:
                result[item] = {"error": sentence(error)}
        return result


def _answer_key(wanted: SeriesWanted, request: Request) -> Any:
    asked = request.x, request.low, request.high, request.buckets, request.branch, request.smooth, request.places
    return wanted, asked, request.log


def _sampled(points: SeriesPoints, axis: Axis, request: Request) -> Sampled:
    smoother = columns.smoother(request.smooth)
    smoothed = None if smoother is None else smoother(points.value)  # of the whole column: a zoom changes nothing
    low, high, most = request.low, request.high, request.buckets
    return sampled(axis.of(points), points.value, points.step, smoothed, low, high, most, request.places, request.log)


def _parts(made: Mapping[str, Any]) -> list[Sampled]:
    return [made["live"], *made.get("old", ())]


def _entry(frame: Frame, wanted: SeriesWanted, made: Mapping[str, Any]) -> dict[str, Any]:
    """One series in the header, its columns in the frame."""
    entry: dict[str, Any] = {"run": wanted.run, "name": made.get("name", wanted.name)}
    if wanted.rank is not None:
        entry["rank"] = wanted.rank
    if "error" in made:
        return entry | {"points": 0, "total": 0, "exact": True, "columns": {}, "marks": [], "error": made["error"]}
    entry |= _shown(frame, made["live"])
    entry |= {key: made[key] for key in ("total", "last_step", "last_value")}
    if "old" in made:
        entry["old"] = [_shown(frame, part) for part in made["old"]]
    return entry


def _shown(frame: Frame, part: Sampled) -> dict[str, Any]:
    return {
        "points": part.points,
        "exact": part.exact,
        "columns": {name: frame.column(column) for name, column in part.columns.items()},
        "marks": part.marks,
        "marks_total": part.marks_total,
        "before": part.before,
        "after": part.after,
    }


def sentence(error: BaseException) -> str:
    """What an error says, without the quotes that KeyError puts around it."""
    return str(error.args[0]) if error.args and isinstance(error, KeyError) else str(error)
