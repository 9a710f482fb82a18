"""CSV files exported from W&B's charts: one column a run and metric, with its least and largest beside it.

In:   a file whose columns are like `Step`, `run name - train/loss`, `run name - train/loss__MIN`, `…__MAX`.
Out:  one `FoundRun` for each run in it, and its points.

W&B draws a chart from at most some thousand points: where it has put several into one, the column is their mean,
and `__MIN` and `__MAX` are kept as series of their own for those rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.importing.source import FoundRun, ImportedPoints, ImportMark, Item, Unread
from barograph.importing.wandb_axes import unit_of, whole_steps

_ROWS_AT_ONCE = 20_000
_LEAST, _LARGEST = "__MIN", "__MAX"
_CLOCKS = frozenset({"wall time", "_timestamp", "relative time (wall)", "relative time (process)", "_runtime"})
_MOST_TOLD = 5  # cells that are shown; the others are counted


class CsvColumn(NamedTuple):
    """A column of the file: which run's, which metric's, and where."""

    run: str
    metric: str
    place: int


def parse_header(line: str) -> tuple[str, list[CsvColumn]]:
    """The name of the first column, and the runs' columns; none if the file is not an export of a chart."""
    try:
        cells = next(csv.reader([line.removeprefix("\ufeff")]), [])
    except csv.Error:
        return "", []
    present = set(cells)
    if not any(cell.endswith(_LEAST) and " - " in cell and cell.removesuffix(_LEAST) in present for cell in cells[1:]):
        return "", []
    columns = []
    for place, cell in enumerate(cells[1:], 1):
        run, dash, metric = cell.rpartition(" - ")
        if dash and metric:
            columns.append(CsvColumn(run.removeprefix("Name: "), metric, place))
    return cells[0], columns


def _header_line(head: bytes) -> str:
    line, _, rest = head.partition(b"\n")
    return line.decode("utf-8", "replace").rstrip("\r") if rest or len(head) < 65536 else ""


class WandbCsvSource:
    """Charts of W&B, exported."""

    kind = "wandb_csv"
    about = "CSV exports of W&B charts (columns like `run - train/loss`)"

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        if _LEAST.encode() not in head or b" - " not in head:
            return
        for run in dict.fromkeys(column.run for column in parse_header(_header_line(head))[1]):
            yield FoundRun(self.kind, path, run, run)

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        done = since.state.get("rows", 0) if since else 0
        try:
            with run.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                axis, columns = parse_header(file.readline(1 << 22).rstrip("\r\n"))
                yield from _read_rows(run, file, axis, [column for column in columns if column.run == run.key], done)
        except OSError as error:
            yield Unread(run.path, 0, "", f"could not be read: {error.strerror or error}")
            yield ImportMark({"rows": done})


def _read_rows(run: FoundRun, file: io.TextIOBase, axis: str, columns: list[CsvColumn], done: int) -> Iterator[Item]:
    """A run's rows from behind the first `done` on."""
    places = {column.metric: column.place for column in columns}
    own = places.get("_step")
    clock = places.get("_timestamp")
    unit = unit_of(axis) or "step"
    numbered = own is None and axis.lower() in _CLOCKS
    if numbered:
        yield Unread(run.path, 1, axis, f"the first column is {axis!r} and there are no steps: rows are numbered")
    if own is not None:
        unit = "step"
    names = [place for place in places if not place.startswith("_") and not place.endswith((_LEAST, _LARGEST))]
    reader = csv.reader(_lines(file))
    for _ in islice(reader, done):
        pass
    wrong = 0
    while True:
        try:
            rows = list(islice(reader, _ROWS_AT_ONCE))
        except csv.Error as error:
            yield Unread(run.path, reader.line_num + 1, "", f"no CSV: {error}")
            break
        if not rows:
            break
        table: dict[int, NDArray[Any]] = {}
        for place in {0, *places.values()}:
            table[place], bad = _numbers(rows, place)
            for row in bad[: max(0, _MOST_TOLD - wrong)] if place in map(places.get, names) else ():
                yield Unread(run.path, done + row + 2, rows[row][place][:80], "not a number")
            wrong += len(bad)
        steps = np.arange(done, done + len(rows), dtype=np.float64) if numbered else table[own or 0]
        times = np.zeros(len(rows), np.int64)
        if clock is not None:
            sound = (table[clock] > 0) & (table[clock] < 9.2e9)
            times[sound] = np.rint(table[clock][sound] * 1e6).astype(np.int64)
        for name in names:
            yield from _read_metric(name, table, places, steps, times, unit)
        done += len(rows)
        yield ImportMark({"rows": done})
    if wrong > _MOST_TOLD:
        yield Unread(run.path, 1, "", f"{wrong:,} cells are not numbers and left out")
    yield ImportMark({"rows": done})


def _lines(file: io.TextIOBase) -> Iterator[str]:
    """A file's lines; one longer than 4 MB, which no export has, in pieces."""
    while line := file.readline(1 << 22):
        yield line.replace("\0", "")


def _numbers(rows: list[list[str]], place: int) -> tuple[NDArray[Any], list[int]]:
    """A column as numbers, `_EMPTY` where a cell is empty or no number, and which rows hold no number."""
    values, bad = np.full(len(rows), _EMPTY), []
    for index, row in enumerate(rows):
        cell = row[place] if place < len(row) else ""
        if cell:
            try:
                values[index] = float(cell)
            except ValueError:
                bad.append(index)
    return values, bad


# A NaN of a bit pattern that no file has stands for "no value": a cell may say NaN and mean it
_EMPTY = np.array([0x7FF8_0000_BA50_6AF0], np.uint64).view(np.float64)[0]
_EMPTY_BITS = np.uint64(0x7FF8_0000_BA50_6AF0)


def _is_there(values: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(values.view(np.uint64) != _EMPTY_BITS)


def _read_metric(
    name: str,
    table: dict[int, NDArray[Any]],
    places: dict[str, int],
    steps: NDArray[Any],
    times: NDArray[Any],
    unit: str,
) -> Iterator[ImportedPoints]:
    values = table[places[name]]
    kept = _is_there(values) & np.isfinite(steps) & (steps >= 0) & (steps == np.rint(steps))
    whole = whole_steps(steps[kept])
    if whole is None:
        return
    yield ImportedPoints((name,), whole, times[kept], values[kept][:, None], unit)
    ends = [places.get(name + ending) for ending in (_LEAST, _LARGEST)]
    if ends[0] is None or ends[1] is None:
        return
    least, largest = table[ends[0]], table[ends[1]]
    spread = kept & _is_there(least) & _is_there(largest) & ((least != values) | (largest != values))
    spread &= ~(np.isnan(values) & np.isnan(least))
    whole = whole_steps(steps[spread])
    if whole is not None:
        both = np.stack([least[spread], largest[spread]], axis=1)
        yield ImportedPoints((name + _LEAST, name + _LARGEST), whole, times[spread], both, unit)


SOURCE = WandbCsvSource()
