"""The console: draws a run's records as lines, in one of several styles.

In:   records, in order, from the thread that logs them.
Out:  lines on a terminal, a pipe or a file.

Drawing raises nothing and waits for nothing. What later lines need (trend, averages, pace) is kept up at
every verbosity.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from barograph.core.record import Record
from barograph.core.terminal import Terminal, TextLine, TextPart, line, plain
from barograph.core.text import escape
from barograph.training.console import lines, rows, styles
from barograph.training.console.course import Course, number

_QUIET, _DEFAULT, _VERBOSE = -1, 0, 1
# One thread may be in a user's stream that hangs; another then waits this long, once.
_LOCK_SECONDS = 0.02


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
        self._style = styles.find(style)
        self.verbosity = verbosity if self._style is not None else -2
        self.rank = rank
        self._course = Course(total_steps, total_tokens)
        self._clock = clock
        self._terminal, self._patient = Terminal(stream, patient), patient
        self._lock = threading.Lock()
        self._jammed = False
        self._pace = rows.RowPace()
        self._process = os.getpid()
        self._heading = ""  # of the block that the last line shown belongs to
        self._section: str | None = None  # whose start was the last line shown
        self._typed: set[str] = set()  # kinds that the loop logs by their own calls, not by `run.log`

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

    def state(self) -> dict[str, float]:
        """The averages and sums that later lines need, for a checkpoint."""
        return self._course.state()

    def restore(self, state: Any, step: int) -> None:
        """Go on from the state in a checkpoint made after `step`."""
        if isinstance(state, dict):
            self._course.restore(state, step)

    def draw(self, record: Record) -> None:
        """Show the record if it is to be shown. Never raises; takes microseconds whatever the reader does."""
        if record.kind not in _DRAWN and record.kind != "metrics":
            return
        try:
            if record.kind == "metrics" and not (
                self._shows(_QUIET) and (self._patient or self._pace.is_due(record, self._clock()))
            ):
                return
            if not self._acquire():
                self._terminal.lose(1)
                return
            try:
                shown = self._draw(record)
                if shown:
                    self._terminal.show(shown)
            finally:
                self._lock.release()
        except Exception:  # no line is worth a training step
            return

    def say(self, shown: list[str], level: str = "INFO") -> None:
        """Show lines that are not records, each behind its level, on rank 0. Never raises, waits for nothing."""
        if not self._shows() or not self._acquire():
            return
        try:
            colour = "yellow" if level == "WARNING" else ""
            self._terminal.show([line(f"{level:<8} {escape(text, 200)}", colour) for text in shown])
        except Exception:  # no line is worth a training step
            return
        finally:
            self._lock.release()

    def lines(self, record: Record) -> list[str]:
        """The lines that `draw` would show, as plain text; the record is taken in as by `draw`."""
        return [plain(parts) for parts in self._draw(record)]

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

    def _draw(self, record: Record, typed: bool = True) -> list[TextLine]:
        """The record's lines, in this console's style, at its verbosity, for its rank."""
        if record.kind == "metrics":
            found = [made for made in rows.described(record) if made.kind not in self._typed]
            return [shown for made in found for shown in self._draw(made, typed=False)]
        if typed and record.kind in ("step", "eval"):
            self._typed.add(record.kind)
        handler = _DRAWN.get(record.kind)
        shown = handler(self, record) if handler is not None else []
        if not shown:
            return []
        if record.kind not in _BLOCKS:
            self._heading = ""
        started = record.kind == "info" and _section_part(record) == "start"
        self._section = escape(record.fields.get("message", "")) if started else None
        if self.rank > 0:
            shown = [(TextPart(f"Rank {self.rank} | "), *parts) for parts in shown]
        return shown

    def _shows(self, verbosity: int = _DEFAULT) -> bool:
        return self.verbosity >= verbosity and self.rank <= 0

    # -- one method a kind: what it shows; what it must remember in any case ---------------------------

    def _step(self, record: Record) -> list[TextLine]:
        step = self._course.step(record, self._clock())
        return [self._style.step(step)] if self._style is not None and self._shows() else []

    def _eval(self, record: Record) -> list[TextLine]:
        evaluation = self._course.evaluation(record)
        return [self._style.evaluation(evaluation)] if self._style is not None and self._shows(_QUIET) else []

    def _moe(self, record: Record) -> list[TextLine]:
        self._course.moe(record)
        return [lines.router_line(record)] if self._shows(_VERBOSE) else []

    def _sol(self, record: Record) -> list[TextLine]:
        self._course.sol(record)
        return lines.sol_lines(record.fields) if self._shows() else []

    def _gpu(self, record: Record) -> list[TextLine]:
        return lines.gpu_lines(record) if self._shows(_VERBOSE) else []

    def _gpu_model(self, record: Record) -> list[TextLine]:
        # as Surogate: the first device always, the others on request
        first = number(record.fields.get("rank")) in (None, 0) and number(record.fields.get("id")) in (None, 0)
        return lines.gpu_model_lines(record.fields) if self._shows(_DEFAULT if first else _VERBOSE) else []

    def _allocator(self, record: Record) -> list[TextLine]:
        return self._under("[Memory]", lines.allocator_lines(record.fields)) if self._shows(_VERBOSE) else []

    def _dataset(self, record: Record) -> list[TextLine]:
        if not self._shows():
            return []
        return self._under("[Dataset]", lines.dataset_lines(record.fields, self._shows(_VERBOSE)))

    def _option(self, record: Record) -> list[TextLine]:
        return self._under("[Options]", [lines.option_line(record.fields)]) if self._shows(_VERBOSE) else []

    def _under(self, heading: str, shown: list[TextLine]) -> list[TextLine]:
        """The lines, below their heading where it does not stand yet."""
        if heading == self._heading or not shown:
            return shown
        self._heading = heading
        return [line(heading, "bold"), *shown]

    def _cmd(self, record: Record) -> list[TextLine]:
        return [lines.command_line(record.fields)] if self._shows(_VERBOSE) else []

    def _info(self, record: Record) -> list[TextLine]:
        message, part = escape(record.fields.get("message", "")), _section_part(record)
        # other ranks say only what they alone know
        if self.verbosity < (_VERBOSE if self.rank > 0 and part else _DEFAULT):
            return []
        if part == "start":
            return [line(f"{message} ...")]
        if part == "end":
            done = f"done in {lines.took(number(record.fields.get('duration_ms')))}"
            return [line(f"  {done}" if message in (self._section, "") else f"  {message}: {done}")]
        return [line(message)] if message else []

    def _sample(self, record: Record) -> list[TextLine]:
        return lines.sample_lines(record) if self._shows() else []

    def _finding(self, record: Record) -> list[TextLine]:
        hidden = record.fields.get("severity") == "info" and self.verbosity < _VERBOSE
        return [] if hidden or not self._shows() else lines.finding_lines(record)

    def _alert(self, record: Record) -> list[TextLine]:
        title, told = escape(record.fields.get("title", ""), 200), escape(record.fields.get("text", ""), 400)
        return [line(f"!! {title}: {told}" if told else f"!! {title}", "yellow")] if self._shows() else []

    def _checkpoint(self, record: Record) -> list[TextLine]:
        return [lines.checkpoint_line(record)] if self._shows() else []

    def _segment(self, record: Record) -> list[TextLine]:
        shown = lines.segment_line(record) if self._shows() else None
        return [shown] if shown else []

    def _end(self, record: Record) -> list[TextLine]:
        shown = lines.end_line(record) if self._shows() else None
        return [shown] if shown else []


def _section_part(record: Record) -> str:
    """Whether a message starts or ends a timed section; Surogate's own logs mark only the end, by its duration."""
    kind = record.fields.get("type")
    if kind == "section-start":
        return "start"
    if kind == "section-end" or (kind is None and "duration_ms" in record.fields):
        return "end"
    return ""


_BLOCKS = frozenset({"dataset", "option", "allocator"})
_DRAWN: dict[str, Callable[[Console, Record], list[TextLine]]] = {
    "step": Console._step,
    "eval": Console._eval,
    "moe": Console._moe,
    "sol": Console._sol,
    "gpu": Console._gpu,
    "gpu-model": Console._gpu_model,
    "allocator": Console._allocator,
    "dataset": Console._dataset,
    "option": Console._option,
    "cmd": Console._cmd,
    "info": Console._info,
    "sample": Console._sample,
    "finding": Console._finding,
    "alert": Console._alert,
    "checkpoint": Console._checkpoint,
    "segment": Console._segment,
    "end": Console._end,
}
