"""Saved views: how the table and charts of a project are shown, in a file for all who have the folder.

In:   a project's folder; changes, each of one view or one setting.
Out:  `barograph-views.json` in it, replaced whole. Two who write at once both have their change kept.

A view is the part of an address behind the question mark, as parameters. Settings are such parameters too: what holds
where an address says nothing.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from barograph.core import manifest
from barograph.views.server.edits import project_folder
from barograph.views.server.places import is_inside
from barograph.views.server.table import RunTable

FILE = "barograph-views.json"
MOST_BYTES = 256 << 10
MOST_VIEWS = 200
LONGEST_NAME = 100  # characters
LONGEST_VALUE = 8_000  # of a parameter: a filter, columns, selected runs
MOST_PARAMETERS = 40
_WAIT_SECONDS = 20.0  # for others who write: each waits for the disk
_lock = threading.Lock()

Parameters = dict[str, str]


class SavedViewsJson(msgspec.Struct, kw_only=True):
    """What is saved: parameters of addresses, and those that hold where an address says nothing."""

    settings: Parameters = msgspec.field(default_factory=dict)
    views: dict[str, Parameters] = msgspec.field(default_factory=dict)


class ViewChangesJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is to be another than it is; null takes a view or a setting away."""

    settings: dict[str, str | None] = msgspec.field(default_factory=dict)
    views: dict[str, Parameters | None] = msgspec.field(default_factory=dict)


def folder_of(table: RunTable, project: str) -> Path:
    """The folder that holds the file: the project's, or for "" the served one. Raises KeyError, ValueError."""
    if project:
        return project_folder(table, project)
    if any(row.place.dir == table.places.root for row in table.rows()):
        raise ValueError("views belong to a folder of runs; serve that instead of one run")
    return table.places.root


def read(folder: Path, root: Path) -> SavedViewsJson:
    """What is saved there; nothing where no file is. Raises ValueError for a file that can't be read."""
    path = folder / FILE
    if not is_inside(path, root):
        raise ValueError(f"{FILE} is a link to a place outside of the served folder")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{FILE} is larger than {MOST_BYTES >> 10} kB")
        return msgspec.json.decode(path.read_bytes(), type=SavedViewsJson)
    except FileNotFoundError:
        return SavedViewsJson()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{FILE} can't be read: {error}") from None


def change(folder: Path, root: Path, body: bytes) -> SavedViewsJson:
    """Change some of it, and return all. Raises ValueError, OSError with a sentence."""
    try:
        changes = msgspec.json.decode(body, type=ViewChangesJson)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the changes can't be read: {error}") from None
    for name, view in changes.views.items():
        _check_name(name)
        _check(view or {})
    _check({name: value for name, value in changes.settings.items() if value is not None})
    with manifest.turn(folder, _lock, _WAIT_SECONDS, or_fail=True):
        held = read(folder, root)
        held.settings = _changed(held.settings, changes.settings)
        held.views = _changed(held.views, changes.views)
        if len(held.views) > MOST_VIEWS:
            raise ValueError(f"{len(held.views)} views are too many; {MOST_VIEWS} are kept")
        content: dict[str, Any] = {"version": 1, **msgspec.to_builtins(held)}
        if len(msgspec.json.encode(content)) > MOST_BYTES:
            raise ValueError(f"the views of a project may have {MOST_BYTES >> 10} kB")
        path = folder / FILE
        if os.path.islink(path):  # replaced itself, never what it leads to
            path.unlink()
        manifest.write_json(path, content)
    return held


def _changed(held: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**held, **changes}.items() if value is not None}


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > LONGEST_NAME or len(name.splitlines()) > 1:
        raise ValueError(f"the name of a view is one line of 1 to {LONGEST_NAME} characters")


def _check(parameters: Parameters) -> None:
    if len(parameters) > MOST_PARAMETERS or any(len(name) > LONGEST_NAME for name in parameters):
        raise ValueError(f"a view has up to {MOST_PARAMETERS} parameters")
    if any(len(value) > LONGEST_VALUE for value in parameters.values()):
        raise ValueError(f"a parameter of a view has up to {LONGEST_VALUE:,} characters")
