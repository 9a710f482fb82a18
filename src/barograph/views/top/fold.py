"""One series in constant memory, exact where it counts: every spike and every NaN keeps its place.

In:   points as they come, in any order.
Out:  the columns of a chart over any range of steps.

A fold is a row of buckets of equal width, a power of two steps. When the run outgrows them, neighbours are joined
and the width doubles: minimum, maximum and counts stay exact. The latest points are kept one by one, so that a
narrow range at the end is drawn from the points themselves.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BUCKETS = 8192
RECENT = 16_384  # points kept one by one: that many are sorted into columns in a millisecond


class FoldColumns(NamedTuple):
    """A range of steps in equal columns. low, high: exact extremes of the finite values [n], NaN in a column without
    any; odd: how many values of the column are NaN or infinite [n]."""

    low: Floats
    high: Floats
    odd: NDArray[np.int64]


class Fold:
    """A series. `last`, `last_step`: the newest point; `lowest`, `highest`: of the finite values, NaN without any;
    `first_odd`: (step, value) of the first that is not finite; `version` changes with every point."""

    def __init__(self, buckets: int = BUCKETS, recent: int = RECENT):
        self.points = self.odd = self.version = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.last = self.lowest = self.highest = math.nan
        self.first_odd: tuple[int, float] | None = None
        self._size, self._keep = buckets, recent
        self._origin, self._width = 0, 1
        self._low, self._high = np.full(buckets, np.inf), np.full(buckets, -np.inf)
        self._odd = np.zeros(buckets, np.int64)
        self._recent: list[tuple[NDArray[np.int64], Floats]] = []
        self._gone: int | None = None  # the highest step that has left `_recent`
        self._made: dict[tuple[float, float, int], tuple[int, FoldColumns]] = {}

    def add(self, step: NDArray[Any], value: NDArray[Any]) -> None:
        """Points of equal length, in the order in which they were logged."""
        if not len(step):
            return
        step, value = np.asarray(step, np.int64), np.asarray(value, np.float64)
        self.version += 1
        self._count(step, value)
        self._make_room(int(step.min()), int(step.max()))
        place = (step - self._origin) // self._width
        finite = np.isfinite(value)
        np.minimum.at(self._low, place[finite], value[finite])
        np.maximum.at(self._high, place[finite], value[finite])
        np.add.at(self._odd, place[~finite], 1)
        self._remember(step, value)

    def columns(self, low: float, high: float, count: int) -> FoldColumns:
        """`count` columns over the steps low ≤ step < high."""
        key = (low, high, count)
        known = self._made.get(key)
        if known is not None and known[0] == self.version:
            return known[1]
        if len(self._made) > 16:
            self._made.clear()
        result = self._columns(low, high, count)
        self._made[key] = self.version, result
        return result

    def latest(self, count: int) -> Floats:
        """The last values, at most `count` and not more than are kept one by one."""
        values = [value for _, value in self._recent]
        return np.concatenate(values)[-count:] if values else np.empty(0)

    # -- inside ---------------------------------------------------------------------------------------

    def _count(self, step: NDArray[np.int64], value: Floats) -> None:
        self.points += len(step)
        newest = int(step.max())
        self.first_step = min(int(step.min()), self.first_step if self.first_step is not None else newest)
        if self.last_step is None or newest >= self.last_step:
            self.last_step = newest
            self.last = float(value[len(step) - 1 - int(np.argmax(step[::-1]))])  # of equal steps the one logged last
        finite = np.isfinite(value)
        if finite.any():
            self.lowest = float(np.fmin(self.lowest, value[finite].min()))
            self.highest = float(np.fmax(self.highest, value[finite].max()))
        if not finite.all():
            self.odd += int((~finite).sum())
            at = int(np.flatnonzero(~finite)[np.argmin(step[~finite])])
            if self.first_odd is None or int(step[at]) < self.first_odd[0]:
                self.first_odd = int(step[at]), float(value[at])

    def _make_room(self, first: int, last: int) -> None:
        """Wider buckets until every step has one."""
        if not self._odd.any() and not np.isfinite(self._low).any():
            self._origin = first
        wide, origin = self._width, min(self._origin, first)
        while (last - origin) // wide >= self._size or (self._end() - 1 - origin) // wide >= self._size:
            wide *= 2
        if wide == self._width and origin == self._origin:
            return
        if origin < self._origin:  # earlier than all before: so far back that the buckets still meet
            origin = self._origin - -(-(self._origin - origin) // wide) * wide
            while (max(last, self._end() - 1) - origin) // wide >= self._size:
                wide *= 2
                origin = self._origin - -(-(self._origin - origin) // wide) * wide
        place = (np.arange(self._size, dtype=np.int64) * self._width + self._origin - origin) // wide
        used = (np.isfinite(self._low)) | (self._odd > 0)
        low, high, odd = np.full(self._size, np.inf), np.full(self._size, -np.inf), np.zeros(self._size, np.int64)
        np.minimum.at(low, place[used], self._low[used])
        np.maximum.at(high, place[used], self._high[used])
        np.add.at(odd, place[used], self._odd[used])
        self._low, self._high, self._odd, self._origin, self._width = low, high, odd, origin, wide

    def _end(self) -> int:
        used = np.flatnonzero(np.isfinite(self._low) | (self._odd > 0))
        return self._origin + (int(used[-1]) + 1) * self._width if len(used) else self._origin + 1

    def _remember(self, step: NDArray[np.int64], value: Floats) -> None:
        self._leave(step[: -self._keep])
        self._recent.append((step[-self._keep :].copy(), value[-self._keep :].copy()))
        if len(self._recent) > 64 or sum(len(item) for item, _ in self._recent) > 2 * self._keep:
            steps = np.concatenate([item for item, _ in self._recent])
            values = np.concatenate([item for _, item in self._recent])
            self._leave(steps[: -self._keep])
            self._recent = [(steps[-self._keep :], values[-self._keep :])]

    def _leave(self, steps: NDArray[np.int64]) -> None:
        if len(steps):
            self._gone = max(int(steps.max()), self._gone if self._gone is not None else int(steps[0]))

    def _columns(self, low: float, high: float, count: int) -> FoldColumns:
        least, most, odd = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count, np.int64)
        if high > low:
            steps = np.concatenate([item for item, _ in self._recent]) if self._recent else np.empty(0, np.int64)
            if self._gone is None or self._gone < low:
                values = self.latest(len(steps))
                finite = np.isfinite(values)
                self._place(low, high, steps, np.where(finite, values, np.inf), np.where(finite, values, -np.inf),
                            (~finite).astype(np.int64), least, most, odd)  # fmt: skip
            else:
                steps = np.arange(self._size, dtype=np.int64) * self._width + self._origin
                # a bucket that the range begins in counts: its extreme is shown rather than lost
                first = np.where((steps < low) & (steps + self._width > low), np.int64(math.ceil(low)), steps)
                self._place(low, high, first, self._low, self._high, self._odd, least, most, odd)
        none = np.isinf(least) & (least > 0)
        return FoldColumns(np.where(none, np.nan, least), np.where(none, np.nan, most), odd)

    @staticmethod
    def _place(
        low: float, high: float, steps: NDArray[np.int64], lows: Floats, highs: Floats, odds: NDArray[np.int64],
        least: Floats, most: Floats, odd: NDArray[np.int64],
    ) -> None:  # fmt: skip
        inside = (steps >= low) & (steps < high)
        column = ((steps[inside] - low) / (high - low) * len(least)).astype(np.int64).clip(0, len(least) - 1)
        np.minimum.at(least, column, lows[inside])
        np.maximum.at(most, column, highs[inside])
        np.add.at(odd, column, odds[inside])
