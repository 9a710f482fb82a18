"""A sign of life in a file, written by the loop's own calls: is the process there, does it log, do its steps advance.

In:   the run's present step, what the run is busy with.
Out:  `store/{log}/heartbeat.json`, replaced about every ten seconds; `liveness` reads it.

The file keeps apart what one time can't: `time` (the process lives), `logged` (its last record) and `stepped` (its
last step), all by this process's clock. It is for ranks of other machines; on this one the process itself is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barograph.core import liveness, place
from barograph.training.recorder import Recorder

SECONDS = 10.0
FILE = "heartbeat.json"


class LoopHeartbeat:
    """One a writer. state: says what the run is doing between steps (`"eval"`), if known."""

    def __init__(self, recorder: Recorder, state: Callable[[], str | None], seconds: float = SECONDS):
        self._out, self._state, self.seconds = recorder, state, seconds
        self._about: dict[str, Any] = {
            "rank": recorder.rank,
            "world_size": recorder.world_size,
            **liveness.process(),
            "launch": place.launch_id(),
            "started": time.time(),
            "every_seconds": seconds,
        }
        self._owner = os.getpid()
        self._step, self._stepped = recorder.current_step, 0.0
        self._paces: deque[float] = deque(maxlen=20)  # seconds a step, between two looks that saw steps
        self._seen = self._written = time.monotonic()

    @property
    def _folder(self) -> Path:
        return self._out.dir / "store" / self._out.stem

    def beat(self) -> None:
        """A log call, about once a second."""
        step, now = self._out.current_step, time.monotonic()
        if step != self._step:
            if self._stepped and step > self._step:
                self._paces.append((now - self._seen) / (step - self._step))
            self._step, self._stepped, self._seen = step, time.time(), now
        if now - self._written >= self.seconds:
            self._write("running")

    def stop(self) -> None:
        """The process has ended as it should; said where it was said that it lives."""
        if os.getpid() == self._owner and (self._folder / FILE).exists():
            self._write("ended")

    def _write(self, state: str) -> None:
        self._written = time.monotonic()
        paces = sorted(self._paces)
        content = self._about | {
            "segment": self._out.segment.number,
            "time": time.time(),
            "state": state,
            "phase": self._state(),
            "logged": time.time(),
            "step": self._step,
            "stepped": self._stepped or None,
            "step_seconds": round(paces[len(paces) // 2], 6) if paces else None,
        }
        folder = self._folder
        temporary = folder / f".{FILE}.{os.getpid()}"
        with contextlib.suppress(OSError):  # a full disk, a folder that was deleted: the next one may work
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content))
            os.replace(temporary, folder / FILE)
