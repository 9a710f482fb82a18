"""Trackio: a run's numbers as rows of a Trackio run.

In:   records from a `LoggingBackend`'s queue, or from a mirror; names and identity from a configuration.
Out:  rows in Trackio's own store on this machine: `PROJECT.db` below `TRACKIO_DIR`.

The rows are given to the store in batches, with the time at which each was logged; `trackio.log` would stamp them
with the time at which its thread came to them, and `trackio.init` would end a run that the training has open.
A row has an identity of its own, so sending it twice leaves one.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sqlite3
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from barograph.core.values import flatten, text
from barograph.trackers.backend import TrackerBackend
from barograph.trackers.options import tags, word

_MOST_ROWS = 1000  # in one call of the store
_MOST_PENDING = 20_000  # rows that wait for a disk with room
_AWAY_SECONDS = 5.0  # between two tries while a row comes after the other
_RESERVED = frozenset({"project", "run", "timestamp", "step", "time", "metrics"})  # trackio/utils.py
_LEVELS = {"info": "info", "warning": "warn", "critical": "error"}


class TrackioBackend(TrackerBackend):
    """Writes into Trackio's store; the run is started by the first `log`, on rank 0.

    config: anything with `trackio_project` (or `project`), `trackio_name` (or `name`), `trackio_run_id`, `tags` and
    `notes`. An id continues that run; where there is none, the new run's is written into `config.trackio_run_id`.
    run_config: the training's configuration.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name, package, install = "Trackio", "trackio", "pip install trackio"

    def __init__(
        self, config: Any, *, run_config: Mapping[str, Any] | None = None, log_file: str | os.PathLike[str] = ""
    ):
        super().__init__(config, run_config=run_config, log_file=log_file)
        self.project = self.title = ""
        self._store: Any = None
        self._takes: set[str] = set()  # what the installed version's `bulk_log` takes
        self._rows: list[tuple[dict[str, Any], int, str, str]] = []  # values, step, time, identity; waiting
        self._away_until = 0.0
        self._options: dict[str, Any] = {}
        self._options_new = False

    # -- the run ------------------------------------------------------------------------------------

    def _open(self) -> None:
        trackio: Any = import_module("trackio")

        if not hasattr(trackio, "init"):  # a folder of that name in the working directory
            raise ImportError("there is only a folder of that name", name="trackio")
        storage: Any = import_module("trackio.sqlite_storage").SQLiteStorage

        self._library, self._store = trackio, storage
        self._takes = set(inspect.signature(storage.bulk_log).parameters)
        self.project = word(self._config, "trackio_project", "project") or "barograph"
        if hasattr(storage, "validate_project_name"):
            storage.validate_project_name(self.project)
        known = word(self._config, "trackio_run_id") or text(self._before.get("run_id") or "")
        self.title = word(self._config, "trackio_name", "name") or known or uuid.uuid4().hex[:8]
        held = self._held_name(known) if known else None
        if held is not None:
            self.title, self.run_id = held, known
        else:
            self.begins_anew = bool(self._before)
            self._start_run(known)
        with contextlib.suppress(Exception):  # a frozen configuration
            self._config.trackio_run_id = self.run_id
        if word(self._config, "trackio_space"):
            space = word(self._config, "trackio_space")
            self.sender.odd(
                f"the rows are kept here; `trackio sync --project {self.project} --space-id {space}` sends them"
            )
        if self._run_config:
            self._write_config(flatten(self._run_config, self.sender.odd))

    def _start_run(self, known: str) -> None:
        if "run_id" in self._takes:
            self.run_id = known or uuid.uuid4().hex
        else:  # up to 0.23 a run is its name
            title, number, taken = known or self.title, 1, set(self._store.get_runs(self.project))
            while title in taken:
                number += 1
                title = f"{known or self.title}-{number}"
            self.title = self.run_id = title
        about = {"_Username": None, "_Created": datetime.now(UTC).isoformat(), "_Group": None}
        for name, value in (("tags", ", ".join(tags(self._config))), ("notes", word(self._config, "notes"))):
            if value:
                about[name] = value
        self._options, self._options_new = about | self._options, True

    def _query(self, command: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the project's database; none if there is no such table yet."""
        path = self._store.get_project_db_path(self.project)
        if not os.path.exists(path):
            return []
        connection = sqlite3.connect(path, timeout=30)
        try:
            return connection.execute(command, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                return []
            raise
        finally:
            connection.close()

    def _held_name(self, run_id: str) -> str | None:
        """The name of a run that is in the database; its configuration is taken up."""
        column = "run_id" if "run_id" in self._takes else "run_name"
        found = self._query(f"SELECT run_name FROM metrics WHERE {column} = ? LIMIT 1", run_id)
        if not found:
            return None
        for (config,) in self._query(f"SELECT config FROM configs WHERE {column} = ?", run_id):
            with contextlib.suppress(ValueError):
                before = json.loads(config)
                self._options = before if isinstance(before, dict) else {}
        return text(found[0][0])

    def _held(self, name: str) -> list[float] | None:
        column = "run_id" if "run_id" in self._takes else "run_name"
        result = []
        for (cell,) in self._query(f"SELECT metrics FROM metrics WHERE {column} = ? ORDER BY id", self.run_id):
            value = json.loads(cell).get(name)
            if isinstance(value, (int, float)):
                result.append(float(value))
        return result

    # -- records ------------------------------------------------------------------------------------

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        values = {_safe(name): _small(value) for name, value in metrics.items()}
        moment = datetime.fromtimestamp(seconds, UTC).isoformat()
        self._rows.append((values, step, moment, self._identity(metrics, step)))
        if len(self._rows) >= _MOST_ROWS and time.monotonic() > self._away_until:
            try:
                self._flush()
            except Exception:
                if len(self._rows) > _MOST_PENDING:
                    self._rows.pop()
                    raise
                self._away_until = time.monotonic() + _AWAY_SECONDS  # the next flush of the thread tells it

    def _identity(self, metrics: Mapping[str, Any], step: int) -> str:
        """The same for the same place in a mirror's source, so that the store takes it once."""
        if not self.mark:
            return uuid.uuid4().hex
        place = [self.run_id, step, sorted(self.mark.items()), sorted(metrics)]
        return uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(place, default=text)).hex

    def _write_histogram(self, name: str, edges: list[float], counts: list[float], step: int, seconds: float) -> None:
        histogram = self._library.Histogram(np_histogram=(counts, edges))
        self._write({name: histogram._to_dict()} | self.mark, step, seconds)

    def _write_text(self, name: str, content: str, step: int, seconds: float) -> None:
        self._write({name: {"_type": "trackio.markdown", "_value": content}} | self.mark, step, seconds)

    def _write_parts(self, name: str, title: str, parts: dict[str, float], step: int, seconds: float) -> None:
        lines = [f"**{title}**", "", "| part | value |", "|---|---|"]
        lines += [f"| {part} | {value:.6g} |" for part, value in parts.items()]
        self._write_text(name, "\n".join(lines), step, seconds)

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        """An alert, where the version has them; without sending it to webhooks, which is for `trackio.alert`."""
        if not hasattr(self._store, "bulk_alert"):
            self._write_text("notes", f"**{title}**\n\n{content}", step, seconds)
            return
        identity = {"alert_ids": [self._identity({title: content}, step)], "run_id": self.run_id}
        known = inspect.signature(self._store.bulk_alert).parameters
        self._store.bulk_alert(
            project=self.project,
            run=self.title,
            titles=[title],
            texts=[content],
            levels=[_LEVELS.get(level, "error")],
            steps=[step],
            timestamps=[datetime.fromtimestamp(seconds, UTC).isoformat()],
            **{name: value for name, value in identity.items() if name in known},
        )

    def _write_config(self, config: dict[str, Any]) -> None:
        for name, value in config.items():
            self._options[name.lstrip("_") or "unnamed"] = _small(value)  # an underscore in front is Trackio's own
        self._options_new = True

    def _flush(self) -> None:
        """Give the store what waits. What it did not take waits on."""
        while self._rows:
            count = min(len(self._rows), _MOST_ROWS)
            values, steps, moments, identities = zip(*self._rows[:count], strict=True)
            known = {
                "timestamps": list(moments),
                "log_ids": list(identities),
                "run_id": self.run_id,
                "config": self._options if self._options_new else None,
            }
            self._store.bulk_log(
                project=self.project,
                run=self.title,
                metrics_list=list(values),
                steps=list(steps),
                **{name: value for name, value in known.items() if name in self._takes},
            )
            self._options_new = False
            del self._rows[:count]

    def _close(self) -> None:
        if self._store is not None:
            try:
                self._flush()
                if self._options_new:
                    self._write_last_options()
            finally:
                self.sender.not_sent += len(self._rows)

    def _write_last_options(self) -> None:
        """A configuration that came after the last row: the store takes one only with a row."""
        column = "run_id" if "run_id" in self._takes else "run_name"
        path = self._store.get_project_db_path(self.project)
        if not self._query(f"SELECT 1 FROM configs WHERE {column} = ?", self.run_id):
            return
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection, connection:
            command = f"UPDATE configs SET config = ? WHERE {column} = ?"
            connection.execute(command, (json.dumps(self._options, default=text), self.run_id))


def _safe(name: str) -> str:
    """Trackio puts two underscores before names that it uses itself; the importer takes them away again."""
    return f"__{name}" if name in _RESERVED or name.startswith("__") or not name else name


def _small(value: Any) -> Any:
    """Integers beyond 64 bits as floats: Trackio's JSON has no others."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return value
