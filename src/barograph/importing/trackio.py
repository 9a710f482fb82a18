"""Trackio's runs: its SQLite databases, and the Parquet files that it keeps in data sets and Spaces.

In:   `PROJECT.db` of any version, or `PROJECT.parquet` with `PROJECT_system.parquet` and `PROJECT_configs.parquet`.
Out:  runs with their configuration, every number, histogram and alert; system metrics at the step of their moment.

A row is one JSON object. Up to 0.23 a run was known by its name alone, and times were local ones without a zone.
Tables and media have no place in a record here: they are listed as not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from barograph.core.lazy import lazy
from barograph.importing.series import SeriesCourse
from barograph.importing.source import (
    Fact,
    FoundRun,
    ImportedDistribution,
    ImportedPoints,
    ImportMark,
    Item,
    Restart,
    Unread,
)
from barograph.importing.sqlite import MAGIC, has, open_database, quoted, rows_after, select, tables, word

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")

_CHUNK = 2000  # rows of JSON in memory at a time
_PARQUET = b"PAR1"
_SIDES = ("_system", "_configs", "_traces")
_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_STRUCTURE = frozenset({"id", "run_id", "timestamp", "run_name", "step", "log_id", "space_id"})
_decode = msgspec.json.Decoder().decode


class _Entry(NamedTuple):
    """One row: its number, when it was logged in microseconds since 1970, and what it holds."""

    row: int
    time: int
    step: int
    values: Mapping[str, Any]


class Trackio:
    """Trackio's databases and Parquet files."""

    kind = "trackio"
    about = "Trackio: PROJECT.db and PROJECT.parquet"

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        """The runs in a project's database, or in its Parquet file where there is no database beside it."""
        try:
            if head.startswith(MAGIC):
                return _runs_in_database(path)
            if head.startswith(_PARQUET) and path.suffix == ".parquet" and not path.with_suffix(".db").exists():
                return _runs_in_parquet(path)
        except (OSError, sqlite3.Error, ValueError):
            pass
        return []

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        """Rows in the order in which they were logged."""
        state = dict(since.state) if since is not None else {}
        try:
            if run.path.suffix == ".parquet":
                yield from _merged(run, state, _ParquetRows(run))
            else:
                with open_database(run.path) as connection:
                    yield from _merged(run, state, _DatabaseRows(run, connection))
        except (OSError, sqlite3.Error, ValueError) as error:
            yield Unread(run.path, int(state.get("metrics", 0)), "", f"the file can't be read: {error}")
            yield ImportMark(state)


SOURCE = Trackio()


def _found(path: Path, key: str, name: str, config: Mapping[str, Any], created: int) -> FoundRun:
    group = config.get("_Group")
    return FoundRun(
        kind=SOURCE.kind,
        path=path,
        key=key,
        name=name,
        project=path.stem,
        config={known: value for known, value in config.items() if not known.startswith("_")},
        tags=(str(group),) if group else (),
        created=(_moment(config.get("_Created")) or created) / 1e6,
    )


def _moment(value: Any) -> int:
    """Microseconds since 1970 of a time as Trackio writes it; without a zone it is this machine's. 0 if it is none."""
    try:
        return max(round(datetime.fromisoformat(word(value)).timestamp() * 1e6), 0)
    except (TypeError, ValueError, OverflowError, OSError):
        return 0


def _object(cell: Any) -> dict[str, Any] | None:
    """The JSON object in a cell, None if it holds none."""
    try:
        made = _decode(cell)
    except (TypeError, ValueError, RecursionError):
        try:
            made = json.loads(word(cell))  # the first versions wrote NaN as a bare word
        except (ValueError, RecursionError):
            return None
    return made if isinstance(made, dict) else None


# ---------------------------------------------------------------------------------------------
# Where rows come from


class _DatabaseRows:
    """The rows of one run in a database."""

    def __init__(self, found: FoundRun, connection: sqlite3.Connection):
        self._path, self._key, self._connection = found.path, found.key, connection
        self._tables = tables(connection)

    def entries(self, table: str, after: int) -> Iterator[list[_Entry] | Unread]:
        columns = ["timestamp", "metrics"] if table == "system_metrics" else ["timestamp", "step", "metrics"]
        owner = "run_id" if "run_id" in self._tables.get(table, ()) else "run_name"
        if not has(self._tables, table, owner, *columns):
            return
        chunks = rows_after(self._connection, self._path, table, columns, (owner, self._key), after, _CHUNK)
        for chunk in chunks:
            if isinstance(chunk, Unread):
                yield chunk
                continue
            made = []
            for row in chunk:
                values, step = _object(row[-1]), row[2] if len(row) == 4 else 0
                if values is None or not isinstance(step, int):
                    yield Unread(
                        self._path, row[0], word(row[-1])[:80], f"a row of the table {table} is not a JSON object"
                    )
                else:
                    made.append(_Entry(row[0], _moment(row[1]), step, values))
            yield made

    def alerts(self, after: int) -> Iterator[_Entry]:
        columns = ("timestamp", "step", "level", "title", "text")
        owner = "run_id" if "run_id" in self._tables.get("alerts", ()) else "run_name"
        if has(self._tables, "alerts", owner, *columns):
            command = f"SELECT rowid, {', '.join(columns)} FROM alerts WHERE {owner} = ? AND rowid > ? ORDER BY rowid"
            for row, time, step, level, title, text in select(self._connection, command, (self._key, after)):
                message = ": ".join(part for part in (word(title), word(text)) if part)
                fields = {"type": "alert", "level": word(level), "message": message}
                yield _Entry(row, _moment(time), step if isinstance(step, int) else 0, fields)


class _ParquetRows:
    """The rows of one run in Parquet files: a column a name."""

    def __init__(self, found: FoundRun):
        self._found = found

    def entries(self, table: str, after: int) -> Iterator[list[_Entry] | Unread]:
        path = self._found.path if table == "metrics" else _beside(self._found.path, "_system")
        number = 0
        for rows in _parquet(path):
            made = []
            for row in rows:
                number += 1
                if number > after and word(row.get("run_id") or row.get("run_name")) == self._found.key:
                    step, values = row.get("step"), {name: row[name] for name in row if name not in _STRUCTURE}
                    whole = step if isinstance(step, int) else 0
                    made.append(_Entry(number, _moment(row.get("timestamp")), whole, values))
            yield made

    def alerts(self, after: int) -> Iterator[_Entry]:
        return iter(())


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.stem}{ending}.parquet")


def _parquet(path: Path, columns: list[str] | None = None) -> Iterator[list[dict[str, Any]]]:
    if path.exists():
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_CHUNK, columns=columns):
                yield batch.to_pylist()


def _runs_in_parquet(path: Path) -> list[FoundRun]:
    import pyarrow.parquet

    if path.stem.endswith(_SIDES):
        return []
    names = set(pyarrow.parquet.read_schema(path).names)
    if not {"id", "timestamp", "run_name", "step"} <= names:
        return []
    wanted = [name for name in ("run_id", "run_name", "timestamp") if name in names]
    first: dict[str, tuple[str, int]] = {}
    for rows in _parquet(path, wanted):
        for row in rows:
            name = word(row.get("run_name"))
            key = word(row.get("run_id")) or name
            if key not in first:
                first[key] = (name, _moment(row.get("timestamp")))
    configs = {
        word(row.get("run_id") or row.get("run_name")): {
            name: value for name, value in row.items() if name not in _STRUCTURE | {"created_at"} and value is not None
        }
        for rows in _parquet(_beside(path, "_configs"))
        for row in rows
    }
    return [_found(path, key, name, configs.get(key, {}), time) for key, (name, time) in first.items()]


def _runs_in_database(path: Path) -> list[FoundRun]:
    with open_database(path) as connection:
        known = tables(connection)
        if not has(known, "metrics", "run_name", "metrics", "timestamp", "step"):
            return []
        runs: dict[str, tuple[str, int]] = {}
        for table in ("metrics", "system_metrics", "alerts"):
            owner = "run_id" if "run_id" in known.get(table, ()) else "run_name"
            if has(known, table, owner, "run_name", "timestamp"):
                command = f"SELECT {owner}, run_name, min(timestamp) FROM {table} GROUP BY {owner} ORDER BY min(rowid)"
                for key, name, time in select(connection, command):
                    runs.setdefault(word(key), (word(name), _moment(time)))
        configs: dict[str, Mapping[str, Any]] = {}
        owner = "run_id" if "run_id" in known.get("configs", ()) else "run_name"
        if has(known, "configs", owner, "config"):
            for key, cell in select(connection, f"SELECT {quoted(owner)}, config FROM configs"):
                configs[word(key)] = _object(cell) or {}
        return [_found(path, key, name, configs.get(key, {}), time) for key, (name, time) in runs.items()]


# ---------------------------------------------------------------------------------------------
# Rows become items


def _merged(run: FoundRun, state: dict[str, Any], rows: _DatabaseRows | _ParquetRows) -> Iterator[Item]:
    """Metrics, and before each rewind what was sampled until then, so that it goes into the same segment."""
    course, clock = SeriesCourse(state), _Clock(state)
    system = _Aside(rows.entries("system_metrics", int(state.get("system", 0))))
    alerts = _Aside(iter([list(rows.alerts(int(state.get("alerts", 0))))]))

    def sampled(until: int) -> Iterator[Item]:
        for entry in system.before(until):
            if isinstance(entry, Unread):
                yield entry
            else:
                state["system"] = entry.row
                yield from _sample(run.path, entry, clock.step(entry.time))
        for entry in alerts.before(until):
            if isinstance(entry, _Entry):
                state["alerts"] = entry.row
                yield Fact("info", entry.step, entry.time, dict(entry.values))

    for chunk in rows.entries("metrics", int(state.get("metrics", 0))):
        if isinstance(chunk, Unread):
            yield chunk
            continue
        if chunk:
            clock.add(chunk)
        for item in _items(run.path, chunk, course):
            if isinstance(item, Restart):
                yield from sampled(item.time)
            yield item
        if chunk:
            state |= {"metrics": chunk[-1].row, **course.state(), "clock": clock.state()}
            yield ImportMark(dict(state))
    yield from sampled(2**63 - 1)
    yield ImportMark(dict(state))


class _Clock:
    """Which step a moment belongs to: the last one logged before it."""

    def __init__(self, state: Mapping[str, Any]):
        time, step = state.get("clock") or (0, 0)
        self._times, self._steps = [np.array([time], np.int64)], [np.array([step], np.int64)]
        self._joined: tuple[Any, Any] | None = None

    def add(self, entries: list[_Entry]) -> None:
        self._times.append(np.array([entry.time for entry in entries], np.int64))
        self._steps.append(np.array([entry.step for entry in entries], np.int64))
        self._joined = None

    def step(self, time: int) -> int:
        if self._joined is None:
            self._times, self._steps = [np.concatenate(self._times)], [np.concatenate(self._steps)]
            self._joined = (self._times[0], self._steps[0])
        times, steps = self._joined
        return int(steps[max(int(np.searchsorted(times, time, "right")) - 1, 0)])

    def state(self) -> list[int]:
        return [int(self._times[-1][-1]), int(self._steps[-1][-1])]


class _Aside:
    """Entries of a second table, taken as far as a moment."""

    def __init__(self, chunks: Iterator[list[_Entry] | Unread]):
        self._entries = (entry for chunk in chunks for entry in (chunk if isinstance(chunk, list) else [chunk]))
        self._next: _Entry | Unread | None = None

    def before(self, until: int) -> Iterator[_Entry | Unread]:
        while True:
            entry = self._next or next(self._entries, None)
            self._next = None
            if isinstance(entry, _Entry) and entry.time >= until:
                self._next = entry
                return
            if entry is None:
                return
            yield entry


def _items(path: Path, entries: list[_Entry], course: SeriesCourse) -> Iterator[Item]:
    """A chunk's numbers as blocks, the rest as what it is."""
    names: list[str] = []
    steps: list[int] = []
    times: list[int] = []
    values: list[float] = []
    others: list[Item] = []
    for entry in entries:
        for name, value in _flat(entry.values, ""):
            if isinstance(value, (int, float)):
                names.append(name)
                steps.append(entry.step)
                times.append(entry.time)
                values.append(value)
            elif value is not None:
                others.append(_other(path, entry, name, value))
    yield from course.blocks(names, np.array(steps, np.int64), np.array(times, np.int64), np.array(values, np.float64))
    yield from others


def _sample(path: Path, entry: _Entry, step: int) -> Iterator[Item]:
    flat = {name: value for name, value in _flat(entry.values, "") if isinstance(value, (int, float))}
    if flat:
        moment = np.array([entry.time], np.int64)
        yield ImportedPoints(
            tuple(flat), np.array([step], np.int64), moment, np.array([list(flat.values())], np.float64)
        )


def _flat(values: Mapping[str, Any], prefix: str, depth: int = 8) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        # Trackio puts `__` before names that it uses itself; integers beyond 64 bits are none of its own
        name = prefix + (key[2:] if key.startswith("__") and not prefix else key)
        if isinstance(value, str):
            yield name, _NON_FINITE.get(value, value)
        elif isinstance(value, dict) and "_type" not in value and depth:
            yield from _flat(value, f"{name}/", depth - 1)
        elif isinstance(value, int) and abs(value) > 2**1000:
            yield name, float("inf") if value > 0 else float("-inf")
        else:
            yield name, value


def _other(path: Path, entry: _Entry, name: str, value: Any) -> Item:
    """What is not a number: text, a histogram, or something that has no place here."""
    if isinstance(value, str):
        return Fact("metrics", entry.step, entry.time, {name: value})
    kind = value.get("_type") if isinstance(value, dict) else type(value).__name__
    if kind == "trackio.histogram":
        try:
            edges, counts = (np.array(value[part], np.float64) for part in ("bins", "values"))
            if edges.ndim == counts.ndim == 1 and len(edges) == len(counts) + 1:
                return ImportedDistribution(name, entry.step, entry.time, edges, counts)
        except (KeyError, TypeError, ValueError):
            pass
        return Unread(path, entry.row, name, "a histogram without edges and counts")
    if kind == "trackio.markdown" and isinstance(value.get("_value"), str):
        return Fact("info", entry.step, entry.time, {"type": name, "message": value["_value"]})
    return Unread(path, entry.row, name, f"a {kind} is not a number; it was left out")
