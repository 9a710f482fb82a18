"""What an import has safely stored, so that the next one goes on from there, whatever ended this one.

In:   the folder of an imported run.
Out:  the last committed state; a log file and segments without anything that came after it.

A sealed part is the only thing by which an import advances. It says up to which byte the log file counts, and the
last record before that byte holds the source's mark. So numbers, facts and the mark count together or not at all:

    training.json   … facts … {"log":"info","type":"import","mark":…}│ facts of a batch that never came to its end
    store/training/ … parts, the last of which holds the log to here ┘ pending parts: readers ignore them
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barograph.core.segments import FOLDER as SEGMENTS
from barograph.log.read import records_from
from barograph.store.run import RunStore

LOG = "training.json"
WRITER = "training"
TYPE = "import"  # of the `info` records that hold marks


class Damaged(Exception):
    """What is stored does not fit together any more; it can't be continued."""


@dataclass
class State:
    """What was committed last. `position`: bytes of the log file; 0 if nothing was committed."""

    position: int = 0
    record: dict[str, Any] = field(default_factory=dict)  # the fields of the last import record
    names: dict[str, str] = field(default_factory=dict)  # series → original, of all import records
    options: dict[str, Any] = field(default_factory=dict)
    command: list[str] | None = None
    end: dict[str, Any] = field(default_factory=dict)  # how the run ended, if that was the last of it


def recover(folder: Path) -> State:
    """The committed state; what came after it is removed. Raises Damaged if it can't be determined."""
    committed = _committed(folder)
    log = folder / LOG
    if committed <= 1:
        _remove_all(folder)
        return State()
    if not log.is_file() or log.stat().st_size < committed:
        raise Damaged(f"{log} is shorter than what the store says of it")
    state = _read(log, committed)
    _cut(log, committed)
    last = int(state.record.get("segment", 1))
    for path in (folder / SEGMENTS).glob("[0-9]*.json"):
        if path.stem.isdigit() and int(path.stem) > last:
            path.unlink()
    return state


def _committed(folder: Path) -> int:
    """Up to which byte of the log everything counts. Parts that were never committed are removed."""

    end = 0
    for log in RunStore(folder).find_logs():
        log.list_parts()
        if log.path.name == LOG:
            end = log.covered[-1][1] if log.covered else 0
            for store in log.store:
                store.remove_pending()
    return end


def _read(log: Path, committed: int) -> State:
    state = State(committed)
    at = 0
    for item, end in records_from(log):
        if end > committed:
            break
        if item.kind == "info" and item.fields.get("type") == TYPE:
            state.record, at = item.fields, end
            state.names |= item.fields.get("names") or {}
        elif item.kind == "option" and "name" in item.fields:
            state.options[str(item.fields["name"])] = item.fields.get("value")
        elif item.kind == "cmd":
            state.command = item.fields.get("cmd")
        elif item.kind == "end":
            state.end = item.fields
        elif item.kind == "segment":
            state.end = {}
    if at != committed:
        raise Damaged(f"{log} does not hold the mark that the store says it does")
    return state


def _cut(log: Path, position: int) -> None:
    """Let the log file end behind byte `position`, the end of a record."""
    with open(log, "r+b") as file:
        file.seek(position)
        if file.read(16).strip() == b"]":
            return
        file.seek(position)
        file.write(b"\n]\n")
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _remove_all(folder: Path) -> None:
    """Nothing was committed: begin with an empty folder, but for the lock that we hold."""
    for name in (LOG, f"{LOG}.torn"):
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()
    for name in ("store", SEGMENTS):
        shutil.rmtree(folder / name, ignore_errors=True)
