"""Mirrors of a run while it is written: `report_to`.

In:   a run that has just begun, and the backends that its settings ask for.
Out:  a process for each, which reads the run's folder and sends; the training's own process does nothing for it.

The process outlives the training where the backend is slow, or the training is killed: it sends what there is,
ends the backend's run and goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from barograph.config import Settings
from barograph.mirrors import backends, position

CLOSE_SECONDS = 30.0


class Mirrored(Protocol):
    """What is needed of a run."""

    dir: Path
    settings: Settings

    def warn(self, sentence: str, key: str | None = None) -> None:
        """Tell the user once."""


class Mirrors:
    """The mirrors of a run in this process: only rank 0's has any."""

    def __init__(self, run: Mirrored):
        self._folder, self._warn = run.dir, run.warn
        self._owner = os.getpid()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in run.settings.backends:
            self._start(name, backends.options_of(name, run.settings))

    def _start(self, name: str, options: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "barograph.mirrors.sync"]
        arguments = [str(self._folder.resolve()), name, json.dumps(options), str(os.getpid())]
        try:
            process = subprocess.Popen(
                command + arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the training
            )
        except OSError as error:
            sentence = f"no process to mirror the run to {name} ({error.strerror or error})"
            self._warn(f"{sentence}; `barograph sync {self._folder} --to {name}` sends it later", key=f"mirror {name}")
            return
        self._processes[name] = process
        listening = threading.Thread(
            target=_listen, args=(process, self._warn), name=f"barograph-mirror-{name}", daemon=True
        )
        listening.start()

    def ids(self) -> dict[str, str]:
        """The backends' own identities of the run, of those known so far; a checkpoint may keep them."""
        found = {name: position.read(self._folder, name).state.get("run_id") for name in self._processes}
        return {name: str(run_id) for name, run_id in found.items() if run_id}

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """After the run's last record and its manifest: wait until all has arrived, at most so long; whether it has.

        What takes longer goes on without this process.
        """
        if os.getpid() != self._owner:
            return True
        deadline, done = time.monotonic() + timeout, True
        for name, process in self._processes.items():
            try:
                done &= process.wait(max(0.0, deadline - time.monotonic())) == 0
            except subprocess.TimeoutExpired:
                done = False
                self._warn(
                    f"{name} has not got everything yet; a process of its own goes on sending", key=f"late {name}"
                )
        return done


def open_mirrors(run: Mirrored) -> Mirrors:
    """Start the mirrors that the run's settings ask for. Never raises for what a backend may be lacking."""
    return Mirrors(run)


def _listen(process: subprocess.Popen[bytes], warn: Callable[..., Any]) -> None:
    """Pass on what the mirror warns of; what its library prints is not for the training's console."""
    assert process.stderr is not None
    with contextlib.suppress(OSError, ValueError), process.stderr:
        for line in process.stderr:
            sentence = line.decode("utf-8", "replace").strip()
            if sentence.startswith("barograph: "):
                warn(sentence.removeprefix("barograph: "))
