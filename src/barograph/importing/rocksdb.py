"""RocksDB databases, read as they lie on disk: sorted tables, the log of what is not sorted yet, the manifest.

In:   a database's folder, closed, killed, or open in another process.
Out:  its keys and values in the order of keys, what was deleted or replaced left out.

Nothing is locked and nothing is written. Some megabytes are in memory at a time: tables are merged as they are
read. The formats are those of RocksDB's sources: table/format.cc, table/block_based/block.h, db/log_format.h,
db/version_edit.cc, db/write_batch.cc, db/dbformat.h.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_TABLE_MAGIC = 0x88E241B785F4CFF7
_FOOTER_BYTES = 53  # checksum's kind, two handles padded to 40 bytes, version, magic
_TRAILER_BYTES = 5  # compression and checksum behind each block
_MOST_BLOCK = 256 << 20  # bytes a block may have unpacked
_LOG_BLOCK = 32768
_MOST_TRIES = 30  # to see the files of a live database while none of them moves
_DELETED, _VALUE, _SINGLE_DELETED, _RANGE_DELETED = 0, 1, 7, 15
_CODECS = {1: "snappy", 2: "zlib", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}

Entry = tuple[bytes, int, int, bytes]  # key, minus its sequence number, kind, value: sorts newest first
Damage = Callable[[Path, int, str], None]


class DamageError(ValueError):
    """Bytes that are not what the format says."""


class _Table(NamedTuple):
    level: int
    number: int
    smallest: bytes


class _RangeDeletion(NamedTuple):
    begin: bytes
    end: bytes
    sequence: int


def items(folder: Path, damage: Damage) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, sorted by key. `damage` is called for each file and place that can't be read."""
    with contextlib.ExitStack() as stack:
        files = _snapshot(folder, stack, damage)
        deletions: list[_RangeDeletion] = []
        for streams in files.levels.values():
            for stream in streams:
                with contextlib.suppress(OSError, DamageError):  # told when the table's entries are read
                    _range_deletions(stream, deletions)
        logs: list[Entry] = []
        for file, data in files.logs:
            try:
                for record in _records(data):
                    logs += _batch(record, deletions)
            except DamageError as error:
                damage(file, 0, str(error))
        logs.sort()
        yield from _merged(logs, files.levels, deletions, damage)


class _Files(NamedTuple):
    """The files of one moment: tables by level in the order of keys, and what is in the logs.

    Tables are open, so that a writer that deletes one doesn't take it away. The logs hold a megabyte or two, as
    Aim's buffers do.
    """

    levels: dict[int, list[BinaryIO]]
    logs: list[tuple[Path, bytes]]


def _snapshot(folder: Path, stack: contextlib.ExitStack, damage: Damage) -> _Files:
    """A writer moves data from logs into tables and from tables into others: look until nothing has moved."""
    for attempt in range(_MOST_TRIES):
        told: list[tuple[Path, int, str]] = []
        state = _manifest(folder, told)
        files = _Files({}, [])
        for table in sorted(state[0], key=lambda table: table.smallest):
            file = folder / f"{table.number:06d}.sst"
            try:
                stream = open(file, "rb")  # noqa: SIM115  closed with the others
            except OSError as error:
                told.append((file, 0, error.strerror or str(error)))
                continue
            stack.callback(stream.close)
            files.levels.setdefault(table.level, []).append(stream)
        for file in sorted(folder.glob("*.log")):
            if file.stem.isdigit() and int(file.stem) >= state[1]:
                try:
                    files.logs.append((file, file.read_bytes()))
                except OSError as error:
                    told.append((file, 0, error.strerror or str(error)))
        if _manifest(folder, []) == state:
            for place in told:
                damage(*place)
            return files
        stack.close()
        time.sleep(0.01 * attempt)
    damage(folder, 0, "it changes faster than it can be read; nothing was taken this time")
    return _Files({}, [])


def _merged(
    logs: list[Entry], levels: dict[int, list[BinaryIO]], deletions: list[_RangeDeletion], damage: Damage
) -> Iterator[tuple[bytes, bytes]]:
    streams: list[Iterator[Entry]] = [iter(logs)]
    for level, files in levels.items():
        entries = [_entries(file, damage) for file in files]
        streams += [itertools.chain.from_iterable(entries)] if level else entries  # but for 0 they don't overlap
    previous = None
    deletions.sort(reverse=True)  # the one that begins first is at the end
    active: list[_RangeDeletion] = []  # those that the keys have come to: Aim deletes around each key it writes
    for key, minus_sequence, kind, value in heapq.merge(*streams):
        if key == previous:
            continue
        previous = key
        while deletions and deletions[-1].begin <= key:
            active.append(deletions.pop())
        if active:
            active = [gone for gone in active if key < gone.end]
        if kind == _VALUE and all(gone.sequence <= -minus_sequence for gone in active):
            yield key, value


# ---------------------------------------------------------------------------------------------
# Numbers and strings


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise DamageError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise DamageError("a number is too long")


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _varint(data, at)
    if at + length > len(data):
        raise DamageError("a string is cut off")
    return data[at : at + length], at + length


# ---------------------------------------------------------------------------------------------
# Sorted tables


def _block(stream: BinaryIO, offset: int, size: int) -> bytes:
    if offset + size > os.fstat(stream.fileno()).st_size:
        raise DamageError("a block is cut off")
    stream.seek(offset)
    raw = stream.read(size + _TRAILER_BYTES)
    if len(raw) < size + 1:
        raise DamageError("a block is cut off")
    packed, kind = raw[:size], raw[size]
    if not kind:
        return packed
    if kind not in _CODECS:
        raise DamageError(f"a block has the unknown compression {kind}")
    length, at = _varint(packed, 0)
    if length > _MOST_BLOCK:
        raise DamageError("a block says that it is too large")
    codec = _CODECS[kind]
    if codec == "zlib":
        import zlib

        try:
            return zlib.decompressobj(-14).decompress(packed[at:], length)
        except zlib.error as error:
            raise DamageError(f"a block can't be unpacked: {error}") from None
    import pyarrow

    data = packed if codec == "snappy" else packed[at:]  # Snappy itself begins with the length
    try:
        return bytes(pyarrow.decompress(data, decompressed_size=length, codec=codec, asbytes=True))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DamageError(f"a block can't be unpacked: {error}") from None


def _pairs(block: bytes, has_sizes: bool = True) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values in a block. Keys share their beginnings; without sizes a value is two numbers."""
    if len(block) < 4:
        raise DamageError("a block is too short")
    restarts = struct.unpack_from("<I", block, len(block) - 4)[0] & 0x7FFFFFFF  # the top bit says that a hash follows
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise DamageError("a block has no room for its restarts")
    at, key = 0, b""
    while at < end:
        head = block[at : at + 3]
        if len(head) == 3 and max(head) < 128:  # one byte each, as it is nearly always
            shared, own, length = head
            at += 3 if has_sizes else 2
        else:
            shared, at = _varint(block, at)
            own, at = _varint(block, at)
            length, at = _varint(block, at) if has_sizes else (0, at)
        if shared > len(key) or at + own > end:
            raise DamageError("a key lies outside of its block")
        key = key[:shared] + block[at : at + own]
        at += own
        if not has_sizes:
            begin = at
            at = _varint(block, _varint(block, at)[1])[1]
            length, at = at - begin, begin
        if at + length > end:
            raise DamageError("a value lies outside of its block")
        yield key, block[at : at + length]
        at += length


def _handles(stream: BinaryIO) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Where a table's list of blocks and its index are, and the format's version."""
    stream.seek(max(os.fstat(stream.fileno()).st_size - _FOOTER_BYTES, 0))
    footer = stream.read()
    if len(footer) < _FOOTER_BYTES or struct.unpack_from("<Q", footer, _FOOTER_BYTES - 8)[0] != _TABLE_MAGIC:
        raise DamageError("the table has no end")
    version = struct.unpack_from("<I", footer, _FOOTER_BYTES - 12)[0]
    if version > 5:  # from 6 on the index lies elsewhere; Aim's library writes 5 and less
        raise DamageError(f"the table has the unknown version {version}")
    numbers, at = [], 1
    for _ in range(4):
        number, at = _varint(footer, at)
        numbers.append(number)
    return (numbers[0], numbers[1]), (numbers[2], numbers[3]), version


def _entries(stream: BinaryIO, damage: Damage) -> Iterator[Entry]:
    """The entries of a table. A damaged block is left out."""
    file = Path(stream.name)
    try:
        _, index, version = _handles(stream)
        # from version 4 on an index leaves sizes out; each of its entries stands alone, as Aim's library writes it
        blocks = [value for _, value in _pairs(_block(stream, *index), has_sizes=version < 4)]
    except (OSError, DamageError) as error:
        damage(file, 0, str(error))
        return
    last = b""
    for value in blocks:
        offset = 0
        try:
            offset, at = _varint(value, 0)
            size, _ = _varint(value, at)
            made = [_entry(key, value) for key, value in _pairs(_block(stream, offset, size))]
        except (OSError, DamageError) as error:
            damage(file, offset, str(error))
            continue
        if made and made[0][0] >= last:  # else the merge would lose its order
            last = made[-1][0]
            yield from made
        elif made:
            damage(file, offset, "a block is out of order")


def _entry(key: bytes, value: bytes) -> Entry:
    if len(key) < 8:
        raise DamageError("a key is too short")
    tail = int.from_bytes(key[-8:], "little")
    return key[:-8], -(tail >> 8), tail & 255, value


def _range_deletions(stream: BinaryIO, deletions: list[_RangeDeletion]) -> None:
    meta, _, _ = _handles(stream)
    for name, value in _pairs(_block(stream, *meta)):
        if name == b"rocksdb.range_del":
            offset, at = _varint(value, 0)
            for key, end in _pairs(_block(stream, offset, _varint(value, at)[0])):
                begin, minus_sequence, _, _ = _entry(key, b"")
                deletions.append(_RangeDeletion(begin, end, -minus_sequence))


# ---------------------------------------------------------------------------------------------
# The log of writes, and the manifest, which has the same frame


def _records(data: bytes) -> Iterator[bytes]:
    """Whole records; ends where the file is torn, as after a kill, or where a writer is."""
    at, record, open_record = 0, b"", False
    while at + 7 <= len(data):
        room = _LOG_BLOCK - at % _LOG_BLOCK
        if room < 7:
            at += room
            continue
        size, part = struct.unpack_from("<HB", data, at + 4)
        header = 11 if 5 <= part <= 8 else 7  # a file used again has its number in the header
        if not 1 <= part <= 8 or at + header + size > len(data) or header + size > room:
            return
        body = data[at + header : at + header + size]
        at += header + size
        part = (part - 1) % 4  # whole, first, middle, last
        if part in (0, 1):
            record, open_record = body, part == 1
        elif not open_record:
            return
        else:
            record += body
        if part in (0, 3):
            open_record = False
            yield record


def _batch(record: bytes, deletions: list[_RangeDeletion]) -> Iterator[Entry]:
    """The writes in a record: a sequence number for the first one, their count, and each."""
    if len(record) < 12:
        raise DamageError("a batch of writes is too short")
    sequence, at = int.from_bytes(record[:8], "little"), 12
    while at < len(record):
        kind = record[at]
        at += 1
        if kind in (4, 5, 6, 8, 14):  # the same with a column family in front
            kind = {4: _DELETED, 5: _VALUE, 6: 2, 8: _SINGLE_DELETED, 14: _RANGE_DELETED}[kind]
            _, at = _varint(record, at)
        if kind == 3:  # a note
            _, at = _string(record, at)
            continue
        if kind in (9, 10, 11, 12, 13, 16, 18):
            raise DamageError("the log holds transactions")
        if kind not in (_DELETED, _VALUE, 2, _SINGLE_DELETED, _RANGE_DELETED):
            raise DamageError(f"the log holds the unknown write {kind}")
        key, at = _string(record, at)
        value = b""
        if kind not in (_DELETED, _SINGLE_DELETED):
            value, at = _string(record, at)
        if kind == _RANGE_DELETED:
            deletions.append(_RangeDeletion(key, value, sequence))
        else:
            yield key, -sequence, kind, value
        sequence += 1


def _manifest(folder: Path, told: list[tuple[Path, int, str]]) -> tuple[list[_Table], int]:
    """The tables that count, and the first log that is not in them. Without a manifest, all there are."""
    held: dict[int, _Table] = {}
    oldest = 0
    try:
        current = (folder / "CURRENT").read_text("ascii", "replace").strip()
        if not current.removeprefix("MANIFEST-").isdigit():
            raise DamageError("CURRENT names no manifest")
        for record in _records((folder / current).read_bytes()):
            oldest = _edit(record, held, oldest)
        return list(held.values()), oldest
    except (OSError, DamageError) as error:
        told.append((folder / "CURRENT", 0, f"the manifest can't be read, so all tables were taken: {error}"))
    return [_Table(0, int(file.stem), b"") for file in sorted(folder.glob("*.sst")) if file.stem.isdigit()], 0


def _edit(record: bytes, held: dict[int, _Table], oldest: int) -> int:
    """One change of the set of tables; the oldest log that is still needed after it."""
    at = 0
    while at < len(record):
        tag, at = _varint(record, at)
        if tag == 2:
            number, at = _varint(record, at)
            oldest = max(oldest, number)
        elif tag in (3, 4, 9, 10, 200, 203, 300):
            _, at = _varint(record, at)
        elif tag in (1, 201) or tag & 8192:  # a name, or a later version's field that may be skipped
            _, at = _string(record, at)
        elif tag == 5:
            _, at = _varint(record, at)
            _, at = _string(record, at)
        elif tag == 6:
            _, at = _varint(record, at)
            number, at = _varint(record, at)
            held.pop(number, None)
        elif tag in (7, 100, 102, 103):
            level, at = _varint(record, at)
            number, at = _varint(record, at)
            if tag == 102:
                _, at = _varint(record, at)
            _, at = _varint(record, at)
            smallest, at = _string(record, at)
            _, at = _string(record, at)
            for _ in range(0 if tag == 7 else 2):
                _, at = _varint(record, at)
            if tag == 103:
                field, at = _varint(record, at)
                while field != 1:
                    _, at = _string(record, at)
                    field, at = _varint(record, at)
            held[number] = _Table(level, number, smallest)
        elif tag != 202:
            raise DamageError(f"the manifest holds the unknown field {tag}")
    return oldest
