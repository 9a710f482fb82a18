"""The tables on a ClickHouse server, in one place: columns, order, codecs, versions.

In:   a client.
Out:  tables made or brought up to date (`migrate`); what a server is and lacks (`check`).

Nothing that is inserted counts by itself. Rows of numbers carry the number of their batch; a batch counts once a row of
`batches` names it, which is written when the server has confirmed all of its rows, and as long as no batch that covers
it does. Pieces of files count once a row of `files` names them. So an INSERT that was cut off, repeated, or came late
changes no answer, on any engine, merged or not.
"""

from __future__ import annotations

from typing import NamedTuple

from barograph.store.clickhouse.client import Client, ServerError, quote

VERSION = 1  # raised with each migration
_CODECS = (20, 1)  # the first version with all codecs used here
_LATER = "ReplacingMergeTree"


class ServerColumn(NamedTuple):
    """codec: where the server knows codecs."""

    name: str
    kind: str
    codec: str = "ZSTD(1)"


class ServerTable(NamedTuple):
    engine: str
    order: str
    columns: tuple[ServerColumn, ...]


_RUN = (ServerColumn("project", "String"), ServerColumn("run", "String"))
_ROW = (
    *_RUN,
    ServerColumn("name", "String"),
    ServerColumn("rank", "Int32", "Delta(4), ZSTD(1)"),
    ServerColumn("segment", "Int32", "Delta(4), ZSTD(1)"),
    ServerColumn("step", "Int64", "DoubleDelta, ZSTD(1)"),
    ServerColumn("seq", "UInt32", "ZSTD(1)"),  # of rows of one step, in the order logged
    ServerColumn("time", "Int64", "Delta(8), ZSTD(1)"),  # µs since 1970, UTC
    ServerColumn("batch", "UInt64", "ZSTD(1)"),
)
_ROW_ORDER = "project, run, name, rank, segment, step"

TABLES: dict[str, ServerTable] = {
    "points": ServerTable("MergeTree", _ROW_ORDER, (*_ROW, ServerColumn("value", "Float64", "Gorilla, ZSTD(1)"))),
    "histograms": ServerTable(
        "MergeTree",
        _ROW_ORDER,
        (*_ROW, ServerColumn("edges", "Array(Float64)"), ServerColumn("counts", "Array(Float64)")),
    ),
    # log: the log whose rows these are, without its suffix; kind: points or histograms; first, last: the numbers of the
    # sealed part; header: what the part says it holds, JSON; checksum: `checksum_sql` over the rows
    "batches": ServerTable(
        f"{_LATER}(batch)",
        "project, run, log, kind, first, last",
        (
            *_RUN,
            ServerColumn("log", "String"),
            ServerColumn("kind", "String"),
            ServerColumn("first", "UInt32"),
            ServerColumn("last", "UInt32"),
            ServerColumn("batch", "UInt64"),
            ServerColumn("rows", "UInt64"),
            ServerColumn("checksum", "UInt64"),
            ServerColumn("header", "String"),
        ),
    ),
    # a run's other files. grows: pieces are added to it; else it is replaced whole. epoch: the version of its oldest
    # piece. changed: when the file last changed, ns since 1970. gone: it was deleted
    "files": ServerTable(
        f"{_LATER}(version)",
        "project, run, file",
        (
            *_RUN,
            ServerColumn("file", "String"),
            ServerColumn("version", "UInt64"),
            ServerColumn("epoch", "UInt64"),
            ServerColumn("size", "UInt64"),
            ServerColumn("changed", "UInt64"),
            ServerColumn("grows", "UInt8"),
            ServerColumn("gone", "UInt8"),
            ServerColumn("sha256", "String"),
        ),
    ),
    "pieces": ServerTable(
        "MergeTree",
        "project, run, file, start, version",
        (
            *_RUN,
            ServerColumn("file", "String"),
            ServerColumn("start", "UInt64"),
            ServerColumn("version", "UInt64"),
            ServerColumn("size", "UInt64"),
            ServerColumn("content", "String", "ZSTD(6)"),
        ),
    ),
    "schema_versions": ServerTable("TinyLog", "", (ServerColumn("version", "UInt32"),)),
}

LIVE_BATCHES = """
SELECT project, run, log, kind, arrayJoin(arrayMap(x -> x.3, arrayFilter(
    x -> NOT arrayExists(y -> y.1 <= x.1 AND y.2 >= x.2 AND (y.2 - y.1 > x.2 - x.1 OR y.3 > x.3), parts),
    parts))) AS batch
FROM (SELECT project, run, log, kind, groupArray((first, last, batch)) AS parts
    FROM {batches} GROUP BY project, run, log, kind)
"""
"""The batches that count: of those with the same numbers the newest, and none that a wider one covers."""

VIEWS: dict[str, str] = {
    "live_batches": LIVE_BATCHES,
    "all_points": """
SELECT project, run, name, rank, segment, step, seq, time, value FROM {points}
WHERE batch IN (SELECT batch FROM {live_batches})
""",
}

_GRANTS = "CREATE DATABASE, CREATE TABLE, CREATE VIEW, SELECT, INSERT"


def migrate(client: Client) -> list[str]:
    """Bring the tables to today's version; what was done, a sentence each. Raises ServerError."""
    version = client.version()
    database = client.address.database
    done = []
    if not client.rows(f"SELECT 1 FROM system.databases WHERE name = {quote(database)}", False):
        client.run(f"CREATE DATABASE IF NOT EXISTS {database}", database=False)
        done.append(f"created the database {database}")
    held = held_version(client)
    if held > VERSION:
        raise ServerError(f"the tables in {database!r} are of a newer version of Barograph ({held})")
    if held < VERSION:
        for statement in statements(database, version):
            client.run(statement)
        client.run("INSERT INTO schema_versions VALUES", f"({VERSION})".encode())
        done.append(f"tables are at version {VERSION}")
    return done


def statements(database: str, version: tuple[int, int]) -> list[str]:
    """What makes the tables and views on a server of a version."""
    tables = [
        f"CREATE TABLE IF NOT EXISTS {database}.{name} {_definition(item, version)}" for name, item in TABLES.items()
    ]
    return tables + [
        f"CREATE VIEW IF NOT EXISTS {database}.{name} AS {_filled(select, database)}" for name, select in VIEWS.items()
    ]


def held_version(client: Client) -> int:
    """The version that the tables are at; 0: there are none."""
    database = quote(client.address.database)
    if not client.rows(f"SELECT 1 FROM system.tables WHERE database = {database} AND name = 'schema_versions'", False):
        return 0
    return int(client.rows("SELECT max(version) FROM schema_versions")[0][0])


def require(client: Client) -> None:
    """Raises ServerError where the server or its tables are not as they have to be."""
    client.version()
    database = client.address.database
    held = held_version(client)
    if not held:
        if not client.rows(f"SELECT 1 FROM system.databases WHERE name = {quote(database)}", False):
            raise ServerError(f"there is no database {database!r}; `barograph fleet migrate URL` creates it", 81)
        raise ServerError(f"the tables in {database!r} are missing; `barograph fleet migrate URL` creates them", 60)
    if held != VERSION:
        newer = "an older" if held < VERSION else "a newer"
        hint = "; `barograph fleet migrate URL` brings them up to date" if held < VERSION else "; update Barograph"
        raise ServerError(f"the tables in {database!r} are of {newer} version ({held}, not {VERSION}){hint}", 60)


def check(client: Client) -> dict[str, str]:
    """What the server is, as words: each thing that was looked at. Raises ServerError at the first that is wrong."""
    version = client.version()
    require(client)
    readonly = int(client.rows("SELECT toUInt8(value) FROM system.settings WHERE name = 'readonly'", False)[0][0])
    runs = client.rows("SELECT uniqExact((project, run)) FROM files")[0][0]
    size = client.rows(
        "SELECT sum(bytes), sumIf(rows, table = 'points'), sumIf(bytes, table = 'points') FROM system.parts "
        f"WHERE active AND database = {quote(client.address.database)}"
    )[0]
    per_point = f"{int(size[2]) / int(size[1]):.2f} bytes each" if int(size[1]) else "none yet"
    free = client.rows("SELECT value FROM system.asynchronous_metrics WHERE metric = 'DiskAvailable_default'", False)
    return {
        "server": f"ClickHouse {version[0]}.{version[1]} at {client.address.host}:{client.address.port}",
        "codecs": "by column" if version >= _CODECS else "the server's; from 20.1 on by column",
        "tables": f"version {VERSION}",
        "rights": "read" if readonly == 1 else f"read and write (needs {_GRANTS})",
        "runs": str(runs),
        "points": f"{size[1]} rows, {per_point}",
        "disk": f"{int(size[0]) / 1e6:.1f} MB used" + (f", {float(free[0][0]) / 1e9:.1f} GB free" if free else ""),
    }


def checksum_sql(kind: str) -> str:
    """A sum over rows that depends on every bit of each, and not on their order."""
    place = "toUInt64(step * 1000003 + time * 31 + segment * 7 + rank) * 2 + 1"
    if kind == "points":
        return f"sum(reinterpretAsUInt64(reinterpretAsString(value)) * ({place}))"
    weighted = "arrayMap((v, i) -> reinterpretAsUInt64(reinterpretAsString(v)) * (2 * i + 1), {0}, arrayEnumerate({0}))"
    edges, counts = (f"arraySum({weighted.format(name)})" for name in ("edges", "counts"))
    return f"sum(({edges} * 3 + {counts}) * ({place}))"


def _definition(table: ServerTable, version: tuple[int, int]) -> str:
    coded = version >= _CODECS
    columns = ", ".join(f"{item.name} {item.kind}{f' CODEC({item.codec})' if coded else ''}" for item in table.columns)
    order = f" ORDER BY ({table.order})" if table.order else ""
    return f"({columns}) ENGINE = {table.engine}{order}"


def _filled(select: str, database: str) -> str:
    names = {name: f"{database}.{name}" for name in (*TABLES, *VIEWS)}
    return select.format(**names).strip()
