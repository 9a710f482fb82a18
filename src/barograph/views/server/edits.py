"""What the page changes: what people say of a run, the trash, a project's layout. Never what a training wrote.

In:   a run or project, and the request's JSON.
Out:  files beside the run's own, replaced whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from barograph.core import manifest
from barograph.core.record import mark_non_finite
from barograph.query import curation
from barograph.query import trash as keeping
from barograph.views.server.places import RunPlace, is_inside
from barograph.views.server.schema import AnswerJson
from barograph.views.server.table import RunTable

LAYOUT = "barograph-layout.json"
LAYOUT_BYTES = 256 << 10


class EditsJson(AnswerJson, kw_only=True):
    """What a person changes of a run."""

    name: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    notes: str | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


def parse(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises ValueError with a sentence."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"a JSON object is needed: {error}") from None


def edit(place: RunPlace, changes: dict[str, Any]) -> None:
    """Change name, tags, notes, pinned or archived. Raises ValueError and OSError with a sentence."""
    strange = set(changes) - set(curation.KEYS)
    if strange:
        raise ValueError(f"there is no {min(strange)[:60]!r} to edit; there are {', '.join(curation.KEYS)}")
    curation.edit(place.dir, **changes)


def trash(place: RunPlace, root: Path) -> str:
    """Move a run to the trash; the id to restore it by. Raises ValueError for a run that is written."""

    if place.dir == root:
        raise ValueError("the run that is served itself can't be deleted from its own page; serve its project's folder")
    return keeping.trash(place.dir, root)


def restore(root: Path, entry: str) -> Path:
    """Bring a run back. Raises KeyError, ValueError or OSError with a sentence."""

    if entry not in {item.id for item in keeping.trashed(root)}:
        raise KeyError(f"there is no {entry[:200]!r} in the trash")
    return Path(keeping.restore(root, entry))


def trashed(root: Path) -> list[dict[str, Any]]:
    """What lies in the trash, without the folders' own paths."""

    shown = ("id", "deleted", "project", "run", "name")
    return [{key: value for key, value in item.as_dict().items() if key in shown} for item in keeping.trashed(root)]


# -- layouts -----------------------------------------------------------------------------------------------


def project_folder(table: RunTable, project: str) -> Path:
    """The folder of a project's runs. Raises KeyError, ValueError with a sentence."""
    table.refresh()
    for row in reversed(table.rows()):
        if row.data["project"] == project:
            folder = row.place.project_dir
            if folder == row.place.dir:
                raise ValueError("a layout belongs to a project's folder; serve that instead of one run")
            return folder
    raise KeyError(f"there is no project {project[:200]!r} here")


def read_layout(folder: Path, root: Path) -> dict[str, Any]:
    """The saved layout, {} if there is none. Raises ValueError for a file that is none."""
    path = folder / LAYOUT
    if not is_inside(path, root):
        raise ValueError(f"{LAYOUT} is a link to a place outside of the served folder")
    try:
        if path.stat().st_size > LAYOUT_BYTES:
            raise ValueError(f"{LAYOUT} is larger than {LAYOUT_BYTES >> 10} kB")
        return parse(path.read_bytes())
    except FileNotFoundError:
        return {}


def write_layout(folder: Path, body: bytes) -> dict[str, Any]:
    """Save a layout. Raises ValueError, OSError with a sentence."""
    if len(body) > LAYOUT_BYTES:
        raise ValueError(f"a layout of {len(body):,} bytes is too large; {LAYOUT_BYTES >> 10} kB are kept")
    layout = parse(body)
    path = folder / LAYOUT
    if os.path.islink(path):  # replaced itself, never what it leads to
        path.unlink()
    manifest.write_json(path, mark_non_finite(layout))
    return layout
