"""About: what a run is, and how it stands.

In:   the recorder of a run.
Out:  its name, project, rank, status, log file.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from barograph.core import manifest
from barograph.core.options import Settings
from barograph.core.segments import Segment
from barograph.core.values import whole
from barograph.training.recorder import Recorder


class About:
    """`run.about`. `status`: running, or how the run was ended."""

    def __init__(self, recorder: Recorder):
        self._out = recorder
        self.status = "running"

    @property
    def id(self) -> str:
        """The run's identity, also its folder's name."""
        return self._out.id

    @property
    def name(self) -> str:
        """What it is called."""
        return self._out.settings.name or self._out.id

    @property
    def project(self) -> str:
        """What it belongs to."""
        return self._out.settings.project

    @property
    def dir(self) -> Path:
        """Its folder."""
        return self._out.dir

    @property
    def log_file(self) -> Path:
        """Where this process's records are (or will be, once they are carried to a network file system)."""
        return self._out.log_path

    @property
    def settings(self) -> Settings:
        """All options."""
        return self._out.settings

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._out.rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._out.world_size

    @property
    def segment(self) -> Segment:
        """The segment that goes on: a start, resume, rewind or fork."""
        return self._out.segment

    @property
    def step(self) -> int:
        """The step that was begun or logged last."""
        return self._out.current_step

    def plan_steps(self, total: int) -> None:
        """The run's length in steps, where it becomes known after the start: for progress and the time left."""
        steps = whole(total)
        if steps is None or steps < 1 or steps == self._out.console.total_steps:
            return
        self._out.console.total_steps = steps
        if self._out.is_main:
            with contextlib.suppress(OSError):
                manifest.update(self._out.dir, total_steps=steps)

    def __repr__(self) -> str:
        return f"<{self.project}/{self.id}: {self.status}, rank {self.rank} of {self.world_size}>"
