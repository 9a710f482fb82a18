"""Whether ranks are copies of one training, as their watches' fingerprints of weights and gradients say.

In:   frames of all ranks, with what a checksum is of: `FIRST`, the weights before the first step; `GRADIENTS`, those of
      the second compared step; `WEIGHTS`.
Out:  fields of the record `ranks`. Ranks that began with equal weights and differ in six looks in a row have drifted
      apart; ranks that began with others, and share their gradients, were never made equal. Parts of a model that is
      split over ranks have neither weights nor gradients in common, and nothing is said of them; nor of ranks whose
      weights are equal again after they differed, as workers' that are averaged now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barograph.probes.ranks.exchange import ExchangeFrame

FIRST, GRADIENTS, WEIGHTS = 1, 2, 3
_LOOKS, _MODES = 6, 3  # in a row
_MOST = 1 << 20  # layers


class CopiesSeen:
    """What is known of the ranks of one process group, on the first of them."""

    def __init__(self) -> None:
        self._began: bool | None = None  # whether they began as copies
        self._start = self._since = -1
        self._looks, self._said = 0, False
        self._apart, self._apart_since, self._modes_said = 0, -1, False

    @property
    def are_copies(self) -> bool:
        """Whether ranks hold the same model, or shards of it that have data of their own: nobody says otherwise."""
        return self._began is not False

    def compare(self, frame: ExchangeFrame, ranks: Sequence[int]) -> dict[str, Any]:
        """Fields for the record of a step with checksums of the watches."""
        known = frame.checksums
        if len(set(frame.checks)) != 1 or None in known or self._said:
            return {}
        kind, same = frame.checks[0], len(set(known)) == 1
        if kind == FIRST:
            self._began, self._start = same, frame.step
        elif self._began is None:  # nobody saw how they began
            self._began, self._said = False, True
        elif kind == GRADIENTS and self._began is False and same and known[0]:
            self._said = True
            return {"never_equal": len(ranks)}
        elif kind == WEIGHTS and self._began:
            if same and self._looks:
                self._began, self._said = False, True
            self._looks = 0 if same else self._looks + 1
            if same:
                self._start = -1
            elif self._looks == 1:  # already at the first look behind the start: since then
                self._since = self._start if self._start >= 0 else frame.step
            if self._looks == _LOOKS:
                self._said = True
                return {"apart": self._away(known, ranks), "apart_since": self._since}
        return {}

    def modes(self, frame: ExchangeFrame, ranks: Sequence[int]) -> dict[str, Any]:
        """`modes_apart`, once: ranks whose layers are in evaluation mode while others' are in training mode."""
        if not self.are_copies or self._modes_said or 0 in frame.layers or not frame.layers:
            return {}
        every, trains = zip(*(divmod(one, _MOST) for one in frame.layers), strict=True)
        fewer = [rank for rank, one in zip(ranks, trains, strict=True) if one < max(trains)]
        if len(set(every)) > 1 or not fewer:
            self._apart = 0
            return {}
        self._apart += 1
        self._apart_since = frame.step if self._apart == 1 else self._apart_since
        if self._apart < _MODES:
            return {}
        self._modes_said = True
        return {"modes_apart": fewer, "modes_since": self._apart_since}

    def _away(self, known: Sequence[Any], ranks: Sequence[int]) -> list[int]:
        """The ranks that differ from most; all, if there is no majority."""
        counts = Counter(known).most_common(2)
        if counts[0][1] == counts[1][1]:
            return list(ranks)
        return [rank for rank, number in zip(ranks, known, strict=True) if number != counts[0][0]]


def both_numbers(every: int, trains: int) -> int:
    """How many layers have a mode, and how many of them are in training mode, in one number; 0 where none has one."""
    return every * _MOST + trains if 0 < every < _MOST else 0
