"""What a run's folder holds, for a mirror: rank 0's logs, its wide rows, and what the sidecar of its host found out.

In:   a run's folder or log file, while it is written or long after; a `Place`.
Out:  records with the byte at which each ends, and wide rows and histograms with the number of each in its log.

It is the follow of the logs that the sidecar itself uses; what was sealed before it was read comes from the columns.
"""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple

from barograph.core.record import Record
from barograph.log.blocks import WideHistogram, WideRow
from barograph.log.follow import Entry, Follower
from barograph.log.spool import best_copy
from barograph.trackers.position import Place
from barograph.trackers.wide import Distribution, Numbers, counted


class Logged(NamedTuple):
    """A record; it ends at byte `end` of the log file `log`."""

    record: Record
    log: str
    end: int


class Wide(NamedTuple):
    """A row or histogram that is in no log file: the `number`-th of its log."""

    row: Numbers | Distribution
    log: str
    number: int


Item = Logged | Wide


class Replay:
    """Reads on from `place`, and keeps it at what was handed out.

    path: a run's folder, or a bare log file.
    """

    def __init__(self, path: Path, place: Place):
        self.place = place
        self._follower = Follower(path, place.follow or None)
        self._folder = self._follower.folder

    @property
    def problems(self) -> dict[str, str]:
        """A sentence for each file that is damaged."""
        return self._follower.problems

    def close(self) -> None:
        self._follower.close()

    def size(self) -> int:
        """Bytes of the log files that are still to be read."""
        left = 0
        for name, place in self._follower.places.items():
            if isinstance(place, dict) and "end" in place:
                with contextlib.suppress(OSError):
                    left += max(0, best_copy(self._folder / name).stat().st_size - int(place["end"]))
        return left

    def read(self, most: int) -> list[Item]:
        """The next items, at most about `most`; none if there is nothing for now."""
        while entries := self._follower.read(max(1 << 16, most * 256)):
            if present := [item for entry in entries if (item := self._item(entry)) is not None]:
                return present
        return []

    def _item(self, entry: Entry) -> Item | None:
        if entry.rank != 0:
            return None
        item, place = entry.item, self.place
        if isinstance(item, Record):
            place.offsets[entry.source] = entry.end
            return Logged(item, entry.source, entry.end)
        number = place.wide[entry.source] = place.wide.get(entry.source, 0) + 1
        key = (item.time, item.step)
        if isinstance(item, WideHistogram):
            edges, counts = counted(item)
            return Wide(Distribution((*key, item.name), edges, counts), entry.source, number)
        assert isinstance(item, WideRow)
        values = struct.unpack(f"<{len(item.names)}d", item.values)
        return Wide(Numbers((*key, ""), item.names, list(values)), entry.source, number)

    def settle(self) -> None:
        """All that was handed out has been sent."""
        self.place.follow = self._follower.places
