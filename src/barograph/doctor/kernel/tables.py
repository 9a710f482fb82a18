"""Tables of layers as they came: for each step one value a layer.

In:   channels of layers, `{family}/{layer}/{quantity}`.
Out:  rounds in log order, shared by all rules that follow the same table.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy

from barograph.core.patterns import expression
from barograph.core.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from barograph.doctor.kernel.channels import Channel, RunHistory

KEEP = 64  # rounds that stay; no rule looks further back

_shared: WeakKeyDictionary[RunHistory, dict[tuple[str, str], LayerTable]] = WeakKeyDictionary()


class LayerRound(NamedTuple):
    """One table. `value` [layers]: NaN where a layer has none, or where that is its value; `there`: which have one."""

    number: int
    step: int
    time: int
    segment: int
    value: NDArray[numpy.float64]
    there: NDArray[numpy.bool_]


class LayerTable:
    """One quantity of all layers of a family. channels: by name; earlier names stay first when more come."""

    def __init__(self, channels: Callable[[RunHistory], dict[str, Channel]]):
        self._of = channels
        self.names: list[str] = []
        self.count = 0  # rounds that there ever were
        self._channels: dict[str, Channel] = {}
        self._ends: list[int] = []
        self._rounds: deque[LayerRound] = deque()
        self._watched: list[Channel] = []  # some of those that had rows last
        self._watched_ends: list[int] = []
        self._seen_channels = -1
        self._calls = 0

    def extend(self, history: RunHistory) -> None:
        """Take what is new. Quick where nothing is."""
        if len(history.channels) != self._seen_channels:
            self._seen_channels = len(history.channels)
            self._channels = self._of(history)
            self.names = list(self._channels)
            self._ends += [0] * (len(self.names) - len(self._ends))
        elif not self.names:
            return
        else:
            self._calls += 1
            fresh = any(item.end != end for item, end in zip(self._watched, self._watched_ends, strict=True))
            if not fresh and self._calls % 64 and not history.facts.get("finished"):
                return
        found = []
        for at, channel in enumerate(self._channels.values()):
            if channel.end != self._ends[at]:
                found.append((at, channel, channel.rows(self._ends[at])))
                self._ends[at] = channel.end
        if not found:
            return
        chosen = {0, len(found) // 2, len(found) - 1}
        self._watched = [found[at][1] for at in sorted(chosen)]
        self._watched_ends = [item.end for item in self._watched]
        before = self.count
        if all(len(rows) == 1 for _, _, rows in found):
            self._one(found)
        else:
            self._many(found)
        while len(self._rounds) > KEEP + self.count - before:
            self._rounds.popleft()

    def _one(self, found: list[Any]) -> None:
        steps = {(int(rows.segment[0]), int(rows.step[0])) for _, _, rows in found}
        if len(steps) > 1:
            self._many(found)
            return
        rows = found[0][2]
        self._add(int(rows.step[0]), int(rows.time[0]), int(rows.segment[0]),
                  numpy.array([at for at, _, _ in found]), numpy.array([rows.value[0] for _, _,
                  rows in found]))  # fmt: skip

    def _many(self, found: list[Any]) -> None:
        layer = numpy.concatenate([numpy.full(len(rows), at) for at, _, rows in found])
        step, value, time, segment = (
            numpy.concatenate([getattr(rows, name) for _, _, rows in found])
            for name in ("step", "value", "time", "segment")
        )
        order = numpy.lexsort((layer, step, segment))
        edges = numpy.flatnonzero(numpy.diff(step[order]) | numpy.diff(segment[order])) + 1
        for some in numpy.split(order, edges):
            first = some[0]
            self._add(int(step[first]), int(time[first]), int(segment[first]), layer[some], value[some])

    def _add(self, step: int, time: int, segment: int, layers: Any, values: Any) -> None:
        value, there = numpy.full(len(self.names), numpy.nan), numpy.zeros(len(self.names), bool)
        value[layers], there[layers] = values, True
        self._rounds.append(LayerRound(self.count, step, time, segment, value, there))
        self.count += 1

    def rounds(self, first: int) -> Iterator[LayerRound]:
        """Rounds from number `first` on, as far as they are kept."""
        oldest = self.count - len(self._rounds)
        return islice(self._rounds, max(0, first - oldest), None)

    def before(self, current: LayerRound, most: int) -> NDArray[numpy.float64]:
        """Values [rounds, layers of `current`] of up to `most` rounds before it in its segment, oldest first.

        NaN where a layer had none.
        """
        oldest = self.count - len(self._rounds)
        low, high = max(0, current.number - most - oldest), max(0, current.number - oldest)
        earlier = [other for other in islice(self._rounds, low, high) if other.segment == current.segment]
        result = numpy.full((len(earlier), len(current.value)), numpy.nan)
        for at, other in enumerate(earlier):
            result[at, : len(other.value)] = other.value[: len(current.value)]
        return result


def table_of(history: RunHistory, family: str, quantity: str) -> LayerTable:
    """The table of that name, with all that has come."""
    tables = _shared.get(history)
    if tables is None:
        tables = _shared[history] = {}
    result = tables.get((family, quantity))
    if result is None:
        result = tables[(family, quantity)] = LayerTable(lambda seen: seen.layers(family, quantity))
    result.extend(history)
    return result


class TableReader:
    """Gives a rule each round of a table once."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], int] = {}

    def new(self, history: RunHistory, family: str, quantity: str) -> list[tuple[LayerTable, LayerRound]]:
        """The table with each of its new rounds."""
        table = table_of(history, family, quantity)
        at = self._next.get((family, quantity), 0)
        if table.count == at:
            return []
        self._next[(family, quantity)] = table.count
        return [(table, current) for current in table.rounds(at)]


_NUMBER = expression(r"\d+")


def largest_of(values: NDArray[numpy.float64], names: Sequence[str]) -> int:
    """The place of the largest value that is a number; of equals the first by name, whatever came first."""
    most = numpy.flatnonzero(values == numpy.nanmax(values))
    return min((int(at) for at in most), key=lambda at: names[at])


def role_of(layer: str) -> str:
    """The layer's name without its numbers: the same for the same layer of every block."""
    return _NUMBER.sub("*", layer)


def block_of(layer: str) -> str:
    """The layer's name up to and with its first number; the whole name where it has none."""
    match = _NUMBER.search(layer)
    return layer[: match.end()] if match else layer


def median_of(values: Any) -> Any:
    """Median of each column over the values that are finite; NaN where there is none. values: [rows, columns]."""
    values = numpy.where(numpy.isfinite(values), values, numpy.nan)
    ordered = numpy.sort(values, axis=0)  # NaN last
    count = numpy.isfinite(values).sum(axis=0)
    place = numpy.maximum(count - 1, 0) // 2
    found = ordered[place, numpy.arange(values.shape[1])] if len(values) else numpy.full(values.shape[1], numpy.nan)
    return numpy.where(count > 0, found, numpy.nan)


def in_order(names: Iterable[str]) -> list[str]:
    """Names in an order that doesn't depend on how they came: by letters, numbers by their value."""
    return sorted(
        names, key=lambda name: [(int(part), "") if part.isdigit() else (-1, part) for part in _PARTS.split(name)]
    )


_PARTS = expression(r"(\d+)")


def shown(names: list[str], most: int = 3) -> str:
    """Some names for a sentence."""
    return listed(in_order(names), most)
