"""Which folder a run is kept in: a new one, one to go on with, or the one that another rank has made.

In:   options, the launch that this process is of.
Out:  the folder, and whether there was a run in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from barograph.core import liveness, manifest, options, place, segments
from barograph.core.names import folder_name, run_name
from barograph.core.options import Settings
from barograph.log.read import records_from
from barograph.training.logfile import NAME

_RENDEZVOUS_SECONDS = 3600.0  # a launch's ranks arrive within this time
_MEETING_SECONDS = 5.0  # the longest wait for another rank that looks
_TAIL = 1 << 20  # bytes of a log's end that are read for its last step
_meeting_lock = threading.Lock()
_ended: Counter[tuple[str, Path]] = Counter()  # runs that this process ended, by launch and folder
_meetings: Counter[str] = Counter()  # runs that this process began in its launch: every rank begins them in one order


def find_folder(settings: Settings, config: dict[str, Any], launch: str | None) -> tuple[Path, bool]:
    """The run's folder and whether there was a run in it already."""
    if settings.output_dir:
        folder = Path(settings.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return folder, bool(segments.read(folder))
    project = Path(settings.dir) / folder_name(settings.project)
    path = _to_resume(settings, project, launch)
    if path is not None:
        return path, True
    project.mkdir(parents=True, exist_ok=True)
    if settings.id:
        folder = project / folder_name(settings.id)
        folder.mkdir(exist_ok=True)
        return folder, bool(segments.read(folder))
    name = settings.name or run_name(settings.project, config, datetime.now())
    if launch is None:
        return _new_folder(project, name), False
    meeting = f"{launch} {settings.name}"
    _meetings[meeting] += 1
    return _shared_folder(project, name, f"{meeting} {_meetings[meeting]}"), False


def _new_folder(project: Path, name: str) -> Path:
    base = folder_name(name)
    for number in range(1, 1_000_000):
        folder = project / (base if number == 1 else f"{base}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise OSError(17, f"no free folder for a run named {base} in {project}")


def _shared_folder(project: Path, name: str, launch: str) -> Path:
    """One folder for all ranks of a launch: the first to come makes it, the others find its name."""
    meeting = project / f".launch-{hashlib.sha256(launch.encode()).hexdigest()[:16]}"
    for _ in range(3):
        # one rank at a time: an old one is removed once, and not the new one that another has just put in its place
        with contextlib.suppress(OSError), manifest.turn(project, _meeting_lock, _MEETING_SECONDS):
            if time.time() - meeting.stat().st_mtime < _RENDEZVOUS_SECONDS:
                return project / meeting.read_text()
            meeting.unlink()
        folder = _new_folder(project, name)
        mine = project / f".launch-{place.host()}-{os.getpid()}-{threading.get_ident()}"
        mine.write_text(folder.name)
        try:
            os.link(mine, meeting)
            return folder
        except FileExistsError:
            folder.rmdir()
        finally:
            mine.unlink()
    return _new_folder(project, name)


def _to_resume(settings: Settings, project: Path, launch: str | None) -> Path | None:
    """The folder of the run to go on with, if the options ask for one and it is there."""
    which = settings.resume
    if which in (False, "") and settings.wandb_run_id and not settings.id:
        return _with_wandb_run(project, settings.wandb_run_id)  # who goes on with its copy goes on with the run
    if which in (False, "", "never"):
        return None
    result = None
    if which not in (True, "must", "auto", "allow"):
        places = (Path(str(which)), project / str(which), project / folder_name(str(which)))
        result = next((folder for folder in places if segments.read(folder)), None)
    elif settings.id:
        folder = project / folder_name(settings.id)
        result = folder if segments.read(folder) else None
    elif project.is_dir():
        last = {folder: begun[-1] for folder in project.iterdir() if (begun := segments.read(folder))}
        # a run that is written is somebody else's, unless a rank of this launch has just gone on with it
        ours = {
            folder for folder, item in last.items() if _of_launch(item.launch) == launch and item.parent is not None
        }
        ended = [folder for folder in last if (launch and folder in ours) or not is_alive(folder)]
        result = max(ended, key=lambda folder: last[folder].time, default=None)
    if result is None and which not in ("auto", "allow"):
        raise options.ConfigError(
            f"There is no run to resume (resume is {which!r}) in {project}; `barograph ls` shows what there is."
        )
    return result


def _of_launch(occasion: str | None) -> str | None:
    """The launch that a segment began in."""
    return occasion and occasion.partition(" ")[0]


def occasion(folder: Path, launch: str | None) -> str | None:
    """The launch, and how many runs of this folder the process ended in it before: every rank ends as many."""
    ended = _ended[launch or "", folder.absolute()]
    return f"{launch} again {ended}" if launch and ended else launch


def end(folder: Path, launch: str | None) -> None:
    """A run of this process in this folder has ended."""
    _ended[launch or "", folder.absolute()] += 1


def _with_wandb_run(project: Path, wandb_run: str) -> Path | None:
    """The newest run of the project whose copy is this W&B run."""
    found: list[tuple[int, Path]] = []
    with contextlib.suppress(OSError):
        for folder in project.iterdir():
            if manifest.read(folder).get("wandb_run_id") == wandb_run and (begun := segments.read(folder)):
                found.append((begun[-1].time, folder))
    return max(found, default=(0, None))[1]


def to_fork(source: Any, root: Path) -> Path:
    """The folder of the run that is meant."""
    which = str(getattr(source, "dir", source))
    here = [folder for folder in (Path(which), root / which) if segments.read(folder)]
    found = here or [folder / which for folder in sorted(root.glob("*/")) if segments.read(folder / which)]
    if not found:
        raise options.ConfigError(f"There is no run {which!r} to fork in {root}; `barograph ls` shows what there is.")
    if len(found) > 1 and not here:
        named = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in found[:5])
        raise options.ConfigError(f"{which!r} is {len(found)} runs: {named}; name the project too.")
    return found[0].resolve()


def is_alive(folder: Path) -> bool:
    """Whether a process of this machine is writing the run now."""
    return liveness.is_alive(manifest.read(folder))


def last_records(folder: Path, segment: int) -> tuple[int | None, int]:
    """The last step in a run's main log before a segment, from its last records, and the time of the last of them in
    microseconds since 1970 (0 where there is none)."""
    path = folder / NAME
    last = before = None
    time_last = 0
    begun = False
    with contextlib.suppress(OSError, ValueError):
        for record, _ in records_from(path, max(0, path.stat().st_size - _TAIL)):
            if record.kind == "segment" and record.fields.get("segment") == segment:
                begun, before = True, last  # another rank of the launch may have logged in it already
            if not begun:
                time_last = record.time
            if record.kind in ("step", "eval", "metrics"):
                last = record.step if last is None else max(last, record.step)
    return (before if begun else last), time_last
