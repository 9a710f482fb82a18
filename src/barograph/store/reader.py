"""The reading side of the store: all writers of a run as one, while they write.

In:   the folder `store/` of a run.
Out:  the names of its series, a series' points or a histogram's rows over all writers, new blocks
      as they arrive.

Takes no lock and holds nobody up. Files may be sealed, merged and deleted in the middle of a look:
it then looks again. Damaged and foreign files are left out, each with a sentence in `problems`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from barograph.store.cursor import Cursor
from barograph.store.folder import VANISHED, Folder, LiveSource, writer_names
from barograph.store.live import Array, Block, HistogramsBlock, PointsBlock
from barograph.store.part import DamagedPart, GroupCache, Part, numbers
from barograph.store.schema import merge_spans
from barograph.store.sort import in_order

CACHE_BYTES = 64 << 20  # decoded row groups kept, so that neighbouring series cost one decode
LIVE_BYTES = 256 << 20  # blocks of live files kept; beyond, the least recently read are read again


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
    """Rows of one series in one file, as they lie there; `value` holds (edges, counts) for histograms.

    A sealed file gives no `time` or `value` that was not asked for.
    """

    step: Array
    time: Any
    value: Any
    segment: Array | int
    rank: Array | int


class StoreReader:
    """Reads a run's store, from one thread. `problems`: sentences about files that could not be read, so far."""

    def __init__(self, store_dir: str | Path, cache_bytes: int | None = None):
        self.path = Path(store_dir)
        self._cache = GroupCache(CACHE_BYTES if cache_bytes is None else cache_bytes)
        self._folders: dict[str, Folder] = {}
        self._problems: dict[Path, str] = {}
        self._names: dict[str, tuple[Any, list[str]]] = {}

    @property
    def problems(self) -> list[str]:
        return list(self._problems.values())

    def writers(self) -> list[str]:
        """The names of the writers' folders, sorted."""
        found = writer_names(self.path)
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
        time = _joined([piece.time for piece in found if "time" in wanted], np.int64)
        value = _joined([piece.value for piece in found if "value" in wanted], np.float64)
        points = Points(step, time, value, segment, rank, writer)
        if in_order(segment, step):
            return points
        order = np.lexsort((step, segment))  # stable: equal steps stay by writer and arrival
        return Points(*(column[order] if len(column) else column for column in points))

    def histograms(self, name: str, writers: Collection[str] | None = None) -> Histograms:
        """A histogram's rows of all writers, or of the ones named."""
        pieces = list(self._pieces("histograms", name, ("time", "edges", "counts"), writers))
        step, segment, rank, writer = _keys(pieces)
        time = _joined([piece.time for _, piece in pieces], np.int64)
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
        return Cursor(self.path)

    # -- inside -------------------------------------------------------------------------------

    def _folder(self, writer: str) -> Folder:
        folder = self._folders.get(writer)
        if folder is None:
            folder = self._folders[writer] = Folder(self.path / writer, self._cache, self._problems)
        return folder

    def _pieces(
        self, table: str, name: str, columns: tuple[str, ...], writers: Collection[str] | None
    ) -> Iterator[tuple[int, _Piece]]:
        for index, writer in enumerate(self.writers()):
            if writers is not None and writer not in writers:
                continue
            for piece in self._of_writer(self._folder(writer), table, name, columns):
                yield index, piece
        self._forget()

    def _of_writer(self, folder: Folder, table: str, name: str, columns: tuple[str, ...]) -> list[_Piece]:
        for _ in range(3):
            pieces: list[_Piece] = []
            try:
                for source in folder.sources(table):
                    if isinstance(source, LiveSource):
                        find = _points_in if table == "points" else _histograms_in
                        pieces += [piece for block in source.blocks if (piece := find(block, name)) is not None]
                    else:
                        with self._telling(source):
                            pieces += _part_pieces(source, name, columns)
                return pieces
            except OSError as error:
                if error.errno not in VANISHED:
                    raise
                folder.look_again()
        self._problems[folder.path] = f"files of {folder.path.name} vanish while they are read"
        return []

    @contextlib.contextmanager
    def _telling(self, part: Part) -> Iterator[None]:
        try:
            yield
        except DamagedPart as error:
            self._problems[part.path] = str(error)

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
                    seen.append(source.serial)
                    lists.append(source.names)
                else:
                    seen.append((source.file.serial, len(source.blocks)))
                    lists += _names_in(source.blocks, table)
        if table in self._names and self._names[table][0] == seen:
            return list(self._names[table][1])
        found.update(*lists)
        names = sorted(found)
        self._names[table] = seen, names
        return list(names)


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
        segment, rank = (arrays[column] if only is None else only for column, only in origin.items())
        yield _Piece(arrays["step"], arrays.get("time"), lists, segment, rank)


def _lists(table: Any, column: str) -> list[Array]:
    return [np.array(row.values) for chunk in table.column(column).chunks for row in chunk]


def _keys(pieces: list[tuple[int, _Piece]]) -> tuple[Array, Array, Array, Array]:
    """step, segment, rank and writer of all pieces, each put together."""
    step = _joined([piece.step for _, piece in pieces], np.int64)
    lengths = [len(piece.step) for _, piece in pieces]
    segment = _filled([piece.segment for _, piece in pieces], lengths)
    rank = _filled([piece.rank for _, piece in pieces], lengths)
    return step, segment, rank, _filled([index for index, _ in pieces], lengths)


def _filled(values: list[Any], lengths: list[int]) -> Array:
    """One column of numbers or columns, each as long as its piece."""
    column = np.empty(sum(lengths), np.int32)
    start = 0
    for value, length in zip(values, lengths, strict=True):
        column[start : start + length] = value
        start += length
    return column


def _joined(arrays: list[Array], kind: Any) -> Array:
    return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.empty(0, kind)
