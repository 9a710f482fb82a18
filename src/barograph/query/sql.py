"""SQL over stored runs, by DuckDB, read-only.

In:   one SELECT; a folder of runs, or runs.
Out:  an Arrow table.

DuckDB sees the tables of `tables.py` and nothing else: its access to files, to the network, to extensions
and to Python's own variables is off, and its configuration is locked before the query is looked at. The
rows come from the same readers as everywhere else in Barograph, when DuckDB asks for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from barograph.query import catalog
from barograph.query.folders import runs_folder
from barograph.query.given import GivenRun, stored_runs
from barograph.query.pushdown import EVERYTHING, QueryScope, wanted
from barograph.query.rows import PROVIDERS
from barograph.query.shelf import Shelf
from barograph.query.stored import StoredRun
from barograph.query.tables import TABLES, schema

if TYPE_CHECKING:
    import pyarrow

_LOCKED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # a table's name never means a variable of the calling program
    "temp_directory": "",  # what does not fit into memory fails instead of going to the disk
}
_COLUMNS = {name: frozenset(column.name for column in table.columns) for name, table in TABLES.items()}


@dataclass
class SqlResult:
    """table: the rows. problems: sentences about runs that could not be read whole. cut: there are more rows."""

    table: pyarrow.Table
    problems: list[str] = field(default_factory=list)
    cut: bool = False


def sql(
    query: str,
    dir: str | os.PathLike[str] | None = None,
    *,
    runs: GivenRun | Iterable[GivenRun] | None = None,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
) -> pyarrow.Table:
    """The rows of one SELECT over the tables of docs/guides/sql.md, as an Arrow table; `.to_pylist()` gives records.

    dir: the folder of runs (default: `BAROGRAPH_DIR`, else `runs`). runs: these instead, as
    `barograph.frame` takes them. parameters: values of `?`, `$1` or `$name`.
    Raises ValueError with a sentence for a query that cannot be answered, OSError if there is no such folder,
    ImportError without DuckDB.
    """
    return answer(query, dir, runs=runs, parameters=parameters).table


def answer(
    query: str,
    dir: str | os.PathLike[str] | None = None,
    *,
    runs: GivenRun | Iterable[GivenRun] | None = None,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    most_rows: int | None = None,
    seconds: float | None = None,
) -> SqlResult:
    """As `sql`, with what is to be said beside the rows. most_rows, seconds: where the answer is broken off."""
    duckdb = _duckdb()
    connection = duckdb.connect(":memory:", config=_LOCKED)
    try:
        _check(connection, query)
        shelf = Shelf(_runs(dir) if runs is None else stored_runs(runs, dir))
        known = wanted(_tree(connection, query), _COLUMNS, _named(parameters))
        tables = {name: _TableScan(name, shelf, known) for name in TABLES}
        for name, table in tables.items():
            connection.register(name, table)
        with contextlib.suppress(duckdb.Error):  # a build without time zones shows UTC anyway
            connection.execute("SET TimeZone = 'UTC'").fetchall()
        connection.execute("SET enable_external_access = false").fetchall()
        connection.execute("SET lock_configuration = true").fetchall()
        timer = threading.Timer(seconds, connection.interrupt) if seconds is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            relation = connection.sql(query, params=parameters)
            table = (relation if most_rows is None else relation.limit(most_rows + 1)).to_arrow_table()
        finally:
            if timer is not None:
                timer.cancel()
        cut = most_rows is not None and table.num_rows > most_rows
        return SqlResult(table.slice(0, most_rows) if cut else table, list(shelf.problems), cut)
    except duckdb.InterruptException:
        raise ValueError(f"the query took more than {seconds:g} seconds; ask for fewer runs or series") from None
    except duckdb.Error as error:
        for table in locals().get("tables", {}).values():
            if table.failed is not None:
                raise table.failed from None
        raise ValueError(f"the query cannot be answered: {_sentence(error)}") from None
    finally:
        connection.close()


def _duckdb() -> Any:
    try:
        duckdb: Any = import_module("duckdb")
    except ImportError:
        raise ImportError("SQL needs DuckDB: run pip install 'barograph[sql]'.") from None
    # DuckDB 1 holds Python's lock while it waits for rows that come from Python, and scans such rows only once
    if int(duckdb.__version__.split(".")[0]) < 2:
        raise ImportError(f"SQL needs DuckDB 2 or newer, not {duckdb.__version__}: run pip install 'barograph[sql]'.")
    return duckdb


def _runs(dir: str | os.PathLike[str] | None) -> list[StoredRun]:
    root = runs_folder(dir)
    if not root.is_dir():
        raise ValueError(f"there is no folder of runs {root}; name one with --dir")
    return catalog.runs(root)


def _check(connection: Any, query: str) -> None:
    """Raises ValueError unless the query is one SELECT."""
    kinds = [str(item.type).rsplit(".", 1)[-1] for item in connection.extract_statements(query)]
    if not kinds:
        raise ValueError("the query is empty; try: select run, status, loss from runs")
    if kinds == ["MULTI"]:
        raise ValueError("PIVOT needs the values it makes columns of: pivot points on name in ('train/loss') using …")
    if any(kind != "SELECT" for kind in kinds):
        word = next(kind for kind in kinds if kind != "SELECT").replace("_", " ")
        raise ValueError(f"{word} is refused: runs are only read, and a query is one SELECT")
    if len(kinds) > 1:
        raise ValueError(f"these are {len(kinds)} queries; ask one at a time")


def _tree(connection: Any, query: str) -> dict[str, Any] | None:
    """The query's syntax tree; None where this DuckDB can't give it."""
    try:
        rows = connection.execute("select json_serialize_sql(?)", [query]).fetchall()
        tree = json.loads(rows[0][0])
    except Exception:  # without it a query reads everything
        return None
    return tree if isinstance(tree, dict) else None


def _named(parameters: Sequence[Any] | Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    return {str(number): value for number, value in enumerate(parameters or (), 1)}


def _sentence(error: Exception) -> str:
    """DuckDB's message on one line, without the drawing under it."""
    told = str(error).split("\n\n")[0].split("\nLINE ")[0]
    words = " ".join(told.split())
    return words.split(": ", 1)[-1] if words.split(": ", 1)[0].endswith("Error") else words


class _TableScan:
    """A table that is read when DuckDB scans it, from the start each time."""

    def __init__(self, name: str, shelf: Shelf, scope: QueryScope = EVERYTHING):
        self._name = name
        self._shelf = shelf
        self._known = scope
        self.failed: Exception | None = None

    def __arrow_c_schema__(self) -> Any:
        return schema(self._name).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow

        return pyarrow.RecordBatchReader.from_batches(schema(self._name), self._batches()).__arrow_c_stream__(
            requested_schema
        )

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from PROVIDERS[self._name](self._shelf, self._known.condition(self._name), self._known.columns)
        except Exception as error:  # DuckDB would tell it as an error of its own
            self.failed = error
            raise
