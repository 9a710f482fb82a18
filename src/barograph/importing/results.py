"""What was found to import and what came of it, as dictionaries and as lines of text.

In:   the paths that a user named; a run that was imported, with its tally.
Out:  `look`: the runs in the paths; `result` of one import, and the lines that say it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from barograph.core.text import escape
from barograph.importing.collect import Tally
from barograph.importing.registry import identify
from barograph.importing.source import FoundRun, ImportSource, Unread

Findings = list[tuple[ImportSource, FoundRun]]


def look(
    paths: Sequence[str | os.PathLike[str]], kind: str | None, root: Path
) -> tuple[Findings, list[Unread], list[str]]:
    """The runs in the paths, notes about what could not be looked at, and a sentence for each path without any."""
    findings: Findings = []
    problems: list[Unread] = []
    missing: list[str] = []
    for path in paths:
        notes: list[Unread] = []
        try:
            here = [item for item in identify(path, kind, notes) if not _is_inside(item[1].path, root)]
        except OSError as error:
            missing.append(f"{path}: {error.strerror or error}")
            continue
        if not here:
            missing.append(_nothing(Path(path), kind, notes))
        findings += here
        problems += notes
    return findings, problems, missing


def _is_inside(path: Path, root: Path) -> bool:
    """Whether a path lies in the folder of runs itself: those are stored already."""
    with contextlib.suppress(OSError, ValueError):
        return path.resolve().is_relative_to(root.resolve())
    return False


def _nothing(path: Path, kind: str | None, notes: list[Unread]) -> str:
    """Why nothing was found, with the first line of a file."""
    if notes:
        return f"{notes[0].file}: {notes[0].why}"
    what = f"a log of kind {kind}" if kind else "a training log of a known kind"
    if path.is_dir():
        return f"{path}: nothing in this folder is {what}"
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for number, line in enumerate(file.read(4096).splitlines(), 1):
            if line.strip():
                shown = line.strip()[:60].decode("utf-8", "replace")
                return f"{path}: not {what}; line {number} is {shown!r}"
        return f"{path}: the file is empty" if not path.stat().st_size else f"{path}: not {what}"
    return f"{path}: not {what}"


def result(source: ImportSource, run: FoundRun, folder: Path | None, project: str, tally: Tally) -> dict[str, Any]:
    """What came of one run."""
    told = asdict(tally)
    return {
        "kind": source.kind,
        "path": str(run.path),
        "key": run.key,
        "run": folder.name if folder else None,
        "project": project,
        "dir": str(folder) if folder else None,
        "new": {name: told[name] for name in ("points", "rows", "facts", "histograms", "restarts")},
        "last_step": tally.last_step,
        "unread": {"count": tally.unread, "examples": tally.examples},
        "replaced": tally.replaced,
        "failure": tally.failure,
        "busy": "",
    }


def result_lines(one: Mapping[str, Any]) -> list[str]:
    """A few lines about one imported run."""
    lines = [f"{one['kind']}  {escape(one['path'])}" + (f"  [{escape(one['key'])}]" if one["key"] else "")]
    if one["busy"]:
        return [*lines, f"  {escape(one['busy'])}; left to it"]
    if one["dir"]:
        lines.append(f"  → {escape(one['dir'])}")
        lines.append(f"  {_new(one)}")
    if one["replaced"]:
        lines.append("  the path held something else when it was imported before; that run stays as it was")
    lines += unread_lines(one["unread"])
    if one["failure"]:
        lines.append(f"  ! {escape(one['failure'])}")
    return lines


def _new(one: Mapping[str, Any]) -> str:
    new = one["new"]
    parts = [f"{new['points']:,} numbers in {new['rows']:,} rows"] if new["points"] else []
    words = ("histograms", "facts", "restarts")
    parts += [f"{new[what]:,} {what if new[what] > 1 else what[:-1]}" for what in words if new[what]]
    if not parts:
        return "nothing new"
    step = f", up to step {one['last_step']:,}" if one["last_step"] is not None else ""
    return "new: " + ", ".join(parts) + step


def unread_lines(unread: Mapping[str, Any]) -> list[str]:
    """What was not understood: how much, and a few examples."""
    if not unread["count"]:
        return []
    lines = [f"  ! {unread['count']:,} not understood" + (", such as" if unread["examples"] else "")]
    for example in unread["examples"]:
        where = f"{Path(example['file']).name}:{example['where']}" if example["where"] else Path(example["file"]).name
        text = f": {example['text']}" if example["text"] else ""
        lines.append(f"    {escape(where)}  {escape(example['why'])}{escape(text)[:100]}")
    return lines
