"""Which runs there are, and the one that a person means.

In:   a folder of runs; a path, an id, a name.
Out:  stored runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from barograph.core.lazy import lazy
from barograph.core.segments import is_run
from barograph.log.read import is_log
from barograph.query.folders import place_name, runs_folder
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")


def runs(
    dir: str | os.PathLike[str] | None = None,
    project: str | None = None,
    *,
    status: str | None = None,
    tag: str | None = None,
) -> list[StoredRun]:
    """The runs under a folder (default: `BAROGRAPH_DIR`, else `runs`), the newest last."""
    root = runs_folder(dir)
    chosen_runs = [run for run in map(StoredRun, _run_folders(root)) if project is None or run.project == project]
    if status is not None:
        chosen_runs = [run for run in chosen_runs if run.status == status]
    if tag is not None:
        chosen_runs = [run for run in chosen_runs if tag in run.tags]
    return sorted(chosen_runs, key=lambda run: (str(run.manifest.get("created", "")), run.id))


def _run_folders(root: Path) -> Iterator[Path]:
    """Folders of runs: the folder itself, its children or its grandchildren (project/run)."""
    if is_run(root):
        yield root
        return
    for child in _folders(root):
        if is_run(child):
            yield child
        else:
            yield from (grandchild for grandchild in _folders(child) if is_run(grandchild))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


_FOREIGN = "`barograph doctor` reads other programs' logs, `barograph import` turns them into runs"


def find(which: str, dir: str | os.PathLike[str] | None = None) -> StoredRun:
    """The run that a person means: a folder, a log file, an id, a name, or the start of an id.

    Raises KeyError with a sentence if there is none, or several.
    """
    path = Path(which)
    if path.is_file() and not is_log(path):
        raise KeyError(f"{which} is not a training log: it holds no JSON array of records; {_FOREIGN}")
    if path.is_file() or (path.is_dir() and is_run(path)):
        return StoredRun(path)
    known = runs(runs_folder(dir, which))
    for same in (
        [run for run in known if which in (run.id, f"{run.project}/{run.id}")],
        [run for run in known if run.name == which],
        [run for run in known if run.id.startswith(which)],
    ):
        if len(same) == 1:
            return same[0]
        if same:
            raise KeyError(f"{which!r} is {len(same)} runs: {', '.join(f'{r.project}/{r.id}' for r in same[:5])}")
    near = difflib.get_close_matches(which, [run.id for run in known], 1, 0.4)
    hint = f"; the nearest is {near[0]!r}" if near else "; `barograph ls` shows what there is"
    if path.is_dir():
        hint = f", and the folder of that name is none; {_FOREIGN}"
    raise KeyError(f"there is no run {which!r} in {place_name(dir or None)}{hint}")
