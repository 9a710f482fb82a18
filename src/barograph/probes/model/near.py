"""Sketches of a training's rows that are remembered, and which other rows are near copies of one of them.

In:   sketches of rows [n, columns], when they have arrived; see `likeness`.
Out:  which rows lie far nearer to a remembered one than to the tenth nearest, and how many would by chance.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy

from barograph.probes.model.apart import Floats

SIGNS = 32  # of a sketch
COLUMNS = 5  # before the signs: mean, size, whether it has many different numbers, how many it has, if it's a picture
SKETCH, SPECTRUM = slice(COLUMNS, COLUMNS + SIGNS), slice(COLUMNS + SIGNS, COLUMNS + 2 * SIGNS)
EVALUATED = 256  # rows of an evaluation
_KEPT = 2048  # rows of the training
_NEARER, _MANY = {True: 0.5, False: 0.6}, {True: 5.0, False: 2.5}
# of the distance to the tenth nearest, at most, and dimensions, at least: of pictures, which are compared in two ways
# and have smooth parts, and of other rows
_CHANCES = 0.05  # of examples that are that near by chance
_TENTH, _FORTIETH, _LEAST = 10, 40, 200  # nearest; rows of the training, at least
_ANEW = 0.25  # of the rows between two looks: near copies of others
_GROUPED, _EXPECTED = 4, 4.0  # times fewer pairs in one batch than in all are none; pairs that tell so


class KeptSketches:
    """Different rows of the training. again: whether rows of the training came again, made anew."""

    def __init__(self) -> None:
        self._trained = numpy.empty((_KEPT, 2 * SIGNS))
        self._from = numpy.zeros(_KEPT, int)  # the steps of the rows
        self._count = 0
        self.again = False

    @property
    def is_full(self) -> bool:
        """Whether no more rows are kept."""
        return self._count >= _KEPT

    @property
    def says(self) -> bool:
        """Whether there are rows enough to compare others with."""
        return self._count >= _LEAST

    def keep(self, rows: Floats, known: Any, steps: Any) -> None:
        """Remember rows. known: whether each had come before. steps: of each."""
        new = (rows[:, 2] == 1) & ~known
        some = rows[new, COLUMNS:][: _KEPT - self._count]
        self._trained[self._count : self._count + len(some)] = some
        self._from[self._count : self._count + len(some)] = steps[new][: len(some)]
        self._count += len(some)

    def keep_if_new(self, rows: Floats, known: Any, steps: Any) -> None:
        """The same, unless they are those that are kept, made anew, as by augmentation in another epoch: a near copy of
        what has ten copies is not far nearer to the first than to the tenth."""
        new = rows[(rows[:, 2] == 1) & ~known][:EVALUATED]
        if self.says and len(new) and not self.again:
            found = self.close(new, bool((new[:, 4] == 1).all()))
            self.again = found is not None and float(found[0].mean()) >= _ANEW
        if not self.again:
            self.keep(rows, known, steps)

    def close(self, rows: Floats, pictures: bool) -> tuple[Any, float, float] | None:
        """Which rows are near copies of one that is kept; the share of the kept that are of each other; how many rows
        are that near by chance. None where it can't be said. pictures: whether rows are."""
        near, groups, known, chances = numpy.zeros(len(rows), bool), 0.0, False, 0.0
        for part in (SKETCH, SPECTRUM) if pictures else (SKETCH,):
            trained = self._trained[: self._count, part.start - COLUMNS : part.stop - COLUMNS]
            squares = squared_distances(rows[:, part], trained)
            nearer, chance = nearer_by_chance(squares, pictures)
            if nearer:
                chances += chance
                found = squares.min(1) < nearer**2 * tenth_of(squares)[:, 0]
                near, known = near | found, True
                groups = max(groups, self._grouped(trained, nearer) if found.any() else 0.0)
        return (near, groups, chances) if known else None

    def _grouped(self, trained: Floats, nearer: float) -> float:
        """Share of the training's rows that are that near to another one of it; 0 where those of one batch never are,
        as with copies of one example that are made anew in each epoch."""
        origin = self._from[: self._count]
        some = numpy.arange(0, self._count, max(1, -(-self._count // EVALUATED)))
        squares = squared_distances(trained[some], trained)
        squares[numpy.arange(len(some)), some] = numpy.inf
        near, together = squares < nearer**2 * tenth_of(squares), origin[some][:, None] == origin
        expected = float((near.sum(1) * (together.sum(1) - 1)).sum() / (self._count - 1))
        if expected >= _EXPECTED and (near & together).sum() * _GROUPED < expected:
            return 0.0
        return float(near.any(1).mean())


def nearer_by_chance(squares: Floats, pictures: bool = False, most: float = 1.0) -> tuple[float, float]:
    """Of squared distances [rows, others]: which part of the distance to the tenth nearest the nearest has in a
    twentieth of the rows by chance, in the dimensions that the fortieth nearest tells, at most `_NEARER` and `most`; in
    which share of the rows it has that part by chance. 0 and 1 where these dimensions are few."""
    nearest = numpy.partition(squares, (_TENTH - 1, _FORTIETH - 1), axis=1)
    tenth, fortieth = numpy.maximum(nearest[:, [_TENTH - 1, _FORTIETH - 1]], 0).T
    farther = float(numpy.median(numpy.log(numpy.maximum(fortieth, 1e-24) / numpy.maximum(tenth, 1e-24)))) / 2
    if not (tenth > 0).all() or farther * _MANY[pictures] > math.log(_FORTIETH / _TENTH):
        return 0.0, 1.0
    dimensions = math.log(_FORTIETH / _TENTH) / max(farther, 1e-12)
    nearer = min(most, _NEARER[pictures], (_CHANCES / _TENTH) ** (1 / dimensions))
    return nearer, _TENTH * nearer**dimensions


def tenth_of(squares: Floats) -> Floats:
    """Squared distance of each row [rows, 1] from the tenth nearest of others."""
    found: Floats = numpy.partition(squares, _TENTH - 1, axis=1)[:, _TENTH - 1 : _TENTH]
    return found


@lru_cache(maxsize=16)
def drawn_signs(width: int) -> Floats:
    """Signs [width, signs] by which rows are multiplied, over the root of the width: always the same."""
    signs: Floats = numpy.random.default_rng(width).integers(0, 2, (width, SIGNS)).astype(float)
    return (2 * signs - 1) / math.sqrt(width)


def squared_distances(rows: Floats, others: Floats) -> Floats:
    """Squared distances [rows, others]."""
    found: Floats = (rows**2).sum(1)[:, None] + (others**2).sum(1) - 2 * rows @ others.T
    return found
