"""Tables of trials that a tuner prints again and again, as rows that say the trial.

In:   a heading `| Trial name | status | loc | lr | iter | total time (s) | loss |`, with bars or in a drawn box, and
      below it a row for each trial.
Out:  `iteration 7, task: train_00003, loss: 2.31` in the row's place. What stands ahead of the time are settings.

A trial that has not gone on since the table before is no row.
"""

from __future__ import annotations

from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_NAME = b"Trial name"
_NUMBER = expression(forms.NUMBER)
_COUNT = expression(rb"\d{1,12}")
_APART = expression(rb" {2,}")
_NO_NAME = expression(rb"[^\w-]")
_COUNTS = (b"iter", b"training_iteration")
_TIME = b"total time (s)"
_NO_VALUE = frozenset((b"ts", b"timesteps", b"time_total_s"))
_MOST = 2000  # trials that are remembered
_LONGEST = 40  # bytes of a trial's name


def named(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which such rows say their names. own: the heading that goes on in the next text, and how far each trial
    has come."""
    if _NAME not in text and "trial_heading" not in own:
        return text
    heading: list[str] | None = own.pop("trial_heading", None)
    lines = text.split(b"\n")
    for index, line in enumerate(lines):
        if _NAME in line:
            cells = _cells(line)
            heading = [cell.decode("latin-1") for cell in cells] if _is_heading(cells) else None
        elif heading is not None and (cells := _cells(line)):
            lines[index] = _row(heading, cells, own.setdefault("trials", {})) or line
        elif heading is not None and line and not _is_rule(line):
            heading = None
    if heading is not None:
        own["trial_heading"] = heading
    return b"\n".join(lines)


def _is_heading(cells: list[bytes]) -> bool:
    return len(cells) > 4 and cells[0] == _NAME and _TIME in cells and any(count in cells for count in _COUNTS)


def _is_rule(line: bytes) -> bool:
    """Whether a line is drawn."""
    return line.count(b"-") + line.count(b"=") > len(line) // 2 or line.count("─".encode()) > 10


def _cells(line: bytes) -> list[bytes]:
    """The cells of a row; [] for any other line."""
    bar = "│".encode()
    if (begin := line.find(bar)) >= 0 and (end := line.rfind(bar)) > begin:
        return [cell for cell in _APART.split(line[begin + len(bar) : end].strip()) if cell]
    begin, end = line.find(b"|"), line.rfind(b"|")
    if begin < 0 or end <= begin or line[begin + 1 : begin + 3] == b"--":
        return []
    return [cell.strip() for cell in line[begin + 1 : end].split(b"|")]


def _row(heading: list[str], cells: list[bytes], come: dict[str, str]) -> bytes:
    """A row that says its names; b"" where it has none, or says what it said before."""
    if len(cells) != len(heading):
        return b""
    names = [name.encode("latin-1") for name in heading]
    count = next((cell for name, cell in zip(names, cells, strict=True) if name in _COUNTS), b"")
    trial = _NO_NAME.sub(b"_", cells[0])[-_LONGEST:].lstrip(b"_-0123456789")
    known = come.get(trial.decode("latin-1"))
    if not trial or not _COUNT.fullmatch(count) or known == count.decode():
        return b""
    if known is not None or len(come) < _MOST:
        come[trial.decode("latin-1")] = count.decode()
    values = [
        b"%s: %s" % (name, cell)
        for name, cell in zip(names[names.index(_TIME) + 1 :], cells[names.index(_TIME) + 1 :], strict=True)
        if name not in _NO_VALUE and _NUMBER.fullmatch(cell)
    ]
    return b"iteration %s, task: %s, %s" % (count, trial, b", ".join(values)) if values else b""
