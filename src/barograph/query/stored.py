"""Stored runs, read while they are written or long after: columns ready to draw.

In:   a run's folder, or a bare log file.
Out:  its series, records and state, as NumPy arrays and dictionaries.

The numbers come from the sealed parts of the store, and from the logs and block files what those don't hold (the
last minutes of a live run, the tail of a killed one), in one look at the run: nothing is missing or doubled.

Of several ranks that log one series `rank` chooses: None is rank 0, or the lowest rank that has it; "all" is all.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from barograph.core import display, liveness, manifest, segments
from barograph.core.record import Record
from barograph.core.segments import Segment
from barograph.log.files import Owner, readable_logs
from barograph.log.read import read_log, records_from, records_of
from barograph.query import curation
from barograph.store.branch import BEFORE_FORK

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from barograph.query.energy import Energy
    from barograph.query.goodput import Goodput, Totals
    from barograph.store.branch import Branch
    from barograph.store.columns import Columns, Ranked
    from barograph.store.run import Look, RunStore

Rank = int | Literal["all"] | None
"""Whose points of a series: one rank's, all ranks', or (None) rank 0's or those of the lowest rank that has it."""


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


class HasFolder(Protocol):
    """Something with a run's folder, such as a run that is being written."""

    @property
    def dir(self) -> Path:
        """The run's folder."""
        ...


class StoredRun:
    """A run at rest or in progress. Reads only; takes no lock of the writer."""

    cache_bytes: int | None = None  # of decoded row groups that are kept; None: as many as the store's reader likes

    def __init__(self, path: str | os.PathLike[str]):
        given = Path(path)
        self._bare_log = given if given.is_file() else None
        self.dir = given.parent if self._bare_log else given
        self.id = given.stem if self._bare_log else self.dir.resolve().name
        # of a fork's source: when the fork was made, in µs; what it did later is not the fork's history
        self._until: int | None = None
        self._forks = 0  # forks between this run and the one that was opened: folders that name each other end
        self._opened: RunStore | None = None
        self._accounted: tuple[list[tuple[Path, int, int]], Goodput, Energy] | None = None

    def __repr__(self) -> str:
        return f"<StoredRun {self.project}/{self.id} {self.status}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What Jupyter shows."""
        shown: dict[str, Any] = display.show("run in a notebook", self)
        return shown

    # -- what it is -----------------------------------------------------------------------------

    @property
    def manifest(self) -> dict[str, Any]:
        """The run's manifest as it stands now, with what people have edited since in place of the writer's word."""
        return {} if self._bare_log else curation.over(self.dir, manifest.read(self.dir))

    def _about(self, key: str, default: Any) -> Any:
        value = self.manifest.get(key)
        return default if value is None else value

    @property
    def name(self) -> str:
        return str(self._about("name", self.id))

    @property
    def project(self) -> str:
        return str(self._about("project", self.dir.resolve().parent.name))

    @property
    def config(self) -> dict[str, Any]:
        """The hyper-parameters, nested as they were given."""
        found = self._about("config", None)
        if found is None:
            found = {r.fields["name"]: r.fields.get("value") for r in self.records("option") if "name" in r.fields}
        return dict(found)

    @property
    def tags(self) -> list[str]:
        return list(self._about("tags", []))

    @property
    def notes(self) -> str:
        return str(self._about("notes", ""))

    @property
    def pinned(self) -> bool:
        return self._about("pinned", False) is True

    @property
    def archived(self) -> bool:
        """Put aside: lists leave it out unless they are asked."""
        return self._about("archived", False) is True

    @property
    def status(self) -> str:
        """How the run ended, or what `liveness` finds: running, silent, stuck, stalled, crashed."""
        return liveness.status(self.dir, self.manifest) if not self._bare_log else "log file"

    @property
    def segments(self) -> list[Segment]:
        found = self._look().segments()
        if self._until is None:
            return found
        return [one for one in found if one.time <= self._until] or found

    @property
    def origin(self) -> tuple[StoredRun, int] | None:
        """The run that this one was forked from, and the step before which its history is shared."""
        return self._origin_of(self._look())

    def _origin_of(self, look: Look) -> tuple[StoredRun, int] | None:
        first = next(iter(look.segments()), None)
        if first is None or not first.source or first.start_step is None or self._forks > 100:
            return None
        here, named = self.dir.resolve(), Path(first.source)
        beside = here.parent.parent / named.parent.name / named.name  # where all runs were moved together
        source = next((one for one in (named, beside) if one != here and segments.is_run(one)), None)
        if source is None:
            return None
        run = StoredRun(source)
        run._until, run._forks = first.time, self._forks + 1
        return run, first.start_step

    @property
    def problems(self) -> list[str]:
        """Files that could not be read whole, a sentence each."""
        return list(self._store().problems)

    # -- numbers ----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every series of the run, sorted."""
        found = self._look().names()
        if (origin := self.origin) is None:
            return found
        return sorted({*found, *origin[0].names()})

    def series(
        self, name: str, x: str = "step", max_points: int | None = None, branch: str = "live", rank: Rank = None
    ) -> Series:
        """One series, sorted by step.

        name: as logged; `loss` finds `train/loss` if there is just one of that ending.
        x: "step", "time" (seconds since 1970), "relative" (seconds since the run's first point of this
            series), "tokens" (tokens trained on so far), or the name of another series.
        max_points: no more than so many points, with every bucket's exact minimum and maximum and every
            NaN and infinity among them.
        branch: "live", or "all" to see what a resume or rewind superseded too.
        rank: that rank's points alone; None: rank 0's, or those of the lowest rank that has the series; "all".
        Raises KeyError naming the nearest series if there is none of that name.
        """
        look = self._look()
        name = self._resolve(name, look)
        points = self._points(look, name, branch, rank)
        step, time, value, segment, ranks = points if not _unsorted(points[0]) else _by_step(points)
        along = self._axis(x, step, time, branch, rank)
        if max_points is not None and len(value) > max_points:
            from barograph.core.columns import thin_indices

            keep = thin_indices(value, max_points, along)
            along, step, time, value = along[keep], step[keep], time[keep], value[keep]
            segment, ranks = segment[keep], ranks[keep]
        return Series(name, along, value, step, time / 1e6, segment, ranks)

    def _axis(self, x: str, step: NDArray[Any], time: NDArray[Any], branch: str, rank: Rank) -> NDArray[Any]:
        import numpy

        if x == "step":
            return step
        if x == "time":
            return time / 1e6
        if x == "relative":
            return (time - (time.min() if len(time) else 0)) / 1e6
        from barograph.core.columns import align, strides

        other = self.series("train/step_tokens" if x == "tokens" else x, branch=branch, rank=rank)
        # a row that is logged each ten steps stands for ten
        values = numpy.cumsum(other.value * strides(other.step)) if x == "tokens" else other.value
        aligned: NDArray[Any] = align(step, other.step, values)
        return aligned

    def _resolve(self, name: str, look: Look) -> str:
        """The full name of a series."""
        if look.has(name):
            return name
        known = self.names()
        if name in known:
            return name
        ending = [other for other in known if other.endswith("/" + name)]
        if f"train/{name}" in ending:
            return f"train/{name}"
        if len(ending) == 1:
            return ending[0]
        near = difflib.get_close_matches(name, known, 1, 0.4) or ending[:1]
        hint = f"; the nearest is {near[0]!r}" if near else " (it has no series yet)" if not known else ""
        raise KeyError(f"run {self.id} has no series {name!r}{hint}")

    def columns(self, name: str, branch: str = "live", rank: Rank = None) -> Columns:
        """step, time (µs since 1970), value, segment of one series by its full name, as `series` has them but
        not put in the order of steps across segments. Empty if there is none."""
        return self._points(self._look(), name, branch, rank)[:4]

    def points_of(self, names: Iterable[str], branch: str = "live", rank: Rank = None) -> Iterator[tuple[str, Ranked]]:
        """`columns` with the rank of each point, of those series that have a point, in one look at the run's files."""
        look = self._look()
        for name in names:
            points = self._points(look, name, branch, rank)
            if len(points[0]):
                yield name, points

    def branch(self, last: int | None = None) -> Branch:
        """Which points are live; last: on the way that ends with this segment."""
        return self._look().branch(self._until, last)

    def first_steps(self) -> dict[int, int]:
        """The first step that each segment logged."""
        return self._look().first_steps()

    def all_columns(self, branch: str = "live", rank: Rank = None) -> dict[str, Columns]:
        """`columns` of every series that has a point, in one look at the run's files.

        rank: as for `series`; series that only other ranks have come with the lowest's points. Series that were logged
        together share their arrays of steps, times and segments.
        """
        look = self._look()
        found = {}
        alike: dict[int, Columns] = {}  # the last series of each length
        for name in look.names() if self.origin is None else self.names():
            columns = self._points(look, name, branch, rank)[:4]
            if not len(columns[0]) and rank is not None:
                columns = self._points(look, name, branch, None)[:4]
            if len(columns[0]):
                found[name] = alike[len(columns[0])] = _shared(columns, alike.get(len(columns[0])))
        return found

    def _points(self, look: Look, name: str, branch: str, rank: Rank) -> Ranked:
        """One series, the old branches left out unless asked for, the other ranks too."""
        points = look.points(name)
        found = points.step, points.time, points.value, points.segment, points.rank
        if branch != "all" and len(points.step):
            live = look.branch(self._until).mask(points.step, points.segment)
            found = found if live is None else _where(live, found)
        found = of_rank(found, rank)
        if (origin := self._origin_of(look)) is None:
            return found
        shared = origin[0]._points(origin[0]._look(), name, "live", rank)
        before = _where(shared[0] < origin[1], shared)
        before[3][:] = BEFORE_FORK
        return _joined(before, found)

    def histograms(self, name: str, branch: str = "live") -> list[Histogram]:
        """A distribution over time, sorted by step; branch: "live", or "all" with what was superseded."""
        look = self._look()
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
        return self._look().histogram_names()

    # -- records ------------------------------------------------------------------------------------

    def log_files(self) -> list[Path]:
        """The run's log files: rank 0's first, the sidecars' last."""
        return [self._bare_log] if self._bare_log else readable_logs(self.dir, self._may_open)

    def records(self, *kinds: str) -> Iterator[Record]:
        """Records of the log files, of these kinds (all without any), each file's in the order logged."""
        is_ours = Owner(self.dir, self._bare_log is not None)
        for path in self.log_files():
            foreign = False
            found = records_of(path, {*kinds, "segment"}) if kinds else records_from(path)
            for record, _ in found:
                if record.kind == "segment":
                    foreign = not is_ours(record.fields.get("run"))
                if not foreign and (not kinds or record.kind in kinds):
                    yield record

    def log(self) -> list[dict[str, Any]]:
        """The main log as dictionaries, as `read_log` gives them."""
        files = self.log_files()
        return read_log(files[0]) if files else []

    def checkpoints(self) -> list[dict[str, Any]]:
        """The checkpoints that were saved, by step: the entries of the manifest, or else the records, with `live`:
        whether they belong to the live branch, or to one that a resume, rewind or fork discarded; None: not known.
        """
        listed = self.manifest.get("checkpoints")
        found = [dict(one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        if not found:
            found = [{"step": record.step, **record.fields} for record in self.records("checkpoint")]
        branch = self.branch()
        # a checkpoint of the very step at which a run was resumed is what it went on from
        kept = {one.start_step for one in self.segments if one.kind == "resume" and one.number in branch.cuts}
        for one in found:
            step, segment = one.get("step"), one.get("segment")
            one["live"] = True if branch.whole else None
            if not branch.whole and type(step) is int and type(segment) is int:
                cut = branch.cuts.get(segment)
                before = cut is None or step < cut or (step == cut and cut in kept)
                one["live"] = segment in branch.cuts and before
        return sorted(found, key=lambda one: one["step"] if type(one.get("step")) is int else -1)

    # -- time and money ---------------------------------------------------------------------------------

    def goodput(self, now: float | None = None) -> Totals:
        """Where the wall time went, in seconds by cause, from rank 0's log; also while the run goes on.

        now: seconds since 1970 up to which a run that goes on counts; the present if not given.
        """
        if now is None and self.status in liveness.ALIVE:
            now = time.time()
        return self._accounts()[0].totals(now)

    def cost(
        self,
        price_per_gpu_hour: float | None = None,
        price_per_kwh: float | None = None,
        devices: int | None = None,
    ) -> dict[str, Any]:
        """Energy and money so far, as the fields of an `energy` record: what is not known is absent.

        The prices and the number of devices are the run's own where they are not given.
        """
        from barograph.query.energy import Prices

        energy, about = self._accounts()[1], self.manifest
        hours, wall = about.get("gpu_hours"), about.get("wall_seconds")
        if hours and wall:
            gpus = round(hours * 3600.0 / wall)
            known = about["cost"] / hours if about.get("cost") is not None else None
        else:
            has_gpus = (about.get("hardware") or {}).get("gpus") or energy.gpus
            gpus, known = (int(about.get("world_size") or 1) if has_gpus else 0), None
        gpus = gpus if devices is None else devices
        given = (price_per_gpu_hour, energy.said.get("price_per_gpu_hour"), known)
        price = next((one for one in given if one is not None), None)
        kwh = energy.said.get("price_per_kwh") if price_per_kwh is None else price_per_kwh
        return energy.fields(Prices(per_gpu_hour=price, per_kwh=kwh), self.goodput().held * gpus / 3600.0, gpus)

    def _accounts(self) -> tuple[Goodput, Energy]:
        """Read from the log files; again once they have grown."""
        from barograph.query.energy import Energy
        from barograph.query.goodput import LONG_LOG, Goodput, replay

        files = self.log_files()
        state = [(path, found.st_size, found.st_mtime_ns) for path in files for found in (path.stat(),)]
        if self._accounted is None or self._accounted[0] != state:
            goodput, energy = Goodput(), Energy()
            if files:
                replay(files[0], (goodput, energy), state[0][1])
            if sum(size for _, size, _ in state[1:]) <= LONG_LOG:  # else the devices of rank 0's machine stand for all
                for path in files[1:]:
                    for record, _ in records_from(path):
                        energy.add(record, path.name)
            self._accounted = state, goodput, energy
        return self._accounted[1:]

    # -- inside ----------------------------------------------------------------------------------------

    def _store(self) -> RunStore:
        if self._opened is None:
            from barograph.store.run import RunStore

            self._opened = RunStore(self.dir, self._bare_log, self.cache_bytes, self._may_open)
        return self._opened

    def _may_open(self, path: Path) -> bool:
        """Whether a file that the run's own files name may be read."""
        return True

    def _look(self) -> Look:
        """The run's numbers as they stand now."""
        return self._store().look()


def of_rank(points: Ranked, rank: Rank) -> Ranked:
    """The points of the ranks that `rank` chooses."""
    ranks = points[4]
    if rank == "all" or not len(ranks):
        return points
    wanted = int(ranks.min()) if rank is None else rank
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


def stored_run(run: StoredRun | HasFolder | str | os.PathLike[str]) -> StoredRun:
    """A run opened for reading: itself, one that is being written, or a folder."""
    if isinstance(run, StoredRun):
        return run
    return StoredRun(run if isinstance(run, (str, os.PathLike)) else run.dir)
