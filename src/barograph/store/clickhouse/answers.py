"""Questions that the server answers without a copy of the runs: one series, what its ranks have, very many runs.

In:   a client, a run's project and id, the names of series.
Out:  the same points and last values as a copy of the run gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from barograph.core.lazy import lazy
from barograph.store.branch import BEFORE_FORK
from barograph.store.clickhouse import native
from barograph.store.clickhouse.batches import arrived, unfold
from barograph.store.clickhouse.client import Client, quote
from barograph.store.clickhouse.registry import EVERY_STEP, LARGEST, Ancestor, lineage, live_rows, live_series
from barograph.store.clickhouse.schema import ONCE
from barograph.store.columns import Array

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")


class ServerPoints(NamedTuple):
    """Columns of a series, in the order of steps: step, time (µs since 1970), value, segment, rank, each [n]."""

    step: Array
    time: Array
    value: Array
    segment: Array
    rank: Array


class RankPoints(NamedTuple):
    """A series over its ranks, by step: how many have a value; lowest, mean, highest, and whose these are."""

    step: Array
    ranks: Array
    minimum: Array
    mean: Array
    maximum: Array
    lowest_rank: Array
    highest_rank: Array


class ServerRun(NamedTuple):
    """A run as its manifest has it, with last values. created, finished: µs since 1970, 0 where not known; thinned:
    what of its points was removed from the server, "" for nothing."""

    project: str
    run: str
    name: str
    status: str
    created: int
    finished: int
    tags: list[str]
    config: dict[str, Any]
    thinned: str
    last: dict[str, float]
    steps: dict[str, int]


def read_points(client: Client, project: str, run: str, name: str, rank: int | None = None) -> ServerPoints:
    """The points of a series that count: of one rank, by default the lowest that has any. Those that a fork took over
    have segment 0. Raises ServerError."""
    found = [_points_of(client, member, name, rank) for member in lineage(client, project, run)[::-1]]
    columns = ServerPoints(*(np.concatenate(each) for each in zip(*found, strict=True)))
    order = np.argsort(columns.step, kind="stable")
    return ServerPoints(*(column[order] for column in columns))


def _points_of(client: Client, member: Ancestor, name: str, rank: int | None) -> ServerPoints:
    rows = f"{_rows_of(client, member, name)} AND {live_rows(member.cuts)}"
    if rank is None:
        rank = int(client.rows(f"SELECT min(rank) FROM series WHERE {rows}")[0][0])
    answer = native.columns(
        client.run(
            "SELECT step, seq, time, segment, rank, single, double FROM series "
            f"WHERE {rows} AND rank = {rank} {ONCE['series']} FORMAT Native"
        )
    )
    if not answer or not len(answer["step"]):
        return ServerPoints(*(np.empty(0, kind) for kind in ("i8", "i8", "f8", "i4", "i4")))
    found = unfold(answer)
    ends = np.full(int(found["segment"].max()) + 1, EVERY_STEP)
    for segment, cut in (member.cuts or {}).items():
        if 0 < segment < len(ends):
            ends[segment] = cut
    order = np.lexsort((found["seq"], found["segment"], found["step"]))
    order = order[found["step"][order] < ends[found["segment"][order]]]
    if member.before is not None:
        order = order[found["step"][order] < member.before]
        found["segment"] = np.full(len(found["step"]), BEFORE_FORK, np.int32)
    return ServerPoints(*(found[column][order] for column in ServerPoints._fields))


def read_ranks(client: Client, project: str, run: str, name: str) -> RankPoints:
    """A series compared over its ranks by the server, at each step; of the finite values. Raises ServerError."""
    live = " UNION ALL ".join(
        live_series(member, _rows_of(client, member, name)) for member in lineage(client, project, run)
    )
    answer = native.columns(
        client.run(
            "SELECT step, toUInt64(count()) AS ranks, min(value) AS minimum, avg(value) AS mean, "
            "max(value) AS maximum, argMin(rank, value) AS lowest_rank, argMax(rank, value) AS highest_rank "
            f"FROM (SELECT rank, step, value FROM ({live}) ARRAY JOIN step, value) WHERE abs(value) <= {LARGEST} "
            "GROUP BY step ORDER BY step FORMAT Native"
        )
    )
    return RankPoints(*(answer.get(column, np.empty(0)) for column in RankPoints._fields))


def read_runs(client: Client, metrics: Sequence[str] = (), project: str | None = None) -> list[ServerRun]:
    """All runs, the newest first, each with the last value of these series. Raises ServerError."""
    chosen = f"WHERE project = {quote(project)}" if project is not None else ""
    latest = ", ".join(
        f"argMax({name}, version) AS latest_{name}"
        for name in ("name", "status", "created", "finished", "tags", "config", "thinned")
    )
    found = client.rows(
        f"SELECT project, run, {latest} FROM runs {chosen} GROUP BY project, run ORDER BY latest_created DESC, run"
    )
    held = _last_values(client, metrics, project) if metrics else {}
    result = []
    for group, key, name, status, created, finished, tags, config, thinned in found:
        last, steps = held.get((group, key), ({}, {}))
        result.append(ServerRun(
            group, key, name, status, int(created), int(finished), list(tags), msgspec.json.decode(config or "{}"),
            thinned, last, steps,
        ))  # fmt: skip
    return result


def _last_values(
    client: Client, metrics: Sequence[str], project: str | None
) -> dict[tuple[str, ...], tuple[dict[str, float], dict[str, int]]]:
    """By project and run the last values of series and their steps. A row a run and a column a series: of very many
    runs most of the time is spent on reading the answer's rows."""
    chosen = f" AND project = {quote(project)}" if project is not None else ""
    columns = "".join(
        f", countIf(name = {name}) AS count{place}, argMaxIf(last, version, name = {name}) AS value{place}, "
        f"argMaxIf(last_step, version, name = {name}) AS step{place}"
        for place, name in enumerate(map(quote, metrics))
    )
    answer = native.columns(client.run(
        f"SELECT project, run{columns} FROM summaries WHERE name IN ({', '.join(map(quote, metrics))}){chosen} "
        "GROUP BY project, run FORMAT Native"
    ))  # fmt: skip
    texts = ([text.decode("utf-8", "surrogatepass") for text in answer.get(name, ())] for name in ("project", "run"))
    found: dict[tuple[str, ...], tuple[dict[str, float], dict[str, int]]] = {
        key: ({}, {}) for key in zip(*texts, strict=True)
    }
    for place, metric in enumerate(metrics):
        columns_of = (answer.get(f"{name}{place}", np.empty(0)).tolist() for name in ("count", "value", "step"))
        for (last, steps), count, value, step in zip(found.values(), *columns_of, strict=True):
            if count:
                last[metric], steps[metric] = value, step
    return found


def _rows_of(client: Client, member: Ancestor, name: str) -> str:
    """A condition that the rows of a series fulfil which have arrived."""
    return f"{arrived(client, member.project, member.run)} AND name = {quote(name)}"
