"""The commands `barograph push`, `pull` and `fleet`.

In:   runs and an address as typed.
Out:  runs sent and fetched, a server's tables; lines of text, or JSON; an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from barograph.core.liveness import OPEN
from barograph.core.record import json_text
from barograph.core.text import count
from barograph.query.catalog import find
from barograph.query.folders import own_folder
from barograph.store.clickhouse.address import parse_address
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.pull import list_runs, pull
from barograph.store.clickhouse.push import push
from barograph.store.clickhouse.schema import check, migrate, require


def run_push(names: Sequence[str], to: str, *, dir: str | None = None, as_json: bool = False) -> int:
    """Send runs to a server; returns 0, or 1 where something of them could not be sent. Raises KeyError, ValueError and
    OSError with one sentence."""
    rows, complete = [], True
    with Client(parse_address(to)) as client:
        for run in [find(name, dir) for name in names]:
            sent = push(run.dir, client, final=run.status not in OPEN)
            rows.append({"run": f"{run.project}/{run.dir.resolve().name}", **vars(sent)})
            complete = complete and not sent.left_out
            for sentence in sent.left_out:
                print(f"barograph: {run.id}: {sentence}; it was not sent", file=sys.stderr)
            if not as_json:
                parts = (count(sent.points, "point"), count(sent.histograms, "histogram"), count(sent.files, "file"))
                print(f"{rows[-1]['run']}: sent {', '.join(parts)}")
    if as_json:
        print(json_text(rows))
    return 0 if complete else 1


def run_pull(names: Sequence[str], source: str, *, dir: str | None = None, as_json: bool = False) -> int:
    """Fetch runs from a server, all without names; returns the exit code 0. Raises as `run_push`."""
    root = own_folder(dir or None)
    rows = []
    with Client(parse_address(source)) as client:
        require(client)
        there = list_runs(client)
        wanted = there
        if names:
            wanted = []
            for name in names:
                found = [run for run in there if run.has_name(name)]
                if len(found) != 1:
                    several = f"means {len(found)} runs; give project/id" if found else "means none of the runs"
                    raise KeyError(f"{name!r} {several} on {client.address}")
                wanted += found
        for run in wanted:
            folder = pull(client, run, root)
            rows.append({"run": f"{run.project}/{run.run}", "dir": str(folder)})
            if not as_json:
                print(f"{run.project}/{run.run}: {folder}")
    if as_json:
        print(json_text(rows))
    return 0


def run_fleet(action: str, url: str, *, as_json: bool = False) -> int:
    """Look at a server (`check`), or make its tables (`migrate`); returns the exit code 0. Raises as `run_push`."""
    with Client(parse_address(url)) as client:
        if action == "migrate":
            done = migrate(client)
            print(json_text(done) if as_json else "\n".join(done) or "The tables are up to date.")
            return 0
        found = check(client)
    print(json_text(found) if as_json else "\n".join(f"{name:<8} {value}" for name, value in found.items()))
    return 0
