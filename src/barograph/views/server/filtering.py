"""Runs by a condition, or by plain words.

In:   rows; what a person typed.
Out:  the rows that are meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, cast

from barograph.query.filters import FilterError, matches, parse
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
    return [row for row in rows if matches(condition, cast(StoredRun, _RowRun(row, places)))]


def _text(row: RunRow) -> str:
    data = row.data
    settings = (f"{name}={value}" for name, value in data["config"].items())
    return "\n".join(
        (data["id"], data["name"], data["project"], data["status"], data["notes"], *data["tags"], *settings)
    ).lower()


class _RowRun:
    """A run as conditions see it: by what its row knows already, and by its files for the rest."""

    def __init__(self, row: RunRow, places: Places):
        data = row.data
        self.id, self.name, self.project = data["id"], data["name"], data["project"]
        self.status, self.tags = data["status"], data["tags"]
        self.dir = row.place.dir
        self._row, self._places = row, places

    @property
    def manifest(self) -> dict[str, Any]:
        return self._row.about

    @property
    def config(self) -> dict[str, Any]:
        config = self._row.about.get("config")
        return config if isinstance(config, dict) else dict(self._run.config)

    @cached_property
    def _run(self) -> StoredRun:
        return served_run(self._row.place, self._places.root)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)
