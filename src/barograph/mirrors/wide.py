"""One writer's store, row by row in the order of time: what a log file does not hold.

In:   the folder of a writer in a run's store, while it is written, sealed, or at rest.
Out:  its rows and histograms behind a place, whatever files they stand in by now.

A sealed file is sorted by series, so its rows are put together again, some millions of points at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from barograph.mirrors.position import Key, StorePlace
from barograph.store.folder import Folder
from barograph.store.live import Block, HistogramsBlock
from barograph.store.part import DamagedPart, GroupCache, Part, numbers

MOST_POINTS = 4_000_000  # held at once: 28 bytes each


class Numbers(NamedTuple):
    """A row: values by name. key[0] is the time in µs, key[1] the step."""

    key: Key
    names: tuple[str, ...]
    values: list[float]


class Distribution(NamedTuple):
    """A histogram: n counts between n + 1 edges; key[2] is its name."""

    key: Key
    edges: list[float]
    counts: list[float]


WideRow = Numbers | Distribution


def of_blocks(blocks: Iterable[Block], place: StorePlace) -> Iterator[WideRow]:
    """The rows of live blocks that are not dealt with yet. A flush writes rows of the same names as one block, so
    the blocks are merged: what is dealt with is noted by time."""
    return heapq.merge(*(_of_block(block, place) for block in blocks), key=lambda row: row.key)


def _of_block(block: Block, place: StorePlace) -> Iterator[WideRow]:
    steps, times = block.step.tolist(), block.time.tolist()
    if isinstance(block, HistogramsBlock):
        for at, key in enumerate(zip(times, steps, block.names, strict=True)):
            if not place.has(key):
                yield Distribution(key, block.edges[at].tolist(), block.counts[at].tolist())
        return
    names = block.keys.names
    for at, (moment, step) in enumerate(zip(times, steps, strict=True)):
        if not place.has((moment, step, "")):
            yield Numbers((moment, step, ""), names, block.value[at].tolist())


def of_folder(path: Path, place: StorePlace, problems: dict[Path, str]) -> Iterator[WideRow]:
    """All rows of a writer's folder that are not dealt with yet, in about the order of their times.

    Raises OSError if files vanish meanwhile, because they are being sealed: then ask again.
    """
    folder = Folder(path, GroupCache(1 << 20), problems)
    points = folder.sources("points")
    histograms = folder.sources("histograms")
    rows = (_points(one, place, problems) for one in points)
    distributions = (_histograms(one, place, problems) for one in histograms)
    chained = (row for source in rows for row in source), (row for source in distributions for row in source)
    yield from heapq.merge(*chained, key=lambda row: row.key)


def _points(source: Any, place: StorePlace, problems: dict[Path, str]) -> Iterator[WideRow]:
    if not isinstance(source, Part):
        blocks = [block for block in source.blocks if not isinstance(block, HistogramsBlock)]
        yield from of_blocks(blocks, place)
        return
    try:
        times = _column(source, "time")
        for low, high in _windows(times, place.floor[0]):
            kept = np.flatnonzero((times >= low) & (times <= high))
            yield from _rows(source, kept, times[kept], place)
    except DamagedPart as error:
        problems[source.path] = str(error)


def _windows(times: Any, floor: int) -> Iterator[tuple[int, int]]:
    """Stretches of time with about so many points each, from the floor on."""
    times = np.sort(times[times >= floor])
    at = 0
    while at < len(times):
        last = times[min(at + MOST_POINTS, len(times)) - 1]
        end = int(np.searchsorted(times, last, "right"))
        yield int(times[at]), int(last)
        at = end


def _rows(part: Part, kept: Any, times: Any, place: StorePlace) -> Iterator[Numbers]:
    series = (np.searchsorted(part.starts, kept, "right") - 1).astype(np.int32)
    steps, values = _column(part, "step")[kept], _column(part, "value")[kept]
    order = np.lexsort((series, steps, times))
    series, steps, times, values = series[order], steps[order], times[order], values[order]
    if not len(order):
        return
    first = np.flatnonzero(np.r_[True, (times[1:] != times[:-1]) | (steps[1:] != steps[:-1])])
    ends = [*first[1:].tolist(), len(order)]
    known: dict[bytes, tuple[str, ...]] = {}
    for start, end in zip(first.tolist(), ends, strict=True):
        key = (int(times[start]), int(steps[start]), "")
        if place.has(key):
            continue
        which = series[start:end]
        names = known.get(shape := which.tobytes())
        if names is None:
            names = known[shape] = tuple(part.names[one] for one in which.tolist())
        yield Numbers(key, names, values[start:end].tolist())


def _histograms(source: Any, place: StorePlace, problems: dict[Path, str]) -> Iterator[WideRow]:
    if not isinstance(source, Part):
        yield from of_blocks((block for block in source.blocks if isinstance(block, HistogramsBlock)), place)
        return
    try:
        times, steps = _column(source, "time"), _column(source, "step")
        named = np.searchsorted(source.starts, np.arange(source.rows), "right") - 1
        for at in np.lexsort((named, steps, times)).tolist():
            key = (int(times[at]), int(steps[at]), source.names[named[at]])
            if key[0] >= place.floor[0] and not place.has(key):
                [table] = source.read(at, at + 1, ("edges", "counts"))
                row = table.to_pylist()[0]
                yield Distribution(key, row["edges"], row["counts"])
    except DamagedPart as error:
        problems[source.path] = str(error)


def _column(part: Part, name: str) -> Any:
    pieces = [array for table in part.read(0, part.rows, (name,)) for array in numbers(table, name)]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)
