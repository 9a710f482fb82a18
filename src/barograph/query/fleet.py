"""Questions to a ClickHouse server that need no copy of its runs.

In:   an address, a run's id or project/id, names of series.
Out:  the table of its runs; a series, thinned as `StoredRun.series` thins it; a series over its ranks.

Series as in `StoredRun` by another x, and all other questions are asked of a copy: `barograph.runs(address)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy

from barograph.core.columns import thin_indices
from barograph.core.text import escape
from barograph.query.stored import Series
from barograph.store.clickhouse.address import parse_address
from barograph.store.clickhouse.answers import RankPoints, ServerRun, read_points, read_ranks, read_runs
from barograph.store.clickhouse.client import Client
from barograph.store.clickhouse.pull import list_runs
from barograph.store.clickhouse.registry import read_thinned
from barograph.store.clickhouse.schema import require


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The runs on a server: `Fleet("clickhouse://user@host:8123/database")`.

    Each question is asked of the server when it is called. All raise ValueError for a wrong address and ServerError (an
    OSError), with one sentence, where the server can't answer.
    """

    address: str

    def runs(self, metrics: Sequence[str] = (), project: str | None = None) -> list[ServerRun]:
        """All runs, the newest first, each with the last value of these series and its step."""
        with self._client() as client:
            return read_runs(client, metrics, project)

    def series(self, run: str, name: str, max_points: int | None = None, rank: int | None = None) -> Series:
        """One series of the live branch, sorted by step. run: id or project/id; name: in full; rank: None for the
        lowest that has it. max_points: as for `StoredRun.series`.

        Raises KeyError where there is no such run or series.
        """
        with self._client() as client:
            project, key = _find(client, run)
            step, time, value, segment, ranks = read_points(client, project, key, name, rank)
        if not len(step):
            raise KeyError(f"the run {run} has no series {escape(name)!r} on the server")
        if max_points is not None and len(step) > max_points:
            keep = thin_indices(value, max_points, step)
            step, time, value, segment, ranks = (column[keep] for column in (step, time, value, segment, ranks))
        return Series(name, step, value, step, numpy.asarray(time) / 1e6, segment, ranks)

    def ranks(self, run: str, name: str) -> RankPoints:
        """A series compared over its ranks at each step, by the server. Raises KeyError as `series`."""
        with self._client() as client:
            found = read_ranks(client, *_find(client, run), name)
        if not len(found.step):
            raise KeyError(f"the run {run} has no series {escape(name)!r} on the server")
        return found

    def thinned(self, run: str) -> str:
        """Which points of a run were removed from the server, "" if none were. Raises KeyError as `series`."""
        with self._client() as client:
            return read_thinned(client, *_find(client, run))

    def _client(self) -> Client:
        client = Client(parse_address(self.address))
        require(client)
        return client


def _find(client: Client, run: str) -> tuple[str, str]:
    found = [there for there in list_runs(client) if there.has_name(run)]
    if len(found) != 1:
        several = f"means {len(found)} runs; give project/id" if found else "means none of the runs"
        raise KeyError(f"{escape(run)!r} {several} on {client.address}")
    return found[0].project, found[0].run
