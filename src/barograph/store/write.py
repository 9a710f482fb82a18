"""Blocks of rows become a sealed part: for the sealer, and for importers, whose rows are in no log.

In:   blocks of named numbers and histograms; what the part is to say it holds.
Out:  Parquet files, whole and on the disk under their names, or not there at all.

A file is written under a temporary name, synced, renamed. Histograms come first: what the points' part says it holds is
in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barograph.core.lazy import lazy
from barograph.store import held
from barograph.store.columns import Array, Block, HistogramsBlock, Keys, PointsBlock, plain
from barograph.store.packing import PartWriter
from barograph.store.schema import TABLES, TEMPORARY_PREFIX, parse_names, sealed_name, sync_folder

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")
from barograph.store.sort import Slice, sorted_windows

MOST_WAITING = 2_000_000  # numbers of an import that are kept in memory


def write_part(
    folder: Path, name: str, table: str, series: int, rows: int, windows: Iterator[Slice], header: dict[str, Any]
) -> Path:
    """Write a sealed file and have it on the disk under its name. Raises OSError, NamesTooLong."""
    temporary = folder / f"{TEMPORARY_PREFIX}{os.getpid()}-{name}"
    writer = PartWriter(temporary, table, rows, series)
    origin: dict[str, set[int]] = {"segment": set(), "rank": set()}
    try:
        for window in windows:
            writer.add(window.names, window.counts, window.rows)
            for column, found in origin.items():
                for chunk in window.rows.column(column).chunks if len(found) < 2 else ():
                    values = plain(chunk)
                    found.update({int(values.min()), int(values.max())} if len(values) else ())
        # a column of one value is said here, so that readers need not decode it
        only = {column: found.pop() if len(found) == 1 else None for column, found in origin.items()}
        writer.close({**header, **only})
    except Exception:
        writer.abort()
        raise
    if writer.rows != rows:
        temporary.unlink()
        raise OSError(f"sealing {name} went wrong: {writer.rows} rows instead of {rows}; nothing was removed")
    os.rename(temporary, folder / name)
    sync_folder(folder)
    return folder / name


def write_blocks(folder: Path, blocks: Sequence[Block], header: dict[str, Any]) -> list[Path]:
    """Seal these rows as the next part of a folder. header: `log`, `wide`, … of the points' part."""
    number = max((file.last for file in parse_names(os.listdir(folder))), default=0) + 1
    written = []
    for table in TABLES:
        series, rows, windows = sorted_windows(blocks, table)
        if table == "histograms":
            if not rows:
                continue
            about = {key: value for key, value in header.items() if key in ("wide", "pending")}
        else:
            about = header
        written.append(write_part(folder, sealed_name(number, number, table), table, series, rows, windows, about))
    return written


class ImportWriter:
    """Rows of an import, which count once they are committed. One process at a time writes a run.

    folder: of the store, `store/training`. start: byte of the log up to which everything was committed before.
    here: rows are for this process alone, and stay in its memory as long as they are few.
    `written`: there are files of them.
    """

    def __init__(self, folder: Path, start: int = 0, here: bool = False):
        self.folder = folder
        self._here = here
        self._start = start
        self._blocks: list[Block] = []
        self._waiting = 0
        self._first: dict[int, tuple[int, int]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.written = bool(parse_names(os.listdir(folder)))

    def points(self, names: tuple[str, ...], step: Array, time: Array, value: Array, segment: int) -> None:
        """n rows of m numbers: step and time (µs since 1970) [n], value [n, m]. Raises OSError, ValueError."""
        if not value.size:
            return
        self._first.setdefault(segment, (self._start, int(step[0])))
        last = {name: column for column, name in enumerate(map(_text, names))}
        if len(last) < len(names):  # names that become the same text: the last one counts
            value = value[:, list(last.values())]
        block = PointsBlock(
            Keys(tuple(last)),
            np.asarray(step, np.int64),
            np.asarray(time, np.int64),
            np.ascontiguousarray(value, np.float64),
            segment,
            0,
        )
        self._add(block, value.size)

    def histogram(self, name: str, step: int, time: int, edges: Array, counts: Array, segment: int) -> None:
        """A distribution: `counts[i]` values lie between `edges[i]` and `edges[i + 1]`. Raises OSError, ValueError."""
        edges, counts = (np.array(column, np.float64).ravel() for column in (edges, counts))
        if len(edges) != len(counts) + 1:
            raise ValueError(f"a histogram of {len(counts)} counts needs {len(counts) + 1} edges, not {len(edges)}")
        at, when = np.array([step], np.int64), np.array([time], np.int64)
        self._add(HistogramsBlock((_text(name),), at, when, [edges], [counts], segment, 0), 2 * len(counts))

    def commit(self, log_end: int, marks: Sequence[Any]) -> None:
        """What was handed over counts from now on, with the log up to a byte. marks: the log's segments so far."""
        header = {
            "log": [(self._start, log_end)],
            "segments": [mark for mark in marks if self._start < mark[0] <= log_end],
            "first": {str(segment): first for segment, first in self._first.items()},
        }
        if self.written or not self._here or not held.hold(self.folder, self._blocks, header, self._waiting):
            write_blocks(self.folder, self._blocks, header)
            self.written = True
        self._blocks, self._waiting, self._start = [], 0, log_end
        self._first.clear()

    def _add(self, block: Block, numbers: int) -> None:
        self._blocks.append(block)
        self._waiting += numbers
        if self._waiting >= MOST_WAITING:  # counts with the next commit
            write_blocks(self.folder, self._blocks, {"pending": True, "segments": []})
            self.written = True
            self._blocks, self._waiting = [], 0


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeError:  # a lone surrogate: JSON can carry it, Parquet can not
        return name.encode("utf-8", "backslashreplace").decode()
    return name
