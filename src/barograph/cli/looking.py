"""Commands that show runs and hand their numbers out: ls, show, tail, export, gc.

In:   words typed by a person or a script.
Out:  text, or JSON with --json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from barograph.cli.commands import Commands, count


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
    parser.add_argument(
        "--group",
        metavar="KEY",
        help="a row for each group of runs: keys such as lr or model.width,lr; project; 'all but seed'",
    )

    parser = commands.add("show", _show, "look", "show one run: settings, status, segments, metrics")
    commands.common(parser)
    parser.add_argument("--names", action="store_true", help="list the names of all series")
    parser.add_argument("--media", action="store_true", help="list its images, sounds, tables and other files")
    parser.add_argument("--blackbox", action="store_true", help="show the last steps before something went wrong")

    parser = commands.add("tail", _tail, "look", "print a run's latest records, then new ones as they come")
    commands.common(parser)
    parser.add_argument("-n", "--lines", type=count, default=20, help="records to print first (default 20)")
    parser.add_argument("--no-follow", action="store_true", help="print and stop")

    parser = commands.add(
        "export", _export, "exchange", "write a run's metrics as CSV, JSON, Parquet, TensorBoard; its media"
    )
    commands.common(parser, as_json=False)
    parser.add_argument(
        "--to",
        choices=("csv", "jsonl", "parquet", "tensorboard", "media"),
        default="csv",
        help="the format (default csv); media: images, sounds, tables and other files, into a folder",
    )
    parser.add_argument("--out", type=Path, help="the file or folder, - for standard output (default: RUN.FORMAT here)")
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
    from barograph.views.tables.listing import run_ls

    return run_ls(
        options.words,
        dir=options.dir,
        project=options.project,
        tag=options.tag,
        archived=options.all,
        group=options.group,
        as_json=options.json,
    )


def _show(options: argparse.Namespace) -> int:
    from barograph.views.tables.listing import run_show

    return run_show(
        options.run,
        dir=options.dir,
        blackbox=options.blackbox,
        names=options.names,
        media=options.media,
        as_json=options.json,
    )


def _tail(options: argparse.Namespace) -> int:
    from barograph.views.follow import run_tail

    return run_tail(options.run, dir=options.dir, lines=options.lines, stay=not options.no_follow, as_json=options.json)


def _export(options: argparse.Namespace) -> int:
    from barograph.trackers.commands import run_export

    return run_export(
        options.run,
        options.to,
        dir=options.dir,
        out=options.out,
        layout=options.layout,
        patterns=options.series,
        branch=options.branch,
        partial=options.partial,
    )


def _gc(options: argparse.Namespace) -> int:
    from barograph.views.tables.compacting import run_gc

    return run_gc(dir=options.dir, trash_days=options.trash_days, as_json=options.json)
