"""A run in a forked child: nothing is opened until the child logs something, and most never do.

In:   log calls in the child of a process that has a run (a DataLoader's worker, say).
Out:  the run's own `_open_after_fork`, called at the first of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class LazyLog:
    """Stands for the child's log file until a record comes."""

    closed = False
    position = 0
    lost = 0

    def __init__(self, path: Path, open_log: Callable[[], Any]):
        self.path, self._open = path, open_log
        self.lock = threading.RLock()

    def append(self, data: bytes) -> int:
        return int(self._open().append(data))

    def close(self) -> None:
        """There is nothing to close."""


class LazyPump:
    """Stands for the child's pump, and its queue, until a row comes that is in no log file."""

    dropping = False
    lost_rows = 0

    def __init__(self, open_queue: Callable[[], Any]):
        self._open = open_queue
        self.chores: list[Any] = []
        self.queue = self

    def __len__(self) -> int:
        return 0

    def append(self, item: Any) -> None:
        self._open().append(item)

    def flush(self, timeout: float | None = None) -> bool:
        return True

    def stop(self, timeout: float = 0.0) -> bool:
        return True
