"""MLflow: a run's numbers as metrics of an MLflow run.

In:   records from a `LoggingBackend`'s queue, or from a mirror; names and identity from a configuration.
Out:  an MLflow run, started by the first record: on a server, in a database or in a folder.

MLflow takes a metric at a time; here they go in batches of up to a thousand. Times are kept in milliseconds.
A name that MLflow refuses is escaped: `_x`, the character's number in hexadecimal, `_`. The run has the tag
`barograph.escaped`, and the importer (`importing/mlflow.py`) undoes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from barograph.core.values import flatten, text
from barograph.trackers.backend import TrackerBackend
from barograph.trackers.options import quiet, real, tags, word

# mlflow/utils/validation.py
_MOST_METRICS = 1000
_MOST_PARAMS = 100  # and tags
_MOST_NAME = 250
_MOST_PARAM = 6000  # characters of a value; servers before 2.8 allow 500
_MOST_TAG = 5000
_MOST_PENDING = 100_000  # metrics that wait for a server that is away
_NOTE = "mlflow.note.content"
_LOGGERS = ("mlflow.store.db.utils", "mlflow.tracking.client", "alembic.runtime.migration")
_AWAY_SECONDS = 5.0  # between two tries while a row comes after the other
ESCAPED = "barograph.escaped"
# a colon is allowed on some systems alone; an underscore that looks like the beginning of an escape is one too
_REFUSED = re.compile(r"[^\w/.\- ]|_(?=x[0-9A-F]{0,6}(?:_|[^\w/.\- ]))")


class MLflowBackend(TrackerBackend):
    """Sends to MLflow; the run is started by the first `log`, on rank 0.

    config: anything with `mlflow_tracking_uri` (a folder, a database or a server; what MLflow itself is set to if
    empty), `mlflow_experiment` (or `project`), `mlflow_name` (or `name`), `mlflow_run_id`, `tags` and `notes`. An
    id continues that run; where there is none, the new run's is written into `config.mlflow_run_id`.
    run_config: the training's configuration, kept as parameters.
    log_file: where the same records are kept, for the sentences that say what was not sent.
    """

    name, package, install = "MLflow", "mlflow", "pip install mlflow"
    stall_seconds = 30.0  # importing MLflow and making its first database takes 5 to 10 s of one core
    close_seconds = 45.0

    def __init__(
        self, config: Any, *, run_config: Mapping[str, Any] | None = None, log_file: str | os.PathLike[str] = ""
    ):
        super().__init__(config, run_config=run_config, log_file=log_file)
        self.client: Any = None
        self._metrics: list[Any] = []  # waiting
        self._away_until = 0.0
        self._tags: dict[str, str] = {}
        self._sent_tags: dict[str, str] = {}

    # -- the run ------------------------------------------------------------------------------------

    def _open(self) -> None:
        with quiet(*_LOGGERS):
            mlflow: Any = import_module("mlflow")

            if not hasattr(mlflow, "MlflowClient"):  # a folder of that name in the working directory
                raise ImportError("there is only a folder of that name", name="mlflow")
            self._entities = mlflow.entities
            self.client = mlflow.MlflowClient(tracking_uri=_place(word(self._config, "mlflow_tracking_uri")))
            known = word(self._config, "mlflow_run_id") or text(self._before.get("run_id") or "")
            self.run_id = known if known and self._continue(known) else self._create()
        with contextlib.suppress(Exception):  # a frozen configuration
            self._config.mlflow_run_id = self.run_id
        if self._run_config:
            self._write_config(flatten(self._run_config, self.sender.odd))

    def _continue(self, run_id: str) -> bool:
        """Go on with a run; false if a mirror's earlier one is gone."""
        try:
            self.client.update_run(run_id, status="RUNNING")
            self.client.set_tag(run_id, ESCAPED, "1")
            return True
        except Exception as error:
            if not self._before or getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
                raise
            self.begins_anew = True
            return False

    def _create(self) -> str:
        """Start a run in the experiment, which is made if it is not there."""
        title = word(self._config, "mlflow_experiment", "project") or "Default"
        experiment = self.client.get_experiment_by_name(title)
        identity = experiment.experiment_id if experiment else self.client.create_experiment(title)
        made = {ESCAPED: "1"}
        for tag in tags(self._config):
            name, _, value = tag.partition("=")
            made[escape(name)] = value[:_MOST_TAG]
        if notes := word(self._config, "notes"):
            made[_NOTE] = notes[:_MOST_TAG]
        run = self.client.create_run(identity, tags=made, run_name=word(self._config, "mlflow_name", "name") or None)
        return str(run.info.run_id)

    def _held(self, name: str) -> list[float] | None:
        return [float(item.value) for item in self.client.get_metric_history(self.run_id, escape(name))]

    # -- records ------------------------------------------------------------------------------------

    def _write(self, metrics: dict[str, Any], step: int, seconds: float) -> None:
        moment, made = round(seconds * 1000), []
        for name, value in metrics.items():
            if isinstance(value, str):  # MLflow has no text in a series: the last one is shown
                self._tags[escape(name)] = value[:_MOST_TAG]
            elif value is not None:
                made.append(self._entities.Metric(escape(name), real(value), moment, step))
        if len(self._metrics) + len(made) > _MOST_METRICS and time.monotonic() > self._away_until:
            try:  # before the row is added: it stays in one batch, if it can
                self._flush()
            except Exception:
                if len(self._metrics) + len(made) > _MOST_PENDING:
                    raise
                self._away_until = time.monotonic() + _AWAY_SECONDS  # the next flush of the thread tells it
        self._metrics += made

    def _write_config(self, config: dict[str, Any]) -> None:
        params = [self._entities.Param(escape(name), text(value)[:_MOST_PARAM]) for name, value in config.items()]
        for begin in range(0, len(params), _MOST_PARAMS):
            self._send("params", params[begin : begin + _MOST_PARAMS])

    def _write_text(self, name: str, content: str, step: int, seconds: float) -> None:
        with quiet(*_LOGGERS):
            self.client.log_text(self.run_id, content, f"{escape(name)}/step-{step:09d}.txt")

    def _write_note(self, title: str, content: str, level: str, step: int, seconds: float) -> None:
        """Notes gather in the run's description, which MLflow shows as Markdown; the newest stand last."""
        before = text(self.client.get_run(self.run_id).data.tags.get(_NOTE, ""))
        note = f"**{title}** ({level}, step {step}): {content}"
        if note not in before:
            self.client.set_tag(self.run_id, _NOTE, f"{before}\n\n{note}".strip()[-_MOST_TAG:])

    def _write_parts(self, name: str, title: str, parts: dict[str, float], step: int, seconds: float) -> None:
        with quiet(*_LOGGERS):
            self.client.log_dict(self.run_id, {"title": title, "step": step, "parts": parts}, f"{escape(name)}.json")

    # -- sending ------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send what waits. What a server that is away did not take waits on."""
        while self._metrics:
            count = min(len(self._metrics), _MOST_METRICS)
            self._send("metrics", self._metrics[:count])
            del self._metrics[:count]
        changed = {name: value for name, value in self._tags.items() if self._sent_tags.get(name) != value}
        items = [self._entities.RunTag(name, value) for name, value in changed.items()]
        for begin in range(0, len(items), _MOST_PARAMS):
            self._send("tags", items[begin : begin + _MOST_PARAMS])
        self._sent_tags |= changed

    def _send(self, kind: str, items: list[Any]) -> None:
        """One call; where MLflow refuses it, one call each, so that only what it refuses is left out."""
        try:
            self.client.log_batch(self.run_id, **{kind: items})
            return
        except Exception as error:
            if not _is_refusal(error):
                raise
        for item in items:
            self._send_one(kind, item)

    def _send_one(self, kind: str, item: Any) -> None:
        try:
            self.client.log_batch(self.run_id, **{kind: [item]})
        except Exception as error:
            if not _is_refusal(error):
                raise
            if kind == "params":
                self.sender.odd(
                    f"the option {item.key[:60]!r} was refused, so the run keeps what it has: {_brief(error)}"
                )
            else:
                self.sender.not_sent += 1
                self.sender.odd(f"{item.key[:60]!r} was refused and left out: {_brief(error)}")

    def _close(self) -> None:
        if self.client is None or not self.run_id:
            return
        try:
            self._flush()
        finally:
            self.sender.not_sent += len(self._metrics)
            code = self.exit_code
            failed = code if code is not None else getattr(sys, "last_value", None) is not None
            with _silent():
                self.client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED", round(time.time() * 1000))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """MLflow prints two addresses when a run at a server ends; this is the variable that it has against it."""
    variable = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
    before = os.environ.get(variable)
    os.environ[variable] = "true"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before


def escape(name: str) -> str:
    """A name that MLflow takes: letters, digits, `_`, `-`, `.`, blanks, and `/` between parts that are not empty."""
    result = _REFUSED.sub(lambda match: f"_x{ord(match[0]):02X}_", name)
    result = "/".join(_part(part) for part in result.split("/"))
    if len(result) <= _MOST_NAME:
        return result
    return f"{result[: _MOST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _part(part: str) -> str:
    """A part that a path would lose, nothing or `.`, or that MLflow takes for the way up: `..` and what follows."""
    if not part:
        return "_x_"
    return f"_x2E_{part[1:]}" if part == "." or part.startswith("..") else part


def _place(uri: str) -> str | None:
    """Where MLflow keeps it: an address as it is, a folder as the database in it."""
    if not uri or "://" in uri or uri.startswith(("databricks", "file:", "sqlite:")):
        return uri or None
    folder = Path(uri).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}"


def _is_refusal(error: Exception) -> bool:
    """Whether MLflow answered no, rather than not at all."""
    return getattr(error, "error_code", "") in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS")


def _brief(error: Exception) -> str:
    return " ".join(text(error).split())[:160]
