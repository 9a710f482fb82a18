"""The block file beside a log: wide rows and histograms, in the kernel's hands when a call returns.

In:   names and packed numbers, from one process.
Out:  `training.0001.wide`, `training.0002.wide`, … in the run's folder, and again blocks, from any process.

A file begins with `HEAD` and one JSON line that says whose it is, and is blocks from there on:

    length   uint32   bytes of the payload
    check    uint32   Adler-32 of the payload (RFC 1950): a block that a kill or a power cut tore is recognized
    payload  kind (uint8), then by kind

    1 names      uint32 number, JSON array of names: a row refers to its names by this number, valid in this file
    2 row        uint32 number of names, int64 step, int64 time, int32 segment, int64 log, then doubles
    3 histogram  int64 step, int64 time, int32 segment, int64 log, uint32 bytes of the name, the name,
                 uint32 bins; with bins > 0 raw values follow that are yet to be counted into that many bins,
                 with bins = 0 k + 1 edges and k counts follow; all are doubles

All numbers are little-endian; times are microseconds since 1970. `log` is where the log file ended when the block was
written: readers put the block between the records around that byte, so that rows and records have one order. A file is
left for the next one at `PIECE_BYTES`; what is sealed into Parquet may be deleted once the writer has left it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

HEAD = b"barograph wide 1\n"
PIECE_BYTES = 32 << 20
NAMES, ROW, HISTOGRAM = 1, 2, 3
SEALED_SUFFIX = ".sealed"  # store/training/0002.sealed: training.0001.wide and 0002 were sealed and deleted

SEALED = -1  # as `log` of a block: it comes from sealed columns, and where the log ended is not known

_FRAME = struct.Struct("<II")
_NAMES = struct.Struct("<BI")
_ROW = struct.Struct("<BIqqiq")
_HISTOGRAM = struct.Struct("<BqqiqI")
_MOST_BLOCK = 1 << 30
_CHUNK = 1 << 20  # read at once
_MOST_NAMES = 50_000  # held by a writer: a loop that invents names must not grow the process
_PIECE_NAME = re.compile(r"(.+)\.(\d{4,})\.wide")


class WideRow(NamedTuple):
    """Numbers of one step by name. time: µs since 1970; log: where the log ended; end: of the block in its file."""

    names: tuple[str, ...]
    values: bytes  # little-endian doubles, one a name
    step: int
    time: int
    segment: int
    log: int
    end: int


class WideHistogram(NamedTuple):
    """A distribution at one step. bins > 0: `numbers` are raw values to count; else k + 1 edges, then k counts."""

    name: str
    numbers: bytes  # little-endian doubles
    bins: int
    step: int
    time: int
    segment: int
    log: int
    end: int


Block = WideRow | WideHistogram


class BlockWriter:
    """Appends blocks to the files beside one log. One process writes them; threads may share it.

    folder, stem: the files are `folder/stem.NNNN.wide`. about: said in each file's first line (run, writer, rank, …).
    trouble: called once with a sentence when the disk refuses; blocks wait in memory, at most `most_waiting` bytes,
    and are written when there is room again. `lost` counts those that fitted neither.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        about: dict[str, Any],
        trouble: Callable[[str], None] | None = None,
        most_waiting: int = 64 << 20,
    ):
        self.lost = 0
        self.rows = 0  # rows and histograms that were written
        self._folder, self._stem, self._about = folder, stem, about
        self._left: dict[int, int] = {}  # file that was left → rows and histograms in it
        self._left_rows = 0
        self._trouble = trouble or (lambda sentence: None)
        self._most_waiting = most_waiting
        self.lock = threading.RLock()
        self._descriptor = -1
        self._path: Path | None = None
        self._size = self._file_number = 0
        self._numbers: dict[tuple[str, ...], int] = {}
        self._names: tuple[str, ...] | None = None  # of the last row, and their number in the file in use
        self._names_number = 0
        self._held = 0  # names of all sets in `_numbers`
        self._waiting: list[bytes | tuple[tuple[str, ...], bytes]] = []
        self._waiting_bytes = 0
        self._closed = False

    @property
    def path(self) -> Path | None:
        """The file that is written now; None before the first block."""
        return self._path

    @property
    def waiting(self) -> bool:
        """Whether blocks wait in memory for the disk."""
        return bool(self._waiting)

    def row(self, names: tuple[str, ...], values: bytes, step: int, time: int, segment: int, log: int) -> None:
        """Append a row. names: the same tuple object for the same names is quickest. values: packed doubles."""
        with self.lock:
            try:
                if self._waiting:
                    self._write_waiting()
                if names is not self._names or self._size >= PIECE_BYTES:  # their hash takes microseconds
                    self._names_number, self._names = self._number(names), names
                self._append(_ROW.pack(ROW, self._names_number, step, time, segment, log) + values)
                self.rows += 1
            except OSError as error:
                # the number may be another file's by the time it is written
                self._keep((names, struct.pack("<qqiq", step, time, segment, log) + values), error)

    def histogram(self, name: str, numbers: bytes, bins: int, step: int, time: int, segment: int, log: int) -> None:
        """Append a histogram; see `WideHistogram` for `numbers` and `bins`."""
        text = name.encode("utf-8", "surrogatepass")
        head = _HISTOGRAM.pack(HISTOGRAM, step, time, segment, log, len(text))
        payload = b"".join((head, text, struct.pack("<I", bins), numbers))
        with self.lock:
            try:
                if self._waiting:
                    self._write_waiting()
                if self._size >= PIECE_BYTES or self._descriptor < 0:
                    self._next_file()
                self._append(payload)
                self.rows += 1
            except OSError as error:
                self._keep(payload, error)

    def retry(self) -> None:
        """Write what waits in memory, if the disk takes it now; never raises."""
        with self.lock, contextlib.suppress(OSError):
            self._write_waiting()

    def gone(self) -> int:
        """Rows and histograms that somebody deleted: they are in no file and in no sealed part. Each counts once.

        If that is the file in use, the next row begins another one.
        """
        lost = 0
        with self.lock, contextlib.suppress(OSError):
            if self._descriptor >= 0:
                start = os.pread(self._descriptor, len(HEAD), 0)
                if os.fstat(self._descriptor).st_nlink == 0 or start != HEAD:
                    self._leave()
                    if start != HEAD:  # emptied
                        lost += self._left.popitem()[1]
            missing = [number for number in self._left if not _has_content(self._path_of(number))]
            sealed = sealed_number(self._folder, self._stem) if missing else 0
            for number in missing:
                if number > sealed:
                    lost += self._left.pop(number)
        return lost

    def move(self, folder: Path) -> None:
        """The folder is at another place by now."""
        with self.lock:
            self._folder = folder
            self._path = folder / self._path.name if self._path is not None else None

    def hand_over(self, folder: Path) -> int:
        """Write what waits in memory into a file of another folder; how many rows and histograms that were. Raises
        OSError where that one has no room either."""
        other = BlockWriter(folder, self._stem, self._about)
        with self.lock:
            other._waiting = list(self._waiting)
            try:
                other._write_waiting()
            finally:
                other._waiting.clear()
                other.close()
            self._waiting.clear()
        return other.rows

    def close(self) -> None:
        """Write what waits, if the disk takes it, and close the file."""
        with self.lock:
            self.retry()
            self.lost += len(self._waiting)
            self._waiting.clear()
            self._leave()
            self._closed = True

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file and leave it untouched."""
        self._waiting.clear()
        self.lock = threading.RLock()
        self._leave()
        self._closed = True

    # -- inside ---------------------------------------------------------------------------------

    def _number(self, names: tuple[str, ...]) -> int:
        """The number of these names in the file in use; the names are written first where they are new."""
        if self._size >= PIECE_BYTES or self._descriptor < 0:
            self._next_file()
        number = self._numbers.get(names)
        if number is None:
            if self._held + len(names) > _MOST_NAMES:  # numbers begin anew: what stands before a row counts for it
                self._forget_names()
            number = len(self._numbers)
            self._append(_NAMES.pack(NAMES, number) + msgspec.json.encode(names))
            self._numbers[names] = number
            self._held += len(names)
        return number

    def _forget_names(self) -> None:
        self._numbers.clear()
        self._names, self._held = None, 0

    def _append(self, payload: bytes) -> None:
        text = _FRAME.pack(len(payload), zlib.adler32(payload)) + payload
        if os.pwrite(self._descriptor, text, self._size) != len(text):
            raise OSError(28, "the disk took only part of a block")  # written over by the next one
        self._size += len(text)

    def _next_file(self) -> None:
        if self._closed:
            raise OSError(9, "the block file is closed")
        self._leave()
        self._folder.mkdir(parents=True, exist_ok=True)
        number = max((number for number, _ in pieces(self._folder, self._stem)), default=0)
        # a number is not used again, though its file was deleted: sealed parts may hold rows of that one
        number = max(number, sealed_number(self._folder, self._stem), self._file_number) + 1
        while True:
            path = self._path_of(number)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                break
            except FileExistsError:
                number += 1
        start = HEAD + msgspec.json.encode(self._about | {"made": time.time_ns()}) + b"\n"
        try:
            if os.pwrite(descriptor, start, 0) != len(start):
                raise OSError(28, "the disk is full")
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._descriptor, self._path, self._size, self._file_number = descriptor, path, len(start), number

    def _path_of(self, number: int) -> Path:
        return self._folder / f"{self._stem}.{number:04d}.wide"

    def _leave(self) -> None:
        if self._descriptor >= 0:
            self._left[self._file_number] = self.rows - self._left_rows
            self._left_rows = self.rows
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor, self._size = -1, 0
        self._forget_names()

    def _keep(self, item: bytes | tuple[tuple[str, ...], bytes], error: OSError) -> None:
        size = len(item) if isinstance(item, bytes) else len(item[1])
        if self._closed or self._waiting_bytes + size > self._most_waiting:
            self.lost += 1
            return
        if not self._waiting:
            reason = error.strerror or str(error)
            self._trouble(
                f"could not write wide rows to {self._folder} ({reason}); training goes on, they wait in memory"
            )
        self._waiting.append(item)
        self._waiting_bytes += size

    def _write_waiting(self) -> None:
        while self._waiting:
            item = self._waiting[0]
            if isinstance(item, bytes):
                if self._size >= PIECE_BYTES or self._descriptor < 0:
                    self._next_file()
                self._append(item)
                self.rows += 1
                size = len(item)
            else:
                names, rest = item
                number = self._number(names)
                self._append(_ROW.pack(ROW, number, *struct.unpack_from("<qqiq", rest)) + rest[28:])
                self.rows += 1
                size = len(rest)
            self._waiting_bytes -= size
            del self._waiting[0]


def _has_content(path: Path) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


# -- reading --------------------------------------------------------------------------------------


def pieces(folder: Path, stem: str | None = None) -> list[tuple[int, Path]]:
    """The block files in a folder, of one log or of all, by number."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = _PIECE_NAME.fullmatch(name)
            if match and stem in (None, match[1]):
                found.append((int(match[2]), folder / name))
    return sorted(found)


def sealed_number(folder: Path, stem: str) -> int:
    """The last block file that was deleted after it was sealed: its number isn't used again. 0: none."""
    number = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(folder / "store" / stem):
            if name.endswith(SEALED_SUFFIX) and name.removesuffix(SEALED_SUFFIX).isdecimal():
                number = max(number, int(name.removesuffix(SEALED_SUFFIX)))
    return number


def sealed_ends(folder: Path, stem: str) -> dict[str, int]:
    """Block files that were deleted after they were sealed, and how many bytes each had, as far as that was noted."""
    path = folder / "store" / stem / f"{sealed_number(folder, stem):04d}{SEALED_SUFFIX}"
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    return {}


class BlockReader:
    """The blocks of one file, read again and again while it grows.

    offset: the end of a block read before, or 0. Damage ends the reading: `problem` says so, once the file is not
    longer the last of its log, because a block that is being written looks the same. The file stays open until
    `close`, so that it is read to its end though it is deleted meanwhile. After that `read` opens it again and goes on
    where it was, if it is still the same file.
    """

    def __init__(self, path: Path, offset: int = 0):
        self.path = path
        self.offset = offset
        self.about: dict[str, Any] = {}
        self.problem = ""
        self.scanned = 0  # all blocks up to here were read; names are known up to here
        self._names: dict[int, tuple[str, ...]] = {}
        self._descriptor = -1
        self._file: tuple[int, int] | None = None  # its device and inode, once it was open
        self._first_line = b""

    def read(self) -> Iterator[Block]:
        """Blocks behind `offset` that are whole by now. Raises FileNotFoundError if the file is gone."""
        if self._descriptor < 0:
            self._open()
        if not self.scanned and not self._read_start():
            return
        data, base = b"", self.scanned
        while True:
            at = self.scanned
            payload = self._payload(data, at - base)
            if payload is None:  # the rest of what was read at once, or what has been written since
                data, base = os.pread(self._descriptor, _CHUNK, at), at
                length = _FRAME.unpack_from(data)[0] + _FRAME.size if len(data) >= _FRAME.size else 0
                if len(data) < length <= _MOST_BLOCK:
                    data = os.pread(self._descriptor, length, at)
                payload = self._payload(data, 0)
                if payload is None:
                    if data[: _FRAME.size].strip(b"\0") and len(data) >= _FRAME.size:
                        self.problem = f"{self.path.name} is damaged or being written at byte {at}"
                    return
            self.problem = ""
            self.scanned = at + _FRAME.size + len(payload)
            block = self._block(payload, self.scanned)
            if block is not None and self.scanned > self.offset:
                self.offset = self.scanned
                yield block

    @staticmethod
    def _payload(data: bytes, at: int) -> bytes | None:
        """The payload of the block at a place in some bytes; None if it is not whole there."""
        start = at + _FRAME.size
        if len(data) < start:
            return None
        length, check = _FRAME.unpack_from(data, at)
        payload = data[start : start + length]
        return payload if length and len(payload) == length and zlib.adler32(payload) == check else None

    def replaced(self) -> bool:
        """Whether the path holds another file by now, or none."""
        try:
            return self._file is not None and self._file != _identity(os.stat(self.path))
        except OSError:
            return True

    def _open(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        file, first = _identity(os.fstat(descriptor)), os.pread(descriptor, len(self._first_line), 0)
        if self._file is not None and (self._file != file or self._first_line != first):
            os.close(descriptor)
            self._file = (-1, -1)  # though its inode may be the old one's
            raise FileNotFoundError(errno.ENOENT, "another file by now", str(self.path))
        self._descriptor, self._file = descriptor, file

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def _read_start(self) -> bool:
        start = os.pread(self._descriptor, 1 << 16, 0)
        line = start.find(b"\n", len(HEAD))
        if not start.startswith(HEAD) or line < 0:
            self.problem = f"{self.path.name} is not a block file, or its beginning is torn"
            return False
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            self.about = msgspec.json.decode(start[len(HEAD) : line], type=dict[str, Any])
        self.scanned, self._first_line = line + 1, start[: line + 1]
        self.problem = ""
        return True

    def _block(self, payload: bytes, end: int) -> Block | None:
        kind = payload[0]
        if kind == NAMES:
            _, number = _NAMES.unpack_from(payload)
            self._names[number] = tuple(msgspec.json.decode(payload[_NAMES.size :], type=list[str]))
        elif kind == ROW:
            _, number, step, time, segment, log = _ROW.unpack_from(payload)
            names = self._names.get(number)
            values = payload[_ROW.size :]
            if names is not None and len(values) == 8 * len(names):
                return WideRow(names, values, step, time, segment, log, end)
        elif kind == HISTOGRAM:
            _, step, time, segment, log, size = _HISTOGRAM.unpack_from(payload)
            at = _HISTOGRAM.size + size
            name = payload[_HISTOGRAM.size : at].decode("utf-8", "surrogatepass")
            (bins,) = struct.unpack_from("<I", payload, at)
            return WideHistogram(name, payload[at + 4 :], bins, step, time, segment, log, end)
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def doubles(numbers: Sequence[float]) -> bytes:
    """Numbers as little-endian doubles. Raises struct.error for what is not a number."""
    return struct.pack(f"<{len(numbers)}d", *numbers)
