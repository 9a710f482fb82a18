"""Scalars out of TensorBoard's events, by the thousand.

In:   blocks of records (`tfrecord.Block`), each an `Event` message.
Out:  of the events that hold one scalar: tag, step, wall time and value as columns; which events hold something else.

A tag's events are alike but for the time, the step and the value, which lies at a fixed place behind the step.
So an event is read in full once for each tag; those after it are known by the bytes around the value.
Field numbers: `event.proto`, `summary.proto`, `tensor.proto` of TensorFlow (Apache-2.0).
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.importing.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    read_fields,
    read_packed_varints,
    read_text,
    read_varints,
)
from barograph.importing.tfrecord import RecordBlock

# DataType → how NumPy reads it from tensor_content. 14, bfloat16, is the upper half of a float.
CONTENT_TYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "u1", 14: "<u2", 17: "<u2", 19: "<f2",
    22: "<u4", 23: "<u8",
}  # fmt: skip
STRING_TYPE, BFLOAT16 = 7, 14
_MOST_KEYS = 100_000  # kept shapes; a file with more different ones is not what a training writes
_MOST_FORMS = 16  # places of the value among events of one length

Shape = tuple[str, int, str]  # tag, where the value begins behind the step, its NumPy type


class Tensor(NamedTuple):
    """A tensor's numbers or texts, flat, and the lengths of its axes."""

    shape: tuple[int, ...]
    values: NDArray[Any] | None
    texts: list[bytes]


class EventColumns(NamedTuple):
    """m scalars: which row of the block, the tag's number, step, microseconds since 1970, value."""

    rows: NDArray[np.int64]
    tags: NDArray[np.int64]
    steps: NDArray[np.int64]
    times: NDArray[np.int64]
    values: NDArray[np.float64]

    def part(self, which: Any) -> EventColumns:
        """Some of the scalars, by a slice or by their numbers."""
        return EventColumns(
            self.rows[which], self.tags[which], self.steps[which], self.times[which], self.values[which]
        )


class _EventBatch(NamedTuple):
    """The events of a block behind their steps: the bytes, where each goes on, and what is found: tag and value."""

    data: bytes
    view: NDArray[np.uint8]
    after: NDArray[np.int64]
    tags: NDArray[np.int64]
    values: NDArray[np.float64]


def to_microseconds(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Times of a clock; 0 where it is none (not finite, before 1970, behind 2262)."""
    sound = (seconds > 0) & (seconds < 9.2e9)
    return np.rint(np.where(sound, seconds, 0.0) * 1e6).astype(np.int64)


def widen_bfloat16(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def read_tensor(data: bytes, start: int, stop: int) -> Tensor:
    """A `TensorProto`. Raises `Malformed`; of types that are neither numbers nor text, `values` is None."""
    kind, shape, content = 0, [], (0, 0)
    numbers: list[Any] = []
    texts: list[bytes] = []
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 1 and wire == VARINT:
            kind = first
        elif number == 2 and wire == BYTES:
            for part, part_wire, a, b in read_fields(data, first, last):
                if part == 2 and part_wire == BYTES:
                    shape.append(next((v for n, w, v, _ in read_fields(data, a, b) if n == 1 and w == VARINT), 0))
        elif number == 4 and wire == BYTES:
            content = (first, last)
        elif number == 8 and wire == BYTES:
            texts.append(data[first:last])
        elif number in (5, 6) and wire in (BYTES, FIXED32, FIXED64):
            width = "<f4" if number == 5 else "<f8"
            numbers.append(np.frombuffer(data[first:last][: (last - first) // int(width[2]) * int(width[2])], width))
        elif number in (7, 10, 11, 13, 16, 17):  # int, int64, bool, half, uint32, uint64
            found = read_packed_varints(data, first, last) if wire == BYTES else [first if wire == VARINT else 0]
            whole = np.array(found, dtype=object).astype(np.int64)
            if number == 13:
                halves = (whole & 0xFFFF).astype(np.uint16)
                numbers.append(widen_bfloat16(halves) if kind == BFLOAT16 else halves.view("<f2"))
            else:
                numbers.append(whole)
    if kind == STRING_TYPE:
        return Tensor(tuple(shape), None, texts)
    if kind not in CONTENT_TYPES:
        return Tensor(tuple(shape), None, [])
    values: NDArray[Any] = np.concatenate(numbers) if numbers else np.zeros(0)
    if content[1] > content[0]:
        width = CONTENT_TYPES[kind]
        size = np.dtype(width).itemsize
        raw = data[content[0] : content[0] + (content[1] - content[0]) // size * size]
        values = np.frombuffer(raw, width)
        if kind == BFLOAT16:
            values = widen_bfloat16(values)
    count = 1
    for length in shape:
        count *= length
    # equal numbers at the end may be written once: https://github.com/tensorflow/tensorflow tensor.proto
    if 0 < len(values) < count <= 1 << 20:
        values = np.concatenate([values, np.repeat(values[-1:], count - len(values))])
    return Tensor(tuple(shape), values, [])


def read_plugin(data: bytes, start: int, stop: int) -> tuple[str, bytes]:
    """A `SummaryMetadata`: the plugin's name and its content."""
    name, content = "", b""
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 1 and wire == BYTES:
            for part, part_wire, a, b in read_fields(data, first, last):
                if part == 1 and part_wire == BYTES:
                    name = read_text(data, a, b)
                elif part == 2 and part_wire == BYTES:
                    content = data[a:b]
    return name, content


def _find_shape(data: bytes, begin: int, stop: int, others: dict[str, str]) -> Shape | None:
    """The shape of an event from behind its step on, if it is a summary of one scalar of fixed width."""
    parts = list(read_fields(data, begin, stop))
    if len(parts) != 1 or parts[0][:2] != (5, BYTES):
        return None
    values = list(read_fields(data, *parts[0][2:]))
    if len(values) != 1 or values[0][:2] != (1, BYTES):
        return None
    tag, plugin, place = "", "", None
    for number, wire, first, last in read_fields(data, *values[0][2:]):
        if number == 1 and wire == BYTES:
            tag = read_text(data, first, last)
        elif number == 2 and wire == FIXED32 and place is None:
            place = first, "<f4"
        elif number == 8 and wire == BYTES and place is None:
            place = _find_number(data, first, last)
        elif number == 9 and wire == BYTES:
            plugin = read_plugin(data, first, last)[0]
        else:
            return None
    if place is None or (plugin or others.get(tag, "scalars")) != "scalars":
        return None
    return tag, place[0] - begin, place[1]


def _find_number(data: bytes, start: int, stop: int) -> tuple[int, str] | None:
    """Where a tensor keeps its one number, and its NumPy type; None if it isn't one of fixed width."""
    kind, place = 0, None
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 1 and wire == VARINT:
            kind = first
        elif number in (4, 5, 6) and wire in (BYTES, FIXED32, FIXED64):
            if place is not None:
                return None
            place = number, first, last - first
        elif number > 3:
            return None
    if place is None or kind not in CONTENT_TYPES:
        return None
    width = CONTENT_TYPES[kind] if place[0] == 4 else ("<f4" if place[0] == 5 else "<f8")
    return (place[1], "bfloat16" if kind == BFLOAT16 else width) if place[2] == np.dtype(width).itemsize else None


class ScalarDecoder:
    """Knows the shapes of a run's scalar events. `tags[i]` is the tag whose number is i.

    others: tag → plugin, of tags known to hold something else than scalars; the caller adds to it.
    """

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.others: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        # length behind the step → the places of the value: offset, NumPy type, and what stands around it → tag
        self._forms: dict[int, list[tuple[int, str, dict[Any, int]]]] = {}
        self._keys = 0

    def number(self, tag: str) -> int:
        """A tag's number."""
        result = self._numbers.get(tag)
        if result is None:
            result = self._numbers[tag] = len(self.tags)
            self.tags.append(tag)
        return result

    def forget(self) -> None:
        """Begin anew: numbers given before mean nothing any more."""
        self.tags, self._numbers, self._forms, self._keys = [], {}, {}, 0

    def decode(self, block: RecordBlock) -> tuple[EventColumns, NDArray[np.int64]]:
        """A block's scalars, and the rows that hold something else or nothing readable."""
        view = np.frombuffer(block.data, np.uint8)
        starts, stops = block.starts, block.starts + block.lengths
        usual = np.zeros(len(starts), np.bool_)
        rows = np.flatnonzero(block.lengths > 11)
        rows = rows[view[starts[rows]] == 0x09]  # wall_time stands first
        first = starts[rows]
        seconds = np.ascontiguousarray(view[first[:, None] + np.arange(1, 9)]).view("<f8")[:, 0]
        has_step = view[first + 9] == 0x10  # left out where it is 0
        steps, after, good = read_varints(view, np.where(has_step, first + 10, first + 9), stops[rows])
        steps[~has_step] = 0
        after[~has_step] = first[~has_step] + 9
        good |= ~has_step
        good &= after < stops[rows]
        good[good] = view[after[good]] == 0x2A  # then a summary
        rows, after = rows[good], after[good]
        times, whole_steps = to_microseconds(seconds[good]), steps[good].view(np.int64)
        tags = np.full(len(rows), -1, np.int64)
        values = np.zeros(len(rows))
        events = _EventBatch(block.data, view, after, tags, values)
        lengths = stops[rows] - after
        order = np.argsort(lengths, kind="stable")
        cuts = np.flatnonzero(np.diff(lengths[order])) + 1
        for group in np.split(order, cuts) if len(order) else ():
            self._read_group(events, int(lengths[group[0]]), group)
        known = tags >= 0
        usual[rows[known]] = True
        columns = EventColumns(rows[known], tags[known], whole_steps[known], times[known], values[known])
        return columns, np.flatnonzero(~usual)

    def _read_group(self, events: _EventBatch, length: int, group: NDArray[np.int64]) -> None:
        """Tags and values of the events that are `length` bytes long behind their step."""
        data, view, after, tags, values = events
        forms = self._forms.setdefault(length, [])
        for form in forms:
            group = _match(events, length, group, form)
        left = []
        for index in group.tolist():
            begin = int(after[index])
            try:
                shape = _find_shape(data, begin, begin + length, self.others)
            except Malformed:
                shape = None
            if shape is None:
                continue
            tag, offset, width = shape
            size = _size(width)
            place = next((form for form in forms if form[:2] == (offset, width)), None)
            if place is None:
                if len(forms) >= _MOST_FORMS:
                    continue
                place = (offset, width, {})
                forms.append(place)
            if self._keys >= _MOST_KEYS:
                for table in (form[2] for several in self._forms.values() for form in several):
                    table.clear()
                self._keys = 0
            head = data[begin : begin + offset]
            key = head if offset + size == length else (head, data[begin + offset + size : begin + length])
            if key not in place[2]:
                place[2][key] = self.number(tag)
                self._keys += 1
            tags[index] = place[2][key]
            left.append((index, place))
        for place in forms:
            mine = np.array([index for index, item in left if item is place], np.int64)
            if len(mine):
                values[mine] = _take_values(view, after[mine] + place[0], place[1])


def _match(
    events: _EventBatch, length: int, group: NDArray[np.int64], form: tuple[int, str, dict[Any, int]]
) -> NDArray[np.int64]:
    """Give the events of one form their tags and values; those that are left."""
    data, view, after, tags, values = events
    offset, width, table = form
    size = _size(width)
    begins = after[group]
    keys: Any = map(data.__getitem__, map(slice, begins.tolist(), (begins + offset).tolist()))
    if offset + size < length:
        tails = map(slice, (begins + offset + size).tolist(), (begins + length).tolist())
        keys = zip(keys, map(data.__getitem__, tails), strict=True)
    found = np.fromiter(map(table.get, keys, repeat(-1)), np.int64, len(group))
    hit = found >= 0
    mine = group[hit]
    tags[mine] = found[hit]
    values[mine] = _take_values(view, begins[hit] + offset, width)
    return group[~hit]


def _size(width: str) -> int:
    """Bytes of a number."""
    return 2 if width == "bfloat16" else np.dtype(width).itemsize


def _take_values(view: NDArray[np.uint8], places: NDArray[np.int64], width: str) -> NDArray[np.float64]:
    """The numbers at n places."""
    kind = "<u2" if width == "bfloat16" else width
    raw = np.ascontiguousarray(view[places[:, None] + np.arange(np.dtype(kind).itemsize)]).view(kind)[:, 0]
    with np.errstate(invalid="ignore"):  # a NaN that signals is a NaN
        return (widen_bfloat16(raw) if width == "bfloat16" else raw).astype(np.float64)
