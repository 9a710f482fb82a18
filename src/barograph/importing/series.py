"""Long tables of (name, step, time, value) made into blocks of points, and rewinds found in them.

In:   rows in the order in which they were logged.
Out:  `ImportedPoints`, names with the same steps and times side by side, and a `Restart` where a name's step goes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.importing.source import ImportedPoints, Restart

# A run is resumed some dozen times; a name whose step goes back more often counts something else
# (batches of an epoch, several writers), and a segment each would hide all but the last.
_MOST_RESTARTS = 200

MARKS = ("barograph_offset", "barograph_wide")  # a mirror's own numbers, not the training's: mirrors/mirror.py


class SeriesCourse:
    """A run's course over its steps: which step each name has come to.

    state: what an earlier `state` returned, to go on behind it.
    """

    def __init__(self, state: Mapping[str, Any] | None = None):
        known = state or {}
        last = known.get("last")
        self._last: dict[str, int] = {
            str(name): int(step) for name, step in (last.items() if isinstance(last, Mapping) else ())
        }
        self._restarts = int(known.get("restarts", 0))

    def state(self) -> dict[str, Any]:
        """Plain values that make a course that goes on from here."""
        return {"last": dict(self._last), "restarts": self._restarts}

    def blocks(
        self, names: Sequence[str], steps: NDArray[Any], times: NDArray[Any], values: NDArray[Any]
    ) -> Iterator[ImportedPoints | Restart]:
        """Rows, one a value, in the order in which they were logged."""
        codes: dict[str, int] = {}
        column = np.fromiter((codes.setdefault(name, len(codes)) for name in names), np.int64, len(names))
        known = list(codes)
        begin = 0
        while begin < len(column):
            end = self._next_rewind(known, column, steps, begin)
            yield from self._points(known, column[begin:end], steps[begin:end], times[begin:end], values[begin:end])
            if end < len(column):
                self._last.clear()
                self._restarts += 1
                yield Restart(int(steps[end]), int(times[end]))
            begin = end

    def _next_rewind(self, known: list[str], column: NDArray[Any], steps: NDArray[Any], begin: int) -> int:
        """The first row whose step is lower than its name had before; the number of rows if there is none."""
        if self._restarts >= _MOST_RESTARTS:
            return len(column)
        order = np.argsort(column[begin:], kind="stable")
        sorted_codes, sorted_steps = column[begin:][order], steps[begin:][order]
        same = sorted_codes[1:] == sorted_codes[:-1]
        back = order[1:][same & (sorted_steps[1:] < sorted_steps[:-1])]
        first = len(column) - begin if not len(back) else int(back.min())
        starts: Any = np.concatenate([[0], np.flatnonzero(~same) + 1]) if len(order) else []
        for start in starts:
            if steps[begin + order[start]] < self._last.get(known[sorted_codes[start]], -(2**63)):
                first = min(first, int(order[start]))
        return begin + first

    def _points(
        self, known: list[str], column: NDArray[Any], steps: NDArray[Any], times: NDArray[Any], values: NDArray[Any]
    ) -> Iterator[ImportedPoints]:
        if not len(column):
            return
        order = np.argsort(column, kind="stable")
        bounds = [0, *(np.flatnonzero(np.diff(column[order])) + 1), len(order)]
        alike: dict[tuple[bytes, bytes], tuple[list[str], list[NDArray[Any]], NDArray[Any], NDArray[Any]]] = {}
        for start, stop in itertools.pairwise(bounds):
            rows = order[start:stop]
            name, own_steps, own_times = known[column[rows[0]]], steps[rows], times[rows]
            if name.startswith(MARKS):
                continue
            self._last[name] = int(own_steps[-1])
            key = (own_steps.tobytes(), own_times.tobytes())
            names, columns, _, _ = alike.setdefault(key, ([], [], own_steps, own_times))
            names.append(name)
            columns.append(values[rows])
        for names, columns, own_steps, own_times in alike.values():
            yield ImportedPoints(tuple(names), own_steps, own_times, np.column_stack(columns))
