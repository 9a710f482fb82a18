"""Medians of sixteen rows in a row: the base for detecting slow changes.

In:   a channel that grows.
Out:  blocks as columns, shared by all rules that follow the same channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy

from barograph.doctor.kernel.growing import Growing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel, ChannelRows, RunHistory

SIZE = 16  # rows
KEEP = 4096  # blocks that stay

_shared: WeakKeyDictionary[RunHistory, dict[str, Blocks]] = WeakKeyDictionary()


class BlockColumns(NamedTuple):
    """Blocks. `first`: number of the first. step, last_step: of a block's first and last row; time: of its last."""

    first: int
    middle: NDArray[numpy.float64]
    step: NDArray[numpy.int64]
    last_step: NDArray[numpy.int64]
    time: NDArray[numpy.int64]
    segment: NDArray[numpy.int32]

    def __len__(self) -> int:
        return len(self.middle)


class Blocks:
    """Cuts a channel's rows into blocks of `SIZE`, from the first row of each segment on."""

    def __init__(self, channel: Channel):
        self._channel = channel
        self._next = channel.start
        self._segment: int | None = None
        self._left: list[tuple[int, int, float]] = []
        self._columns = Growing((numpy.float64, numpy.int64, numpy.int64, numpy.int64, numpy.int32), KEEP)

    @property
    def end(self) -> int:
        return self._columns.end

    def columns(self, first: int, last: int | None = None) -> BlockColumns:
        """Blocks `first` to `last` (not with it), as far as they are kept."""
        middle, step, last_step, time, segment = (self._columns.view(at, first, last) for at in range(5))
        return BlockColumns(max(first, self._columns.start), middle, step, last_step, time, segment)

    def extend(self) -> None:
        """Take the channel's new rows."""
        rows = self._channel.rows(self._next)
        self._next = self._channel.end
        at, count = 0, len(rows)
        while at < count:
            segment = int(rows.segment[at])
            if segment != self._segment:
                self._segment, self._left = segment, []
            stop = count
            if rows.segment[-1] != segment:
                stop = at + int(numpy.argmax(rows.segment[at:] != segment))
            if self._left or stop - at < SIZE:
                some = min(SIZE - len(self._left), stop - at)
                self._left += zip(rows.step[at : at + some].tolist(), rows.time[at : at + some].tolist(),
                                  rows.value[at : at + some].tolist(), strict=True)  # fmt: skip
                at += some
                if len(self._left) == SIZE:
                    middle = float(medians(numpy.array([[item[2] for item in self._left]]))[0])
                    first, last = self._left[0], self._left[-1]
                    self._columns.add(1, middle, first[0], last[0], last[1], segment)
                    self._left = []
                continue
            at = self._whole(rows, at, (stop - at) // SIZE, segment)

    def _whole(self, rows: ChannelRows, at: int, whole: int, segment: int) -> int:
        stop = at + whole * SIZE
        last = slice(at + SIZE - 1, stop, SIZE)
        middle = medians(rows.value[at:stop].reshape(whole, SIZE))
        self._columns.add(whole, middle, rows.step[at:stop:SIZE], rows.step[last], rows.time[last], segment)
        return stop


def medians(values: Any) -> Any:
    """Median of each row of [n, size] over its finite values, the upper of two; NaN where there is none."""
    good = numpy.isfinite(values)
    if good.all():
        middle = values.shape[1] // 2
        return numpy.partition(values, middle, axis=1)[:, middle]
    ordered = numpy.sort(numpy.where(good, values, numpy.nan), axis=1)
    count = good.sum(axis=1)
    found = ordered[numpy.arange(len(values)), numpy.minimum(count // 2, values.shape[1] - 1)]
    return numpy.where(count > 0, found, numpy.nan)


def blocks(history: RunHistory, channel: Channel) -> Blocks:
    """The blocks of a channel, with all that has come."""
    known = _shared.get(history)
    if known is None:
        known = _shared[history] = {}
    result = known.get(channel.name)
    if result is None:
        result = known[channel.name] = Blocks(channel)
    if result._next != channel.end:
        result.extend()
    return result


class NewBlocks:
    """Gives a rule each block of a channel once."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def new(self, history: RunHistory, channel: Channel | None) -> BlockColumns | None:
        """New blocks; None where there is none."""
        if channel is None:
            return None
        found = blocks(history, channel)
        at = self._next.get(channel.name, 0)
        if found.end == at:
            return None
        self._next[channel.name] = found.end
        return found.columns(at)


class BlockCourse:
    """The medians of a segment's blocks, thinned to at most 64 over the whole of it: where a run comes from.

    Pairs are merged into their mean when there are more, so early and late times count alike and memory is bounded.
    """

    def __init__(self, most: int = 64):
        self._most = most
        self.begin(None)

    def begin(self, segment: int | None) -> None:
        """Forget, for another segment."""
        self.segment = segment
        self.each = 1  # blocks in one value
        self.values: list[float] = []
        self.count = 0  # blocks so far
        self._sum, self._some = 0.0, 0

    def add(self, middle: float) -> None:
        """The next block's median; one that is NaN counts as none."""
        if middle != middle:
            return
        self.count += 1
        self._sum += middle
        self._some += 1
        if self._some == self.each:
            self.values.append(self._sum / self._some)
            self._sum, self._some = 0.0, 0
            if len(self.values) >= self._most:
                self.values = [(a + b) / 2 for a, b in zip(self.values[::2], self.values[1::2], strict=True)]
                self.each *= 2

    def add_all(self, middles: list[float]) -> None:
        """The next blocks' medians, none of them NaN; what `add` does of one after the other."""
        self.count += len(middles)
        total, some = self._sum, self._some
        for middle in middles:
            total += middle
            some += 1
            if some == self.each:
                self.values.append(total / some)
                total, some = 0.0, 0
                if len(self.values) >= self._most:
                    self.values = [(a + b) / 2 for a, b in zip(self.values[::2], self.values[1::2], strict=True)]
                    self.each *= 2
        self._sum, self._some = total, some

    def median(self) -> float:
        """The median over the whole course; NaN before there is any."""
        return sorted(self.values)[len(self.values) // 2] if self.values else float("nan")


class SteppedCourse:
    """A course that knows where each of its values begins; `values` and `steps` are equally long."""

    def __init__(self, most: int = 64):
        self._course, self._places = BlockCourse(most), BlockCourse(most)

    def begin(self, segment: int) -> None:
        """Forget, for another segment."""
        self._course.begin(segment)
        self._places.begin(segment)

    def add(self, value: float, step: int) -> bool:
        """The next value, and its first step; whether the course has got longer."""
        if value != value:
            return False
        before = len(self._course.values)
        self._course.add(value)
        self._places.add(float(step))
        return len(self._course.values) != before

    def add_all(self, values: list[float], steps: list[int]) -> None:
        """The next values, none of them NaN, and their first steps."""
        self._course.add_all(values)
        self._places.add_all([float(step) for step in steps])

    @property
    def segment(self) -> int | None:
        return self._course.segment

    @property
    def values(self) -> list[float]:
        return self._course.values

    def step(self, at: int) -> int:
        """The first step of a value, the middle one's where values were merged."""
        return int(self._places.values[at])
