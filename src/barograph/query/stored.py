"""Stored runs, read while they are written or long after: columns ready to draw.

In:   a run's folder, or a bare log file.
Out:  its series, records and state, as NumPy arrays and dictionaries.

The numbers come from the sealed parts of the store, and from the logs and block files what those don't hold (the
last minutes of a live run, the tail of a killed one), in one look at the run: nothing is missing or doubled.

Of several ranks that log one series `rank` chooses: None is rank 0, or the lowest rank that has it; "all" is all.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from barograph.core import liveness, providers, segments
from barograph.core.columns import align, thin_indices
from barograph.core.lazy import lazy
from barograph.core.record import Record
from barograph.core.segments import Segment
from barograph.log.files import Owner
from barograph.log.read import read_log, records_from, records_of
from barograph.query import axes, expressions
from barograph.query.files import FixedFiles, StoredFiles, thinned
from barograph.query.media import media_of
from barograph.store.branch import BEFORE_FORK

if TYPE_CHECKING:
    import difflib

    import numpy
    from numpy.typing import NDArray

    from barograph.query.goodput import Totals
    from barograph.store.branch import Branch
    from barograph.store.columns import Columns, Ranked
    from barograph.store.run import Look
else:
    difflib = lazy("difflib")

Value = TypeVar("Value")
Rank = int | Literal["all"] | None
"""Whose points of a series: one rank's, all ranks', or (None) rank 0's or those of the lowest rank that has it."""

Chooser = Callable[[Any, Any], int]
"""Chooses a rank by the times and ranks of all points of a series."""


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of one run. All columns have the same length; `len(series)` is the number of points.

    x: what was asked for; step: optimizer steps; time: seconds since 1970 (UTC); value: the numbers,
    NaN and infinities among them; segment: which stretch of the run each point belongs to; rank: who logged it.
    """

    name: str
    x: NDArray[Any]
    value: NDArray[numpy.float64]
    step: NDArray[numpy.int64]
    time: NDArray[numpy.float64]
    segment: NDArray[numpy.int32]
    rank: NDArray[numpy.int32]

    def __len__(self) -> int:
        return len(self.value)

    @property
    def y(self) -> NDArray[numpy.float64]:
        """The values, by the name that charts use."""
        return self.value

    def points(self, keep: NDArray[Any] | slice) -> Series:
        """The same series with some of its points: their places, a mask, or a slice."""
        step, time, segment, rank = self.step[keep], self.time[keep], self.segment[keep], self.rank[keep]
        return Series(self.name, self.x[keep], self.value[keep], step, time, segment, rank)


@dataclass(frozen=True, eq=False)
class Histogram:
    """A distribution at one step: `counts[i]` values between `edges[i]` and `edges[i + 1]`; time in seconds."""

    step: int
    time: float
    edges: NDArray[numpy.float64]
    counts: NDArray[numpy.float64]
    segment: int = 0


class ManifestField(Generic[Value]):
    """An attribute of a stored run that its manifest has, as a value of one type."""

    def __init__(self, plain: Callable[[Any], Value], default: Callable[[StoredRun], Any]):
        self._plain, self._default = plain, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    def __get__(self, run: StoredRun | None, owner: type) -> Value:
        if run is None:
            raise AttributeError(f"{self._key} is a run's; ask a StoredRun")
        found = run.manifest.get(self._key)
        return self._plain(self._default(run) if found is None else found)


class StoredRun:
    """A run at rest or in progress. Takes no lock of the writer, and writes nothing, but that the log of a process
    that was killed in the middle of a write is made valid JSON again.

    may_open: whether a file, or the folder of a run that this one was forked from, may be read; files of a run may
    name others. cache_bytes: of decoded row groups that are kept; None: as many as the store's reader likes.
    """

    dir: Path
    id: str
    name = ManifestField(str, lambda run: run.id)
    project = ManifestField(str, lambda run: run.dir.resolve().parent.name)
    tags = ManifestField(list[str], lambda run: ())
    notes = ManifestField(str, lambda run: "")
    pinned = ManifestField(lambda given: given is True, lambda run: False)
    archived = ManifestField(lambda given: given is True, lambda run: False)  # lists leave it out unless they are asked

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        may_open: Callable[[Path], bool] = lambda path: True,
        cache_bytes: int | None = None,
    ):
        given = Path(path)
        log = given if given.is_file() else None
        self.dir = given.parent if log else given
        self.id = given.stem if log else self.dir.resolve().name
        self._files = StoredFiles(self.dir, log, may_open, cache_bytes)
        # of a fork's source: when the fork was made, in µs; what it did later is not the fork's history
        self._until: int | None = None
        self._forks = 0  # forks between this run and the one that was opened: folders that name each other end
        self._source: StoredRun | None = None

    def __repr__(self) -> str:
        return f"<StoredRun {self.project}/{self.id} {self.status}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What Jupyter shows."""
        shown: dict[str, Any] = providers.provider("run in a notebook")(self)
        return shown

    # -- what it is -----------------------------------------------------------------------------

    @property
    def manifest(self) -> dict[str, Any]:
        """The run's manifest as it stands now, with what people have edited since in place of the writer's word."""
        return self._files.manifest()

    @property
    def config(self) -> dict[str, Any]:
        """The hyper-parameters, nested as they were given."""
        found = self.manifest.get("config")
        if found is None:
            found = {r.fields["name"]: r.fields.get("value") for r in self.records("option") if "name" in r.fields}
        return dict(found)

    @property
    def status(self) -> str:
        """How the run ended, or what `liveness` finds: running, silent, stuck, stalled, crashed."""
        return self._files.status()

    @property
    def segments(self) -> list[Segment]:
        result = self._files.look().segments()
        if self._until is None:
            return result
        return [item for item in result if item.time <= self._until] or result

    @property
    def origin(self) -> tuple[StoredRun, int] | None:
        """The run that this one was forked from, and the step before which its history is shared."""
        return _origin(self, self._files.look())

    @property
    def problems(self) -> list[str]:
        """Files that could not be read whole, and what `thinned` says, a sentence each."""
        return [*filter(None, [thinned(self)]), *self._files.problems()]

    # -- numbers ----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every series of the run, sorted."""
        result = self._files.look().names()
        if (origin := self.origin) is None:
            return result
        return sorted({*result, *origin[0].names()})

    def series(
        self, name: str, x: str = "step", max_points: int | None = None, branch: str = "live", rank: Rank = None
    ) -> Series:
        """One series, sorted by step.

        name: as logged; `loss` finds `train/loss` if there is just one of that ending. Or an expression of series, such
            as `train/loss - eval/loss` or `ema(train/loss, 0.99)` (`query/expressions.py`), of the live branch.
        x: "step", "time" (seconds since 1970), "relative" (seconds since the run's first point of this
            series), "tokens", "samples" (what was trained on so far), or another series or expression.
        max_points: at most this many points, with every bucket's exact minimum and maximum and every
            NaN and infinity among them.
        branch: "live", or "all" to see what a resume or rewind superseded too.
        rank: that rank's points alone; None: rank 0's, or those of the lowest rank that has the series; "all".
        Raises KeyError naming the nearest series if there is none of that name, and for an expression that can't be
        read (`ExpressionError`).
        """
        look = self._files.look()
        points = self._points(look, name, branch, rank)
        if not len(points[0]):
            name, points = _named(self, look, name, branch, rank)
        step, time, value, segment, ranks = points if not _unsorted(points[0]) else _by_step(points)
        counts = x in axes.SEEN and axes.of_run(x, lambda one: self.series(one, branch=branch, rank=rank), self.names())
        if x == "step":
            along = step
        elif x in ("time", "relative"):
            along = (time - (time.min() if x == "relative" and len(time) else 0)) / 1e6
        elif counts:
            along = axes.at(step, counts)
        else:
            other = self.series("train/step_tokens" if x == "tokens" else x, branch=branch, rank=rank)
            along = align(step, other.step, other.value)
        if max_points is not None and len(value) > max_points:
            keep = thin_indices(value, max_points, along)
            along, step, time, value = along[keep], step[keep], time[keep], value[keep]
            segment, ranks = segment[keep], ranks[keep]
        return Series(name, along, value, step, time / 1e6, segment, ranks)

    def columns(self, name: str, branch: str = "live", rank: Rank | Chooser = None) -> Columns:
        """step, time (µs since 1970), value, segment of one series by its full name, as `series` has them but
        not put in the order of steps across segments. Empty if there is none."""
        return self._points(self._files.look(), name, branch, rank)[:4]

    def points_of(self, names: Iterable[str], branch: str = "live", rank: Rank = None) -> Iterator[tuple[str, Ranked]]:
        """`columns` with the rank of each point, of those series that have a point, in one look at the run's files."""
        look = self._files.look()
        for name in names:
            points = self._points(look, name, branch, rank)
            if len(points[0]):
                yield name, points

    def branch(self, last: int | None = None) -> Branch:
        """Which points are live; last: on the way that ends with this segment."""
        return self._files.look().branch(self._until, last)

    def first_steps(self) -> dict[int, int]:
        """The first step that each segment logged."""
        return self._files.look().first_steps()

    def all_columns(self, branch: str = "live", rank: Rank | Chooser = None) -> dict[str, Columns]:
        """`columns` of every series that has a point, in one look at the run's files.

        rank: as for `series`, or a function that chooses it; series that only other ranks have come with the lowest's.
        Series that were logged together share their arrays of steps, times and segments.
        """
        look = self._files.look()
        result = {}
        alike: dict[int, Columns] = {}  # the last series of each length
        for name in look.names() if self.origin is None else self.names():
            columns = self._points(look, name, branch, rank)[:4]
            if not len(columns[0]) and rank is not None:
                columns = self._points(look, name, branch, None)[:4]
            if len(columns[0]):
                result[name] = alike[len(columns[0])] = _shared(columns, alike.get(len(columns[0])))
        return result

    def _points(self, look: Look, name: str, branch: str, rank: Rank | Chooser) -> Ranked:
        """One series, the old branches left out unless asked for, the other ranks too."""
        points = look.points(name)
        result = points.step, points.time, points.value, points.segment, points.rank
        if branch != "all" and len(points.step):
            live = look.branch(self._until).mask(points.step, points.segment)
            result = result if live is None else _where(live, result)
        result = of_rank(result, rank)
        if (origin := _origin(self, look)) is None:
            return result
        shared = origin[0]._points(origin[0]._files.look(), name, "live", rank)
        before = _where(shared[0] < origin[1], shared)
        before[3][:] = BEFORE_FORK
        return _joined(before, result)

    def histograms(self, name: str, branch: str = "live") -> list[Histogram]:
        """A distribution over time, sorted by step; branch: "live", or "all" with what was superseded."""
        look = self._files.look()
        rows = look.histograms(name)
        every = branch == "all" or not len(rows.step)
        keep = None if every else look.branch(self._until).mask(rows.step, rows.segment)
        if len(rows.step):
            lowest = rows.rank == rows.rank.min()
            keep = lowest if keep is None else keep & lowest
        return [
            Histogram(int(step), time / 1e6, edges, counts, int(segment))
            for at, (step, time, edges, counts, segment) in enumerate(
                zip(rows.step, rows.time, rows.edges, rows.counts, rows.segment, strict=True)
            )
            if keep is None or keep[at]
        ]

    def histogram_names(self) -> list[str]:
        """Every distribution of the run, sorted."""
        return self._files.look().histogram_names()

    # -- records ------------------------------------------------------------------------------------

    def log_files(self) -> list[Path]:
        """The run's log files: rank 0's first, the sidecars' last."""
        return self._files.logs()

    def records(self, *kinds: str) -> Iterator[Record]:
        """Records of the log files, of these kinds (all without any), each file's in the order logged."""
        is_ours = Owner(self.dir, self._files.log is not None)
        for path in self.log_files():
            foreign = False
            found = records_of(path, {*kinds, "segment"}) if kinds else records_from(path)
            for record, _ in found:
                if record.kind == "segment":
                    foreign = not is_ours(record.fields.get("run"))
                if not foreign and (not kinds or record.kind in kinds):
                    yield record

    media = media_of

    def log(self) -> list[dict[str, Any]]:
        """The main log as dictionaries, as `read_log` gives them."""
        files = self.log_files()
        return read_log(files[0]) if files else []

    def checkpoints(self) -> list[dict[str, Any]]:
        """The checkpoints that were saved, by step: the entries of the manifest, or else the records, with `live`:
        whether they belong to the live branch, or to one that a resume, rewind or fork discarded; None: not known.
        """
        listed = self.manifest.get("checkpoints")
        found = [dict(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        if not found:
            found = [{"step": record.step, **record.fields} for record in self.records("checkpoint")]
        branch = self.branch()
        # a checkpoint of the very step at which a run was resumed is what it went on from
        kept = {
            segment.start_step
            for segment in self.segments
            if segment.kind == "resume" and segment.number in branch.cuts
        }
        for item in found:
            step, segment = item.get("step"), item.get("segment")
            item["live"] = True if branch.whole else None
            if not branch.whole and type(step) is int and type(segment) is int:
                cut = branch.cuts.get(segment)
                before = cut is None or step < cut or (step == cut and cut in kept)
                item["live"] = segment in branch.cuts and before
        return sorted(found, key=lambda item: item["step"] if type(item.get("step")) is int else -1)

    # -- time and money ---------------------------------------------------------------------------------

    def goodput(self, now: float | None = None) -> Totals:
        """Where the wall time went, in seconds by cause, from rank 0's log; also while the run goes on.

        now: seconds since 1970 up to which a run that goes on counts; the present if not given.
        """
        if now is None and self.status in liveness.ALIVE:
            now = time.time()
        return self._files.accounts().totals(now)

    def cost(
        self,
        price_per_gpu_hour: float | None = None,
        price_per_kwh: float | None = None,
        devices: int | None = None,
    ) -> dict[str, Any]:
        """Energy and money so far, as the fields of an `energy` record: what is not known is absent.

        The prices and the number of devices are the run's own where they are not given.
        """
        held = self.goodput().held
        return self._files.accounts().cost(self.manifest, held, price_per_gpu_hour, price_per_kwh, devices)


def _origin(run: StoredRun, look: Look) -> tuple[StoredRun, int] | None:
    """`StoredRun.origin`, by what a look has found."""
    first = next(iter(look.segments()), None)
    if first is None or not first.source or first.start_step is None or run._forks > 100:
        return None
    here, named = run.dir.resolve(), Path(first.source)
    beside = here.parent.parent / named.parent.name / named.name  # where all runs were moved together
    files = run._files
    source = next((item for item in (named, beside) if item != here and segments.is_run(item)), None)
    if source is None or not files.may_open(source):
        return None
    if run._source is None or run._source.dir != source:
        run._source = StoredRun(source, may_open=files.may_open, cache_bytes=files.cache_bytes)
        run._source._until, run._source._forks = first.time, run._forks + 1
    return run._source, first.start_step


def _named(run: StoredRun, look: Look, name: str, branch: str, rank: Rank) -> tuple[str, Ranked]:
    """The full name and the points, by step, of a series or an expression that a person names."""
    points = run._points(look, name, branch, rank)
    if not len(points[0]) and not look.has(name):
        known = run.names()
        tree = None if name in known else expressions.expression(name)
        if tree is not None:
            return name, _evaluated(run, look, tree, branch, rank)
        name = _full_name(name, known, run.id)
        points = run._points(look, name, branch, rank)
    return name, points if not _unsorted(points[0]) else _by_step(points)


def _evaluated(run: StoredRun, look: Look, tree: expressions.Node, branch: str, rank: Rank) -> Ranked:
    if branch == "all" or rank == "all":
        raise expressions.ExpressionError(
            "an expression is of the live branch and of one rank; ask for its series one by one"
        )

    def read(name: str) -> expressions.StepValues:
        step, time, value, segment, ranks = _named(run, look, name, branch, rank)[1]
        return expressions.StepValues(step, value, (time, segment, ranks))

    made = expressions.evaluate(tree, read)
    time, segment, ranks = made.rest
    return made.step, time, made.value, segment, ranks


def _full_name(name: str, known: list[str], run: str) -> str:
    """The series that a name or the end of one means. Raises KeyError naming the nearest."""
    if name in known:
        return name
    ending = [other for other in known if other.endswith("/" + name)]
    if f"train/{name}" in ending:
        return f"train/{name}"
    if len(ending) == 1:
        return ending[0]
    near = difflib.get_close_matches(name, known, 1, 0.4) or ending[:1]
    hint = f"; the nearest is {near[0]!r}" if near else " (it has no series yet)" if not known else ""
    raise KeyError(f"run {run} has no series {name!r}{hint}")


def of_rank(points: Ranked, rank: Rank | Chooser) -> Ranked:
    """The points of the ranks that `rank` chooses."""
    ranks = points[4]
    if rank == "all" or not len(ranks):
        return points
    wanted = rank(points[1], ranks) if callable(rank) else int(ranks.min()) if rank is None else rank
    keep = ranks == wanted
    return points if keep.all() else _where(keep, points)


def _where(keep: NDArray[Any], points: Ranked) -> Ranked:
    step, time, value, segment, rank = points
    return step[keep], time[keep], value[keep], segment[keep], rank[keep]


def _joined(first: Ranked, second: Ranked) -> Ranked:
    import numpy

    step, time, value, segment, rank = (numpy.concatenate(pair) for pair in zip(first, second, strict=True))
    return step, time, value, segment, rank


def _by_step(points: Ranked) -> Ranked:
    import numpy

    order = numpy.lexsort((points[1], points[0]))
    return _where(order, points)


def _unsorted(step: NDArray[Any]) -> bool:
    return bool((step[1:] < step[:-1]).any())


def _shared(columns: Columns, other: Columns | None) -> Columns:
    """A series with the other's steps, times and segments where they are the same: kept once, not twice."""
    import numpy

    def kept(mine: Any, theirs: Any) -> Any:
        return theirs if numpy.array_equal(mine, theirs) else mine

    if other is None:
        return columns
    return kept(columns[0], other[0]), kept(columns[1], other[1]), columns[2], kept(columns[3], other[3])


def at_one_moment(run: StoredRun) -> StoredRun:
    """The run as it stands now, whatever is asked of it and however often: its series fit each other."""
    fixed = copy.copy(run)
    fixed._files, fixed._source = FixedFiles(run._files), None
    return fixed


def missing(run: StoredRun) -> list[str]:
    """Sentences about what was logged and can't be read from anywhere."""
    return run._files.missing()
