"""Cells of a table that say NaN where a row has no such value, left out.

In:   the rows below one heading, each a list of names and cells: rows of the training have NaN for the validation's
      loss, and rows of the validation NaN for the training's, as pandas fills a table that was joined; or a column
      of data held out has a number in every fifth row and NaN between.
Out:  the same rows without those cells. A NaN that the training computed stays: it does not take turns.
"""

from __future__ import annotations

import itertools
from typing import Any

from barograph.core.patterns import expression

Rows = list[list[tuple[bytes, bytes]]]

_NAN = expression(rb"(?i)nan")
_HELD_OUT = expression(rb"(?i)(?:.{0,60}[^a-z])?(?:val|valid|validation|test|eval|dev)(?:[^a-z].{0,60})?")
_TURNS = 2  # rows of either kind that decide
_NUMBERS = 3  # in one distance of each other, with NaN between them
_MOST = 60  # columns that are compared with each other


def without(rows: Rows, own: dict[str, Any]) -> Rows:
    """Such rows without the cells that fill gaps; own: what the text before has shown of the columns."""
    empty = _columns(rows)
    turns = {name for name in empty if _in_turn(name, empty)} | _still(rows, own.get("turns", ()))
    far = own.setdefault("far", {})
    far |= {name.decode("utf-8", "replace"): gap for name in empty if (gap := _distance(name, empty[name]))}
    padded = turns | {name for name in empty if _longest(empty[name]) < 2 * far.get(name.decode("utf-8", "replace"), 0)}
    own["turns"] = sorted(name.decode("utf-8", "replace") for name in turns) or own.get("turns", [])
    if not padded:
        return rows
    return [[pair for pair in row if pair[0] not in padded or not _NAN.fullmatch(pair[1])] for row in rows]


def _columns(rows: Rows) -> dict[bytes, list[bool]]:
    """For each column that has a cell in every row, and NaN in some: in which rows."""
    names = [[name for name, _ in row] for row in rows]
    if not rows or len(rows[0]) > _MOST or any(one != names[0] for one in names):
        return {}
    found = {name: [_NAN.fullmatch(row[at][1]) is not None for row in rows] for at, name in enumerate(names[0])}
    return {name: said for name, said in found.items() if any(said)}


def _in_turn(name: bytes, empty: dict[bytes, list[bool]]) -> bool:
    """Whether each row that has NaN in one column has a number in another, and the other way round."""
    few = min(empty[name].count(True), empty[name].count(False))
    return few >= _TURNS and any(
        all(one is not two for one, two in zip(empty[name], said, strict=True)) for said in empty.values()
    )


def _still(rows: Rows, before: list[str] | tuple[()]) -> set[bytes]:
    """The columns that took turns before, where each row has a number in one of them."""
    names = {name.encode() for name in before}
    numbers = (any(name in names and not _NAN.fullmatch(cell) for name, cell in row) for row in rows)
    return names if names and all(numbers) else set()


def _distance(name: bytes, said: list[bool]) -> int:
    """How far from each other the rows with a number of data held out are, all of them, with NaN between; 0 for any
    other column."""
    places = [at for at, is_nan in enumerate(said) if not is_nan]
    gaps = {late - early for early, late in itertools.pairwise(places)}
    if len(places) < _NUMBERS or len(gaps) != 1 or not _HELD_OUT.fullmatch(name):
        return 0
    (gap,) = gaps
    return gap if gap > 1 and places[0] < gap and len(said) - places[-1] <= gap else 0


def _longest(said: list[bool]) -> int:
    """The most rows with NaN behind each other."""
    return max((len(list(run)) for is_nan, run in itertools.groupby(said) if is_nan), default=0)
