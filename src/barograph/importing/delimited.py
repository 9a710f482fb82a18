"""Tables of text: rows of cells between commas, semicolons, tabs or bars.

In:   the bytes of a file; the beginning of it to find out how it is written.
Out:  rows as columns of numbers, with what was not understood; how far the file was read.

Rows are read by the million with Arrow where a stretch is plain, and cell by cell where it is not: quotes, line
breaks inside them, rows that are too long or short, words among numbers.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from barograph.importing.axes import MISSING, ImportAxes, choose, moment, number
from barograph.importing.axes import moments as read_moments
from barograph.importing.source import Unread

CHUNK = 4 << 20
_DELIMITERS = ",;\t|"
_MOST_RECORD = 1 << 20  # a quoted cell longer than this is a quote that was never closed
_SAMPLE_ROWS = 200
_FEW_ROWS, _FEW_COLUMNS = 8, 4  # of a table without a header
_SAID = re.compile(r"[A-Za-z)\]]\s{0,2}[:=]\s{0,4}[-+]?\d[\d.]{0,20}(?:e[-+]?\d{1,3})?%?$")  # `Loss: 0.4`
_MONITOR: dict[tuple[str, ...], list[str]] = {
    ("r", "l", "t"): ["reward", "episode_length", "wall_seconds"]
}  # of Stable-Baselines3, a row an episode
_RULED = " \t-=:+|"  # of what a line is made that is drawn below a heading


@dataclass
class Layout:
    """How a table is written. `begin`: byte of the first row behind the header."""

    columns: list[str]
    delimiter: str
    begin: int
    lines: int  # of the header
    axes: ImportAxes
    comma: bool = False  # the decimal mark is a comma
    texts: frozenset[str] = field(default_factory=frozenset)  # columns of words


class DelimitedStretch(NamedTuple):
    """Rows as columns: `cells` m numbers a column, NaN where `given` says there is none; `words` of text columns."""

    cells: dict[str, NDArray[numpy.float64]]
    given: dict[str, NDArray[numpy.bool_]]
    words: dict[str, list[str]]
    rows: int


def layout(head: bytes, whole: bool) -> Layout | None:
    """How a table is written that begins so; None if it is none. whole: the head is all there is.

    Lines behind `#` may stand before it; the last of them may be its header, as numpy's `savetxt` writes it.
    """
    begin, names = _comments(head)
    if not begin:
        return _layout(head, whole)
    result = _layout(head[begin:], whole)
    if result is None:
        result = _layout(names + b"\n" + head[begin:], whole)
        if result is None:
            return None
        result.begin, result.lines = 0, 0
    result.begin += begin
    result.lines += head.count(b"\n", 0, begin)
    return result


def _comments(head: bytes) -> tuple[int, bytes]:
    """Where the lines behind `#` at the beginning end, and the words of the last."""
    begin, last = 0, b""
    while head.startswith(b"#", begin) and (end := head.find(b"\n", begin)) >= 0:
        begin, last = end + 1, head[begin:end].lstrip(b"#").strip()
    return begin, last


def _layout(head: bytes, whole: bool) -> Layout | None:
    text = _text(head)
    if "\0" in text:
        return None
    offset = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    header_end = _header_end(text)
    if header_end is None and not whole:
        return None
    first = text[:header_end] if header_end is not None else text
    first_line = first.lstrip("\n\r")
    counts = {item: _outside(first_line, item) for item in _DELIMITERS}
    delimiter = max(counts, key=lambda item: (counts[item], -_DELIMITERS.index(item)))
    if not counts[delimiter]:
        if not _is_spaced(text, whole):
            return None
        delimiter = " "
    rows = _sure_rows(text, delimiter, whole)
    if len(rows) < 1:
        return None
    columns = [_unquoted(cell.strip()) for cell in rows[0]]
    while columns and not columns[-1]:  # a comma at each line's end
        columns.pop()
    named = [column for column in columns if column]
    if len(named) < 2 or any(number(column) is not None for column in named) or max(map(len, named)) > 300:
        return None
    if sum(_SAID.search(column) is not None for column in named) > 1:  # a row of a log, which says names and values
        return None
    columns = _MONITOR.get(tuple(columns), _distinct(columns))
    fits = (
        row for row in rows[1:] if any(row) and len(row) >= len(columns) and [item.strip() for item in row] != columns
    )
    sample = [dict(zip(columns, row, strict=False)) for row in itertools.islice(fits, _SAMPLE_ROWS)]
    comma = delimiter != "," and _decimal_comma(sample)
    axes = choose([column for column in columns if column], sample)
    texts = frozenset(column for column in columns if _is_text(column, sample, comma))
    begin = offset + len(first.encode("utf-8", "surrogateescape")) + 1
    return Layout(columns, delimiter, begin, first.count("\n") + 1, axes, comma, texts)


def without_header(head: bytes, whole: bool) -> Layout | None:
    """How a table of nothing but numbers is written whose first column counts up; None if it is none.

    Its columns are called `column_1` and so on: what they are stands nowhere.
    """
    skipped, _ = _comments(head)
    text = _text(head[skipped:])
    if "\0" in text:
        return None
    offset = skipped or (3 if head.startswith(b"\xef\xbb\xbf") else 0)
    for delimiter in (*reversed(_DELIMITERS), " "):  # a comma after the others: it may be a decimal mark
        rows = _sure_rows(text, delimiter, whole)[:_SAMPLE_ROWS]
        if len(rows) < 3 or len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
            continue
        columns = [f"column_{place}" for place in range(1, len(rows[0]) + 1)]
        sample = [dict(zip(columns, row, strict=True)) for row in rows]
        comma = delimiter != "," and _decimal_comma(sample)
        cells = (cell for row in rows for cell in row)
        steps = [number(row[0], comma) for row in rows]
        counts = [step for step in steps if step is not None and step >= 0 and step == step // 1]
        rising = sum(1 for item, other in itertools.pairwise(counts) if item < other)
        if (
            len(counts) == len(steps)
            and rising >= 0.9 * (len(counts) - 1)
            and all(number(cell, comma) is not None or cell.strip().lower() in MISSING for cell in cells)
        ):
            axes = ImportAxes(columns[0], "step", None, None, None, None)
            return Layout(columns, delimiter, offset, head.count(b"\n", 0, skipped), axes, comma)
    return None


def of_one_metric(head: bytes, whole: bool, name: str) -> Layout | None:
    """How a table of nothing but numbers is written of which one column has no whole numbers: what the file is named
    for, `name`. None if it is no such table, or a short one. The other columns are called `column_2` and so on."""
    text = _text(head)
    for delimiter in reversed(_DELIMITERS):
        rows = _sure_rows(text, delimiter, whole)[:_SAMPLE_ROWS]
        widths = {len(row) for row in rows}
        if len(rows) < _FEW_ROWS or len(widths) > 1 or not 1 < len(rows[0]) <= _FEW_COLUMNS:
            continue
        cells = [[number(cell) for cell in column] for column in zip(*rows, strict=True)]
        broken = [at for at, column in enumerate(cells) if any(cell is not None and cell % 1 for cell in column)]
        if len(broken) == 1 and all(cell is not None for column in cells for cell in column):
            columns = [name if at in broken else f"column_{at + 1}" for at in range(len(cells))]
            offset = 3 if head.startswith(b"\xef\xbb\xbf") else 0
            return Layout(columns, delimiter, offset, 0, ImportAxes(None, "row", None, None, None, None))
    return None


def _sure_rows(text: str, delimiter: str, whole: bool) -> list[list[str]]:
    rows = list(_rows(text, delimiter))
    return rows if whole else rows[:-1]  # the last may be cut


def _is_spaced(text: str, whole: bool) -> bool:
    """Whether single blanks stand between the cells: words in the first line, the same count of numbers in each line
    below."""
    lines = [line.rstrip() for line in text.split("\n")[: _SAMPLE_ROWS + 1]]
    lines = [line for line in (lines if whole else lines[:-1]) if line]
    width = len(lines[0].split(" ")) if lines else 0
    return (
        width > 1
        and len(lines) > 2
        and all(len(cells := line.split(" ")) == width and all(map(_says_number, cells)) for line in lines[1:])
    )


def _says_number(cell: str) -> bool:
    return number(cell) is not None


def _text(data: bytes) -> str:
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _header_end(text: str) -> int | None:
    """Where the first line that is not blank ends, line breaks inside quotes left out."""
    quoted = started = False
    for at, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif letter == "\n" and not quoted and started:
            return at
        started = started or not letter.isspace()
    return None


def _outside(line: str, mark: str) -> int:
    """How often a mark stands outside quotes."""
    return sum(part.count(mark) for part in line.split('"')[::2])


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    try:
        yield from (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row)
    except csv.Error:  # a cell without end
        return


def _unquoted(name: str) -> str:
    """A name without the `'…'` around it."""
    return name[1:-1].strip() if len(name) > 2 and name[0] == name[-1] == "'" else name


def _distinct(columns: list[str]) -> list[str]:
    """Columns of one name told apart by numbers, as spreadsheets do it."""
    seen: dict[str, int] = {}
    result = []
    for column in columns:
        seen[column] = seen.get(column, 0) + 1
        result.append(column if seen[column] == 1 or not column else f"{column}.{seen[column] - 1}")
    return result


def _decimal_comma(sample: list[dict[str, Any]]) -> bool:
    cells = [cell for row in sample for cell in row.values() if isinstance(cell, str)]
    with_comma = sum(1 for cell in cells if "," in cell and number(cell, comma=True) is not None)
    with_point = sum(1 for cell in cells if "." in cell and "," not in cell and number(cell) is not None)
    return with_comma > with_point


def _is_text(column: str, sample: list[dict[str, Any]], comma: bool) -> bool:
    cells = [row[column] for row in sample if row.get(column, "").strip().lower() not in MISSING]
    words = sum(1 for cell in cells if number(cell, comma) is None)
    return bool(cells) and words > 0.5 * len(cells)


class DelimitedReader:
    """Reads a table's rows from byte `offset` on, a stretch at a time. Afterwards `offset`, `line` say how far."""

    def __init__(self, path: Path, made: Layout, offset: int, line: int, patient: bool = False):
        self.path, self.layout, self.offset, self.line = path, made, offset, line
        self._patient = patient  # a last row without a line break waits for it
        self._wanted = [column for column in made.columns if column]
        self._texts = [column for column in self._wanted if column in made.texts]

    def stretches(self) -> Iterator[DelimitedStretch | Unread]:
        """Rows that are whole, and those that could not be understood."""
        with open(self.path, "rb") as file:
            size = CHUNK
            while True:
                file.seek(self.offset)
                data = file.read(size)
                at_end = len(data) < size
                used = self._whole_rows(data, at_end)
                if not used:
                    if at_end:
                        return
                    if size > _MOST_RECORD + CHUNK:
                        used = data.find(b"\n") + 1 or len(data)
                        shown = data[:200].decode("utf-8", "replace")
                        yield Unread(self.path, self.line, shown, "a quote that is never closed")
                        self.line += data.count(b"\n", 0, used)
                        self.offset += used
                        size = CHUNK
                    else:
                        size *= 2
                    continue
                part = data[:used]
                stretch = self._plain(part) if b'"' not in part and not self.layout.comma else None
                if stretch is not None:
                    yield stretch
                else:
                    yield from self._careful(part)
                self.line += part.count(b"\n")
                self.offset += used
                size = CHUNK
                if at_end:
                    return

    def _whole_rows(self, data: bytes, at_end: bool) -> int:
        """How many bytes hold whole rows: up to a line break that is not inside quotes."""
        end = data.rfind(b"\n") + 1
        if b'"' in data:
            while end and data.count(b'"', 0, end) % 2:
                end = data.rfind(b"\n", 0, end - 1) + 1
        rest = data[end:].strip()
        if at_end and rest and not self._patient and rest.count(b'"') % 2 == 0:
            # no line break behind the last row: it is whole if no cell is missing and the last has something in it
            cells = next(_rows(_text(rest), self.layout.delimiter), [])
            if len(cells) == len(self.layout.columns) and cells[-1].strip():
                return len(data)
        return end

    def _plain(self, data: bytes) -> DelimitedStretch | None:
        """A stretch of plain numbers, by Arrow; None if it holds anything else."""
        import pyarrow
        from pyarrow import csv as arrow_csv

        columns = [column or f"\0{at}" for at, column in enumerate(self.layout.columns)]
        texts = set(self._texts)
        kinds = {
            column: pyarrow.string() if column in texts else pyarrow.float64()
            for column in columns
            if column[:1] != "\0"
        }
        try:
            table = arrow_csv.read_csv(
                pyarrow.BufferReader(data),
                read_options=arrow_csv.ReadOptions(column_names=columns, use_threads=False, block_size=len(data) + 1),
                parse_options=arrow_csv.ParseOptions(delimiter=self.layout.delimiter, quote_char=False),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=kinds,
                    include_columns=list(kinds),
                    null_values=["", "None", "null", "NA", "N/A", "-"],
                    strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
        except (pyarrow.ArrowException, ValueError):
            return None
        cells, given, words = {}, {}, {}
        for name in kinds:
            column = table.column(name)
            if name in texts:
                words[name] = ["" if cell is None else cell for cell in column.to_pylist()]
            else:
                cells[name] = column.to_numpy(zero_copy_only=False).astype(numpy.float64)
                valid = column.is_valid().to_numpy()
                given[name] = valid.astype(bool)
        return DelimitedStretch(cells, given, words, table.num_rows)

    def _is_remark(self, cell: str, comma: bool) -> bool:
        """Whether a cell behind the last column is somebody's words, in a table with tabs between its cells."""
        words = cell.strip().strip("*")
        return self.layout.delimiter == "\t" and number(words, comma) is None and words[:1].isalpha()

    def _careful(self, data: bytes) -> Iterator[DelimitedStretch | Unread]:
        """Cell by cell: rows that fit are taken, cells that are not numbers are reported."""
        columns, comma, texts = self.layout.columns, self.layout.comma, set(self._texts)
        kept: dict[str, list[float]] = {column: [] for column in self._wanted if column not in texts}
        there: dict[str, list[bool]] = {column: [] for column in kept}
        words: dict[str, list[str]] = {column: [] for column in texts}
        reader = csv.reader(io.StringIO(_text(data), newline=""), delimiter=self.layout.delimiter)
        rows, before = 0, 0
        while True:
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                yield Unread(self.path, self.line + reader.line_num, "", f"no row of a table ({error})")
                continue
            where, before = self.line + before, reader.line_num
            while len(row) > len(columns) and not row[-1].strip():
                row.pop()
            if len(row) == len(columns) + 1 and self._is_remark(row[-1], comma):
                row.pop()
            if not row or not any(cell.strip(_RULED) for cell in row):
                continue
            if len(row) != len(columns) or [cell.strip() for cell in row] == columns:
                if [cell.strip() for cell in row] != columns:  # else the header once more: appended by a second start
                    why = f"{len(row)} cells where the header has {len(columns)}"
                    yield Unread(self.path, where, self.layout.delimiter.join(row)[:200], why)
                continue
            for column, cell in zip(columns, row, strict=True):
                if column in words:
                    words[column].append(cell)
                elif column:
                    value = number(cell.strip().strip("*"), comma)
                    if value is None and cell.strip().lower() not in MISSING:
                        yield Unread(self.path, where, cell[:200], f"{column} is not a number")
                    kept[column].append(numpy.nan if value is None else value)
                    there[column].append(value is not None)
            rows += 1
        yield DelimitedStretch(
            {name: numpy.array(values, numpy.float64) for name, values in kept.items()},
            {name: numpy.array(flags, bool) for name, flags in there.items()},
            words,
            rows,
        )


def moments(stretch: DelimitedStretch, column: str | None) -> NDArray[numpy.int64]:
    """The times of a stretch's rows in microseconds since 1970, 0 where there is none."""
    if column is None:
        return numpy.zeros(stretch.rows, numpy.int64)
    if column in stretch.words:
        return numpy.array([moment(word) for word in stretch.words[column]], numpy.int64)
    return read_moments(stretch.cells[column])
