"""The order of sealed rows: blocks as they arrived, or parts already sorted, to sorted windows.

In:   blocks of live files, or sealed parts, each in the order of their writing.
Out:  slices of rows in the order (name, segment, step, arrival), small enough to hold in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.lazy import lazy
from barograph.store.columns import Array, Block, HistogramsBlock, PointsBlock, chunk_of, each, plain
from barograph.store.part import Part
from barograph.store.schema import sealed_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
else:
    np, pa = lazy("numpy"), lazy("pyarrow")

# Half a million points take 60 MB to sort; smaller windows are not faster.
WINDOW_ROWS: dict[str, int] = {"points": 500_000, "histograms": 20_000}


class Slice(NamedTuple):
    """Rows of some series in order: `counts[i]` rows of `names[i]`; `rows` has all columns but the name."""

    names: Sequence[str]
    counts: Sequence[int]
    rows: Any


def in_order(*keys: Array) -> bool:
    """Whether rows are sorted by these keys of equal length, the most important first."""
    if len(keys[0]) < 2:
        return True
    undecided: Array | None = None  # between which neighbours the keys so far were equal; None for all
    for key in keys:
        back = key[1:] < key[:-1]
        if bool((back if undecided is None else back & undecided).any()):
            return False
        if undecided is not None:
            undecided &= key[1:] == key[:-1]
        elif key[0] != key[-1]:  # not the same all along
            undecided = key[1:] == key[:-1]
    return True


def sorted_windows(blocks: Iterable[Block], table: str) -> tuple[int, int, Iterator[Slice]]:
    """(number of series, number of rows, slices) of a table's rows in these blocks."""
    if table == "histograms":
        rows = [block for block in blocks if isinstance(block, HistogramsBlock)]
        return _histogram_windows(rows)
    return _point_windows([block for block in blocks if isinstance(block, PointsBlock)])


def merge_windows(parts: Sequence[Part], table: str) -> tuple[int, int, Iterator[Slice] | None]:
    """The same out of sealed parts. No slices if one series is too long and too disordered to merge."""
    names = sorted(set().union(*(part.names for part in parts)))
    counts = np.zeros((len(parts), len(names)), np.int64)
    place = {name: column for column, name in enumerate(names)}
    for number, part in enumerate(parts):
        counts[number, [place[name] for name in part.names]] = np.diff(part.starts)
    totals = counts.sum(axis=0)
    most = WINDOW_ROWS[table]
    for column in np.flatnonzero(totals > 2 * most).tolist():
        if not _follow_each_other(parts, names[column]):
            return len(names), int(totals.sum()), None
    return len(names), int(totals.sum()), _merged(parts, table, names, counts)


# -- points out of blocks -------------------------------------------------------------------------


class _Sheet(NamedTuple):
    """All rows of one list of names, in order of segment and step: columns of series, rows of time."""

    series: Array  # [m] place of each name among all names, sorted
    step: Array
    time: Array
    segment: Array
    rank: Array
    arrival: Array
    value: Array  # [n, m]


def _point_windows(blocks: list[PointsBlock]) -> tuple[int, int, Iterator[Slice]]:
    names = sorted(set().union(*({block.keys.names: None for block in blocks})))
    sheets = _sheets(blocks, {name: place for place, name in enumerate(names)})
    counts = np.zeros(len(names), np.int64)
    for sheet in sheets:
        counts[sheet.series] += len(sheet.step)
    rows = int(counts.sum())
    windows = (_point_slice(sheets, names, low, high) for low, high in _ranges(counts, WINDOW_ROWS["points"]))
    return len(names), rows, windows


def _sheets(blocks: list[PointsBlock], place: dict[str, int]) -> list[_Sheet]:
    """Blocks of the same names put together, their rows and names in order."""
    groups: dict[tuple[str, ...], list[tuple[int, PointsBlock]]] = {}
    arrived = 0
    for block in blocks:
        groups.setdefault(block.keys.names, []).append((arrived, block))
        arrived += len(block.step)
    sheets = []
    for names, members in groups.items():
        series = np.array([place[name] for name in names], np.int32)
        lengths = [len(block.step) for _, block in members]
        step = np.concatenate([block.step for _, block in members])
        time = np.concatenate([block.time for _, block in members])
        segment = np.concatenate([each(block.segment, rows) for (_, block), rows in zip(members, lengths, strict=True)])
        rank = np.concatenate([each(block.rank, rows) for (_, block), rows in zip(members, lengths, strict=True)])
        arrival = np.concatenate([np.arange(first, first + len(block.step)) for first, block in members])
        value = np.concatenate([block.value for _, block in members])
        if not in_order(segment, step):
            order = np.lexsort((step, segment))
            step, time, segment, rank = step[order], time[order], segment[order], rank[order]
            arrival, value = arrival[order], value[order]
        columns = np.argsort(series)
        sheets.append(_Sheet(series[columns], step, time, segment, rank, arrival, value[:, columns]))
    return sheets


def _point_slice(sheets: list[_Sheet], names: list[str], low: int, high: int) -> Slice:
    """The rows of the series low to high (not included), in order."""
    collected: list[list[Array]] = [[] for _ in range(7)]
    for sheet in sheets:
        left, right = np.searchsorted(sheet.series, [low, high]).tolist()
        width = right - left
        if not width:
            continue
        rows = len(sheet.step)
        collected[0].append(np.repeat(sheet.series[left:right], rows))
        for number, column in enumerate((sheet.segment, sheet.step, sheet.arrival, sheet.time, sheet.rank), 1):
            collected[number].append(np.tile(column, width))
        collected[6].append(sheet.value[:, left:right].T.ravel())
    series, segment, step, arrival, time, rank, value = (np.concatenate(column) for column in collected)
    if len(collected[0]) > 1:
        order = _order(series, segment, step, arrival)
        series, segment, step, time, rank, value = (
            column[order] for column in (series, segment, step, time, rank, value)
        )
    rows = rows_table("points", step=step, time=time, value=value, segment=segment, rank=rank)
    return Slice(names[low:high], np.bincount(series - low, minlength=high - low).tolist(), rows)


def _order(series: Array, *keys: Array) -> Array:
    """The order by these keys. Rows come in a few sorted runs, so sorting by series alone often does."""
    order = np.argsort(series, kind="stable")
    if not in_order(series[order], *(key[order] for key in keys)):
        order = np.lexsort((*reversed(keys), series))
    return order


def _ranges(counts: Array, most: int) -> Iterator[tuple[int, int]]:
    """Neighbouring series together as long as they have no more than `most` rows; at least one."""
    ends = np.cumsum(counts)
    low, before = 0, 0
    while low < len(counts):
        high = max(low + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield low, high
        low, before = high, int(ends[high - 1])


def rows_table(table: str, **columns: Any) -> Any:
    """Rows as Arrow's table of all columns but the name, from arrays or lists of them."""
    schema = sealed_schema(table)
    arrays = []
    for field in list(schema)[1:]:
        values = columns[field.name]
        arrays.append(
            chunk_of(values, pa.int64()).view(field.type) if field.name == "time" else chunk_of(values, field.type)
        )
    return pa.table(arrays, schema=pa.schema(list(schema)[1:]))


# -- histograms out of blocks -----------------------------------------------------------------------


def _histogram_windows(blocks: list[HistogramsBlock]) -> tuple[int, int, Iterator[Slice]]:
    rows = [
        (name, int(segment), int(step), block, row)
        for block in blocks
        for row, (name, step, segment) in enumerate(
            zip(block.names, block.step, each(block.segment, len(block.step)), strict=True)
        )
    ]
    rows.sort(key=lambda row: row[:3])  # stable: equal steps stay in the order of arrival
    most = WINDOW_ROWS["histograms"]
    windows = (_histogram_slice(rows[start : start + most]) for start in range(0, len(rows), most))
    return len({row[0] for row in rows}), len(rows), windows


def _histogram_slice(rows: list[tuple[str, int, int, HistogramsBlock, int]]) -> Slice:
    counts: dict[str, int] = {}
    for name, *_ in rows:
        counts[name] = counts.get(name, 0) + 1
    table = rows_table(
        "histograms",
        step=[step for _, _, step, _, _ in rows],
        time=[int(block.time[row]) for *_, block, row in rows],
        edges=[block.edges[row] for *_, block, row in rows],
        counts=[block.counts[row] for *_, block, row in rows],
        segment=[segment for _, segment, *_ in rows],
        rank=[block.rank if isinstance(block.rank, int) else int(block.rank[row]) for *_, block, row in rows],
    )
    return Slice(list(counts), list(counts.values()), table)


# -- sealed parts ------------------------------------------------------------------------------------


def _merged(parts: Sequence[Part], table: str, names: list[str], counts: Array) -> Iterator[Slice]:
    columns = tuple(field.name for field in list(sealed_schema(table))[1:])
    most = WINDOW_ROWS[table]
    for low, high in _ranges(counts.sum(axis=0), most):
        if counts[:, low].sum() > 2 * most:  # one long series whose pieces follow each other
            for part in parts:
                start, stop = part.find(names[low]) or (0, 0)
                for begin in range(start, stop, most):  # a series may fill a part of gigabytes
                    for table_piece in part.read(begin, min(begin + most, stop), columns):
                        yield Slice(names[low:high], [table_piece.num_rows], table_piece)
            continue
        pieces: list[Any] = []
        series = []
        for number, part in enumerate(parts):
            here = counts[number, low:high]
            if here.any():
                first = low + int(np.flatnonzero(here)[0])
                start = (part.find(names[first]) or (0, 0))[0]
                pieces += part.read(start, start + int(here.sum()), columns)
                series.append(np.repeat(np.arange(high - low, dtype=np.int32), here))
        rows = pa.concat_tables(pieces).combine_chunks()
        if len(series) > 1:
            step, segment = (plain(rows.column(name).chunk(0)) for name in ("step", "segment"))
            rows = rows.take(chunk_of(_order(np.concatenate(series), segment, step), pa.int64()))
        yield Slice(names[low:high], counts[:, low:high].sum(axis=0).tolist(), rows)


def _follow_each_other(parts: Sequence[Part], name: str) -> bool:
    """Whether a series' pieces can be put one behind the other, by their first and last rows."""
    last: tuple[int, int] | None = None
    for part in parts:
        start, stop = part.find(name) or (0, 0)
        if start == stop:
            continue
        ends = []
        for row in (start, stop - 1):
            piece = next(part.read(row, row + 1, ("segment", "step")))
            ends.append((piece.column("segment")[0].as_py(), piece.column("step")[0].as_py()))
        if last is not None and ends[0] < last:
            return False
        last = ends[1]
    return True
