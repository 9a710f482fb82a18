"""One live file while it is written: batches are collected, and committed together.

In:   arrays of one block, with what the block says of itself.
Out:  an Arrow stream on the disk, in which each flush counts as a whole or not at all (see `schema`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from barograph.store.live import Array, checksum, pack
from barograph.store.schema import FORMAT, LIVE_SCHEMA, META_KEY

MOST_BLOCKS = 8_192  # and at this many blocks: a reader needs 15 µs a block
MOST_BYTES = 64 << 20  # and at this many bytes: long names
SPILL_BYTES = 8 << 20  # more than this is not kept in memory until the flush
MOST_KEPT_NAMES = 500_000  # names remembered as already written; beyond, lists of names are written again


class _Chunks:
    """Where Arrow writes: pieces kept in memory until the file takes them."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)

    def flush(self) -> None:
        """Arrow calls this when it closes."""


class OpenFile:
    """One live file being written. The file itself is made when the first bytes go to it."""

    def __init__(self, path: Path, rank: int):
        self.path = path
        self.descriptor = -1
        self.points = self.blocks = self.bytes = 0  # of completed flushes
        self.committed = 0
        self._new_points = self._new_blocks = 0
        self._chunks = _Chunks()
        about = json.dumps({"format": FORMAT, "rank": rank, "file": os.urandom(8).hex()})
        schema = LIVE_SCHEMA.with_metadata({META_KEY: about})
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._chunks, "w"), schema)
        self._last: tuple[Any, dict[str, Any]] | None = None  # held back: it may become the commit
        self._keys: dict[tuple[str, ...], int] = {}
        self._kept_names = self._next_keys = 0

    def add(self, batch: Any, meta: dict[str, Any], points: int) -> None:
        self._encode_last()
        self._last = batch, meta
        self._new_points += points
        self._new_blocks += 1
        if self._chunks.size > SPILL_BYTES:
            self._spill()

    def key_number(self, names: tuple[str, ...], meta: dict[str, Any]) -> None:
        """Put the number of a list of names in `meta`, and the names too where the file has them not yet."""
        number = self._keys.get(names)
        if number is None:
            if self._kept_names + len(names) > MOST_KEPT_NAMES:
                self._keys.clear()
                self._kept_names = 0
            number = self._keys[names] = self._next_keys
            self._next_keys += 1
            self._kept_names += len(names)
            meta["names"] = names
        meta["keys"] = number

    def commit(self) -> None:
        """Everything added so far into the operating system's hands, marked as complete."""
        if self._last is None:
            return
        if self.descriptor >= 0 and not self._still_there():
            raise FileNotFoundError(errno.ENOENT, "the store's live file was deleted", str(self.path))
        self._last[1]["commit"] = True
        self._encode_last()
        self._spill()
        self.committed = self.bytes
        self.points += self._new_points
        self.blocks += self._new_blocks
        self._new_points = self._new_blocks = 0

    @property
    def full(self) -> bool:
        return self.blocks >= MOST_BLOCKS or self.bytes >= MOST_BYTES

    def finish(self) -> None:
        """Mark the stream's end. What was committed counts without the mark too."""
        self._stream.close()
        with contextlib.suppress(OSError):
            self._spill()

    def abandon(self) -> None:
        """After a failed write: keep what was committed, free the rest."""
        if self.descriptor < 0:
            return
        with contextlib.suppress(OSError):
            if self.committed:
                os.ftruncate(self.descriptor, self.committed)
            else:
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.close(self.descriptor)
        self.descriptor = -1

    def _encode_last(self) -> None:
        if self._last is not None:
            batch, meta = self._last
            self._last = None
            self._stream.write_batch(batch, custom_metadata={META_KEY: pack(meta)})

    def _spill(self) -> None:
        if self.descriptor < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self.descriptor = os.open(self.path, flags, 0o666)
        rest = memoryview(b"".join(self._chunks.pieces))
        while rest:
            written = os.write(self.descriptor, rest)
            self.bytes += written
            rest = rest[written:]
        self._chunks.pieces.clear()
        self._chunks.size = 0

    def _still_there(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        return False


def batch_of(step: Array, time: Array, values: Array, lengths: int | Array, meta: dict[str, Any]) -> Any:
    """A record batch over these arrays, without copying them; its checksum goes to `meta`."""
    rows = len(step)
    ends = np.arange(1, rows + 1, dtype=np.int64) * lengths if isinstance(lengths, int) else np.cumsum(lengths)
    if rows and ends[-1] > 2**31 - 1:
        raise ValueError("a block can hold 2,147,483,647 values at most; hand over fewer rows at a time")
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    meta["crc"] = checksum(step, time, offsets, values)
    columns = [
        pa.array(step),
        pa.Array.from_buffers(pa.timestamp("us", "UTC"), rows, [None, pa.py_buffer(time)], null_count=0),
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)),
    ]
    return pa.record_batch(columns, schema=LIVE_SCHEMA)
