"""Is the process that writes a run still there?

In:   a run's folder and manifest.
Out:  the run's true status: running, stalled, crashed, or how it ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph.place import host

QUIET_SECONDS = 120.0  # a process on another machine that wrote nothing for so long counts as stalled


def process() -> dict[str, Any]:
    """This process, so that another can tell it from one that got its number later."""
    return {"host": host(), "pid": os.getpid(), "process_started": _started(os.getpid())}


def is_alive(manifest: Mapping[str, Any]) -> bool:
    """Whether the process that the manifest names is running on this machine."""
    pid = manifest.get("pid")
    if manifest.get("status") != "running" or not isinstance(pid, int) or manifest.get("host") != host():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's process: it is there
    started = manifest.get("process_started")
    return started is None or _started(pid) in (None, started)


def status(folder: Path, manifest: Mapping[str, Any]) -> str:
    """running, stalled (its machine is another one, and silent), crashed, or the status it ended with."""
    said = str(manifest.get("status") or "unknown")
    if said != "running" or is_alive(manifest):
        return said
    if manifest.get("host") == host():
        return "crashed"
    return "running" if time.time() - last_write(folder) < QUIET_SECONDS else "stalled"


def last_write(folder: Path) -> float:
    """When a file of the run was last written, in seconds since 1970."""
    latest = 0.0
    for pattern in ("*.json", "store/*/*"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                latest = max(latest, path.stat().st_mtime)
    return latest


def _started(pid: int) -> int | None:
    """The process's start in clock ticks since boot (field 22 of /proc/PID/stat); None where unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
