"""The log format of LevelDB, in which W&B keeps `.wandb` files: records in blocks of 32 kB.

In:   a file and where to begin in it.
Out:  batches of whole records whose check sums are right, and `Damage` for what is not.

A record's header is a CRC-32, a length and a type: whole, first, middle or last piece. The file begins with seven
bytes of W&B's own, which count as part of the first block. A damaged stretch ends at the next block at the latest.
Format: https://github.com/google/leveldb/blob/main/doc/log_format.md. W&B's sum is zlib's CRC-32, not masked.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.importing.tfrecord import LONGEST, Damage

BLOCK = 32768
MAGIC = b":W&B\xe1\xbe"  # then the version, 0
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HEADER = struct.Struct("<IHB")
_SEEDS = tuple(zlib.crc32(bytes([kind])) for kind in range(5))
_BLOCKS_AT_ONCE = 128  # 4 MB


class Batch(NamedTuple):
    """Records: number i is `data[starts[i] : starts[i] + lengths[i]]`. end: where reading goes on in the file."""

    data: bytes
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    end: int


def is_log(head: bytes) -> bool:
    """Whether a file that begins like this is one of W&B's."""
    return head[:6] == MAGIC


class _LogReader:
    """What is carried from one piece of a file to the next."""

    def __init__(self, offset: int):
        self.end = offset  # behind the last record that is whole
        self.pending: list[bytes] = []  # pieces of a record of several
        self.pending_bytes = 0
        self.lost = 0
        self.first_lost = 0

    def lose(self, where: int) -> None:
        if not self.lost:
            self.first_lost = where
        self.lost += 1

    def read_piece(self, data: bytes, base: int, position: int, last: bool) -> tuple[Batch, int]:
        """The records in whole blocks from `position` on, and where in `data` the first unread byte is."""
        view = memoryview(data)
        starts: list[int] = []
        lengths: list[int] = []
        joined: list[bytes] = []
        joined_at = len(data)
        size = len(data)
        unpack, crc32, seeds = _HEADER.unpack_from, zlib.crc32, _SEEDS
        waits = False
        while position < size and not waits:
            limit = min((position // BLOCK + 1) * BLOCK, size)
            while position + 7 <= limit:
                crc, length, kind = unpack(data, position)
                begin = position + 7
                behind = begin + length
                if behind > limit:
                    if last and limit == size and behind <= (position // BLOCK + 1) * BLOCK and 1 <= kind <= _LAST:
                        waits = True  # it is being written, or its writer died
                        break
                    self._drop(base + position)
                    position = limit
                    break
                if not 1 <= kind <= _LAST or crc32(view[begin:behind], seeds[kind]) != crc:
                    if not (crc or length or kind):  # room that is not written yet
                        waits = last and not data[position:].strip(b"\0")
                        position = position if waits else limit
                        break
                    self._drop(base + position)
                    position = behind if _is_record(view, behind, limit) else limit
                    continue
                if kind == _FULL:
                    if self.pending:
                        self._drop(base + position)
                    starts.append(begin)
                    lengths.append(length)
                elif kind == _FIRST:
                    if self.pending:
                        self._drop(base + position)
                    self.pending, self.pending_bytes = [data[begin:behind]], length
                    position = behind
                    continue
                elif self.pending:
                    self.pending.append(data[begin:behind])
                    self.pending_bytes += length
                    if self.pending_bytes > LONGEST:
                        self._drop(base + position)
                    elif kind == _LAST:
                        joined.append(b"".join(self.pending))
                        starts.append(joined_at)
                        lengths.append(self.pending_bytes)
                        joined_at += self.pending_bytes
                        self.pending = []
                elif not self.lost:
                    self._drop(base + position)
                position = behind
                if not self.pending:
                    self.end = base + position
            else:
                if limit % BLOCK == 0:
                    position = limit  # fewer than seven bytes at a block's end are empty
                else:
                    waits = True
            if self.lost and not self.pending and not waits and position % BLOCK == 0:
                self.end = base + position  # damage in a whole block stays damage
        whole = data + b"".join(joined) if joined else data
        return Batch(whole, np.array(starts, np.int64), np.array(lengths, np.int64), self.end), position

    def read_blocks(self, data: bytes, base: int, position: int) -> Batch | None:
        """The same for whole blocks, all of them side by side; None if something is not as it should be."""
        found = _walk_blocks(data, position)
        if found is None:
            return None
        begins, stops, kinds = found
        # the sum is of the type, which stands before the data, and of the data
        pieces = map(data.__getitem__, map(slice, (begins - 1).tolist(), stops.tolist()))
        sums = np.fromiter(map(zlib.crc32, pieces), np.uint32, len(begins))
        at = begins[:, None] - 7 + np.arange(4)
        if (np.frombuffer(data, np.uint8)[at].view("<u4")[:, 0] != sums).any():
            return None
        whole = kinds == _FULL
        starts, lengths, order = begins[whole], (stops - begins)[whole], np.flatnonzero(whole)
        joined: list[bytes] = []
        places: list[int] = []
        pending, end = list(self.pending), self.end
        for index in np.flatnonzero(~whole).tolist():
            kind = kinds[index]
            if (kind == _FIRST) == bool(pending):
                return None
            pending.append(data[int(begins[index]) : int(stops[index])])
            if kind == _LAST:
                joined.append(b"".join(pending))
                places.append(index)
                pending = []
            elif kind == _FIRST:
                end = base + int(begins[index]) - 7
        if sum(map(len, pending)) > LONGEST or _is_interrupted(kinds, bool(self.pending)):
            return None
        self.pending, self.pending_bytes = pending, sum(map(len, pending))
        self.end = end if pending else base + len(data)
        if joined:
            sizes = np.array([len(item) for item in joined], np.int64)
            starts = np.concatenate([starts, len(data) + np.cumsum(sizes) - sizes])
            lengths = np.concatenate([lengths, sizes])
            order = np.argsort(np.concatenate([order, places]), kind="stable")
            starts, lengths = starts[order], lengths[order]
            data += b"".join(joined)
        return Batch(data, starts, lengths, self.end)

    def _drop(self, where: int) -> None:
        self.lose(where)
        self.pending, self.pending_bytes = [], 0


def _walk_blocks(data: bytes, position: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Where the records of whole blocks begin and end, and their types, a step of all blocks at a time.

    None if a length leads out of its block or a type is unknown.
    """
    heads = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # four bytes from every byte on
    at = np.arange(position // BLOCK, len(data) // BLOCK) * BLOCK
    limits = at + BLOCK - 7  # the last place of a header
    at[:1] = position
    found: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    while len(at):
        head = heads[at + 3] >> 8  # two bytes of length and one of type
        at = at + 7
        begins, at = at, at + (head & 0xFFFF)
        found.append((begins, at, head >> 16))
        beyond = at > limits
        if beyond.any():
            if (at > limits + 7).any():
                return None
            more = ~beyond
            at, limits = at[more], limits[more]
    if not found:
        return None
    begins, stops, kinds = (np.concatenate(column) for column in zip(*found, strict=True))
    if ((kinds == 0) | (kinds > _LAST)).any():
        return None
    order = np.argsort(begins)
    return begins[order], stops[order], kinds[order].astype(np.int64)


def _is_interrupted(kinds: NDArray[np.int64], inside: bool) -> bool:
    """Whether a whole record stands between the pieces of another. inside: the first one follows a piece."""
    before = np.append(inside, (kinds[:-1] == _FIRST) | (kinds[:-1] == _MIDDLE))
    return bool((before != ((kinds == _MIDDLE) | (kinds == _LAST))).any())


def _is_record(view: memoryview, position: int, limit: int) -> bool:
    """Whether a whole, right record begins here."""
    if position + 7 > limit:
        return False
    crc, length, kind = _HEADER.unpack_from(view, position)
    behind = position + 7 + length
    return bool(1 <= kind <= _LAST and behind <= limit and zlib.crc32(view[position + 7 : behind], _SEEDS[kind]) == crc)


def read_batches(path: Path, offset: int = 7, blocks: int = _BLOCKS_AT_ONCE) -> Iterator[Batch | Damage]:
    """A file's records from `offset` on (a batch's `end`), in its order. A record that is not whole yet ends it."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        reader = _LogReader(offset)
        position = offset
        while position < size:
            base = position // BLOCK * BLOCK
            file.seek(base)
            data = file.read(blocks * BLOCK)
            if len(data) > BLOCK:
                data = data[: len(data) // BLOCK * BLOCK]  # the last block, which may grow, for itself
            last = base + len(data) >= size or len(data) < BLOCK
            quick = None
            if len(data) % BLOCK == 0 and position - base < len(data):
                quick = reader.read_blocks(data, base, position - base)
            batch, behind = (quick, len(data)) if quick else reader.read_piece(data, base, position - base, last)
            if len(batch.starts):
                yield batch
            if reader.lost:
                what = "a record is" if reader.lost == 1 else f"{reader.lost:,} records or blocks are"
                yield Damage(reader.first_lost, base + behind, f"{what} damaged and left out; the first is here")
                reader.lost = 0
            if last or base + behind <= position:
                return
            position = base + behind
