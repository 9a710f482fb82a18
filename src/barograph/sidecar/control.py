"""Requests to the training loop: stop, checkpoint, a closer look, the black box, an alert to show.

In:   what consumers ask for.
Out:  lines of `control.jsonl`, which the training reads. Each request once, also by a sidecar that begins anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from barograph.core.record import mark_non_finite
from barograph.sidecar.journal import Journal

FILE = "control.jsonl"


class Control:
    """Writes requests while a process of the run is there to read them: `listening`."""

    def __init__(self, journal: Journal):
        self.listening = False
        self.waited_for: Callable[[], bool] = lambda: False  # a process that has ended its run may still show warnings
        self._journal = journal
        self._path = journal.dir / FILE
        self._number = 0
        self._asked: set[tuple[str, int, str]] = set()
        self._read()

    def _read(self) -> None:
        """What was asked before."""
        with contextlib.suppress(OSError):
            for line in self._path.read_bytes().splitlines():
                with contextlib.suppress(ValueError, TypeError, AttributeError):
                    item = json.loads(line)
                    self._number = max(self._number, int(item.get("id", 0)))
                    self._asked.add((str(item["request"]), int(item.get("at", -1)), str(item.get("reason", ""))))

    def ask(self, request: str, reason: str, step: int, more: Mapping[str, Any] | None = None) -> bool:
        """Ask for something; whether a line was written."""
        at = self._journal.at
        if not (self.listening or (request == "warn" and self.waited_for())) or (request, at, reason) in self._asked:
            return False
        self._asked.add((request, at, reason))
        self._number += 1
        line = {"id": self._number, "time": time.time_ns() // 1000, "request": request, "reason": reason}
        line |= {"step": max(0, int(step)), "at": at, **(more or {})}
        return append(self._path, line)

    def look_at(self, finding: Any) -> None:
        """A finding: a critical one asks for a closer look and for the black box."""
        if finding.severity == "critical":
            fields = {"finding": msgspec.structs.asdict(finding)}
            self.ask("look_closer", finding.rule, finding.last_step, fields)
            self.ask("black_box", finding.rule, finding.last_step, fields)


def append(path: Path, line: Mapping[str, Any]) -> bool:
    """One line in one write; whether the disk took it."""
    text = msgspec.json.encode(mark_non_finite(line)) + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        return os.write(descriptor, text) == len(text)
    except OSError:
        return False
    finally:
        os.close(descriptor)
