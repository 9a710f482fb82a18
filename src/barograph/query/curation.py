"""What people say of a run after the fact: its name, tags, notes, whether it is pinned or archived.

In:   a run's folder, changes.
Out:  `curation.json` beside the manifest, replaced whole; what it says, laid over the manifest.

The training process never reads or writes this file and keeps its own: a run in progress can be edited, and a resume
that writes the manifest anew changes nothing here. Reading never raises: what is damaged says nothing.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.core import manifest, segments
from barograph.core.record import format_time
from barograph.core.values import text
from barograph.query.folders import refuse_copy

FILE = "curation.json"
KEYS = ("name", "tags", "notes", "pinned", "archived")
LONGEST_NAME = 200  # characters
LONGEST_TAG = 100
MOST_TAGS = 100
LONGEST_NOTES = 100_000
_MOST_BYTES = 1 << 20  # of the file: far above what the limits allow
_WAIT_SECONDS = 20.0  # for other editors, each of whom waits for the disk
_lock = threading.Lock()


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What was edited, a subset of `KEYS`; {} where nothing was. Never raises."""
    try:
        with open(os.path.join(folder, FILE), "rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: content[key] for key in KEYS if key in content and _is_sound(key, content[key])}


def over(folder: str | os.PathLike[str], about: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest as people see it: with what was edited in place of what the writer said."""
    return {**about, **read(folder)}


def edit(folder: str | os.PathLike[str], **changes: Any) -> dict[str, Any]:
    """Change what a run is called and filed under; returns all that was edited, with `edited`, the UTC time.

    name (one line, 1 to 200 characters), tags (a list, each of one line), notes, pinned, archived. None takes an edit
    back, so that the manifest's own word counts again. Editors take turns, and the last one wins a key.
    Raises ValueError with a sentence for what does not fit, or a folder that is not a run's; OSError where it can't be
    written.
    """
    return amend(folder, lambda _: changes)


def amend(folder: str | os.PathLike[str], change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
    """`edit` by changes that depend on what holds now: `change` gets the manifest as people see it, in our turn."""
    place = Path(folder)
    if not segments.is_run(place):
        raise ValueError(f"{place} is not a run's folder, so there is nothing to edit")
    refuse_copy(place)
    inner = place / segments.FOLDER  # the writer never locks it, and so never waits for an editor
    with manifest.turn(inner if inner.is_dir() else place, _lock, _WAIT_SECONDS, or_fail=True):
        held = read(place)
        changes = change(manifest.read(place) | held)
        held.update({key: None if value is None else _checked(key, value) for key, value in changes.items()})
        kept: dict[str, Any] = {key: held[key] for key in KEYS if held.get(key) is not None}
        kept["edited"] = format_time(time.time_ns() // 1000)
        manifest.write_json(place / FILE, kept)
    return kept


def _checked(key: str, value: Any) -> Any:
    """The value as it is kept. Raises ValueError."""
    if key == "name":
        return _one_line(value, "name", LONGEST_NAME)
    if key == "tags":
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError('tags are a list of words, such as ["good", "sweep"]')
        tags = list(dict.fromkeys(_one_line(tag, "tag", LONGEST_TAG) for tag in value))
        if len(tags) > MOST_TAGS:
            raise ValueError(f"{len(tags)} tags are too many; a run can have {MOST_TAGS}")
        return tags
    if key == "notes":
        if not isinstance(value, str):
            raise ValueError("notes are text")
        if len(value) > LONGEST_NOTES:
            raise ValueError(f"notes of {len(value):,} characters are too long; {LONGEST_NOTES:,} are kept")
        return text(value)
    if key in ("pinned", "archived"):
        if not isinstance(value, bool):
            raise ValueError(f"{key} is true or false, not {value!r:.60}")
        return value
    raise ValueError(f"a run has no {key!r:.60} to edit; there are {', '.join(KEYS)}")


def _one_line(value: Any, what: str, longest: int) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a {what} is text, not {value!r:.60}")
    line = text(value).strip()
    if not line:
        raise ValueError(f"a {what} can't be empty")
    if len(line) > longest:
        raise ValueError(f"a {what} of {len(line):,} characters is too long; {longest} are kept")
    if len(line.splitlines()) > 1:
        raise ValueError(f"a {what} is one line")
    return line


def _is_sound(key: str, value: Any) -> bool:
    """Whether a value of the file is of its kind: a person may have edited it."""
    if key in ("name", "notes"):
        return isinstance(value, str)
    if key == "tags":
        return isinstance(value, list) and all(isinstance(tag, str) for tag in value)
    return isinstance(value, bool)
