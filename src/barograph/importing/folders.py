"""Where an import is kept, and whether a path still holds what was imported from it.

In:   a found run, the folder of runs.
Out:  the run's folder, the same one at every import; the lock that keeps a second import out.

A run's folder ends with a fingerprint of where it came from, so two imports at once meet in one folder without
asking each other, and no index has to be kept. A file that was replaced by another gets a folder of the next
number; the earlier import stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from pathlib import Path
from typing import Any

from barograph.core.names import folder_name
from barograph.importing.source import FoundRun

LOCK = ".importing"
_HEAD_BYTES = 4096
_SQLITE = b"SQLite format 3\0"  # a database changes its first page when it grows


class FolderBusy(Exception):
    """Another process imports this run now."""


def fingerprint(run: FoundRun) -> str:
    """Twelve letters that tell a run of a path from all others."""
    text = f"{os.path.realpath(run.path)}\0{run.key}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def generations(project: Path, print_: str) -> list[tuple[int, Path]]:
    """The imports of a run, numbered from 1, the newest last."""
    pattern = re.compile(rf".*-{print_}(?:-(\d+))?|{print_}(?:-(\d+))?")
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(project):
            if match := pattern.fullmatch(name):
                found.append((int(match[1] or match[2] or 1), project / name))
    return sorted(found)


def folder_for(project: Path, run: FoundRun, name: str, number: int) -> Path:
    """The folder of a run's first import, or of one that follows a replaced file. Made if missing."""
    base = folder_name(name)[:70].rstrip("-.")
    folder = project / (f"{base}-{fingerprint(run)}" + (f"-{number}" if number > 1 else ""))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def hold(folder: Path) -> int:
    """A descriptor that holds the folder until it is closed. Raises Busy."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise FolderBusy(f"{folder.name} is being imported by another process now") from None
    except OSError:
        pass  # a file system without locks
    return handle


def identity(path: Path) -> dict[str, Any]:
    """What tells a file from another that takes its path later: its beginning, and where it lies."""
    try:
        state = os.stat(path)
    except OSError:
        return {}
    about: dict[str, Any] = {"device": state.st_dev, "inode": state.st_ino}
    if not path.is_file():
        return about
    with contextlib.suppress(OSError), open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
        about |= {"size": state.st_size, "head_bytes": len(head), "head": hashlib.sha256(head).hexdigest()}
        about["database"] = head.startswith(_SQLITE)
    return about


def is_replaced(before: dict[str, Any], path: Path) -> bool:
    """Whether another file stands where the imported one was: shorter, or with another beginning.

    A copy of the same file is the same: copying tools make a new file when they bring a longer version.
    """
    if "head" not in before or before.get("database"):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(int(before["head_bytes"]))
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    return size < int(before["size"]) or hashlib.sha256(head).hexdigest() != before["head"]
