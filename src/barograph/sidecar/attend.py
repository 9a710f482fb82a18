"""`barograph attend`: what a sidecar would have done, by hand; and `barograph ps`: the sidecars of this host.

In:   a run's folder, whose sidecar is gone or never was; the processes of this host.
Out:  the same records, columns, manifest and mirrors that the sidecar leaves; a table, or JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from barograph import __version__
from barograph.core import liveness, manifest, place
from barograph.core.options import BACKENDS, Settings, load
from barograph.core.progress import progress
from barograph.core.text import escape
from barograph.log.spool import best_copy
from barograph.query.catalog import find
from barograph.sidecar.lock import RunLock
from barograph.sidecar.loop import Sidecar

_MODULE = __name__.rpartition(".")[0]  # what a sidecar is started as: python -m barograph.sidecar


class Attended(NamedTuple):
    """What `attend` did of one run. status: the run's, afterwards."""

    run: str
    status: str
    records: int
    findings: int
    mirrors: list[str]


def attend(folder: Path, *, quiet: bool = False) -> Attended | None:
    """Read the run and do what its sidecar has not done; of a run that goes on until it ends. None: another one does.

    Raises OSError where the folder can't be written.
    """
    lock = RunLock(folder)
    if not lock.take():
        return None
    try:
        about = manifest.read(folder)
        status = liveness.status(folder, about)
        here = liveness.is_alive(about)
        at = lock.read().get("at") if lock.read().get("version") == __version__ else None
        sidecar = Sidecar(
            folder,
            _settings(about),
            pid=int(about["pid"]) if here else None,
            noted_at=at if isinstance(at, int) else -1,
            note=lambda content: lock.note({"pid": os.getpid(), "run": str(folder), "version": __version__} | content),
        )
        if here:
            with _quietly(quiet, folder.name):
                sidecar.run()
        else:
            _replay(sidecar, folder, ended=status not in liveness.OPEN, quiet=quiet)
    finally:
        lock.release()
    about = manifest.read(folder)
    mirrors = list(sidecar.mirrors.names) if sidecar.mirrors is not None else []
    found = sum(1 for record in sidecar.journal.written if record == "finding")
    return Attended(folder.name, liveness.status(folder, about), sidecar.entries, found, mirrors)


def _settings(about: dict[str, Any]) -> Settings:
    """Options from outside; where nothing is said there, the trackers that the run asked for."""
    settings = load()
    asked = tuple(name for name in about.get("report_to") or () if name in BACKENDS)
    return settings if settings.backends or not asked else dataclasses.replace(settings, report_to=asked)


def _quietly(quiet: bool, name: str) -> Any:
    return contextlib.nullcontext() if quiet else progress(f"{name}: until it ends")


def _replay(sidecar: Sidecar, folder: Path, ended: bool, quiet: bool) -> None:
    """A run that nobody on this host writes."""
    total = sum(best_copy(path).stat().st_size for path in folder.glob("training*.json"))
    with contextlib.nullcontext() if quiet else progress(folder.name, float(total) or None) as work:
        while sidecar.read(once=True):
            if work is not None:
                work.advance(min(float(total), float(sidecar.journal.at)) - work.done)
        if ended:
            sidecar.end_unsaid()
            sidecar.open_mirrors()
            sidecar.read()
            sidecar.finish()
        sidecar.close()


# -- the command lines --------------------------------------------------------------------------------


def run_attend(names: Iterable[str], *, dir: str | None = None, as_json: bool = False) -> int:
    """`barograph attend RUN…`; the exit code. Raises KeyError with one sentence."""
    rows: list[dict[str, Any]] = []
    for folder in [find(name, dir).dir for name in names]:
        done = attend(folder, quiet=as_json)
        if done is None:
            pid = RunLock(folder).read().get("pid")
            rows.append({"run": folder.name, "busy": pid})
            line = f"{folder.name}: its sidecar is at work (process {pid})"
        else:
            rows.append(done._asdict())
            line = f"{escape(done.run)}: {done.status}; {done.records:,} records read, {done.findings} findings written"
            line += f"; sent to {', '.join(done.mirrors)}" if done.mirrors else ""
        if not as_json:
            print(line)
    if as_json:
        print(json.dumps(rows, indent=2))
    return 0


def sidecars() -> list[dict[str, Any]]:
    """The sidecars of this user on this host, the oldest first: run, pid, age, memory, what they still owe."""
    import psutil

    found = []
    for process in psutil.process_iter(["pid", "cmdline", "create_time", "memory_info", "uids"]):
        words = process.info["cmdline"] or []
        if _MODULE not in words or process.info["uids"] is None or process.info["uids"].real != os.getuid():
            continue
        folder = Path(words[words.index(_MODULE) + 1]) if words[-1] != _MODULE else Path()
        note = RunLock(folder).read()
        note = note if note.get("pid") == process.info["pid"] else {}
        memory = process.info["memory_info"]
        found.append({
            "run": str(folder),
            "pid": process.info["pid"],
            "watches": note.get("watches"),
            "age_seconds": round(max(0.0, time.time() - process.info["create_time"]), 1),
            "memory_bytes": memory.rss if memory is not None else None,
            "state": note.get("state", "waiting"),
            "owes": note.get("owes") or {},
        })  # fmt: skip
    return sorted(found, key=lambda row: -row["age_seconds"])


def run_ps(as_json: bool = False) -> int:
    """`barograph ps`; the exit code."""
    rows = sidecars()
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    if not rows:
        print(f"No sidecar runs on {place.host()}.")
        return 0
    table = [("RUN", "PID", "AGE", "MEMORY", "STATE", "OWES")]
    for row in rows:
        memory = "" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 1e6:.0f} MB"
        name = escape(Path(row["run"]).name, 60)
        table.append((name, str(row["pid"]), _age(row["age_seconds"]), memory, row["state"], _owed(row["owes"])))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())
    sys.stdout.flush()
    return 0


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _owed(owes: dict[str, Any]) -> str:
    parts = [f"{owes['unsealed'] / 1e6:.1f} MB to seal"] if owes.get("unsealed", 0) >= 100_000 else []
    parts += [", ".join(owes["mirrors"])] if owes.get("mirrors") else []
    parts += [f"{owes['alerts']} alerts"] if owes.get("alerts") else []
    return ", ".join(parts)
