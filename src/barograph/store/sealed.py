"""Block files that were sealed and deleted, as blocks again: what a follow of the logs gets in their place.

In:   a run's folder; the names of block files that are not there any more.
Out:  their rows and histograms in the order of their times, put together again from sealed columns.

A sealed part is sorted by series and holds narrow rows and rows of other block files too. Those are known by time and
step: the log and the block files that are still there are read for them.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from barograph.core.damage import Problems
from barograph.core.record import numbers as numbers_of
from barograph.log.blocks import SEALED, Block, BlockReader, WideHistogram, WideRow, pieces
from barograph.log.read import records_from
from barograph.log.spool import best_copy
from barograph.store.columns import Array, each
from barograph.store.folder import Folder
from barograph.store.part import DamagedPart, GroupCache, Part, numbers

MOST_POINTS = 1_000_000  # of a part, held at once: 36 bytes each
Table = Literal["points", "histograms"]
_Names = frozenset[str]


def sealed_blocks(folder: Path, stem: str, names: Collection[str], since: int) -> Iterator[Block]:
    """Blocks of these files of a log, from a time (µs) on. A part that can't be read is left out."""
    there = _blocks_there(folder, stem)
    home = Folder(folder / "store" / stem, GroupCache(1 << 20), Problems())
    tables: tuple[Table, ...] = ("points", "histograms")
    spans = [_span(part, table) for table in tables for part in home.parts(table) if _holds(part, names)]
    later = sorted((span for span in spans if span is not None), key=lambda span: span.first)
    current: list[tuple[int, int, int, Block, Iterator[Block]]] = []
    number = 0
    while later or current:
        while later and (not current or later[0].first <= current[0][0]):  # a part is opened when its time has come
            number += 1
            _push(current, number, _blocks_of(later.pop(0), folder, stem, since))
        if current:
            _, _, at, block, rest = heapq.heappop(current)
            _push(current, at, rest)
            if (block.time, block.step, getattr(block, "name", "")) not in there:
                yield block


def _push(current: list[Any], number: int, blocks: Iterator[Block]) -> None:
    block = next(blocks, None)
    if block is not None:
        heapq.heappush(current, (block.time, block.step, number, block, blocks))


def _holds(part: Part, names: Collection[str]) -> bool:
    return not set(part.header.get("wide") or ()).isdisjoint(names)


class _Span(NamedTuple):
    """A part, and the first time in it."""

    part: Part
    table: Table
    first: int


def _span(part: Part, table: Table) -> _Span | None:
    with contextlib.suppress(DamagedPart, OSError, ValueError):
        return _Span(part, table, int(_column(part, "time").min()))
    return None


def _blocks_there(folder: Path, stem: str) -> set[tuple[int, int, str]]:
    """Blocks of files that are still there, though sealed parts may hold some of them too."""
    result: set[tuple[int, int, str]] = set()
    for _, path in pieces(folder, stem):
        reader = BlockReader(path)
        with contextlib.suppress(OSError):
            result.update((block.time, block.step, getattr(block, "name", "")) for block in reader.read())
        reader.close()
    return result


def _blocks_of(span: _Span, folder: Path, stem: str, since: int) -> Iterator[Block]:
    with contextlib.suppress(DamagedPart, OSError):
        rows: Iterator[Block]
        rows = _histograms(span.part) if span.table == "histograms" else _wide_rows(span.part, folder, stem)
        for block in rows:
            if block.time >= since:
                yield block


def _wide_rows(part: Part, folder: Path, stem: str) -> Iterator[WideRow]:
    """The wide rows of a part: those of the log are known by time, step and names."""
    narrow = _narrow(folder, stem, part.log_spans)
    times = _column(part, "time")
    for low, high in _windows(times):
        kept = np.flatnonzero((times >= low) & (times <= high))
        for row in _rows(part, kept, times[kept]):
            known = narrow.get((row.time, row.step))
            if known is None:
                yield row
            elif not known.issuperset(row.names):
                values = np.frombuffer(row.values, "<f8")
                places = [place for place, name in enumerate(row.names) if name not in known]
                names = tuple(row.names[place] for place in places)
                yield row._replace(names=names, values=values[places].tobytes())


def _narrow(folder: Path, stem: str, spans: list[tuple[int, int]]) -> dict[tuple[int, int], _Names]:
    """Time and step of the log's records in these bytes, with their names."""
    result: dict[tuple[int, int], _Names] = {}
    shapes: dict[_Names, _Names] = {}
    for start, stop in spans:
        with contextlib.suppress(OSError):
            for record, end in records_from(best_copy(folder / f"{stem}.json"), max(start, 0)):
                if end > stop:
                    break
                names = frozenset(name for name, _ in numbers_of(record))
                if names:
                    key = (record.time, record.step)
                    result[key] = result.get(key, frozenset()) | shapes.setdefault(names, names)
    return result


def _histograms(part: Part) -> Iterator[WideHistogram]:
    times, steps, segments = _column(part, "time"), _column(part, "step"), _segments(part)
    named = np.searchsorted(part.starts, np.arange(part.rows), "right") - 1
    for at in np.lexsort((named, steps, times)).tolist():
        [table] = part.read(at, at + 1, ("edges", "counts"))
        row = table.to_pylist()[0]
        data = np.array([*row["edges"], *row["counts"]], "<f8").tobytes()
        origin = int(steps[at]), int(times[at]), int(segments[at])
        yield WideHistogram(part.names[named[at]], data, 0, *origin, SEALED, 0)


def _windows(times: Array) -> Iterator[tuple[int, int]]:
    """Stretches of time with about this many points each."""
    times = np.sort(times)
    at = 0
    while at < len(times):
        last = times[min(at + MOST_POINTS, len(times)) - 1]
        end = int(np.searchsorted(times, last, "right"))
        yield int(times[at]), int(last)
        at = end


def _rows(part: Part, kept: Array, times: Array) -> Iterator[WideRow]:
    """Rows of a sealed part, of the points at these places."""
    series = (np.searchsorted(part.starts, kept, "right") - 1).astype(np.int32)
    steps, values, segments = _column(part, "step")[kept], _column(part, "value")[kept], _segments(part)[kept]
    order = np.lexsort((series, steps, times))
    series, steps, times, segments = series[order], steps[order], times[order], segments[order]
    values = values[order].astype("<f8", copy=False)
    if not len(order):
        return
    first = np.flatnonzero(np.r_[True, (times[1:] != times[:-1]) | (steps[1:] != steps[:-1])])
    ends = [*first[1:].tolist(), len(order)]
    known: dict[bytes, tuple[str, ...]] = {}
    for start, end in zip(first.tolist(), ends, strict=True):
        which = series[start:end]
        names = known.get(shape := which.tobytes())
        if names is None:
            names = known[shape] = tuple(part.names[item] for item in which.tolist())
        origin = int(steps[start]), int(times[start]), int(segments[start])
        yield WideRow(names, values[start:end].tobytes(), *origin, SEALED, 0)


def _segments(part: Part) -> Array:
    only = part.constant("segment")
    return _column(part, "segment") if only is None else each(only, part.rows)


def _column(part: Part, name: str) -> Array:
    chosen_arrays = [array for table in part.read(0, part.rows, (name,)) for array in numbers(table, name)]
    return np.concatenate(chosen_arrays) if chosen_arrays else np.empty(0, np.int64)
