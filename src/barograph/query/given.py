"""Runs as a person gives them, and what one has spent.

In:   a stored or an open run, its folder, its id or name, a log of any kind; several of these.
Out:  stored runs; wall time, GPU hours and cost of one.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from barograph.core import liveness, manifest, providers
from barograph.query.stored import StoredRun


class HasFolder(Protocol):
    """Something with a run's folder, such as a run that is being written."""

    @property
    def dir(self) -> Path:
        """The run's folder."""
        ...


GivenRun = HasFolder | str | os.PathLike[str]
"""A run as a person gives it: stored or being written, its folder, its id or name, a log of any kind."""


def stored_runs(given: GivenRun | Iterable[GivenRun], dir: str | os.PathLike[str] | None = None) -> list[StoredRun]:
    """The runs that a person gives: stored or being written, words as the commands take them, or several of these.

    dir: where ids and names are looked for. Raises KeyError, OSError or ValueError with one sentence where a word is
    no run, TypeError for what can't be one.
    """
    if isinstance(given, StoredRun):
        if not given.dir.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no folder of a run", str(given.dir))
        return [given]
    if isinstance(given, (str, os.PathLike)):
        meant = providers.provider("runs that a word means")(os.fspath(given), None if dir is None else os.fspath(dir))
        return [run for run, _ in meant]
    if isinstance(folder := getattr(given, "dir", None), Path):
        return [StoredRun(folder)]
    if isinstance(given, Iterable):
        return [run for one in given for run in stored_runs(one, dir)]
    raise ValueError(f"a run is a StoredRun, an open run, its folder, its id or a log, not {given!r:.80}")


def stored_run(given: GivenRun | Iterable[GivenRun]) -> StoredRun:
    """The one run that a person gives; raises ValueError where these are several, or none. Else as `stored_runs`."""
    runs = stored_runs(given)
    if len(runs) != 1:
        named = ", ".join(run.id for run in runs[:5])
        raise ValueError(f"one run is wanted, and these are {len(runs)}: {named}" if runs else "no run is given")
    return runs[0]


def spent(run: StoredRun) -> dict[str, float | None]:
    """`wall_seconds` in which a process was there, `gpu_hours` and `cost`, over all segments, ended or not."""
    about = run.manifest
    hours = about.get("gpu_hours") if about.get("finished") else None
    cost = about if hours is not None or "source" in about or not run.log_files() else run.cost()
    return {"wall_seconds": wall_seconds(run)} | {key: cost.get(key) for key in ("gpu_hours", "cost")}


def wall_seconds(run: StoredRun) -> float | None:
    """Seconds in which a process of the run was there, over all its starts; None where it is not known."""
    about = run.manifest
    if about.get("finished") or "source" in about or run.status in liveness.ALIVE or not run.log_files():
        return manifest.wall_seconds(about, time.time())
    return round(run.goodput().held, 3) or None
