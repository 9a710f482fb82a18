"""A run and its process: what happens at the interpreter's exit, and in a forked child.

In:   open runs, which put themselves into `open_runs`.
Out:  every run finished at exit, with its true status; in a child, stand-ins for the parent's log and
      pump that open nothing until the child logs something, and most never do.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class LazyLog:
    """Stands for the child's log file until a record comes."""

    closed = waiting = False
    position = 0
    lost = 0

    def __init__(self, path: Path, open_log: Callable[[], Any]):
        self.path, self._open = path, open_log
        self.lock = threading.RLock()

    def append_locked(self, data: bytes) -> int:
        return int(self._open().append(data))

    append = append_locked

    def close(self) -> None:
        """There is nothing to close."""


class LazyPump:
    """Stands for the child's pump, and its queue, until a row comes that is in no log file."""

    dropping = False
    at_work_here = False
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


open_runs: set[Any] = set()


def _finish_open_runs() -> None:
    """At the interpreter's exit. An exception that ended the program has left its trace in `sys`."""
    ended_by = getattr(sys, "last_value", None)
    status = "finished" if ended_by is None else "failed"
    if isinstance(ended_by, KeyboardInterrupt):
        status = "interrupted"
    for run in list(open_runs):
        run.finish(status)


def _forked() -> None:
    for run in list(open_runs):
        run.after_fork()


atexit.register(_finish_open_runs)
os.register_at_fork(after_in_child=_forked)
