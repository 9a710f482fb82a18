"""The command `barograph gc`.

In:   a folder of runs.
Out:  the files of ended runs compacted, old trash removed; lines of text, or JSON; an exit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barograph.core.liveness import OPEN
from barograph.core.record import json_text
from barograph.core.text import count
from barograph.log.spool import carry_leftovers
from barograph.log.write import mend
from barograph.query.catalog import runs
from barograph.query.folders import own_folder
from barograph.query.media import remove_unnamed
from barograph.query.trash import purge
from barograph.store.seal import seal


def run_gc(*, dir: str | None = None, trash_days: int = 30, as_json: bool = False) -> int:
    """Compact ended runs, and remove those that were deleted `trash_days` days ago; returns the exit code 0."""
    report: list[dict[str, Any]] = []
    files: dict[str, int] = {}  # run → media files of a process that was killed before it recorded them
    carry_leftovers()
    root = own_folder(dir or None)
    gone = [deleted.as_dict() for deleted in purge(root, trash_days * 86_400.0)]
    for run in runs(dir):
        before = _size(run.dir)
        for path in run.log_files() if run.status not in OPEN else ():
            mend(path)
        if run.status not in OPEN and (removed := remove_unnamed(run.dir, run.log_files())):
            files[run.id] = removed
        if seal(run.dir, final=run.status not in OPEN, wait=True):
            report.append({"run": run.id, "bytes_before": before, "bytes_after": _size(run.dir)})
    if as_json:
        print(json_text({"sealed": report, "purged": gone, "media": files}))
    elif not report and not gone and not files:
        print("Nothing to do: every run that ended is sealed.")
    elif gone:
        print(f"{len(gone)} deleted runs were permanently removed.")
    for name, removed in () if as_json else files.items():
        print(f"{name}  {count(removed, 'media file')} without a record removed")
    for row in () if as_json else report:
        print(f"{row['run']}  {row['bytes_before']:,} → {row['bytes_after']:,} bytes")
    return 0


def _size(folder: Path) -> int:
    """Bytes of a run's sealed parts and block files."""
    files = (*folder.glob("store/*/*"), *folder.glob("*.wide"))
    return sum(path.stat().st_size for path in files if path.is_file())
