"""The records in a JSON log of any age, with where each begins and ends, and what could not be read.

In:   bytes of a log file.
Out:  whole records, and damaged stretches.

Besides our own logs these are Surogate's and llmq's. Their writers escape nothing, so a quote, a backslash or a
line break in a message breaks the record; llmq writes a bare `nan`. Both are repaired where only one reading is
possible; what is left is damage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

_BETWEEN = re.compile(rb"[\s,\[\]\x00]*")
_WHITE = b" \t\r\n\0"
_MOST_LINES = 400  # a record of Surogate's over several lines: ten values a line
_MOST_BYTES = 4 << 20
BARE = re.compile(r"(?<=[:,\[\s])([+-]?)(nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
# a text at the record's end, as every message, option and path of theirs is
_LAST_TEXT = re.compile(r'(\{.*?"(?:message|value|text|path|cmd|name|phase|type)"\s*:\s*")(.*)("\s*\})', re.DOTALL)
_STARTS = re.compile(rb'\s*\{\s*"log"\s*:')
_NEXT = re.compile(rb'\}[ \t]*,[ \t]*(?=\{\s*"log"\s*:)')  # the next record on the same line

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_lines = msgspec.json.Decoder(dict[str, Any]).decode_lines
_loads = json.JSONDecoder(strict=False)  # line breaks inside a text


class JsonPiece(NamedTuple):
    """A record, or None for damage; bytes `start` to `end` of the data."""

    item: dict[str, Any] | None
    start: int
    end: int


def whole_records(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The records at the beginning of the data if they are undamaged, one a line, and where the last one ends.

    All at once or none: `pieces` looks at the rest one by one.
    """
    match = _BETWEEN.match(data)
    begin = match.end() if match else 0
    end = data.rfind(b"},\n", begin) + 1
    if not end:
        return [], 0
    text = data[begin:end].replace(b"},\n", b"}\n")
    try:
        records = _decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [], 0
    if len(records) != text.count(b"\n") + 1 or any(type(record.get("log")) is not str for record in records):
        return [], 0
    return records, end


def pieces(data: bytes, last: bool, begin: int = 0) -> Iterator[JsonPiece]:
    """What is in the data from `begin` on, in order.

    last: nothing follows; else what may be torn at the end waits for the rest.
    """
    at, size = begin, len(data)
    effort = [(1 << 20) + 20 * size]  # bytes that repairs may look at: damage of thousands of lines costs no minutes
    while True:
        match = _BETWEEN.match(data, at)
        at = match.end() if match else at
        if at >= size:
            return
        line = data.find(b"\n", at)
        stop = size if line < 0 else line
        following = _NEXT.search(data, at, stop)
        text = data[at : following.start() + 1 if following else stop].rstrip(b"]" + _WHITE).rstrip(b"," + _WHITE)
        item = _quick(text)
        if item is None and following and effort[0] > 0:  # nested, or in need of repair
            item, text = _first(data[at : min(stop, at + _MOST_BYTES)], text, effort)
        if item is not None:
            yield JsonPiece(item, at, at + len(text))
            at += len(text)
            continue
        piece = _slow(data, at, effort)
        if following and (piece is None or piece.item is None):
            piece = JsonPiece(None, at, following.end())
        if piece is None:
            if line < 0 and last and len(text) < _MOST_BYTES:
                return  # torn: its end may still come
            if not last and size - at < _MOST_BYTES:
                return
            piece = JsonPiece(None, at, stop)
        yield piece
        at = piece.end


def _quick(text: bytes) -> dict[str, Any] | None:
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _first(line: bytes, text: bytes, effort: list[int]) -> tuple[dict[str, Any] | None, bytes]:
    """The first of several records on a line, with its bytes. text: up to where the next one seems to begin."""
    effort[0] -= len(line)
    try:
        plain = line.decode()
        item, end = _loads.raw_decode(plain)
    except (ValueError, RecursionError):
        return _repair(text), text
    return (item if isinstance(item, dict) else None), plain[:end].encode()


def _slow(data: bytes, at: int, effort: list[int]) -> JsonPiece | None:
    """A record over several lines, or one that needs repair; damage; None if it may not be there whole.

    effort: what is left of it; without any a record is sought on its own line alone.
    """
    if data[at : at + 1] != b"{":
        stop = data.find(b"\n", at)
        return JsonPiece(None, at, stop) if stop >= 0 else None
    stop = at
    for _ in range(_MOST_LINES):
        line = data.find(b"\n", stop)
        closed = line if line >= 0 else len(data)
        text = data[at:closed].rstrip(b"]" + _WHITE).rstrip(b"," + _WHITE)
        if text.endswith(b"}"):
            effort[0] -= len(text)
            if (item := _repair(text)) is not None:
                return JsonPiece(item, at, at + len(text))
            if effort[0] < 0 and line >= 0:
                return JsonPiece(None, at, line)
        if line < 0 or closed - at > _MOST_BYTES:
            break
        if _STARTS.match(data, line):  # the next record begins: this one never ended
            return JsonPiece(None, at, line)
        stop = line + 1
    else:
        return JsonPiece(None, at, data.find(b"\n", at))
    return None


def _repair(text: bytes) -> dict[str, Any] | None:
    """The record in a text that is not JSON, if there is one way to read it."""
    plain = text.decode("utf-8", "replace")
    for attempt in (plain, BARE.sub(r'"\1\2"', plain)):
        try:
            item, end = _loads.raw_decode(attempt)
        except (ValueError, RecursionError):
            continue
        if isinstance(item, dict) and not attempt[end:].strip():
            return item
    if plain.count('"log"') > 1:  # two records ran into each other
        return None
    match = _LAST_TEXT.fullmatch(BARE.sub(r'"\1\2"', plain))
    if match is None:
        return None
    inner = match[2].replace("\\", "\\\\").replace('"', '\\"')
    try:
        item, _ = _loads.raw_decode(match[1] + inner + match[3])
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None
