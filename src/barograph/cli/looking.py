"""Commands that show runs and hand their numbers out: ls, show, tail, export, gc.

In:   words typed by a person or a script.
Out:  text, or JSON with --json.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from barograph.cli.commands import Commands, count
from barograph.core.record import json_text
from barograph.core.text import escape


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add("ls", _ls, "look", "list the runs")
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only runs with these words, or a condition such as config.lr>1e-4"
    )
    commands.common(parser, run=False)
    parser.add_argument("--project", help="only this project's runs")
    parser.add_argument("--tag", help="only runs with this tag")
    parser.add_argument("--all", action="store_true", help="include archived runs")

    parser = commands.add("show", _show, "look", "show one run: settings, status, segments, metrics")
    commands.common(parser)
    parser.add_argument("--names", action="store_true", help="list the names of all series")
    parser.add_argument("--blackbox", action="store_true", help="show the last steps before something went wrong")

    parser = commands.add("tail", _tail, "look", "print a run's latest records, then new ones as they come")
    commands.common(parser)
    parser.add_argument("-n", "--lines", type=count, default=20, help="records to print first (default 20)")
    parser.add_argument("--no-follow", action="store_true", help="print and stop")

    parser = commands.add(
        "export", _export, "exchange", "write a run's metrics as CSV, JSON lines, Parquet, TensorBoard"
    )
    commands.common(parser, as_json=False)
    parser.add_argument(
        "--to", choices=("csv", "jsonl", "parquet", "tensorboard"), default="csv", help="the format (default csv)"
    )
    parser.add_argument("--out", type=Path, help="the file (default: RUN.FORMAT here)")
    parser.add_argument(
        "--layout", choices=("wide", "long"), help="wide: a row for each step; long: for each value (Parquet is long)"
    )
    parser.add_argument(
        "--series", action="append", default=[], metavar="PATTERN", help="only series such as 'train/*'"
    )
    parser.add_argument(
        "--branch",
        choices=("live", "all"),
        default="live",
        help="all: also steps that a resume or rewind replaced (default live)",
    )
    parser.add_argument("--partial", action="store_true", help="no error where files of the run are damaged or gone")

    parser = commands.add("gc", _gc, "keep", "compact the files of ended runs, empty the old trash")
    parser.add_argument(
        "--trash-days",
        type=count,
        default=30,
        metavar="N",
        help="remove runs that were deleted more than N days ago (default 30)",
    )
    commands.common(parser, run=False)


def _ls(options: argparse.Namespace) -> int:
    from barograph.query.catalog import runs
    from barograph.query.folders import place_name
    from barograph.query.search import choose
    from barograph.views import overview

    chosen_runs = [
        run for run in runs(options.dir, options.project, tag=options.tag) if options.all or not run.archived
    ]
    rows = [overview.summary(run) for run in (choose(chosen_runs, options.words) if options.words else chosen_runs)]
    if options.json:
        print(json_text(rows))
    elif not rows and chosen_runs:
        print(f"None of {len(chosen_runs):,} runs has that; `barograph ls` shows them all.")
    elif not rows:
        print(f"No runs in {place_name(options.dir or None)} yet. `barograph demo` makes one.")
    else:
        print(overview.table(rows))
    return 0


def _show(options: argparse.Namespace) -> int:
    from barograph.query.catalog import find
    from barograph.views import overview

    run = find(options.run, options.dir)
    if options.json:
        print(json_text(overview.detail(run)))
    elif options.blackbox:
        from barograph.training.blackbox.files import read_blackbox
        from barograph.views.blackbox import lines

        boxes = read_blackbox(run.dir)
        if not boxes:
            raise KeyError(f"{run.id} has no black box: no incident has written one")
        print("\n\n".join("\n".join(lines(box)) for box in boxes))
    elif options.names:
        print("\n".join(escape(name) for name in run.names()))
    else:
        print(overview.page(run))
    return 0


def _tail(options: argparse.Namespace) -> int:
    from barograph.query.catalog import find
    from barograph.views.follow import follow

    run = find(options.run, options.dir)
    console = None
    if options.json:
        from barograph.core.record import Record, encode

        def show(record: Record) -> None:
            print(encode(record).decode(), flush=True)
    else:
        from barograph.training.console.console import Console

        about = run.manifest
        console = Console(
            1, "plain", total_steps=about.get("total_steps"), total_tokens=about.get("total_tokens"), patient=True
        )
        show = console.draw
    wait = None if options.no_follow else lambda: time.sleep(0.2)
    for record in follow(run, options.lines, wait, drawn=not options.json):
        show(record)
        if console is not None and console.gone:
            return 0
    return 0


def _export(options: argparse.Namespace) -> int:
    from barograph.query.catalog import find
    from barograph.query.export import export
    from barograph.query.stored import missing

    run = find(options.run, options.dir)
    if options.to == "tensorboard":
        from fnmatch import fnmatchcase

        from barograph.trackers.send import copy_to_tensorboard

        out, patterns = options.out or Path(run.id), options.series
        path = run.log_files()[0] if Path(options.run).is_file() else run.dir
        wanted = (lambda name: any(fnmatchcase(name, pattern) for pattern in patterns)) if patterns else None
        print(f"{out}: {copy_to_tensorboard(path, out, wanted):,} rows")
        return 0
    out = options.out or Path(f"{run.id}.{options.to}")
    rows = export(run, options.to, out, layout=options.layout, patterns=tuple(options.series), branch=options.branch)
    print(f"{out}: {rows:,} rows")
    if missing(run) and not options.partial:
        print(f"barograph: {out} is not whole; --partial takes that for right", file=sys.stderr)
        return 1
    return 0


def _gc(options: argparse.Namespace) -> int:
    from barograph.core.liveness import OPEN
    from barograph.log.spool import carry_leftovers
    from barograph.log.write import mend
    from barograph.query.catalog import runs
    from barograph.query.folders import own_folder
    from barograph.query.trash import purge
    from barograph.store.seal import seal

    report: list[dict[str, Any]] = []
    carry_leftovers()
    root = own_folder(options.dir or None)
    gone = [deleted.as_dict() for deleted in purge(root, options.trash_days * 86_400.0)]
    for run in runs(options.dir):
        before = _size(run.dir)
        for path in run.log_files() if run.status not in OPEN else ():
            mend(path)
        if seal(run.dir, final=run.status not in OPEN, wait=True):
            report.append({"run": run.id, "bytes_before": before, "bytes_after": _size(run.dir)})
    if options.json:
        print(json_text({"sealed": report, "purged": gone}))
    elif not report and not gone:
        print("Nothing to do: every run that ended is sealed.")
    elif gone:
        print(f"{len(gone)} deleted runs were permanently removed.")
    for row in () if options.json else report:
        print(f"{row['run']}  {row['bytes_before']:,} → {row['bytes_after']:,} bytes")
    return 0


def _size(folder: Path) -> int:
    """Bytes of a run's sealed parts and block files."""
    files = (*folder.glob("store/*/*"), *folder.glob("*.wide"))
    return sum(path.stat().st_size for path in files if path.is_file())
