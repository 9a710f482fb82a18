"""What is in a log or a block file and in no sealed part: rows by their names, read on as the file grows.

In:   the path of a file, the byte from which on it is not sealed, what holds there.
Out:  rows and histograms, each with the byte at which its record or block ends; the segments that begin there.

A record's segment, rank and run follow from the `segment` or `sidecar` records above it.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.lazy import lazy
from barograph.core.record import BEGINNINGS, HAS_NUMBERS, Record, numbers
from barograph.log.blocks import BlockReader, WideHistogram, WideRow
from barograph.log.read import records_from
from barograph.log.spool import best_copy
from barograph.store.columns import Array, HistogramsBlock, Keys, PointsBlock, each

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

Spans = list[tuple[int, int]]


class Mark(NamedTuple):
    """What holds for the records behind byte `end` of a log. fields: of the `segment` record that ends there."""

    end: int
    segment: int
    rank: int
    foreign: bool  # they are another run's, in a log that several share
    fields: dict[str, Any]


class Sheet:
    """Rows of one list of names: value [n, m] and what goes with each row. place: where it ends in its file."""

    def __init__(self, names: tuple[str, ...]):
        self.keys = Keys(names)
        self._values = array("d")
        self._columns = array("q")  # step, time, place, segment, rank of one row after the other
        self._block: tuple[PointsBlock, Array] | None = None

    def add(self, values: bytes | list[float], step: int, time: int, place: int, segment: int, rank: int) -> None:
        if isinstance(values, bytes):
            self._values.frombytes(values)
        else:
            self._values.extend(values)
        self._columns.extend((step, time, place, segment, rank))

    def block(self) -> tuple[PointsBlock, Array]:
        """All rows so far, and where each ends."""
        rows = len(self._columns) // 5
        if self._block is None or len(self._block[1]) != rows:
            columns = np.array(self._columns, np.int64).reshape(rows, 5).T
            value = np.array(self._values).reshape(rows, len(self.keys.names))
            step, time, place, segment, rank = (np.ascontiguousarray(column) for column in columns)
            block = PointsBlock(self.keys, step, time, value, segment.astype(np.int32), rank.astype(np.int32))
            self._block = block, place
        return self._block


class _HistogramRow(NamedTuple):
    name: str
    step: int
    time: int
    edges: Array
    counts: Array
    segment: int
    rank: int
    place: int


class Stretch:
    """Rows of one file behind byte `start`, up to `end`. marks: the segments that begin in it.

    first: the first step that each segment logged, and where. keeps_rows: else they are counted alone.
    """

    keeps_rows = True

    def __init__(self, path: Path, start: int):
        self.path, self.start, self.end = path, start, start
        self.sheets: dict[tuple[str, ...], Sheet] = {}
        self.histograms: list[_HistogramRow] = []
        self.marks: list[Mark] = []
        self.first: dict[int, tuple[int, int]] = {}
        self.rows = 0

    def read(self, stop: int | None = None, limit: int | None = None) -> bool:
        """Take what has been written since, up to byte `stop`, about `limit` bytes; whether there was anything."""
        raise NotImplementedError

    def add(
        self, names: tuple[str, ...], values: bytes | list[float], step: int, time: int, mark: Mark, at: int
    ) -> None:
        """A row. at: the byte of the log behind which it was logged."""
        if self.keeps_rows:
            sheet = self.sheets.get(names)
            if sheet is None:
                sheet = self.sheets[names] = Sheet(tuple(map(stored_name, names)))
            sheet.add(values, step, time, self.end, mark.segment, mark.rank)
        self.rows += 1
        if mark.segment not in self.first:
            self.first[mark.segment] = at, step

    def blocks(self, covered: Spans, name: str | None = None) -> Iterator[PointsBlock]:
        """The rows that don't end within these spans; name: of sheets that have this series alone."""
        for sheet in self.sheets.values():
            if name is not None and name not in sheet.keys.columns:
                continue
            block, place = sheet.block()
            outside = ~within(place, covered)
            if outside.all():
                yield block
            elif outside.any():
                step, time, value = (column[outside] for column in block[1:4])
                segment, rank = (each(column, len(outside))[outside] for column in (block.segment, block.rank))
                yield PointsBlock(block.keys, step, time, value, segment, rank)

    def histogram_blocks(self, covered: Spans) -> Iterator[HistogramsBlock]:
        rows = [row for row in self.histograms if not any(start < row.place <= end for start, end in covered)]
        if rows:
            names, step, time, edges, counts, segment, rank, _ = zip(*rows, strict=True)
            yield HistogramsBlock(
                names,
                np.array(step, np.int64),
                np.array(time, np.int64),
                list(edges),
                list(counts),
                np.array(segment, np.int32),
                np.array(rank, np.int32),
            )

    def close(self) -> None:
        """Let go of an open file."""


class LogStretch(Stretch):
    """A stretch of a log. mark: what holds at `start`. segment_at: for a sidecar's log, the segment that the main log
    had at a byte. is_ours: whether records that name a run are of this one."""

    def __init__(
        self, path: Path, mark: Mark, is_ours: Callable[[object], bool], segment_at: Callable[[int], int] | None = None
    ):
        super().__init__(path, mark.end)
        self.mark = mark
        self._is_ours, self._segment_at = is_ours, segment_at

    def read(self, stop: int | None = None, limit: int | None = None) -> bool:
        before = self.end
        with contextlib.suppress(OSError):
            for record, end in records_from(best_copy(self.path), self.end):
                if stop is not None and end > stop:
                    break
                self.end = end
                self._take(record)
                if limit is not None and end - before >= limit:
                    break
        return self.end > before

    def _take(self, record: Record) -> None:
        if record.kind in BEGINNINGS:
            self.mark = mark_of(record, self.end, self.mark, self._is_ours)
            self.marks.append(self.mark)
        elif record.kind in HAS_NUMBERS and not self.mark.foreign:
            mark = self.mark
            if self._segment_at is not None and isinstance(record.fields.get("at"), int):
                mark = mark._replace(segment=self._segment_at(record.fields["at"]))
            named = list(numbers(record))
            if named:
                names, values = zip(*named, strict=True)
                self.add(names, list(values), record.step, record.time, mark, self.end)


class BlockStretch(Stretch):
    """A stretch of a block file of a log whose rank is `rank`."""

    def __init__(self, path: Path, start: int, rank: int):
        super().__init__(path, start)
        self._rank = rank
        self._reader = BlockReader(path, start)

    @property
    def problem(self) -> str:
        return self._reader.problem

    def read(self, stop: int | None = None, limit: int | None = None) -> bool:
        before = self.end
        with contextlib.suppress(OSError):
            for block in self._reader.read():
                if stop is not None and block.end > stop:
                    break
                self.end = block.end
                rank = self._reader.about.get("rank", self._rank)
                mark = Mark(0, block.segment, rank if isinstance(rank, int) else self._rank, False, {})
                if isinstance(block, WideRow):
                    self.add(block.names, block.values, block.step, block.time, mark, block.log)
                elif self.keeps_rows:
                    self._add_histogram(block, mark.rank)
                if limit is not None and block.end - before >= limit:
                    break
            else:
                self.end = max(self.end, self._reader.scanned)
        self._reader.close()  # a reader of a thousand runs would hold a thousand files
        return self.end > before

    @property
    def replaced(self) -> bool:
        """Whether the file is another one by now."""
        return self._reader.replaced()

    def _add_histogram(self, block: WideHistogram, rank: int) -> None:
        edges, counts = edges_and_counts(block)
        if len(edges) == len(counts) + 1:
            origin = block.segment, rank, block.end
            self.histograms.append(
                _HistogramRow(
                    stored_name(block.name), block.step, block.time, edges, counts.astype(np.float64), *origin
                )
            )

    def close(self) -> None:
        self._reader.close()


def mark_of(record: Record, end: int, before: Mark, is_ours: Callable[[object], bool]) -> Mark:
    """What holds behind a `segment` or `sidecar` record."""
    fields = record.fields
    segment, rank = fields.get("segment"), fields.get("rank")
    return Mark(
        end,
        segment if type(segment) is int else before.segment,
        rank if type(rank) is int else before.rank,
        not is_ours(fields.get("run")),
        {"time": record.time, **fields},
    )


def edges_and_counts(block: WideHistogram) -> tuple[Array, Array]:
    """A histogram's edges and counts, counted here where it holds the values themselves."""
    values = np.frombuffer(block.numbers, "<f8")
    if block.bins:
        counts, edges = count(values, block.bins)
        return edges, counts
    return values[: len(values) // 2 + 1], values[len(values) // 2 + 1 :]


def count(values: Array, bins: int) -> tuple[Array, Array]:
    """Counts and edges of raw values, the non-finite ones left out. Values between which no edges fit are one bin."""
    finite = values[np.isfinite(values)]
    try:
        with np.errstate(all="ignore"):
            counts, edges = np.histogram(finite, bins)
    except ValueError:  # too near to each other, or so far apart that their distance is not finite
        counts, edges = np.array([finite.size]), np.array([finite.min(), finite.max()])
    return counts, edges


def within(place: Array, spans: Spans) -> Array:
    """Which places lie in one of these spans, each open at its start."""
    if not spans:
        return np.zeros(len(place), bool)
    starts, ends = np.array(spans, np.int64).T
    span = np.searchsorted(starts, place, "left") - 1
    inside: Array = (span >= 0) & (place <= ends[span])
    return inside


def gaps(spans: Spans, start: int = 0) -> list[tuple[int, int | None]]:
    """What is not in these merged spans, from `start` on; the last gap has no end."""
    found: list[tuple[int, int | None]] = []
    for low, high in spans:
        if low > start:
            found.append((start, low))
        start = max(start, high)
    return [*found, (start, None)]


FirstSteps = Mapping[int, tuple[int, int]]


def first_steps(steps: FirstSteps, others: FirstSteps) -> dict[int, tuple[int, int]]:
    """Of two accounts of one log, the earlier first step of each segment."""
    both = dict(steps)
    for segment, first in others.items():
        both[segment] = min(both.get(segment, first), first)
    return both


def stored_name(name: str) -> str:
    """A series' name as Parquet takes it."""
    try:
        name.encode()
    except UnicodeError:  # a lone surrogate: JSON can carry it, Parquet can not
        return name.encode("utf-8", "backslashreplace").decode()
    return name
