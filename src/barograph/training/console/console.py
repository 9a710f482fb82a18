"""The console: draws a run's records as lines, in one of several styles.

In:   records, in order, from the thread that logs them.
Out:  lines on a terminal, a pipe or a file.

Drawing raises nothing and waits for nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from barograph.core.record import Record
from barograph.core.terminal import Terminal, line, plain
from barograph.core.text import escape
from barograph.training.console import rows
from barograph.training.console.course import Course
from barograph.training.console.shown import DRAWN, QUIET, RecordLines

# One thread may be in a user's stream that hangs; another then waits this long, once.
_LOCK_SECONDS = 0.02

_SAID = 800  # characters of a line that is not a record


class Console:
    """Draws the records of one run.

    verbosity: -2 nothing, -1 evaluations, 0 default, 1 also devices, memory, options and every file.
    style: "plain", "surogate", "modded-nanogpt", "picollm", "kempnerforge" or "none"; ValueError for another.
    stream: where to; the `sys.stdout` of the moment if None.
    rank: ranks above 0 show only messages, as `Rank 7 | …`.
    total_steps, total_tokens: the run's planned length, for progress and the time that remains.
    clock: seconds, for that time.
    patient: wait for a slow reader instead of dropping lines, for programs that only print.
    """

    def __init__(
        self,
        verbosity: int = 0,
        style: str = "surogate",
        stream: TextIO | None = None,
        rank: int = 0,
        total_steps: int | None = None,
        total_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        patient: bool = False,
    ):
        self._course = Course(total_steps, total_tokens)
        self.shown = RecordLines(verbosity, style, rank, self._course, clock)
        self._clock = clock
        self._terminal, self._patient = Terminal(stream, patient), patient
        self._lock = threading.Lock()
        self._jammed = False
        self._pace = rows.RowPace()
        self._process = os.getpid()

    @property
    def total_steps(self) -> Any:
        """Steps the run will have, or None."""
        return self._course.total_steps

    @total_steps.setter
    def total_steps(self, total: Any) -> None:
        self._course.total_steps = total

    @property
    def total_tokens(self) -> Any:
        """Tokens the run will see, or None."""
        return self._course.total_tokens

    @total_tokens.setter
    def total_tokens(self, total: Any) -> None:
        self._course.total_tokens = total

    @property
    def gone(self) -> bool:
        """Whether nobody reads any more: the stream is closed or its reader has left."""
        return self._terminal.gone

    @property
    def draws_rows(self) -> bool:
        """Whether rows of `run.log` can have a line: not where nothing is shown, nor on ranks above 0."""
        return self.shown.shows(QUIET)

    def state(self) -> dict[str, float]:
        """The averages and sums that later lines need, for a checkpoint."""
        return self._course.state()

    def restore(self, state: Any, step: int) -> None:
        """Go on from the state in a checkpoint made after `step`."""
        if isinstance(state, dict):
            self._course.restore(state, step)

    def draw(self, record: Record) -> None:
        """Show the record if it is to be shown. Never raises; takes microseconds whatever the reader does."""
        if record.kind not in DRAWN and record.kind != "metrics":
            return
        try:
            if record.kind == "metrics" and not (
                self.draws_rows and (self._patient or self._pace.is_due(record, self._clock()))
            ):
                return
            if not self._acquire():
                self._terminal.lose(1)
                return
            try:
                shown = self.shown.of(record)
                if shown:
                    self._terminal.show(shown)
            finally:
                self._lock.release()
        except Exception:  # no line is worth a training step
            return

    def say(self, shown: list[str], level: str = "INFO") -> None:
        """Show lines that are not records, each behind its level, on rank 0. Never raises, waits for nothing."""
        if not self.shown.shows() or not self._acquire():
            return
        try:
            colour = "yellow" if level == "WARNING" else ""
            self._terminal.show([line(f"{level:<8} {escape(text, _SAID)}", colour) for text in shown])
        except Exception:  # no line is worth a training step
            return
        finally:
            self._lock.release()

    def lines(self, record: Record) -> list[str]:
        """The lines that `draw` would show, as plain text; the record is taken in as by `draw`."""
        return [plain(parts) for parts in self.shown.of(record)]

    def flush(self, timeout: float = 0.0) -> bool:
        """Write the lines that wait for a slow reader, for at most `timeout` seconds; whether none is left."""
        if not self._acquire():
            return False
        try:
            return self._terminal.flush(timeout)
        finally:
            self._lock.release()

    def close(self, timeout: float = 0.5) -> None:
        """Give the reader a last chance to take what waits. The stream stays open."""
        self.flush(timeout)

    def _acquire(self) -> bool:
        if self._process != os.getpid():  # forked: the lock may be held by a thread that is not here
            self._process, self._lock, self._jammed = os.getpid(), threading.Lock(), False
            self._terminal.forget()
        got = self._lock.acquire(timeout=0 if self._jammed else _LOCK_SECONDS)
        self._jammed = not got
        return got
