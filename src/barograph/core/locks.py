"""Locks on files that the kernel takes back when their process ends, also where the file system has none.

In:   an open file.
Out:  a lock on it; on a file system without locks, one on a file of the user's own on this host that stands for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from barograph.core.lazy import lazy

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = lazy("tempfile")

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def runtime_folder() -> Path:
    """The user's folder for what lives as long as the host is up. Raises OSError."""
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    folder = Path(base) / "barograph" if base and os.access(base, os.W_OK) else None
    folder = folder or Path(tempfile.gettempdir()) / f"barograph-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
    return folder


def take(handle: int, kind: int = fcntl.LOCK_EX, wait: bool = False) -> int:
    """Lock a file for this process: -1, or the descriptor of the file that stands for it, to be closed with it.

    Raises BlockingIOError where another process holds it, and another OSError where nothing can be locked at all.
    """
    kind |= 0 if wait else fcntl.LOCK_NB
    try:
        fcntl.flock(handle, kind)
        return -1
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    status = os.fstat(handle)
    path = runtime_folder() / f"file-{status.st_dev:x}-{status.st_ino:x}.lock"
    stand_in = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(stand_in, kind)
    except OSError:
        os.close(stand_in)
        raise
    return stand_in


def is_taken(handle: int, unknown: bool = False) -> bool:
    """Whether a process, this one among them, holds a file's lock. unknown: the answer where it can't be found out."""
    try:
        stand_in = take(handle, fcntl.LOCK_SH)
    except BlockingIOError:
        return True
    except OSError:
        return unknown
    if stand_in >= 0:
        os.close(stand_in)
    else:
        fcntl.flock(handle, fcntl.LOCK_UN)
    return False
