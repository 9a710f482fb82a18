"""A W&B run's history as points, histograms and facts.

In:   the history and summary messages of one batch of records.
Out:  `ImportedPoints` of rows of the same keys, `ImportedDistribution`, `Fact`, `Unread`; the steps of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.importing.media import make_media, make_table, read_beside
from barograph.importing.source import Fact, ImportedDistribution, ImportedPoints, Item, Unread
from barograph.importing.wandb_axes import WandbAxes, unit_of, whole_steps
from barograph.importing.wandb_rows import WandbKeys, group_columns, last_of_each, parse_json, read_items, take_numbers

# W&B's own columns of a row
_INTERNAL = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_MOST_SEEN = 5_000  # names kept in a mark
_MOST_FILES = 256  # images of one value
_LONGEST_TEXT = 1 << 16  # characters of a text in a row

Spans = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # records; where each begins and ends


class HistoryRows(NamedTuple):
    """n rows: the record of each, its step, microseconds since 1970."""

    records: NDArray[np.int64]
    steps: NDArray[np.int64]
    times: NDArray[np.int64]


def make_histogram(value: Mapping[str, Any], name: str, step: int, time: int) -> ImportedDistribution | None:
    """W&B's `{"_type": "histogram", "values": counts, "bins": edges}` or `packedBins`: min, size, count."""
    try:
        counts = np.array(value["values"], np.float64)
        if "bins" in value:
            edges = np.array(value["bins"], np.float64)
        else:
            packed = value["packedBins"]
            if packed["count"] != len(counts):
                return None
            edges = packed["min"] + packed["size"] * np.arange(len(counts) + 1, dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if counts.ndim != 1 or not len(counts) or edges.shape != (len(counts) + 1,) or not np.isfinite(edges).all():
        return None
    if (np.diff(edges) < 0).any() or not np.isfinite(counts).all() or (counts < 0).any():
        return None
    return ImportedDistribution(name, step, time, edges, counts)


def flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A row's nested values by W&B's names: joined by dots. Typed ones (`_type`) stay whole."""
    waiting: list[tuple[str, Any]] = [(prefix, value)]
    while waiting:
        name, item = waiting.pop()
        if isinstance(item, Mapping) and "_type" not in item and name.count(".") < 20:
            waiting += [(f"{name}.{key}" if name else str(key), below) for key, below in reversed(list(item.items()))]
        else:
            yield name, item


class History:
    """A run's history, batch by batch. `seen` names have rows; `summary` has values of those that may have none."""

    def __init__(self, file: Path, axes: WandbAxes, seen: list[str], summary: dict[str, Any]):
        self.axes = axes
        self.seen = set(seen)
        self.summary = summary
        self.passed: dict[str, tuple[int, int]] = {}  # _type → how many, and the first one's step
        self._file = file
        self._keys = WandbKeys()
        self._last_own = 0

    @property
    def names(self) -> list[str]:
        """Names that have rows, for a mark."""
        return sorted(self.seen)[:_MOST_SEEN]

    def read(self, data: bytes, spans: Spans, where: int) -> Iterator[Item | HistoryRows]:
        """A batch's rows as items; last the rows themselves. where: the batch's place in the file, for messages."""
        records, starts, stops = spans
        self._keys.shrink()
        items, own, wrong = read_items(data, starts, stops, self._keys)
        if len(own) and (own >= 0).all():  # the row's own message has it
            items = items.without([self._keys.number(name) for name in (b"_step", b"_runtime")])
        for row, why in wrong[:3]:
            begin = int(starts[row])
            yield Unread(self._file, where, data[begin : begin + 80].decode("latin-1"), f"a row is damaged: {why}")
        is_number, values = take_numbers(data, items)
        rows, keys = items.rows[is_number], items.keys[is_number]
        nested: dict[int, dict[str, Any]] = {}
        other = ~is_number
        names = self._keys.names
        for row, key, start, stop in zip(
            *(column[other].tolist() for column in (items.rows, items.keys, items.starts, items.stops)), strict=True
        ):
            nested.setdefault(row, {})[names[key]] = parse_json(data[start:stop])
        for row, path, value in items.others:
            _plant(nested.setdefault(row, {}), path, value)
        more, rest = self._sort_nested(nested)
        if more:
            rows = np.concatenate([rows, np.array([item[0] for item in more], np.int64)])
            keys = np.concatenate([keys, np.array([item[1] for item in more], np.int64)])
            values = np.concatenate([values, np.array([item[2] for item in more], np.float64)])
        yield from self._read_rows(records, own, rows, keys, values, rest)

    def _sort_nested(
        self, nested: dict[int, dict[str, Any]]
    ) -> tuple[list[tuple[int, int, float]], list[tuple[int, str, Any]]]:
        """Values that are not plain numbers, as row, key, number, and those that are none: row, name, value."""
        numbers, rest = [], []
        for row, tree in sorted(nested.items()):
            for name, value in flatten(tree):
                if isinstance(value, str):
                    value = _WORDS.get(value, value)
                if isinstance(value, (bool, int, float)):
                    try:
                        numbers.append((row, self._keys.number(name.encode("utf-8", "replace")), float(value)))
                    except OverflowError:
                        rest.append((row, name, str(value)))
                elif value is not None and name not in _INTERNAL and not name.startswith("_wandb"):
                    rest.append((row, name, value))
        return numbers, rest

    def _read_rows(
        self,
        records: NDArray[np.int64],
        own: NDArray[np.int64],
        rows: NDArray[np.int64],
        keys: NDArray[np.int64],
        values: NDArray[np.float64],
        rest: list[tuple[int, str, Any]],
    ) -> Iterator[Item | HistoryRows]:
        names, number = self._keys.names, self._keys.number
        mine = keys == number(b"_timestamp")
        times = np.zeros(len(records), np.int64)
        sound = (values[mine] > 0) & (values[mine] < 9.2e9)
        times[rows[mine]] = np.where(sound, np.rint(np.where(sound, values[mine], 0) * 1e6), 0).astype(np.int64)
        mine = keys == number(b"_step")
        counted = np.full(len(records), -1, np.int64)
        sound = (values[mine] >= 0) & (values[mine] < 2**62)
        counted[rows[mine]] = np.where(sound, values[mine], -1).astype(np.int64)
        own = np.where(own >= 0, own, counted)
        # a row without a step belongs to the one before it
        own = np.maximum.accumulate(np.where(own >= 0, own, self._last_own)) if (own < 0).any() else own
        if len(own):
            self._last_own = int(own[-1])
        internal = np.array([number(name.encode()) for name in _INTERNAL], np.int64)
        kept = ~np.isin(keys, internal)
        rows, keys, values = rows[kept], keys[kept], values[kept]
        self.axes.choose({names[key] for key in np.unique(keys).tolist()})
        steps = own
        if self.axes.column:
            chosen = keys == number(self.axes.column.encode())
            order = np.argsort(rows[chosen], kind="stable")
            found = self._follow(rows[chosen][order], values[chosen][order], own)
            if found is None:
                why = f"{self.axes.column!r} goes back or is not a whole number: steps are W&B's own from here on"
                yield Unread(self._file, 0, self.axes.column, why)
                self.axes.refuse()
            else:
                steps = found
        if len(steps):
            self.axes.last = int(steps[-1])
        said: dict[str, NDArray[np.float64]] = {}  # step metric → its value in each row, NaN where a row has none
        for name in {*self.axes.defined.values(), *self.axes.globs.values()}:
            mine = keys == number(name.encode())
            said[name] = np.full(len(records), np.nan)
            said[name][rows[mine]] = values[mine]
        for its_keys, its_rows, its_values in group_columns(rows, keys, values):
            its_names = [names[key] for key in its_keys]
            self.seen.update(its_names if len(self.seen) < 20 * _MOST_SEEN else ())
            axes = {name: column[its_rows] for name, column in said.items()}
            yield from self._split_axes(its_names, steps[its_rows], times[its_rows], its_values, axes)
        yield from self._other_values(rest, steps, times)
        yield HistoryRows(records, steps, times)

    def _follow(
        self, rows: NDArray[np.int64], values: NDArray[np.float64], own: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Every row's step by the run's step column; a row without it has that of the row before."""
        if not len(rows):
            return np.full(len(own), self.axes.last) if self.axes.last else own
        whole = whole_steps(values)
        if whole is None or whole[0] < self.axes.last or (np.diff(whole) < 0).any():
            return None
        steps = np.full(len(own), self.axes.last, np.int64)
        if not self.axes.last:
            steps = np.minimum(own, whole[0])
        place = np.searchsorted(rows, np.arange(len(own)), side="right") - 1
        steps[place >= 0] = whole[place[place >= 0]]
        return steps

    def _split_axes(
        self,
        names: list[str],
        steps: NDArray[np.int64],
        times: NDArray[np.int64],
        values: NDArray[np.float64],
        axes: dict[str, NDArray[np.float64]],
    ) -> Iterator[ImportedPoints]:
        """Columns of one set of rows, by the step metric that each name has and that all of the rows have."""
        groups: dict[str, list[int]] = {}
        for column, name in enumerate(names):
            said = self.axes.step_of(name)
            groups.setdefault(said if said not in (self.axes.column, name) else "", []).append(column)
        for said, columns in groups.items():
            its_steps, unit = steps, "step"
            whole = whole_steps(axes[said]) if said and unit_of(said) else None
            if whole is not None:
                its_steps, unit = whole, unit_of(said)
            some = values if len(columns) == len(names) else np.ascontiguousarray(values[:, columns])
            yield ImportedPoints(tuple(names[column] for column in columns), its_steps, times, some, unit)

    def _other_values(
        self, rest: list[tuple[int, str, Any]], steps: NDArray[np.int64], times: NDArray[np.int64]
    ) -> Iterator[Item]:
        """Histograms; texts and lists as facts; images, sound and tables by their files; what has none is counted."""
        texts: dict[int, dict[str, Any]] = {}
        for row, name, value in rest:
            step, time = int(steps[row]), int(times[row])
            if isinstance(value, Mapping):
                kind = str(value.get("_type", "value"))
                if kind == "histogram":
                    distribution = make_histogram(value, name, step, time)
                    yield distribution if distribution else Unread(self._file, 0, name, f"no histogram, in step {step}")
                elif facts := self._media(kind, name, value, step, time):
                    yield from facts
                else:
                    count, first = self.passed.get(kind, (0, step))
                    self.passed[kind] = count + 1, first
            else:
                if len(self.seen) < 20 * _MOST_SEEN:
                    self.seen.add(name)
                texts.setdefault(row, {})[name] = value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for row, fields in texts.items():
            yield Fact("metrics", int(steps[row]), int(times[row]), fields)

    def _media(self, kind: str, name: str, value: Mapping[str, Any], step: int, time: int) -> list[Fact]:
        """Images, sound, tables and other files that a value names, where they lie beside the log."""
        folder = self._file.parent if self._file.is_file() else self._file
        captions = value.get("captions")
        named = value.get("filenames") if kind.endswith("/separated") else [value.get("path")]
        paths: list[Any] = named[:_MOST_FILES] if isinstance(named, list) else []
        found = []
        for at, path in enumerate(paths):
            content = read_beside(folder / "files", path)
            if content is None:
                continue
            if kind == "table-file":
                fact = make_table(name, content, step, time)
            else:
                caption = captions[at] if isinstance(captions, list) and at < len(captions) else value.get("caption")
                index = at if len(paths) > 1 else None
                fact = make_media(name, content, step, time, caption, Path(path).suffix, index)
            found += [fact] if fact is not None else []
        return found

    def read_summary(self, data: bytes, spans: Spans, history: Spans) -> None:
        """Keep the last values of names that no row has."""
        _, starts, stops = spans = _without_echoes(data, spans, history)
        # W&B repeats the same few bytes with each row: its own runtime
        kept = (stops - starts) >= 200
        short = np.flatnonzero(~kept)
        kept[short[last_of_each(data, starts[short], stops[short])]] = True
        items, _, _ = read_items(data, starts[kept], stops[kept], self._keys)
        names = self._keys.names
        last = dict(zip(items.keys.tolist(), range(len(items.keys)), strict=True))  # the last one of each key
        for key, place in last.items():
            name = names[key]
            if name not in self.seen and not name.startswith("_") and len(self.summary) < _MOST_SEEN:
                self._keep(name, parse_json(data[int(items.starts[place]) : int(items.stops[place])]))
        for _, path, value in items.others:
            name = ".".join(path)
            if path and name not in self.seen and not name.startswith("_") and len(self.summary) < _MOST_SEEN:
                self._keep(name, value)

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) < 1000):
            self.summary[name] = value

    def summary_fields(self) -> dict[str, Any]:
        """What the summary alone has, by name; not the parts of tables and pictures."""
        typed = {name.rpartition(".")[0] for name in self.summary if name.endswith("._type")}
        return {
            f"summary/{name}": value
            for name, value in self.summary.items()
            if name not in self.seen and name.rpartition(".")[0] not in typed
        }


def _without_echoes(data: bytes, spans: Spans, history: Spans) -> Spans:
    """Summary messages less those that say what the row in the next record says, in an order of their own.

    Such a one is as long as the row's items, behind which the row has its step and nothing else.
    """
    records, starts, stops = spans
    if not len(records) or not len(history[0]):
        return spans
    view = np.frombuffer(data, np.uint8)
    place = np.minimum(np.searchsorted(history[0], records + 1), len(history[0]) - 1)
    left = history[2][place] - history[1][place] - (stops - starts)  # bytes of the row behind the same count
    echo = (history[0][place] == records + 1) & (left >= 2) & (left < 64)
    behind = history[2][place[echo]] - left[echo]
    # a HistoryStep of `left - 2` bytes; at most 62, so its length is one byte
    echo[echo] = (view[behind] == 0x12) & (view[behind + 1] == left[echo] - 2)
    return records[~echo], starts[~echo], stops[~echo]


def _plant(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a value at a path of keys."""
    for part in path[:-1][:30]:
        below = tree.get(part)
        if not isinstance(below, dict):
            below = tree[part] = {}
        tree = below
    if path:
        tree[path[-1]] = value
