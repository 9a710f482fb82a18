"""The wire format of protocol buffers: a message's fields, read without a schema and without a library.

In:   bytes of a message, or many messages at once.
Out:  field numbers and where their values lie; whole numbers, also by the thousand.

Every length is checked against the message's end, so a damaged message is `Malformed` and never a long read.
Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_DOUBLE = struct.Struct("<d").unpack_from
_FLOAT = struct.Struct("<f").unpack_from


class Malformed(ValueError):
    """The bytes are not a message."""


def read_varint(data: bytes, position: int, stop: int) -> tuple[int, int]:
    """The whole number at `position` (0 … 2⁶⁴ − 1) and where it ends."""
    value = shift = 0
    while position < stop:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift >= 70:  # ten bytes hold 64 bits
            break
    raise Malformed("a number does not end")


def read_fields(data: bytes, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """A message's fields in their order: number, wire type, and two whole numbers.

    They are the value and 0 for `VARINT`, else where the value begins and ends in `data`.
    Raises `Malformed` where the message is damaged; the fields before it have been given.
    """
    position = start
    stop = len(data) if stop is None else stop
    while position < stop:
        key = data[position]
        position += 1
        if key >= 0x80:
            key, position = read_varint(data, position - 1, stop)
        wire = key & 7
        if wire == BYTES:
            length = data[position] if position < stop else 0x80
            position += 1
            if length >= 0x80:
                length, position = read_varint(data, position - 1, stop)
            end = position + length
        elif wire == VARINT:
            value, position = read_varint(data, position, stop)
            yield key >> 3, wire, value, 0
            continue
        elif wire == FIXED32:
            end = position + 4
        elif wire == FIXED64:
            end = position + 8
        else:
            raise Malformed(f"wire type {wire} is not in use")
        if end > stop or key < 8:
            raise Malformed("a field is longer than its message" if key >= 8 else "a field has the number 0")
        yield key >> 3, wire, position, end
        position = end


def signed(value: int) -> int:
    """A varint's value as a number of 64 bits with a sign (int32, int64)."""
    return value - (1 << 64) if value >= 1 << 63 else value


def read_double(data: bytes, position: int) -> float:
    return float(_DOUBLE(data, position)[0])


def read_float(data: bytes, position: int) -> float:
    return float(_FLOAT(data, position)[0])


def read_text(data: bytes, start: int, stop: int) -> str:
    return data[start:stop].decode("utf-8", "replace")


def read_packed_varints(data: bytes, start: int, stop: int) -> list[int]:
    """The numbers of a packed field of whole numbers, with their signs."""
    result = []
    while start < stop:
        value, start = read_varint(data, start, stop)
        result.append(signed(value))
    return result


def read_timestamp(data: bytes, start: int, stop: int) -> int:
    """A `google.protobuf.Timestamp` as microseconds since 1970."""
    seconds = nanoseconds = 0
    for number, wire, value, _ in read_fields(data, start, stop):
        if wire == VARINT and number == 1:
            seconds = signed(value)
        elif wire == VARINT and number == 2:
            nanoseconds = signed(value)
    moment = seconds * 1_000_000 + nanoseconds // 1000
    return moment if 0 <= moment < 1 << 62 else 0


def read_value(data: bytes, start: int, stop: int, depth: int = 0) -> Any:
    """A `google.protobuf.Value`: None, a number, a text, true or false, a dict or a list."""
    if depth > 32:
        raise Malformed("values are nested too deeply")
    result: Any = None
    for number, wire, first, last in read_fields(data, start, stop):
        if number == 2 and wire == FIXED64:
            result = read_double(data, first)
        elif number == 3 and wire == BYTES:
            result = read_text(data, first, last)
        elif number == 4 and wire == VARINT:
            result = bool(first)
        elif number == 5 and wire == BYTES:
            result = read_mapping(data, first, last, depth + 1)
        elif number == 6 and wire == BYTES:
            result = [read_value(data, a, b, depth + 1) for n, w, a, b in read_fields(data, first, last) if w == BYTES]
    return result


def read_mapping(data: bytes, start: int, stop: int, depth: int = 0) -> dict[str, Any]:
    """A `map<string, google.protobuf.Value>` in field 1, which is also a `google.protobuf.Struct`."""
    result: dict[str, Any] = {}
    for number, wire, first, last in read_fields(data, start, stop):
        if number != 1 or wire != BYTES:
            continue
        key, value = "", None
        for part, part_wire, a, b in read_fields(data, first, last):
            if part_wire == BYTES and part == 1:
                key = read_text(data, a, b)
            elif part_wire == BYTES and part == 2:
                value = read_value(data, a, b, depth + 1)
        result[key] = value
    return result


def read_varints(
    data: NDArray[np.uint8], positions: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.bool_]]:
    """n whole numbers that begin at n positions: their values, where they end, and which are whole.

    Where one is not whole before its stop, its value means nothing and its end is its stop.
    """
    count = len(positions)
    if count and bool((positions < stops).all()):
        first = data[positions]
        if not (first & 0x80).any():  # most numbers are below 128
            return first.astype(np.uint64), positions + 1, np.ones(count, np.bool_)
    at = positions.astype(np.int64, copy=True)
    values = np.zeros(count, np.uint64)
    good = np.zeros(count, np.bool_)
    left = np.flatnonzero(at < stops)
    for shift in range(0, 70, 7):
        if not len(left):
            break
        bytes_here = data[at[left]].astype(np.uint64)
        values[left] |= (bytes_here & np.uint64(0x7F)) << np.uint64(shift)
        at[left] += 1
        ended = bytes_here < 0x80
        good[left[ended]] = True
        left = left[~ended]
        left = left[at[left] < stops[left]]
    at[~good] = stops[~good]
    return values, at, good
