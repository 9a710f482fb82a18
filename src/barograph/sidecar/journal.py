"""The sidecar's own log: what it finds out, in the format of the run's.

In:   records of the consumers, and of threads that sample; the byte of rank 0's log up to which was read.
Out:  `sidecar-{host}.json` in the run's folder, each record with that byte as `at`.

A sidecar that begins anew reads the run from its start again. What is in its log already is not written once
more: all up to the byte to which the one before had come, and at that byte what is the same.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from barograph.core import place
from barograph.core.options import Settings
from barograph.core.record import Record, encode
from barograph.log.read import records_from
from barograph.log.write import JsonLog

_MOST_WAITING = 10_000  # records that wait for a disk
_DERIVED = frozenset({"finding", "alert", "goodput", "energy"})
"""Kinds that follow from the run's records: a second reading gives them again."""


class Journal:
    """What consumers and probes know of as their run. Records of other threads wait for `drain`.

    rank: the first one on this host. at: byte of rank 0's log of what is being looked at. on_warning: called with
    each sentence, once.
    """

    def __init__(self, folder: Path, settings: Settings, about: dict[str, Any] | None = None, rank: int = 0):
        self.dir, self.settings = folder, settings
        about = about or {}
        self.name, self.project = str(about.get("name") or folder.name), str(about.get("project") or "")
        self.id = str(about.get("id") or folder.name)
        self.rank, self.world_size = rank, int(about.get("world_size") or 1)
        self.at_finish: list[Callable[[], Any]] = []
        self.on_warning: Callable[[str], Any] = lambda sentence: None
        self.host = place.host()
        self.path = folder / f"sidecar-{self.host}.json"
        self.at = 0
        self.current_step = 0
        self.resumed_at = -1  # the byte up to which everything was written by the sidecar before
        self._there: set[bytes] = set()  # what it wrote at that byte
        self._log: JsonLog | None = None
        self._backlog: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self._queue: deque[tuple[str, int, int, dict[str, Any]]] = deque()
        self._owner = threading.get_ident()
        self._warned: set[str] = set()
        self.written: list[str] = []  # kinds of derived records, as they were written

    def open(self, noted_at: int = -1) -> None:
        """Find out what the sidecar before has written. noted_at: how far it had come by its note."""
        last = -1
        with contextlib.suppress(OSError, ValueError):
            for record, _ in records_from(self.path):
                at = record.fields.get("at")
                if record.kind not in _DERIVED or not isinstance(at, int):
                    continue
                if at > last:
                    last = at
                    self._there.clear()
                if at == last:
                    self._there.add(_identity(record.kind, record.step, record.fields))
        if noted_at >= last:
            self._there.clear()
        self.resumed_at = max(noted_at, last)

    @property
    def repeating(self) -> bool:
        """Whether what is being looked at was looked at by the sidecar before."""
        return self.at < self.resumed_at or (self.at == self.resumed_at and not self._there)

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> bool:
        """Write a record; whether it was new. From any thread; never raises, waits in the sidecar's own alone."""
        moment = time.time_ns() // 1000
        if threading.get_ident() != self._owner:
            self._queue.append((kind, moment, step, fields))
            return True
        if kind in _DERIVED and self.at <= self.resumed_at:
            was_there = self.repeating or _identity(kind, step, fields) in self._there
            if was_there:
                return False
        if kind in _DERIVED and len(self.written) < _MOST_WAITING:
            self.written.append(kind)
        self._write(kind, moment, step, fields)
        return True

    def drain(self) -> None:
        """Write what other threads left."""
        while self._queue:
            self._write(*self._queue.popleft())

    def warn(self, sentence: str, key: str | None = None) -> None:
        """Say something to the user once: the same key (or sentence) is not said again."""
        if (key or sentence) in self._warned:
            return
        self._warned.add(key or sentence)
        self.record("info", self.current_step, {"type": "sidecar", "text": sentence})
        self.on_warning(sentence)

    def close(self) -> None:
        self.drain()
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _write(self, kind: str, moment: int, step: int, fields: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            self._append(encode(Record(kind, moment, max(0, int(step)), {"at": max(0, self.at)} | fields)))

    def _introduction(self) -> bytes:
        """The first record of each sidecar in its log: whose the following records are."""
        fields = {"at": max(0, self.at), "run": self.id, "rank": self.rank, "host": self.host, "pid": os.getpid()}
        return encode(Record("sidecar", time.time_ns() // 1000, max(0, self.current_step), fields))

    def _append(self, data: bytes) -> None:
        if self._log is None:
            try:
                if not self.dir.is_dir():  # deleted under us: not made anew
                    return
                self._log = JsonLog(self.path, lambda sentence: None)
            except (OSError, ValueError):
                self._backlog.append(data)
                return
            self._log.append(self._introduction())
            while self._backlog:
                self._log.append(self._backlog.popleft())
        self._log.append(data)


def _identity(kind: str, step: int, fields: dict[str, Any]) -> bytes:
    """What tells a record from others at the same byte."""
    names = ("rule", "severity", "key", "segment", "cause", "title", "recovered")
    return msgspec.json.encode([kind, step, [str(fields.get(name)) for name in names]])
