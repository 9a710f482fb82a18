"""All numbers of one run: what is sealed, and what is in its logs and block files alone.

In:   a run's folder, or a bare log file; both may be written, sealed and merged meanwhile.
Out:  looks. A look is one state of the run, in which each row that was logged stands once.

First the logs and block files are read, then the sealed parts; of the former is left out what the latter hold. What a
part says it holds and can't be read is taken from the log too. No lock is taken and nobody is held up.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core import segments
from barograph.core.damage import Problems
from barograph.core.lazy import lazy
from barograph.core.segments import Segment
from barograph.log.files import MAIN, Owner, log_of_store, logs_of, stores_of
from barograph.log.spool import best_copy
from barograph.store.branch import Branch
from barograph.store.columns import Array, HistogramsBlock, PointsBlock, each
from barograph.store.folder import Folder
from barograph.store.logs import BEGINNING, RunLog
from barograph.store.part import DamagedPart, GroupCache, Part, numbers
from barograph.store.schema import merge_spans
from barograph.store.sort import in_order
from barograph.store.tail import BlockStretch, LogStretch, Mark, Stretch

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

LOOK_SECONDS = 1.0  # a look is used again: on a network file system a file's time may be an old one for longer
SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system that runs are kept on ticks once in two seconds
CACHE_BYTES = 64 << 20  # decoded row groups kept, so that neighbouring series cost one decode


class Points(NamedTuple):
    """Rows of a series: arrays of one length. `step` int64; `time` int64, µs since 1970, UTC; `value` float64;
    `segment`, `rank` int32. `time` and `value` are empty if they were not asked for."""

    step: Array
    time: Array
    value: Array
    segment: Array
    rank: Array


class Histograms(NamedTuple):
    """A histogram over time: as Points, but row i has `edges[i]` [k+1] and `counts[i]` [k], float64."""

    step: Array
    time: Array
    edges: list[Array]
    counts: list[Array]
    segment: Array
    rank: Array


class Piece(NamedTuple):
    """Rows of one series in one file, as they lie there; `value` holds (edges, counts) for histograms.

    A part gives no `time` or `value` that was not asked for.
    """

    step: Array
    time: Any
    value: Any
    segment: Array | int
    rank: Array | int


class Unreadable:
    """Files of a run that can't be read. `problems`: a sentence about each; `bad`: a part's number and a series that
    can't be read in it. Looks share it with the store that made them."""

    def __init__(self, folder: Path, is_ours: Owner):
        self.problems = Problems()
        self.bad: set[tuple[int, str]] = set()
        self._folder, self._is_ours = folder, is_ours
        self._stretches: dict[int, list[Stretch]] = {}  # a part's number → what the log has of it

    def note(self, path: Path, sentence: str) -> None:
        self.problems[path] = sentence

    def instead_of(self, part: Part, log: RunLog) -> list[Stretch]:
        """What the log and the block files have of a part that can't be read."""
        result = self._stretches.get(part.serial)
        if result is None:
            result = self._stretches[part.serial] = []
            for start, stop in part.log_spans:
                result.append(LogStretch(log.path, log.mark_at(0 if start <= BEGINNING else start), self._is_ours))
                result[-1].read(stop)
            for name, spans in (part.header.get("wide") or {}).items():
                for start, stop in spans:
                    result.append(BlockStretch(self._folder / name, start, log.rank))
                    result[-1].read(stop)
        return result


class RunStore:
    """Reads one run, from one thread. `problems`: sentences about files that could not be read, so far.

    folder: the run's. bare_log: the run is this log and nothing else. allowed: which files may be opened.
    rows: without them a look has segments and first steps alone, and takes no more memory for a longer run.
    """

    def __init__(
        self,
        folder: Path,
        bare_log: Path | None = None,
        cache_bytes: int | None = None,
        allowed: Callable[[Path], bool] = lambda path: True,
        rows: bool = True,
    ):
        self.folder, self._rows = folder, rows
        self._bare = bare_log
        self._allowed = allowed
        self._cache = GroupCache(CACHE_BYTES if cache_bytes is None else cache_bytes)
        self.is_ours = Owner(folder, bare_log is not None)
        self._unreadable = Unreadable(folder, self.is_ours)
        self.missing: list[str] = []  # sentences about what was logged and is nowhere any more
        self._logs: dict[Path, RunLog] = {}
        self._folders: dict[Path, Folder] = {}
        self._listed = False
        self._last: tuple[Look, FolderState, float] | None = None  # and when it was looked for
        self._settled = False  # whether that state shows every later change

    @property
    def problems(self) -> list[str]:
        return list(self._unreadable.problems.values())

    def look(self) -> Look:
        """The run as it stands now: as it stood at the last look, where no file has changed since."""
        state = folder_state(self.folder, self._logs.values()) if self._bare is None else {}
        if state and self._last is not None and self._last[1] == state and self._holds(*self._last):
            return self._last[0]
        logs = self.find_logs()
        if not self._listed:
            for log in logs:
                log.list_parts()
            self._listed = True
        main: RunLog | None = None
        # a sidecar's record is never ahead of the main log as it is read afterwards
        for log in sorted(logs, key=lambda log: log.is_sidecar):
            main = main or (log if log.path.name == MAIN else None)
            at = _segment_at(main) if log.is_sidecar and main is not None else None
            log.read_log(self.is_ours, at)
            log.read_blocks(self.folder)
        # where parts were deleted, so was the reason not to read the log
        if any(log.store for log in logs) and self._list_again(logs):
            return self.look()
        self._note_missing(logs)
        result = Look(None if self._bare is not None else self.folder, logs, self._unreadable)
        self._last, self._settled = (result, state, time.monotonic()), is_settled(state)
        return result

    def _holds(self, last: Look, state: FolderState, moment: float) -> bool:
        """Whether a look at the state that there is again has all there is now. Within the tick of a file system's
        clock only a log changes without its state: a record takes the place of blanks."""
        if time.monotonic() >= moment + LOOK_SECONDS:
            return False
        if not self._settled:
            for log in last.logs:
                if log.last is not None and log.last.read():
                    return False
            self._settled = is_settled(state)
        return True

    def _note_missing(self, logs: list[RunLog]) -> None:
        self.missing = []
        for log in logs:
            if self._bare is None and (names := log.missing(self.folder)):
                files = f"{len(names)} block file{'s' if len(names) > 1 else ''} of {log.path.name}"
                self.missing.append(f"wide rows of {files} are missing: sealed parts that held them can't be read")
                self._unreadable.note(self.folder / names[0], self.missing[-1])

    def _list_again(self, logs: list[RunLog]) -> bool:
        """Whether parts hold less than they did before what they don't hold was read."""
        less = False
        for log in logs:
            before = [(log.covered, ""), *((spans, name) for name, spans in log.wide.items())]
            log.list_parts()
            for spans, name in before:
                now = log.wide.get(name, []) if name else log.covered
                less |= merge_spans([*spans, *now]) != now
        return less

    # -- inside ---------------------------------------------------------------------------------

    def find_logs(self) -> list[RunLog]:
        """The run's logs with their folders of parts: rank 0's first, the sidecars' last."""
        paths = [self._bare] if self._bare is not None else logs_of(self.folder, self._allowed)
        found = {path.resolve(): path for path in paths}
        stores: dict[Path, list[Folder]] = {}
        for store in stores_of(self.folder) if self._bare is None else ():
            log = (self.folder / log_of_store(store)).resolve()
            if not self._allowed(log):
                continue
            found.setdefault(log, log)
            folder = self._folders.get(store)
            if folder is None:
                folder = Folder(store, self._cache, self._unreadable.problems, self._rows)
                self._folders[store] = folder
            stores.setdefault(log, []).append(folder)
        for resolved, path in found.items():
            log_file = self._logs.get(resolved)
            if log_file is None:
                log_file = self._logs[resolved] = RunLog(path, self._rows)
                self._listed = False
            log_file.store = stores.get(resolved, [])
        for gone in set(self._logs) - set(found):
            del self._logs[gone]
        return list(map(self._logs.__getitem__, found))


FolderState = dict[str, tuple[int, int, int]]
"""A run's folders and files, each with its inode, size and the time of its last change in ns; of folders that were
changed just now the files too, each with its inode."""


def folder_state(folder: Path, logs: Iterable[RunLog]) -> FolderState:
    """What changes when a run's numbers do: its folder's files, its folders, and logs that lie elsewhere."""
    state: FolderState = {}
    with contextlib.suppress(OSError):
        store = folder / "store"
        folders = [folder, folder / segments.FOLDER, store]
        folders += [Path(entry.path) for entry in os.scandir(store) if entry.is_dir()] if store.is_dir() else []
        elsewhere = [path for log in logs for path in (log.path, best_copy(log.path)) if path.parent != folder]
        with os.scandir(folder) as entries:
            files = [entry.path for entry in entries if entry.name.endswith((".json", ".wide"))]
        for name in map(str, (*folders, *elsewhere, *files)):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name)
                state[name] = status.st_ino, status.st_size, status.st_mtime_ns
        recent = time.time_ns() - SETTLED_NS
        for inside in folders[1:]:
            if state.get(str(inside), (0, 0, 0))[2] >= recent:
                with contextlib.suppress(FileNotFoundError), os.scandir(inside) as entries:
                    for entry in entries:
                        state[entry.path] = entry.inode(), 0, 0
    return state


def is_settled(state: FolderState) -> bool:
    """Whether the last change is so long ago that another one could not have the same time."""
    newest = 0
    for _, _, changed in state.values():
        newest = max(newest, changed)
    return bool(state) and newest < time.time_ns() - SETTLED_NS


class Look:
    """A run at one moment. Valid until the next look of the same store. folder: the run's; None for a bare log."""

    def __init__(self, folder: Path | None, logs: list[RunLog], unreadable: Unreadable):
        self._folder, self._unreadable = folder, unreadable
        self.logs = logs
        self._segments: list[Segment] | None = None
        self._branches: dict[tuple[int | None, int | None], Branch] = {}

    def has(self, name: str) -> bool:
        """Whether there is a series of this name."""
        for log in self.logs:
            if any(name in rows.points for rows in log.held) or any(part.find(name) for part in log.points):
                return True
            if any(True for _ in self._unsealed(log, name)):
                return True
        return False

    def names(self) -> list[str]:
        """All series, sorted."""
        found: set[str] = set()
        for log in self.logs:
            found.update(*(part.names for part in log.points), *(rows.points for rows in log.held))
            for block in self._unsealed(log):
                found.update(block.keys.names)
        return sorted(found)

    def histogram_names(self) -> list[str]:
        """All histograms, sorted."""
        found: set[str] = set()
        for log in self.logs:
            found.update(*(part.names for part in log.histograms), *(rows.histograms for rows in log.held))
            for block in self._unsealed_histograms(log):
                found.update(block.names)
        return sorted(found)

    def pieces(self, name: str, columns: Collection[str] = ("time", "value")) -> Iterator[Piece]:
        """A series file by file, as it lies there; none if there is no such series.

        Raises DamagedPart where a part can't be read; from the next call on it is left out for what the log has.
        """
        for log in self.logs:
            for rows in log.held:
                yield from _of_blocks(name, rows.points.get(name, ()))
            for source in log.points:
                if (source.serial, name) in self._unreadable.bad:
                    yield from _of_blocks(name, self._instead(source, log))
                    continue
                try:
                    yield from part_pieces(source, name, tuple(columns))
                except DamagedPart as error:
                    self._unreadable.bad.add((source.serial, name))
                    self._note_damage(source, log, error)
                    raise
            yield from _of_blocks(name, self._unsealed(log, name))

    def points(self, name: str, columns: Collection[str] = ("time", "value")) -> Points:
        """A series, in the order of segment, step, log and arrival."""
        pieces: list[Piece] | None = None
        while pieces is None:
            with contextlib.suppress(DamagedPart):
                pieces = list(self.pieces(name, columns))
        step, time, value, segment, rank = zip(*pieces, strict=True) if pieces else ((),) * 5
        lengths = list(map(len, step))
        points = Points(
            _joined(step, np.int64),
            _joined(time if "time" in columns else (), np.int64),
            _joined(value if "value" in columns else (), np.float64),
            _filled(segment, lengths),
            _filled(rank, lengths),
        )
        if in_order(points.segment, points.step):
            return points
        order = np.lexsort((points.step, points.segment))  # stable: equal steps stay by log and arrival
        return Points(*(column[order] if len(column) else column for column in points))

    def histograms(self, name: str) -> Histograms:
        """A histogram's rows, in the order of segment and step."""
        pieces: list[Piece] = []
        for log in self.logs:
            for rows in log.held:
                pieces += _of_histogram_blocks(name, rows.histograms.get(name, ()))
            for source in log.histograms:
                try:
                    pieces += part_pieces(source, name, ("time", "edges", "counts"))
                except DamagedPart as error:
                    self._unreadable.note(source.path, f"{error}; what it holds of {name} is missing")
            pieces += _of_histogram_blocks(name, self._unsealed_histograms(log))
        lengths = [len(piece.step) for piece in pieces]
        step, time = (_joined(column, np.int64) for column in ([p.step for p in pieces], [p.time for p in pieces]))
        segment, rank = _filled([p.segment for p in pieces], lengths), _filled([p.rank for p in pieces], lengths)
        edges = [row for piece in pieces for row in piece.value[0]]
        counts = [row for piece in pieces for row in piece.value[1]]
        order = np.lexsort((step, segment))
        edges, counts = ([column[row] for row in order] for column in (edges, counts))
        return Histograms(step[order], time[order], edges, counts, segment[order], rank[order])

    # -- segments ---------------------------------------------------------------------------------

    def segments(self) -> list[Segment]:
        """The run's segments: as their files say, and as the logs say where those are missing or damaged."""
        if self._segments is None:
            self._segments = [] if self._folder is None else self._read_segments(self._folder)
        return list(self._segments)

    def _read_segments(self, folder: Path) -> list[Segment]:
        found = {segment.number: segment for segment in segments.read(folder)}
        for path in _listed(folder / segments.FOLDER):
            number = path.stem
            if path.suffix == ".json" and number.isdigit() and int(number) not in found:
                self._unreadable.note(path, f"segments/{path.name} is damaged; the log says what it held")
        for log in self.logs:
            for mark in log.marks if not log.is_sidecar else ():
                if not mark.foreign and mark.segment not in found:
                    found[mark.segment] = segment_of(mark)
        return sorted(found.values())

    def branch(self, until: int | None = None, last: int | None = None) -> Branch:
        """Which points are live. until: only what began by then counts, in µs; last: on the way to this segment."""
        branch = self._branches.get((until, last))
        if branch is None:
            held = self.segments()
            if until is not None:
                held = [segment for segment in held if segment.time <= until] or held
            if last is not None:
                held = [segment for segment in held if segment.number <= last]
            branch = Branch(held, self.first_steps(), until is not None or last is not None)
            self._branches[until, last] = branch
        return branch

    def first_steps(self) -> dict[int, int]:
        """The first step that each segment logged."""
        result: dict[int, int] = {}
        for log in self.logs:
            if not log.is_sidecar:
                for segment, (_, step) in log.first_steps().items():
                    result[segment] = min(step, result.get(segment, step))
        return result

    # -- inside -----------------------------------------------------------------------------------

    def _unsealed(self, log: RunLog, series: str | None = None) -> Iterator[PointsBlock]:
        for stretch in log.stretches.values():
            yield from stretch.blocks(log.covered, series)
        for (name, _), rows in log.blocks.items():
            yield from rows.blocks(log.wide.get(name, []), series)

    def _unsealed_histograms(self, log: RunLog) -> Iterator[HistogramsBlock]:
        for (name, _), rows in log.blocks.items():
            yield from rows.histogram_blocks(log.wide_histograms.get(name, []))

    def _instead(self, part: Part, log: RunLog) -> Iterator[PointsBlock]:
        for stretch in self._unreadable.instead_of(part, log):
            yield from stretch.blocks([])

    def _note_damage(self, part: Part, log: RunLog, error: DamagedPart) -> None:
        stretches = self._unreadable.instead_of(part, log)
        ends = [stop for _, stop in part.log_spans]
        ends += [stop for spans in (part.header.get("wide") or {}).values() for _, stop in spans]
        whole = all(stretch.end >= stop for stretch, stop in zip(stretches, ends, strict=True))
        source = "what it held is read from the log" if whole else "some of what it held is missing"
        self._unreadable.note(part.path, f"{error}; {source}")


def segment_of(mark: Mark) -> Segment:
    """A segment as its log's record says."""
    fields = mark.fields
    parent, start = fields.get("parent"), fields.get("start_step")
    return Segment(
        mark.segment,
        parent if type(parent) is int else None,
        start if type(start) is int else None,
        str(fields.get("kind", "start")),
        int(fields.get("time") or 0),
        fields.get("launch"),
        fields.get("source"),
    )


def _segment_at(main: RunLog) -> Callable[[int], int]:
    return lambda at: main.mark_at(at).segment


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _of_blocks(name: str, blocks: Iterable[PointsBlock]) -> Iterator[Piece]:
    for block in blocks:
        column = block.keys.columns.get(name)
        if column is not None:
            yield Piece(block.step, block.time, block.value[:, column], block.segment, block.rank)


def _of_histogram_blocks(name: str, blocks: Iterable[HistogramsBlock]) -> Iterator[Piece]:
    for block in blocks:
        if name in block.names:
            rows = [row for row, other in enumerate(block.names) if other == name]
            lists = [block.edges[row] for row in rows], [block.counts[row] for row in rows]
            origin = (each(value, len(block.step))[rows] for value in (block.segment, block.rank))
            yield Piece(block.step[rows], block.time[rows], lists, *origin)


def part_pieces(part: Part, name: str, columns: tuple[str, ...]) -> Iterator[Piece]:
    """The rows of a series in a sealed part, a row group at a time. Raises DamagedPart before the first."""
    rows = part.find(name)
    if rows is None:
        return
    origin = {"segment": part.constant("segment"), "rank": part.constant("rank")}
    columns = ("step", *columns)
    for column, only in origin.items():
        if only is None:
            columns = (*columns, column)
    for table in part.read(*rows, columns):
        arrays: dict[str, Any] = dict(origin)
        for column in columns:
            if column not in ("edges", "counts"):
                arrays[column] = numbers(table, column)[0]
        value = (_lists(table, "edges"), _lists(table, "counts")) if "edges" in columns else arrays.get("value")
        yield Piece(arrays["step"], arrays.get("time"), value, arrays["segment"], arrays["rank"])


def _lists(table: Any, column: str) -> list[Array]:
    return [np.array(row.values) for chunk in table.column(column).chunks for row in chunk]


def _filled(values: Sequence[Any], lengths: list[int]) -> Array:
    """One column of numbers or columns, each as long as its piece."""
    column = np.empty(sum(lengths), np.int32)
    start = 0
    for value, length in zip(values, lengths, strict=True):
        column[start : start + length] = value
        start += length
    return column


def _joined(arrays: Sequence[Array], kind: Any) -> Array:
    return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.empty(0, kind)
