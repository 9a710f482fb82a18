"""The command `barograph report`.

In:   runs, the folder to write to, which forms are wanted, a price.
Out:  `report.html` and Markdown files in that folder; what was written, on the terminal; an exit code.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from barograph.analysis.compare.comparison import compare
from barograph.core.manifest import write_json
from barograph.core.record import json_text
from barograph.importing.resolve import resolve
from barograph.query.given import GivenRun, stored_runs
from barograph.query.stored import StoredRun
from barograph.views.report import markdown, webpage
from barograph.views.report.assemble import assemble
from barograph.views.report.content import FactList, Figure, Report, ReportFinding, ReportTable, Sentence, Tiles
from barograph.views.report.versus import versus

INDEX = "report.json"  # which files of the folder are a report's: those of an older one go


def run_report(
    paths: Sequence[str],
    *,
    dir: str | None = None,
    out: str | Path = "report",
    html_only: bool = False,
    markdown_only: bool = False,
    as_json: bool = False,
    price: float | None = None,
    devices: int | None = None,
) -> int:
    """`report` of the runs that words, folders and logs of any kind mean. Raises as `resolve` does."""

    runs: dict[Path, StoredRun] = {}
    for path in paths or [""]:
        for run, _ in resolve(path, dir):
            runs.setdefault(run.dir.resolve() / run.id, run)
    return report(
        list(runs.values()),
        Path(out),
        html_only=html_only,
        markdown_only=markdown_only,
        as_json=as_json,
        price=price,
        devices=devices,
    )


def report(
    runs: GivenRun | Iterable[GivenRun],
    out: str | os.PathLike[str] = "report",
    *,
    html_only: bool = False,
    markdown_only: bool = False,
    as_json: bool = False,
    price: float | None = None,
    devices: int | None = None,
) -> int:
    """Write the report of a run, or of several against each other; returns the exit code.

    runs: stored or open, their folders or ids, logs of any kind; one of these, or several in a list.
    out: the folder, made if missing. html_only, markdown_only: `report.html` alone, or the Markdown files alone.
    as_json: print the report's sentences and figures as JSON instead of what was written. price: of an hour of a
    device, in any currency; devices: how many the run held; the run's own where they are not given.
    Raises ValueError for no runs, both forms alone, a price below zero or a folder that is a file, KeyError for a run
    that is not there, OSError where it can't be written.
    """
    given, out = stored_runs(runs), Path(out)
    if not given:
        raise ValueError("there is no run to report on; name one, or try `barograph demo`")
    if html_only and markdown_only:
        raise ValueError("--html-only and --markdown-only leave nothing to write; give one of them")
    if price is not None and not 0 <= price < float("inf"):
        raise ValueError(f"a price of a device hour is 0 or more, not {price}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, and a report is a folder; name another with --out")
    if devices is not None and devices < 1:
        raise ValueError(f"a run holds 1 device or more, not {devices}")
    made = content(given, price, devices)
    files = {} if html_only else markdown.files(made)
    if not markdown_only:
        files["report.html"] = webpage.page(made)
    write(out, files)
    if as_json:
        told = as_dict(made) | {"out": str(out), "files": sorted(files)}
        print(json_text(told))
        return 0
    for name in ("report.html", "report.md"):
        if name in files:
            sections = f" and {len(files) - 1 - ('report.html' in files)} sections" if name == "report.md" else ""
            print(f"{out / name}: {len(files[name].encode()):,} bytes{sections}")
    if not markdown_only and webpage.script() is None:
        print(webpage.HOW_TO_BUILD, file=sys.stderr)
    return 0


def content(runs: Sequence[StoredRun], price: float | None = None, devices: int | None = None) -> Report:
    """What the report of a run says; of several runs, what their comparison says."""
    if len(runs) == 1:
        return assemble(runs[0], price, devices)

    return versus(compare(*runs))


def write(out: Path, files: dict[str, str]) -> None:
    """The files of a report into its folder; files of the report before that it no longer has are removed."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        earlier = json.loads((out / INDEX).read_bytes())
    except (OSError, ValueError, RecursionError):
        earlier = None
    listed = earlier.get("files") if isinstance(earlier, dict) else None
    for name in listed if isinstance(listed, list) else ():
        if isinstance(name, str) and name not in files and name == Path(name).name and name.endswith((".md", ".html")):
            (out / name).unlink(missing_ok=True)
    for name, text in files.items():
        temporary = out / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(out / name)
    write_json(out / INDEX, {"made_by": "barograph report", "files": sorted(files)})


def as_dict(made: Report) -> dict[str, Any]:
    """A report's sentences, facts, tables and findings as plain data; charts by their titles."""
    return {
        "title": made.title,
        "subtitle": made.subtitle,
        "sections": [
            {"slug": section.slug, "title": section.title, "blocks": [_block(block) for block in section.blocks]}
            for section in made.sections
        ],
    }


def _block(block: Any) -> dict[str, Any]:
    match block:
        case Sentence():
            return {"kind": "sentence", "text": block.text, "mood": block.mood, "source": block.source,
                    "figures": [_figure(figure) for figure in block.figures]}  # fmt: skip
        case FactList():
            return {"kind": "facts", "facts": [{"label": label} | _figure(item) for label, item in block.rows]}
        case Tiles():
            rows = [{"label": label, "about": words} | _figure(item) for label, item, words in block.rows]
            return {"kind": "tiles", "facts": rows}
        case ReportTable():
            rows_ = [[_figure(cell) if isinstance(cell, Figure) else cell for cell in row] for row in block.rows]
            return {"kind": "table", "label": block.label, "heads": list(block.heads), "rows": rows_}
        case ReportFinding():
            return {"kind": "finding", "number": block.number, "severity": block.severity, "rule": block.rule,
                    "step": block.step, "message": block.message}  # fmt: skip
    title = getattr(block, "title", None) or getattr(block, "label", None) or getattr(block, "text", "")
    return {"kind": type(block).__name__.lower(), "title": title}


def _figure(figure: Figure) -> dict[str, Any]:
    return {"text": figure.text, "value": figure.value, "source": figure.source}
