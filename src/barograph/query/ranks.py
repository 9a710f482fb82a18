"""Whose rows a series is made of, where several ranks log: rank 0's, else those of the lowest rank that has it.

In:   rows of all ranks in the order in which they were logged, or the columns of a series of all ranks.
Out:  the rows that rules, thresholds and early stopping see.

Rules follow a run while it is written, and what they have seen can't be taken back. So a series that rank 0 has not
logged waits until a rank has logged `HEARD` rows of it and no lower rank any; then it is that rank's. Later rows of
others don't change that: the answer depends on the rows alone, not on when somebody read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Names = tuple[str, ...]
HEARD = 8  # rows
MOST_SERIES = 10_000
_MOST_ROWS = 1000  # sets of names that are kept


class RankRow(NamedTuple):
    """A row of one rank; values: packed doubles, one a name."""

    names: Names
    values: bytes
    step: int
    time: int
    segment: int


class SeriesLimit:
    """The first 10,000 series, with all of the row that goes beyond: names with a step or a sample in them would make
    rules and alerts slower with each row. `reached`: whether others came."""

    def __init__(self) -> None:
        self.reached = False
        self._names: set[str] = set()
        self._whole: set[Names] = set()  # sets of names of which all are among them

    def places(self, names: Names) -> list[int] | None:
        """Which of a row's columns are among them; None: all."""
        if names in self._whole:
            return None
        if len(self._names) < MOST_SERIES:
            self._names.update(names)
        result = [place for place, name in enumerate(names) if name in self._names]
        if len(result) < len(names):
            self.reached = True
            return result
        if len(self._whole) >= _MOST_ROWS:
            self._whole.clear()
        self._whole.add(names)
        return None


def first_series(began: Mapping[str, int]) -> list[str]:
    """`SeriesLimit`'s series, by the times of their first rows."""
    ordered = sorted(began, key=began.__getitem__)
    last = len(ordered)
    if last > MOST_SERIES:
        row = began[ordered[MOST_SERIES - 1]]
        last = next((at for at in range(MOST_SERIES, last) if began[ordered[at]] != row), last)
    return ordered[:last]


class RankChoice:
    """The rows of all ranks, one after the other; `take` gives those that count."""

    def __init__(self) -> None:
        self.limit = SeriesLimit()
        self._rank: dict[str, int] = {}  # series → whose it is
        self._waiting: dict[str, tuple[int, list[RankRow]]] = {}  # series → the lowest rank so far, and its rows
        self._places: dict[tuple[int, Names], list[int] | None] = {}  # columns that count; None: all
        self._first: set[Names] = set()  # rank 0's, while it is alone
        self._last: Names | None = None
        self._alone = True

    def take(self, rank: int, row: RankRow) -> list[RankRow]:
        """A row; the rows that count now, with those that waited for it."""
        names = row.names
        if names is not self._last or rank:
            places = self.limit.places(names)
            if places is not None:
                if not places:
                    return []
                row = _part(row, places)
                names = row.names
        if self._alone:
            if rank == 0:
                if names is not self._last:
                    self._last = names
                    self._first.add(names)
                return [row]
            self._alone = False
            self._rank = dict.fromkeys((name for known in self._first for name in known), 0)
            self._first.clear()
        key = rank, names
        if key not in self._places:
            chosen_eaches = [each for place in range(len(names)) for each in self._decide(rank, row, place)]
            if all(name in self._rank for name in names):
                mine = [place for place, name in enumerate(names) if self._rank[name] == rank]
                self._places[key] = None if len(mine) == len(names) else mine
            return chosen_eaches
        places = self._places[key]
        if places is None:
            return [row]
        return [_part(row, places)] if places else []

    def drops(self, rank: int, names: Names) -> bool:
        """Whether no row of that rank with these names counts."""
        # what is beyond the limit is found by `take`
        return not self._alone and self._places.get((rank, names)) == []

    def finish(self) -> list[RankRow]:
        """No more rows come: those that still wait."""
        waiting, self._waiting = self._waiting, {}
        self._rank |= {name: rank for name, (rank, _) in waiting.items()}
        return [row for _, rows in waiting.values() for row in rows]

    def _decide(self, rank: int, row: RankRow, place: int) -> Iterator[RankRow]:
        """One value of a row, of a series that may be nobody's yet."""
        name, part = row.names[place], _part(row, [place])
        known = self._rank.get(name)
        if known is None and rank == 0:
            self._waiting.pop(name, None)
            known = self._rank[name] = 0
        if known is not None:
            if known == rank:
                yield part
            return
        lowest, rows = self._waiting.get(name, (rank, []))
        if rank > lowest:
            return
        rows = [*rows, part] if rank == lowest else [part]
        self._waiting[name] = rank, rows
        if len(rows) >= HEARD:
            del self._waiting[name]
            self._rank[name] = rank
            yield from rows


def _part(row: RankRow, places: list[int]) -> RankRow:
    values = b"".join(row.values[8 * place : 8 * place + 8] for place in places)
    return row._replace(names=tuple(row.names[place] for place in places), values=values)


def chosen_rank(times: Any, ranks: Any) -> int:
    """`RankChoice`'s rank for a series, by the times and ranks of all its rows [n]."""
    import numpy

    if not ranks.any():
        return 0
    present = numpy.unique(ranks).tolist()
    order = numpy.argsort(times, kind="stable")
    place = numpy.empty(len(order), numpy.int64)
    place[order] = numpy.arange(len(order))
    places = {rank: numpy.sort(place[ranks == rank]) for rank in present}
    decided = {
        rank: int(rows[0 if rank == 0 else HEARD - 1])
        for rank, rows in places.items()
        if len(rows) >= (1 if rank == 0 else HEARD)
    }
    first = numpy.minimum.accumulate([int(places[rank][0]) for rank in present])
    alone = {  # no lower rank had logged any by then
        rank: at for rank, at in decided.items() if rank == present[0] or at < first[present.index(rank) - 1]
    }
    return min(alone, key=alone.__getitem__) if alone else int(present[0])
