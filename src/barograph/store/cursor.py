"""Following a run: what its writers flushed since the last look.

In:   the folder `store/` of a run, again and again.
Out:  new blocks in the order in which each writer flushed them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from barograph.store.folder import writer_names
from barograph.store.live import Block, LiveFile, Replaced
from barograph.store.schema import StoreFile, parse_names


class Update(NamedTuple):
    """New blocks, each with its writer's name. `missed`: more was sealed before it was seen; read it anew."""

    blocks: list[tuple[str, Block]]
    missed: bool


class Cursor:
    """Follows the live files of a run; each `read` gives what was flushed since the last one.

    Keeps the file it reads open, so a file that is sealed and deleted between two reads is still read
    to its end. A file that came and went between two reads is only told by `missed`.
    """

    def __init__(self, store: Path):
        self._store = store
        self._places: dict[str, Arrivals] = {}

    def read(self) -> Update:
        blocks: list[tuple[str, Block]] = []
        missed = False
        writers = writer_names(self._store)
        for writer in writers:
            place = self._places.setdefault(writer, Arrivals(self._store / writer, None))
            new, lost = place.read()
            blocks += [(writer, block) for block in new]
            missed |= lost
        for gone in set(self._places) - set(writers):
            self._places.pop(gone).close()
        return Update(blocks, missed)

    def close(self) -> None:
        for place in self._places.values():
            place.close()
        self._places.clear()


class Arrivals:
    """The blocks that one writer flushes from now on; its files are followed as they are written and sealed.

    The file that is written is kept open, so it is read to its end though it is sealed and deleted meanwhile.
    number: of the file read last, or reported as missed, and every one before it; None: what is sealed at the first
    look is known.
    """

    def __init__(self, path: Path, number: int | None = 0):
        self._path, self._number = path, number
        self._open: tuple[LiveFile, int] | None = None

    def read(self) -> tuple[list[Block], bool]:
        """Blocks since the last call, and whether there were others, by now sealed: then read the folder anew."""
        new: list[Block] = []
        # listed first: a file that is followed by another in this list is complete when it is read below
        files = self._list()
        missed = self._read_open(new)
        sealed = max((file.last for file in files if file.table != "live"), default=0)
        if self._number is None:
            self._number = sealed
        live = {file.first: file.name for file in files if file.table == "live" and file.first > self._number}
        # written, sealed and deleted between two looks, perhaps while a newer one is there already
        missed |= any(number not in live for number in range(self._number + 1, sealed + 1))
        for number in sorted(live):
            try:
                descriptor = os.open(self._path / live[number], os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                missed = True
                continue
            self.close()
            self._open, self._number = (LiveFile(self._path / live[number]), descriptor), number
            missed |= self._read_open(new)
        self._number = max(self._number, sealed)
        return new, missed

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
        self._open = None

    def _list(self) -> list[StoreFile]:
        try:
            return parse_names(os.listdir(self._path))
        except FileNotFoundError:
            return []

    def _read_open(self, new: list[Block]) -> bool:
        """Whether the file followed could not be read."""
        if self._open is None:
            return False
        try:
            new += self._open[0].read_new(self._open[1])
        except (OSError, Replaced):  # deleted on another machine of a network file system
            self.close()
            return True
        return False
