"""Mean lengths of batches as they come.

In:   the mean length of each batch, or of those that were looked at.
Out:  `Passes`: which way they go, and where they begin anew.
"""

from __future__ import annotations

import math
from itertools import groupby, pairwise

_COMPARED, _SURE = 64, 16  # batches of a pass; that are enough
_LONG, _AGAINST = 8, 0.05  # changes of a pass of lengths that are nearly the same; of them, in the other direction
_LENGTHS, _MIXED, _FAR = 256, 3, 1.5  # that are kept; batches of two lengths, or turns; times as many batches


class Passes:
    """Mean lengths of batches as they come: how they change, and where they begin anew."""

    def __init__(self, closely: bool = False) -> None:
        self._closely = closely  # all batches are known, so that lengths may begin anew which are nearly the same
        self.began = self.anew = self.newest = -1
        self.narrow = False  # whether the shortest are nearly as long as the longest where lengths begin anew
        self.ups = self.downs = self._behind = 0
        self._last = self._low = self._high = math.nan
        self._pass: list[float] = []
        self._pass_before: list[float] = []
        self._stays: list[tuple[float, int]] = []  # each length, and how many batches in a row have it

    def add(self, step: int, length: float) -> None:
        """A batch."""
        if not math.isfinite(length):
            return
        self.began, self.newest = (step if self.began < 0 else self.began), step
        fifth, change = (self._high - self._low) / 5, length - self._last
        back = self._low - fifth <= length <= self._high + fifth  # not on to what is longer or shorter than all so far
        wide = self._high > 1.5 * self._low
        if (wide or self._turns(change)) and abs(change) >= 3 * fifth and back:
            self.anew, self._behind = (step if self.anew < 0 else self.anew), 0
            self._pass_before, self._pass = self._pass, []
            self.narrow = not wide
        elif change:
            self.ups += change > 0
            self.downs += change < 0
            self._behind += 1
        if length != self._last:
            self._stays.append((length, 0))
        if len(self._stays) <= _LENGTHS:
            self._stays[-1] = length, self._stays[-1][1] + 1
        self._last = length
        self._pass = [*self._pass, length][:_COMPARED]
        self._low = length if math.isnan(self._low) else min(length, self._low)
        self._high = length if math.isnan(self._high) else max(length, self._high)

    def _turns(self, change: float) -> bool:
        """Whether lengths have gone the other way for long, but for one change in twenty."""
        ups, downs = (self.ups, self.downs) if change < 0 else (self.downs, self.ups)
        return self._closely and self._behind >= _LONG and downs <= _AGAINST * ups

    @property
    def alike(self) -> bool:
        """Whether the batches of this pass are as long as those of the one before, one by one, three different ones."""
        count = min(len(self._pass), len(self._pass_before))
        return self._pass[:count] == self._pass_before[:count] and len(set(self._pass[:count])) >= 3

    @property
    def same(self) -> bool:
        """Whether they are so for sixteen batches or more, three or more of which have rows of two lengths, or for 32,
        with now more and now less batches of each length: the same examples, though each may be masked anew, and no
        plan of lengths."""
        count = min(len(self._pass), len(self._pass_before))
        mixed = sum(length % 1 > 0 for length in self._pass[:count]) >= _MIXED
        stays = [sum(1 for _ in batches) for _, batches in groupby(self._pass[:count])]
        return self.alike and count >= _SURE and (mixed or (count >= 2 * _SURE and _uneven(stays[:-1])))

    def unplanned(self, lengths: float) -> bool:
        """Whether they go one way to the end, as no plan of lengths has them: where one length follows another, batches
        have some of both; or the numbers of batches of each length rise and fall by half, three times or more."""
        if self.anew >= 0 or min(self.ups, self.downs) or len(self._stays) > _LENGTHS:
            return False
        mixed = sum(length % 1 > 0 for length, _ in self._stays[1:-1])
        counts = [count for length, count in self._stays[1:-1] if length % 1 == 0]
        enough = len({length for length, _ in self._stays if length % 1 == 0}) >= lengths
        return enough and (mixed >= _MIXED or _uneven(counts))

    def sorted(self, changes: float, against: float) -> bool:
        """Whether they go one way but where they begin anew."""
        counted = self.ups + self.downs
        return self.anew >= 0 and self._behind >= 3 and counted >= changes and (
            min(self.ups, self.downs) <= against * counted)  # fmt: skip


def _uneven(counts: list[int]) -> bool:
    """Whether numbers of batches of each length rise and fall by half, three times or more."""
    turns = [0]
    for one, following in pairwise(counts):
        way = (following >= _FAR * one) - (one >= _FAR * following)
        turns += [way] if way and way != turns[-1] else []
    return len(turns) > _MIXED
