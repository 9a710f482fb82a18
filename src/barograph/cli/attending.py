"""Commands about what is done beside a training: attend, ps.

In:   words typed by a person or a script.
Out:  the work of a sidecar, done by hand; the sidecars of this host.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands


def add(commands: Commands) -> None:
    """Declare them."""
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


def _attend(options: argparse.Namespace) -> int:
    from barograph.sidecar.attend import run_attend

    return run_attend(options.runs, dir=options.dir, as_json=options.json)


def _ps(options: argparse.Namespace) -> int:
    from barograph.sidecar.attend import run_ps

    return run_ps(as_json=options.json)
