"""The command `barograph import`: find the runs in paths, store them, say what was and was not understood.

In:   paths and options as typed.
Out:  stored runs; text, or JSON; an exit code: 0 if everything that was found is stored, 1 if a path is missing
      or holds nothing that is understood, or a run could not be stored.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from barograph.core import options as config
from barograph.core.aliases import Alias, parse_aliases, read_aliases
from barograph.core.progress import progress
from barograph.core.record import json_text
from barograph.core.text import escape
from barograph.importing import folders
from barograph.importing.collect import Collector, SourceFailed, Tally
from barograph.importing.pursuit import pursue
from barograph.importing.registry import source_of
from barograph.importing.rehearsal import Rehearsal, rehearse
from barograph.importing.results import Findings, look, result, result_lines, unread_lines
from barograph.importing.source import FoundRun, ImportSource, Unread
from barograph.query.folders import own_folder

_SHOWN_NAMES = 12
_SHOWN_PROBLEMS = 5


def run_import(
    paths: Sequence[str | os.PathLike[str]],
    *,
    project: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    follow: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
    name: str | None = None,
    kind: str | None = None,
    aliases: str | os.PathLike[str] | None = None,
) -> int:
    """Import what is in the paths into the folder of runs; returns the exit code.

    project, name: instead of what the source says; a name fits one run alone. dir: the folder of runs (default
    `BAROGRAPH_DIR`, else `runs`). follow: keep reading until interrupted, or until every run has ended.
    dry_run: write nothing. kind: take the paths for this kind of log. aliases: a YAML file with `aliases`, which go
    before those of the option `aliases`.
    Raises ValueError with one sentence for an option that does not fit.
    """
    if kind:
        source_of(kind)
    root = own_folder(dir)
    known = parse_aliases(config.load().aliases, "the option aliases") | (read_aliases(aliases) if aliases else {})
    found, problems, missing = look(paths, kind, root)
    if name and len(found) > 1:
        raise ValueError(f"--name fits one run, but {len(found)} were found; leave it out or name one file")
    for sentence in missing:
        print(f"barograph: {sentence}", file=sys.stderr)
    if dry_run:
        _show_rehearsals([(source, item, rehearse(source, item, known)) for source, item in found], problems, as_json)
        return 1 if missing else 0
    if follow:
        return pursue(paths, root, project=project or "", name=name or "", kind=kind, aliases=known)
    results = _import_all(found, root, project or "", name or "", known)
    _show(results, problems, as_json)
    return 1 if missing or any(item["failure"] for item in results) else 0


# -- importing ---------------------------------------------------------------------------------------


def _import_all(
    findings: Findings, root: Path, project: str, name: str, aliases: Mapping[str, Alias] | None
) -> list[dict[str, Any]]:
    results = []
    sizes = [_size(item.path) for _, item in findings]
    many = f"{len(findings)} runs" if len(findings) != 1 else findings[0][1].name if findings else ""
    with progress(f"import {many}, MB", max(1.0, sum(sizes) / 1e6)) if findings else contextlib.nullcontext() as work:
        for (source, item), size in zip(findings, sizes, strict=True):
            done = 0.0

            def advance(state: Mapping[str, Any], size: float = size) -> None:
                nonlocal done
                offset = state.get("offset")
                if work is not None and isinstance(offset, (int, float)) and done < offset <= size:
                    work.advance((offset - done) / 1e6)
                    done = float(offset)

            results.append(import_one(source, item, root, project, name, aliases, advance))
            if work is not None:
                work.advance(max(0.0, size - done) / 1e6)
    return results


def import_one(
    source: ImportSource,
    run: FoundRun,
    root: Path,
    project: str,
    name: str,
    aliases: Mapping[str, Alias] | None,
    advance: Any = lambda state: None,
) -> dict[str, Any]:
    """Import one run; what came of it as plain data."""
    try:
        with Collector(source, run, root, project=project, name=name, aliases=aliases) as collector:
            failure = ""
            try:
                collector.read(advance)
            except SourceFailed as error:
                failure = str(error)
            folder = collector.finish(failure)
            return result(source, run, folder, collector.project, collector.tally)
    except folders.FolderBusy as busy:
        return result(source, run, None, project, Tally()) | {"busy": str(busy)}
    except OSError as error:
        where = error.filename or run.path
        return result(source, run, None, project, Tally(failure=f"{where}: {error.strerror or error}"))


def _size(path: Path) -> float:
    """Bytes of a file, or of the files in a folder."""
    try:
        if not path.is_dir():
            return float(path.stat().st_size)
        return float(sum(item.stat().st_size for item in list(path.iterdir())[:10_000] if item.is_file()))
    except OSError:
        return 0.0


# -- showing -----------------------------------------------------------------------------------------


def _show(results: list[dict[str, Any]], problems: list[Unread], as_json: bool) -> None:
    if as_json:
        print(json_text({"runs": results, "problems": [_fields(problem) for problem in problems]}))
        return
    for item in results:
        print("\n".join(result_lines(item)))
    _show_problems(problems)


def _show_problems(problems: list[Unread]) -> None:
    for problem in problems[:_SHOWN_PROBLEMS]:
        print(f"! {escape(problem.file)}: {escape(problem.why)}", file=sys.stderr)
    if len(problems) > _SHOWN_PROBLEMS:
        print(f"! … and {len(problems) - _SHOWN_PROBLEMS:,} more that could not be looked at", file=sys.stderr)


def _show_rehearsals(
    seen: list[tuple[ImportSource, FoundRun, Rehearsal]], problems: list[Unread], as_json: bool
) -> None:
    if as_json:
        runs = []
        for source, found, item in seen:
            about = {"kind": source.kind, "path": str(found.path), "key": found.key, "name": found.name}
            told = asdict(item) | {"x": sorted(item.x), "config": dict(found.config), "status": found.status}
            names = {name: {"series": series, "factor": factor} for name, (series, factor) in item.names.items()}
            runs.append(about | told | {"names": names})
        print(json_text({"runs": runs, "problems": [_fields(problem) for problem in problems]}))
        return
    for source, found, item in seen:
        print("\n".join(_rehearsal_lines(source, found, item)))
    _show_problems(problems)


def _rehearsal_lines(source: ImportSource, run: FoundRun, rehearsal: Rehearsal) -> list[str]:
    key = f"  [{escape(run.key)}]" if run.key else ""
    lines = [f"{source.kind}  {escape(run.path)}{key}"]
    steps = f", steps {rehearsal.first_step:,} to {rehearsal.last_step:,}" if rehearsal.last_step is not None else ""
    counted = "" if rehearsal.x <= {"step"} else f", placed by {' and '.join(sorted(rehearsal.x))}"
    lines.append(f"  {rehearsal.points:,} numbers in {rehearsal.rows:,} rows{steps}{counted}")
    for original, (series, factor) in sorted(rehearsal.names.items(), key=lambda item: item[1])[:_SHOWN_NAMES]:
        times = f" × {factor:g}" if factor != 1.0 else ""
        renamed = f"{escape(original)}{times} → {escape(series)}" if series != original else escape(original)
        lines.append(f"    {rehearsal.counts[original]:>9,}  {renamed}")
    if len(rehearsal.names) > _SHOWN_NAMES:
        lines.append(f"               … and {len(rehearsal.names) - _SHOWN_NAMES:,} more names")
    others = [f"{count:,} {kind}" for kind, count in sorted(rehearsal.facts.items())]
    others += [f"{rehearsal.histograms:,} histograms"] if rehearsal.histograms else []
    others += [f"{rehearsal.restarts:,} restarts"] if rehearsal.restarts else []
    if others:
        lines.append(f"  {', '.join(others)}")
    lines += unread_lines({"count": rehearsal.unread, "examples": rehearsal.examples})
    return [*lines, f"  ! {escape(rehearsal.failure)}"] if rehearsal.failure else lines


def _fields(unread: Unread) -> dict[str, Any]:
    return {"file": str(unread.file), "where": unread.where, "text": unread.text, "why": unread.why}
