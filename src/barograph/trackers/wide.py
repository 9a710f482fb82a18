"""Wide rows and histograms that no log file holds, as a mirror sends them.

In:   a raw histogram; block files that were sealed and deleted before they were read.
Out:  edges and counts; the rows of those files, put together again from sealed columns, in the order of their times.

A sealed part is sorted by series and holds narrow rows and rows of other block files too. Those are known by time and
step: the log and the block files that are still there are read for them.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.record import numbers as numbers_of
from barograph.log.blocks import BlockReader, WideHistogram, pieces
from barograph.log.read import records_from
from barograph.log.spool import best_copy
from barograph.store.folder import Folder
from barograph.store.part import DamagedPart, GroupCache, numbers
from barograph.trackers.position import Key

if TYPE_CHECKING:
    from barograph.store.part import Part

MOST_POINTS = 4_000_000  # held at once: 28 bytes each
_LOWEST = -(1 << 63)


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


def counted(item: WideHistogram) -> tuple[list[float], list[float]]:
    """Edges and counts of a histogram; values that are not finite are left out."""
    values = struct.unpack(f"<{len(item.numbers) // 8}d", item.numbers)
    if not item.bins:
        bins = len(values) // 2
        return list(values[: bins + 1]), list(values[bins + 1 :])
    import numpy as np

    array = np.array(values)
    finite = array[np.isfinite(array)]
    try:
        with np.errstate(all="ignore"):
            counts, edges = np.histogram(finite, item.bins)
    except ValueError:  # too near to each other, or so far apart that their distance is not finite
        counts, edges = np.array([finite.size]), np.array([finite.min(), finite.max()])
    return edges.tolist(), counts.tolist()


def sealed_rows(
    folder: Path, missed: Mapping[str, int], seen: Collection[Key], behind: Mapping[str, int]
) -> Iterator[tuple[str, WideRow]]:
    """Rows of block files, each with the stem of its log. missed: by the files' names, bytes that were read before.

    seen: keys of rows that were handed out before. behind: by log, the time in µs of the last row read as a block; it
    counts where a file was read in part.
    """

    stems: dict[str, set[str]] = {}
    for name in missed:
        stems.setdefault(name.removesuffix(".wide").rpartition(".")[0], set()).add(name)
    for stem, names in stems.items():
        there = _keys_of_blocks(folder, stem)
        after = behind.get(f"{stem}.json", _LOWEST) if any(missed[name] for name in names) else _LOWEST
        home = Folder(folder / "store" / stem, GroupCache(1 << 20), {})
        for table in ("points", "histograms"):
            for part in home.parts(table):
                if names.isdisjoint(part.header.get("wide") or {}):
                    continue
                try:
                    rows = _rows_of(part, folder, stem) if table == "points" else _histograms(part)
                    for row in rows:
                        if row.key[0] > after and row.key not in seen and row.key not in there:
                            yield stem, row
                except (DamagedPart, OSError):
                    continue


def _keys_of_blocks(folder: Path, stem: str) -> set[Key]:
    """Rows of block files that are still there, though sealed parts may hold some of them too."""
    found: set[Key] = set()
    for _, path in pieces(folder, stem):
        reader = BlockReader(path)
        with contextlib.suppress(OSError):
            for block in reader.read():
                name = block.name if isinstance(block, WideHistogram) else ""
                found.add((block.time, block.step, name))
        reader.close()
    return found


def _rows_of(part: Part, folder: Path, stem: str) -> Iterator[Numbers]:
    """The wide rows of a part: those of the log are known by time, step and names."""
    narrow = _narrow(folder, stem, part.log_spans)
    import numpy as np

    times = _column(part, "time")
    for low, high in _windows(times):
        kept = np.flatnonzero((times >= low) & (times <= high))
        for row in _rows(part, kept, times[kept]):
            known = narrow.get(row.key[:2])
            if known is None:
                yield row
            elif not known.issuperset(row.names):
                pairs = [pair for pair in zip(row.names, row.values, strict=True) if pair[0] not in known]
                yield Numbers(row.key, tuple(name for name, _ in pairs), [value for _, value in pairs])


def _narrow(folder: Path, stem: str, spans: list[tuple[int, int]]) -> dict[tuple[int, int], frozenset[str]]:
    """Time and step of the log's records in these bytes, with their names."""
    found: dict[tuple[int, int], frozenset[str]] = {}
    shapes: dict[frozenset[str], frozenset[str]] = {}
    for start, stop in spans:
        with contextlib.suppress(OSError):
            for record, end in records_from(best_copy(folder / f"{stem}.json"), max(start, 0)):
                if end > stop:
                    break
                names = frozenset(name for name, _ in numbers_of(record))
                if names:
                    key = (record.time, record.step)
                    found[key] = found.get(key, frozenset()) | shapes.setdefault(names, names)
    return found


def _histograms(part: Part) -> Iterator[Distribution]:
    import numpy as np

    times, steps = _column(part, "time"), _column(part, "step")
    named = np.searchsorted(part.starts, np.arange(part.rows), "right") - 1
    for at in np.lexsort((named, steps, times)).tolist():
        [table] = part.read(at, at + 1, ("edges", "counts"))
        row = table.to_pylist()[0]
        yield Distribution((int(times[at]), int(steps[at]), part.names[named[at]]), row["edges"], row["counts"])


def _windows(times: Any) -> Iterator[tuple[int, int]]:
    """Stretches of time with about this many points each."""
    import numpy as np

    times = np.sort(times)
    at = 0
    while at < len(times):
        last = times[min(at + MOST_POINTS, len(times)) - 1]
        end = int(np.searchsorted(times, last, "right"))
        yield int(times[at]), int(last)
        at = end


def _rows(part: Part, kept: Any, times: Any) -> Iterator[Numbers]:
    """Rows of a sealed part, of the points at these places."""
    import numpy as np

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
        which = series[start:end]
        names = known.get(shape := which.tobytes())
        if names is None:
            names = known[shape] = tuple(part.names[one] for one in which.tolist())
        yield Numbers((int(times[start]), int(steps[start]), ""), names, values[start:end].tolist())


def _column(part: Part, name: str) -> Any:
    import numpy as np

    pieces = [array for table in part.read(0, part.rows, (name,)) for array in numbers(table, name)]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)
