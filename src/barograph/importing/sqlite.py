"""SQLite databases of other tools, read without disturbing who writes them.

In:   a database file, whole, damaged, or being written this moment.
Out:  its tables with their columns, and rows in the order in which they were written.

A file is opened read-only. Where that can't be (another process holds it for itself, a crash has left a
journal, the folder can't be written) a copy is read. Text comes out as bytes: names are few and values
many, so decoding is the caller's choice.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from barograph.core.lazy import lazy
from barograph.importing.source import Unread

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")

MAGIC = b"SQLite format 3\0"
CHUNK = 50_000  # rows in memory at a time: some MB of short ones
_MOST_BYTES = 32 << 20  # of the last column, which may hold anything
_PART = 1000  # rows fetched at a time
_BUSY_SECONDS = 1.0  # a writer holds the file for milliseconds; longer than this and a copy is read
_MOST_FAILURES = 60  # damaged places in one table, after which the rest is given up

Tables = Mapping[str, frozenset[str]]
Row = tuple[Any, ...]


@contextlib.contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for reading. Raises sqlite3.Error or OSError if the file can't be read at all."""
    with contextlib.ExitStack() as stack:
        try:
            try:
                connection = _connected(path)
            except sqlite3.OperationalError:  # locked, a journal to play back, no place for the index of the log
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="barograph-"))
                connection = _connected(_copied(path, Path(folder)), mode="rw")
            stack.callback(connection.close)
            yield connection
        except UnicodeDecodeError:  # of the sentence in which SQLite quotes what is damaged
            raise sqlite3.DatabaseError("the database's schema is damaged") from None


def _connected(path: Path, mode: str = "ro") -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        connection.text_factory = bytes
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _copied(path: Path, folder: Path) -> Path:
    """The file with its journals. What a writer changes meanwhile shows as damage, or at the next import."""
    for ending in ("", "-wal", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(f"{path}{ending}", folder / f"copy{ending}")
    return folder / "copy"


def tables(connection: sqlite3.Connection) -> Tables:
    """The names of real tables, each with its columns. Views are left out: they may compute for ever."""
    result: dict[str, frozenset[str]] = {}
    for name, command in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
        if isinstance(name, bytes) and not word(command).upper().lstrip().startswith("CREATE VIRTUAL"):
            shown = word(name)
            info = connection.execute(f"PRAGMA table_info({quoted(shown)})").fetchall()
            result[shown] = frozenset(word(row[1]) for row in info)
    return result


def has(known: Tables, table: str, *columns: str) -> bool:
    """Whether a table is there with these columns."""
    return table in known and known[table].issuperset(columns)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def word(value: Any) -> str:
    """Text out of a cell that may hold anything."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def number(value: Any) -> float | None:
    """A number out of a cell, None if there is none."""
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def select(connection: sqlite3.Connection, command: str, values: Sequence[Any] = ()) -> list[Row]:
    """The rows of a small table; what comes before a damaged place, if there is one."""
    rows: list[Row] = []
    with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeDecodeError):
        for row in connection.execute(command, values):
            rows.append(row)
    return rows


def rows_after(
    connection: sqlite3.Connection,
    path: Path,
    table: str,
    columns: Sequence[str],
    owner: tuple[str, Any] | None,
    after: int,
    size: int = CHUNK,
) -> Iterator[list[Row] | Unread]:
    """Rows behind number `after`, each with its number first, as they were written; `size` or less at a time.

    owner: a column and the value that it has to have. Damaged places are reported and skipped.
    """
    names = ", ".join(["rowid", *map(quoted, columns)])
    condition = f"{quoted(owner[0])} IS ? AND " if owner else ""
    known = [owner[1]] if owner else []
    most, jump, failures, source = size, 1, 0, quoted(table)
    while failures < _MOST_FAILURES:
        # the inner part is answered by an index on the owner alone, the outer one fetches each row once
        inner = f"SELECT rowid FROM {source} WHERE {condition}rowid > ? ORDER BY rowid LIMIT {size}"
        command = f"SELECT {names} FROM {source} WHERE rowid IN ({inner}) ORDER BY rowid"
        rows: list[Row] = []
        try:
            cursor = connection.execute(command, [*known, after])
            weight = 0
            while weight < _MOST_BYTES and (part := cursor.fetchmany(_PART)):
                rows += part
                if isinstance(part[0][-1], bytes):
                    weight += sum(len(row[-1]) for row in part if isinstance(row[-1], bytes))
            if rows and (type(rows[-1][0]) is not int or rows[-1][0] <= after):
                raise sqlite3.DatabaseError("its rows go round in a circle")
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            failures += 1
            rows.clear()
            if not source.endswith("NOT INDEXED"):
                yield Unread(path, after, table, f"a part of the table can't be read: {error}")
                source += " NOT INDEXED"  # the rows may be whole where an index is not
            elif size > 1:
                size = max(size // 16, 1)
            else:
                after, jump = after + jump, jump * 4
                if after > 2**62:
                    return
            continue
        if not rows:
            return
        yield rows
        after = rows[-1][0]
        if failures:
            size, jump = min(size * 4, most), 1
    yield Unread(path, after, table, "too much of the table is damaged; what lies behind was not read")
