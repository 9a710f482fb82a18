"""Tables of trials that a tuner prints again and again, and boxes of a trial's results, as rows that say the trial.

In:   a heading `| Trial name | status | loc | lr | iter | total time (s) | loss |`, with bars or in a drawn box, and
      below it a row for each trial; `Trial train_00003 finished iteration 7 at …` and below it a box with `loss  2.31`.
Out:  `iteration 7, task: train_00003, loss: 2.31` in the row's place. What stands ahead of the time are settings.

A trial that has not gone on since the table before isn't a row. Boxes say the trial where several run at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms

_NAME = b"Trial name"
_NUMBER = expression(forms.NUMBER)
_COUNT = expression(rb"\d{1,12}")
_APART = expression(rb" {2,}")
_NO_NAME = expression(rb"[^\w-]")
_GO_ON = ("trial_heading", "trial_result")
_COUNTS = (b"iter", b"training_iteration")
_TIME = b"total time (s)"
_NO_VALUE = frozenset(
    (b"ts", b"timesteps", b"time_total_s", b"time_this_iter_s", b"training_iteration", b"timestamp", b"pid")
)
_FINISHED = expression(rb"\bTrial ([\w.-]{1,200}) finished iteration (\d{1,12}) at ")
_LOOKED_AT = 200  # lines of a table
_MOST = 2000  # trials that are remembered
_LONGEST = 40  # bytes of a trial's name


def named(text: bytes, own: dict[str, Any]) -> bytes:
    """A text in which such rows say their names. own: the heading or the box that goes on in the next text, and how far
    each trial has come."""
    if _NAME not in text and b" finished iteration " not in text and own.keys().isdisjoint(_GO_ON):
        return text
    own["trials_apart"] = own.get("trials_apart") or in_turn(found[1] for found in _FINISHED.finditer(text))
    heading: list[str] | None = own.pop("trial_heading", None)
    result: list[str] | None = own.pop("trial_result", None)
    lines = text.split(b"\n")
    for index, line in enumerate(lines):
        if own["trials_apart"] and (finished := _FINISHED.search(line)):
            result = [_alias(_short(finished[1]).decode(), own), finished[2].decode()]
        elif result is not None:
            lines[index] = _value(result, _cells(line)) or line
            result = None if "╰".encode() in line or b"+--" in line else result
        elif _NAME in line:
            cells = _cells(line)
            heading = [cell.decode("latin-1") for cell in cells] if _is_heading(cells) else None
            if heading is not None:
                _begin(heading, lines[index + 1 : index + _LOOKED_AT], own)
        elif heading is not None and (cells := _cells(line)):
            lines[index] = _row(heading, cells, own) or line
        elif heading is not None and line and not _is_rule(line):
            heading = None
    own |= {"trial_heading": heading} if heading is not None else {}
    own |= {"trial_result": result} if result is not None else {}
    return b"\n".join(lines)


def in_turn(names: Iterable[bytes]) -> bool:
    """Whether several trials run at once: one is said again behind another."""
    said = [name for name, _ in itertools.groupby(names)]
    return len(said) > len(set(said))


def _begin(heading: list[str], below: list[bytes], own: dict[str, Any]) -> None:
    """Forget the trials of a launch before: those of a table none of which is known."""
    names = set[str]()
    for line in below:
        cells = _cells(line)
        if not cells and not _is_rule(line):
            break
        names |= {_short(cells[0]).decode()} if len(cells) == len(heading) else set()
    if names and names.isdisjoint(own.get("trials", ())):
        own["trials"] = {}


def _alias(trial: str, own: dict[str, Any]) -> str:
    """What a trial is called: as the one was that came at its place in the first launch."""
    known, names = own.setdefault("trials", {}), own.setdefault("trial_names", [])
    if trial not in known and len(known) < _MOST:
        known[trial] = ["", names[len(known)] if len(known) < len(names) else trial]
        names += [trial] if len(known) > len(names) else []
    return str(known[trial][1]) if trial in known else trial


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


def _row(heading: list[str], cells: list[bytes], own: dict[str, Any]) -> bytes:
    """A row that says its names; b"" where it has none, or says what it said before."""
    if len(cells) != len(heading):
        return b""
    names = [name.encode("latin-1") for name in heading]
    count = next((cell for name, cell in zip(names, cells, strict=True) if name in _COUNTS), b"")
    trial = _short(cells[0]).decode()
    if not trial or not _COUNT.fullmatch(count):
        return b""
    called, come = _alias(trial, own), own["trials"].get(trial)
    if come is not None and come[0] == count.decode():
        return b""
    if come is not None:
        come[0] = count.decode()
    begin = names.index(_TIME) + 1
    values = [
        b"%s: %s" % (name, cell)
        for name, cell in zip(names[begin:], cells[begin:], strict=True)
        if name not in _NO_VALUE and _NUMBER.fullmatch(cell)
    ]
    return b"iteration %s, task: %s, %s" % (count, called.encode(), b", ".join(values)) if values else b""


def _value(result: list[str], cells: list[bytes]) -> bytes:
    """A line of a box as a row; b"" for any other line."""
    if len(cells) != 2 or cells[0] in _NO_VALUE or not _NUMBER.fullmatch(cells[1]) or not result[0]:
        return b""
    return b"iteration %s, task: %s, %s: %s" % (result[1].encode(), result[0].encode(), *cells)


def _short(name: bytes) -> bytes:
    """A trial's name, as far as it tells it from others."""
    return _NO_NAME.sub(b"_", name)[-_LONGEST:].lstrip(b"_-0123456789")
