"""One writer's folder, looked at again and again while it changes.

In:   the folder `store/<writer>/` of a run.
Out:  what holds a table's rows at this moment: sealed parts and live files, opened and kept.
"""

from __future__ import annotations

import errno
import os
import time as clock
from pathlib import Path
from typing import Any

from barograph.store.live import Block, LiveFile, Replaced
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.schema import StoreFile, parse_names, visible

LISTING_SETTLES_SECONDS = 2.0  # a folder changed within this may change again within its clock's tick
VANISHED = (errno.ENOENT, errno.ESTALE)  # deleted, or deleted on another machine
# Seconds before looking again at files that vanished: at once, as what they became is there already;
# later, where a network file system shows an old list for a while.
_PAUSES = (0.0, 0.0, 0.0, 0.0, 0.0, 0.002, 0.01, 0.05, 0.3)


def writer_names(store: Path) -> list[str]:
    """The writers' folders in a run's store, sorted; none if there is no store."""
    try:
        with os.scandir(store) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []


class LiveSource:
    """A live file and its blocks so far."""

    def __init__(self, path: Path):
        self.file = LiveFile(path)
        self.blocks: list[Block] = []

    def look(self) -> None:
        """Read what was committed since the last look. Raises OSError if the file can't be read."""
        try:
            self.blocks += self.file.read_new()
        except Replaced:  # the folder was deleted and made again
            self.file, self.blocks = LiveFile(self.file.path), []
            self.blocks += self.file.read_new()


class Folder:
    """One writer's folder: what is in it, opened as far as needed and kept."""

    def __init__(self, path: Path, cache: GroupCache, problems: dict[Path, str]):
        self.path = path
        self.lives: dict[str, LiveSource] = {}
        self._cache = cache
        self._problems = problems
        self._parts: dict[StoreFile, tuple[Any, Part | None]] = {}
        self._files: list[StoreFile] | None = None
        self._changed = -1  # the folder's time of change at the last listing, if that can be relied on

    def sources(self, table: str) -> list[Part | LiveSource]:
        """What holds a table's rows at this moment, oldest first, live files read to their end."""
        vanished: OSError | None = None
        for pause in _PAUSES:
            if pause:
                clock.sleep(pause)
            try:
                found = self._open(self._list(), table)
            except OSError as error:
                if error.errno not in VANISHED:
                    raise
                if not self.path.exists():
                    return []
                vanished = error
                self._files = None
            else:
                self._problems.pop(self.path, None)
                return found
        self._problems[self.path] = f"files of {self.path.name} vanish while they are read ({vanished})"
        return []

    def look_again(self) -> None:
        """Trust nothing that was seen: a sealed file was gone when it was read."""
        self._files = None
        self._parts.clear()

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
        for name in set(self.lives) - {file.name for file in files}:
            del self.lives[name]
        for gone in set(self._parts) - set(files):
            del self._parts[gone]
        return files

    def _time_of_change(self) -> tuple[int, bool]:
        """The folder's, and whether it lies so far back that it tells every later change."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # opened: see LiveFile.read_new
        try:
            changed = os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
        return changed, abs(clock.time_ns() - changed) > LISTING_SETTLES_SECONDS * 1e9

    def _open(self, files: list[StoreFile], table: str) -> list[Part | LiveSource]:
        # a points file hides live files from both tables, so it must be readable whatever is asked for
        live = [file for file in files if file.table == "live"]
        over = [file for file in files if file.table == "points" and any(map(file.covers, live))]
        files = [file for file in files if file not in over or self._part(file) is not None]
        while True:
            opened: list[Part | LiveSource] = []
            for file in visible(files, table):
                source = self._live(file) if file.table == "live" else self._part(file)
                if source is not None:
                    opened.append(source)
                else:  # an unreadable file hides nothing
                    files = [other for other in files if other != file]
                    break
            else:
                return opened

    def _live(self, file: StoreFile) -> LiveSource | None:
        path = self.path / file.name
        live = self.lives.pop(file.name, None) or LiveSource(path)
        try:
            live.look()
        except OSError as error:
            if error.errno in VANISHED:
                raise
            self._problems[path] = f"{file.name} can't be read: {error.strerror or error}"
            return None
        self.lives[file.name] = live  # the most recently read last
        if live.file.problem:
            self._problems[path] = live.file.problem
        return live

    def _part(self, file: StoreFile) -> Part | None:
        path = self.path / file.name
        status = os.stat(path)
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._parts.get(file)
        if known is None or known[0] != identity:
            try:
                known = identity, Part(path, self._cache)
            except DamagedPart as error:
                self._problems[path] = str(error)
                known = identity, None
            self._parts[file] = known
        return known[1]
