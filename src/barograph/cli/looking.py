"""Commands that show runs and hand their numbers out: ls, show, tail, export, gc.

In:   words typed by a person or a script.
Out:  text, or JSON with --json.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from barograph.cli.commands import Commands, count
from barograph.record import json_text


def add(commands: Commands) -> None:
    """Declare them."""
    made = commands.add("ls", _ls, "list the runs")
    made.add_argument("words", nargs="*", metavar="WORD", help="only runs that have these, or config.lr>1e-4")
    commands.common(made, run=False)
    made.add_argument("--project", help="only this project's runs")
    made.add_argument("--tag", help="only runs with this tag")
    made.add_argument("--all", action="store_true", help="archived runs too")

    made = commands.add("show", _show, "show what a run was and where it stands")
    commands.common(made)
    made.add_argument("--names", action="store_true", help="list every series")
    made.add_argument("--blackbox", action="store_true", help="the last steps before something went wrong")

    made = commands.add("tail", _tail, "print a run's latest records and follow it while it goes on")
    commands.common(made)
    made.add_argument("-n", "--lines", type=count, default=20, help="how many records to begin with (default 20)")
    made.add_argument("--no-follow", action="store_true", help="print and stop")

    made = commands.add("export", _export, "write a run's series to a file")
    commands.common(made, as_json=False)
    made.add_argument("--to", choices=("csv", "jsonl", "parquet", "tensorboard"), default="csv", help="default csv")
    made.add_argument("--out", type=Path, help="the file (default: RUN.FORMAT here)")
    made.add_argument("--layout", choices=("wide", "long"), help="a row a step or a point (Parquet: long)")
    made.add_argument("--series", action="append", default=[], metavar="PATTERN", help="only series such as 'train/*'")
    made.add_argument("--branch", choices=("live", "all"), default="live", help="all: superseded steps too")

    made = commands.add("gc", _gc, "seal what ended or killed runs left unsealed, clear leftovers and old trash")
    made.add_argument("--trash-days", type=count, default=30, metavar="N", help="deleted runs kept (default 30 days)")
    commands.common(made, run=False)


def _ls(options: argparse.Namespace) -> int:
    from barograph.keeping.search import choose
    from barograph.reading import overview
    from barograph.reading.catalog import runs

    found = [run for run in runs(options.dir, options.project, tag=options.tag) if options.all or not run.archived]
    rows = [overview.summary(run) for run in (choose(found, options.words) if options.words else found)]
    if options.json:
        print(json_text(rows))
    elif not rows and found:
        print(f"None of {len(found):,} runs has that; `barograph ls` shows them all.")
    elif not rows:
        where = options.dir or os.environ.get("BAROGRAPH_DIR", "runs")
        print(f"No runs in {where} yet. `barograph demo` makes one.")
    else:
        print(overview.table(rows))
    return 0


def _show(options: argparse.Namespace) -> int:
    from barograph.reading import overview
    from barograph.reading.catalog import find

    run = find(options.run, options.dir)
    if options.json:
        print(json_text(overview.detail(run)))
    elif options.blackbox:
        from barograph.blackbox.files import read
        from barograph.blackbox.table import lines

        boxes = read(run.dir)
        if not boxes:
            raise KeyError(f"{run.id} has no black box: nothing went wrong that would have written one")
        print("\n\n".join("\n".join(lines(box)) for box in boxes))
    elif options.names:
        print("\n".join(overview.printable(name) for name in run.names()))
    else:
        print(overview.page(run))
    return 0


def _tail(options: argparse.Namespace) -> int:
    from barograph.reading.catalog import find
    from barograph.reading.follow import follow

    run = find(options.run, options.dir)
    console = None
    if options.json:
        from barograph.record import Record, encode

        def show(record: Record) -> None:
            print(encode(record).decode(), flush=True)
    else:
        from barograph.sinks.console import Console

        about = run.manifest
        console = Console(1, total_steps=about.get("total_steps"), total_tokens=about.get("total_tokens"), patient=True)
        show = console.draw
    wait = None if options.no_follow else lambda: time.sleep(0.2)
    for record in follow(run, options.lines, wait, drawn=not options.json):
        show(record)
        if console is not None and console.gone:
            return 0
    return 0


def _export(options: argparse.Namespace) -> int:
    from barograph.reading.catalog import find
    from barograph.reading.export import export

    run = find(options.run, options.dir)
    if options.to == "tensorboard":
        from fnmatch import fnmatchcase

        from barograph.mirrors.send import copy_to_tensorboard

        out, patterns = options.out or Path(run.id), options.series
        path = run.log_files()[0] if Path(options.run).is_file() else run.dir
        wanted = (lambda name: any(fnmatchcase(name, one) for one in patterns)) if patterns else None
        print(f"{out}: {copy_to_tensorboard(path, out, wanted):,} rows")
        return 0
    out = options.out or Path(f"{run.id}.{options.to}")
    rows = export(run, options.to, out, layout=options.layout, patterns=tuple(options.series), branch=options.branch)
    print(f"{out}: {rows:,} rows")
    return 0


def _gc(options: argparse.Namespace) -> int:
    from barograph.keeping.trash import purge
    from barograph.liveness import OPEN
    from barograph.reading.catalog import DEFAULT_DIR, runs
    from barograph.spool import carry_leftovers
    from barograph.store.seal import seal

    report: list[dict[str, Any]] = []
    carry_leftovers()
    root = Path(options.dir or os.environ.get("BAROGRAPH_DIR", DEFAULT_DIR))
    gone = [one.as_dict() for one in purge(root, options.trash_days * 86_400.0)]
    for run in runs(options.dir):
        for folder in sorted((run.dir / "store").glob("*/")):
            before = _size(folder)
            seal(folder, closed=run.status not in OPEN, wait=True)
            if (after := _size(folder)) != before:
                report.append({"run": run.id, "writer": folder.name, "bytes_before": before, "bytes_after": after})
    if options.json:
        print(json_text({"sealed": report, "purged": gone}))
    elif not report and not gone:
        print("Nothing to do: every run that ended is sealed.")
    elif gone:
        print(f"{len(gone)} deleted runs are gone for good.")
    for row in () if options.json else report:
        print(f"{row['run']}  {row['bytes_before']:,} → {row['bytes_after']:,} bytes")
    return 0


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
