"""Rows that were worked out before, kept for the next server of the same folder.

In:   rows of runs that ended.
Out:  the same rows, as long as the files that they were made from are the same.

Thousands of runs take seconds to read and minutes to fill in; a row that was kept takes a look at a few files. They are
in the user's cache, $XDG_CACHE_HOME/barograph/rows or under ~/.cache, which may be deleted at any time: nothing is in
it that is not made again from the runs. Rows made by other code or with other options are not taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from barograph.core import options
from barograph.core.place import cache_folder
from barograph.views.server.places import RunPlace
from barograph.views.server.rows import RunRow

FEWEST = 100  # fewer rows are made again as quickly
_MOST_FOLDERS = 20  # whose rows are kept; those that were not written for the longest time go first
_PACKAGE = Path(__file__).parents[2]


class _Kept(msgspec.Struct, array_like=True):
    """As `RunRow` has them. raw, recorded: as JSON."""

    signature: tuple[tuple[int, int] | None, ...]
    raw: bytes
    source: str | None
    recorded: bytes
    edited: dict[str, object]
    written: float
    is_filled: bool
    is_diagnosed: bool


class _File(msgspec.Struct):
    code: str
    root: str
    rows: dict[str, _Kept]


class KeptRows:
    """The rows that are kept of a folder. `stale`: how many rows are others than those that were written."""

    def __init__(self, root: Path):
        self.root = root
        self.stale = 0
        self._code = _code()
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
        self._path = cache_folder() / "rows" / f"{name}.msgpack"
        self._rows: dict[str, _Kept] | None = None

    def take(self, place: RunPlace, signature: tuple[tuple[int, int] | None, ...]) -> RunRow | None:
        """The row of a run whose files are as they were; None where there is none. Each is given once."""
        if self._rows is None:
            self._rows = self._read()
        kept = self._rows.pop(place.key, None)
        if kept is None or kept.signature != signature:
            self.stale += 1
            return None
        row = RunRow(place)
        row.restore(kept.signature, kept.raw, kept.source, kept.recorded, kept.edited, kept.written)
        row.is_filled, row.is_diagnosed = kept.is_filled, kept.is_diagnosed
        return row

    def forget(self) -> None:
        """Let go of rows that nobody took: their runs are gone."""
        self._rows = {}

    def write(self, rows: Iterable[RunRow]) -> None:
        """Keep the rows of runs that ended, in place of those before. Never raises."""
        kept = {}
        self.stale = 0
        for row in rows:
            if not row.live and "problem" not in row.data:
                kept[row.place.key] = _Kept(
                    row.signature, row.raw, row.data["source"], row.recorded_json, row.edited, row.written,
                    row.is_filled, row.is_diagnosed,
                )  # fmt: skip
        if len(kept) < FEWEST:
            return
        with contextlib.suppress(OSError, ValueError, TypeError):
            folder = self._path.parent
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = folder / f".{self._path.name}.{os.getpid()}"
            try:
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(msgspec.msgpack.encode(_File(self._code, os.fsdecode(self.root), kept)))
                os.replace(temporary, self._path)
            finally:
                temporary.unlink(missing_ok=True)
            files = sorted(folder.glob("*.msgpack"), key=lambda path: path.stat().st_mtime)
            for path in files[:-_MOST_FOLDERS]:
                path.unlink(missing_ok=True)

    def _read(self) -> dict[str, _Kept]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            found = msgspec.msgpack.decode(self._path.read_bytes(), type=_File)
            if found.code == self._code and found.root == os.fsdecode(self.root):
                return found.rows
        return {}


def _code() -> str:
    """What changes when a row, or what the doctor says of its run, may come out differently: the code, the options."""
    found = hashlib.sha256()
    with contextlib.suppress(options.ConfigError):  # of which whoever asks the doctor hears
        found.update(repr(options.load()).encode(errors="replace"))
    for folder, inside, files in os.walk(_PACKAGE):
        inside.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                with contextlib.suppress(OSError):
                    status = os.stat(os.path.join(folder, name))
                    found.update(f"{folder} {name} {status.st_mtime_ns} {status.st_size}\n".encode(errors="replace"))
    return found.hexdigest()
