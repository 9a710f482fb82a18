"""Commands between Barograph and other tools: import, sync.

In:   words typed by a person or a script.
Out:  what was read or sent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from barograph.cli.commands import Commands
from barograph.config import BACKENDS


def add(commands: Commands) -> None:
    """Declare them."""
    made = commands.add("import", _import, "read other tools' logs and keep them as runs")
    made.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="files and folders of any known kind")
    made.add_argument("--project", help="the project they go to (default: what the source says)")
    made.add_argument("--name", help="what to call the run, where it is one")
    made.add_argument("--kind", help="take the paths for this kind of log instead of finding out")
    made.add_argument("--aliases", type=Path, metavar="FILE", help="a YAML file with names of yours")
    made.add_argument("--follow", action="store_true", help="keep reading while the other program writes")
    made.add_argument("--dry-run", action="store_true", help="say what would be read, and write nothing")
    commands.common(made, run=False)

    made = commands.add("sync", _sync, "send runs to another tracker, live or after the fact, each point once")
    made.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    made.add_argument("--to", required=True, choices=BACKENDS, help="the tracker that gets a copy")
    made.add_argument("--follow", action="store_true", help="go on while the run is written")
    made.add_argument("--out", metavar="WHERE", help="the folder, project or address that gets it")
    made.add_argument("--name", metavar="NAME", help="what the run is called there")
    commands.common(made, run=False)


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
    from barograph.mirrors.sync import sync
    from barograph.reading.catalog import find

    found = [find(run, options.dir) for run in options.runs]
    folders = [
        one.log_files()[0] if Path(run).is_file() else one.dir for run, one in zip(options.runs, found, strict=True)
    ]
    return sync(folders, options.to, follow=options.follow, out=options.out, name=options.name, as_json=options.json)
