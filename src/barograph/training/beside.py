"""Beside: starts the process that does everything but write.

In:   the run's folder, settings and configuration; whether something waits for it.
Out:  `python -m barograph.sidecar FOLDER`, with one line of JSON on its standard input.

It is started at once where alerts or trackers wait for it, else by the first log call two seconds after the start, so
that a script of a second starts none; and at the end where something is left to do. Secrets such as addresses of
alerts go by the line alone. A process that can't be started loses nothing: the log is whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.core.options import Settings
from barograph.core.record import mark_non_finite

if TYPE_CHECKING:
    import subprocess

_left: list[Any] = []  # processes of runs that have ended: asked for their exit code when the next one starts
_AFTER = 2.0  # seconds of a run before it gets a sidecar
_LEAVES = 3.0  # seconds within which it sees that its folder is gone
_MIRRORS_SECONDS = 30.0  # that the end waits for trackers


class Beside:
    """The sidecar of one run on this host. `wanted`: whether there is to be one."""

    def __init__(
        self, folder: Path, settings: Settings, config: Mapping[str, Any], local_rank: int, rank: int, warn: Any
    ):
        self.wanted = bool(settings.sidecar) and local_rank == 0
        self._folder, self._settings, self._config = folder, settings, config
        self._rank, self._main, self._warn = rank, rank == 0, warn
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._started, self._turn = False, threading.Lock()
        self._due = time.monotonic() + (0.0 if self._waited_for else _AFTER)

    @property
    def _waited_for(self) -> bool:
        return self._main and self._settings.needs_sidecar

    @property
    def started(self) -> bool:
        """Whether there is one, or is about to be."""
        return self._started

    def look(self, later: Callable[[Callable[[], Any]], Any], now: bool = False) -> None:
        """Start it if it is time; `later` calls it from another thread, for a process takes milliseconds to start."""
        if self.wanted and not self._started and (now or time.monotonic() >= self._due):
            self._started = True
            later(self.start)

    def again(self, folder: Path) -> None:
        """The folder was written again, or is at another place: the process beside it leaves, and another one comes."""
        self._folder = folder
        if self._started:
            if self._process is not None:
                _left.append(self._process)
            self._started, self._process, self._due = False, None, time.monotonic() + _LEAVES

    def start(self) -> None:
        """Start it now, once; never raises."""
        with self._turn:
            if self._process is None:
                self._start()

    def _start(self) -> None:
        import subprocess  # a short script starts no process, and importing this takes milliseconds
        import sys

        self._started = True
        if os.getpid() != self._owner:
            return
        _left[:] = [process for process in _left if process.poll() is None]
        settings = {name: value for name, value in _plain(self._settings).items() if value not in (None, "", [], {})}
        own = -1
        with contextlib.suppress(OSError, AttributeError):
            own = os.pidfd_open(os.getpid())  # by which the exit code is found, however late it looks
        line = {
            "pid": os.getpid(),
            "pidfd": own,
            "rank": self._rank,
            "settings": settings,
            "config": dict(self._config),
        }
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barograph.sidecar", str(self._folder.absolute())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the training
                close_fds=True,
                pass_fds=(own,) if own >= 0 else (),
            )
            assert self._process.stdin is not None
            with self._process.stdin as pipe:
                pipe.write(msgspec.json.encode(mark_non_finite(line), enc_hook=str) + b"\n")
        except (OSError, ValueError, MemoryError, RuntimeError) as error:
            self._warn(
                f"no process beside the training could be started ({type(error).__name__}: {error}); "
                f"the log is complete, `barograph attend {self._folder}` does the rest",
                key="sidecar",
            )
        finally:
            if own >= 0:
                os.close(own)

    def finish(self, owed: bool, timeout: float) -> None:
        """The run has ended. owed: something is left to do. Waits for trackers alone."""
        if not self.wanted or os.getpid() != self._owner:
            return
        if self._process is None and (owed or self._waited_for):  # not yet, nor by the thread that was asked to
            self.start()
        process = self._process
        if process is None:
            return
        if self._main and self._settings.backends:
            import subprocess

            try:
                process.wait(max(timeout, _MIRRORS_SECONDS))
            except subprocess.TimeoutExpired:
                trackers = ", ".join(self._settings.backends)
                self._warn(f"{trackers}: not everything has arrived yet; a background process keeps sending")
        _left.append(process)

    def forget(self) -> None:
        """In a forked child: it is the parent's."""
        self.wanted, self._process, self._turn = False, None, threading.Lock()


def _plain(settings: Settings) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(dataclasses.asdict(settings), enc_hook=str)
    return plain
