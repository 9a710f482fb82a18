"""Emitter: fields become a record, and the record goes into the log file, onto the console, to the callback.

In:   kinds, steps and fields, from any thread.
Out:  records in the log file before the call returns.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barograph.core.handlers import from_signal_handler
from barograph.core.record import Record, RouterFigures, encode
from barograph.core.values import PLAIN, measured, plain, text, whole
from barograph.log.array import PAGE
from barograph.log.write import JsonLog
from barograph.training.console.console import Console

_warnings = logging.getLogger("barograph")
_MOST_WARNINGS = 200
LAST_STEP = (1 << 63) - 1
_ROOM = PAGE - 8  # bytes of a record that surely fits a page of the file: a kill can't tear it
_open: weakref.WeakSet[Emitter] = weakref.WeakSet()


class LazyLog:
    """Stands for a forked child's log file until a record comes; most children log nothing.

    opened: called with the file when it is opened; it replaces this object from then on.
    """

    closed = waiting = False
    position = 0
    lost = 0

    def __init__(self, path: Path, warn: Callable[[str], Any], opened: Callable[[JsonLog], Any]):
        self.path, self._warn, self._opened = path, warn, opened

    def open(self) -> JsonLog:
        """Open the file, as the first record does."""
        log = JsonLog(self.path, self._warn)
        self._opened(log)
        return log

    def append(self, data: bytes) -> int:
        """The first record."""
        return self.open().append(data)

    def retry(self) -> None:
        """There is nothing to write."""

    def close(self) -> None:
        """There is nothing to close."""

    abandon = close


class NoLog(LazyLog):
    """Stands for the log of a run that can't be recorded."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, data: bytes) -> int:
        """It goes nowhere."""
        return 0


class Complaints:
    """What is said to the user by Python's logging, each once; an error instead where that is wanted (`strict`)."""

    def __init__(self, strict: bool):
        self._strict = strict
        self._warned: set[str] = set()

    def odd(self, sentence: str) -> None:
        """A value that does not fit: an error with `strict`, else one warning."""
        if self._strict:
            raise ValueError(sentence)
        self.warn(sentence)

    def failed(self, what: str, error: Exception) -> None:
        """A call could not do its work: say so once; the training goes on."""
        if self._strict or from_signal_handler(error):
            raise error
        self.warn(f"could not record a {what}: {type(error).__name__}: {text(error)[:300]}", f"{what} {type(error)}")

    def warn(self, sentence: str, key: str | None = None) -> None:
        """Tell the user by Python's logging, once a key (or sentence)."""
        key = key or sentence
        if key in self._warned or len(self._warned) > _MOST_WARNINGS:
            return
        self._warned.add(key)
        _warnings.warning("barograph: %s", sentence)


class Emitter:
    """Writes records to one log file; what goes wrong is said by `odd`, `failed` and `warn` of its `Complaints`.

    after: called with each record and its end in the file. defer: asked whether a record is written later, because
    some of its values are on an accelerator. next_step: the step that `log` without a step takes.
    """

    after: Callable[[Record, int], None] | None = None
    defer: Callable[[str, Any, Mapping[Any, Any]], bool] | None = None
    next_step = 0

    def __init__(
        self,
        log: JsonLog | None,
        console: Console,
        callback: Callable[[str], Any] | None = None,
        strict: bool = False,
    ):
        self.strict = strict
        self.console = console
        self.callback = callback
        self.phase = ""
        self.sections: list[tuple[str, float]] = []
        self.log: Any = log
        self._owner = os.getpid()
        self.routed = RouterFigures()
        complaints = Complaints(strict)
        self.odd, self.failed, self.warn = complaints.odd, complaints.failed, complaints.warn
        _open.add(self)

    def emit(
        self,
        kind: str,
        step: Any,
        fields: dict[str, Any],
        checked: bool = False,
        draw: bool = True,
        moment: int | None = None,
    ) -> None:
        """Fields become a record, the record goes everywhere. `checked`: the values are plain already.
        `moment`: the record's time in microseconds since 1970, where that is not now. May raise: callers guard."""
        if not checked:
            fields = {
                text(name): value if isinstance(value, (list, dict)) else plain(value, text(name), self.odd)
                for name, value in fields.items()
            }
        number = self.step_of(step)
        if repeated := self.routed.repeated(kind, number, fields):
            fields = {**fields, "repeated": repeated}
        record = Record(kind, moment or time.time_ns() // 1000, number, fields)
        data = encode(record)
        if len(data) > _ROOM and kind == "metrics" and len(fields) > 1:
            names = list(fields)
            half = len(names) // 2
            for part in (names[:half], names[half:]):
                some = {name: fields[name] for name in part}
                self.emit(kind, record.step, some, True, draw, record.time)
            return
        end = self.log.append(data)
        if self.after is not None:
            self.after(record, end)
        if draw:
            self.console.draw(record)
        if self.callback is not None:
            self.call_back(self.callback, data)

    def typed(self, kind: str, step: Any, values: dict[str, Any], typed: int, draw: bool = True) -> None:
        """A record whose first `typed` values are numbers. One that was not measured (None) is left out."""
        if not all(type(value) in PLAIN for value in values.values()):
            if self.defer is not None and self.defer(kind, step, values):
                return
            names = list(values)
            numbers = {}
            for name in names[:typed]:
                value = values[name] if type(values[name]) in PLAIN else measured(values[name], name, self.odd)
                if value is not None:
                    numbers[name] = value
            rest = {name: plain(values[name], text(name), self.odd) for name in names[typed:]}
            values = numbers | {text(name): value for name, value in rest.items() if value is not None}
        self.emit(kind, step, values, checked=True, draw=draw)

    def record(self, kind: str, step: int, fields: dict[str, Any], *, draw: bool = True) -> None:
        """Write a record of any kind in `record.KINDS`; `draw`: show it where the console shows such. Never raises.

        The values are Python's own numbers and texts, and lists and dictionaries of them; the caller leaves
        `fields` alone afterwards.
        """
        try:
            self.emit(kind, step, fields, checked=True, draw=draw)
        except Exception as error:
            self.failed(f"{kind} record", error)

    def call_back(self, callback: Callable[[str], Any], data: bytes) -> None:
        """Hand a record to the callback; what it raises is said once."""
        try:
            callback(data.decode())
        except Exception as error:
            if self.strict or from_signal_handler(error):
                raise
            self.warn(f"the callback raised {type(error).__name__}: {error}; the record is in the log")

    def step_of(self, step: Any) -> int:
        """A step as a whole number; one that is not a number is replaced by the coming one."""
        if type(step) is int and -(1 << 63) <= step < 1 << 63:
            return step
        number = whole(step)
        if number is None:
            self.odd(f"a step must be a whole number, not {text(step)[:60]!r}; {self.coming} was recorded")
            return self.coming
        return number

    @property
    def coming(self) -> int:
        """The step that `log` without a step takes, and that replaces one that is not a number."""
        return min(self.next_step, LAST_STEP)

    def close(self) -> None:
        """Draw what waits and close the log file."""
        self.console.close()
        self.log.close()

    def forked(self) -> None:
        """In a forked child: the parent's file is the parent's; a record of the child goes into one of its own."""
        self.log.abandon()
        self._owner = os.getpid()
        path = self.log.path.with_name(f"{self.log.path.stem}-{os.getpid()}.json")

        def opened(log: JsonLog) -> None:
            self.log = log
            self.warn(f"what this forked process logs is in {path}")

        self.log = LazyLog(path, self.warn, opened)


def _forked() -> None:
    for emitter in list(_open):
        emitter.forked()


os.register_at_fork(after_in_child=_forked)
