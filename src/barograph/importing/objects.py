"""JSON objects as rows: which of their fields are metrics, and blocks of them.

In:   objects, nested as they may be, with the line of each.
Out:  `ImportedPoints`, `Restart`, `Fact`s of what stays the same, `Unread`.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy

from barograph.importing.axes import MISSING, SPLITS, ImportAxes, family, moment, moments, number
from barograph.importing.blocks import repeated
from barograph.importing.epochs import Epochs, column_of
from barograph.importing.source import AS_STEPS, Fact, ImportedPoints, Item, Restart, Unread

_ROWS = 4096
_DEPTH = 6
_MOST_WORDS = 500  # fields of text that are kept as configuration
_WORD_LETTERS = 500
_NUMBERS = frozenset({int, float})
_STRETCH = 16  # fewer rows are not worth an array
_FEW_BACKS, _MOST_BACK = 20, 0.02  # as in `blocks`
_RECENT = 16  # rows among which one that says the same, step and all, is another rank's


def flatten(row: Mapping[str, Any], depth: int = _DEPTH) -> dict[str, Any]:
    """An object's fields, those of inner objects joined with `/`."""
    if not any(isinstance(value, dict) for value in row.values()):
        return dict(row)
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and depth:
            flat.update((f"{name}/{inner}", cell) for inner, cell in flatten(value, depth - 1).items())
        else:
            flat[name] = value
    return flat


class ObjectRows:
    """Takes objects one after another and gives blocks of the same names. `state` is plain JSON.

    where: the file, for what is not understood.
    """

    def __init__(self, axes: ImportAxes, where: Path, state: dict[str, Any] | None = None):
        self._axes, self._where = axes, where
        state = state or {}
        self._row, self._backs = int(state.get("row", 0)), int(state.get("backs", 0))
        self._last: dict[str, int] = dict(state.get("last") or {})
        self._words: dict[str, int] = dict(state.get("words") or {})  # of each text field, what it said first
        self._told: set[str] = set(state.get("told") or ())
        self._stepped = bool(state.get("stepped"))
        self._epochs = Epochs(state.get("epochs"))
        self._prints: dict[tuple[str, ...], str] = {}
        self._groups: dict[tuple[str, ...], tuple[list[int], list[int], list[list[float]]]] = {}
        self._recent: deque[tuple[tuple[str, ...], int, tuple[float, ...]]] = deque(maxlen=_RECENT)
        self._aside = {axes.step, axes.time, axes.split} | ({axes.name, axes.value} if axes.name else set())

    @property
    def state(self) -> dict[str, Any]:
        return {
            "row": self._row, "backs": self._backs, "last": self._last, "words": self._words,
            "told": sorted(self._told), "stepped": self._stepped,
            "epochs": self._epochs.state,
        }  # fmt: skip

    def add_many(self, rows: list[dict[str, Any]], lines: list[int]) -> Iterator[Item]:
        """Objects in their order; a stretch of the same fields with nothing but numbers in them is read at once."""
        begin, size = 0, len(rows)
        while begin < size:
            names = tuple(rows[begin])
            end = begin
            # a plain stretch: the same names, whole numbers and floats
            while end < size and tuple(rows[end]) == names and {*map(type, rows[end].values())} <= _NUMBERS:
                end += 1
            block = self._stretch(names, rows[begin:end]) if end - begin >= _STRETCH else None
            if block is not None:
                yield from self.take()
                yield block
                begin = end
                continue
            for at in range(begin, max(end, begin + 1)):
                yield from self.add(rows[at], lines[at])
            begin = max(end, begin + 1)

    def plain(self, rows: list[dict[str, float]]) -> ImportedPoints | None:
        """Rows of nothing but numbers as a block; None if they have different names, or there is more to them."""
        if len(rows) < _STRETCH or len({*map(tuple, rows)}) != 1:
            return None
        return self._stretch(tuple(rows[0]), rows)

    def _stretch(self, names: tuple[str, ...], rows: list[dict[str, Any]]) -> ImportedPoints | None:
        """Rows of plain numbers as a block; None if there is more to them."""
        axes = self._axes
        if axes.name is not None or axes.split is not None or axes.step not in names:
            return None
        try:
            cells = itertools.chain.from_iterable(map(dict.values, rows))
            table = numpy.fromiter(cells, numpy.float64, len(rows) * len(names)).reshape(len(rows), len(names))
        except OverflowError:  # a whole number beyond 1e308
            return None
        counts = table[:, names.index(axes.step)]
        if not bool((numpy.isfinite(counts) & (counts == numpy.floor(counts)) & (numpy.abs(counts) < 2**53)).all()):
            return None
        steps = counts.astype(numpy.int64)
        epoch = column_of(names, axes.step)
        if epoch is not None and self._epochs.state["base"]:
            return None
        columns = [at for at, name in enumerate(names) if name not in self._aside]
        kept = tuple(names[at] for at in columns)
        last = self._last.get(self._print(kept))
        if not kept or bool((steps[1:] < steps[:-1]).any()) or (last is not None and int(steps[0]) < last):
            return None
        if epoch is not None:
            steps = self._epochs.steps(steps, table[:, names.index(epoch)])
        self._last[self._print(kept)] = int(steps[-1])
        self._row += len(rows)
        self._stepped = True
        times = numpy.zeros(len(rows), numpy.int64)
        if axes.time in names:
            times = moments(table[:, names.index(axes.time)])
        values = table[:, columns]
        if axes.x in AS_STEPS:
            fresh = ~repeated(steps, values)
            steps, times, values = steps[fresh], times[fresh], values[fresh]
        return ImportedPoints(kept, steps, times, values, axes.x)

    def add(self, row: Mapping[str, Any], line: int) -> Iterator[Item]:
        """One object."""
        flat = flatten(row)
        axes = self._axes
        time = moment(flat.get(axes.time)) if axes.time is not None else 0
        step = self._row
        if axes.step is not None:
            count = number(flat.get(axes.step))
            if count is None or count != count // 1 or abs(count) >= 2.0**63:  # NaN and infinity too
                yield from self._placeless(flat, line, time)
                return
            step, self._stepped = int(count), True
            if (epoch := column_of(flat, axes.step)) is not None:
                step = self._epochs.step(step, number(flat[epoch]), str(flat.get(axes.split)) if axes.split else "")
        values: dict[str, float] = {}
        odd: dict[str, Any] = {}
        if axes.name is not None and axes.value is not None and isinstance(flat.get(axes.name), str):
            value = number(flat.get(axes.value))
            if value is None:
                yield Unread(self._where, line, _shown(row), f"{axes.value} is not a number")
                return
            values[flat[axes.name]] = value
        else:
            for name, cell in flat.items():
                if name in self._aside:
                    continue
                if type(cell) is float:
                    values[name] = cell
                elif cell is not None:
                    value = number(cell)
                    if value is not None:
                        values[name] = value
                    else:
                        odd[name] = cell
        if odd:
            yield from self._odd(odd, line, time, step)
        if not values:
            return
        self._row += 1
        names = tuple(values)
        if axes.split is not None:
            word = family(axes.split, flat.get(axes.split))
            if word is not None:
                names = tuple(name if name.partition("/")[0] in SPLITS else f"{word}/{name}" for name in names)
        if axes.step is not None:
            said = names, step, tuple(values.values())
            if axes.x in AS_STEPS and said in self._recent:
                return
            self._recent.append(said)
            if self._goes_back(names, step):
                yield from self.take()
                yield Restart(step, time)
        steps, times, kept = self._groups.setdefault(names, ([], [], []))
        steps.append(step)
        times.append(time)
        kept.append(list(values.values()))
        if len(steps) >= _ROWS:
            yield self._block(names, *self._groups.pop(names))

    def take(self) -> Iterator[ImportedPoints]:
        """What is left."""
        for names, columns in self._groups.items():
            yield self._block(names, *columns)
        self._groups.clear()

    def _goes_back(self, names: tuple[str, ...], step: int) -> bool:
        """Whether rows of these names begin anew here; see `blocks`."""
        print_ = self._print(names)
        last = self._last.get(print_)
        if last is None and len(self._last) >= 1000:  # a table of ever new names: no order to be seen
            return False
        self._last[print_] = step
        if last is None or step >= last:
            return False
        self._backs += 1
        if self._backs > max(_FEW_BACKS, _MOST_BACK * self._row):
            return False
        self._last = {other: min(before, step) for other, before in self._last.items()}
        return True

    def _print(self, names: tuple[str, ...]) -> str:
        print_ = self._prints.get(names)
        if print_ is None:
            if len(self._prints) > 1000:
                self._prints.clear()
            print_ = self._prints[names] = f"{zlib.crc32(repr(names).encode('utf-8', 'replace')):08x}"
        return print_

    def _placeless(self, flat: dict[str, Any], line: int, time: int) -> Iterator[Item]:
        """A row that says no step: what stands before the first step describes the run."""
        if not self._stepped:
            for name, cell in flat.items():
                if isinstance(cell, (bool, int, float, str)) and name != self._axes.time:
                    yield Fact("option", 0, time, {"name": name, "value": cell})
        else:
            yield Unread(self._where, line, _shown(flat), f"a row without {self._axes.step}")

    def _odd(self, odd: dict[str, Any], line: int, time: int, step: int) -> Iterator[Item]:
        """Fields that are not numbers: text that stays the same is configuration, the rest is reported once a field."""
        for name, cell in odd.items():
            if isinstance(cell, str):
                if cell.strip().lower() in MISSING:
                    continue
                said = zlib.crc32(cell.encode("utf-8", "replace"))
                if name not in self._words and len(self._words) < _MOST_WORDS:
                    self._words[name] = said
                    yield Fact("option", step, time, {"name": name, "value": cell[:_WORD_LETTERS]})
                    continue
                if self._words.get(name) == said:
                    continue
                why = "is text that changes; what it said first is kept"
            else:
                why = "is a list" if isinstance(cell, list) else "is nested too deeply"
            if name not in self._told and len(self._told) < _MOST_WORDS:
                self._told.add(name)
                yield Unread(self._where, line, _shown({name: cell}), f"{name} {why} (in later rows too)")

    def _block(
        self, names: tuple[str, ...], steps: list[int], times: list[int], values: list[list[float]]
    ) -> ImportedPoints:
        step, when = numpy.array(steps, numpy.int64), numpy.array(times, numpy.int64)
        return ImportedPoints(names, step, when, numpy.array(values, numpy.float64), self._axes.x)


def _shown(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str)[:200]
