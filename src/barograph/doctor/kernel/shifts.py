"""Changes of level that last.

In:   a channel of positive values, and its level and noise (`local.Local` in logarithms).
Out:  where the level changed by more than a factor, once enough later rows have confirmed it; and where it came back.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from barograph.doctor.kernel.cursor import exp
from barograph.doctor.kernel.local import median

if TYPE_CHECKING:
    from barograph.doctor.kernel.channels import Channel, RunHistory

REST = 144  # rows after a change in which the level's window still holds rows from before it: 128 + a tick
_SHORT = 32  # rows of the window that is looked at meanwhile
_BLIND = _SHORT + 16  # rows after a change in which that one does too
_TRACKED = 16  # rows of a look whether a level came back
_LONGEST = 20_000  # rows after which a change is the new normal


class Shift(NamedTuple):
    """before, after: levels. first, last: the row where it began, and the one that confirmed it.

    back: step from which the level was what it had been, None while it isn't.
    """

    first: int
    step: int
    last: int
    found: int
    time: int
    segment: int
    before: float
    after: float
    spread: float
    back: int | None = None
    back_found: int = 0
    back_row: int = 0

    @property
    def ratio(self) -> float:
        """after / before, kept from infinity and from 0."""
        return exp(math.log(self.after) - math.log(self.before))


class Shifts:
    """Follows one channel.

    ratio: by what factor the level must change. rows: that many rows confirm it. share: of them that must be beyond
    0.8 of the change (in logarithms), and their median beyond all of it. z: how many spreads the first row must be
    off. sign: +1 for up, -1 for down, 0 for both. least: rows of a segment before the first change.
    """

    def __init__(self, ratio: float, rows: int, *, share: float = 0.8, z: float = 5.0, sign: int = 0, least: int = 24):
        self.limit, self.rows, self.share, self.z, self.sign, self.least = math.log(ratio), rows, share, z, sign, least
        self._next = 0
        self._channel: Channel | None = None
        self._suspect: tuple[Any, ...] | None = None
        self._shift: Shift | None = None
        self._begin, self._rest = 0, 0
        self._segment: int | None = None
        self._later: list[float] = []
        self._later_step = 0

    @property
    def looked(self) -> int:
        """The row up to which it has looked."""
        return self._next

    def follow(self, history: RunHistory, channel: Channel) -> list[Shift]:
        """Changes that the new rows confirm, and earlier ones whose level came back."""
        if self._next >= channel.end:
            return []
        local = history.local(channel, log=True)
        rows = channel.rows(self._next)
        self._next, self._channel = channel.end, channel
        if self._suspect is None and self._shift is None and rows.first >= self._rest and rows.all_of(self._segment):
            lowest, highest = local.extremes(rows.first)
            if not ((self.sign >= 0 and highest > self.z) or (self.sign <= 0 and lowest < -self.z)):
                return []
        level, spread, _ = local.rows(rows.first)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            value = numpy.where(rows.value > 0, numpy.log(numpy.maximum(rows.value, 1e-300)), numpy.nan)
        value[~numpy.isfinite(rows.value)] = numpy.nan
        level, spread = level.copy(), spread.copy()

        def short() -> tuple[Any, Any]:
            return history.local(channel, log=True, window=_SHORT).rows(rows.first)[:2]

        shifts: list[Shift] = []
        for low, high in pairwise([0, *rows.cuts, len(rows)]):
            if int(rows.segment[low]) != self._segment:
                self._segment, self._begin = int(rows.segment[low]), rows.first + low
                self._suspect = self._shift = None
                self._rest = 0
            self._piece(rows, value, level, spread, short, low, high, shifts)
        return shifts

    def _piece(
        self, rows: Any, value: Any, level: Any, spread: Any, short: Any, low: int, high: int, shifts: list[Shift]
    ) -> None:
        at, first_row = 0, rows.first + low
        bad = self._bad(rows, value, level, spread, short, low, high)
        while at < high - low:
            if self._suspect is not None:
                at = self._judge(rows, value, low, at, high - low, shifts)
                if self._rest > first_row + at:
                    bad = self._bad(rows, value, level, spread, short, low, high)
                continue
            places = numpy.flatnonzero(bad[at:])
            stop = at + int(places[0]) if len(places) else high - low
            self._track(rows, value, low + at, low + stop, shifts)
            if stop == high - low:
                return
            here = low + stop
            sign = 1 if value[here] > level[here] else -1
            self._suspect = (rows.first + here, int(rows.step[here]), int(rows.time[here]), float(level[here]),
                             float(spread[here]), sign, [])  # fmt: skip
            at = stop

    def _bad(self, rows: Any, value: Any, level: Any, spread: Any, short: Any, low: int, high: int) -> Any:
        """Which rows are off. Of those behind a change level and spread become those of a shorter window: the long one
        still holds rows from before it.
        """
        changed = self._rest - REST
        first, last = max(changed + _BLIND - rows.first, low), min(self._rest - rows.first, high)
        if self._rest and first < last:
            for column, other in zip((level, spread), short(), strict=True):
                column[first:last] = other[first:last]
        off = value[low:high] - level[low:high]
        need = numpy.maximum(self.limit, self.z * spread[low:high])
        bad = numpy.abs(off) > need if not self.sign else off * self.sign > need
        bad[: max(0, self._begin + self.least - rows.first - low)] = False
        if self._rest:
            bad[max(0, changed - rows.first - low) : max(0, changed + _BLIND - rows.first - low)] = False
        return bad

    def _judge(self, rows: Any, value: Any, low: int, at: int, end: int, shifts: list[Shift]) -> int:
        """Rows of a suspect, until it is one or is none; the row to go on with."""
        assert self._suspect is not None
        row, step, time, level, spread, sign, offs = self._suspect
        allowed = self.rows - math.ceil(self.share * self.rows)
        while at < end:
            one = value[low + at]
            here = low + at
            at += 1
            if one != one:
                continue
            offs.append(sign * (one - level))
            weak = sum(off < 0.8 * self.limit for off in offs)
            if weak > allowed:
                self._suspect = None
                return at
            if len(offs) == self.rows:
                middle = sorted(offs)[len(offs) // 2]
                self._suspect = None
                if middle < self.limit or sign * (level + sign * middle - self._just(row, level)) < 0.8 * self.limit:
                    return at
                self._shift = Shift(row, step, rows.first + here, int(rows.step[here]), time, int(rows.segment[here]),
                                    exp(level), exp(level + sign * middle), spread)  # fmt: skip
                self._rest, self._later = row + REST, []
                shifts.append(self._shift)
                return at
        return at

    def _just(self, row: int, level: float) -> float:
        """The median of the 16 rows before one, in logarithms. A line through a start that was other than the rest
        leads to a level at which the series never was.
        """
        if self._channel is None:
            return level
        near = self._channel.rows(max(row - 16, self._begin), row).value
        near = near[numpy.isfinite(near) & (near > 0)]
        return float(numpy.log(median(near))) if len(near) > 4 else level

    def _track(self, rows: Any, value: Any, low: int, high: int, shifts: list[Shift]) -> None:
        """Whether the level is what it was before the last change."""
        if self._shift is None:
            return
        for at in range(low, high):
            if value[at] != value[at]:
                continue
            if rows.first + at > self._shift.last + _LONGEST:
                self._shift = None
                return
            if not self._later:
                self._later_step = int(rows.step[at])
            self._later.append(float(value[at]))
            if len(self._later) == _TRACKED:
                middle, self._later = sorted(self._later)[_TRACKED // 2], []
                whole = math.log(self._shift.after) - math.log(self._shift.before)
                if (middle - math.log(self._shift.before)) / whole < 0.4:
                    shifts.append(self._shift._replace(back=self._later_step, back_found=int(rows.step[at]),
                                                     back_row=rows.first + at))  # fmt: skip
                    self._shift = None
                    return
