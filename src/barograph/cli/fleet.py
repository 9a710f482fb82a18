"""Commands about runs on a ClickHouse server: push, pull, fleet.

In:   words typed by a person or a script.
Out:  runs sent and fetched; a server's tables made and looked at.
"""

from __future__ import annotations

import argparse

from barograph.cli.commands import Commands

_ADDRESS = "clickhouse://user@host:8123/database; the password is in BAROGRAPH_CLICKHOUSE_PASSWORD"


def add(commands: Commands) -> None:
    """Declare them."""
    parser = commands.add(
        "push", _push, "exchange", "send runs to a ClickHouse server", "What the server has is not sent again."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs' ids, names or folders")
    parser.add_argument("--to", required=True, metavar="URL", help=_ADDRESS)
    commands.common(parser, run=False)

    parser = commands.add(
        "pull", _pull, "exchange", "fetch runs from a ClickHouse server", "What is there is not fetched again."
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="runs as project/id, or ids; without any, all")
    parser.add_argument("--from", required=True, dest="source", metavar="URL", help=_ADDRESS)
    commands.common(parser, run=False)

    parser = commands.add("fleet", _fleet, "exchange", "make a server's tables, and look at a server")
    parser.add_argument(
        "action", choices=("check", "migrate"), help="look at it; make its tables or bring them up to date"
    )
    parser.add_argument("url", metavar="URL", help=_ADDRESS)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _push(options: argparse.Namespace) -> int:
    from barograph.views.tables.fleet import run_push

    return run_push(options.runs, options.to, dir=options.dir, as_json=options.json)


def _pull(options: argparse.Namespace) -> int:
    from barograph.views.tables.fleet import run_pull

    return run_pull(options.runs, options.source, dir=options.dir, as_json=options.json)


def _fleet(options: argparse.Namespace) -> int:
    from barograph.views.tables.fleet import run_fleet

    return run_fleet(options.action, options.url, as_json=options.json)
