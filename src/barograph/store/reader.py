"""The reading side of the store: all writers of a run as one, while they write.

In:   the folder `store/` of a run.
Out:  the names of its series, a series' points or a histogram's rows over all writers, new blocks
      as they arrive.

Takes no lock and holds nobody up. Files may be sealed, merged and deleted in the middle of a look:
it then looks again. Damaged and foreign files are left out, each with a sentence in `problems`.
"""

from __future__ import annotations

import errno
import os
import time as clock
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from barograph.store.live import Array, Block, HistogramsBlock, LiveFile, PointsBlock, Replaced
from barograph.store.part import DamagedPart, GroupCache, Part, numbers
from barograph.store.schema import StoreFile, merge_spans, parse_names, visible
from barograph.store.sort import in_order

CACHE_BYTES = 64 << 20  # decoded row groups kept, so that neighbouring series cost one decode
LIVE_BYTES = 256 << 20  # blocks of live files kept; beyond, the least recently read are read again
LISTING_SETTLES_SECONDS = 2.0  # a folder changed within this may change again within its clock's tick
_PAUSES = (0.0, 0.005, 0.02, 0.1, 0.3)  # seconds before looking again at files that vanished


class Points(NamedTuple):
    """A series: arrays of one length, sorted by segment, then step, then writer, then arrival.

    `step` int64; `time` int64, µs since 1970, UTC; `value` float64; `segment`, `rank` int32; `writer`
    int32, place in `StoreReader.writers()`. `time` and `value` are empty if they were not asked for.
    """

    step: Array
    time: Array
    value: Array
    segment: Array
    rank: Array
    writer: Array


class Histograms(NamedTuple):
    """A histogram over time: as Points, but row i has `edges[i]` [k+1] and `counts[i]` [k], float64."""

    step: Array
    time: Array
    edges: list[Array]
    counts: list[Array]
    segment: Array
    rank: Array
    writer: Array


class _Piece(NamedTuple):
    """Rows of one series in one file, as they lie there; `value` holds (edges, counts) for histograms."""

    step: Array
    time: Array | None
    value: Any
    segment: Array | int
    rank: Array | int


class _Live:
    """A live file and its blocks so far."""

    def __init__(self, path: Path):
        self.file = LiveFile(path)
        self.blocks: list[Block] = []

    def look(self) -> None:
        try:
            self.blocks += self.file.read_new()
        except Replaced:
            self.__init__(self.file.path)  # type: ignore[misc]
            self.blocks += self.file.read_new()


class _Folder:
    """One writer's folder: what is in it, opened as far as needed and kept."""

    def __init__(self, path: Path, cache: GroupCache, problems: dict[Path, str]):
        self.path = path
        self.lives: dict[str, _Live] = {}
        self._cache = cache
        self._problems = problems
        self._parts: dict[StoreFile, tuple[Any, Part | None]] = {}
        self._files: list[StoreFile] | None = None
        self._changed = -1  # the folder's time of change at the last listing, if that can be relied on

    def sources(self, table: str) -> list[Part | _Live]:
        """What holds a table's rows at this moment, oldest first, live files read to their end."""
        vanished: OSError | None = None
        for pause in _PAUSES:
            if pause:
                clock.sleep(pause)
            try:
                return self._open(self._list(), table)
            except FileNotFoundError as error:
                vanished = error
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                vanished = error
            self._files = None
        if not self.path.exists():
            return []
        self._problems[self.path] = f"files of {self.path.name} vanish while they are read ({vanished})"
        return []

    def _list(self) -> list[StoreFile]:
        changed, settled = self._time_of_change()
        if self._files is not None and changed == self._changed:
            return self._files
        names = sorted(os.listdir(self.path))
        while not settled:
            # a name may be missed if it appears during a listing; two equal ones in a row miss none
            again = sorted(os.listdir(self.path))
            settled, names = again == names, again
            changed = -1
        files = parse_names(names)
        self._changed = changed
        self._files = files
        for name in set(self.lives) - {file.name for file in files}:
            del self.lives[name]
        for gone in set(self._parts) - set(files):
            del self._parts[gone]
        return files

    def _time_of_change(self) -> tuple[int, bool]:
        """The folder's, and whether it lies so far back that it tells every later change."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # opened: see LiveFile.read_new
        try:
            changed = os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
        return changed, abs(clock.time_ns() - changed) > LISTING_SETTLES_SECONDS * 1e9

    def _open(self, files: list[StoreFile], table: str) -> list[Part | _Live]:
        while True:
            opened: list[Part | _Live] = []
            for file in visible(files, table):
                if file.table == "live":
                    opened.append(self._live(file))
                elif (part := self._part(file)) is not None:
                    opened.append(part)
                else:  # a damaged file hides nothing
                    files = [other for other in files if other != file]
                    break
            else:
                return opened

    def _live(self, file: StoreFile) -> _Live:
        live = self.lives.pop(file.name, None) or _Live(self.path / file.name)
        live.look()
        self.lives[file.name] = live  # the most recently read last
        if live.file.problem:
            self._problems[self.path / file.name] = live.file.problem
        return live

    def _part(self, file: StoreFile) -> Part | None:
        path = self.path / file.name
        status = os.stat(path)
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._parts.get(file)
        if known is None or known[0] != identity:
            try:
                known = identity, Part(path, self._cache)
            except DamagedPart as error:
                self._problems[path] = str(error)
                known = identity, None
            self._parts[file] = known
        return known[1]


class StoreReader:
    """Reads a run's store. `problems`: sentences about files that could not be read, so far."""

    def __init__(self, store_dir: str | Path):
        self.path = Path(store_dir)
        self._cache = GroupCache(CACHE_BYTES)
        self._folders: dict[str, _Folder] = {}
        self._problems: dict[Path, str] = {}
        self._names: dict[str, tuple[Any, list[str]]] = {}

    @property
    def problems(self) -> list[str]:
        return list(self._problems.values())

    def writers(self) -> list[str]:
        """The names of the writers' folders, sorted."""
        try:
            with os.scandir(self.path) as entries:
                found = sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != ".")
        except (FileNotFoundError, NotADirectoryError):
            return []
        for gone in set(self._folders) - set(found):
            del self._folders[gone]
        return found

    def log_spans(self, writer: str) -> list[tuple[int, int]]:
        """Which byte ranges [start, end) of the writer's log file the store has the numbers of."""
        spans: list[tuple[int, int]] = []
        for source in self._folder(writer).sources("points"):
            spans += source.log_spans if isinstance(source, Part) else source.file.log_spans
        return merge_spans(spans)

    def log_end(self, writer: str) -> int:
        """Up to which byte the store has the numbers of the writer's log file; 0 if of none."""
        spans = self.log_spans(writer)
        return spans[-1][1] if spans else 0

    def names(self, writers: Collection[str] | None = None) -> list[str]:
        """All series, sorted."""
        return self._all_names("points", writers)

    def histogram_names(self, writers: Collection[str] | None = None) -> list[str]:
        """All histograms, sorted."""
        return self._all_names("histograms", writers)

    def points(
        self,
        name: str,
        columns: Collection[str] = ("step", "value"),
        writers: Collection[str] | None = None,
    ) -> Points:
        """A series' points of all writers, or of the ones named; none if there is no such series.

        `columns`: add "time" for times, leave out "value" for no values; the rest is always there.
        """
        wanted = tuple(column for column in ("time", "value") if column in columns)
        pieces = list(self._pieces("points", name, wanted, writers))
        found = [piece for _, piece in pieces]
        step, segment, rank, writer = _keys(pieces)
        time = _joined([piece.time for piece in found if piece.time is not None], np.int64)
        value = _joined([piece.value for piece in found if piece.value is not None], np.float64)
        points = Points(step, time, value, segment, rank, writer)
        if in_order(segment, step):
            return points
        order = np.lexsort((step, segment))  # stable: equal steps stay by writer and arrival
        return Points(*(column[order] if len(column) else column for column in points))

    def histograms(self, name: str, writers: Collection[str] | None = None) -> Histograms:
        """A histogram's rows of all writers, or of the ones named."""
        pieces = list(self._pieces("histograms", name, ("time", "edges", "counts"), writers))
        step, segment, rank, writer = _keys(pieces)
        time = _joined([piece.time for _, piece in pieces if piece.time is not None], np.int64)
        edges = [row for _, piece in pieces for row in piece.value[0]]
        counts = [row for _, piece in pieces for row in piece.value[1]]
        order = np.lexsort((step, segment))
        return Histograms(
            step[order],
            time[order],
            [edges[row] for row in order],
            [counts[row] for row in order],
            segment[order],
            rank[order],
            writer[order],
        )

    def cursor(self) -> Cursor:
        """For following a run: gives the blocks of the live files, then those that arrive."""
        return Cursor(self)

    # -- inside -------------------------------------------------------------------------------

    def _folder(self, writer: str) -> _Folder:
        folder = self._folders.get(writer)
        if folder is None:
            folder = self._folders[writer] = _Folder(self.path / writer, self._cache, self._problems)
        return folder

    def _pieces(
        self, table: str, name: str, columns: tuple[str, ...], writers: Collection[str] | None
    ) -> Iterator[tuple[int, _Piece]]:
        for index, writer in enumerate(self.writers()):
            if writers is not None and writer not in writers:
                continue
            for source in self._folder(writer).sources(table):
                if isinstance(source, _Live):
                    for block in source.blocks:
                        piece = _points_in(block, name) if table == "points" else _histograms_in(block, name)
                        if piece is not None:
                            yield index, piece if "time" in columns else piece._replace(time=None)
                else:
                    try:
                        for piece in _part_pieces(source, name, columns):
                            yield index, piece
                    except DamagedPart as error:
                        self._problems[source.path] = str(error)
        self._forget()

    def _forget(self) -> None:
        """Keep the blocks of live files within bounds."""
        held = [(folder, name, live) for folder in self._folders.values() for name, live in folder.lives.items()]
        total = sum(live.file.size for _, _, live in held)
        for folder, name, live in held:
            if total <= LIVE_BYTES:
                break
            total -= live.file.size
            del folder.lives[name]

    def _all_names(self, table: str, writers: Collection[str] | None) -> list[str]:
        found: set[str] = set()
        seen: list[Any] = []
        lists: list[Any] = []
        for writer in self.writers():
            if writers is not None and writer not in writers:
                continue
            for source in self._folder(writer).sources(table):
                if isinstance(source, Part):
                    seen.append(source.path)
                    lists.append(source.names)
                else:
                    seen.append((source.file.path, len(source.blocks)))
                    lists += _names_in(source.blocks, table)
        if table in self._names and self._names[table][0] == seen:
            return list(self._names[table][1])
        found.update(*lists)
        names = sorted(found)
        self._names[table] = seen, names
        return list(names)


class Update(NamedTuple):
    """New blocks, each with its writer's name. `missed`: more was sealed before it was seen; read it anew."""

    blocks: list[tuple[str, Block]]
    missed: bool


class Cursor:
    """Follows the live files of a run; each `read` gives what was flushed since the last one.

    Keeps the file it reads open, so a file that is sealed and deleted between two reads is still read
    to its end. A file that came and went between two reads is only told by `missed`.
    """

    def __init__(self, reader: StoreReader):
        self._reader = reader
        self._places: dict[str, _Place] = {}

    def read(self) -> Update:
        blocks: list[tuple[str, Block]] = []
        missed = False
        for writer in self._reader.writers():
            place = self._places.setdefault(writer, _Place(self._reader.path / writer))
            new, lost = place.read()
            blocks += [(writer, block) for block in new]
            missed |= lost
        for gone in set(self._places) - set(self._reader.writers()):
            self._places.pop(gone).close()
        return Update(blocks, missed)

    def close(self) -> None:
        for place in self._places.values():
            place.close()
        self._places.clear()


class _Place:
    """Where a cursor stands in one writer's folder."""

    def __init__(self, path: Path):
        self._path = path
        self._number: int | None = None  # of the file read last; None before the first look
        self._open: tuple[LiveFile, int] | None = None

    def read(self) -> tuple[list[Block], bool]:
        new: list[Block] = []
        # listed first: a file that is followed by another in this list is complete when it is read below
        files = self._list()
        missed = self._read_open(new)
        sealed = max((file.last for file in files if file.table != "live"), default=0)
        if self._number is None:
            self._number = sealed
        for file in files:
            if file.table != "live" or file.first <= self._number:
                continue
            try:
                descriptor = os.open(self._path / file.name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                missed = True
                continue
            self.close()
            self._open, self._number = (LiveFile(self._path / file.name), descriptor), file.first
            missed |= self._read_open(new)
        if sealed > self._number:
            self._number, missed = sealed, True
        return new, missed

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
        self._open = None

    def _list(self) -> list[StoreFile]:
        try:
            return parse_names(os.listdir(self._path))
        except FileNotFoundError:
            return []

    def _read_open(self, new: list[Block]) -> bool:
        if self._open is None:
            return False
        try:
            new += self._open[0].read_new(self._open[1])
        except (OSError, Replaced):  # deleted on another machine of a network file system
            self.close()
            return True
        return False


def _names_in(blocks: list[Block], table: str) -> list[Collection[str]]:
    if table == "histograms":
        return [block.names for block in blocks if isinstance(block, HistogramsBlock)]
    return list({id(block.keys): block.keys.names for block in blocks if isinstance(block, PointsBlock)}.values())


def _points_in(block: Block, name: str) -> _Piece | None:
    if not isinstance(block, PointsBlock):
        return None
    column = block.keys.columns.get(name)
    if column is None:
        return None
    return _Piece(block.step, block.time, block.value[:, column], block.segment, block.rank)


def _histograms_in(block: Block, name: str) -> _Piece | None:
    if not isinstance(block, HistogramsBlock) or name not in block.names:
        return None
    rows = [row for row, other in enumerate(block.names) if other == name]
    lists = [block.edges[row] for row in rows], [block.counts[row] for row in rows]
    return _Piece(block.step[rows], block.time[rows], lists, block.segment, block.rank)


def _part_pieces(part: Part, name: str, columns: tuple[str, ...]) -> Iterator[_Piece]:
    rows = part.find(name)
    if rows is None:
        return
    origin = {column: part.constant(column) for column in ("segment", "rank")}
    columns = ("step", *columns, *(column for column, value in origin.items() if value is None))
    for table in part.read(*rows, columns):
        arrays = {column: numbers(table, column)[0] for column in columns if column not in ("edges", "counts")}
        value = arrays.get("value")
        lists = (_lists(table, "edges"), _lists(table, "counts")) if "edges" in columns else value
        segment, rank = (
            arrays[column] if only is None else only for column, only in origin.items()
        )
        yield _Piece(arrays["step"], arrays.get("time"), lists, segment, rank)


def _lists(table: Any, column: str) -> list[Array]:
    return [np.array(row.values) for chunk in table.column(column).chunks for row in chunk]


def _keys(pieces: list[tuple[int, _Piece]]) -> tuple[Array, Array, Array, Array]:
    """step, segment, rank and writer of all pieces, each put together."""
    step = _joined([piece.step for _, piece in pieces], np.int64)
    lengths = [len(piece.step) for _, piece in pieces]
    origin = []
    for column in ("segment", "rank"):
        values = [getattr(piece, column) for _, piece in pieces]
        if all(isinstance(value, int) for value in values):
            origin.append(np.repeat(np.array(values, np.int32), lengths))
        else:
            filled = [
                np.full(length, value, np.int32) if isinstance(value, int) else value
                for value, length in zip(values, lengths, strict=True)
            ]
            origin.append(_joined(filled, np.int32))
    writer = np.repeat(np.array([index for index, _ in pieces], np.int32), lengths)
    return step, origin[0], origin[1], writer


def _joined(arrays: list[Array], kind: Any) -> Array:
    return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.empty(0, kind)
