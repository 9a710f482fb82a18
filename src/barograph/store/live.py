"""One live file, read from where the last look ended. Tolerates torn ends and damage.

In:   the path of an Arrow stream that a writer may still be appending to (`schema` describes it).
Out:  the blocks that were committed since the last look.

The file is read with plain reads and never mapped: a mapped file that shrinks on a network file
system kills the process. Nothing read from the file is trusted: frames, lengths and a checksum are
verified, so a damaged block is left out and named in `problem`.
"""

from __future__ import annotations

import itertools
import json
import os
import time as clock
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from barograph.store.schema import FORMAT, LIVE_SCHEMA, META_KEY

Array = np.ndarray[Any, Any]

SERIALS = itertools.count()  # tells an opened file from another one that had its path
IN_FLIGHT_SECONDS = 10.0  # a network file system's client writes back within this, usually in one


class Keys:
    """A list of names, shared by the blocks that have it. `columns` finds a name's place."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.columns = {name: column for column, name in enumerate(names)}


class PointsBlock(NamedTuple):
    """n rows of m values: `step` and `time` [n] int64 (time in µs since 1970, UTC), `value` [n, m] float64."""

    keys: Keys
    step: Array
    time: Array
    value: Array
    segment: int
    rank: int


class HistogramsBlock(NamedTuple):
    """n histograms: row r has `names[r]`, `edges[r]` [k+1] and `counts[r]` [k], float64."""

    names: tuple[str, ...]
    step: Array
    time: Array
    edges: list[Array]
    counts: list[Array]
    segment: int
    rank: int


Block = PointsBlock | HistogramsBlock


class Replaced(Exception):
    """The path now holds another file than the one read so far."""


class LiveFile:
    """Incremental reader of one live file.

    `log_spans`: byte ranges of the log file that the committed blocks cover. `problem`: a sentence about
    damage, else None. `foreign`: the file is not a live file of this format. `size`: bytes read so far.

    `settled`: nobody writes this file any more. Else damage in a file written to in the last seconds is
    taken for bytes that a network file system has not delivered yet, and looked at again next time.
    """

    def __init__(self, path: Path, settled: bool = False):
        self.path = path
        self.settled = settled
        self.serial = next(SERIALS)
        self.log_spans: list[tuple[int, int]] = []
        self.problem: str | None = None
        self.foreign = False
        self.size = 0
        self.points = 0
        self._header = b""  # the schema's message: every look starts a stream reader with it
        self._position = 0  # behind the last whole batch
        self._keys: dict[int, Keys] = {}
        self._waiting: list[Block] = []  # whole, but not committed yet
        self._waiting_spans: list[tuple[int, int]] = []
        self._stuck = False  # damaged frames: nothing behind them can be found
        self._again = False  # damage that may heal: look again though the size is the same

    def read_new(self, descriptor: int | None = None) -> list[Block]:
        """Blocks committed since the last call. Opens the path, or reads from an open descriptor.

        Raises FileNotFoundError (or another OSError) if the file is gone, Replaced if it is another one.
        """
        own = descriptor is None
        # opening, not stat: on a network file system only opening asks the server for the size
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
        try:
            status = os.fstat(handle)
            size = status.st_size
            if size < self._position or (self._header and os.pread(handle, len(self._header), 0) != self._header):
                raise Replaced(str(self.path))
            if (size == self.size and not self._again) or self._stuck or self.foreign:
                return []
            in_flight = not self.settled and abs(clock.time() - status.st_mtime) < IN_FLIGHT_SECONDS
            data = _read(handle, self._header, self._position, size)
            self.size = size
        finally:
            if own:
                os.close(handle)
        self._again = False
        return self._parse(data, in_flight)

    def _parse(self, data: Array, in_flight: bool) -> list[Block]:
        """Take the whole batches in `header + new bytes`; returns what they commit."""
        new: list[Block] = []
        source = pa.BufferReader(pa.py_buffer(data))
        try:
            reader = pa.ipc.open_stream(source)
        except (pa.ArrowException, OSError, ValueError) as error:
            return new if _torn(data, 0, error) else self._refuse(in_flight)
        header_end = source.tell()
        if not self._header:
            if not _ours(reader.schema):
                return self._refuse(in_flight)
            self._header = data[:header_end].tobytes()
            self._position = header_end
        shift = self._position - header_end  # file offset minus offset in `data`
        while True:
            at = source.tell()
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
                taken = self._take(batch, metadata, new, at + shift, in_flight)
            except StopIteration:  # the end mark, the end, or zeros where a crash lost the bytes
                torn, taken = len(data) - at <= 8, False
            except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
                torn, taken = _torn(data, at, error), False
            else:
                torn = False
            if not taken:
                self._again = not torn and in_flight
                if not torn and not in_flight:
                    self._stuck = True
                    self.problem = f"{self.path.name} is damaged at byte {at + shift}; what follows is left out"
                return new
            self._position = source.tell() + shift

    def _refuse(self, in_flight: bool) -> list[Block]:
        self._again, self.foreign = in_flight, not in_flight
        self.problem = None if in_flight else f"{self.path.name} is not a live file of this store"
        return []

    def _take(self, batch: Any, metadata: Any, new: list[Block], offset: int, in_flight: bool) -> bool:
        """Keep a batch, or leave a damaged one out. False: its bytes may still be on their way."""
        meta: dict[str, Any] = {}
        try:
            meta = unpack(dict(metadata)[META_KEY])
            block = self._decode(batch, meta)
            if block is not None:
                self._waiting.append(block)
            if "log" in meta:
                start, end = meta["log"]
                self._waiting_spans.append((int(start), int(end)))
        except (pa.ArrowException, ValueError, TypeError, KeyError, IndexError) as error:
            if in_flight:
                return False
            self.problem = f"{self.path.name} has a damaged block at byte {offset}, left out ({error})"
        if meta.get("commit"):
            self.points += sum(block.value.size for block in self._waiting if isinstance(block, PointsBlock))
            new += self._waiting
            self.log_spans += self._waiting_spans
            self._waiting, self._waiting_spans = [], []
        return True

    def _decode(self, batch: Any, meta: dict[str, Any]) -> Block | None:
        if "keys" in meta and "names" in meta:  # later blocks need them, whatever became of this one's values
            self._keys[meta["keys"]] = Keys(tuple(meta["names"]))
        batch.validate()  # lengths against buffers, before any of them is touched
        rows = batch.num_rows
        step = plain(batch.column(0))
        time = plain(batch.column(1))
        offsets = plain(batch.column(2).offsets)
        values = plain(batch.column(2).values)
        if checksum(step, time, offsets, values) != meta["crc"]:
            raise ValueError("its checksum is wrong")
        if meta.get("kind") == "histograms":
            return _histograms(meta, step, time, offsets, values)
        keys = self._keys[meta["keys"]]
        if not rows:
            return None
        value = values.reshape(rows, len(keys.names))
        return PointsBlock(keys, step, time, value, int(meta["segment"]), int(meta["rank"]))


def plain(chunk: Any) -> Array:
    """An Arrow array's numbers over its memory, for columns without nulls, as the store's are.

    `chunk.to_numpy()` gives the same, and imports pandas where there is one: 0.4 s of a first read.
    """
    width = chunk.type.bit_width // 8
    kind = f"<{'f' if pa.types.is_floating(chunk.type) else 'i'}{width}"
    if not len(chunk):
        return np.empty(0, kind)
    return np.frombuffer(chunk.buffers()[1], kind, len(chunk), chunk.offset * width)


def _ours(schema: Any) -> bool:
    """Whether a stream is a live file of a format that this version reads."""
    try:
        about = json.loads((schema.metadata or {})[META_KEY])
        return bool(schema.equals(LIVE_SCHEMA)) and int(about["format"]) <= FORMAT
    except (ValueError, KeyError, TypeError):
        return False


def _torn(data: Array, at: int, error: BaseException) -> bool:
    """Whether bytes are only missing at the end: a message's mark is right and Arrow found it too short."""
    mark = data[at : at + 4]
    return bool((mark == 0xFF).all()) and (len(data) - at < 8 or "Expected to" in str(error))


def pack(meta: dict[str, Any]) -> bytes:
    """What a block says of itself, as text behind its own checksum."""
    text = json.dumps(meta, separators=(",", ":")).encode()
    return b"%08x" % zlib.crc32(text) + text


def unpack(packed: bytes) -> dict[str, Any]:
    """The reverse of `pack`. Raises ValueError if a byte is not as it was."""
    if int(packed[:8], 16) != zlib.crc32(packed[8:]):
        raise ValueError("its description is garbled")
    meta: dict[str, Any] = json.loads(packed[8:])
    return meta


def checksum(*arrays: Array) -> int:
    """CRC-32 of contiguous arrays' bytes; 6 GB a second."""
    crc = 0
    for array in arrays:
        crc = zlib.crc32(array.data, crc)
    return crc


def _histograms(meta: dict[str, Any], step: Array, time: Array, offsets: Array, values: Array) -> HistogramsBlock:
    names = tuple(meta["names"])
    if len(names) != len(step):
        raise ValueError("it has not one name a row")
    edges, counts = [], []
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        middle = start + (end - start) // 2 + 1
        edges.append(values[start:middle])
        counts.append(values[middle:end])
    return HistogramsBlock(names, step, time, edges, counts, int(meta["segment"]), int(meta["rank"]))


def _read(handle: int, header: bytes, position: int, size: int) -> Array:
    """The header and the file's bytes from `position`, in one buffer aligned for the columns in it."""
    start = len(header)
    data = np.empty(start + size - position, np.uint8)
    data[:start] = np.frombuffer(header, np.uint8)
    filled = start
    while filled < len(data):
        got = os.preadv(handle, [data[filled:].data], position + filled - start)
        if got == 0:  # shrunk since its size was asked
            break
        filled += got
    return data[:filled]
