"""One folder of sealed parts, looked at again and again while it changes.

In:   a folder `store/training/` of a run.
Out:  the parts that hold a table's rows at this moment, opened and kept.
"""

from __future__ import annotations

import errno
import os
import time as clock
from pathlib import Path
from typing import Any

from barograph.core.damage import Problems
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.schema import StoreFile, number_of, parse_names, visible

LISTING_SETTLES_SECONDS = 2.0  # a folder changed within this may change again within its clock's tick
VANISHED = (errno.ENOENT, errno.ESTALE)  # deleted, or deleted on another machine
# Seconds before looking again at files that vanished: at once, as what they became is there already;
# later, where a network file system shows an old list for a while.
_PAUSES = (0.0, 0.0, 0.0, 0.0, 0.0, 0.002, 0.01, 0.05, 0.3)


class Folder:
    """What is in one folder, opened as far as needed and kept. problems: gets a sentence for each damaged file; rows:
    of `Part`."""

    def __init__(self, path: Path, cache: GroupCache, problems: Problems, rows: bool = True):
        self.path, self._rows = path, rows
        self._cache = cache
        self._problems = problems
        self._parts: dict[StoreFile, tuple[Any, Part | None]] = {}
        self._files: list[StoreFile] | None = None
        self._changed = -1  # the folder's time of change at the last listing, if that can be relied on

    def parts(self, table: str) -> list[Part]:
        """The parts that hold a table's rows at this moment, oldest first; without those of an import that was not
        brought to its end."""
        vanished: OSError | None = None
        for pause in _PAUSES:
            if pause:
                clock.sleep(pause)
            try:
                result = self._open(self._list(), table)
            except OSError as error:
                if error.errno not in VANISHED:
                    raise
                if not self.path.exists():
                    return []
                vanished = error
                self._files = None
            else:
                self._problems.forget(self.path)
                if not any(part.header.get("pending") for part in result):
                    return result
                committed = self.committed()
                return [part for part in result if number_of(part.path) <= committed]
        self._problems[self.path] = f"files of {self.path.name} vanish while they are read ({vanished})"
        return []

    def look_again(self) -> None:
        """Trust nothing that was seen."""
        self._files = None
        self._parts.clear()

    def committed(self) -> int:
        """The number of the last part that is none of an import that was not brought to its end."""
        parts = self._open(self._list(), "points")
        return max((number_of(part.path) for part in parts if not part.header.get("pending")), default=0)

    def remove_pending(self) -> None:
        """Remove the parts of an import that was not brought to its end, for who holds the import's lock."""
        committed = self.committed()
        for file in self._list():
            if file.first > committed:
                (self.path / file.name).unlink(missing_ok=True)
        self.look_again()

    def _list(self) -> list[StoreFile]:
        changed, settled = self._time_of_change()
        if self._files is not None and changed == self._changed:
            return self._files
        names = sorted(os.listdir(self.path))
        while not settled:
            # a name may be missed if it appears during a listing; two equal ones in a row miss none
            again = sorted(os.listdir(self.path))
            settled, names = again == names, again
            changed = -1
        files = parse_names(names)
        self._changed = changed
        self._files = files
        for gone in set(self._parts) - set(files):
            del self._parts[gone]
        return files

    def _time_of_change(self) -> tuple[int, bool]:
        """The folder's, and whether it lies so far back that it tells every later change."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # on a network only opening asks the server
        try:
            changed = os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
        return changed, abs(clock.time_ns() - changed) > LISTING_SETTLES_SECONDS * 1e9

    def _open(self, files: list[StoreFile], table: str) -> list[Part]:
        while True:
            opened: list[Part] = []
            for file in visible(files, table):
                part = self._part(file)
                if part is None:  # an unreadable file hides nothing
                    files = [other for other in files if other != file]
                    break
                opened.append(part)
            else:
                return opened

    def _part(self, file: StoreFile) -> Part | None:
        path = self.path / file.name
        status = os.stat(path)
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._parts.get(file)
        if known is None or known[0] != identity:
            try:
                known = identity, Part(path, self._cache, self._rows)
            except DamagedPart as error:
                self._problems[path] = f"{error}; what stood in a log is read from there"
                known = identity, None
            self._parts[file] = known
        return known[1]
