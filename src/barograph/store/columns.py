"""Rows of numbers and histograms in memory, as the store takes them and gives them back.

In:   names, arrays.
Out:  blocks, which sealing sorts and readers search.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core.lazy import lazy

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, Any]
else:
    np, pa = lazy("numpy"), lazy("pyarrow")
    Array = Any  # arrays are annotations alone


Ranked = tuple[Array, Array, Array, Array, Array]
"""A series as `Columns`, and the rank of each point [n] int32."""
Columns = tuple[Array, Array, Array, Array]
"""A series: step [n] int64, time [n] int64 (µs since 1970), value [n] float64, segment [n] int32."""

SERIALS = itertools.count()  # tells an opened file from another one that had its path


class Keys:
    """A list of names, shared by the blocks that have it. `columns` finds a name's place."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.columns = {name: column for column, name in enumerate(names)}


class PointsBlock(NamedTuple):
    """n rows of m values: `step` and `time` [n] int64 (time in µs since 1970, UTC), `value` [n, m] float64.

    segment, rank: of all rows, or [n] int32.
    """

    keys: Keys
    step: Array
    time: Array
    value: Array
    segment: int | Array
    rank: int | Array


class HistogramsBlock(NamedTuple):
    """n histograms: row r has `names[r]`, `edges[r]` [k+1] and `counts[r]` [k], float64."""

    names: tuple[str, ...]
    step: Array
    time: Array
    edges: list[Array]
    counts: list[Array]
    segment: int | Array
    rank: int | Array


Block = PointsBlock | HistogramsBlock


def plain(chunk: Any) -> Array:
    """An Arrow array's numbers over its memory, for columns without nulls, as the store's are.

    `chunk.to_numpy()` gives the same, and imports pandas where there is one: 0.4 s of a first read.
    """
    width = chunk.type.bit_width // 8
    kind = f"<{'f' if pa.types.is_floating(chunk.type) else 'i'}{width}"
    if not len(chunk):
        return np.empty(0, kind)
    return np.frombuffer(chunk.buffers()[1], kind, len(chunk), chunk.offset * width)


def chunk_of(values: Any, kind: Any) -> Any:
    """An Arrow array of that type, of numbers over their memory: `plain` the other way round.

    `pa.array` gives the same, and imports pandas where there is one.
    """
    if not isinstance(values, np.ndarray) or pa.types.is_nested(kind):
        return pa.array(values, kind)
    numbers = np.ascontiguousarray(values, f"<{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}")
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def names_of(names: Sequence[str]) -> Any:
    """An Arrow array of strings; without `pa.array` for the same reason."""
    texts = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def each(value: int | Array, rows: int) -> Array:
    """A segment or rank for each of this many rows."""
    return np.full(rows, value, np.int32) if isinstance(value, int) else value
