"""Tables made on a server, or brought from an older version to today's.

In:   a client.
Out:  the tables of `schema.py`, with all that the older ones had.

Before version 3 each point was a row of `points`. Its batches are copied to `series` under new numbers, which may be
cut off anywhere and repeated: a new number counts once all of its rows stand, and is not used again where they don't.
"""

from __future__ import annotations

import dataclasses

from barograph.store.clickhouse.batches import SentBatch, batch_rows, read_batches, where
from barograph.store.clickhouse.client import Client, ServerError, quote
from barograph.store.clickhouse.schema import (
    BLOCK,
    TABLES,
    VERSION,
    VIEWS,
    TablePlace,
    checksum_sql,
    count_sql,
    held_version,
    statements,
)

# columns that came to a table with a later version
_ADDED = {
    ("files", "origin"): 2,
    ("pieces", "zstd"): 3,
    ("runs", "thinned"): 4,
    ("runs", "origin"): 4,
    ("branches", "history"): 4,
}
_AT_ONCE = 2_000_000  # points in one INSERT, which the server holds in memory
_FORMER = "reinterpretAsUInt64(reinterpretAsString(v))"  # in place of cityHash64(v) in a checksum


def migrate(client: Client) -> list[str]:
    """Bring the tables to today's version; what was done, a sentence each. Raises ServerError.

    On a cluster with a coordinator (ZooKeeper, Keeper) those of all its servers, else of this one.
    """
    version = client.version()
    place = TablePlace.of(client)
    database = client.address.database
    done = []
    if not client.rows(f"SELECT 1 FROM system.databases WHERE name = {quote(database)}", False):
        client.run(f"CREATE DATABASE IF NOT EXISTS {database}{place.everywhere}", database=False)
        done.append(f"created the database {database}")
    held = held_version(client)
    if held > VERSION:
        raise ServerError(f"the tables in {database!r} are of a newer version of Barograph ({held})")
    if held < VERSION:
        for statement in [*_alterations(client, held, place), *statements(place, version)]:
            client.run(statement)
        if 0 < held < 3:
            _convert_points(client, place)
        client.run(f"INSERT INTO {place.own('schema_versions')} VALUES", f"({VERSION})".encode())
        done.append(f"tables are at version {VERSION}")
    if place.cluster and not place.coordinated:
        others = [str(row[0]) for row in client.rows(
            f"SELECT DISTINCT host_name FROM system.clusters WHERE cluster = {quote(place.cluster)} AND NOT is_local",
            False)]  # fmt: skip
        done.append(
            f"the cluster {place.cluster} has no coordinator: run this at its other servers too ({', '.join(others)})"
        )
    return done


def _alterations(client: Client, held: int, place: TablePlace) -> list[str]:
    """What brings tables of an older version to today's columns; views are made anew."""
    if not held:
        return []
    there = {
        (table, column)
        for table, column in client.rows(
            f"SELECT table, name FROM system.columns WHERE database = {quote(place.database)}", False
        )
    }
    needed, tables = [], {table for table, _ in there}
    for (table, column), since in _ADDED.items():
        for name in {place.own(table), f"{place.database}.{table}"} if since > held else ():
            own = name.partition(".")[2]
            if own in tables and (own, column) not in there:
                kind = _kind_of(table, column)
                needed.append(f"ALTER TABLE {name}{place.everywhere} ADD COLUMN {column} {kind}")
    return needed + [f"DROP TABLE IF EXISTS {place.database}.{name}{place.everywhere}" for name in VIEWS]


def _kind_of(table: str, column: str) -> str:
    return next(item.kind for item in TABLES[table].columns if item.name == column)


def _convert_points(client: Client, place: TablePlace) -> None:
    """Raises ServerError; repeated, it goes on."""
    source, target, held = (
        f"{place.database}.{name}" if place.coordinated else place.own(name) for name in ("points", "series", "batches")
    )
    for project, run in client.rows(f"SELECT DISTINCT project, run FROM {held} WHERE kind = 'points'"):
        for batch in read_batches(client, project, run)[0]:
            about = where(project, run)
            rows = f"{source} WHERE {about} AND batch = {batch.number}"
            if batch.file.table == "points" and int(client.rows(f"SELECT count() FROM {rows}")[0][0]):
                number = _copy(client, rows, target, about, batch)
                checksum = client.rows(
                    f"SELECT {checksum_sql('points')} FROM {target} WHERE {about} AND batch = {number}"
                )
                copied = dataclasses.replace(batch, number=number, checksum=int(checksum[0][0]))
                row = batch_rows(project, run, [copied])
                client.run(f"INSERT INTO {held} FORMAT Native", row)
    for name in {place.own("points"), f"{place.database}.points"}:
        client.run(f"DROP TABLE IF EXISTS {name}{place.everywhere}")


def _copy(client: Client, rows: str, target: str, about: str, batch: SentBatch) -> int:
    """The number under which a batch's points are in `series`."""
    number = batch.number + 1
    while int(client.rows(f"SELECT count() FROM {target} WHERE {about} AND batch = {number}")[0][0]):
        number += 1
    names: list[str] = []
    points = 0
    series = client.rows(f"SELECT name, count() FROM {rows} GROUP BY name ORDER BY name")
    for place, (name, count) in enumerate(series):
        names.append(quote(name))
        points += int(count)
        if points >= _AT_ONCE or place == len(series) - 1:
            client.run(_insert(f"{rows} AND name IN ({', '.join(names)})", target, number))
            names, points = [], 0
    found = client.rows(
        f"SELECT {count_sql('points')}, {checksum_sql('points', _FORMER)} FROM {target} "
        f"WHERE {about} AND batch = {number}"
    )[0]
    if [int(value) for value in found] != [batch.rows, batch.checksum]:
        raise ServerError(f"the points of batch {batch.number} are not as they were sent; they stay in `points`")
    return number


def _insert(rows: str, target: str, number: int) -> str:
    arrays = ("step", "seq", "time", "value")
    gathered = ", ".join(f"groupArray({name}) AS {name}s" for name in arrays)
    sliced = ", ".join(f"arraySlice({name}s, part * {BLOCK} + 1, {BLOCK}) AS {name}_part" for name in arrays)
    return (
        f"INSERT INTO {target} (project, run, name, batch, rank, segment, first, step, seq, time, single, double) "
        f"SELECT project, run, name, toUInt64({number}), rank, segment, step_part[1], step_part, seq_part, time_part, "
        "if(exact, arrayMap(v -> toFloat32(v), value_part), emptyArrayFloat32()), "
        "if(exact, emptyArrayFloat64(), value_part) FROM ("
        f"SELECT project, run, name, rank, segment, {sliced}, "
        "arrayAll(v -> toFloat64(toFloat32(v)) = v, value_part) AS exact FROM ("
        f"SELECT project, run, name, rank, segment, {gathered} FROM ("
        f"SELECT * FROM {rows} ORDER BY name, rank, segment, step, seq) GROUP BY project, run, name, rank, segment"
        f") ARRAY JOIN range(toUInt64(intDiv(length(steps) + {BLOCK - 1}, {BLOCK}))) AS part) SETTINGS max_threads = 1"
    )
