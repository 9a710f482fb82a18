"""A stored run as it stood at one moment: its files are looked for once, and not again for each of its series.

In:   a stored run.
Out:  the same run, for one reader who asks it thousands of times.

Of a run that nobody writes any more everything is kept. Of one that goes on the numbers are looked for each time:
they move from the log file to the store while they are read, and must not be seen twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from barograph.liveness import OPEN
from barograph.reading.query import StoredRun
from barograph.reading.tails import Tail, Tails
from barograph.segments import Segment


class Snapshot(StoredRun):
    """A run at one moment."""

    def __init__(self, run: StoredRun):
        self.__dict__ = dict(run.__dict__)
        if self.status not in OPEN:
            self._tails = _StillTails(self.dir, self._bare_log, self._store)

    @cached_property
    def _seen_manifest(self) -> dict[str, Any]:
        return super().manifest

    @cached_property
    def _seen_status(self) -> str:
        return super().status

    @cached_property
    def _seen_segments(self) -> list[Segment]:
        return super().segments

    @cached_property
    def _seen_origin(self) -> tuple[StoredRun, int] | None:
        return super().origin

    @property
    def manifest(self) -> dict[str, Any]:
        return self._seen_manifest

    @property
    def status(self) -> str:
        return self._seen_status

    @property
    def segments(self) -> list[Segment]:
        return self._seen_segments

    @property
    def origin(self) -> tuple[StoredRun, int] | None:
        return self._seen_origin


class _StillTails(Tails):
    """The tails of log files that don't grow any more."""

    @cached_property
    def _seen_files(self) -> list[Path]:
        return super().files()

    @cached_property
    def _seen_covered(self) -> dict[str, int]:
        return super().covered()

    @cached_property
    def _seen_beyond(self) -> list[Tail]:
        return list(super().beyond(self.covered()))

    def files(self) -> list[Path]:
        return list(self._seen_files)

    def covered(self) -> dict[str, int]:
        return self._seen_covered

    def beyond(self, covered: dict[str, int]) -> Iterator[Tail]:
        return iter(self._seen_beyond)
