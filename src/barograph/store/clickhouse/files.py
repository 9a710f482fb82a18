"""A run's files besides its columns, on the server: the logs, the manifest, segments, what people noted.

In:   a run's folder; a client.
Out:  the files as the server has them; pieces of those that are new.

A log grows: what was sent stays, and the next piece begins where the last one ended. Other files are replaced whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barograph.core import manifest
from barograph.core.lazy import lazy
from barograph.log.array import end_of
from barograph.log.files import is_log_name
from barograph.log.read import records_from
from barograph.log.spool import best_copy
from barograph.store.clickhouse import native
from barograph.store.clickhouse.batches import where
from barograph.store.clickhouse.client import Client, ServerError, quote

if TYPE_CHECKING:
    import pyarrow
else:
    pyarrow = lazy("pyarrow")

PIECE = 4 << 20  # bytes of a file in one row
MAIN = "main"
LARGEST = 256 << 20  # a file that is not a log and larger is left out
_LEVEL = 1  # of ZSTD: higher ones are slower by far, and logs get no smaller below 15
_SKIPPED = (".wide", ".parquet", ".damaged")  # what is in the columns, or not readable


class FileState(NamedTuple):
    """A file as the server has it. sha256: of the whole, or of the last piece of a log; origin: of `origin_of`."""

    version: int
    epoch: int
    size: int
    changed: int
    grows: bool
    gone: bool
    sha256: str
    origin: str


def origin_of(folder: Path) -> str:
    """Which of a run's folders this is, where its hosts have one each: MAIN has the manifest, others have the name of
    their first log, in which the host's is."""
    if (folder / manifest.FILE).exists():
        return MAIN
    return min((path.name for path in folder.iterdir() if is_log_name(path.name)), default="")


def read_files(
    client: Client, project: str, run: str, origin: str | None = None, files: Collection[str] = ()
) -> dict[str, FileState]:
    """A run's files on the server, by their paths in its folder; those too that were deleted. origin: only what is from
    that folder, and these files."""
    among = f" OR file IN ({', '.join(map(quote, files))})" if files else ""
    chosen = f" AND (origin = {quote(origin)}{among})" if origin is not None else ""
    columns = "version, epoch, size, changed, grows, gone, sha256, origin"
    found: dict[str, FileState] = {}
    for file, *state in client.rows(
        f"SELECT file, {columns} FROM files WHERE {where(project, run)}{chosen} ORDER BY version"
    ):
        version, epoch, size, changed, grows, gone = map(int, state[:6])
        found[file] = FileState(version, epoch, size, changed, bool(grows), bool(gone), state[6], state[7])
    return found


def local_files(folder: Path) -> dict[str, Path]:
    """The files of a run's folder that are sent, by their paths in it."""
    found = {}
    for home, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(home, name)
            if not name.startswith(".") and not name.endswith(_SKIPPED) and path.is_file():
                found[path.relative_to(folder).as_posix()] = path
    return found


def is_log(file: str) -> bool:
    """Whether a file is a log, which grows."""
    return "/" not in file and is_log_name(file)


def log_content(path: Path, start: int) -> Iterator[bytes]:
    """Whole records of a log behind a byte, in pieces."""
    with open(best_copy(path), "rb") as file:
        found = end_of(file.fileno(), os.fstat(file.fileno()).st_size)
        end = found[0] if found is not None else max((end for _, end in records_from(best_copy(path))), default=0)
        at = start
        while at < end:
            content = os.pread(file.fileno(), min(PIECE, end - at), at)
            if not content:
                return
            at += len(content)
            yield content


class FileSender:
    """Sends what is new of a run's files. version: above all that the server has of the run; origin: the folder."""

    def __init__(self, client: Client, project: str, run: str, version: int, origin: str):
        self._client, self._project, self._run, self._version = client, project, run, version
        self._origin = origin
        self.bytes = self.packed_bytes = 0

    def send(self, file: str, path: Path, held: FileState | None) -> bool:
        """Send what the server has not of a file; whether there was anything."""
        if held is not None and not held.gone and held.origin != self._origin != MAIN:
            return False  # both have one of this name: that of the main folder counts, or that which came first
        return self._send_log(file, path, held) if is_log(file) else self._send_whole(file, path, held)

    def send_gone(self, file: str, held: FileState) -> None:
        """Say that a file was deleted from the folder that it was sent from."""
        if held.origin == self._origin:
            self.say({file: held._replace(version=self._version, gone=True, size=0)})

    def _send_log(self, file: str, path: Path, held: FileState | None) -> bool:
        start = held.size if held is not None and not held.gone and self._is_same(file, path, held) else 0
        epoch = held.epoch if held is not None and start else self._version
        changed = path.stat().st_mtime_ns
        end, digest = self.send_pieces(file, path, start)
        if end == start and held is not None and start:
            return False
        digest = digest or (held.sha256 if held is not None else "")
        self.say({file: FileState(self._version, epoch, end, changed, True, False, digest, self._origin)})
        return True

    def send_pieces(self, file: str, path: Path, start: int) -> tuple[int, str]:
        """Send a log from a byte on, which counts once it is said; where it ends, and the last piece's digest."""
        end, digest = start, ""
        for content in log_content(path, start):
            digest = hashlib.sha256(content).hexdigest()
            self._piece(file, end, content)
            end += len(content)
        return end, digest

    def _is_same(self, file: str, path: Path, held: FileState) -> bool:
        """Whether the log still begins with what was sent of it, by its last piece."""
        if not held.size:
            return True
        answer = self._client.rows(
            f"SELECT max(start) FROM pieces WHERE {where(self._project, self._run)} AND file = {quote(file)} "
            f"AND version >= {held.epoch} AND version <= {held.version} AND start < {held.size}"
        )
        start = int(answer[0][0])
        with open(best_copy(path), "rb") as log:
            content = os.pread(log.fileno(), held.size - start, start)
        return hashlib.sha256(content).hexdigest() == held.sha256

    def _send_whole(self, file: str, path: Path, held: FileState | None) -> bool:
        status = path.stat()
        if status.st_size > LARGEST:
            return False
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        same = (len(content), digest, self._origin)
        if held is not None and not held.gone and (held.size, held.sha256, held.origin) == same:
            return False
        for start in range(0, len(content), PIECE):
            self._piece(file, start, content[start : start + PIECE])
        version, changed = self._version, status.st_mtime_ns
        self.say({file: FileState(version, version, len(content), changed, False, False, digest, self._origin)})
        return True

    def _piece(self, file: str, start: int, content: bytes) -> None:
        self.bytes += len(content)
        packed = pyarrow.Codec("zstd", _LEVEL).compress(content, asbytes=True)
        self.packed_bytes += len(packed)
        self._insert("pieces", [file], {
            "start": native.constant("UInt64", start, 1), "version": native.constant("UInt64", self._version, 1),
            "size": native.constant("UInt64", len(content), 1), "zstd": native.constant("UInt8", 1, 1),
            "content": native.texts([packed]),
        })  # fmt: skip

    def say(self, states: Mapping[str, FileState]) -> None:
        """Say what counts of these files, of all of them at once."""
        kinds = {"version": "UInt64", "epoch": "UInt64", "size": "UInt64", "changed": "UInt64", "grows": "UInt8",
                 "gone": "UInt8"}  # fmt: skip
        self._insert("files", list(states), {
            **{name: native.numbers(kind, [getattr(state, name) for state in states.values()])
               for name, kind in kinds.items()},
            **{name: native.texts(getattr(state, name) for state in states.values()) for name in ("sha256", "origin")},
        })  # fmt: skip

    def _insert(self, table: str, files: Sequence[str], columns: dict[str, tuple[str, bytes]]) -> None:
        rows = len(files)
        identity = {"project": native.repeated([self._project], [rows]), "run": native.repeated([self._run], [rows])}
        body = native.block(rows, identity | {"file": native.texts(files)} | columns)
        self._client.run(f"INSERT INTO {table} FORMAT Native", body)


def fetch(client: Client, project: str, run: str, file: str, state: FileState, start: int = 0) -> Iterator[bytes]:
    """The bytes of a file from one on. Pieces may overlap: a log's bytes are the same in each of its epoch.

    Raises ServerError where they are not whole.
    """
    at = start
    about = (
        f"{where(project, run)} AND file = {quote(file)} AND version >= {state.epoch} AND version <= {state.version}"
    )
    found = client.rows(
        f"SELECT DISTINCT start, size FROM pieces WHERE {about} AND start + size > {at} ORDER BY start, size"
    )
    pieces = [(int(first), int(size)) for first, size in found]
    while at < state.size:
        group = [piece for piece in pieces if at < piece[0] + piece[1] and piece[0] < at + PIECE]
        answer = native.columns(
            client.run(
                f"SELECT start, size, zstd, content FROM pieces WHERE {about} AND start >= {min(group)[0]} "
                f"AND start <= {max(group)[0]} ORDER BY start, size FORMAT Native"
            )
        ) if group else {}  # fmt: skip
        before = at
        columns = [answer[name].tolist() for name in ("start", "size", "zstd")] if answer else [[]] * 3
        for first, size, zstd, held in zip(*columns, answer.get("content", ()), strict=True):
            if zstd:
                held = pyarrow.Codec("zstd").decompress(held, size, asbytes=True)
            if first <= at < first + len(held):
                content = held[at - first : state.size - first]
                at += len(content)
                yield content
        if at == before:
            raise ServerError(f"{file} of the run {run} is not whole on the server: nothing at byte {at}")
