"""A sign of life in a file: is the process there, does it log, do its steps advance.

In:   the run's present step, the writer's log and store files, what the run is busy with.
Out:  `heartbeat.json` in the writer's folder, replaced every ten seconds by a thread of its own.

The file keeps three things apart that one time can't: `time` (the process lives), `logged` (its last record)
and `stepped` (its last step), all by this process's clock. `liveness` reads them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from barograph import place
from barograph.probes.ranks.watchdog import read_whole, write_whole
from barograph.probes.recording import Recording

SECONDS = 10.0
FILE = "heartbeat.json"
_LOOK_SECONDS = 1.0  # how often the step is looked at: what `stepped` is exact to


class Heartbeat:
    """One a writer. `folder` is the writer's in the store, with its `writer.json`.

    state: says what the run is doing (`"train"`, `"eval"`), if known; seconds: between two files.
    """

    def __init__(
        self, run: Recording, folder: Path, state: Callable[[], str | None] | None = None, seconds: float = SECONDS
    ):
        self.run, self.folder, self.state, self.seconds = run, folder, state, seconds
        writer = read_whole(folder / "writer.json")
        log = writer.get("log")
        self._log = run.dir / str(log) if log else None
        launch = place.launch_id()
        self._about = {
            "rank": run.rank,
            "world_size": run.world_size,
            "host": place.host(),
            "pid": os.getpid(),
            "process_started": started(),
            "segment": writer.get("segment", 1),
            "launch": launch,
            "started": time.time(),
            "every_seconds": seconds,
        }
        self._owner, self._stop = os.getpid(), threading.Event()
        self._step, self._stepped = run.current_step, 0.0
        self._paces: deque[float] = deque(maxlen=20)  # seconds a step, between two looks that saw steps
        self._seen = time.monotonic()
        self._written = 0.0
        self._trouble = False
        self._thread = threading.Thread(target=self._beat, name="barograph-heartbeat", daemon=True)
        self._thread.start()
        run.at_finish.append(self.stop)

    def stop(self) -> None:
        """Write that the process has ended as it should. A disk that hangs is given up after a second."""
        if os.getpid() != self._owner or self._stop.is_set():
            return
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def _beat(self) -> None:
        pause = min(_LOOK_SECONDS, self.seconds / 2)
        self._write("running")
        last = self._phase()
        while not self._stop.wait(pause):
            self._look()
            phase = self._phase()
            if phase != last or time.monotonic() - self._written >= self.seconds:
                last = phase
                self._write("running")
        self._look()
        self._write("ended")

    def _look(self) -> None:
        step, now = self.run.current_step, time.monotonic()
        if step != self._step:
            if self._stepped and step > self._step:
                self._paces.append((now - self._seen) / (step - self._step))
            self._step, self._stepped, self._seen = step, time.time(), now

    def _phase(self) -> str | None:
        with contextlib.suppress(Exception):
            return self.state() if self.state is not None else None
        return None

    def _write(self, state: str) -> None:
        self._written = time.monotonic()
        paces = sorted(self._paces)
        content = self._about | {
            "time": time.time(),
            "state": state,
            "phase": self._phase(),
            "logged": self._logged(),
            "step": self._step,
            "stepped": self._stepped or None,
            "step_seconds": round(paces[len(paces) // 2], 6) if paces else None,
        }
        try:
            write_whole(self.folder / FILE, content)
            self._trouble = False
        except OSError as error:  # a full disk, a folder that was deleted: the next one may work
            if not self._trouble and self.folder.is_dir():
                self.run.warn(f"the heartbeat could not be written: {error.strerror or error}", key="heartbeat")
            self._trouble = True

    def _logged(self) -> float | None:
        """When this writer's log or store was last written to, in seconds since 1970."""
        latest = 0.0
        paths = [path for path in self.folder.glob("*") if path.suffix not in (".json", ".txt")]
        for path in [*paths, *([self._log] if self._log is not None else [])]:
            with contextlib.suppress(OSError):
                latest = max(latest, path.stat().st_mtime)
        return latest or None


def started() -> int | None:
    """This process's start in clock ticks since boot, to tell it from a later one of its number; None if unknown."""
    try:
        return int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
