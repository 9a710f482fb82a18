"""What was logged is put on the disk itself every few seconds, so that a power cut costs no more than those.

In:   a run's folder.
Out:  its logs and newest block files, synced (fdatasync) from a thread of the sidecar: a slow disk stalls neither
      the training nor the rules.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from barograph.log.blocks import pieces
from barograph.log.files import readable_logs


class Syncing:
    """Syncs a run's files every `seconds` until it is stopped."""

    def __init__(self, folder: Path, seconds: float):
        self._folder, self._seconds = folder, seconds
        self._stopped = threading.Event()
        self._synced: dict[Path, int] = {}  # when a file was changed that is synced: it is left alone
        self._thread = threading.Thread(target=self._work, name="barograph-sync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sync no more; a sync under way is not waited for."""
        self._stopped.set()

    def _work(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.sync()

    def sync(self) -> None:
        """Sync what was written since the last time."""
        newest = {path.name.split(".")[0]: path for _, path in pieces(self._folder)}
        for path in [*readable_logs(self._folder), *newest.values()]:
            with contextlib.suppress(OSError):
                changed = os.stat(path).st_mtime_ns
                if self._synced.get(path) == changed:
                    continue
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(descriptor)
                    self._synced[path] = changed
                finally:
                    os.close(descriptor)
