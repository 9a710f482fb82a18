"""Two books of wall time: what nothing has claimed yet, and what the steps of the live branch took.

In:   moments and stretches of time in whole microseconds, steps.
Out:  sums that neither overlap nor get lost, in bounded memory.
"""

from __future__ import annotations

from collections import deque

_HOLES = 256  # stretches of free time that a late record can still claim
_ENTRIES = 2048  # of each of the two tables of steps


class FreeTime:
    """Time that has passed and that nothing has claimed: of a start-up or between steps.

    `settled` are the microseconds of both that can't be claimed any more, start-up last.
    """

    def __init__(self) -> None:
        self.now = 0
        self.settled = [0, 0]
        self.holes: deque[list[int]] = deque()  # [from, to, 1 if in a start-up]

    def advance(self, moment: int, starting: int) -> None:
        """Time goes on to `moment`; what is new of it is free."""
        holes, now = self.holes, self.now
        if moment <= now:
            return
        if holes and holes[-1][1] == now and holes[-1][2] == starting:
            holes[-1][1] = moment
        else:
            holes.append([now, moment, starting])
            if len(holes) > _HOLES:
                self._settle(holes.popleft())
        self.now = moment

    def close(self) -> None:
        """Nothing of what has passed can be claimed any more."""
        while self.holes:
            self._settle(self.holes.popleft())

    def _settle(self, hole: list[int]) -> None:
        self.settled[hole[2]] += hole[1] - hole[0]

    def left(self) -> list[int]:
        """Microseconds that nothing has claimed: between steps, in start-ups."""
        sums = self.settled.copy()
        for start, stop, starting in self.holes:
            sums[starting] += stop - start
        return sums

    def claim(self, start: int, stop: int, most: int) -> int:
        """Take up to `most` of what is free from `start` to `stop`, the latest first; how much that was."""
        holes, taken = self.holes, 0
        if holes and (hole := holes[-1])[1] == stop and hole[0] < start and stop - start <= most:  # what steps do
            hole[1] = start
            return stop - start
        at = len(holes) - 1
        while at >= 0 and taken < most:
            hole = holes[at]
            if hole[1] <= start:
                break
            high = min(hole[1], stop)
            low = max(hole[0], start, high - (most - taken))
            if high > low:
                taken += high - low
                if low == hole[0] and high == hole[1]:
                    del holes[at]
                elif high == hole[1]:
                    hole[1] = low
                elif low == hole[0]:
                    hole[0] = high
                else:
                    holes.insert(at + 1, [high, hole[1], hole[2]])
                    hole[1] = low
            at -= 1
        return taken


class StepTime:
    """Time in the steps of the live branch, so that superseded ones can be taken out again.

    `sums` are microseconds so far: all time in steps, then four parts of it, in the order the caller likes. Two
    tables remember the sums by step: the latest steps one by one, older ones every n-th step, and twice as
    far apart whenever they get too many. What is asked of between two entries is interpolated.
    """

    def __init__(self) -> None:
        self.sums = [0, 0, 0, 0, 0]
        self.last: int | None = None  # the highest step so far
        self.old: list[tuple[int, ...]] = []  # step, segment, *sums; sorted by step
        self.new: list[tuple[int, ...]] = []
        self._stride = 1

    def add(self, step: int, segment: int, took: int) -> None:
        """A step took this many microseconds. One that is not above the last counts with that."""
        sums = self.sums
        sums[0] += took
        if self.last is not None and step <= self.last:
            self.amend()
            return
        self.last = step
        self.new.append((step, segment, *sums))
        if len(self.new) > _ENTRIES:
            self._grow_old()

    def _grow_old(self) -> None:
        half = _ENTRIES // 2
        self.old += self.new[min(self._stride, half) - 1 : half : self._stride]
        del self.new[:half]
        if len(self.old) > _ENTRIES:
            del self.old[1::2]
            self._stride *= 2

    def amend(self) -> None:
        """Put the sums as they are now into the last entry."""
        table = self.new or self.old
        if table:
            step, segment, *_ = table[-1]
            table[-1] = (step, segment, *self.sums)

    def cut(self, step: int, parent: int) -> tuple[int, int]:
        """Take out the steps from `step` on, and all of segments behind `parent`; µs and steps taken out."""
        self.amend()
        after = None
        for table in (self.new, self.old):
            while table and (table[-1][0] >= step or table[-1][1] > parent):
                after = table.pop()
        if after is None or self.last is None:
            return 0, 0
        kept = self.new or self.old
        before = kept[-1] if kept else (min(step, after[0]) - 1, 0, 0, 0, 0, 0, 0)
        part, span = step - 1 - before[0], after[0] - before[0]
        if kept and after[1] <= parent and 0 < part < span:  # between two entries
            between = (low + (high - low) * part // span for low, high in zip(before[2:], after[2:], strict=True))
            before = (step - 1, before[1], *between)
            self.new.append(before)
        lost, steps = self.sums[0] - before[2], self.last - before[0]
        self.sums = list(before[2:])
        self.last = before[0] if kept else None
        return lost, steps
