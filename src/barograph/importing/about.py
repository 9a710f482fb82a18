"""The manifest of an imported run: what it was, where it came from, and what was not understood.

In:   a found run, what its source said on the way, names, times, counts.
Out:  `run_manifest.json`, with a section `source`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from barograph.core import manifest
from barograph.core.aliases import Names, conversions
from barograph.core.liveness import IMPORTED
from barograph.core.record import format_time
from barograph.importing.source import FoundRun, ImportSource

_MOST_NAMES = 10_000  # originals told
_FINAL_SERIES = 200


class _Import(Protocol):
    """What a collector is to this module."""

    source: ImportSource
    found: FoundRun
    project: str
    name: str
    here: bool

    @property
    def tally(self) -> Any: ...


@dataclass
class Said:
    """What the source said of its run on the way: options, the command line, the fields of its end."""

    options: dict[str, Any] = field(default_factory=dict)
    command: list[str] | None = None
    end: dict[str, Any] = field(default_factory=dict)


def begin(folder: Path, one: _Import) -> None:
    """What is known before anything is read. Raises OSError."""
    found = one.found
    manifest.update(
        folder,
        synced=not one.here,
        id=folder.name,
        name=one.name,
        project=one.project,
        tags=list(found.tags),
        notes=found.notes,
        status="importing",
        created=format_time(int(found.created * 1e6)) if found.created else _written_at(found.path),
        config=dict(found.config),
        source={"kind": one.source.kind, "path": os.path.realpath(found.path), "key": found.key},
    )


def complete(
    folder: Path,
    one: _Import,
    said: Said,
    *,
    status: str,
    first_time: int,
    last_time: int,
    names: Names,
    x: dict[str, str],
    mark: dict[str, Any] | None,
    identity: dict[str, Any],
    last: dict[str, float],
    highest: int,
) -> None:
    """All that is known now. Times in µs since 1970, 0: not known. last, highest: values, and step. Raises OSError."""
    found = one.found
    told = str(said.end.get("status") or found.status or "")
    word = status or (told if told not in ("", "running") else IMPORTED)
    created = int(found.created * 1e6) or first_time
    facts: dict[str, Any] = {
        "name": one.name,
        "tags": list(found.tags),
        "notes": found.notes,
        "config": dict(found.config) | {n: v for n, v in said.options.items() if not _holds(found.config, n)},
        "status": word,
        "created": format_time(created) if created else _written_at(found.path),
        "finished": format_time(last_time) if last_time and word != "running" else None,
    }
    if word == "running":  # by a process that is not known: then liveness goes by what is written
        facts |= {"host": "", "pid": None}
    if said.command is not None:
        facts["command"] = said.command
    seconds = said.end.get("wall_seconds")
    if isinstance(seconds, (int, float)):
        facts["wall_seconds"] = seconds
    elif last_time > first_time > 0:
        facts["wall_seconds"] = (last_time - min(created, first_time)) / 1e6
    owners, tally = names.owners, one.tally
    facts["source"] = {
        "kind": one.source.kind,
        "path": os.path.realpath(found.path),
        "key": found.key,
        "mark": mark,
        "identity": identity,
        "names": dict(list(owners.items())[:_MOST_NAMES]),
        "conversions": conversions(owners, owners, names.factors),
        "x": x,
        "unread": {"count": tally.unread, "examples": tally.examples},
    } | ({"failure": tally.failure} if tally.failure else {})
    if word != "running":
        chosen = [name for name in last if name.startswith(("train/", "eval/"))] or list(last)
        final: dict[str, Any] = {name: last[name] for name in chosen[:_FINAL_SERIES]}
        facts["final_metrics"] = final | {"step": highest} if final else final
    manifest.update(folder, synced=not one.here, **facts)


def _holds(config: Any, name: str) -> bool:
    """Whether a nested configuration has the option that a log calls `section/name`."""
    for part in name.split("/"):
        if not isinstance(config, Mapping) or part not in config:
            return False
        config = config[part]
    return True


def _written_at(path: Path) -> str | None:
    """When the source was last written, where it says no time itself."""
    with contextlib.suppress(OSError):
        return format_time(os.stat(path).st_mtime_ns // 1000)
    return None
