"""Sets of names seen before: a log call finds out in a microsecond how to pack its values.

In:   the names of a log call.
Out:  the same tuple object every time for the same names, and a function that packs their values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from barograph.record import RESERVED
from barograph.values import PLAIN, text

_MOST_SHAPES = 1000  # a loop that invents names must not grow the process
_MOST_TABLES = 100


class Shape:
    """A set of names. `pack` makes little-endian doubles of that many values."""

    __slots__ = ("names", "pack", "simple", "wide")

    def __init__(self, names: tuple[str, ...], simple: bool, wide: bool):
        self.names = names
        self.pack: Callable[..., bytes] = struct.Struct(f"<{len(names)}d").pack
        self.simple = simple  # every name may stand in a record, every value was a number
        self.wide = wide  # too many names for the log file


class Shapes:
    """The sets of names of one run. `find` maps a tuple of names to its Shape, or None."""

    def __init__(self, wide_threshold: int):
        self._wide_threshold = wide_threshold
        self._known: dict[tuple[Any, ...], Shape] = {}
        self._tables: dict[tuple[Any, ...], Shape] = {}
        self.find = self._known.get

    def add(self, names: tuple[Any, ...], simple: bool, wide: bool) -> Shape:
        if len(self._known) >= _MOST_SHAPES:
            self._known.clear()
        shape = self._known[names] = Shape(names, simple, wide)
        return shape

    def remember(self, values: Mapping[Any, Any]) -> None:
        """Decide from one log call whether the next with the same names may take the short way."""
        names = tuple(values)
        simple = (
            type(values) is dict
            and all(type(name) is str and name.isprintable() for name in names)
            and all(type(value) in PLAIN for value in values.values())
            and RESERVED.isdisjoint(names)
        )
        self.add(names, simple, len(names) > self._wide_threshold)

    def of_table(self, prefix: str, table: Mapping[str, Mapping[str, float]]) -> Shape:
        """`{row: {column: value}}` has the names `prefix/row/column`."""
        key = (prefix, tuple(table), tuple(map(tuple, table.values())))
        shape = self._tables.get(key)
        if shape is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            lead = f"{text(prefix)}/" if prefix else ""
            names = tuple(f"{lead}{text(row)}/{text(column)}" for row in table for column in table[row])
            shape = self._tables[key] = Shape(names, False, True)
        return shape
