"""The framing of TensorBoard's event files (TFRecord) and its check sums, for many records at once.

In:   a file and where to begin in it.
Out:  blocks of whole records whose check sums are right, and `Damage` for what is not.

A record is its length (8 bytes), the length's CRC-32C, the data, the data's CRC-32C; both sums are masked.
NumPy computes the sums of all records of a block side by side, two bytes a step.
Format: https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

CHUNK = 4 << 20  # bytes read at a time
LONGEST = 64 << 20  # bytes; a longer record holds no numbers worth its memory and is passed over
HEADER, FOOTER = 12, 4
_SEGMENT = 2048  # bytes; longer records are summed in pieces of this, side by side
_LENGTH = struct.Struct("<Q").unpack_from


class RecordBlock(NamedTuple):
    """Records in a piece of a file: record i is `data[starts[i] : starts[i] + lengths[i]]`.

    offset: where `data` begins in the file; end: where the record behind the last one begins in the file.
    """

    data: bytes
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    offset: int
    end: int


class Damage(NamedTuple):
    """What could not be read: from `where` to `end` in the file. `searching`: no whole record was found behind it."""

    where: int
    end: int
    why: str
    searching: bool = False


@functools.cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What one byte and what two bytes do to a sum: 256 and 65,536 entries (Castagnoli's polynomial, reflected)."""
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & 1, (one >> 1) ^ np.uint32(0x82F63B78), one >> 1).astype(np.uint32)
    two = np.arange(65536, dtype=np.uint32)
    for _ in range(2):
        two = one[two & 0xFF] ^ (two >> 8)
    return one, two


@functools.cache
def _skips() -> list[list[int]]:
    """What `_SEGMENT` zero bytes do to a sum, a table for each of its four bytes."""
    _, two = _tables()
    states = np.concatenate([np.arange(256, dtype=np.uint32) << np.uint32(8 * place) for place in range(4)])
    for _ in range(_SEGMENT // 2):
        states = two[states & 0xFFFF] ^ (states >> 16)
    return [part.tolist() for part in states.reshape(4, 256)]


def _advance(data: NDArray[np.uint8], starts: Any, lengths: Any, states: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The states behind n stretches of at most `_SEGMENT` bytes, or of equal length, two bytes a step."""
    one, two = _tables()
    order = np.argsort(-lengths, kind="stable")
    starts, lengths, states = starts[order], lengths[order], states[order]
    # how many stretches are at least 2, 4, 6, … bytes long: they come first
    longest = int(lengths[0]) if len(lengths) else 0
    active = np.searchsorted(-lengths, -np.arange(2, longest + 1, 2), side="right").tolist()
    for step, count in enumerate(active):
        at = starts[:count] + 2 * step
        pair = data[at].astype(np.uint32) | (data[at + 1].astype(np.uint32) << 8)
        states[:count] = two[(states[:count] ^ pair) & 0xFFFF] ^ (states[:count] >> 16)
    odd = np.flatnonzero(lengths & 1)
    last = data[starts[odd] + lengths[odd] - 1]
    states[odd] = one[(states[odd] ^ last) & 0xFF] ^ (states[odd] >> 8)
    result = np.empty_like(states)
    result[order] = states
    return result


def checksums(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The masked CRC-32C of n stretches of `data`."""
    count = len(starts)
    pieces = np.maximum((lengths - 1) // _SEGMENT, 0)  # whole segments behind the first piece of each stretch
    first = lengths - pieces * _SEGMENT
    states = _advance(data, starts, first, np.full(count, 0xFFFFFFFF, np.uint32))
    long = np.flatnonzero(pieces)
    if len(long):
        a, b, c, d = _skips()
        for index in long.tolist():
            begins = starts[index] + first[index] + _SEGMENT * np.arange(pieces[index])
            sums = _advance(
                data, begins, np.full(len(begins), _SEGMENT, np.int64), np.zeros(len(begins), np.uint32)
            ).tolist()
            state = int(states[index])
            for found in sums:
                state = a[state & 255] ^ b[state >> 8 & 255] ^ c[state >> 16 & 255] ^ d[state >> 24] ^ found
            states[index] = state
    states = ~states
    return (((states >> 15) | (states << 17)) + np.uint32(0xA282EAD8)).astype(np.uint32)


def checksum(data: bytes) -> int:
    """The masked CRC-32C of some bytes."""
    view = np.frombuffer(data, np.uint8)
    return int(checksums(view, np.zeros(1, np.int64), np.array([len(data)], np.int64))[0])


def _words(data: NDArray[np.uint8], positions: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The numbers of four bytes at n positions."""
    return np.ascontiguousarray(data[positions[:, None] + np.arange(4)]).view("<u4")[:, 0]


def _walk(data: bytes) -> tuple[list[int], int]:
    """Where records begin in `data`, as their lengths tell, and where the first one begins that is not whole."""
    begins: list[int] = []
    append = begins.append
    position, last = 0, len(data) - HEADER
    while position <= last:
        (length,) = _LENGTH(data, position)
        behind = position + length + 16
        if behind > last + HEADER:
            break
        append(position)
        position = behind
    return begins, position


def _search(file: BinaryIO, position: int, size: int) -> int:
    """Where the next record begins whose length is right and that the file holds; `size` if there is none."""
    _, two = _tables()
    reach = 1 << 12  # damage is short, mostly: a little first, then more and more
    while position + 16 <= size:
        file.seek(position)
        raw = file.read(reach)
        reach = min(4 * reach, 1 << 20)
        data = np.frombuffer(raw, np.uint8)
        count = len(data) - HEADER + 1
        if count <= 0:
            break
        pairs = data[:-1].astype(np.uint32) | (data[1:].astype(np.uint32) << 8)
        states = np.full(count, 0xFFFFFFFF, np.uint32)
        for step in range(4):
            states = two[(states ^ pairs[2 * step : 2 * step + count]) & 0xFFFF] ^ (states >> 16)
        states = ~states
        masked = ((states >> 15) | (states << 17)) + np.uint32(0xA282EAD8)
        stored = pairs[8 : 8 + count] | (pairs[10 : 10 + count] << 16)
        for place in np.flatnonzero(masked == stored).tolist():
            (length,) = _LENGTH(raw, place)
            if position + place + 16 + length <= size:
                return position + int(place)
        position += count
    return size


def read_blocks(
    path: Path, offset: int = 0, searching: bool = False, chunk: int = CHUNK
) -> Iterator[RecordBlock | Damage]:
    """A file's records from `offset` on, in its order. A record that is not whole yet ends it.

    searching: `offset` lies in damage, where no record had been found yet. chunk: bytes read at a time.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = offset
        if searching:
            position = _search(file, offset, size)
            if position >= size:
                yield Damage(offset, max(offset, size - 16), "no record was found", True)
                return
        want = chunk
        while position + HEADER <= size:
            file.seek(position)
            data = file.read(min(want, size - position))
            if len(data) < min(want, size - position):
                size = position + len(data)  # somebody cut the file meanwhile
            want = chunk
            begins, behind = _walk(data)
            view = np.frombuffer(data, np.uint8)
            starts = np.array(begins, np.int64)
            broken = False
            if begins:
                right = checksums(view, starts, np.full(len(starts), 8, np.int64)) == _words(view, starts + 8)
                if not right.all():
                    first = int(np.argmin(right))
                    behind, starts, broken = begins[first], starts[:first], True
            if len(starts):
                yield from _checked(data, view, starts, position, position + behind)
            if not broken:
                if len(data) - behind < HEADER:
                    if position + len(data) >= size:
                        return  # the next record's beginning is not written yet
                    position += behind
                    continue
                (length,) = _LENGTH(data, behind)
                if checksum(data[behind : behind + 8]) == int.from_bytes(data[behind + 8 : behind + 12], "little"):
                    whole = position + behind + length + 16
                    if whole > size:
                        return  # it is being written, or its writer died
                    if length > LONGEST:
                        why = f"a record of {length:,} bytes is longer than the {LONGEST:,} that are read"
                        yield Damage(position + behind, whole, why)
                        position = whole
                    else:
                        position += behind
                        want = max(chunk, length + 16)
                    continue
            damaged = position + behind
            position = _search(file, damaged + 1, size)
            if position >= size:
                why = "the length of a record is damaged, and no whole record was found behind it"
                yield Damage(damaged, max(damaged + 1, size - 16), why, True)
                return
            why = f"the length of a record is damaged: {position - damaged:,} bytes up to the next record are not read"
            yield Damage(damaged, position, why)


def _checked(
    data: bytes, view: NDArray[np.uint8], starts: NDArray[np.int64], offset: int, end: int
) -> Iterator[RecordBlock | Damage]:
    """Records whose lengths are right, less those whose data is damaged."""
    bodies = starts + HEADER
    behind = np.append(starts[1:], end - offset)
    lengths = behind - starts - 16
    right = checksums(view, bodies, lengths) == _words(view, behind - FOOTER)
    if right.all():
        yield RecordBlock(data, bodies, lengths, offset, end)
        return
    yield RecordBlock(data, bodies[right], lengths[right], offset, end)
    wrong = np.flatnonzero(~right)
    first = int(wrong[0])
    why = f"{len(wrong):,} records are damaged (check sum) and left out; the first is here"
    if len(wrong) == 1:
        why = "a record is damaged (check sum) and left out"
    yield Damage(offset + int(starts[first]), end, why)
