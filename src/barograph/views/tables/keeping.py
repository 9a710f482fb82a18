"""The commands that keep runs in order: mark, delete, restore, projects, search.

In:   runs and words as typed, what to change.
Out:  lines of text, or JSON; an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.core.record import json_text
from barograph.core.text import escape
from barograph.query import catalog, curation, trash
from barograph.query.folders import own_folder, place_name
from barograph.query.projects import projects
from barograph.query.search import Hit, search
from barograph.query.stored import StoredRun

NOTHING_FOUND = 1
_MOST_HITS = 50


def run_mark(
    runs: Sequence[str],
    *,
    dir: str | None = None,
    tags: Sequence[str] = (),
    untags: Sequence[str] = (),
    note: str | None = None,
    clear_notes: bool = False,
    name: str | None = None,
    pin: bool | None = None,
    archive: bool | None = None,
    as_json: bool = False,
) -> int:
    """Edit what runs are called and filed under, or without a change say what they are; returns the exit code 0.

    tags, untags: words to add and to take away. note: a line to add to the notes. name: for one run alone.
    Raises KeyError, ValueError and OSError with one sentence; the runs before the one that failed keep the change.
    """
    found = [_folder_of(run, dir) for run in runs]
    if name is not None and len(found) > 1:
        raise ValueError("two runs can't have one name; name one run")

    def change(about: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if tags or untags:
            held = [str(tag) for tag in about.get("tags") or ()]
            result["tags"] = [tag for tag in (*held, *tags) if tag not in untags]
        if note is not None or clear_notes:
            before = "" if clear_notes else str(about.get("notes") or "").rstrip("\n")
            result["notes"] = "\n".join(filter(None, (before, note)))
        for key, value in (("name", name), ("pinned", pin), ("archived", archive)):
            if value is not None:
                result[key] = value
        return result

    asked = bool(tags or untags or clear_notes) or any(value is not None for value in (note, name, pin, archive))
    rows = []
    for run in found:
        if asked:
            curation.amend(run.dir, change)
        about = curation.over(run.dir, run.manifest)
        rows.append({
            "project": run.project,
            "id": run.id,
            "name": str(about.get("name") or run.id),
            "tags": [str(tag) for tag in about.get("tags") or ()],
            "notes": str(about.get("notes") or ""),
            "pinned": about.get("pinned") is True,
            "archived": about.get("archived") is True,
            "dir": str(run.dir),
        })  # fmt: skip
    if as_json:
        print(json_text(rows))
    else:
        for row in rows:
            print("\n".join(_marks(row)))
    return 0


def _folder_of(which: str, dir: str | None) -> StoredRun:
    if Path(which).is_file():
        raise ValueError(f"{which} is a log file without a run's folder, so this can't be stored; import it first")
    return catalog.find(which, dir)


def _marks(row: Mapping[str, Any]) -> list[str]:
    words = [word for word in ("pinned", "archived") if row[word]]
    head = f"{escape(row['project'])}/{escape(row['id'])}" + (f"   {', '.join(words)}" if words else "")
    lines = [head]
    if row["name"] != row["id"]:
        lines.append(f"  name   {escape(row['name'])}")
    if row["tags"]:
        lines.append(f"  tags   {', '.join(escape(tag) for tag in row['tags'])}")
    for at, line in enumerate(row["notes"].splitlines()):
        lines.append(f"  {'notes' if not at else '':<6} {escape(line)}")
    return lines if len(lines) > 1 or words else [f"{head}   no name, tags or notes"]


# -- deleting and bringing back ---------------------------------------------------------------------------


def run_delete(
    runs: Sequence[str], *, dir: str | None = None, yes: bool = False, force: bool = False, as_json: bool = False
) -> int:
    """Move runs to the trash, after asking on a terminal; returns the exit code: 0, or 1 if the person said no.

    Raises KeyError, ValueError and OSError with one sentence; what was deleted before stays in the trash.
    """
    root = _root(dir)
    found = list({run.dir.resolve(): run for run in (_folder_of(run, dir) for run in runs)}.values())
    for run in found:
        trash.refuse_live(run.dir, force)
    forks = {run.id: [fork for fork in trash.forks_of(run.dir, root)] for run in found}
    going = {run.dir.resolve() for run in found}
    for run in found:
        left = [fork.name for fork in forks[run.id] if fork.resolve() not in going]
        if left and not as_json:
            shown = ", ".join(escape(item) for item in left[:3]) + (", …" if len(left) > 3 else "")
            print(f"{escape(run.id)} has forks ({shown}): without it they show nothing from before the fork.")
    if not yes:
        what = escape(found[0].id) if len(found) == 1 else f"{len(found)} runs"
        if not sys.stdin.isatty():
            raise ValueError(f"to delete {what} without confirmation, add --yes")
        if input(f"Move {what} to the trash? [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was deleted.")
            return 1
    rows = []
    for run in found:
        top = root if root in Path(os.path.abspath(run.dir)).parents else None
        entry = trash.trash(run.dir, top, force=force)
        rows.append({"run": run.id, "project": run.project, "id": entry, "was": str(run.dir)})
        if not as_json:
            where = "" if top is not None else f" --dir {Path(os.path.abspath(run.dir)).parent.parent}"
            print(f"{escape(run.id)}: in the trash; `barograph restore {entry}{where}` brings it back.")
    if as_json:
        print(json_text(rows))
    return 0


def run_restore(ids: Sequence[str], *, dir: str | None = None, list_them: bool = False, as_json: bool = False) -> int:
    """Bring runs back from the trash: these, or the one deleted last; or list what is there. Returns 0.

    Raises KeyError and OSError with one sentence.
    """
    root = _root(dir)
    entries = trash.trashed(root)
    if list_them:
        if as_json:
            print(json_text([entry.as_dict() for entry in entries]))
        elif not entries:
            print(f"The trash of {root} is empty.")
        for item in () if as_json else entries:
            print(f"{escape(item.id)}   {escape(item.project)}/{escape(item.run)}   deleted {_ago(item.deleted)}")
        return 0
    if not ids and not entries:
        raise KeyError(f"the trash of {root} is empty")
    rows = []
    for which in ids or [entries[0].id]:
        path = trash.restore(root, which)
        rows.append({"id": which, "dir": str(path)})
        if not as_json:
            print(f"{escape(path)} is back.")
    if as_json:
        print(json_text(rows))
    return 0


def _shown_root(dir: str | None) -> str:
    return str(own_folder(dir))


def _root(dir: str | None) -> Path:
    return Path(os.path.abspath(_shown_root(dir)))


# -- finding ----------------------------------------------------------------------------------------------


def run_projects(*, dir: str | None = None, as_json: bool = False) -> int:
    """Print a row for each project of a folder of runs; returns the exit code 0."""
    rows = projects(catalog.runs(dir))
    if as_json:
        print(json_text([row.as_dict() for row in rows]))
        return 0
    if not rows:
        print(f"No runs in {place_name(dir or None)} yet. `barograph demo` makes one.")
        return 0
    head = ("PROJECT", "RUNS", "RUNNING", "FAILED", "ARCHIVED", "NEWEST")
    lines = [
        (escape(row.name, 40), str(row.runs), _some(row.running), _some(row.failed), _some(row.archived),
         f"{escape(row.newest, 40)}")
        for row in rows
    ]  # fmt: skip
    sizes = [max(len(line[at]) for line in (head, *lines)) for at in range(len(head))]
    for line in (head, *lines):
        cells = [
            cell.rjust(size) if 1 <= at <= 4 else cell.ljust(size)
            for at, (cell, size) in enumerate(zip(line, sizes, strict=True))
        ]
        print("  ".join(cells).rstrip())
    return 0


def _some(count: int) -> str:
    return str(count) if count else ""


def run_search(words: Sequence[str], *, dir: str | None = None, as_json: bool = False) -> int:
    """Print the runs that have all words, with where; returns 0, or 1 if there is none, as grep does.

    Raises ValueError with one sentence for a condition that can't be read.
    """
    found = search(words, catalog.runs(dir))
    if as_json:
        print(json_text({"looked_at": found.looked_at, "runs": [hit.as_dict() for hit in found.hits]}))
    elif not found.hits:
        hint = f" Did you mean {escape(found.nearest)}?" if found.nearest else ""
        print(f"None of {found.looked_at:,} runs has {' and '.join(escape(word) for word in words)}.{hint}")
    else:
        print(f"{len(found.hits):,} of {found.looked_at:,} runs")
        for hit in found.hits[:_MOST_HITS]:
            print("\n".join(_hit(hit)))
        if len(found.hits) > _MOST_HITS:
            print(f"… and {len(found.hits) - _MOST_HITS:,} more; add a word to narrow the search")
    return 0 if found.hits else NOTHING_FOUND


def _hit(hit: Hit) -> list[str]:
    row = hit.as_dict()
    status = f"{row['status']}, archived" if row["archived"] else row["status"]
    lines = [f"{escape(row['project'])}/{escape(row['id'])}   {escape(status)}"]
    for place, text in hit.found.items():
        if place not in ("id", "project") and text != row["id"]:
            lines.append(f"    {place:<8} {escape(text)}")
    return lines


def _ago(moment: float) -> str:
    import time

    age = max(0.0, time.time() - moment)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if age >= size:
            return f"{int(age // size)} {unit} ago"
    return "just now"
