"""Deleting runs with a way back: a run's folder moves to `.trash` under the folder of runs, and from there back.

In:   a run's folder, or the folder of runs and an id.
Out:  the folder moved in one step; what lies in the trash; old entries gone for good.

    ROOT/project/run  →  ROOT/.trash/20261121T101500-run/   (with `trash.json`: where it was, when it was deleted)

Nothing is copied: a move within a file system is one step, whole or not done. A run that is written is refused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest, segments
from barograph.core.names import folder_name
from barograph.query import curation
from barograph.query.folders import refuse_copy

FOLDER = ".trash"
NOTE = "trash.json"
DAYS = 30  # what `barograph gc` leaves in the trash, unless told otherwise
_GOING = ".purging-"  # an entry that is being removed: never half a run among the others


@dataclass(frozen=True)
class Deleted:
    """A run in the trash. id: names it in `restore`. folder: where it lies. path: where it was.

    deleted: seconds since 1970. project, run, name: what it was known by; run is its id.
    """

    id: str
    folder: Path
    path: Path
    deleted: float
    project: str
    run: str
    name: str

    def as_dict(self) -> dict[str, Any]:
        return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(self).items()}


def trash(run_dir: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
    """Move a run's folder to the trash; returns the id to restore it by.

    root: the folder of runs whose trash gets it; by default the one above the run's project.
    force: also a run whose process is on another machine and was not heard of for two minutes.
    Raises ValueError for a run that is being written or a folder that is not a run's, OSError where it can't be moved.
    """
    folder = Path(os.path.abspath(run_dir))
    if not segments.is_run(folder) or FOLDER in folder.parts:
        raise ValueError(f"{folder} is not a run's folder, so there is nothing to delete")
    refuse_copy(folder)
    about = curation.over(folder, manifest.read(folder))
    refuse_live(folder, force)
    top = _root(folder, about) if root is None else Path(os.path.abspath(root))
    if top == folder or top not in folder.parents:
        top = folder.parent
    now = time.time()
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S")
    # a folder of its own file system can't be moved out of it, so its project's own trash takes it
    for place in dict.fromkeys((top / FOLDER, folder.parent / FOLDER)):
        note = {
            "path": os.path.relpath(folder, place.parent),
            "deleted": now,
            "project": str(about.get("project") or folder.parent.name),
            "run": folder.name,
            "name": str(about.get("name") or folder.name),
        }
        if (moved := _move(folder, place, stamp, note)) is not None:
            return moved
    raise OSError(errno.EXDEV, "the trash is on another file system", str(folder))


def _move(folder: Path, place: Path, stamp: str, note: dict[str, Any]) -> str | None:
    """Into `place`, under a new id; None if that is another file system."""
    _own_folder(place)
    manifest.write_json(folder / NOTE, note)
    for number in range(1, 10_000):
        entry = f"{stamp}-{_shorter(folder.name)}" + (f"-{number}" if number > 1 else "")
        target = place / entry
        if os.path.lexists(target):
            continue
        try:
            os.rename(folder, target)
            return entry
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process took the name just now
                continue
            with contextlib.suppress(OSError):
                (folder / NOTE).unlink()
            if error.errno == errno.EXDEV:
                return None
            raise
    raise OSError(errno.EEXIST, "the trash has no free name", str(place))


def _own_folder(place: Path) -> None:
    """Make the trash. A link is refused: what is deleted stays among the runs."""
    if place.is_symlink():
        raise OSError(errno.ELOOP, "the trash is a link to another place; remove the link", str(place))
    place.mkdir(exist_ok=True)


def _shorter(name: str) -> str:
    """File systems take 255 bytes in a name."""
    return name.encode()[:200].decode("utf-8", "ignore")


def refuse_live(folder: Path, force: bool = False) -> None:
    """Raise ValueError, with a sentence, for a run that is being written, or without `force` may be."""
    about = manifest.read(folder)
    status = liveness.status(folder, about)
    written = [pulse for pulse in liveness.pulses(folder) if pulse.status in liveness.ALIVE]
    if status in liveness.ALIVE or written:
        rank = f" (rank {written[0].rank}, process {written[0].pid})" if written else ""
        raise ValueError(f"{folder.name} is still being written{rank}; stop its training, then delete it")
    if status == "stalled" and not force:
        raise ValueError(
            f"{folder.name} may still be written: its process is on {about.get('host', 'another machine')!s:.60}, and "
            "nothing was heard of it for a while; if you know that it is gone, delete it with --force"
        )


def _root(folder: Path, about: dict[str, Any]) -> Path:
    """The folder of runs: above the project's folder, where the run lies in one."""

    project = about.get("project")
    return folder.parent.parent if project and folder_name(str(project)) == folder.parent.name else folder.parent


# -- what lies there -------------------------------------------------------------------------------------


def trashed(root: str | os.PathLike[str]) -> list[Deleted]:
    """What lies in the trash of a folder of runs and of its projects, the latest deleted first."""
    found = [item for place in _places(Path(root)) for item in _entries(place)]
    return sorted(found, key=lambda item: (-item.deleted, item.id))


def _places(root: Path) -> Iterator[Path]:
    """Every trash: the root's, its projects', and the one beside a root that is a run itself."""
    top = Path(os.path.abspath(root))
    parents = [top]
    if segments.is_run(top):
        parents = [top.parent, top.parent.parent]
    else:
        with contextlib.suppress(OSError):
            parents += sorted(item for item in top.iterdir() if item.is_dir() and not item.name.startswith("."))
    for parent in parents:
        place = parent / FOLDER
        if place.is_dir() and not place.is_symlink():
            yield place


def _entries(place: Path) -> Iterator[Deleted]:
    with contextlib.suppress(OSError):
        for folder in sorted(place.iterdir()):
            if folder.name.startswith(".") or folder.is_symlink() or not folder.is_dir():
                continue
            said: Any = None
            with contextlib.suppress(OSError, ValueError, RecursionError):
                said = json.loads((folder / NOTE).read_bytes())
            said = said if isinstance(said, dict) else {}
            _, _, name = folder.name.partition("-")
            moment = said.get("deleted")
            yield Deleted(
                id=folder.name,
                folder=folder,
                path=_inside(place.parent, str(said.get("path") or name or folder.name)),
                deleted=moment if isinstance(moment, float) and math.isfinite(moment) else folder.stat().st_mtime,
                project=str(said.get("project") or ""),
                run=str(said.get("run") or name or folder.name),
                name=str(said.get("name") or name or folder.name),
            )


def _inside(root: Path, path: str) -> Path:
    """Where a run goes back to: never out of its folder of runs, whatever its note says."""
    wanted = Path(os.path.normpath(root / path))
    return wanted if root in wanted.parents else root / (Path(path).name.strip(".") or "run")


def restore(root: str | os.PathLike[str], id: str) -> Path:
    """Bring a run back to where it was; returns its folder. If another run lies there, `-2` and so on is added.

    id: as `trash` returned it. A run's own id or name does too, where there is just one such run in the trash.
    Raises KeyError with a sentence if there is none, or several; OSError where it can't be moved.
    """
    one = _find(trashed(root), id, Path(root))
    path = one.path
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(2, 10_000):
        if not os.path.lexists(path):
            try:
                os.rename(one.folder, path)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        path = one.path.with_name(f"{one.path.name}-{number}")
    with contextlib.suppress(OSError):
        (path / NOTE).unlink()
    with contextlib.suppress(OSError):
        one.folder.parent.rmdir()  # only when nothing else is in the trash
    return path


def _find(entries: list[Deleted], which: str, root: Path) -> Deleted:
    for same in (
        [entry for entry in entries if entry.id == which],
        [entry for entry in entries if which in (entry.run, f"{entry.project}/{entry.run}")],
        [entry for entry in entries if entry.name == which],
    ):
        if len(same) == 1:
            return same[0]
        if same:
            raise KeyError(f"{which!r} is {len(same)} runs in the trash: {', '.join(item.id for item in same[:5])}")
    there = f"there are {', '.join(entry.id for entry in entries[:3])}" if entries else "the trash is empty"
    raise KeyError(f"there is no {which!r} in the trash of {root}; {there}")


def purge(root: str | os.PathLike[str], older_than_seconds: float = DAYS * 86_400.0) -> list[Deleted]:
    """Remove for good what was deleted longer ago than this; returns what was. What can't be removed stays."""
    now, gone = time.time(), []
    for place in _places(Path(root)):
        for item in _entries(place):
            if now - item.deleted < older_than_seconds:
                continue
            with contextlib.suppress(OSError):
                os.rename(item.folder, place / f"{_GOING}{item.id}")
                gone.append(item)
        for left in list(place.glob(f"{_GOING}*")):  # ours, and those of a purge that was killed
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.rmdir()  # only when it is empty
    return gone


def forks_of(run_dir: str | os.PathLike[str], root: str | os.PathLike[str]) -> list[Path]:
    """The runs under a folder of runs that were forked from this one: without it they lose their history."""
    source = str(Path(run_dir).resolve())
    result = []
    for folder in _children(Path(root)):
        first = next(iter(segments.read(folder)), None) if segments.is_run(folder) else None
        if first is not None and first.source is not None and str(Path(first.source).resolve()) == source:
            result.append(folder)
    return result


def _children(root: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for child in sorted(root.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield child
                if not segments.is_run(child):
                    with contextlib.suppress(OSError):
                        yield from sorted(item for item in child.iterdir() if item.is_dir())
