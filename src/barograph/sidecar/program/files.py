"""Files that a program writes while it runs.

In:   the program's process, its command line.
Out:  files that it and its children have open for writing; event files of TensorBoard with the number of one of these
      processes in their name, and W&B's files with one of them in the log beside them, below their working directories
      and the folders that the command line names.

TensorBoard's own writer opens its file anew for each stretch, and a short program opens and closes W&B's between two
looks, so nobody finds them open; but the process is known, so that two programs in one folder keep theirs apart.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

_MOST_PROCESSES = 64
_MOST_KEPT = 4096  # processes that have ended are remembered too: their files stay
_MOST_ENTRIES = 50_000  # of folders, in one search
_DEPTH = 8  # of folders below a working directory
_SHARE = 0.05  # of the time, for searches
_NO_LOG_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})
_WANDB_PROCESS = re.compile(rb"pid to (\d{1,12})")  # in the debug log beside W&B's file
_WANDB_BYTES = 4096
_EVENTS = re.compile(rf"tfevents\.(\d{{1,12}})\.{re.escape(socket.gethostname())}\.(\d{{1,9}})\.(\d{{1,9}})(?!\d)")


class ProgramFiles:
    """pid: the program's first process. own: a folder whose files are not the program's."""

    def __init__(self, pid: int, command: Sequence[str], own: Path):
        self._pid, self._own = pid, own.resolve()
        self._words = [word.rpartition("=")[2] for word in command[1:]]
        self._pids = {pid}
        self._folders = {Path.cwd()}  # this process was started where the program was
        self._since = time.time() - 60.0
        with contextlib.suppress(psutil.Error, OSError):
            self._since = psutil.Process(pid).create_time() - 2.0  # as exact as the start of the machine
        self._next = 0.0

    def find(self, final: bool = False) -> Iterator[Path]:
        """Absolute paths, the same ones again each time. final: search in folders whenever that was done last."""
        yield from self._open_files()
        if final or time.monotonic() >= self._next:
            began = time.monotonic()
            yield from self._named_files()
            self._next = time.monotonic() + (time.monotonic() - began) / _SHARE

    def _open_files(self) -> Iterator[Path]:
        with contextlib.suppress(psutil.Error, OSError):
            program = psutil.Process(self._pid)
            for process in [program, *program.children(recursive=True)][:_MOST_PROCESSES]:
                with contextlib.suppress(psutil.Error, OSError):
                    if len(self._pids) < _MOST_KEPT:
                        self._pids.add(process.pid)
                        self._folders.add(Path(process.cwd()))
                    for item in process.open_files():
                        path = Path(item.path)
                        if self._is_written(path, getattr(item, "mode", "")) and not path.is_relative_to(self._own):
                            yield path

    def _is_written(self, path: Path, mode: str) -> bool:
        """Opened for writing; where the system does not say (macOS), written since the program began."""
        return mode != "r" if mode else path.stat().st_mtime >= self._since

    def _named_files(self) -> Iterator[Path]:
        roots = set(self._folders)
        for folder in self._folders:
            with contextlib.suppress(OSError, ValueError):
                roots |= {folder / word for word in self._words if word and (folder / word).is_dir()}
        waiting = [(root.resolve(), 0) for root in sorted(roots)]
        seen, entries_left = set[Path](), _MOST_ENTRIES
        for folder, depth in waiting:  # grows: the nearest folders first
            if folder in seen or folder == self._own:
                continue
            seen.add(folder)
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    entries_left -= 1
                    if entries_left < 0:
                        return
                    if match := _EVENTS.search(entry.name):
                        if int(match[2]) in self._pids and int(match[1]) >= int(self._since):
                            yield folder / entry.name
                    elif entry.name.endswith(".wandb"):
                        if self._is_its_wandb(folder, entry):
                            yield folder / entry.name
                    elif (
                        depth < _DEPTH
                        and entry.name[0] != "."
                        and entry.name not in _NO_LOG_FOLDERS
                        and entry.is_dir(follow_symlinks=False)
                    ):
                        waiting.append((folder / entry.name, depth + 1))

    def _is_its_wandb(self, folder: Path, entry: os.DirEntry[str]) -> bool:
        with contextlib.suppress(OSError):
            said = folder / "logs" / "debug.log"
            if entry.stat().st_mtime >= self._since and said.is_file():
                with open(said, "rb") as log:
                    found = _WANDB_PROCESS.search(log.read(_WANDB_BYTES))
                return found is not None and int(found[1]) in self._pids
        return False


def goes_on_in(before: Path, path: Path) -> bool:
    """Whether what one file has goes on in the other: the same output, its next part, the next file of a writer."""
    if before == path:
        return True
    if before.parent != path.parent:
        return False
    first, second = _EVENTS.search(before.name), _EVENTS.search(path.name)
    if first and second:  # (process, count of its writers); another process goes on only where the first has ended
        if first[2] == second[2]:
            return int(first[3]) < int(second[3])
        return int(first[1]) <= int(second[1]) and not psutil.pid_exists(int(first[2]))
    return before.name.split("-")[0] == path.name.split("-")[0]
