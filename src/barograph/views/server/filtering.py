"""Runs by a condition, or by plain words.

In:   rows; what a person typed.
Out:  the rows that are meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from barograph.query.filters import Condition, FilterError, FilterFacts, meets, parse
from barograph.query.stored import StoredRun
from barograph.views.server.places import Places, served_run
from barograph.views.server.rows import RunRow

LONGEST = 2_000


def select(rows: Iterable[RunRow], text: str, places: Places) -> list[RunRow]:
    """The rows that meet `text`: a condition such as `config.lr > 1e-3 and status = finished`, else plain words.

    Words all have to stand somewhere in a run's name, project, tags, notes, status or configuration. Raises ValueError
    with a sentence.
    """
    if len(text) > LONGEST:
        raise ValueError(f"a filter of {len(text):,} characters is too long; {LONGEST:,} are allowed")
    if not text.strip():
        return list(rows)
    try:
        condition = parse(text)
    except FilterError:
        if re.search(r"[=<>~]", text):
            raise
        words = text.lower().split()
        return [row for row in rows if all(word in _text(row) for word in words)]
    return [row for row in rows if _meets(condition, row, places)]


def _text(row: RunRow) -> str:
    """Where words are looked for, kept until the row changes."""
    kept = row.derived
    if "text" not in kept:
        data = row.data
        settings = (f"{name}={value}" for name, value in data["config"].items())
        facts = (data["id"], data["name"], data["project"], data["status"], data["notes"], *data["tags"])
        kept["text"] = "\n".join((*facts, *settings)).lower()
    return str(kept["text"])


def _meets(condition: Condition, row: RunRow, places: Places) -> bool:
    """Whether a row meets a condition. Its facts are kept until it changes: the next condition needs no file."""
    kept: dict[str, Any] = {} if row.live else row.derived
    facts: tuple[FilterFacts, _RowRun] | None = kept.get("facts")
    if facts is None:
        run = _RowRun(row, places)
        facts = kept["facts"] = FilterFacts(cast(StoredRun, run)), run
    try:
        return meets(condition, facts[0])
    finally:
        facts[1].close()


class _RowRun:
    """A run as conditions see it: by what its row knows already, and by its files for the rest."""

    def __init__(self, row: RunRow, places: Places):
        data = row.data
        self.id, self.name, self.project = data["id"], data["name"], data["project"]
        self.status, self.tags = data["status"], data["tags"]
        self.dir = row.place.dir
        self._row, self._places = row, places
        self._opened: StoredRun | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        return self._row.recorded | self._row.edited

    @property
    def config(self) -> dict[str, Any]:
        config = self._row.recorded.get("config")
        return config if isinstance(config, dict) else dict(self._run.config)

    @property
    def _run(self) -> StoredRun:
        run = self._opened
        if run is None:
            run = self._opened = served_run(self._row.place, self._places.root)
        return run

    def close(self) -> None:
        """Let go of the run's columns, if they were read."""
        self._opened = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)
