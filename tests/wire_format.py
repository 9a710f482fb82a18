"""Writes protocol buffers, TFRecord files and LevelDB logs by hand, for tests of what reads them.

In:   field numbers and values; records.
Out:  bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

from barograph.importing.tfrecord import checksum


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: Any) -> bytes:
    """A field: int → varint, float → double, text and bytes → length and content."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def framed(body: bytes) -> bytes:
    """A TFRecord."""
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", checksum(head)) + body + struct.pack("<I", checksum(body))


def scalar_event(tag: str, step: int, value: float, time: float = 1.7e9) -> bytes:
    inner = field(1, tag) + b"\x15" + struct.pack("<f", value)
    return field(1, time) + (field(2, step) if step else b"") + field(5, field(1, inner))


def version_event() -> bytes:
    return field(1, 1.7e9) + field(3, "brain.Event:2")


def start_event(step: int, time: float = 1.7e9) -> bytes:
    """A `SessionLog` START: what torch's `purge_step` writes."""
    return field(1, time) + field(2, step) + field(7, field(1, 1))


def item(key: str | list[str], value: Any) -> bytes:
    """An item of W&B's history, summary or configuration."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    parts = [key] if isinstance(key, str) else key
    return b"".join(field(2, part) for part in parts) + field(16, text)


def history(step: int, row: dict[str, Any], number: int = 1) -> bytes:
    """A history record as W&B writes it."""
    items = b"".join(field(1, item(key, value)) for key, value in row.items())
    return field(1, number) + field(2, items + field(2, field(1, step)))


def leveldb_log(records: list[bytes]) -> bytes:
    """A `.wandb` file."""
    found = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        left, first = record, True
        while first or left:
            room = 32768 - len(found) % 32768
            if room < 7:
                found += b"\0" * room
                room = 32768
            piece, left = left[: room - 7], left[room - 7 :]
            kind = (1 if first else 4) if not left else (2 if first else 3)
            found += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
    return bytes(found)
