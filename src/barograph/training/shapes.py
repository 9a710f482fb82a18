"""Sets of names seen before: a log call finds out in a microsecond how to write its values.

In:   the names of a log call.
Out:  the same tuple object every time for the same names, a function that packs their values, the values last seen.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from barograph.core.record import RESERVED
from barograph.core.values import PLAIN, text

_MOST_SHAPES = 200  # a loop that invents names must not grow the process
_MOST_NAMES = 50_000  # of all shapes together
_MANY_NAMES = 10_000  # new ones, from which on it is said
_MOST_TABLES = 100
STEP_NAMES = ("step", "global_step", "train/global_step", "trainer/global_step", "iter", "iteration")
"""Names under which loops put the step into the values themselves; the first that is there counts."""


def step_name(names: Collection[Any]) -> str | None:
    """Which of the names, if any, is the step's."""
    return next((name for name in STEP_NAMES if name in names), None)


class Shape:
    """A set of names. `pack` makes little-endian doubles of that many values."""

    __slots__ = ("drawn", "last", "names", "pack", "simple", "step_name", "wide")

    def __init__(self, names: tuple[str, ...], simple: bool, wide: bool):
        self.names = names
        self.pack: Callable[..., bytes] = struct.Struct(f"<{len(names)}d").pack
        self.simple = simple  # every name is allowed in a record, every value was a number
        self.wide = wide  # too many names for the log file
        self.drawn = False  # the console has a line for it
        self.last: Any = None  # step and values written last, these as JSON or as a mapping
        self.step_name = step_name(names)


class Shapes:
    """The sets of names of one run. `find` maps a tuple of names to its Shape, or None.

    warn: told once when more new names come than a run can mean."""

    def __init__(self, wide_threshold: int, warn: Callable[[str], None] = lambda sentence: None):
        self._wide_threshold = wide_threshold
        self._warn = warn
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._tables: dict[tuple[Any, ...], Shape] = {}
        self._names = 0  # of all shapes in memory
        self._different: set[int] | None = set()  # hashes of the first names; None once it was said
        self.find = self._shapes.get

    def add(self, names: tuple[Any, ...], simple: bool, wide: bool) -> Shape:
        """Remember a set of names."""
        if len(self._shapes) >= _MOST_SHAPES or self._names + len(names) > _MOST_NAMES:
            self._shapes.clear()
            self._names = 0
        self._names += len(names)
        if self._different is not None:
            self._count(names)
        shape = self._shapes[names] = Shape(names, simple, wide)
        return shape

    def _count(self, names: tuple[Any, ...]) -> None:
        """Names are counted one call at a time; a single call with very many is meant so."""
        assert self._different is not None
        if len(names) >= _MANY_NAMES:
            return
        self._different.update(map(hash, names))
        if len(self._different) > _MANY_NAMES:
            self._different = None
            self._warn(
                f"more than {_MANY_NAMES:,} different names have been logged, such as {text(names[0])[:80]!r} and "
                f"{text(names[-1])[:80]!r}; a name that contains a step or sample number creates a series for each"
            )

    def remember(self, values: Mapping[Any, Any]) -> Shape:
        """Decide from one log call whether the next with the same names may take the short way."""
        names = tuple(values)
        simple = (
            type(values) is dict
            and all(type(name) is str and name.isprintable() for name in names)
            and all(type(value) in PLAIN for value in values.values())
            and RESERVED.isdisjoint(names)
        )
        return self.add(names, simple, len(names) > self._wide_threshold)

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

    def rewind(self, step: int) -> None:
        """Forget values of this step and later ones."""
        for shape in self._shapes.values():
            if shape.last and shape.last[0] >= step:
                shape.last = None

    def lasts(self) -> list[Any]:
        """Step and values written last of every set of names, in the order of the steps."""
        return sorted((shape.last for shape in self._shapes.values() if shape.last), key=lambda last: last[0])
