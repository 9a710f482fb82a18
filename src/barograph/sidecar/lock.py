"""One sidecar a run and host, and not too many on a host.

In:   a run's folder; who asks.
Out:  a lock that the kernel takes back when its process ends; a note in its file for `barograph ps`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from barograph.core import locks, place
from barograph.core.locks import runtime_folder


class RunLock:
    """The right to be a run's sidecar on this host. Its file stays, with the last note in it."""

    def __init__(self, folder: Path):
        self.path = folder / f"sidecar-{place.host()}.lock"
        self._handle = self._stand_in = -1

    def take(self) -> bool:
        """Whether it is ours now. Raises OSError where no lock file can be made at all."""
        handle = _open(self.path)
        try:
            self._stand_in = locks.take(handle)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def note(self, content: dict[str, Any]) -> None:
        """Write what `read` and `barograph ps` show; a disk that refuses it is not a problem."""
        text = json.dumps(content).encode() + b"\n"
        with contextlib.suppress(OSError):
            os.pwrite(self._handle, text, 0)
            os.ftruncate(self._handle, len(text))

    def read(self) -> dict[str, Any]:
        """The last note, of whoever wrote it; {} where there is none."""
        with contextlib.suppress(OSError, ValueError):
            content = json.loads(self.path.read_bytes())
            if isinstance(content, dict):
                return content
        return {}

    def release(self) -> None:
        for handle in (self._handle, self._stand_in):
            if handle >= 0:
                os.close(handle)
        self._handle = self._stand_in = -1

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted under us, with its folder or alone."""
        try:
            return os.fstat(self._handle).st_nlink == 0
        except OSError:
            return True


class Slot:
    """One of the places for sidecars that nothing depends on; the surplus goes without one."""

    def __init__(self) -> None:
        self._handle = -1

    def take(self, most: int) -> bool:
        """Whether a place was free, of `most` on this host for this user."""
        try:
            folder = runtime_folder()
        except OSError:
            return True
        for number in range(most):
            with contextlib.suppress(OSError):
                handle = _open(folder / f"slot-{number:03d}.lock")
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(handle)
                    continue
                self._handle = handle
                return True
        return False

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
