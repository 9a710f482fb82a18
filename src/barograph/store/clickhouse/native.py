"""ClickHouse's format Native: columns of one block as bytes.

In:   NumPy arrays, lists of text, arrays of arrays.
Out:  the body of an INSERT; of an answer, its columns again.

A block is the number of columns and of rows, then each column's name, type and values, without gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.core.lazy import lazy
from barograph.store.columns import Array

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

_NUMBERS = {"UInt8": "u1", "UInt32": "<u4", "UInt64": "<u8", "Int32": "<i4", "Int64": "<i8"}
_NUMBERS |= {"Float32": "<f4", "Float64": "<f8"}


def varint(number: int) -> bytes:
    """A whole number, seven bits a byte."""
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    result.append(number)
    return bytes(result)


def text(value: str | bytes) -> bytes:
    """A text with its length before it."""
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return varint(len(data)) + data


def block(rows: int, columns: Mapping[str, tuple[str, bytes]]) -> bytes:
    """A block: name → type and values, as `numbers`, `texts`, `repeated` and `lists` write them."""
    parts = [varint(len(columns)), varint(rows)]
    for name, (kind, data) in columns.items():
        parts += [text(name), text(kind), data]
    return b"".join(parts)


def numbers(kind: str, values: Any) -> tuple[str, bytes]:
    """A column of numbers."""
    return kind, np.ascontiguousarray(values, _NUMBERS[kind]).tobytes()


def constant(kind: str, value: int, rows: int) -> tuple[str, bytes]:
    """A column of one number."""
    return kind, np.array([value], _NUMBERS[kind]).tobytes() * rows


def texts(values: Iterable[str | bytes]) -> tuple[str, bytes]:
    """A column of text."""
    return "String", b"".join(map(text, values))


def repeated(values: Sequence[str], counts: Sequence[int]) -> tuple[str, bytes]:
    """A column of text in which each value stands some times in a row."""
    return "String", b"".join(text(value) * int(count) for value, count in zip(values, counts, strict=True))


def lists(values: Sequence[Array]) -> tuple[str, bytes]:
    """A column of lists of doubles."""
    ends = np.cumsum([len(value) for value in values], dtype="<u8").astype("<u8")
    flat = np.concatenate(values).astype("<f8") if len(values) else np.empty(0, "<f8")
    return "Array(Float64)", ends.tobytes() + flat.tobytes()


def arrays(kind: str, lengths: Any, values: Any) -> tuple[str, bytes]:
    """A column of lists of numbers. values: of all lists, one behind the other."""
    return f"Array({kind})", np.cumsum(lengths, dtype="<u8").tobytes() + numbers(kind, values)[1]


def number_lists(kind: str, values: Sequence[Sequence[int]]) -> tuple[str, bytes]:
    """A column of lists of numbers."""
    return f"Array({kind})", _ends(values) + b"".join(numbers(kind, each)[1] for each in values)


def text_lists(values: Sequence[Sequence[str]]) -> tuple[str, bytes]:
    """A column of lists of text."""
    return "Array(String)", _ends(values) + b"".join(text(each) for row in values for each in row)


def _ends(values: Sequence[Sequence[Any]]) -> bytes:
    return np.cumsum([len(each) for each in values], dtype="<u8").tobytes()


def columns(data: bytes) -> dict[str, Any]:
    """The columns of an answer: arrays of numbers, lists of bytes for text, lists of arrays."""
    found: dict[str, list[Any]] = {}
    at = 0
    while at < len(data):
        width, at = _varint(data, at)
        rows, at = _varint(data, at)
        for _ in range(width):
            name, at = _text(data, at)
            kind, at = _text(data, at)
            values, at = _values(data, at, kind.decode(), rows)
            found.setdefault(name.decode(), []).append(values)
    return {name: _joined(parts) for name, parts in found.items()}


def _values(data: bytes, at: int, kind: str, rows: int) -> tuple[Any, int]:
    if kind == "String":
        result = []
        for _ in range(rows):
            length, at = data[at], at + 1
            if length > 127:
                length, at = _varint(data, at - 1)
            result.append(data[at : at + length])
            at += length
        return result, at
    if kind.startswith("Array("):
        ends, at = _values(data, at, "UInt64", rows)
        flat, at = _values(data, at, kind[6:-1], int(ends[-1]) if rows else 0)
        return np.split(flat, ends[:-1].astype(np.int64)) if rows else [], at
    width = np.dtype(_NUMBERS[kind]).itemsize
    return np.frombuffer(data, _NUMBERS[kind], rows, at), at + width * rows


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _varint(data, at)
    return data[at : at + length], at + length
