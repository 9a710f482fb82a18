"""How a run came to the state that it is in: the reason, the last lines of its output, the traceback.

In:   a stored run.
Out:  what is known of its end, also where nobody was there to see it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core import liveness
from barograph.core.record import Record
from barograph.log.read import records_from

if TYPE_CHECKING:
    from barograph.query.stored import StoredRun

LINES = 20  # of the output
_SHOWN = 300  # characters of one
_TAIL_BYTES = 1 << 16
_STACKS = "stacks-r*.txt"  # written by the interpreter as a fatal signal came
_MOST_TRACE = 20_000  # characters


class KnownEnding(NamedTuple):
    """status: as `StoredRun.status`. step: the last one, None where it is not known. reason: in words, may be empty.

    lines: the last ones of the output. traceback: empty where there is none.
    """

    status: str
    step: int | None
    reason: str
    lines: tuple[str, ...]
    traceback: str

    @property
    def needs_somebody(self) -> bool:
        """Whether the run did not end, or does not go on, as it should."""
        return self.status in (*liveness.FAILED, "hung", "terminated")


def ending(run: StoredRun) -> KnownEnding:
    """How a run stands. Of a run that does well the last lines are not read."""
    status, about = run.status, run.manifest
    why = "the last training loss is not a finite number" if status == liveness.DIVERGED else liveness.reason(about)
    blank = KnownEnding(status, None, why, (), "")
    if not blank.needs_somebody:
        return blank
    found: Mapping[str, Any] = {}
    step = None
    for record in run.records("end", "hang"):
        if not record.fields.get("rank") and not record.fields.get("resumed"):
            found, step = record.fields, record.step
    logs = run.log_files()
    tail = _tail(logs[0]) if logs else []
    listed = found.get("last")
    lines = [str(line) for line in listed] if isinstance(listed, list) else [line_of(item) for item in tail]
    if step is None:
        step = max((item.step for item in tail), default=None)
    problem = found.get("exception")
    trace = str(problem.get("traceback") or "") if isinstance(problem, Mapping) else ""
    told = f"{problem.get('type')}: {problem.get('message')}" if isinstance(problem, Mapping) else ""
    reason = blank.reason or told or str(found.get("reason") or found.get("summary") or "")
    return KnownEnding(status, step, reason, tuple(lines[-LINES:]), (trace or _stacks(run.dir))[-_MOST_TRACE:])


def line_of(record: Record) -> str:
    """A record in a line, for whoever asks what came last."""
    fields = record.fields
    if record.kind == "info":
        text = str(fields.get("message") or fields.get("text") or "")
    else:
        shown = [(name, value) for name, value in fields.items() if isinstance(value, (int, float, str))]
        text = " ".join(
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in shown
        )
    return f"{record.kind} {record.step}: {text}"[:_SHOWN]


def _tail(path: Path) -> list[Record]:
    """The last records of a log."""
    found: list[Record] = []
    with contextlib.suppress(OSError):
        start = max(0, os.stat(path).st_size - _TAIL_BYTES)
        if start:
            with open(path, "rb") as file:
                file.seek(start)
                start += file.read(_TAIL_BYTES).find(b"\n") + 1
        found = [record for record, _ in records_from(path, start)]
    return found[-LINES:]


def _stacks(folder: Path) -> str:
    """What the interpreter wrote of its threads as it was killed; empty where it had no chance to."""
    for path in sorted(folder.glob(_STACKS)):
        with contextlib.suppress(OSError):
            if path.stat().st_size:
                return path.read_text("utf-8", "replace")
    return ""
