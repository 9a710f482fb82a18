"""Control: what the process beside the training asks of the loop.

In:   lines of `control.jsonl` in the run's folder: new ones only, as of this process's start.
Out:  a request to stop, calls of what is registered for a request.

The file is looked at about twice a second where the loop asks, and once a second by a log call.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barograph.training.stopping import StopRequest

FILE = "control.jsonl"
_EVERY = 0.5  # seconds between two looks
_MOST = 1 << 20  # bytes read at once


class ControlFile:
    """`stop`: the request. `on[request]`: called with the line, a mapping; what it raises goes to `failed`."""

    def __init__(self, folder: Path, failed: Callable[[str, Exception], Any]):
        self.stop = StopRequest()
        self.on: dict[str, Callable[[dict[str, Any]], Any]] = {"stop": self._stop, "checkpoint": self._checkpoint}
        self._failed = failed
        self._path = os.fspath(folder / FILE)
        self._look_at = 0.0
        self._lock = threading.Lock()
        self._place = self._offset = 0  # inode, and byte up to which lines were read
        with contextlib.suppress(OSError):
            stat = os.stat(self._path)
            self._place, self._offset = stat.st_ino, stat.st_size

    def move(self, folder: Path) -> None:
        """The run's folder is at another place by now."""
        self._path = os.fspath(folder / FILE)

    def look(self, now_or_never: bool = False) -> None:
        """Read what is new, at most twice a second; microseconds where nothing is."""
        now = time.monotonic()
        if (now < self._look_at and not now_or_never) or not self._lock.acquire(blocking=False):
            return
        try:
            self._look_at = now + _EVERY
            for line in self._new_lines():
                self._take(line)
        finally:
            self._lock.release()

    def _new_lines(self) -> list[bytes]:
        try:
            stat = os.stat(self._path)
            if stat.st_ino != self._place or stat.st_size < self._offset:
                self._place, self._offset = stat.st_ino, 0
            if stat.st_size == self._offset:
                return []
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                text = file.read(_MOST)
        except OSError:
            return []
        whole = text.rfind(b"\n") + 1
        self._offset += whole or (len(text) if len(text) == _MOST else 0)
        return text[:whole].splitlines()

    def _take(self, line: bytes) -> None:
        try:
            request = json.loads(line)
            call = self.on.get(request.get("request"))
        except (ValueError, AttributeError):
            return
        if call is not None:
            try:
                call(request)
            except Exception as error:
                self._failed(f"request {request.get('request')}", error)

    def _stop(self, request: dict[str, Any]) -> None:
        checkpoint = request.get("checkpoint")
        self.stop.ask(str(request.get("reason", "")), _step(request), checkpoint is not False)

    def _checkpoint(self, request: dict[str, Any]) -> None:
        self.stop.ask_checkpoint(str(request.get("reason", "")), _step(request))


def _step(request: dict[str, Any]) -> int:
    step = request.get("step")
    return step if isinstance(step, int) else 0
