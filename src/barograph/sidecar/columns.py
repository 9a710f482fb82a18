"""Rows of a stream as columns, each series in the order in which it was logged.

In:   rows, one by one.
Out:  the same in blocks of equal names, for `RunHistory.add`.

A block goes on for as long as no row with one of its names came in another block: so no two blocks that are open
share a series, and the order in which blocks are closed is the order of each series.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from barograph.core.record import Record, numbers

Names = tuple[str, ...]
_MOST_PAIRS = 10_000  # sets of names that were compared; names that never end must not grow the process


class Rows:
    """Collects rows until they are given away. `longest`: rows of the largest block."""

    def __init__(self) -> None:
        self.longest = 0
        self._open: dict[Names, _ColumnBlock] = {}
        self._closed: list[tuple[Names, _ColumnBlock]] = []
        self._shared: dict[tuple[Names, Names], bool] = {}
        self._last: Names = ()

    def __bool__(self) -> bool:
        return bool(self._open or self._closed)

    def add(self, names: Names, values: bytes, step: int, moment: int, segment: int) -> None:
        """A row; values: packed doubles, one a name."""
        block = self._open.get(names)
        if block is None:
            for other in [other for other in self._open if self._share(names, other)]:
                self._closed.append((other, self._open.pop(other)))
            block = self._open[names] = _ColumnBlock()
        block.steps.append(step)
        block.times.append(moment)
        block.values.append(values)
        block.segments.append(segment)
        self.longest = max(self.longest, len(block.steps))

    def _share(self, names: Names, other: Names) -> bool:
        pair = (names, other)
        shared = self._shared.get(pair)
        if shared is None:
            if len(self._shared) >= _MOST_PAIRS:
                self._shared.clear()
            shared = self._shared[pair] = not frozenset(names).isdisjoint(other)
        return shared

    def give(self, add: Callable[[str, Any, Any, Any, Any], Any]) -> None:
        """Hand all of it to `RunHistory.add`, and begin anew."""
        import numpy

        blocks = [*self._closed, *self._open.items()]
        self._closed, self._open, self.longest = [], {}, 0
        for names, block in blocks:
            count = len(block.steps)
            steps, times = numpy.array(block.steps, numpy.int64), numpy.array(block.times, numpy.int64)
            segments = numpy.array(block.segments, numpy.int32)
            values = numpy.frombuffer(b"".join(block.values), "<f8").reshape(count, len(names))
            columns = numpy.ascontiguousarray(values.T)
            for name, column in zip(names, columns, strict=True):
                add(name, steps, column, times, segments)


class _ColumnBlock:
    __slots__ = ("segments", "steps", "times", "values")

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.times: list[int] = []
        self.values: list[bytes] = []
        self.segments: list[int] = []


_packers: dict[int, Callable[..., bytes]] = {}


def pack(values: Any) -> bytes:
    """Numbers as packed doubles."""
    packer = _packers.get(len(values))
    if packer is None:
        packer = _packers[len(values)] = struct.Struct(f"<{len(values)}d").pack
    return packer(*values)


_MOST_NAMES = 1000  # sets of names that are one tuple each


class RecordNumbers:
    """The numbers of a record, worked out once for all consumers; equal names are one tuple."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._found: tuple[Names, list[float]] = (), []
        self._names: dict[Names, Names] = {}

    def __call__(self, record: Record) -> tuple[Names, list[float]]:
        """Names and values; empty where the record has none."""
        if record is self._record:
            return self._found
        fields = record.fields
        if record.kind == "metrics" and set(map(type, fields.values())) <= _FLOATS:
            names, values = tuple(fields), list(fields.values())
        else:
            named = dict(numbers(record))
            names, values = tuple(named), list(named.values())
        if len(self._names) > _MOST_NAMES:
            self._names.clear()
        self._record, self._found = record, (self._names.setdefault(names, names), values)
        return self._found


_FLOATS = {float}
numbers_of = RecordNumbers()
