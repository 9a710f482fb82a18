"""Stored runs, read while they are written or long after: columns ready to draw.

In:   a run's folder, or a bare log file.
Out:  its series, records and state, as NumPy arrays and dictionaries.

The numbers come from the columnar store; what a writer's store does not cover yet (the last second
of a live run, the tail of a killed one) comes from its log file, so nothing is missing or doubled.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph import liveness, manifest, segments
from barograph.logtext import read_log, records_from
from barograph.reading import curation
from barograph.reading.tails import Tail, Tails
from barograph.record import Record
from barograph.segments import Segment

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from barograph.goodput import Goodput, Totals
    from barograph.probes.speed.energy import Energy
    from barograph.reading.tails import Columns
    from barograph.store.reader import StoreReader


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of one run. All columns have the same length; `len(series)` is the number of points.

    x: what was asked for; step: optimizer steps; time: seconds since 1970 (UTC); value: the numbers,
    NaN and infinities among them; segment: which stretch of the run each point belongs to.
    """

    name: str
    x: NDArray[Any]
    value: NDArray[numpy.float64]
    step: NDArray[numpy.int64]
    time: NDArray[numpy.float64]
    segment: NDArray[numpy.int32]

    def __len__(self) -> int:
        return len(self.value)

    @property
    def y(self) -> NDArray[numpy.float64]:
        """The values, by the name that charts use."""
        return self.value


@dataclass(frozen=True, eq=False)
class Histogram:
    """A distribution at one step: `counts[i]` values between `edges[i]` and `edges[i + 1]`; time in seconds."""

    step: int
    time: float
    edges: NDArray[numpy.float64]
    counts: NDArray[numpy.float64]


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
        self._reader: StoreReader | None = None
        self._tails = Tails(self.dir, self._bare_log, self._store)
        self._accounted: tuple[list[tuple[Path, int, int]], Goodput, Energy] | None = None

    def __repr__(self) -> str:
        return f"<StoredRun {self.project}/{self.id} {self.status}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What Jupyter shows."""
        from importlib import import_module  # the room is further on: a plain import would be a loop

        shown: dict[str, Any] = import_module("barograph.notebook.display").of_run(self)
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
        found = [] if self._bare_log else segments.read(self.dir)
        if self._until is None:
            return found
        return [one for one in found if one.time <= self._until] or found

    @property
    def origin(self) -> tuple[StoredRun, int] | None:
        """The run that this one was forked from, and the step before which its history is shared."""
        first = next(iter(self.segments), None)
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
        found = set(self._store().names())
        for tail in self._tails.beyond(self._tails.covered()):
            found.update(tail.columns)
        if (origin := self.origin) is not None:
            found.update(origin[0].names())
        return sorted(found)

    def series(
        self, name: str, x: str = "step", max_points: int | None = None, branch: str = "live", rank: int | None = None
    ) -> Series:
        """One series, sorted by step.

        name: as logged; `loss` finds `train/loss` if there is just one of that ending.
        x: "step", "time" (seconds since 1970), "relative" (seconds since the run's first point of this
            series), "tokens" (tokens trained on so far), or the name of another series.
        max_points: no more than so many points, with every bucket's exact minimum and maximum and every
            NaN and infinity among them.
        branch: "live", or "all" to see what a resume or rewind superseded too.
        rank: that rank's points alone; without it those of all ranks that logged the series.
        Raises KeyError naming the nearest series if there is none of that name.
        """
        import numpy

        name = self._resolve(name)
        step, time, value, segment = self._points(name, branch, rank)
        order = numpy.lexsort((time, step)) if _unsorted(step) else None
        if order is not None:
            step, time, value, segment = step[order], time[order], value[order], segment[order]
        along = self._axis(x, step, time, branch, rank)
        if max_points is not None and len(value) > max_points:
            from barograph.columns import thin_indices

            keep = thin_indices(value, max_points, along)
            along, step, time, value, segment = along[keep], step[keep], time[keep], value[keep], segment[keep]
        return Series(name, along, value, step, time / 1e6, segment)

    def _axis(self, x: str, step: NDArray[Any], time: NDArray[Any], branch: str, rank: int | None) -> NDArray[Any]:
        import numpy

        if x == "step":
            return step
        if x == "time":
            return time / 1e6
        if x == "relative":
            return (time - (time.min() if len(time) else 0)) / 1e6
        from barograph.columns import align, strides

        other = self.series("train/step_tokens" if x == "tokens" else x, branch=branch, rank=rank)
        # a row that is logged each ten steps stands for ten
        values = numpy.cumsum(other.value * strides(other.step)) if x == "tokens" else other.value
        aligned: NDArray[Any] = align(step, other.step, values)
        return aligned

    def _resolve(self, name: str) -> str:
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

    def columns(self, name: str, branch: str = "live", rank: int | None = None) -> Columns:
        """step, time (µs since 1970), value, segment of one series by its full name, as `series` has them but
        not put in the order of steps across segments. Empty if there is none."""
        return self._points(name, branch, rank)

    def all_columns(self, branch: str = "live", rank: int | None = None) -> dict[str, Columns]:
        """`columns` of every series that has a point, with one look at the run's files for all of them.

        rank: that rank's points; series that only others have come with theirs. Series that were logged together share
        their arrays of steps, times and segments.
        """
        for _ in range(5):
            covered = self._tails.covered()
            tails, origin = list(self._tails.beyond(covered)), self.origin
            names = sorted({*self._store().names(), *(name for tail in tails for name in tail.columns)})
            found = {}
            alike: dict[int, Columns] = {}  # the last series of each length
            for name in names if origin is None else self.names():
                columns = self._gather(name, branch, rank, tails, origin)
                if not len(columns[0]) and rank is not None:
                    columns = self._gather(name, branch, None, tails, origin)
                if len(columns[0]):
                    found[name] = alike[len(columns[0])] = _shared(columns, alike.get(len(columns[0])))
            if self._tails.covered() == covered:
                break  # nothing moved from the log file to the store in between
        return found

    def _points(self, name: str, branch: str, rank: int | None = None) -> Columns:
        """step, time (µs), value, segment of one series, the old branches left out unless asked for."""
        for _ in range(20):
            covered = self._tails.covered()
            columns = self._gather(name, branch, rank, list(self._tails.beyond(covered)), self.origin)
            if self._tails.covered() == covered:
                break  # nothing moved from the log file to the store in between
        return columns

    def _gather(
        self, name: str, branch: str, rank: int | None, tails: list[Tail], origin: tuple[StoredRun, int] | None
    ) -> Columns:
        import numpy

        stored = self._store().points(name, columns=("time", "value"))
        parts = [(stored.step, stored.time, stored.value, stored.segment)]
        if rank is not None and len(stored.rank) and (stored.rank != rank).any():
            mine = stored.rank == rank
            parts = [(stored.step[mine], stored.time[mine], stored.value[mine], stored.segment[mine])]
        parts += [tail.arrays(name) for tail in tails if name in tail.columns and rank in (None, tail.rank)]
        joined = [numpy.concatenate(column) if len(parts) > 1 else column[0] for column in zip(*parts, strict=True)]
        step, time, value, segment = joined
        if branch != "all" and len(step):
            keep = self._live(step, segment)
            if keep is not None:
                step, time, value, segment = step[keep], time[keep], value[keep], segment[keep]
        if origin is not None:
            shared = origin[0]._points(name, "live", rank)
            early = shared[0] < origin[1]
            # segment 0: before the fork
            history = (shared[0][early], shared[1][early], shared[2][early], numpy.zeros(early.sum(), numpy.int32))
            pairs = zip(history, (step, time, value, segment), strict=True)
            step, time, value, segment = (numpy.concatenate(pair) for pair in pairs)
        return step, time, value, segment

    def _live(self, step: NDArray[Any], segment: NDArray[Any]) -> NDArray[Any] | None:
        found = self.segments
        if not found or (len(found) < 2 and self._until is None):
            return None
        import numpy

        first = {number: int(step[segment == number].min()) for number in set(segment.tolist())}
        cuts = segments.live_cuts(found, first)
        keep = numpy.zeros(len(step), bool)
        for number, cut in cuts.items():
            mine = segment == number
            keep |= mine if cut is None else mine & (step < cut)
        return keep

    def histograms(self, name: str) -> list[Histogram]:
        """A distribution over time, sorted by step, the live branch alone."""
        rows = self._store().histograms(name)
        keep = self._live(rows.step, rows.segment) if len(rows.step) else None
        return [
            Histogram(int(step), time / 1e6, edges, counts)
            for at, (step, time, edges, counts) in enumerate(
                zip(rows.step, rows.time, rows.edges, rows.counts, strict=True)
            )
            if keep is None or keep[at]
        ]

    def histogram_names(self) -> list[str]:
        """Every distribution of the run, sorted."""
        return self._store().histogram_names()

    # -- records ------------------------------------------------------------------------------------

    def log_files(self) -> list[Path]:
        """The run's log files: rank 0's first."""
        if self._bare_log:
            return [self._bare_log]
        return self._tails.files()

    def records(self, *kinds: str) -> Iterator[Record]:
        """Records of the log files, of these kinds (all without any), each file's in the order logged."""
        for path in self.log_files():
            for record, _ in records_from(path):
                if not kinds or record.kind in kinds:
                    yield record

    def log(self) -> list[dict[str, Any]]:
        """The main log as dictionaries, as `read_log` gives them."""
        files = self.log_files()
        return read_log(files[0]) if files else []

    # -- time and money ---------------------------------------------------------------------------------

    def goodput(self, now: float | None = None) -> Totals:
        """Where the wall time went, in seconds by cause, from rank 0's log; also while the run goes on.

        now: seconds since 1970 up to which a run that goes on counts; the present if not given.
        """
        if now is None and self.status in liveness.ALIVE:
            now = time.time()
        return self._accounts()[0].totals(now)

    def cost(self, price_per_gpu_hour: float | None = None, price_per_kwh: float | None = None) -> dict[str, Any]:
        """Energy and money so far, as the fields of an `energy` record: what is not known is absent.

        The prices are the run's own where they are not given.
        """
        from barograph.probes.speed.energy import Prices

        energy, about = self._accounts()[1], self.manifest
        hours, wall = about.get("gpu_hours"), about.get("wall_seconds")
        if hours and wall:
            gpus = round(hours * 3600.0 / wall)
            known = about["cost"] / hours if about.get("cost") is not None else None
        else:
            devices = (about.get("hardware") or {}).get("gpus")
            gpus, known = (int(about.get("world_size") or 1) if devices or energy.gpus else 0), None
        given = (price_per_gpu_hour, energy.said.get("price_per_gpu_hour"), known)
        price = next((one for one in given if one is not None), None)
        kwh = energy.said.get("price_per_kwh") if price_per_kwh is None else price_per_kwh
        return energy.fields(Prices(per_gpu_hour=price, per_kwh=kwh), self.goodput().held * gpus / 3600.0, gpus)

    def _accounts(self) -> tuple[Goodput, Energy]:
        """Read from the log files; again once they have grown."""
        from barograph.goodput import LONG_LOG, Goodput, replay
        from barograph.probes.speed.energy import Energy

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

    def _store(self) -> StoreReader:
        if self._reader is None:
            from barograph.store.reader import StoreReader

            self._reader = StoreReader(self.dir / ("store" if not self._bare_log else ".no-store"), self.cache_bytes)
        return self._reader


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
