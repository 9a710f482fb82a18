"""The records in a log file: whole, torn, damaged, or just being written.

In:   the path or the bytes of a JSON array of records.
Out:  what is whole in it, in order; a sentence about a file that is not a log.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from barograph.core.record import Record, decode_own, restore_non_finite
from barograph.log.parts import KIND as PART
from barograph.log.parts import Joiner, joined

WHITE = b" \t\r\n\0"  # a file system may show zeros after a power loss

_ARRAY_END, _RECORD_END = b"]" + WHITE, b"," + WHITE
_PART_HEAD = b'{"log":"part"'

_LONG_LINE = 2048  # bytes of a line on which more records than one may stand
_NEXT = re.compile(rb'\}\s*,\s*(?=\{\s*"log"\s*:)')
_NESTED = 8  # places in one line's record that look like the next record's beginning
_WINDOW = 1 << 20  # bytes of a record over several lines
_SHORT_WINDOW = 1 << 14  # of one among others on a line

_decode_strict = msgspec.json.Decoder(dict[str, Any]).decode
_BARE = re.compile(rb"(?<=[:,\[\s])([-+]?(?:nan|inf|infinity))(?=\s*[,}\]])", re.IGNORECASE)


def _decode_json(text: bytes) -> dict[str, Any]:
    """A JSON object; also of programs that write nan and inf as they print them."""
    try:
        return _decode_strict(text)
    except msgspec.DecodeError:
        quoted = _BARE.sub(_quoted, text)
        if quoted == text:
            raise
        return _decode_strict(quoted)


def _quoted(match: re.Match[bytes]) -> bytes:
    word = match[1].lower()
    sign = b"-" if word[:1] == b"-" else b""
    return b'"NaN"' if word.endswith(b"nan") else b'"' + sign + b'Infinity"'


class LogFileError(ValueError):
    """The file can't be used as a log; the message says why and what to do."""


class LogFileBusy(LogFileError):
    """Another process writes this log."""


def refuse_foreign(path: Path, head: bytes, whole: bool) -> None:
    text = head.lstrip(WHITE + b"\xef\xbb\xbf")
    advice = "move it away or choose another log_file"
    if not text.startswith(b"["):
        shown = text[:20].decode("utf-8", "replace")
        raise LogFileError(f"{path} is not a training log (it starts with {shown!r}); {advice}")
    first = text[1:].lstrip(WHITE)
    if not first or first[:1] == b"]":
        return
    block = next(scan(b"[" + first), None)
    if block is None:
        # a torn first record is ours if it starts as ours do; otherwise it is somebody else's
        if first.startswith(b"{") and (b'"log"' in first[:200] or not whole):
            return
        if first.startswith(b"{") and b'"log"'.startswith(first[1:].strip()[:5]):
            return
        raise LogFileError(f"{path} is a JSON array, but not of log records; {advice}")
    if "log" not in block[0]:
        raise LogFileError(f'{path} is a JSON array, but its entries have no "log" field; {advice}')


def is_record(text: bytes) -> bool:
    try:
        _decode_json(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# -- reading ------------------------------------------------------------------------------------


def is_log(path: Path) -> bool:
    """Whether a file looks like a log: a JSON array of records, whole or torn."""
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    try:
        refuse_foreign(path, head, whole=path.stat().st_size <= len(head))
    except LogFileError:
        return False
    return True


def read_log(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a log file as dictionaries, NaN and infinities floats again.

    Reads a file that is being written, torn or damaged: what is whole comes back, in order.
    """
    data = Path(path).read_bytes()
    for _ in range(3):
        try:
            parsed = msgspec.json.decode(data)
            break
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            time.sleep(0.002)  # perhaps a write was just going on
            data = Path(path).read_bytes()
    else:
        return [restore_non_finite(item) for item in joined(item for item, _ in scan(data))]
    if not isinstance(parsed, list):
        raise LogFileError(f"{path} is not a training log: it holds no JSON array")
    return [restore_non_finite(item) for item in joined(item for item in parsed if isinstance(item, dict))]


def records_from(path: str | os.PathLike[str], offset: int = 0) -> Iterator[tuple[Record, int]]:
    """The records behind byte `offset` (a record's end, or 0), each with the offset of its own end."""
    joiner = Joiner()
    with open(path, "rb") as file:
        while True:
            chunk, more = read_stable(file.fileno(), offset, 8 << 20)
            base, used = offset, 0
            for item, used in scan(chunk):
                whole = joiner.add(item)
                if whole is not None:
                    yield decode_own(whole), base + used
            if not used:
                if not more:
                    return
                used = len(chunk)  # 8 MB without a whole record: not ours
            offset = base + used


def records_of(
    path: str | os.PathLike[str], kinds: Collection[str], fields: Collection[str] = (), start: int = 0
) -> Iterator[tuple[Record, int]]:
    """The records of some kinds, each with the offset of its end: `records_from` for logs of millions of steps.

    Only lines that begin as ours do and hold such a kind are decoded; a log of another form is read whole.
    fields: only records with one of these. start: the end of a record; only those behind it.
    """
    named = tuple(b'"%s":' % name.encode() for name in fields)
    heads = tuple(b'{"log":"%s"' % kind.encode() for kind in (*kinds, PART))
    of = tuple(b'"of":"%s"' % kind.encode() for kind in kinds)
    joiner = Joiner()
    with open(path, "rb") as file:
        if b'{"log":"' not in file.read(64):
            for record, end in records_from(path, start):
                if record.kind in kinds and (not fields or not record.fields.keys().isdisjoint(fields)):
                    yield record, end
            return
        offset = start
        while True:
            chunk, more = read_stable(file.fileno(), offset, 32 << 20)
            whole = chunk.rfind(b"\n") + 1 if more else len(chunk)
            if not whole:
                return
            for at in _lines_of(chunk[:whole], heads):
                line = chunk.find(b"\n", at)
                line = len(chunk) if line < 0 else line
                text = chunk[at:line].rstrip(_ARRAY_END).rstrip(_RECORD_END)
                is_part = text.startswith(_PART_HEAD)
                if is_part and not any(kind in text[:300] for kind in of):
                    continue
                if named and not is_part and not any(name in text for name in named):
                    continue
                try:
                    item = joiner.add(_decode_json(text))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
                if item is not None and (not is_part or not fields or not item.keys().isdisjoint(fields)):
                    yield decode_own(item), offset + at + len(text)
            if not more:
                return
            offset += whole


def read_stable(file: int, offset: int, size: int) -> tuple[bytes, bool]:
    """A log's bytes, of which more may be written just now, and whether as many as were asked for stand there.

    A read takes one page after the other. Between two of them the writer may have filled up the first and gone on to
    the second: what it wrote to the first would be missed. It writes in order, so all that stands before the last
    record of a first read is there in a second.
    """
    first = os.pread(file, size, offset)
    known = len(first.rstrip(_ARRAY_END))
    return os.pread(file, known, offset) if known else first, len(first) == size


def _lines_of(data: bytes, heads: tuple[bytes, ...]) -> list[int]:
    """Where lines begin that start with one of the heads, in order."""
    found = []
    for head in heads:
        at = data.find(head)
        while at >= 0:
            if not at or data[at - 1] in b"\n[, ":
                found.append(at)
            at = data.find(head, at + 1)
    return sorted(found)


def scan(data: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """Every whole JSON object in an array's bytes, with the offset of its end; damage is stepped over."""
    at, line, size = 0, -1, len(data)
    effort = _WINDOW + 20 * size  # bytes that may be looked at again, so that damage takes no more than linear time
    while True:
        at = data.find(b"{", at)
        if at < 0:
            return
        if line < at:
            # our own records stand on one line; older logs spread some over several, other programs write one line
            line = data.find(b"\n", at)
            line = size if line < 0 else line
        item = None
        for stop in _stops(data, at, line):
            text = data[at:stop]
            # the rest of a page may be blank
            text = text[:-1] if text.endswith(b"},") else text.rstrip(_ARRAY_END).rstrip(_RECORD_END)
            try:
                item = _decode_json(text)
                break
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                effort -= len(text)
            if effort < 0:
                break
        if item is not None:
            at += len(text)
            yield item, at
            continue
        following = _NEXT.search(data, at, line)
        window = min(size - at, _WINDOW if following is None else _SHORT_WINDOW)
        found = _raw_decode(data, at, window) if effort > 0 else None
        if found is None:
            effort -= window
            at = line if following is None else following.end()  # go on with the next record
            continue
        yield found[0], found[1]
        at = found[1]


def _stops(data: bytes, at: int, line: int) -> Iterator[int]:
    """Where a record that begins at `at` may end: at the line's end, or before what looks like the next one on it."""
    if line - at <= _LONG_LINE:
        yield line
    stop = at
    for _ in range(_NESTED):
        following = _NEXT.search(data, stop, line)
        if following is None:
            break
        stop = following.end()
        yield following.start() + 1
    else:
        return
    if line - at > _LONG_LINE:
        yield line


_raw = json.JSONDecoder()


def _raw_decode(data: bytes, at: int, window: int) -> tuple[dict[str, Any], int] | None:
    """An object that starts at `at` and may span lines; None if it is not whole."""
    try:
        text = data[at : at + window].decode("utf-8", "surrogateescape")
        item, end = _raw.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(item, dict):
        return None
    return item, at + len(text[:end].encode("utf-8", "surrogateescape"))
