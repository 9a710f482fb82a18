"""Commands about runs on a ClickHouse server: push, pull, fleet.

In:   words typed by a person or a script.
Out:  runs sent and fetched; a server's tables made and looked at.
"""

from __future__ import annotations

import argparse
import sys

from barograph.cli.commands import Commands
from barograph.core.record import json_text

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
    from barograph.core.liveness import OPEN
    from barograph.query.catalog import find
    from barograph.store.clickhouse.address import parse_address
    from barograph.store.clickhouse.client import Client
    from barograph.store.clickhouse.push import push

    rows, complete = [], True
    with Client(parse_address(options.to)) as client:
        for run in [find(name, options.dir) for name in options.runs]:
            sent = push(run.dir, client, final=run.status not in OPEN)
            rows.append({"run": f"{run.project}/{run.dir.resolve().name}", **vars(sent)})
            complete = complete and not sent.left_out
            for sentence in sent.left_out:
                print(f"barograph: {run.id}: {sentence}; it was not sent", file=sys.stderr)
            if not options.json:
                files = f"{sent.files:,} file{'' if sent.files == 1 else 's'}"
                print(f"{rows[-1]['run']}: sent {sent.points:,} points, {sent.histograms:,} histograms, {files}")
    if options.json:
        print(json_text(rows))
    return 0 if complete else 1


def _pull(options: argparse.Namespace) -> int:
    from barograph.query.folders import own_folder
    from barograph.store.clickhouse.address import parse_address
    from barograph.store.clickhouse.client import Client
    from barograph.store.clickhouse.pull import list_runs, pull
    from barograph.store.clickhouse.schema import require

    root = own_folder(options.dir or None)
    rows = []
    with Client(parse_address(options.source)) as client:
        require(client)
        there = list_runs(client)
        wanted = there
        if options.runs:
            wanted = []
            for name in options.runs:
                found = [run for run in there if run.has_name(name)]
                if len(found) != 1:
                    several = f"means {len(found)} runs; give project/id" if found else "means none of the runs"
                    raise KeyError(f"{name!r} {several} on {client.address}")
                wanted += found
        for run in wanted:
            folder = pull(client, run, root)
            rows.append({"run": f"{run.project}/{run.run}", "dir": str(folder)})
            if not options.json:
                print(f"{run.project}/{run.run}: {folder}")
    if options.json:
        print(json_text(rows))
    return 0


def _fleet(options: argparse.Namespace) -> int:
    from barograph.store.clickhouse.address import parse_address
    from barograph.store.clickhouse.client import Client
    from barograph.store.clickhouse.schema import check, migrate

    with Client(parse_address(options.url)) as client:
        if options.action == "migrate":
            done = migrate(client)
            print(json_text(done) if options.json else "\n".join(done) or "The tables are up to date.")
            return 0
        found = check(client)
    print(json_text(found) if options.json else "\n".join(f"{name:<8} {value}" for name, value in found.items()))
    return 0
