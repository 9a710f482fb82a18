"""The commands `barograph sql` and `barograph mcp`.

In:   a query and options as typed; a folder of runs.
Out:  a table on the terminal, CSV or JSON on standard output, or a file; an exit code.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from barograph.core.record import mark_non_finite
from barograph.core.text import clip, escape, number, padded
from barograph.core.text import width as text_width
from barograph.query import tables
from barograph.query.sql import answer

if TYPE_CHECKING:
    import pyarrow

FORMATS = ("table", "csv", "json", "parquet")
_SHOWN_ROWS = 100
_NARROWEST = 8  # columns of text that a cell keeps before whole columns are left out


def run_sql(
    query: str | None,
    *,
    dir: str | None = None,
    format: str | None = None,
    out: Path | None = None,
    schema: bool = False,
) -> int:
    """Answer one SELECT; returns the exit code.

    format: one of FORMATS; without it what `out` ends in, else a table. out: a file instead of standard output,
    written whole or not at all. schema: print what tables there are, and stop.
    Raises ValueError with one sentence for a query that can't be answered, OSError for a file that can't be written.
    """
    if schema:
        print(tables.schema_text())
        return 0
    if query is None:
        raise ValueError("say what to ask, such as: barograph sql 'select run, status, loss from runs'")
    chosen = format or _format_of(out)
    if chosen == "parquet" and out is None:
        raise ValueError("Parquet is not text; name a file with --out")

    try:
        found = answer(query, dir)
    except ImportError as error:
        raise ValueError(str(error)) from None
    for problem in found.problems:
        print(f"barograph: {escape(problem)}", file=sys.stderr)
    if out is None:
        _write(found.table, chosen, sys.stdout)
    else:
        _save(found.table, chosen, out)
        print(f"{out}: {found.table.num_rows:,} rows")
    return 0


def _format_of(out: Path | None) -> str:
    ending = out.suffix.lower().lstrip(".") if out is not None else ""
    return ending if ending in FORMATS else "table" if out is None else "csv"


def _save(table: pyarrow.Table, format: str, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        if format == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, temporary, compression="zstd")
        else:
            with open(temporary, "w", newline="", encoding="utf-8") as file:
                _write(table, format, file)
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


def _write(table: pyarrow.Table, format: str, file: IO[str]) -> None:
    if format == "csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.column_names)
        for row in _rows(table):
            writer.writerow(["" if value is None else _cell(value) for value in row])
    elif format == "json":
        for at, row in enumerate(_rows(table)):
            said = mark_non_finite(dict(zip(table.column_names, map(_plain, row), strict=True)))
            file.write(("[\n" if at == 0 else ",\n") + json.dumps(said, ensure_ascii=False, default=str))
        file.write("\n]\n" if table.num_rows else "[]\n")
    else:
        file.write(drawn(table, shutil.get_terminal_size((100, 24)).columns) + "\n")


def _rows(table: pyarrow.Table) -> Any:
    """Rows as tuples; columns of one name stay apart."""
    for batch in table.to_batches(max_chunksize=8192):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: times as UTC text, whatever else there is as text."""
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):  # of sums, and of numbers that a query spells out
        return int(value) if value == value.to_integral_value() else float(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _time(value: datetime) -> str:
    return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%dT%H:%M:%S.%f")


def _cell(value: Any) -> str:
    """A value as text for CSV."""
    plain = mark_non_finite(_plain(value))
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return json.dumps(plain, ensure_ascii=False, default=str) if isinstance(plain, (dict, list)) else str(plain)


# -- the terminal -------------------------------------------------------------------------------------


def drawn(table: pyarrow.Table, width: int) -> str:
    """The first rows as aligned columns of no more than `width` characters; the last line says what is left out."""
    shown = table.slice(0, _SHOWN_ROWS)
    head = [escape(name, 80) for name in table.column_names]
    right = [_is_number(field.type) for field in table.schema]
    cells = [[_shown(value) for value in row] for row in _rows(shown)]
    sizes = [max(text_width([row[at]]) for row in [head, *cells]) for at in range(len(head))]
    firm = [_is_firm(field.type) for field in table.schema]
    count = _fit(sizes, [size if is_firm else min(size, _NARROWEST) for size, is_firm in zip(sizes, firm, strict=True)],
                 width)  # fmt: skip
    lines = ["  ".join(map(_padded, row, sizes[:count], right)).rstrip() for row in [head, *cells]]
    left = []
    if table.num_rows > shown.num_rows:
        left.append(f"{table.num_rows - shown.num_rows:,} more rows")
    if count < len(head):
        left.append(f"{len(head) - count} more columns")
    if not cells:
        lines.append("(no rows)")
    if left:
        lines.append(f"… {' and '.join(left)}: --format csv or --out FILE has them all")
    return "\n".join(lines)


def _is_number(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_firm(kind: Any) -> bool:
    """Whether a shortened cell would be a wrong one: numbers and times."""
    import pyarrow

    return _is_number(kind) or bool(pyarrow.types.is_temporal(kind) or pyarrow.types.is_boolean(kind))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, datetime):
        return _time(value)[:19].replace("T", " ")
    return escape(_cell(value), 200)


def _fit(sizes: list[int], least: Sequence[int], width: int) -> int:
    """Shrink the widest columns in place until the line fits; the number of columns that are shown."""
    count = len(sizes)
    while count > 1 and sum(least[:count]) > width - 2 * (count - 1):
        count -= 1
    while (excess := sum(sizes[:count]) + 2 * (count - 1) - width) > 0:
        loose = [at for at in range(count) if sizes[at] > least[at]]
        if not loose:  # one column alone, wider than the terminal
            break
        widest = max(loose, key=sizes.__getitem__)
        next_size = max((sizes[at] for at in loose if at != widest), default=0)
        sizes[widest] = max(least[widest], sizes[widest] - max(1, min(excess, sizes[widest] - next_size)))
    return count


def _padded(cell: str, size: int, right: bool) -> str:
    return padded(clip(cell, size), size, right)
