"""The records that rules ask for beside the numbers, out of logs of millions of lines.

In:   a log file.
Out:  its events, in the order logged. One pass over the bytes; a line is decoded if it begins as an event does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from barograph.core.record import Record, decode
from barograph.doctor.kernel.facts import EVENTS, RARE, is_event
from barograph.log.read import WHITE, records_of

_PIECE = 1 << 20  # bytes; what fits a processor's cache is read and searched twice as fast as 32 MB
_HEAD = b'{"log":"'
_ALWAYS = tuple(_HEAD + kind.encode() + b'"' for kind in EVENTS)
_RARE = {_HEAD + kind.encode() + b'"': [b'"%s":' % name.encode() for name in fields] for kind, fields in RARE.items()}
_HEADS = (*_ALWAYS, *_RARE)


def events_of(path: Path) -> Iterator[Record]:
    """Events of one log file. A log of another form than ours is read whole, once."""
    with open(path, "rb") as file:
        if _HEAD not in file.read(64):
            yield from (record for record, _ in records_of(path, (*EVENTS, *RARE)) if is_event(record))
            return
        offset, size, parse = 0, _PIECE, msgspec.json.Decoder().decode
        while True:
            file.seek(offset)
            piece = file.read(size)
            last = len(piece) < size
            whole = len(piece) if last else piece.rfind(b"\n") + 1
            if not whole and not last:  # a line longer than the piece
                size *= 2
                continue
            for line in _lines(piece, whole):
                try:
                    record = decode(parse(line))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
                if is_event(record):
                    yield record
            if last:
                return
            offset += whole


def _lines(piece: bytes, end: int) -> Iterator[bytes]:
    """Lines of the first `end` bytes that may be events, without the comma and bracket behind them."""
    at, find, begins = 0, piece.find, piece.startswith
    if begins((b"[", b" ", b",")):
        at = max(find(_HEAD), 0)
    while at < end:
        stop = find(b"\n", at, end)
        stop = end if stop < 0 else stop
        if begins(_HEADS, at):
            line = piece[at:stop].rstrip(b"]" + WHITE).rstrip(b"," + WHITE)
            if begins(_ALWAYS, at) or any(
                line.startswith(head) and any(name in line for name in names) for head, names in _RARE.items()
            ):
                yield line
        at = stop + 1
