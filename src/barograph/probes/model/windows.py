"""Windows of one text that overlap, of which some are trained on and others evaluated.

In:   fingerprints of a row's passages of one size, and where these begin, when they have arrived.
Out:  figures for the `model` record: how many of an evaluation's rows end as a row of the training begins, in half of
      the row or more.

Of two windows of a text all passages of what both have are the same, at places that lie equally far apart; of texts
that share phrases, those beside the phrase are others. Of a row the passages with the least fingerprints are known: one
of what both rows have, whose fingerprint is less than the other row's greatest, is among the other's. Phrases that come
again do so at the same place of another row as well as at any other; windows of one text never do, since two with one
passage at the same place are one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.probes.model.row_passages import ALIKE, SIZES, RowPassages, RowsByPassage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barograph.probes.model.row_passages import Floats

COLUMN = len(SIZES)  # of a row's numbers: where the passages that are compared here begin
_OTHERS = 4  # rows that have a passage, with which one that has it is compared
_SHIFTS = 0.25  # of a row's places: by how many windows may be apart; of half of them chance brings about each second


def size_of(length: int) -> int:
    """Tokens of the passages that are compared in rows of this length: no more than half of the row."""
    return max((size for size in SIZES if 2 * size <= length), default=0)


class Windows:
    """Rows of the training, by their passages."""

    def __init__(self) -> None:
        self._kept = RowsByPassage(size_of, COLUMN)

    def keep(self, rows: Floats) -> None:
        """Rows of a step [n, columns, TAKEN]."""
        self._kept.keep(rows)

    def seen(self, rows: Floats, passes: Sequence[str]) -> dict[str, float]:
        """Of an evaluation's rows: the share that overlap with a row of the training which goes on behind them; the
        share that would by chance, by how many have as much in common with another row at the same place, as no two
        windows have, and how many other places there are."""
        overlap, same, having, count = 0, 0.0, set(), 0
        for row, which in zip(rows, passes, strict=True):
            ours = self._kept.new(row)
            if ours is None:
                continue
            count += 1
            others = [at for mark in ours.places for at in self._kept.having.get(mark, ())[:_OTHERS]]
            found = {_overlap(ours, self._kept.rows[at]) for at in dict.fromkeys(others)}
            overlap, same = overlap + ("behind" in found), same + ("same" in found) * ours.length * _SHIFTS
            having |= {which} if "behind" in found else set()
        if not count or not self._kept.rows:
            return {}
        return {
            "evaluated_windows": overlap / count,
            "evaluated_windows_chance": min(1.0, same / count),
            "evaluated_windows_rows": float(count),
            "evaluated_windows_passes": len(having) / len(set(passes)),
        }


def _overlap(ours: RowPassages, theirs: RowPassages) -> str:
    """How two rows go together: `behind` where all of theirs begins within ours, in half of our row or more, and goes
    on behind it; `same` where they have passages in common at the same places; empty else."""
    (one, most, length), (other, their_most, their_length) = ours, theirs
    apart = [one[mark] - other[mark] for mark in one.keys() & other.keys()]
    shift = max(set(apart), key=apart.count)
    if apart.count(shift) < ALIKE:
        return ""
    if shift == 0:
        places = [one[mark] for mark in one.keys() & other.keys() if one[mark] == other[mark]]
        return "same" if 2 * (max(places) - min(places) + size_of(length)) >= length else ""
    if shift < 0 or 2 * shift > length or shift + their_length <= length:
        return ""
    fits = all(other.get(mark) == place - shift for mark, place in one.items() if place >= shift and mark <= their_most)
    last = length - size_of(length)  # where the last passage of our row begins
    fits = fits and all(
        one.get(mark) == place + shift for mark, place in other.items() if place + shift <= last and mark <= most
    )
    return "behind" if fits else ""
