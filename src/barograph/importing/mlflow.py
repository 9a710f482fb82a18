"""MLflow's runs: the file store `mlruns/`, and the SQLite database `mlflow.db`.

In:   a folder of experiments, of one experiment or of one run; a database file. Live ones too.
Out:  runs with their parameters, tags and notes, and every point of every metric's history.

MLflow keeps times in milliseconds, and infinity in a database as the largest float; a NaN there is a zero with a
mark. Names that MLflow refuses are escaped by our own backend (`trackers/mlflow.py`) and come back unescaped.
What was deleted in MLflow is not imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.core.lazy import lazy
from barograph.importing import metricfiles
from barograph.importing.series import SeriesCourse
from barograph.importing.source import FoundRun, ImportedPoints, ImportMark, Item, Unread
from barograph.importing.sqlite import MAGIC, Row, has, open_database, rows_after, select, tables, word

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")

ESCAPED = "barograph.escaped"  # the tag that says that names in a run are escaped
_ESCAPE = re.compile(r"_x([0-9A-F]{0,6})_")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_LARGEST = sys.float_info.max  # MLflow's infinity: mlflow/store/tracking/sqlalchemy_store.py
_STATUS = {
    "1": "running", "2": "", "3": "finished", "4": "failed", "5": "failed",  # mlflow/protos/service.proto, RunStatus
    "RUNNING": "running", "SCHEDULED": "", "FINISHED": "finished", "FAILED": "failed", "KILLED": "failed",
}  # fmt: skip


class _RunFacts(NamedTuple):
    """What a store knows of a run besides its metrics."""

    name: str
    project: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    created: float
    status: str


class MLflow:
    """MLflow's file store and its database."""

    kind = "mlflow"
    about = "MLflow: mlruns folders and mlflow.db"

    def find(self, path: Path, head: bytes) -> Iterable[FoundRun]:
        """Runs in a folder of the file store, or in a database that has MLflow's tables."""
        try:
            if head.startswith(MAGIC):
                return _runs_in_database(path)
            return [] if head or not path.is_dir() else _runs_in_folder(path)
        except (OSError, sqlite3.Error):
            return []

    def read(self, run: FoundRun, since: ImportMark | None = None) -> Iterator[Item]:
        """Points in the order of the database, or by time from the file store."""
        state = since.state if since is not None else {}
        if run.path.is_dir():
            escaped = (run.path / "tags" / ESCAPED).exists()
            items = metricfiles.read(run.path / "metrics", state, run.status not in ("running", ""))
            for item in items:
                yield _unescaped(item) if escaped else item
        else:
            yield from _database_items(run, state)


SOURCE = MLflow()


def unescape(name: str) -> str:
    """A name as it was before `trackers/mlflow.py` escaped it."""
    return _ESCAPE.sub(lambda match: chr(min(int(match[1], 16), sys.maxunicode)) if match[1] else "", name)


def _unescaped(item: Item) -> Item:
    return item._replace(names=tuple(map(unescape, item.names))) if isinstance(item, ImportedPoints) else item


def _found(path: Path, key: str, run: _RunFacts) -> FoundRun:
    escaped = ESCAPED in run.tags
    named = unescape if escaped else str
    tags = {named(name): value for name, value in run.tags.items() if not name.startswith("mlflow.")}
    tags.pop(ESCAPED, None)
    return FoundRun(
        kind=SOURCE.kind,
        path=path,
        key=key,
        name=run.name or run.tags.get("mlflow.runName", "") or key.rpartition("/")[2][:8] or path.name[:8],
        project=run.project,
        config={named(name): _plain(value) for name, value in run.params.items()},
        tags=tuple(f"{name}={value}" if value else name for name, value in tags.items()),
        notes=run.tags.get("mlflow.note.content", ""),
        created=run.created,
        status=run.status,
    )


def _plain(value: str) -> Any:
    """A parameter's text as the number or flag that it was: MLflow keeps text alone."""
    if value in ("True", "False"):
        return value == "True"
    if len(value) > 40 or not _NUMBER.fullmatch(value):
        return value
    return float(value) if set(value) & set(".eE") else int(value)


def _seconds(milliseconds: Any) -> float:
    try:
        seconds = float(milliseconds) / 1000
        return seconds if 0.0 < seconds < 1e11 else 0.0
    except (TypeError, ValueError, OverflowError):
        return 0.0


# ---------------------------------------------------------------------------------------------
# The file store: experiment/run/{meta.yaml, params/, tags/, metrics/}


def _runs_in_folder(folder: Path) -> list[FoundRun]:
    meta = _meta(folder)
    if meta is not None and ("run_id" in meta or "run_uuid" in meta):
        experiment = _meta(folder.parent) or {}
        return _run_in_folder(folder, meta, "", str(experiment.get("name") or ""))
    if meta is not None:
        return _runs_of_experiment(folder, meta, folder) if "experiment_id" in meta and "name" in meta else []
    result = []
    for child in sorted(folder.iterdir()):
        if child.is_dir() and child.name not in (".trash", "models"):
            experiment = _meta(child) or {}
            if "experiment_id" in experiment and "name" in experiment:
                result += _runs_of_experiment(child, experiment, folder)
    return result


def _runs_of_experiment(folder: Path, experiment: Mapping[str, Any], root: Path) -> list[FoundRun]:
    result = []
    for child in sorted(folder.iterdir()):
        meta = _meta(child) if child.is_dir() else None
        if meta is not None and ("run_id" in meta or "run_uuid" in meta):
            result += _run_in_folder(child, meta, child.relative_to(root).as_posix(), str(experiment["name"]))
    return result


def _run_in_folder(folder: Path, meta: Mapping[str, Any], key: str, project: str) -> list[FoundRun]:
    if meta.get("lifecycle_stage") == "deleted":
        return []
    run = _RunFacts(
        name=str(meta.get("run_name") or meta.get("name") or ""),
        project=project,
        params=_texts(folder / "params"),
        tags=_texts(folder / "tags"),
        created=_seconds(meta.get("start_time")),
        status=_STATUS.get(str(meta.get("status")), ""),
    )
    return [_found(folder, key, run)]


def _meta(folder: Path) -> dict[str, Any] | None:
    """The flat mapping in `meta.yaml`; of a torn one, the lines that are whole; None if there is none."""
    try:
        raw = (folder / "meta.yaml").read_bytes()[:65536].decode("utf-8", "replace")
    except OSError:
        return None
    import yaml

    try:
        made = yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except Exception:  # besides YAMLError: impossible dates
        made = dict(line.partition(": ")[::2] for line in raw.splitlines() if ": " in line)
    return made if isinstance(made, dict) else None


def _texts(folder: Path) -> dict[str, str]:
    """A file a name, also in folders below: what params and tags look like."""
    result = {}
    try:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                with open(file, "rb") as stream:
                    result[file.relative_to(folder).as_posix()] = stream.read(100_000).decode("utf-8", "replace")
    except OSError:
        pass
    return result


# ---------------------------------------------------------------------------------------------
# The database


def _runs_in_database(path: Path) -> list[FoundRun]:
    with open_database(path) as connection:
        known = tables(connection)
        if not has(known, "runs", "run_uuid", "experiment_id") or not has(known, "metrics", "run_uuid", "key", "value"):
            return []
        if not has(known, "experiments", "experiment_id", "name"):
            return []
        projects = {
            number: word(name) for number, name in select(connection, "SELECT experiment_id, name FROM experiments")
        }
        params = _by_run(select(connection, "SELECT run_uuid, key, value FROM params"))
        tags = _by_run(select(connection, "SELECT run_uuid, key, value FROM tags"))
        wanted = ("run_uuid", "experiment_id", "name", "start_time", "status", "lifecycle_stage")
        columns = ", ".join(name if name in known["runs"] else f"NULL AS {name}" for name in wanted)
        result = []
        for run, experiment, name, start, status, stage in select(connection, f"SELECT {columns} FROM runs"):
            if word(stage) != "deleted" and run is not None:
                identity = word(run)
                about = _RunFacts(
                    name=word(name),
                    project=projects.get(experiment, ""),
                    params=params.get(identity, {}),
                    tags=tags.get(identity, {}),
                    created=_seconds(start),
                    status=_STATUS.get(word(status), ""),
                )
                result.append(_found(path, identity, about))
        return result


def _by_run(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = {}
    for run, name, value in rows:
        result.setdefault(word(run), {})[word(name)] = word(value)
    return result


def _database_items(run: FoundRun, state: Mapping[str, Any]) -> Iterator[Item]:
    after, course = int(state.get("row", 0)), SeriesCourse(state)
    try:
        with open_database(run.path) as connection:
            known = tables(connection)
            escaped = has(known, "tags", "run_uuid", "key") and bool(
                select(connection, "SELECT 1 FROM tags WHERE run_uuid = ? AND key = ?", (run.key, ESCAPED))
            )
            columns = ["key", "value", *(name for name in _OPTIONAL if name in known.get("metrics", ()))]
            chunks = rows_after(connection, run.path, "metrics", columns, ("run_uuid", run.key), after)
            for chunk in chunks:
                if isinstance(chunk, Unread):
                    yield chunk
                    continue
                for item in _points(run.path, columns, chunk, course):
                    yield _unescaped(item) if escaped else item
                after = chunk[-1][0]
                yield ImportMark({"row": after, **course.state()})
    except (OSError, sqlite3.Error) as error:
        yield Unread(run.path, after, "", f"the database can't be read: {error}")
    yield ImportMark({"row": after, **course.state()})


_OPTIONAL = ("timestamp", "step", "is_nan")  # the first versions had neither step nor is_nan


def _points(path: Path, columns: list[str], chunk: list[Row], course: SeriesCourse) -> Iterator[Item]:
    try:
        arrays = _arrays(columns, chunk)
    except (TypeError, ValueError, OverflowError):  # a cell that holds what its column doesn't allow
        whole = []
        for row in chunk:
            try:
                _arrays(columns, [row])
                whole.append(row)
            except (TypeError, ValueError, OverflowError):
                yield Unread(path, row[0], word(row[1])[:80], "a row of the table metrics holds no number")
        if not whole:
            return
        arrays = _arrays(columns, whole)
    yield from course.blocks(*arrays)


def _arrays(columns: list[str], chunk: list[Row]) -> tuple[list[str], NDArray[Any], NDArray[Any], NDArray[Any]]:
    column = dict(zip(columns, list(zip(*chunk, strict=True))[1:], strict=True))
    if not all(type(value) in (float, int) for value in column["value"]):
        raise TypeError("a value that is not a number")
    texts = {key: word(key) for key in set(column["key"])}
    values = np.array(column["value"], np.float64)
    values[values == _LARGEST] = np.inf
    values[values == -_LARGEST] = -np.inf
    if "is_nan" in column:
        values[np.array(column["is_nan"], np.int64) != 0] = np.nan
    zeros = np.zeros(len(chunk), np.int64)
    times = np.array(column["timestamp"], np.int64) if "timestamp" in column else zeros
    steps = np.array(column["step"], np.int64) if "step" in column else zeros
    return [texts[key] for key in column["key"]], steps, metricfiles.microseconds(times), values
