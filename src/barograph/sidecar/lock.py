"""One sidecar a run and host, and not too many on a host.

In:   a run's folder; who asks.
Out:  a lock that the kernel takes back when its process ends; a note in its file for `barograph ps`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from barograph.core import place

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def runtime_folder() -> Path:
    """The user's folder for what lives as long as the host is up. Raises OSError."""
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    folder = Path(base) / "barograph" if base and os.access(base, os.W_OK) else None
    folder = folder or Path(tempfile.gettempdir()) / f"barograph-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
    return folder


class RunLock:
    """The right to be a run's sidecar on this host. Its file stays, with the last note in it."""

    def __init__(self, folder: Path):
        self.path = folder / f"sidecar-{place.host()}.lock"
        self._folder = folder
        self._handle = -1

    def take(self) -> bool:
        """Whether it is ours now. Raises OSError where no lock file can be made at all."""
        handle = _open(self.path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno not in _NO_LOCKS:
                return False
            # a file system without locks: the host's own can be asked, as there is one sidecar a host
            name = hashlib.sha256(os.fsencode(self._folder.resolve())).hexdigest()[:24]
            self.path = runtime_folder() / f"run-{name}.lock"
            handle = _open(self.path)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

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
