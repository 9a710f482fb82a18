"""The columns of runs' series, read once and kept while there is room.

In:   runs, names of series, ranks.
Out:  live and superseded points of each, in the order of steps; what tells that a run has new ones.

A run that is sealed and whole is opened, read and closed. One that is written keeps its reader, so that only what is
new is read; of those a few are kept. Columns whose numbers are single precision, and steps that are evenly spaced,
take half the room or none.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.core import segments
from barograph.log.files import is_log_name
from barograph.query import expressions
from barograph.query.losses import RunLosses, run_losses
from barograph.query.stored import Rank, StoredRun
from barograph.views.server.memory import Memory
from barograph.views.server.places import Places, RunPlace, served_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPEN_RUNS = 8  # runs in progress whose readers are kept
_GROUP_BYTES = 1  # of decoded row groups only the last is kept: its memory serves the next one again
_NAME_LISTS = 16  # runs whose sorted names are kept
_FIRST = ("train/norm", "train/lr")  # with the losses, what the page of a run shows first
_FIRST_LOSSES = 4
_AHEAD_SECONDS = 2.0  # most time that a request waits for what is being read ahead

State = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class SeriesPoints:
    """Some points of a series, by step: step [n] int64, value [n] float64, time [n] µs since 1970 or None."""

    step: NDArray[Any]
    value: NDArray[Any]
    time: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.value)


class _Packed:
    """Points in less memory, exactly, put together from pieces that are in the order of steps."""

    def __init__(self, with_time: bool) -> None:
        self.count = 0
        self.is_sorted = True
        self._last: int | None = None
        self._even: tuple[int, int] | None = None  # first and stride, as long as steps are evenly spaced
        self._narrow = True
        self._steps: list[NDArray[Any]] = []
        self._values: list[NDArray[Any]] = []
        self._times: list[NDArray[Any]] | None = [] if with_time else None

    def add(self, step: NDArray[Any], value: NDArray[Any], time: NDArray[Any] | None) -> None:
        """A piece; its arrays are copied."""
        import numpy

        if not len(step):
            return
        self.is_sorted &= bool((step[1:] >= step[:-1]).all()) and (self._last is None or self._last <= int(step[0]))
        self._take_steps(step)
        with numpy.errstate(over="ignore"):
            narrow = value.astype(numpy.float32)
        if self._narrow and not bool(((narrow == value) | (value != value)).all()):
            self._narrow = False
            self._values = [value.astype(numpy.float64) for value in self._values]
        self._values.append(narrow if self._narrow else numpy.array(value, numpy.float64))
        if self._times is not None and time is not None:
            self._times.append(numpy.array(time))
        self._last = int(step[-1])
        self.count += len(step)

    def _take_steps(self, step: NDArray[Any]) -> None:
        import numpy

        if not self.count:
            stride = int(step[1] - step[0]) if len(step) > 1 else 1
            self._even = (int(step[0]), stride) if stride > 0 else None
        if self._even is not None:
            first, stride = self._even
            if int(step[0]) == first + stride * self.count and bool((step[1:] - step[:-1] == stride).all()):
                return
            self._even = None
            if self.count:
                self._steps = [numpy.arange(first, first + stride * self.count, stride, dtype=numpy.int64)]
        self._steps.append(numpy.array(step, numpy.int64))

    def close(self) -> _Packed:
        """No more pieces."""
        import numpy

        for parts in (self._steps, self._values, self._times or []):
            if len(parts) > 1:
                parts[:] = [numpy.concatenate(parts)]
        return self

    @property
    def bytes(self) -> int:
        parts = (*self._steps, *self._values, *(self._times or ()))
        return 500 + sum(int(part.nbytes) for part in parts)

    def points(self) -> SeriesPoints:
        import numpy

        if not self.count:
            time = None if self._times is None else numpy.empty(0, numpy.int64)
            return SeriesPoints(numpy.empty(0, numpy.int64), numpy.empty(0), time)
        if self._even is not None:
            first, stride = self._even
            step = numpy.arange(first, first + stride * self.count, stride, dtype=numpy.int64)
        else:
            step = self._steps[0]
        return SeriesPoints(
            step, self._values[0].astype(numpy.float64, copy=False), self._times[0] if self._times else None
        )


class FoundSeries:
    """One series: `live()`, and `old()`, a stretch for each segment that was superseded. `total`: live points."""

    def __init__(self, live: _Packed, old: list[_Packed], timed: bool):
        self._live, self._old = live, old
        self.total = live.count
        self.timed = timed
        self.bytes = live.bytes + sum(item.bytes for item in old)

    def live(self) -> SeriesPoints:
        return self._live.points()

    def old(self) -> list[SeriesPoints]:
        return [item.points() for item in self._old]

    def __bool__(self) -> bool:
        return bool(self.total or self._old)


class MadeSeries:
    """A series that an expression makes, with what `FoundSeries` has: of the live branch alone."""

    def __init__(self, points: expressions.StepValues):
        self._points = points
        self.total = len(points.step)

    def live(self) -> SeriesPoints:
        return SeriesPoints(self._points.step, self._points.value, *self._points.rest)

    def old(self) -> list[SeriesPoints]:
        return []


class SeriesReading:
    """Reads series of the served runs. Any thread may call."""

    def __init__(self, places: Places, memory: Memory):
        self.places = places
        self._memory = memory
        self._open: OrderedDict[str, tuple[StoredRun, threading.RLock]] = OrderedDict()
        self._names: OrderedDict[Any, Any] = OrderedDict()
        self._ahead: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def state(self, place: RunPlace) -> State:
        """Equal as long as the run has no new points."""
        return _state(str(place.dir), self.places.root, 0)

    def run(self, place: RunPlace) -> StoredRun:
        """The stored run, opened for this caller alone."""
        return served_run(place, self.places.root)

    @contextlib.contextmanager
    def opened(self, place: RunPlace) -> Iterator[StoredRun]:
        """The stored run whose reader is kept, so that only what is new is read; nobody else has it meanwhile."""
        run, lock = self._opened(place)
        with lock:
            yield run

    def read_ahead(self, place: RunPlace) -> None:
        """Begin to read what the page of a run asks for first, while its browser still loads the page's script."""
        done = threading.Event()
        if self._ahead.setdefault(place.key, done) is not done:
            return

        def read() -> None:
            try:
                names = self.names(place)
                found = self.losses(place)
                first = (*found.training, *found.evaluations)[:_FIRST_LOSSES]
                self._series(place, [*first, *(name for name in _FIRST if name in names)], None, False, None)
            except (KeyError, OSError, ValueError):  # whoever asks for it gets the error
                pass
            finally:
                del self._ahead[place.key]
                done.set()

        threading.Thread(target=read, name="barograph-ahead", daemon=True).start()

    def series(
        self,
        place: RunPlace,
        names: Sequence[str],
        rank: int | None = None,
        timed: bool = False,
        state: State | None = None,
    ) -> dict[str, FoundSeries]:
        """Series of a run by their full names; those that it has no point of are absent.

        timed: with times. state: the run's, if the caller has just asked for it.
        """
        going = self._ahead.get(place.key)
        if going is not None:
            going.wait(_AHEAD_SECONDS)
        return self._series(place, names, rank, timed, state)

    def _series(
        self, place: RunPlace, names: Sequence[str], rank: int | None, timed: bool, state: State | None
    ) -> dict[str, FoundSeries]:
        state = self.state(place) if state is None else state
        result: dict[str, FoundSeries] = {}
        missing: list[str] = []
        for name in dict.fromkeys(names):
            # of a run that goes on the newest state takes the place of the one before
            seen, known = self._memory.get((place.key, name, rank)) or (None, None)
            if known is None or seen != state or (timed and not known.timed):
                missing.append(name)
            elif known:
                result[name] = known
        for name, made in self._read(place, missing, rank, timed).items():
            self._memory.put((place.key, name, rank), (state, made), made.bytes)
            if made:
                result[name] = made
        return result

    def named(
        self, place: RunPlace, name: str, rank: int | None, timed: bool, state: State
    ) -> tuple[str, FoundSeries | MadeSeries]:
        """The full name and the points of a series or an expression that a person names. Raises KeyError."""
        found = self.series(place, [name], rank, timed, state).get(name)
        if found is not None:
            return name, found
        tree = None if name in self.names(place) else expressions.expression(name)
        if tree is None:
            name = self.resolve(place, name)
            found = self.series(place, [name], rank, timed, state).get(name)
            if found is None:
                raise KeyError(f"run {place.dir.name} has no point of {name!r}")
            return name, found

        def read(one: str) -> expressions.StepValues:
            live = self.named(place, one, rank, timed, state)[1].live()
            return expressions.StepValues(live.step, live.value, () if live.time is None else (live.time,))

        return name, MadeSeries(expressions.evaluate(tree, read))

    def names(self, place: RunPlace, histograms: bool = False) -> list[str]:
        """Every series of a run, or every histogram, sorted. Kept for the runs asked for last: not to be changed."""
        key = (place.key, histograms, self.state(place))
        with self._lock:
            if key in self._names:
                self._names.move_to_end(key)
                return list(self._names[key])
        with self.opened(place) as run:
            names = run.histogram_names() if histograms else run.names()
        with self._lock:
            self._names[key] = names
            while len(self._names) > _NAME_LISTS:
                self._names.popitem(last=False)
        return list(names)

    def losses(self, place: RunPlace) -> RunLosses:
        """Which series of a run are its losses."""
        names = self.names(place)
        with self.opened(place) as run:
            return run_losses(run, names)

    def resolve(self, place: RunPlace, name: str) -> str:
        """The full name of a series that a person means. Raises KeyError naming the nearest."""
        with self.opened(place) as run:
            return run.series(name, max_points=2).name

    # -- inside ---------------------------------------------------------------------------------------

    def _read(self, place: RunPlace, names: Sequence[str], rank: int | None, timed: bool) -> dict[str, FoundSeries]:
        if not names:
            return {}
        with self.opened(place) as run:
            return read_series(run, names, rank, timed)

    def _opened(self, place: RunPlace) -> tuple[StoredRun, threading.RLock]:
        with self._lock:
            result = self._open.get(place.key)
            if result is None:
                result = self._open[place.key] = served_run(place, self.places.root), threading.RLock()
            self._open.move_to_end(place.key)
            while len(self._open) > _OPEN_RUNS:
                self._open.popitem(last=False)
            return result


def read_series(run: StoredRun, names: Iterable[str], rank: Rank = None, timed: bool = False) -> dict[str, FoundSeries]:
    """Series of a run in one look at it; one that it has no point of is empty."""
    branch = run.branch()
    result = {name: FoundSeries(_Packed(timed).close(), [], timed) for name in names}
    # as they lie in the file: neighbours share a row group
    for name, (step, time, value, segment, _) in run.points_of(sorted(result), "all", rank):
        live, old = branch.split(step, segment)
        if not old:
            result[name] = _live(step, time, value, [], timed)
            continue
        gone = [_packed(step[rows], time[rows], value[rows], timed) for rows in old]
        result[name] = _live(step[live], time[live], value[live], gone, timed)
    return result


def _live(step: NDArray[Any], time: NDArray[Any], value: NDArray[Any], old: list[_Packed], timed: bool) -> FoundSeries:
    return FoundSeries(_packed(step, time, value, timed), old, timed)


def _packed(step: NDArray[Any], time: NDArray[Any], value: NDArray[Any], timed: bool) -> _Packed:
    import numpy

    if len(step) and bool((step[1:] < step[:-1]).any()):
        order = numpy.lexsort((time, step))
        step, time, value = step[order], time[order], value[order]
    packed = _Packed(timed)
    packed.add(step, value, time)
    return packed.close()


def _state(folder: str, root: Path, depth: int) -> State:
    """What the files of a run's numbers look like: logs and block files, sealed parts, segments."""
    found: list[Any] = []
    try:
        with os.scandir(folder) as entries:
            logs = [entry for entry in entries if is_log_name(entry.name) or entry.name.endswith(".wide")]
            found += sorted((entry.name, *_seen(entry)) for entry in logs)
    except OSError:
        return (None,)
    try:
        with os.scandir(f"{folder}/store") as entries:
            for writer in sorted(entry.path for entry in entries if entry.is_dir()):
                with os.scandir(writer) as files:
                    found.append(
                        sorted((file.name, *_seen(file)) for file in files if not file.name.endswith((".json", ".tmp")))
                    )
    except OSError:
        found.append(None)
    pieces = segments.read(Path(folder)) if depth < 8 else []
    found.append(tuple(pieces))
    source = pieces[0].source if pieces else None
    if source and os.path.realpath(source) != folder and Path(os.path.realpath(source)).is_relative_to(root):
        found.append(_state(os.path.realpath(source), root, depth + 1))
    return tuple(tuple(item) if isinstance(item, list) else item for item in found)


def _seen(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        status = entry.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
