"""A stored run as it stood at one moment: its files are looked for once, and not again for each of its series.

In:   a stored run.
Out:  the same run, for one reader who asks it thousands of times.

Its numbers come from one look, so that series fit each other though the run goes on.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.core.segments import Segment
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    from barograph.store.run import Look


class Snapshot(StoredRun):
    """A run at one moment."""

    def __init__(self, run: StoredRun):
        self.__dict__ = dict(run.__dict__)
        self._opened = None  # the run's own reader goes on

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

    @cached_property
    def _seen_look(self) -> Look:
        return super()._look()

    @cached_property
    def _seen_logs(self) -> list[Path]:
        return super().log_files()

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

    def _look(self) -> Look:
        return self._seen_look

    def log_files(self) -> list[Path]:
        return list(self._seen_logs)
