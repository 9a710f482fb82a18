"""Runs removed from a server: those that a person names, or that ended long ago. Nothing is removed by itself.

In:   a client, which runs.
Out:  the runs that would go; the same without their rows.

A run that is removed and sent again is there again, whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from barograph.store.clickhouse.answers import ServerRun, read_runs
from barograph.store.clickhouse.batches import where
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.schema import TABLES, TablePlace

# what makes rows count goes first, so that a half-removed run is one that has not arrived
_ORDER = ("batches", "files", "summaries", "branches", "runs", "series", "histograms", "bucket_rows", "pieces")
_OPEN = ("", "running")


def chosen_runs(
    client: Client, names: Sequence[str] = (), project: str | None = None, older_than: float | None = None
) -> list[ServerRun]:
    """The runs of these ids or project/ids; or all that ended more than `older_than` days ago, by the server's clock.

    A run that is being written is never chosen by age. Raises KeyError for a name that means no run or several.
    """
    rows = read_runs(client, project=project)
    if older_than is not None:
        now = int(client.rows("SELECT toUnixTimestamp(now())", False)[0][0])
        latest = (now - older_than * 86_400) * 1_000_000
        return [row for row in rows if row.status not in _OPEN and 0 < row.finished < latest]
    chosen = []
    for name in names:
        found = [row for row in rows if name in (row.run, f"{row.project}/{row.run}")]
        if len(found) != 1:
            several = f"means {len(found)} runs; give project/id" if found else "means none of the runs"
            raise KeyError(f"{name!r} {several} on {client.address}")
        chosen += found
    return chosen


def remove(client: Client, project: str, run: str, timeout: float = 60.0) -> None:
    """Remove a run's rows from all tables. Raises ServerError; what was removed until then stays removed.

    The server does it in the background; this returns when the rows are gone, or after `timeout` seconds.
    """
    place = TablePlace.of(client)
    assert {*_ORDER, "schema_versions"} == set(TABLES)
    for table in _ORDER:
        client.run(f"ALTER TABLE {place.own(table)}{place.everywhere} DELETE WHERE {where(project, run)}")
    until = time.monotonic() + timeout
    for table in _ORDER:
        while time.monotonic() < until:
            if not int(client.rows(f"SELECT count() FROM {table} WHERE {where(project, run)}")[0][0]):
                break
            time.sleep(0.05)
