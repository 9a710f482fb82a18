"""One log of a run: its block files, the parts it is sealed into, and what is in no part yet.

In:   the path of the log, the folders of its parts.
Out:  parts and stretches which together have each of its rows once; the segments that it begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barograph.core.record import BEGINNINGS
from barograph.log.blocks import pieces, sealed_ends
from barograph.log.files import is_sidecar_name, rank_in
from barograph.log.read import records_of
from barograph.log.spool import best_copy
from barograph.store.folder import Folder
from barograph.store.held import HeldRows, held
from barograph.store.part import Part
from barograph.store.schema import merge_spans
from barograph.store.tail import BlockStretch, LogStretch, Mark, Spans, first_steps, gaps, mark_of

BEGINNING = 1  # a log's first record begins behind this byte


class RunLog:
    """One log of a run: its block files, the parts it is sealed into, what is not sealed yet.

    path: as the folder has it, perhaps a link. store: folders of its parts. rows: of what is not sealed they are kept.
    """

    def __init__(self, path: Path, rows: bool = True):
        self.path, self._rows = path, rows
        self.stem = path.stem
        self.is_sidecar = is_sidecar_name(path.name)
        self.store: list[Folder] = []
        self.rank = rank_in(path.name)
        self.points: list[Part] = []
        self.histograms: list[Part] = []
        self.held: list[HeldRows] = []  # came before what the parts have
        self.covered: Spans = []
        self.wide: dict[str, Spans] = {}  # block file → bytes whose rows are sealed
        self.wide_histograms: dict[str, Spans] = {}  # the same for histograms, which are sealed first
        self.stretches: dict[int, LogStretch] = {}
        self.last: LogStretch | None = None  # the stretch that goes on to the log's end
        self.blocks: dict[tuple[str, int], BlockStretch] = {}
        self.marks: list[Mark] = []
        self._file: tuple[int, int] = (0, 0)
        self._scanned: tuple[Spans, list[Mark]] | None = None

    def list_parts(self) -> None:
        """Which parts there are at this moment, and what they hold."""
        self.points = [part for folder in self.store for part in folder.parts("points")]
        self.histograms = [part for folder in self.store for part in folder.parts("histograms")]
        self.held = [rows for folder in self.store for rows in held(folder.path)]
        spans: Spans = []
        wide: dict[str, Spans] = {}
        for rows in self.held:
            spans += [(0 if start <= BEGINNING else start, end) for start, end in rows.header["log"]]
        for part in self.points:
            spans += [(0 if start <= BEGINNING else start, end) for start, end in part.log_spans]
            _add_wide(wide, part)
        self.covered = merge_spans(spans)
        self.wide = {name: merge_spans(found) for name, found in wide.items()}
        for part in self.histograms:
            _add_wide(wide, part)
        self.wide_histograms = {name: merge_spans(found) for name, found in wide.items()}

    def read_log(self, is_ours: Callable[[object], bool], segment_at: Callable[[int], int] | None) -> None:
        """Read what is in the log and in no part."""
        self._forget_if_replaced()
        wanted = gaps(self.covered)
        starts = {start for start, _ in wanted}
        self.stretches = {start: stretch for start, stretch in self.stretches.items() if start in starts}
        self.marks = self.sealed_marks(is_ours)
        for start, stop in wanted:
            stretch = self.stretches.get(start)
            if stretch is None:
                stretch = LogStretch(self.path, self.mark_at(start), is_ours, segment_at)
                stretch.keeps_rows = self._rows
                self.stretches[start] = stretch
            if stop is None or stretch.end < stop:
                stretch.read(stop)
            self.last = stretch
            self.marks = sorted({mark.end: mark for mark in (*self.marks, *stretch.marks)}.values())

    def read_blocks(self, folder: Path) -> None:
        """Read what is in the block files and in no part."""
        paths = {path.name: path for _, path in pieces(folder, self.stem)}
        wanted = {(name, start): stop for name in paths for start, stop in gaps(self.wide.get(name, []))}
        for key, stretch in list(self.blocks.items()):
            if key not in wanted or stretch.replaced:
                self.blocks.pop(key).close()
        for (name, start), stop in wanted.items():
            stretch = self.blocks.get((name, start)) or BlockStretch(paths[name], start, self.rank)
            stretch.keeps_rows = self._rows
            self.blocks[name, start] = stretch
            if stop is None or stretch.end < stop:
                stretch.read(stop)

    def missing(self, folder: Path) -> list[str]:
        """Block files that are deleted, and of whose rows some are in no part that can be read."""
        ends = sealed_ends(folder, self.stem)
        there = {path.name for _, path in pieces(folder, self.stem)} if ends else set()
        return [
            name
            for name, end in ends.items()
            if name not in there and any(start < end for start, _ in gaps(self.wide.get(name, [])))
        ]

    def mark_at(self, start: int) -> Mark:
        """What holds at a byte of the log."""
        before = [mark for mark in self.marks if mark.end <= start]
        mark = before[-1] if before else Mark(0, 1, self.rank, False, {})
        return mark._replace(end=start)

    def first_steps(self) -> dict[int, tuple[int, int]]:
        """The first step that each segment logged here, and where."""
        result: dict[int, tuple[int, int]] = {}
        for header in self._headers():
            first = header.get("first") or {}
            result = first_steps(result, {int(segment): (at, step) for segment, (at, step) in first.items()})
        for stretch in (*self.stretches.values(), *self.blocks.values()):
            result = first_steps(result, stretch.first)
        return result

    def _headers(self) -> list[Mapping[str, Any]]:
        """What each part, and what is held instead of one, says of itself."""
        return [*(rows.header for rows in self.held), *(part.header for part in self.points)]

    def _forget_if_replaced(self) -> None:
        """Read anew what was read of a log that is another file by now."""
        with contextlib.suppress(OSError):
            status = best_copy(self.path).stat()
            end = max((stretch.end for stretch in self.stretches.values()), default=0)
            if self._file != (status.st_dev, status.st_ino) or status.st_size < end:
                self._file = status.st_dev, status.st_ino
                self.stretches.clear()
                self._scanned = None

    def _marks_of_log(self, is_ours: Callable[[object], bool]) -> list[Mark]:
        if self._scanned is None or self._scanned[0] != self.covered:
            self._scanned = self.covered, self.marks_behind(0, [], is_ours)
        end = self.covered[-1][1] if self.covered else 0
        return [mark for mark in self._scanned[1] if mark.end <= end]

    def marks_behind(self, start: int, before: list[Mark], is_ours: Callable[[object], bool]) -> list[Mark]:
        """The segments that begin behind a byte of the log, looked for there; `before`: those up to it."""
        mark = before[-1] if before else Mark(0, 1, self.rank, False, {})
        marks: list[Mark] = []
        with contextlib.suppress(OSError):
            for record, end in records_of(best_copy(self.path), BEGINNINGS, start=start):
                mark = mark_of(record, end, mark, is_ours)
                marks.append(mark)
        return marks

    def sealed_marks(self, is_ours: Callable[[object], bool]) -> list[Mark]:
        """The segments that begin in what is sealed, as the parts say; by the log where they don't."""
        marks: list[Mark] = []
        for header in self._headers():
            if "segments" not in header:  # of version 0.1.0
                return self._marks_of_log(is_ours)
            marks += [Mark(*mark) for mark in header["segments"]]
        return sorted({mark.end: mark for mark in marks}.values())


def _add_wide(wide: dict[str, Spans], part: Part) -> None:
    for name, spans in (part.header.get("wide") or {}).items():
        wide.setdefault(name, []).extend((int(start), int(end)) for start, end in spans)
