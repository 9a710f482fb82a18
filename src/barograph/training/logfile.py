"""Which file a process logs to: one log belongs to one run.

In:   the run's folder, the option `log_file`, the rank.
Out:  an open log: `training.json` of the run's folder (a link where `log_file` lies elsewhere), or one of this
      process's own where another process writes that.

A `log_file` that holds another run's finished log is handed to that run: it moves into that run's folder, and this
run gets a fresh file under the name. So a configuration that names one `log_file` may be launched again and again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from barograph.core import locks, place
from barograph.core.options import Settings
from barograph.log import spool
from barograph.log.read import LogFileBusy, LogFileError, records_from, refuse_foreign
from barograph.log.write import JsonLog
from barograph.training.emitter import NoLog

NAME = "training.json"
_HEAD = 1 << 16  # bytes in which a log's first segment stands


class OpenLog(NamedTuple):
    """An open log. `path`: where it is, or will be once it is carried there; `stem`: of the files that go with it.
    main: whether it is the run's own log, and not one of a further writer."""

    log: JsonLog | NoLog
    path: Path
    stem: str
    main: bool
    carrier: spool.Carrier | None = None


def check(path: str) -> None:
    """Raise LogFileError where a `log_file` is there and is not a log; before anything of a run is made."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        head = file.read(_HEAD)
        if head.strip():
            refuse_foreign(Path(path), head, whole=len(head) < _HEAD)


def open_log(folder: Path, settings: Settings, rank: int, writer: str, warn: Callable[[str], Any]) -> OpenLog:
    """The log that this process writes. Raises OSError where none can be written."""
    inside, own = folder / NAME, folder / f"training-{writer}.json"
    spool.carry_blocks(folder)
    if rank != 0:
        return _open(own, own.stem, False, warn)
    if settings.log_file and Path(settings.log_file).absolute() != inside.absolute():
        try:
            elsewhere = _elsewhere(Path(settings.log_file).absolute(), inside, warn)
        except LogFileBusy:  # this run is written already
            return _open(own, own.stem, False, warn)
        if elsewhere is not None:
            return elsewhere
    elif inside.is_symlink():  # a resume without the option: the log is where it was
        inside_target = inside.resolve()
        with contextlib.suppress(LogFileBusy):
            return _open(inside_target, "training", True, warn)
        return _open(own, own.stem, False, warn)
    try:
        return _open(inside, "training", True, warn)
    except LogFileBusy:  # another process writes to this run: each has a file of its own
        return _open(own, own.stem, False, warn)


def _open(path: Path, stem: str, main: bool, warn: Callable[[str], Any]) -> OpenLog:
    if place.is_network_filesystem(path.parent):
        log = JsonLog(spool.prepare(path), warn)
        return OpenLog(log, path, stem, main, spool.Carrier(log, path))
    if spool.best_copy(path) != path:  # what an earlier process could not write here
        spool.carry_leftovers()
    return OpenLog(JsonLog(path, warn), path, stem, main)


def _elsewhere(path: Path, inside: Path, warn: Callable[[str], Any]) -> OpenLog | None:
    """The log at `log_file`, linked from the run's folder; None, with a sentence, where it can't be had."""
    ours = inside.is_symlink() and inside.resolve() == path.resolve()
    if not ours and inside.is_file():
        warn(f"the log of this run is {inside}; log_file {path} is not used")
        return None
    for _ in range(5):
        try:
            if not ours and _holds_records(path):
                if _is_written(path):
                    warn(f"log_file {path} is being written by another run; the log of this one is {inside}")
                    return None
                _hand_back(path, warn)
            opened = _open(path, "training", True, warn)
        except FileNotFoundError:  # another launch has just moved it
            continue
        except LogFileBusy:
            if ours:
                raise
            warn(f"log_file {path} is being written by another run; the log of this one is {inside}")
            return None
        except LogFileError:
            raise
        except OSError as error:
            warn(f"log_file {path} can't be written ({error.strerror or error}); the log of this run is {inside}")
            return None
        try:
            if not ours:
                _link(inside, path)
            return opened
        except OSError as error:
            opened.log.close()
            warn(f"{inside} can't be a link to log_file {path} ({error.strerror or error}); the log is in the folder")
            return None
    return None


def _holds_records(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        return False
    return b"{" in head


def _is_written(path: Path) -> bool:
    """Whether a process, this one among them, has the log open."""
    with open(path, "rb") as file:
        return locks.is_taken(file.fileno())


def _hand_back(path: Path, warn: Callable[[str], Any]) -> None:
    """Move another run's finished log into that run's folder, or beside where it is not known."""
    run, folder = _owner(path)
    if folder is not None:
        link = folder / NAME
        if link.is_symlink() and link.resolve() == path.resolve():
            _move(path, link)
            return
    for number in itertools.count(1):
        words = [path.stem, *([run] if run else []), *([str(number)] if number > 1 or not run else [])]
        kept = path.with_name("-".join(words) + path.suffix)
        if not kept.exists():
            os.rename(path, kept)
            warn(f"log_file {path} held the records of another training; they are in {kept} now")
            return


def _move(path: Path, target: Path) -> None:
    """Put the file in the place of the link to it, also from another file system."""
    try:
        os.replace(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{time.time_ns():x}")
        shutil.copy2(path, temporary)
        os.replace(temporary, target)
        path.unlink()


def _owner(path: Path) -> tuple[str, Path | None]:
    """Run and folder that a log's first segment names; empty where none does."""
    with contextlib.suppress(OSError, ValueError):
        for record, end in records_from(path):
            if record.kind == "segment" and record.fields.get("run"):
                folder = record.fields.get("folder")
                return str(record.fields["run"]), Path(str(folder)) if folder else None
            if end > _HEAD:
                break
    return "", None


def _link(inside: Path, path: Path) -> None:
    temporary = inside.with_name(f".{inside.name}.{os.getpid()}.{time.time_ns():x}")
    os.symlink(os.path.relpath(path, inside.parent.resolve()), temporary)
    os.replace(temporary, inside)
