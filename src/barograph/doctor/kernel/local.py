"""Level and noise around each row of a channel, told from rows before it.

In:   a channel.
Out:  for each row the level expected there, the spread around it, and how many spreads the row is off.

Rows are looked at in ticks: one row each up to row 64 of a segment, 4 up to 256, 16 beyond. A tick's level and spread
come from the last `window` rows before the tick, in the same segment, so no value is part of what it is measured
against, and rows give the same figures in blocks of any size. The window is cut in halves; a line through the halves'
medians gives the level (the slope taken half, because curves flatten), the median distance of the window's rows from
that line times 1.4826 the spread (Hampel 1974: the standard deviation of a normal distribution). Rows that are not
finite count as the last finite one before them.

Windows mean the same stretch of training throughout: where rows come four times as far apart as before, three times in
a row, the rows before are thinned to the new distance; where they come four times as close, windows begin anew.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy

from barograph.doctor.kernel.growing import Growing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel

KEEP = 32_768  # rows, as a channel's
_LOOKED_BACK = 4096  # rows of which some are kept where the distance between rows grows
_AT_ONCE = 2048  # windows: some megabytes
LEAST = 12  # rows before the first row that has a level
MAD_TO_STD = 1.4826
_FLOOR = 1e-3  # of the level: no series is trusted to be quieter; in logarithms, 0.1%


def tick_starts(first: int, last: int) -> NDArray[numpy.int64]:
    """The rows (numbered within the segment) at which a tick begins, of those that hold rows `first` to `last`."""
    if first >= 256:
        return numpy.arange(first // 16 * 16, last, 16, dtype=numpy.int64)
    one = numpy.arange(first, min(last, 64))
    four = numpy.arange(max(first, 64) // 4 * 4, max(min(last, 256), 64), 4)
    many = numpy.arange(max(first, 256) // 16 * 16, max(last, 256), 16)
    return numpy.concatenate([one, four, many]).astype(numpy.int64)


def windows(values: NDArray[Any], width: int) -> NDArray[Any]:
    """Each `width` values in a row [n − width + 1, width]: a view. values: [n], contiguous.

    NumPy's `sliding_window_view` does the same, and takes longer than what rules do with the windows of a few rows.
    """
    stride = values.itemsize
    return numpy.ndarray((len(values) - width + 1, width), values.dtype, values, 0, (stride, stride))


class Spacing:
    """How many steps lie between the rows of a segment. Says after which row that has changed for good."""

    __slots__ = ("_last", "each", "far", "wider")

    def __init__(self) -> None:
        self.each = 0  # 0 before four rows have come
        self.wider = False  # whether the last change was to a greater distance
        self.far: NDArray[numpy.bool_] | None = None  # of the rows given last: so far behind the one before
        self._last = numpy.empty(0, numpy.int64)  # the last three steps

    def change(self, step: NDArray[numpy.int64]) -> int:
        """How many of these new rows still belong to what was before a change; 0 where there is no change.

        `each` is then the new distance, and the rows behind are to be given again.
        """
        held = len(self._last)
        steps = numpy.concatenate([self._last, step])
        self._last = steps[-3:]
        self.far = None
        if len(steps) < 4:
            return 0
        gaps = steps[1:] - steps[:-1]
        if not self.each:
            self.each = max(int(numpy.sort(gaps[:3])[1]), 1)
        if 4 * numpy.minimum.reduce(gaps) > self.each and numpy.maximum.reduce(gaps) < 4 * self.each:
            return 0
        apart = gaps >= 4 * self.each
        self.far = apart[-len(step) :] if held else numpy.concatenate([[False], apart])
        at = len(gaps)
        for other in (apart, (gaps > 0) & (4 * gaps <= self.each)):
            places = numpy.flatnonzero(other[2:] & other[1:-1] & other[:-2])
            at = min(at, int(places[0])) if len(places) else at
        if at == len(gaps):
            return 0
        before, self.each = self.each, int(numpy.sort(gaps[at : at + 3])[1])
        self.wider = self.each > before
        self._last, count = steps[at + 1 : at + 4], at + 4 - held
        self.far = self.far[:count]
        return count


class Local:
    """`level`, `spread`, `z` of a channel's rows, in logarithms where `log`; rows are numbered as the channel's.

    z = (value − level) / spread, NaN where there is not a level yet. Where `log`, values at or below 0 have none.
    """

    def __init__(self, channel: Channel, *, log: bool = False, window: int = 128):
        self._channel, self._log, self._window = channel, log, window
        # values with those that are not finite replaced; level, spread, z
        self._columns = Growing((numpy.float64,) * 4, KEEP)
        self._columns.restart(channel.start)
        self._begin = 0  # the row with which the windows of the last row may begin: that of its segment, mostly
        self._segment: int | None = None
        self._spacing = Spacing()
        self._along = numpy.arange(window) - (window // 2 - 1) / 2.0  # each row's distance from the early half's middle
        self._asked: dict[int, tuple[float, float]] = {}  # extremes that were asked for, by the first row

    @property
    def end(self) -> int:
        return self._columns.end

    def is_of(self, channel: Channel) -> bool:
        """Whether it follows that channel, and not another of its name."""
        return self._channel is channel

    def rows(self, first: int, last: int | None = None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """level, spread, z of rows `first` to `last` (not with it), as far as they are kept."""
        level, spread, z = (self._columns.view(at, first, last) for at in (1, 2, 3))
        return level, spread, z

    def extremes(self, first: int) -> tuple[float, float]:
        """The lowest and highest z of the rows from `first` on; NaN where none has one."""
        found = self._asked.get(first)
        if found is None:
            z = self._columns.view(3, first)
            found = self._asked[first] = float(numpy.fmin.reduce(z)), float(numpy.fmax.reduce(z))
        return found

    def extend(self) -> None:
        """Take the channel's new rows."""
        if self._channel.end == self._columns.end:
            return
        self._asked = {}
        new = self._channel.rows(self._columns.end)
        if not len(new):
            return
        if new.first > self.end:  # rows went before anybody looked
            self._columns.restart(new.first)
            self._begin, self._segment = new.first, None
        for low, high in pairwise([0, *new.cuts, len(new)]):
            if int(new.segment[low]) != self._segment:
                self._segment, self._begin, self._spacing = int(new.segment[low]), self.end, Spacing()
            while count := self._spacing.change(new.step[low:high]):
                self._extend(new.value[low : low + count])
                self._respace()
                low += count
            if low < high:
                self._extend(new.value[low:high])

    def _respace(self) -> None:
        """Rows come at another distance from here on: of those before, keep what is as far apart."""
        end, first = self.end, max(self._begin, self.end - _LOOKED_BACK)
        steps = self._channel.rows(first, end).step
        picked = numpy.empty(0, numpy.int64)
        if self._spacing.wider and (steps[1:] > steps[:-1]).all():
            wanted = steps[-1] - self._spacing.each * numpy.arange(self._window)
            picked = numpy.unique(numpy.searchsorted(steps, wanted[wanted >= steps[0]], side="right") - 1)
        kept = self._columns.view(0, end - len(steps), end)[picked].copy()
        if len(kept):
            self._columns.view(0, end - len(kept), end)[:] = kept  # no other window looks at these rows any more
        self._begin = end - len(kept)

    def _extend(self, value: NDArray[Any]) -> None:
        far = self._spacing.far
        if self._log and numpy.minimum.reduce(value) > 1e-300:
            value = numpy.log(value)
        elif self._log:
            with numpy.errstate(divide="ignore", invalid="ignore"):
                value = numpy.where(value > 0, numpy.log(numpy.maximum(value, 1e-300)), numpy.nan)
        first, last = self.end - self._begin, self.end - self._begin + len(value)
        before = self._columns.view(0, self.end - 1)[0] if first and self.end > self._columns.start else numpy.nan
        filled = _fill(value, before)
        starts = tick_starts(first, last)
        low = max(self._begin, self.end - self._window - 16)  # no tick of these rows needs more
        known = numpy.concatenate([self._columns.view(0, low), filled])
        level_at, slope_at, spread_at = self._ticks(known, starts, low - self._begin)
        rows = numpy.arange(first, last)
        tick = rows // 16 - first // 16 if first >= 256 else starts.searchsorted(rows, side="right") - 1
        level = level_at[tick] + slope_at[tick] * (rows - starts[tick])
        spread = spread_at[tick]
        if far is not None:
            level[far] = numpy.nan  # the window does not reach that far
        z = (value - level) / spread
        self._columns.add(len(value), filled, level, spread, z)

    def _ticks(
        self, known: NDArray[Any], starts: NDArray[numpy.int64], low: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Level and slope at the first row of each tick [k], and spread. known: rows from `low` of the segment on."""
        if starts[0] >= self._window and len(starts) <= _AT_ONCE:
            return self._lines(windows(known, self._window)[starts - (low + self._window)])
        level, slope = numpy.full(len(starts), numpy.nan), numpy.zeros(len(starts))
        spread = numpy.full(len(starts), numpy.nan)
        least, full = starts.searchsorted((LEAST, self._window)).tolist()
        for at in range(least, full):
            one = self._lines(known[: starts[at]][None, :])
            level[at], slope[at], spread[at] = one[0][0], one[1][0], one[2][0]
        if full < len(starts):
            behind = windows(known, self._window)
        for first in range(full, len(starts), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            level[some], slope[some], spread[some] = self._lines(behind[starts[some] - low - self._window])
        return level, slope, spread

    def _lines(self, windows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Level at the row behind each window [k, n], slope a row, spread [k]."""
        count = windows.shape[1]
        half = count // 2
        early, late = _median(windows[:, :half].copy()), _median(windows[:, count - half :].copy())
        apart = late - early
        rise = apart / (count - half)  # between the middles of the halves
        along = self._along if count == self._window else numpy.arange(count) - (half - 1) / 2.0
        off = windows - (early[:, None] + rise[:, None] * along)
        spread = MAD_TO_STD * _median(numpy.abs(off, off))
        noise = spread * (3.0 / math.sqrt(half))  # a rise that noise alone may make is none
        slope = numpy.where(numpy.abs(apart) > noise, rise / 2.0, 0.0)
        level = late + slope * ((half + 1) / 2.0)
        floor = _FLOOR if self._log else numpy.maximum(_FLOOR * numpy.abs(late), 1e-12)
        return level, slope, numpy.maximum(spread, floor)


def median(values: Any) -> float:
    """The median of some numbers; NaN if one is, or there are none. As `numpy.median`, in a fifth of its time for few,
    and without loading `numpy.ma`, which takes 10 ms.
    """
    ordered = numpy.sort(values, axis=None)
    half = len(ordered) // 2
    if not len(ordered) or ordered[-1] != ordered[-1]:
        return math.nan
    return float(ordered[half]) if len(ordered) % 2 else (float(ordered[half - 1]) + float(ordered[half])) / 2.0


def _median(rows: NDArray[Any]) -> NDArray[Any]:
    """Median of each row; the upper one of the two in the middle. Puts the rows in another order."""
    middle = rows.shape[1] // 2
    rows.partition(middle, axis=1)
    return rows[:, middle]


def _fill(value: NDArray[Any], before: float) -> NDArray[Any]:
    """Values with those that are not finite replaced by the last finite one, at the start by the first."""
    good = numpy.isfinite(value)
    if good.all():
        return value
    places = numpy.where(good, numpy.arange(len(value)), -1)
    numpy.maximum.accumulate(places, out=places)
    filled = numpy.where(places >= 0, value[places], before)
    return filled
