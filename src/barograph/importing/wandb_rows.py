"""Rows of W&B's history out of many records at once.

In:   a batch of records and where their history (or summary) messages lie.
Out:  the messages' items as columns: which row, which key, where its value stands; numbers by key and row.

An item is a key and a value in JSON. W&B writes a row's items in any order, so items are found side by side in
all rows, a step of all rows at a time, and sorted by key afterwards.
Field numbers: `wandb_internal.proto` of W&B (MIT), the same from 0.10 to 0.31.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.importing.protobuf import (
    BYTES,
    FIXED64,
    VARINT,
    Malformed,
    read_double,
    read_fields,
    read_text,
    read_varints,
    signed,
)

_FEW = 32  # rows; below this a loop is faster than columns
_DIGITS = np.zeros(256, np.bool_)
_DIGITS[list(b"0123456789-NI")] = True  # a number's first byte; NaN and Infinity stand bare
_MOST_KEYS = 200_000
_LONGEST_JSON = 4 << 20  # bytes of one value; no number, histogram or text of a training is longer
_MOST_CELLS = 4 << 20  # of a table of keys and rows: 36 MB
NOTHING = np.zeros(0, np.int64)


class Items(NamedTuple):
    """Items that are one key and one JSON value each: row, key's number, where the value begins and ends.

    others: (row, key's parts, value) of items that are nested or typed.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    others: list[tuple[int, tuple[str, ...], Any]]

    def without(self, keys: list[int]) -> Items:
        """The items of other keys."""
        kept = np.flatnonzero(~np.isin(self.keys, keys))
        return Items(self.rows[kept], self.keys[kept], self.starts[kept], self.stops[kept], self.others)


class WandbKeys:
    """Keys and their numbers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._prints = np.zeros(0, np.uint64)  # fingerprints of keys seen, in order, and the keys' numbers
        self._printed = NOTHING

    def number(self, key: bytes) -> int:
        result = self._numbers.get(key)
        if result is None:
            result = self._numbers[key] = len(self.names)
            self.names.append(key.decode("utf-8", "replace"))
        return result

    def many(self, data: bytes, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of n keys in `data`."""
        if not len(starts):
            return NOTHING
        prints = _fingerprints(data, starts, stops)
        result = np.full(len(prints), -1, np.int64)
        if len(self._prints):
            place = np.minimum(np.searchsorted(self._prints, prints), len(self._prints) - 1)
            result = np.where(self._prints[place] == prints, self._printed[place], -1)
        left = np.flatnonzero(result < 0)
        if len(left):
            every, first, which = np.unique(prints[left], return_index=True, return_inverse=True)
            new = [self.number(data[int(starts[index]) : int(stops[index])]) for index in left[first].tolist()]
            result[left] = np.array(new, np.int64)[which]
            order = np.argsort(both := np.concatenate([self._prints, every]), kind="stable")
            self._prints, self._printed = both[order], np.concatenate([self._printed, np.array(new, np.int64)])[order]
        return result

    def shrink(self) -> None:
        """Forget all, if they are more than a training has; numbers given before mean nothing then."""
        if len(self.names) > _MOST_KEYS:
            self.__init__()  # type: ignore[misc]


def _fingerprints(data: bytes, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 bits of each of n stretches, by which their contents are distinguished."""
    words = np.ndarray((max(len(data) - 7, 0),), "<u8", data, strides=(1,))  # eight bytes from every byte on
    if not len(words):
        return np.array([hash(data[a:b]) & 0x7FFFFFFF for a, b in zip(starts, stops, strict=True)], np.uint64)
    lengths = stops - starts
    result = lengths.astype(np.uint64)
    left = np.arange(len(starts))
    at = starts
    with np.errstate(over="ignore"):
        while len(left):
            if len(left) == len(starts) and int(at.max()) < len(words):
                word = words[at]
                size = np.minimum(stops - at, 8).astype(np.uint64)
                word &= np.uint64(0xFFFFFFFFFFFFFFFF) >> ((np.uint64(8) - size) * np.uint64(8))
                result = (result ^ word) * np.uint64(0x9E3779B97F4A7C15)
                result ^= result >> np.uint64(29)
                at = at + 8
                left = np.flatnonzero(at < stops)
                continue
            places = np.minimum(at[left], len(words) - 1)
            late = (at[left] - places).astype(np.uint64)
            size = np.minimum(stops[left] - at[left], 8).astype(np.uint64)
            word = words[places] >> (late * np.uint64(8))
            word &= np.uint64(0xFFFFFFFFFFFFFFFF) >> ((np.uint64(8) - size) * np.uint64(8))
            mixed = (result[left] ^ word) * np.uint64(0x9E3779B97F4A7C15)
            result[left] = mixed ^ (mixed >> np.uint64(29))
            at = at + 8
            left = left[at[left] < stops[left]]
    return result


def last_of_each(data: bytes, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of n stretches, which is the last one of those that say the same."""
    return len(starts) - 1 - np.unique(_fingerprints(data, starts, stops)[::-1], return_index=True)[1]


def read_spans(
    data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64], fields: tuple[int, ...]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """For each of some messages (1 … 15): which records hold it right behind their number, where it begins and ends."""
    view = np.frombuffer(data, np.uint8)
    rows = np.flatnonzero(lengths > 2)
    at, stops = starts[rows], (starts + lengths)[rows]
    numbered = view[at] == 0x08
    behind = read_varints(view, at + 1, stops)[1]
    at = np.where(numbered, behind, at)
    good = at < stops
    rows, at, stops = rows[good], at[good], stops[good]
    kinds = view[at]
    sizes, begins, whole = read_varints(view, at + 1, stops)
    whole &= sizes <= (stops - begins).astype(np.uint64)
    result = []
    for field in fields:
        mine = np.flatnonzero(whole & (kinds == (field << 3 | BYTES)))
        result.append((rows[mine], begins[mine], begins[mine] + sizes[mine].astype(np.int64)))
    return result


def read_items(
    data: bytes, starts: NDArray[np.int64], stops: NDArray[np.int64], keys: WandbKeys
) -> tuple[Items, NDArray[np.int64], list[tuple[int, str]]]:
    """The items of n history or summary messages, the rows' own steps (-1: none), and what was damaged: row, why."""
    view = np.frombuffer(data, np.uint8)
    steps = np.full(len(starts), -1, np.int64)
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    wrong: list[tuple[int, str]] = []
    active = np.flatnonzero(starts < stops)
    at = starts.copy()
    while len(active) >= _FEW:
        kinds = view[at[active]]
        sizes, begins, good = read_varints(view, at[active] + 1, stops[active])
        good &= sizes <= (stops[active] - begins).astype(np.uint64)
        ends = begins + np.where(good, sizes, 0).astype(np.int64)
        item = good & (kinds == 0x0A)
        found.append((active[item], begins[item], ends[item]))
        step = good & (kinds == 0x12) & (ends > begins)
        if step.any():
            step[step] = view[begins[step]] == 0x08
            steps[active[step]] = read_varints(view, begins[step] + 1, ends[step])[0].view(np.int64)
        usual = item | step | (good & (kinds == 0x12))
        for index in active[~usual].tolist():
            _read_rest(data, int(at[index]), int(stops[index]), index, found, steps, wrong)
        at[active] = ends
        active = active[usual]
        active = active[at[active] < stops[active]]
    for index in active.tolist():
        _read_rest(data, int(at[index]), int(stops[index]), index, found, steps, wrong)
    rows, begins, ends = (np.concatenate(column) for column in zip(*found, strict=True)) if found else (NOTHING,) * 3
    return _split_items(data, view, rows, begins, ends, keys, wrong), steps, wrong


def _read_rest(
    data: bytes, start: int, stop: int, row: int, found: list[Any], steps: NDArray[np.int64], wrong: list[Any]
) -> None:
    """One row's items from `start` on, in a loop."""
    begins, ends = [], []
    try:
        for number, wire, first, last in read_fields(data, start, stop):
            if number == 1 and wire == BYTES:
                begins.append(first)
                ends.append(last)
            elif number == 2 and wire == BYTES:
                steps[row] = next((signed(v) for n, w, v, _ in read_fields(data, first, last) if (n, w) == (1, 0)), -1)
    except Malformed as error:
        wrong.append((row, str(error)))
    if begins:
        found.append((np.full(len(begins), row, np.int64), np.array(begins, np.int64), np.array(ends, np.int64)))


def _split_items(
    data: bytes,
    view: NDArray[np.uint8],
    rows: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    keys: WandbKeys,
    wrong: list[tuple[int, str]],
) -> Items:
    """Items into key and value: those of one key and a JSON text by columns, the others in a loop."""
    plain = np.flatnonzero(ends - begins > 6)
    first = view[begins[plain]]
    plain = plain[(first == 0x0A) | (first == 0x12)]
    sizes, key_starts, good = read_varints(view, begins[plain] + 1, ends[plain])
    good &= sizes <= (ends[plain] - key_starts).astype(np.uint64)
    plain, key_starts = plain[good], key_starts[good]
    key_stops = key_starts + sizes[good].astype(np.int64)
    good = key_stops + 2 < ends[plain]
    good[good] = (view[key_stops[good]] == 0x82) & (view[key_stops[good] + 1] == 0x01)  # value_json, field 16
    plain, key_starts, key_stops = plain[good], key_starts[good], key_stops[good]
    sizes, starts, good = read_varints(view, key_stops + 2, ends[plain])
    good &= starts.astype(np.uint64) + sizes == ends[plain].astype(np.uint64)
    plain, starts = plain[good], starts[good]
    numbers = keys.many(data, key_starts[good], key_stops[good])
    left = np.ones(len(rows), np.bool_)
    left[plain] = False
    others = []
    for index in np.flatnonzero(left).tolist():
        try:
            path, value = _read_item(data, int(begins[index]), int(ends[index]))
        except Malformed as error:
            wrong.append((int(rows[index]), str(error)))
        else:
            others.append((int(rows[index]), path, value))
    return Items(rows[plain], numbers, starts, ends[plain], others)


def _read_item(data: bytes, start: int, stop: int) -> tuple[tuple[str, ...], Any]:
    """A `HistoryItem`, `SummaryItem`, `ConfigItem` or `StatsItem`: its key's parts and its value."""
    path: list[str] = []
    value: Any = None
    for number, wire, first, last in read_fields(data, start, stop):
        if number in (1, 2) and wire == BYTES:
            path.append(read_text(data, first, last))
        elif number == 4 and wire == VARINT:
            value = bool(first)
        elif number == 5 and wire == VARINT:
            value = (first >> 1) ^ -(first & 1)  # zigzag
        elif number == 6 and wire == FIXED64:
            value = read_double(data, first)
        elif number == 7 and wire == BYTES:
            value = read_text(data, first, last)
        elif number in (8, 16) and wire == BYTES:
            value = parse_json(data[first:last])
    return tuple(path), value


def read_update(data: bytes, start: int, stop: int, field: int = 1) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The items of one message of few. Raises `Malformed`."""
    for number, wire, first, last in read_fields(data, start, stop):
        if number == field and wire == BYTES:
            yield _read_item(data, first, last)


def parse_json(text: bytes) -> Any:
    """The value in a JSON text, NaN and Infinity too; the text itself if it is none."""
    if len(text) > _LONGEST_JSON:
        return {"_type": f"text of more than {_LONGEST_JSON >> 20} MB"}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.decode("utf-8", "replace")


def take_numbers(data: bytes, items: Items) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which items are numbers, and the values of those."""
    view = np.frombuffer(data, np.uint8)
    some = items.stops > items.starts
    number = some.copy()
    number[some] = _DIGITS[view[items.starts[some]]]
    try:
        return number, _take_plain(view, items.starts[number], items.stops[number])
    except ValueError:  # NaN, or something that begins like a number and is none
        starts, stops = items.starts[number].tolist(), items.stops[number].tolist()
        places, values = np.flatnonzero(number).tolist(), []
        for place, start, stop in zip(places, starts, stops, strict=True):
            try:
                values.append(float(data[start:stop]))
            except ValueError:
                number[place] = False
        return number, np.array(values, np.float64)


def _take_plain(view: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.float64]:
    """The numbers of n JSON texts, put into one list and decoded at once. Raises ValueError."""
    if not len(starts):
        return np.zeros(0)
    import msgspec

    sizes = stops - starts + 1  # a comma behind each
    ends = np.cumsum(sizes)
    text = view[np.repeat(starts - ends + sizes, sizes) + np.arange(ends[-1])]
    text[ends - 1] = 0x2C
    text[-1] = 0x5D
    values = msgspec.json.decode(b"[" + text.tobytes(), type=list[float])
    if len(values) != len(starts):
        raise ValueError("a comma in a number")
    return np.array(values, np.float64)


def group_columns(
    rows: NDArray[np.int64], keys: NDArray[np.int64], values: NDArray[np.float64]
) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.float64]]]:
    """Keys that the same rows have, together: n keys, m rows going up, values m × n. Each key comes once.

    Of a key that a row has twice, the last one counts.
    """
    if not len(rows):
        return
    used = np.flatnonzero(np.bincount(keys))
    height = int(rows.max()) + 1
    together: dict[bytes, list[tuple[int, NDArray[np.float64]]]] = {}
    if len(used) * height <= _MOST_CELLS:
        place = np.zeros(int(used[-1]) + 1, np.int64)
        place[used] = np.arange(len(used))
        at = place[keys]
        table = np.zeros((len(used), height))
        there = np.zeros((len(used), height), np.bool_)
        table[at, rows] = values
        there[at, rows] = True
        for number, key in enumerate(used.tolist()):
            its_rows = np.flatnonzero(there[number])
            together.setdefault(its_rows.tobytes(), []).append((key, table[number][its_rows]))
    else:  # many keys that few rows have
        order = np.lexsort((rows, keys))
        rows, keys, values = rows[order], keys[order], values[order]
        kept = np.append((np.diff(rows) != 0) | (np.diff(keys) != 0), True)
        rows, keys, values = rows[kept], keys[kept], values[kept]
        begins = np.flatnonzero(np.append(True, np.diff(keys) != 0))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(rows)], strict=True):
            together.setdefault(rows[begin:end].tobytes(), []).append((int(keys[begin]), values[begin:end]))
    for which, columns in together.items():
        yield (
            [key for key, _ in columns],
            np.frombuffer(which, np.int64),
            np.stack([item for _, item in columns], axis=1),
        )
