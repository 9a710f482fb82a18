"""Columns that grow at their end and let go of their oldest rows.

In:   blocks of rows.
Out:  views of the rows that are kept, by absolute number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Growing:
    """Columns of one length. `start`: the oldest row kept; `end`: how many rows there ever were.

    keep: at least this many of the newest rows stay, and this many before those that nobody has read; at most about
    twice as many are held. unread: this many rows wait to be read at most. `read`: the first row that was not.
    """

    def __init__(self, types: tuple[Any, ...], keep: int, unread: int = 0):
        self.start = self.end = self.read = 0
        self._keep, self._unread = keep, unread
        self._columns: list[NDArray[Any]] = [numpy.zeros(min(keep, 64), kind) for kind in types]

    def add(self, count: int, *values: Any) -> None:
        """`count` rows: for each column an array of them, or one value for all."""
        held = self._room(count)
        for column, value in zip(self._columns, values, strict=True):
            column[held : held + count] = value
        self.end += count

    def add_blocks(self, blocks: list[tuple[Any, ...]]) -> None:
        """Several blocks, each what `add` takes, in one go."""
        if len(blocks) == 1:
            self.add(*blocks[0])
            return
        counts, *columns = zip(*blocks, strict=True)
        count = sum(counts)
        held = self._room(count)
        for column, values in zip(self._columns, columns, strict=True):
            parts: Any = values
            if set(map(type, values)) != {numpy.ndarray}:
                parts = [
                    value if isinstance(value, numpy.ndarray) else numpy.full(rows, value)
                    for rows, value in zip(counts, values, strict=True)
                ]
            numpy.concatenate(parts, out=column[held : held + count], casting="unsafe")
        self.end += count

    def _room(self, count: int) -> int:
        """Make room for this many rows; how many there are before them."""
        result = self.end - self.start
        if result + count > len(self._columns[0]):
            newest = self.end + count
            gone = min(newest - self._keep, max(self.read - self._keep, newest - self._unread)) - self.start
            gone = max(0, min(result, gone))
            room = max(2 * (result - gone + count), 64)
            for at, old in enumerate(self._columns):
                new = numpy.zeros(room, old.dtype)
                new[: result - gone] = old[gone:result]
                self._columns[at] = new
            self.start += gone
            result -= gone
        return result

    def restart(self, row: int) -> None:
        """Forget everything; the next row is number `row`."""
        self.start = self.end = row

    def views(self, first: int, last: int | None = None) -> tuple[Any, ...]:
        """The number of the first row, and `view` of every column."""
        start = self.start
        low = first - start if first > start else 0
        high = (self.end if last is None or last > self.end else last) - start
        cut = slice(low, high if high > low else low)
        return (start + low, *[column[cut] for column in self._columns])

    def view(self, column: int, first: int, last: int | None = None) -> NDArray[Any]:
        """Rows `first` to `last` (not with it) of a column, as far as they are kept. Not to be changed."""
        start = self.start
        low = first - start if first > start else 0
        high = (self.end if last is None or last > self.end else last) - start
        return self._columns[column][low : high if high > low else low]
