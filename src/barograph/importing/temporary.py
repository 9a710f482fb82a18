"""Folders of logs that are read and not stored: they go with the process, however it ends.

In:   a process that reads a log.
Out:  an empty folder. When the process ends, its folders are removed; those of processes that were killed, by the next
      one that reads a log.

A process holds a lock on each of its folders, and the kernel lets go of it when the process is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

from barograph.importing.files import stop_sealing
from barograph.store.held import let_go

PREFIX = "barograph-read-"
_YOUNG = 60  # seconds: its process may not hold it yet
_OLD = 86_400  # seconds: of a folder whose name says no process, and which nobody holds
_MOST = 200  # folders removed by one process, so that none takes long to end
_own: dict[Path, tuple[int, int]] = {}  # folder → process, descriptor


def folder() -> Path:
    """A folder of this process."""
    if not _own:
        atexit.register(end)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _own[made] = os.getpid(), handle
    return made


def remove(made: Path) -> None:
    """Remove a folder of this process; one of the process that this was forked from stays."""
    process, handle = _own.pop(made)
    if process == os.getpid():
        stop_sealing(made)
        let_go(made)
        shutil.rmtree(made, ignore_errors=True)
    os.close(handle)


def end() -> None:
    """Remove this process's folders, and those of processes that are gone."""
    ours = any(process == os.getpid() for process, _ in _own.values())
    for made in list(_own):
        remove(made)
    if ours:
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
