"""Commands between Barograph and other tools: import, sync.

In:   words typed by a person or a script.
Out:  what was read or sent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from barograph.cli.commands import Commands
from barograph.core.options import BACKENDS


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add("import", _import, "exchange", "read other tools' logs and store them as runs")
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="files and folders of any known kind")
    parser.add_argument("--project", help="the project to store them in (default: as in the source)")
    parser.add_argument("--name", help="the run's name, if the paths hold one run")
    parser.add_argument("--kind", help="the kind of log, instead of detecting it")
    parser.add_argument("--aliases", type=Path, metavar="FILE", help="a YAML file with your names for metrics")
    parser.add_argument("--follow", action="store_true", help="keep reading while the other program writes")
    parser.add_argument("--dry-run", action="store_true", help="print what would be read, and write nothing")
    commands.common(parser, run=False)

    parser = commands.add("sync", _sync, "exchange", "send runs to W&B, Aim, TensorBoard, MLflow or Trackio")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    parser.add_argument("--to", required=True, choices=BACKENDS, help="the tracker to send to")
    parser.add_argument("--follow", action="store_true", help="keep sending while the run is written")
    parser.add_argument("--out", metavar="WHERE", help="the folder, project or address to send to")
    parser.add_argument("--name", metavar="NAME", help="the run's name there")
    commands.common(parser, run=False)


def _import(options: argparse.Namespace) -> int:
    from barograph.importing.command import run_import

    return run_import(
        options.paths,
        project=options.project,
        dir=options.dir,
        follow=options.follow,
        dry_run=options.dry_run,
        as_json=options.json,
        name=options.name,
        kind=options.kind,
        aliases=options.aliases,
    )


def _sync(options: argparse.Namespace) -> int:
    from barograph.trackers.commands import run_sync

    return run_sync(
        options.runs,
        options.to,
        dir=options.dir,
        follow=options.follow,
        out=options.out,
        name=options.name,
        as_json=options.json,
    )
