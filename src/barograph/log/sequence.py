"""The block files of one log as one sequence, also over files that were sealed and deleted before they were read.

In:   the run's folder and the log's stem, again and again; an earlier sequence's place.
Out:  blocks, each once, in the order in which they were written; where a later process goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from barograph.core import providers
from barograph.log.blocks import SEALED, Block, BlockReader, pieces, sealed_number


class Followed(Protocol):
    """What is needed of a `Follower`."""

    folder: Path
    missed: dict[str, int]
    problems: dict[str, str]


class BlockSequence:
    """The block files of one log, one after the other. `block`: the next one, if it has been read."""

    def __init__(self, follower: Followed, stem: str, place: Mapping[str, Any]):
        self.block: Block | None = None
        self._follower, self._stem = follower, stem
        self._number = self._end = self._made = 0  # the file in use; the last block given; which file it was
        self._reader: BlockReader | None = None
        self._unread: Iterator[Block] = iter(())
        self._done = True  # with that file
        self._sealed: Iterator[Block] | None = None  # what is left of the files `_fetched`, which are gone
        self._fetched: list[str] = []
        self._last: tuple[int, list[Any]] = -(1 << 63), []  # time of the last block, steps and names given of it
        self._ended = False  # all that there was at the last look has been read
        with contextlib.suppress(KeyError, TypeError, ValueError):
            self._number, self._end, self._made = int(place["piece"]), int(place["block"]), int(place["made"])
            self._done = bool(place["done"])
            self._last = int(place["last"][0]), [tuple(key) for key in place["last"][1]]

    def place(self) -> dict[str, Any]:
        last = {"last": [self._last[0], list(self._last[1])]}
        return {"piece": self._number, "block": self._end, "made": self._made, "done": self._done} | last

    def look_again(self) -> None:
        """The log was read: all blocks that stand before its end are in the files by now."""
        self._ended = False

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._unread = None, iter(())
        self.block = None

    def skip(self) -> None:
        """Go to the end."""
        self.close()
        numbers = [number for number, _ in pieces(self._follower.folder, self._stem)]
        self._number = max(numbers, default=sealed_number(self._follower.folder, self._stem))
        self._done = not numbers
        while numbers and (block := self._of_file(numbers)) is not None:
            self._note(block)
            for block in self._unread:
                self._note(block)
            if self._reader is not None:
                self._end = self._reader.scanned

    def next(self) -> Block | None:
        if self.block is None and not self._ended:
            self.block = next(self._unread, None) or self._from_files()
            self._ended = self.block is None
        return self.block

    def take(self) -> tuple[Block, int]:
        assert self.block is not None
        block, self.block = self.block, None
        self._note(block)
        if block.log == SEALED:
            return block, len(block[1])
        size, self._end = block.end - self._end, block.end
        return block, max(size, 1)

    def _note(self, block: Block) -> None:
        """Keep by what a block is known again in sealed columns."""
        if block.time != self._last[0]:
            self._last = block.time, []
        self._last[1].append(_key(block))

    def _from_sealed(self) -> Block | None:
        """The next block of files that were sealed and deleted unread."""
        follower, since = self._follower, self._last[0]
        if self._sealed is None:
            self._fetched = [name for name in follower.missed if name.rsplit(".", 2)[0] == self._stem]
            if not self._fetched:
                return None
            self._sealed = providers.provider("sealed blocks")(follower.folder, self._stem, self._fetched, since)
        for block in self._sealed:
            if block.time > self._last[0] or _key(block) not in self._last[1]:
                return block
        for name in self._fetched:
            follower.missed.pop(name, None)
        self._sealed = None
        return None

    def _from_files(self) -> Block | None:
        """The first block that has not been read, out of the file in use or a later one."""
        folder = self._follower.folder
        numbers = [number for number, _ in pieces(folder, self._stem)]
        while True:
            if (sealed_block := self._from_sealed()) is not None:
                return sealed_block
            if not self._done:
                block = self._of_file(numbers)
                if block is not None:
                    return block
                if self._reader is not None and not self._left(numbers):
                    return None
                self._done = True
            sealed = sealed_number(folder, self._stem)
            later = next((number for number in numbers if number > self._number), None)
            for number in range(self._number + 1, min(sealed + 1, later or sealed + 1)):
                self._follower.missed.setdefault(self._name(number), 0)
            self.close()
            if later is None:
                left, self._number = self._number < sealed, max(self._number, sealed)
                if left:
                    continue
                return None
            self._number, self._end, self._made, self._done = later, 0, 0, False

    def _left(self, numbers: list[int]) -> bool:
        """Whether the writer has left the file in use: there is a later one, or it was deleted with its folder."""
        if max(numbers, default=0) > self._number:
            return True
        assert self._reader is not None
        if not self._reader.replaced() or self._number <= sealed_number(self._follower.folder, self._stem):
            return False
        self._number = 0  # and the numbers begin anew
        return True

    def _of_file(self, numbers: list[int]) -> Block | None:
        """The next block of the file in use. Without a `_reader` then, it is gone."""
        if self._reader is None:
            self._reader = BlockReader(self._follower.folder / self._name(self._number), self._end)
        reader = self._reader
        try:
            self._unread = reader.read()
            block = next(self._unread, None)
        except OSError:
            if self._number <= sealed_number(self._follower.folder, self._stem):
                self._follower.missed.setdefault(self._name(self._number), self._end)
            else:
                self._number = 0
            self.close()
            return None
        made = reader.about.get("made", 0)
        if self._end and made != self._made and reader.scanned:  # the folder was deleted, and the number used again
            self.close()
            self._end, self._made = 0, 0
            return self._of_file(numbers)
        self._made = made if isinstance(made, int) else 0
        if block is None and reader.problem and max(numbers, default=0) > self._number:
            self._follower.problems[reader.path.name] = reader.problem
        return block

    def _name(self, number: int) -> str:
        return f"{self._stem}.{number:04d}.wide"


def _key(block: Block) -> tuple[int, str]:
    return block.step, getattr(block, "name", "")
