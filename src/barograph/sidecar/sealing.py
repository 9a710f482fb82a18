"""When a run's records are sealed into columns: by a process of its own, so that this one stays small.

In:   entries, for their bytes.
Out:  `python -m barograph.store.seal`, whenever some 8 MB have come, and at the end.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from barograph.core.record import Record
from barograph.log.blocks import WideRow
from barograph.log.follow import Entry

BYTES = 8 << 20
_AGAIN_SECONDS = 30.0  # after a sealing that failed


class Sealing:
    """A consumer. Sealing finds out by itself what there is to do, so it may be started too often and killed."""

    def __init__(self, folder: Path, every_bytes: int = BYTES):
        self._folder, self._every = folder, every_bytes
        self._unsealed = 0
        self._ends: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self._is_put_off = False

    def put_off(self) -> None:
        """Nothing can be sealed here: a reader does it later."""
        self._is_put_off = True

    def take(self, entry: Entry) -> None:
        """An entry."""
        item = entry.item
        if isinstance(item, Record):
            if entry.source.startswith("sidecar-"):
                return
            self._unsealed += max(0, entry.end - self._ends.get(entry.source, 0))
            self._ends[entry.source] = entry.end
        else:
            self._unsealed += len(item.values if isinstance(item, WideRow) else item.numbers)

    @property
    def owes(self) -> int:
        """Bytes that are not sealed yet."""
        return self._unsealed

    def settle(self, idle: bool) -> None:
        """Start a sealing if it is worth one."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            if self._process.returncode:
                self._not_before = time.monotonic() + _AGAIN_SECONDS
            self._process = None
        if self._unsealed >= self._every and time.monotonic() >= self._not_before:
            self._unsealed = 0
            self._start()

    def finish(self) -> None:
        """The run has ended: `seal_all` does the rest."""

    def seal_all(self, timeout: float = 600.0) -> bool:
        """Seal everything, and wait for it."""
        self._wait(timeout)
        self._start("--final")
        done = self._wait(timeout)
        if done:
            self._unsealed = 0
        return done

    def _wait(self, timeout: float) -> bool:
        if self._process is None:
            return False
        try:
            return self._process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            return False

    def _start(self, *words: str) -> None:
        if self._is_put_off:
            return
        with contextlib.suppress(OSError):  # no process to be had: the next reader, or `barograph gc`, seals later
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barograph.store.seal", str(self._folder), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self) -> None:
        """This process has to go: sealing may be stopped anywhere."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
