"""Texts of an evaluation that are nearly a row of the training, and like hardly any other: another wording, another
edition, a piece of the same record.

In:   fingerprints of a row's passages of one size, and where these begin, when they have arrived.
Out:  figures for the `model` record: how many of an evaluation's rows have much in common with one row of the training
      or a few, and next to nothing with others.

What texts of one kind share, as headings and phrases, they share with many rows. A row that was made of the same
original as another shares most with that one. Rows that were trained on and end before, as the past of what is to be
said, are none of these.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barograph.probes.model.row_passages import ALIKE, RowPassages, RowsByPassage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barograph.probes.model.row_passages import Floats

COLUMN = -1  # of a row's numbers: where its passages of this size begin
_SHORT, _LONG = 8, 12  # tokens of a passage, of rows of 24 places or more the second
_LOOKED, _OF_PASS = 256, 16  # rows of an evaluation; of each of its passes
_HAVING = 64  # rows that have a passage, of which no more are counted
_PART = 0.6  # of the passages that are known of a row: in common with another, at least
_ANEW = 0.25  # of rows of the training: near copies of others
_TENTH, _OTHERS = 10, 1  # of the rows with which it has most in common; passages that it may have in common with that


def kin_size(length: int) -> int:
    """Tokens of the passages by which rows of this length are compared."""
    return _LONG if length >= 2 * _LONG else _SHORT


class Kin:
    """Rows of the training, by their passages."""

    def __init__(self) -> None:
        self._kept = RowsByPassage(kin_size, COLUMN)
        self.again = False  # whether rows of the training came again, made anew

    def keep(self, rows: Floats) -> None:
        """Rows of a step [n, columns, TAKEN]."""
        self._kept.keep(rows)

    def come_again(self, rows: Floats) -> bool:
        """Whether rows of the training are those that are kept, with other words: what has ten copies has no few."""
        share = self.seen(rows, ("",) * len(rows)).get("evaluated_kin", 0.0) if self._kept.rows else 0.0
        self.again = self.again or share >= _ANEW
        return self.again

    def seen(self, rows: Floats, passes: Sequence[str]) -> dict[str, float]:
        """Of an evaluation's rows the share that have a kin in the training, and how many were looked at: of those of
        passes that have any, where a pass has sixteen rows or more, for others may be of another set."""
        asked: list[tuple[str, bool]] = []
        length = 0
        for at in range(0, len(rows), max(1, -(-len(rows) // _LOOKED))):
            ours = self._kept.new(rows[at])
            if ours is None:
                continue
            asked.append((passes[at], self._has_kin(ours)))
            length = max(length, ours.length)
        if not asked or not self._kept.rows:
            return {}
        having = {which for which, kin in asked if kin}
        if sum(which in having for which, _ in asked) >= _OF_PASS * len(having) > 0:
            asked = [one for one in asked if one[0] in having]
        return {
            "evaluated_kin": sum(kin for _, kin in asked) / len(asked),
            "evaluated_kin_rows": float(len(asked)),
            "evaluated_kin_size": float(kin_size(length)),
        }

    def _has_kin(self, ours: RowPassages) -> bool:
        """Whether one row or a few have much in common with ours, and others next to nothing."""
        count = Counter(at for mark in ours.places for at in self._kept.having.get(mark, ())[:_HAVING])
        first = count.most_common(_TENTH)
        if not first or (len(first) == _TENTH and first[-1][1] > _OTHERS):
            return False
        least = max(ALIKE, _PART * len(ours.places))
        return any(number >= least and not _is_past(ours, self._kept.rows[at]) for at, number in first)


def _is_past(ours: RowPassages, theirs: RowPassages) -> bool:
    """Whether a row of the training is what came before: all that both have stands later in it, or it is the beginning
    of ours, but for passages that reach behind its end."""
    common = [(place, theirs.places[mark]) for mark, place in ours.places.items() if mark in theirs.places]
    shifts = {place - other for place, other in common}
    if len(shifts) != 1:
        return False  # altered
    shift, last = shifts.pop(), max(other for _, other in common)
    lacking = [place for mark, place in theirs.places.items() if mark <= ours.greatest and mark not in ours.places]
    return shift < 0 or (shift == 0 and all(place > last for place in lacking))
