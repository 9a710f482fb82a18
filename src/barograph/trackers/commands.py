"""The commands `barograph export` and `barograph sync`.

In:   runs as typed; a format and a file, or a tracker.
Out:  the file, or the copies; an exit code.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from barograph.core.text import count
from barograph.query.catalog import find
from barograph.query.export import export
from barograph.query.media import extract
from barograph.query.stored import missing
from barograph.trackers.send import copy_to_tensorboard
from barograph.trackers.sync import sync


def run_export(
    name: str,
    to: str,
    *,
    dir: str | None = None,
    out: Path | None = None,
    layout: str | None = None,
    patterns: Sequence[str] = (),
    branch: str = "live",
    partial: bool = False,
) -> int:
    """Write a run's series to a file, to standard output where it is `-`; returns 0, or 1 where files of the run are
    damaged or gone and `partial` is not given. Raises KeyError, ValueError and OSError with one sentence."""
    run = find(name, dir)
    if to == "tensorboard":
        if str(out) == "-":
            raise ValueError("a copy for TensorBoard is a folder: --out names it")
        out = out or Path(run.id)
        path = run.log_files()[0] if Path(name).is_file() else run.dir
        wanted = (lambda series: any(fnmatchcase(series, pattern) for pattern in patterns)) if patterns else None
        print(f"{out}: {copy_to_tensorboard(path, out, wanted):,} rows")
        return 0
    if to == "media":
        if str(out) == "-":
            raise ValueError("images, sounds and tables go into a folder: --out names it")
        found = [
            item
            for item in run.media(branch=branch)
            if not patterns or any(fnmatchcase(item.name, pattern) for pattern in patterns)
        ]
        if not found:
            raise KeyError(f"run {run.id} has no media" + (f" that match {' '.join(patterns)}" if patterns else ""))
        out = out or Path(f"{run.id}.media")
        written = extract(found, out)
        print(f"{out}: {count(written, 'file')}")
        if written < len(found) and not partial:
            print(f"barograph: {count(len(found) - written, 'file')} of the run are gone or not whole", file=sys.stderr)
            return 1
        return 0
    out = out or Path(f"{run.id}.{to}")
    if str(out) == "-":
        with tempfile.TemporaryDirectory() as folder:
            export(run, to, Path(folder, "whole"), layout=layout, patterns=tuple(patterns), branch=branch)
            with open(Path(folder, "whole"), "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
    else:
        rows = export(run, to, out, layout=layout, patterns=tuple(patterns), branch=branch)
        print(f"{out}: {rows:,} rows")
    if missing(run) and not partial:
        print(f"barograph: {out} is not whole; --partial takes that for right", file=sys.stderr)
        return 1
    return 0


def run_sync(
    names: Sequence[str],
    to: str,
    *,
    dir: str | None = None,
    follow: bool = False,
    out: str | None = None,
    name: str | None = None,
    as_json: bool = False,
) -> int:
    """Send runs to a tracker, as `sync`, a log file alone too; returns the exit code. Raises KeyError with one
    sentence."""
    found = [find(each, dir) for each in names]
    folders = [run.log_files()[0] if Path(each).is_file() else run.dir for each, run in zip(names, found, strict=True)]
    return sync(folders, to, follow=follow, out=out, name=name, as_json=as_json)
