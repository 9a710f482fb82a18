"""A folder of metric files, as MLflow's file store has them: one a name, `time value step` a line.

In:   the folder of a run's metrics, and how far it was read before.
Out:  points in the order of time, with a `Restart` where a name's step goes back.

Each file is in order, but the files are not in order to each other. So a first pass finds where names' steps go
back, and which moments explain that; the second gives the points from one moment to the next.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.importing.series import MARKS
from barograph.importing.source import ImportedPoints, ImportMark, Item, Restart, Unread

_BLOCK = 4 << 20  # bytes of a file in memory at a time
_MOST_RESTARTS = 200  # as in series.py
_LINES = re.compile(rb"(?:\d+ \S+ -?\d+\n)*")
_FOREVER = 2**63 - 1
_MOST_MILLISECONDS = _FOREVER // 1000


class _MetricRows(NamedTuple):
    """Lines of one file: where the last one ends, and the columns."""

    end: int
    steps: NDArray[Any]
    times: NDArray[Any]  # microseconds
    values: NDArray[Any]


class _Back(NamedTuple):
    """A step that goes back: the moments before and after, and the step that it goes back to."""

    before: int
    after: int
    step: int


def microseconds(milliseconds: NDArray[Any]) -> NDArray[Any]:
    """Times as the importer has them; what is not a time becomes 0."""
    possible = (milliseconds > 0) & (milliseconds < _MOST_MILLISECONDS)
    return np.where(possible, milliseconds, 0) * 1000


def read(folder: Path, state: Mapping[str, Any], ended: bool) -> Iterator[Item]:
    """The points of all files below a folder, behind `state`.

    ended: nothing is written any more, so a last line without its end is damage and not work in progress.
    """
    known = state.get("files")
    begun: dict[str, list[int]] = {
        str(name): [int(value) for value in values]
        for name, values in (known.items() if isinstance(known, Mapping) else ())
    }
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
    files = {name: file for name, file in files.items() if not name.startswith(MARKS)}
    backs: list[_Back] = []
    for name, file in files.items():
        yield from _scanned(file, begun.get(name), ended, backs)
    moments = _moments(backs)
    ends = {name: list(begun.get(name, [0, -(2**63), 0])) for name in files}
    readers = {name: _MetricReader(file, ends[name]) for name, file in files.items()}
    for index, until in enumerate([*(moment.after for moment in moments), _FOREVER]):
        if index:
            yield Restart(moments[index - 1].step, moments[index - 1].after)
        for name, reader in readers.items():
            for rows in reader.before(until):
                yield ImportedPoints((name,), rows.steps, rows.times, rows.values[:, None])
    yield ImportMark({"files": begun | ends})


def _scanned(file: Path, begun: list[int] | None, ended: bool, backs: list[_Back]) -> Iterator[Unread]:
    """First pass: what can't be read, and where steps go back."""
    at, step, time = begun or [0, -(2**63), 0]
    for rows in _rows(file, at):
        if isinstance(rows, Unread):
            yield rows
            continue
        at = rows.end
        steps, times = np.append(step, rows.steps), np.append(time, rows.times)
        for row in np.flatnonzero(steps[1:] < steps[:-1])[: _MOST_RESTARTS + 1]:
            backs.append(_Back(int(times[row]), int(times[row + 1]), int(steps[row + 1])))
        step, time = int(steps[-1]), int(times[-1])
    if ended:
        rest = _tail(file, at)
        if rest:
            yield Unread(file, at, rest[:80].decode("utf-8", "replace"), "the last line is torn")


def _moments(backs: list[_Back]) -> list[_Back]:
    """The fewest moments that explain all steps that go back: each lies between a row before and one after."""
    made: list[_Back] = []
    for back in sorted(backs, key=lambda back: back.after):
        if not made or back.before >= made[-1].after:
            made.append(back)
    return made if len(made) <= _MOST_RESTARTS else []


class _MetricReader:
    """Second pass over one file, from one moment to the next. `state`: end of what was given, last step and time."""

    def __init__(self, file: Path, state: list[int]):
        self._state = state
        self._blocks = (rows for rows in _rows(file, state[0]) if isinstance(rows, _MetricRows))
        self._rest: _MetricRows | None = None

    def before(self, until: int) -> Iterator[_MetricRows]:
        """Rows logged before a moment, in the file's order."""
        while True:
            rows = self._rest if self._rest is not None else next(self._blocks, None)
            self._rest = None
            if rows is None:
                return
            late: Any = np.flatnonzero(rows.times >= until) if until != _FOREVER else []
            count = int(late[0]) if len(late) else len(rows.steps)
            if count:
                self._state[:] = [rows.end, int(rows.steps[count - 1]), int(rows.times[count - 1])]
                yield _MetricRows(rows.end, rows.steps[:count], rows.times[:count], rows.values[:count])
            if count < len(rows.steps):
                self._rest = _MetricRows(rows.end, rows.steps[count:], rows.times[count:], rows.values[count:])
                return


def _tail(file: Path, at: int) -> bytes:
    try:
        with open(file, "rb") as stream:
            stream.seek(at)
            return stream.read(1000)
    except OSError:
        return b""


def _rows(file: Path, at: int) -> Iterator[_MetricRows | Unread]:
    """The whole lines of a file from a byte on, some megabytes at a time."""
    try:
        with open(file, "rb") as stream:
            stream.seek(at)
            while block := stream.read(_BLOCK):
                whole = block.rfind(b"\n") + 1
                if not whole:
                    if len(block) == _BLOCK:
                        yield Unread(file, at, block[:80].decode("utf-8", "replace"), "a line without an end")
                    return
                stream.seek(at + whole)
                yield from _parsed(file, at, block[:whole])
                at += whole
    except OSError as error:
        yield Unread(file, at, "", f"the file can't be read: {error.strerror or error}")


def _parsed(file: Path, at: int, block: bytes) -> Iterator[_MetricRows | Unread]:
    words: list[bytes] = []
    whole = None
    if _LINES.fullmatch(block):
        with contextlib.suppress(ValueError, OverflowError):
            whole = _columns(at + len(block), block.split())
    if whole is not None:
        yield whole
        return
    position = at
    for line in block.split(b"\n")[:-1]:
        parts = line.split()
        # two words: no step yet (before 0.8); five: the data set that was measured on, and its digest
        triple = [*parts, b"0"] if len(parts) == 2 else parts[:3]
        try:
            if len(parts) not in (2, 3, 5):
                raise ValueError
            _columns(0, triple)
            words += triple
        except (ValueError, OverflowError):
            text = line[:80].decode("utf-8", "replace")
            yield Unread(file, position, text, "a line of a metric is time, value and step")
        position += len(line) + 1
    yield _columns(at + len(block), words)


def _columns(end: int, words: list[bytes]) -> _MetricRows:
    times, values, steps = words[0::3], words[1::3], words[2::3]
    return _MetricRows(
        end,
        np.array(list(map(int, steps)), np.int64),
        microseconds(np.array(list(map(int, times)), np.int64)),
        np.array(list(map(float, values)), np.float64),
    )
