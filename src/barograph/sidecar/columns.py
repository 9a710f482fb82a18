"""Rows of a stream as columns, each series in the order in which it was logged.

In:   entries and rows, one by one.
Out:  the rows of the ranks that count; rows in blocks of equal names, for `RunHistory.add_block`.

A block goes on for as long as no row with one of its names came in another block: so no two blocks that are open
share a series, and the order in which blocks are closed is the order of each series.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barograph.core.record import HAS_NUMBERS, Record, numbers
from barograph.log.blocks import WideRow
from barograph.query.ranks import RankChoice, RankRow

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import RunHistory

Names = tuple[str, ...]
_MOST_PAIRS = 10_000  # sets of names that were compared; names that never end must not grow the process


class Rows:
    """Collects rows until they are given away. `longest`: rows of the largest block."""

    def __init__(self) -> None:
        self.longest = 0
        self._open: dict[Names, _ColumnBlock] = {}
        self._closed: list[tuple[Names, _ColumnBlock]] = []
        self._shared: dict[tuple[Names, Names], bool] = {}
        self._last: tuple[Names, _ColumnBlock] | None = None  # the block of the last row

    def __bool__(self) -> bool:
        return bool(self._open or self._closed)

    def add(self, names: Names, values: bytes, step: int, moment: int, segment: int) -> None:
        """A row; values: packed doubles, one a name."""
        if self._last is not None and names is self._last[0]:
            block = self._last[1]
        else:
            block = self._block(names)
            self._last = names, block
        block.steps.append(step)
        block.times.append(moment)
        block.values.append(values)
        block.segments.append(segment)
        if len(block.steps) > self.longest:
            self.longest = len(block.steps)

    def _block(self, names: Names) -> _ColumnBlock:
        block = self._open.get(names)
        if block is None:
            for other in [other for other in self._open if self._share(names, other)]:
                self._closed.append((other, self._open.pop(other)))
            block = self._open[names] = _ColumnBlock()
        return block

    def _share(self, names: Names, other: Names) -> bool:
        pair = (names, other)
        shared = self._shared.get(pair)
        if shared is None:
            if len(self._shared) >= _MOST_PAIRS:
                self._shared.clear()
            shared = self._shared[pair] = not frozenset(names).isdisjoint(other)
        return shared

    def give(self, history: RunHistory) -> None:
        """Hand all of it over, and begin anew."""
        import numpy

        blocks = [*self._closed, *self._open.items()]
        self._closed, self._open, self.longest, self._last = [], {}, 0, None
        for names, block in blocks:
            count = len(block.steps)
            steps, times = numpy.array(block.steps, numpy.int64), numpy.array(block.times, numpy.int64)
            segments = numpy.array(block.segments, numpy.int32)
            values = numpy.frombuffer(b"".join(block.values), "<f8").reshape(count, len(names))
            history.add_block(names, steps, numpy.ascontiguousarray(values.T), times, segments)


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
        if record.kind == "metrics" and _FLOATS.issuperset(map(type, fields.values())):
            names, values = tuple(fields), list(fields.values())
        else:
            named = dict(numbers(record))
            names, values = tuple(named), list(named.values())
        last = self._found[0]
        if names == last:
            names = last
        else:
            if len(self._names) > _MOST_NAMES:
                self._names.clear()
            names = self._names.setdefault(names, names)
        self._record, self._found = record, (names, values)
        return self._found


_FLOATS = frozenset({float})
numbers_of = RecordNumbers()


class ChosenRows:
    """The rows that count of what several ranks log, worked out once for rules and alerts."""

    def __init__(self) -> None:
        self._choice = RankChoice()
        self._item: object = None
        self._found: list[RankRow] = []
        self._left: list[RankRow] | None = None

    @property
    def limited(self) -> bool:
        """Whether there are more series than are looked at."""
        return self._choice.limit.reached

    def of(self, item: object, rank: int, segment: int) -> list[RankRow]:
        """The rows that count with this record or wide row, those that waited for it first."""
        if item is not self._item:
            self._item, self._found = item, []
            if isinstance(item, Record):
                names, values = numbers_of(item) if item.kind in HAS_NUMBERS else ((), [])
                if names and not self._choice.drops(rank, names):
                    self._found = self.choose(rank, RankRow(names, pack(values), item.step, item.time, segment))
            elif isinstance(item, WideRow) and not self._choice.drops(rank, item.names):
                self._found = self.choose(rank, RankRow(item.names, item.values, item.step, item.time, segment))
        return self._found

    def choose(self, rank: int, row: RankRow) -> list[RankRow]:
        """The same for a row."""
        return self._choice.take(rank, row)

    def finish(self) -> list[RankRow]:
        """No more rows come: those that still wait."""
        if self._left is None:
            self._left = self._choice.finish()
        return self._left
