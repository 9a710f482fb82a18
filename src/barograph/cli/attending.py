"""Commands about what is done beside a training: run, attend, ps.

In:   words typed by a person or a script.
Out:  a program with a sidecar around it; the work of a sidecar, done by hand; the sidecars of this host.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add(
        "run",
        _run,
        "run",
        "run any program, and record what it prints and writes as a run",
        "The program's output, input, signals and exit code are as without it: barograph run -- python train.py",
    )
    parser.add_argument("--project", help="the project (default: $BAROGRAPH_PROJECT, else default)")
    parser.add_argument("--name", help="the run's name (default: the program's, and the time)")
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="add a tag (may be repeated)")
    parser.add_argument(
        "--follow",
        action="append",
        default=[],
        metavar="PATH",
        help="also read this file or folder as it grows (may be repeated); files that the program keeps open are found",
    )
    parser.add_argument("--dir", help="the folder of runs (default: $BAROGRAPH_DIR, else runs)")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM …", help="the command line, behind --")

    parser = commands.add(
        "attend",
        _attend,
        "run",
        "complete runs whose background process was killed",
        "Writes their findings and columns, sends what trackers still lack, and marks their end.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    commands.common(parser, run=False)

    parser = commands.add("ps", _ps, "run", "list the background processes of runs on this machine")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(options: argparse.Namespace) -> int:
    from barograph.sidecar.program.command import run_run

    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise ValueError("which program? barograph run -- python train.py")
    given = {"project": options.project, "name": options.name, "dir": options.dir, "tags": options.tag or None}
    return run_run(program, {name: value for name, value in given.items() if value is not None}, options.follow)


def _attend(options: argparse.Namespace) -> int:
    from barograph.sidecar.attend import run_attend

    return run_attend(options.runs, dir=options.dir, as_json=options.json)


def _ps(options: argparse.Namespace) -> int:
    from barograph.sidecar.attend import run_ps

    return run_ps(as_json=options.json)
