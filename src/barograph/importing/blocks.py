"""Columns with gaps as blocks without gaps, in order, with restarts where the steps go back.

In:   steps, times and columns of a stretch of a table; where a row has no value of a column.
Out:  `ImportedPoints` and `Restart`.

A table begins anew where rows that have the same columns as rows before go back in their steps. A row of other
columns may come late: an evaluation of an earlier step, a test at the end with step 0. A row that says the same as the
one before it, step and all, is that of another rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy
from numpy.typing import NDArray

from barograph.importing.source import ImportedPoints, Restart

_MOST_PATTERNS = 64  # sets of names in one stretch; beyond, a block for each column
_MOST_BACK = 0.02  # a table whose steps go back more often than in this share of rows is not in their order
_FEW_BACKS = 20


class Order:
    """How far the steps of each set of columns have come, over all stretches of a table. `state` is plain JSON."""

    def __init__(self, state: dict[str, Any] | None = None):
        state = state or {}
        self._last: dict[str, int] = dict(state.get("last") or {})
        self._rows, self._backs = int(state.get("rows", 0)), int(state.get("backs", 0))

    @property
    def state(self) -> dict[str, Any]:
        return {"last": self._last, "rows": self._rows, "backs": self._backs}

    def cuts(self, steps: NDArray[numpy.int64], which: NDArray[Any], kinds: list[str]) -> list[int]:
        """The rows at which the table begins anew, [] where its rows are in no order.

        which: the number of each row's set of columns in `kinds`.
        """
        found: list[tuple[int, int]] = []  # the row that goes back, and the row of its kind before it (-1: earlier)
        for number, kind in enumerate(kinds):
            rows = numpy.flatnonzero(which == number)
            mine = steps[rows]
            if len(rows) and kind in self._last and mine[0] < self._last[kind]:
                found.append((int(rows[0]), -1))
            found += [(int(rows[at + 1]), int(rows[at])) for at in numpy.flatnonzero(numpy.diff(mine) < 0)]
            if len(rows):
                self._last[kind] = int(mine[-1])
        if len(self._last) > _MOST_PATTERNS:
            self._last = {kind: self._last[kind] for kind in kinds[:_MOST_PATTERNS] if kind in self._last}
        cuts: list[int] = []
        for row, before in sorted(found):
            if not cuts or before >= cuts[-1]:  # else it went back with the restart that is known already
                cuts.append(row)
        if cuts:  # what other columns had before the restart is past
            step = int(steps[cuts[-1]])
            seen = {kinds[number] for number in set(which[cuts[-1] :].tolist())}
            self._last = {kind: last if kind in seen else min(last, step) for kind, last in self._last.items()}
        self._rows += len(steps)
        self._backs += len(cuts)
        return [] if self._backs > max(_FEW_BACKS, _MOST_BACK * self._rows) else cuts


def repeated(steps: NDArray[Any], values: NDArray[Any], given: NDArray[Any] | None = None) -> NDArray[numpy.bool_]:
    """Which rows say the same as the row before. steps m; values m × n; given: which of the values there are."""
    result = numpy.zeros(len(steps), bool)
    alike = values[1:] == values[:-1]
    if given is not None:
        alike = (alike & given[1:] & given[:-1]) | ~(given[1:] | given[:-1])
    result[1:] = (steps[1:] == steps[:-1]) & alike.all(axis=1)
    return result


def split(
    names: tuple[str, ...],
    steps: NDArray[numpy.int64],
    times: NDArray[numpy.int64],
    values: NDArray[numpy.float64],
    given: NDArray[numpy.bool_],
    x: str,
    order: Order | None,
) -> Iterator[ImportedPoints | Restart]:
    """Rows as blocks. names n; steps, times m; values, given m × n: which of the values there are."""
    if not len(steps) or not names:
        return
    if bool(given.all()):
        which, kinds = numpy.zeros(len(steps), numpy.intp), ["ff"]
        columns = [numpy.arange(len(names))]
    else:
        packed, back = numpy.unique(numpy.packbits(given, axis=1), axis=0, return_inverse=True)
        which = back.ravel()
        kinds = [
            "ff" if bits.all() else row.tobytes().hex()
            for row, bits in zip(packed, _bits(packed, len(names)), strict=True)
        ]
        columns = [numpy.flatnonzero(bits) for bits in _bits(packed, len(names))]
    # in the order of their first rows: of two names for one series the one that comes first has it
    turns = numpy.argsort(numpy.unique(which, return_index=True)[1]).tolist()
    cuts = order.cuts(steps, which, kinds) if order is not None and len(kinds) <= _MOST_PATTERNS else []
    for begin, end in itertools.pairwise([*sorted({0, *cuts}), len(steps)]):
        if begin in cuts:
            yield Restart(int(steps[begin]), int(times[begin]))
        if len(kinds) > _MOST_PATTERNS:
            for column, name in enumerate(names):
                rows = begin + numpy.flatnonzero(given[begin:end, column])
                if len(rows):
                    yield ImportedPoints((name,), steps[rows], times[rows], values[rows, column : column + 1], x)
            continue
        for number in turns:
            chosen = columns[number]
            rows = begin + numpy.flatnonzero(which[begin:end] == number)
            if len(rows) and len(chosen):
                mine = tuple(names[column] for column in chosen)
                yield ImportedPoints(mine, steps[rows], times[rows], values[numpy.ix_(rows, chosen)], x)


def _bits(packed: NDArray[Any], width: int) -> NDArray[numpy.bool_]:
    return numpy.unpackbits(packed, axis=1)[:, :width].astype(bool)
