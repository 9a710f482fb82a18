"""The files of a run that is being imported: log file, segments, store; one commit for all of them.

In:   blocks of numbers, records, histograms, segments; then the fields of a mark.
Out:  a run's files, in which nothing counts before its commit.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy
from numpy.typing import NDArray

from barograph.core import segments
from barograph.core.record import Record, encode
from barograph.importing import journal
from barograph.log.write import JsonLog
from barograph.store.run import RunStore
from barograph.store.seal import seal
from barograph.store.write import ImportWriter

if TYPE_CHECKING:
    import subprocess

_WAITING_POINTS = 500_000  # small blocks of the same names wait for each other up to this many values
_WAITING_RECORDS = 100_000  # put in the order of their steps before they are written, 50 MB
_WAITING_ROWS = 1_000
_SEAL_HERE = 500_000  # more numbers than this are sealed by a process of its own


class RunFiles:
    """Writes one run's folder, behind what is committed there; opens the files when there is something to write.

    position: bytes of the log file that are committed, 0 for a new run. clock: the last time known, in µs.
    here: the run is for this process alone and goes with it.
    `uncommitted`: values taken since the last commit.
    """

    def __init__(self, folder: Path, position: int = 0, clock: int = 0, created: int = 0, here: bool = False):
        self.folder, self._here = folder, here
        self.uncommitted = 0
        self.clock = clock
        self._added = 0
        self._position, self._created = position, created
        self._log: JsonLog | None = None
        self._writer: ImportWriter | None = None
        self._groups: dict[tuple[tuple[str, ...], int], list[tuple[Any, Any, Any]]] = {}
        self._rows: dict[tuple[tuple[str, ...], int], tuple[list[int], list[int], list[list[float]]]] = {}
        self._records: list[Record] = []
        self._segments: list[segments.Segment] = []
        self._waiting = 0

    @property
    def store(self) -> Path:
        return self.folder / "store" / journal.WRITER

    def add_block(
        self, series: tuple[str, ...], segment: int, steps: NDArray[Any], times: NDArray[Any], values: NDArray[Any]
    ) -> None:
        """Rows of numbers; small blocks of the same names are put together."""
        self._groups.setdefault((series, segment), []).append((steps, times, values))
        self._waiting += values.size
        self._added += values.size
        self.uncommitted += values.size
        if self._waiting >= _WAITING_POINTS:
            self._write_groups(self._opened()[1])

    def add_row(self, series: tuple[str, ...], segment: int, step: int, time: int, values: list[float]) -> None:
        """One row of numbers."""
        steps, times, kept = self._rows.setdefault((series, segment), ([], [], []))
        steps.append(step)
        times.append(time)
        kept.append(values)
        self.uncommitted += len(values)
        if len(steps) >= _WAITING_ROWS:
            self._write_rows()

    def add_record(self, record: Record) -> None:
        """A record for the log file; its numbers are to come as a block too."""
        self._records.append(record)
        if len(self._records) > _WAITING_RECORDS:
            self._write_records(self._opened()[0])

    def add_histogram(
        self, name: str, step: int, time: int, edges: NDArray[Any], counts: NDArray[Any], segment: int
    ) -> None:
        """A distribution."""
        self._opened()[1].histogram(name, step, time, edges, counts, segment)
        self.uncommitted += 2 * len(counts)

    def add_segment(self, segment: segments.Segment) -> None:
        """What comes from here on belongs to this segment."""
        self._segments.append(segment)
        self.add_record(Record("segment", segment.time, segment.start_step or 0, segment.fields() | {"rank": 0}))

    def commit(self, step: int, fields: dict[str, Any]) -> None:
        """All that was added counts from now on, with these fields as the mark that goes with it."""
        log, writer = self._opened()
        self._write_rows()
        self._write_groups(writer)
        self._write_records(log)
        position = log.append(encode(Record("info", self.clock, step, {"type": journal.TYPE} | fields)))
        self._check(log)
        if not self._here:
            log.sync()  # before the commit: after a power cut the store must not be ahead of the log file
        for segment in self._segments:
            self._write_segment(segment)
        writer.commit(position, self._marks())
        self._segments.clear()
        self.uncommitted, self._position = 0, position

    def discard(self) -> None:
        """Let go of the files; what was not committed does not count. The next import removes it."""
        if self._log is not None:
            self._log.close()
        self._writer = self._log = None

    def close(self) -> bool:
        """Let go of the files after a commit, and seal the store; whether there was anything to close.

        Many numbers are sealed by a process that goes on when this returns: the run can be read meanwhile.
        """
        if self._writer is None:
            return False
        if self._log is not None:
            self._log.close()
        written = self._writer.written
        self._writer = self._log = None
        if self._here and not written:
            return True
        if self._added > _SEAL_HERE and (sealer := _start_sealer(self.folder)) is not None:
            _leave(self.folder, sealer)  # its memory is not ours
        else:
            with contextlib.suppress(OSError):  # readable as it is; `barograph gc` tries again
                seal(self.folder, final=True)
        return True

    # -- inside ---------------------------------------------------------------------------------------

    def _opened(self) -> tuple[JsonLog, ImportWriter]:
        if self._log is None or self._writer is None:
            self.store.mkdir(parents=True, exist_ok=True)
            (self.folder / segments.FOLDER).mkdir(exist_ok=True)
            self._log = JsonLog(self.folder / journal.LOG)
            if not self._position:
                first = segments.Segment(1, time=self._created)
                self._write_segment(first)
                self._records.insert(0, Record("segment", self._created, 0, first.fields() | {"rank": 0}))
            self._writer = ImportWriter(self.store, self._position, self._here)
        return self._log, self._writer

    def _marks(self) -> list[Any]:
        """The segments that the log has begun, with the bytes at which they begin."""
        store = RunStore(self.folder)
        log = next(log for log in store.find_logs() if log.path.name == journal.LOG)
        return log.marks_behind(0, [], store.is_ours)

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, {}
        for (series, segment), (steps, times, values) in rows.items():
            step, when = numpy.array(steps, numpy.int64), numpy.array(times, numpy.int64)
            self.uncommitted -= len(steps) * len(series)  # counted by add_block once more
            self.add_block(series, segment, step, when, numpy.array(values, numpy.float64))

    def _write_groups(self, writer: ImportWriter) -> None:
        for (series, segment), blocks in self._groups.items():
            step, when, value = blocks[0] if len(blocks) == 1 else map(numpy.concatenate, zip(*blocks, strict=True))
            writer.points(series, step, when, value, segment)
        self._groups.clear()
        self._waiting = 0

    def _write_records(self, log: JsonLog) -> None:
        """One of no known time gets that of its neighbour, for the order of the log."""
        clock = self.clock or next((record.time for record in self._records if record.time > 0), 0)
        for record in in_order(self._records):
            clock = record.time if record.time > 0 else clock
            log.append(encode(record if record.time > 0 else record._replace(time=clock)))
        self.clock = clock
        self._records.clear()
        self._check(log)

    def _check(self, log: JsonLog) -> None:
        if log.waiting:
            reason = "the disk does not take it; what was imported before is safe, import again to go on"
            raise OSError(28, reason, str(self.folder))

    def _write_segment(self, segment: segments.Segment) -> None:
        path = self.folder / segments.FOLDER / f"{segment.number:04d}.json"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(segment.fields() | {"time": segment.time}) + b"\n")
        os.replace(temporary, path)


def in_order(records: list[Record]) -> list[Record]:
    """Records by their steps, as a training would have logged them: sources give rows by sets of names.

    A record without a step stays behind the one before it; nothing passes the start of a segment.
    """
    keys: list[tuple[int, int]] = []
    stretch = place = 0
    for record in records:
        if record.kind == "segment":
            stretch, place = stretch + 1, -1
        elif record.step > 0 or record.kind in ("step", "eval", "metrics"):
            place = record.step
        keys.append((stretch, place))
    return [records[at] for at in sorted(range(len(records)), key=keys.__getitem__)]


_left: dict[Path, subprocess.Popen[bytes]] = {}


def _leave(folder: Path, sealer: subprocess.Popen[bytes]) -> None:
    """Let sealing go on behind; that of one run at a time, however many are imported."""
    for other in _left.values():
        other.wait()
    _left.clear()
    _left[folder] = sealer


def stop_sealing(root: Path) -> None:
    """Before a folder is removed: end the sealing in it."""
    for folder in [folder for folder in _left if folder.is_relative_to(root)]:
        sealer = _left.pop(folder)
        sealer.terminate()
        sealer.wait()


def _start_sealer(folder: Path) -> subprocess.Popen[bytes] | None:
    """Merge what was imported in a process of its own."""
    import subprocess

    command = [sys.executable, "-m", "barograph.store.seal", str(folder), "--final"]
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return None
