"""Folders of logs that are read and not stored: they go with the process, however it ends.

In:   a process that reads a log.
Out:  an empty folder. When the process ends, its folders are removed; those of processes that were killed, by the next
      one that reads a log.

All of a process are in one folder, which it locks: the kernel lets go of it when the process is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from barograph.core import providers
from barograph.core.lazy import lazy
from barograph.importing.files import stop_sealing
from barograph.store.held import let_go

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = lazy("tempfile")

PREFIX = "barograph-read-"
_YOUNG = 60  # seconds: its process may not hold it yet
_OLD = 86_400  # seconds: of a folder whose name says no process, and which nobody holds
_MOST = 200  # folders removed by one process, so that none takes long to end
_own: dict[int, tuple[Path, int]] = {}  # process → its folder, and the descriptor that holds the lock


def folder() -> Path:
    """A folder of this process."""
    root, _ = _own.get(os.getpid()) or _root()
    return Path(tempfile.mkdtemp(dir=root))


def _root() -> tuple[Path, int]:
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    kept = _own.setdefault(os.getpid(), (made, handle))
    if kept[1] != handle:  # another thread was first
        os.close(handle)
        made.rmdir()
        return kept
    atexit.register(end)
    with contextlib.suppress(KeyError):  # of a command alone: a program's own signals are its own
        providers.provider("the end of a command by a signal")()
    return kept


def remove(made: Path) -> None:
    """Remove a folder that this process was given."""
    stop_sealing(made)
    let_go(made)
    shutil.rmtree(made, ignore_errors=True)


def end() -> None:
    """Remove this process's folders, not those of the one that it was forked from, and those of processes that are
    gone."""
    root, handle = _own.pop(os.getpid(), (None, -1))
    if root is not None:
        remove(root)
        os.close(handle)
        sweep()


def sweep() -> None:
    """Remove the folders of processes that are gone."""
    removed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if removed < _MOST and entry.name.startswith(PREFIX) and _is_left(entry):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed += 1


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is this user's and nobody reads in it any more."""
    try:
        state = entry.stat(follow_symlinks=False)
        if not entry.is_dir(follow_symlinks=False) or state.st_uid != os.getuid():
            return False
        process, says, _ = entry.name.removeprefix(PREFIX).partition("-")
        if time.time() - state.st_mtime < (_YOUNG if says and process.isdigit() else _OLD):
            return False
        handle = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
    except OSError:  # held, or gone
        return False
    return True


def end_on_signals() -> None:
    """Of a command: remove its folders at a signal that ends it, too, if that does nothing else."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _ended)


def _ended(number: int, _frame: object) -> None:
    end()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)  # so that who sent it sees that it was heeded
