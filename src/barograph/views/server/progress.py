"""Logs followed from where the last look ended: the last values, the smallest, findings, the pace.

In:   a run's folder: rank 0's log, and those of sidecars.
Out:  what its records have come to so far. A look reads only what is new.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barograph.analysis.compare.member import direction
from barograph.core.record import numbers
from barograph.core.segments import FurthestStep
from barograph.log.files import MAIN, is_sidecar_name
from barograph.log.read import records_from, records_of
from barograph.log.spool import best_copy
from barograph.query.findings import Findings

WHOLE_BYTES = 4 << 20  # a log up to this is read from its start: 0.1 s
_TAIL_BYTES = 1 << 20  # of a longer one this much of its end
_PACE = 64  # steps from which the pace is computed
_NAMES = 4_000  # series whose last value is kept


class Progress:
    """What the logs say. `whole`: from the first record on; else `best` and `findings` lack what stands before.

    last, best: by series. time: of the last record, seconds since 1970. segments: segment records.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = best_copy(folder / MAIN)
        self.whole = True
        self._furthest = FurthestStep()
        self.time = 0.0
        self.segments = 0
        self.phase: str | None = None
        self.last: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.findings = Findings()
        self._lock = threading.Lock()
        self._better: dict[str, int] = {}
        self._offsets: dict[Path, int] = {}
        self._steps: deque[tuple[int, float]] = deque(maxlen=_PACE)

    @property
    def step(self) -> int | None:
        """The furthest step of the live branch."""
        return self._furthest.step

    def advance(self) -> bool:
        """Read what is new; whether that was anything. A file that is gone or shorter has nothing new. Any thread."""
        with self._lock:
            return sum(self._advance(path) for path in self._logs()) > 0

    def read_findings(self) -> None:
        """Read the findings of whole logs, where the beginning of one was passed over."""
        for path in self._logs():
            with contextlib.suppress(OSError):
                for record, _ in records_of(path, ("finding",)):
                    self.findings.add(record)

    def seconds_a_step(self) -> float | None:
        """The pace of the last steps; None before there are two."""
        steps = list(self._steps)
        if len(steps) < 2 or steps[-1][0] <= steps[0][0] or steps[-1][1] <= steps[0][1]:
            return None
        return (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])

    def fall(self, names: Iterable[str]) -> None:
        """The best values of these series are their smallest ones, which their names don't tell."""
        self._better.update(dict.fromkeys(names, -1))

    # -- inside ---------------------------------------------------------------------------------------

    def _logs(self) -> list[Path]:
        return [self.path, *(best_copy(self.folder / name) for name in sidecar_logs(self.folder))]

    def _advance(self, path: Path) -> bool:
        try:
            size = os.stat(path).st_size
            known = self._offsets.get(path)
            before = known or 0
            # of a long log that is new, or at which nobody has looked for long, the end alone
            if size - before > (WHOLE_BYTES if known is None else 2 * WHOLE_BYTES):
                self.whole = False
                before = _line_start(path, size - _TAIL_BYTES)
            self._offsets[path] = before
            for record, end in records_from(path, before):
                self._offsets[path] = end
                self._take(record, path)
        except OSError:
            return False
        return self._offsets[path] != before

    def _take(self, record: Any, path: Path) -> None:
        kind = record.kind
        self.time = max(self.time, record.time / 1e6)
        if kind == "segment":
            self.segments += 1
            self._steps.clear()
            if path == self.path:
                self._furthest.begin(record.fields.get("parent"), record.fields.get("start_step"))
            return
        if kind == "finding":
            self.findings.add(record)
            return
        if kind in ("step", "metrics", "eval", "speed"):
            before = self.step
            self._furthest.reach(record.step)
            if self.step != before:
                self._steps.append((record.step, record.time / 1e6))
        if kind == "step":
            phase = record.fields.get("phase")
            self.phase = phase if isinstance(phase, str) else None
        elif kind == "eval":
            self.phase = "eval"
        for name, value in numbers(record):
            better = self._better.get(name)
            if better is None:
                if len(self._better) >= _NAMES:
                    continue
                better = self._better[name] = direction(name)
            self.last[name] = value
            if better and math.isfinite(value):
                known = self.best.get(name)
                if known is None or (value - known) * better > 0:
                    self.best[name] = value


def sidecar_logs(folder: Path) -> list[str]:
    """The names of the logs that sidecars have written beside a run's own."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if is_sidecar_name(entry.name) and not entry.is_symlink())
    except OSError:
        return []


def _line_start(path: Path, offset: int) -> int:
    """Where the first line behind a byte begins."""
    with open(path, "rb") as file:
        file.seek(max(0, offset))
        chunk = file.read(_TAIL_BYTES)
    found = chunk.find(b"\n")
    return max(0, offset) + (found + 1 if found >= 0 else 0)


def last_step(path: Path) -> tuple[int | None, float]:
    """The furthest step in a log's last 8 kB, or since a segment that begins there, and when the file was written last,
    in seconds since 1970."""
    import re

    try:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            room = 8192
            while True:  # a log that is being written has blanks at its end
                file.seek(max(0, status.st_size - room))
                tail = file.read(room)
                found = re.findall(rb'"step": ?(\d{1,18})[,}]', tail[max(0, tail.rfind(b'"log":"segment"')) :])
                if found or room >= min(status.st_size, 1 << 20):
                    break
                room *= 8
    except OSError:
        return None, 0.0
    return (max(map(int, found)) if found else None), status.st_mtime
