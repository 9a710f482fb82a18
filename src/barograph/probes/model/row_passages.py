"""What is known of rows of tokens: some passages of each, where these begin, and which rows of a training have them.

In:   a row's numbers, when they have arrived: fingerprints of passages of each size, and columns with the places of
      those of one size (see `passages.placed_marks`).
Out:  `RowPassages` of a row; `RowsByPassage`, those of the training, by their passages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

SIZES = (8, 12, 16, 32)  # tokens of a passage: of words, and of letters, of which a few say nothing
TAKEN = 8  # passages of a row, of each size
ALIKE = 3  # passages that two rows have in common, and that a row has, at least
_APART = 2048  # above all places
_KEPT = 4096  # rows of the training

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


class RowPassages(NamedTuple):
    """What is known of a row: its passages and where they begin; the greatest fingerprint, or infinity where these are
    all of its passages; its length."""

    places: dict[float, int]
    greatest: float
    length: int


def place_of(places: Any, length: int) -> Any:
    """Places of passages, and the row's length, as one number each."""
    return places + _APART * length


class RowsByPassage:
    """Different rows of the training. size: tokens of the passages by which rows of a length are compared. column: of a
    row's numbers, where these begin. having: which rows have a passage."""

    def __init__(self, size: Callable[[int], int], column: int):
        self._size, self._column = size, column
        self._whole: set[int] = set()
        self.rows: list[RowPassages] = []
        self.having: dict[float, list[int]] = {}

    def keep(self, rows: Floats) -> None:
        """Rows of a step [n, columns, TAKEN]."""
        for row in rows if len(self.rows) < _KEPT else ():
            one = self.new(row)
            if one is None:
                continue
            self._whole.add(_whole(one))
            for mark in one.places:
                self.having.setdefault(mark, []).append(len(self.rows))
            self.rows.append(one)

    def new(self, row: Floats) -> RowPassages | None:
        """A row [columns, TAKEN]; None where it has too few passages, or is one that is kept."""
        places = [int(place) for place in row[self._column] if place >= 0]
        if len(places) < ALIKE:
            return None
        length = places[0] // _APART
        marks = row[SIZES.index(self._size(length))][: len(places)].tolist()
        found = dict(zip(marks, (place % _APART for place in places), strict=True))
        one = RowPassages(found, max(marks) if len(marks) == TAKEN else float("inf"), length)
        return None if len(found) < ALIKE or _whole(one) in self._whole else one


def _whole(one: RowPassages) -> int:
    return hash(frozenset(one.places.items()))
