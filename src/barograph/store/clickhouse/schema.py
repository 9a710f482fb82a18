"""The tables on a ClickHouse server, in one place: columns, order, codecs, versions.

In:   a client.
Out:  the statements that make them; what a server is and lacks (`check`).

On a cluster each server has its share in a table NAME_local, and NAME is a Distributed table over all of them. A run is
on one shard.

A row of `series` has up to `BLOCK` consecutive points of a series, as arrays. Series that are logged together have the
same steps and times, and stand beside each other in the table's order: so each array of steps or times is compressed to
almost nothing, on every version. Values that a Float32 has exactly, as those of tensors, are stored as such.

Nothing that is inserted counts by itself. Rows of numbers carry the number of their batch; a batch counts once a row of
`batches` names it, which is written when the server has confirmed all of its rows, and as long as no batch that covers
it does. Pieces of files count once a row of `files` names them. What stands twice in a batch, because something between
the sender and the server repeated an INSERT, is read once (`ONCE`). So an INSERT that was cut off, repeated, or came
late changes no answer, on any engine, merged or not.
"""

from __future__ import annotations

from typing import NamedTuple

from barograph.store.clickhouse.client import Client, ServerError, quote

VERSION = 5  # raised with each migration
_CODECS = (20, 1)  # the first version with all codecs used here
_LATER = "ReplacingMergeTree"
_SHARD = ", cityHash64(project, run)"  # a run is on one shard


class ServerColumn(NamedTuple):
    """codec: where the server knows codecs."""

    name: str
    kind: str
    codec: str = "ZSTD(1)"


class ServerTable(NamedTuple):
    engine: str
    order: str
    columns: tuple[ServerColumn, ...]
    granularity: int = 8192  # rows: the least that is read at once


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
    # first: the first step; step, seq, time: of each point, as of each histogram; its value: in either single or double
    "series": ServerTable(
        "MergeTree",
        "project, run, rank, segment, first, name",
        (
            *_RUN,
            ServerColumn("name", "String"),
            ServerColumn("batch", "UInt64"),
            ServerColumn("rank", "Int32"),
            ServerColumn("segment", "Int32"),
            ServerColumn("first", "Int64"),
            ServerColumn("step", "Array(Int64)", "DoubleDelta, ZSTD(1)"),
            ServerColumn("seq", "Array(UInt32)"),
            ServerColumn("time", "Array(Int64)", "Delta(8), ZSTD(1)"),
            ServerColumn("single", "Array(Float32)", "Gorilla, ZSTD(1)"),
            ServerColumn("double", "Array(Float64)", "Gorilla, ZSTD(1)"),
        ),
        32,
    ),
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
    # piece. changed: when the file last changed, ns since 1970. gone: it was deleted. origin: `origin_of`
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
            ServerColumn("origin", "String"),
        ),
    ),
    # size: of what content is; zstd: content is compressed
    "pieces": ServerTable(
        "MergeTree",
        "project, run, file, start, version",
        (
            *_RUN,
            ServerColumn("file", "String"),
            ServerColumn("start", "UInt64"),
            ServerColumn("version", "UInt64"),
            ServerColumn("size", "UInt64"),
            ServerColumn("content", "String", "NONE"),
            ServerColumn("zstd", "UInt8"),
        ),
    ),
    # the runs, as their manifests have them. created, finished: µs since 1970, 0 where it is not known; config: JSON;
    # inherits: series go on from those of another run; origin: which, JSON; thinned: a sentence, where points were
    # removed by `fleet thin`
    "runs": ServerTable(
        f"{_LATER}(version)",
        "project, run",
        (
            *_RUN,
            ServerColumn("version", "UInt64"),
            ServerColumn("name", "String"),
            ServerColumn("status", "String"),
            ServerColumn("created", "Int64"),
            ServerColumn("finished", "Int64"),
            ServerColumn("world_size", "UInt32"),
            ServerColumn("inherits", "UInt8"),
            ServerColumn("tags", "Array(String)"),
            ServerColumn("config", "String"),
            ServerColumn("origin", "String"),
            ServerColumn("thinned", "String"),
        ),
    ),
    # what the points were of which `thin` has left some: see `store.thin.Bucket`
    "bucket_rows": ServerTable(
        "MergeTree",
        "project, run, name, rank, segment, bucket",
        (
            *_RUN,
            ServerColumn("name", "String"),
            ServerColumn("rank", "Int32"),
            ServerColumn("segment", "Int32"),
            ServerColumn("bucket", "Int64"),
            ServerColumn("live", "UInt8"),
            ServerColumn("points", "UInt64"),
            ServerColumn("finite", "UInt64"),
            ServerColumn("sum", "Float64"),
            ServerColumn("minimum", "Float64"),
            ServerColumn("maximum", "Float64"),
            ServerColumn("first_step", "Int64"),
            ServerColumn("first", "Float64"),
            ServerColumn("last_step", "Int64"),
            ServerColumn("last", "Float64"),
            ServerColumn("batch", "UInt64"),
        ),
    ),
    # points of a segment count before its cut; of a segment that is not named none do, but all of segment 0. history:
    # the segments and the first step of each, JSON: of which the cuts at an earlier time follow
    "branches": ServerTable(
        f"{_LATER}(version)",
        "project, run",
        (
            *_RUN,
            ServerColumn("version", "UInt64"),
            ServerColumn("segments", "Array(Int32)"),
            ServerColumn("cuts", "Array(Int64)"),
            ServerColumn("history", "String"),
        ),
    ),
    # of the points that count of the lowest rank that has the series. points: how many, of these finite: those with a
    # minimum; last: the last value, finite or not
    "summaries": ServerTable(
        f"{_LATER}(version)",
        "name, project, run",  # asked for by name, over all runs
        (
            *_RUN,
            ServerColumn("name", "String"),
            ServerColumn("version", "UInt64"),
            ServerColumn("rank", "Int32"),
            ServerColumn("points", "UInt64"),
            ServerColumn("finite", "UInt64"),
            ServerColumn("first_step", "Int64"),
            ServerColumn("last_step", "Int64"),
            ServerColumn("last_time", "Int64"),
            ServerColumn("last", "Float64"),
            ServerColumn("minimum", "Float64"),
            ServerColumn("maximum", "Float64"),
            ServerColumn("mean", "Float64"),
        ),
    ),
    "schema_versions": ServerTable("MergeTree", "version", (ServerColumn("version", "UInt32"),)),
}

TABLE_OF = {"points": "series", "histograms": "histograms"}  # kind of a sealed part → where its rows are
_KEY = {"series": "name, rank, segment, first, seq[1]", "histograms": "name, rank, segment, step, seq",
        "bucket_rows": "name, rank, segment, bucket, live"}  # fmt: skip
ONCE = {table: f"LIMIT 1 BY project, run, batch, {key}" for table, key in _KEY.items()}  # behind WHERE and ORDER BY
BLOCK = 1024  # points of a series in one row
VALUE = "arrayConcat(arrayMap(x -> toFloat64(x), single), double)"  # of a row of `series`: all values

LIVE_BATCHES = """
SELECT project, run, log, kind, arrayJoin(arrayMap(x -> x.3, arrayFilter(
    x -> NOT arrayExists(y -> y.1 <= x.1 AND y.2 >= x.2 AND (y.2 - y.1 > x.2 - x.1 OR y.3 > x.3), parts),
    parts))) AS batch
FROM (SELECT project, run, log, kind, groupUniqArray((first, last, batch)) AS parts
    FROM {batches} GROUP BY project, run, log, kind)
"""
"""The batches that count: of those with the same numbers the newest, and none that a wider one covers."""

VIEWS: dict[str, str] = {
    "live_batches": LIVE_BATCHES,
    "all_points": """
SELECT project, run, name, rank, segment, step, seq, time, value FROM (
    SELECT project, run, name, rank, segment, step, seq, time, """
    + VALUE
    + """ AS value FROM {series}
    WHERE batch {IN} (SELECT batch FROM {live_batches})
    """
    + ONCE["series"]
    + """
) ARRAY JOIN step, seq, time, value
""",
    "live_points": """
SELECT project, run, name, rank, segment, step, seq, time, value FROM {all_points}
ANY LEFT JOIN (
    SELECT project, run, number AS segment, step_before FROM (
        SELECT project, run, argMax(segments, version) AS numbers, argMax(cuts, version) AS steps_before
        FROM {branches} GROUP BY project, run
    ) ARRAY JOIN numbers AS number, steps_before AS step_before
) AS branch USING (project, run, segment)
WHERE segment = 0 OR step < step_before
""",
    "buckets": """
SELECT project, run, name, rank, segment, bucket, live, all_points AS points, all_finite AS finite,
    if(all_finite = 0, nan, total) AS sum, if(all_finite = 0, nan, lowest) AS minimum,
    if(all_finite = 0, nan, highest) AS maximum, first_value AS first, last_value AS last
FROM (SELECT project, run, name, rank, segment, bucket, live, sum(points) AS all_points, sum(finite) AS all_finite,
    sum(sum) AS total, minIf(minimum, finite > 0) AS lowest, maxIf(maximum, finite > 0) AS highest,
    argMin(first, (first_step, batch)) AS first_value, argMax(last, (last_step, batch)) AS last_value
    FROM (SELECT * FROM {bucket_rows} WHERE batch {IN} (SELECT batch FROM {live_batches})
    """
    + ONCE["bucket_rows"]
    + """)
    GROUP BY project, run, name, rank, segment, bucket, live)
""",
    "last_values": """
SELECT project, run, name, argMax(last, version) AS value, argMax(last_step, version) AS step FROM {summaries}
GROUP BY project, run, name
""",
}

_GRANTS = "CREATE DATABASE, CREATE TABLE, CREATE VIEW, SELECT, INSERT"


class TablePlace(NamedTuple):
    """Where tables are made. coordinated: the cluster has a coordinator, so that statements reach all of its servers,
    and shards of several servers have the same rows."""

    database: str
    cluster: str = ""
    coordinated: bool = False

    @classmethod
    def of(cls, client: Client) -> TablePlace:
        """Raises ServerError where the server does not know the cluster of the address."""
        cluster = client.address.cluster
        if cluster and not client.rows(f"SELECT 1 FROM system.clusters WHERE cluster = {quote(cluster)}", False):
            known = [str(row[0]) for row in client.rows("SELECT DISTINCT cluster FROM system.clusters", False)]
            raise ServerError(f"the server knows no cluster {cluster!r}; it knows {', '.join(known) or 'none'}")
        coordinator = "SELECT 1 FROM system.tables WHERE database = 'system' AND name = 'zookeeper'"
        return cls(client.address.database, cluster, bool(cluster and client.rows(coordinator, False)))

    @property
    def everywhere(self) -> str:
        """What makes a statement run on all servers."""
        return f" ON CLUSTER {quote(self.cluster)}" if self.coordinated else ""

    def own(self, name: str) -> str:
        """The table in which a server has its share."""
        return f"{self.database}.{name}{'_local' if self.cluster else ''}"

    def engine(self, name: str, engine: str) -> str:
        if not self.coordinated or not engine.partition("(")[0].endswith("MergeTree"):
            return engine
        path = f"'/clickhouse/tables/{{shard}}/{self.database}/{name}', '{{replica}}'"
        kind, _, arguments = engine.partition("(")
        return f"Replicated{kind}({path}{f', {arguments}' if arguments else ')'}"


def statements(place: TablePlace, version: tuple[int, int]) -> list[str]:
    """What makes the tables and views on a server of a version."""
    made = []
    for name, item in TABLES.items():
        definition = _definition(name, item, version, place)
        made.append(f"CREATE TABLE IF NOT EXISTS {place.own(name)}{place.everywhere} {definition}")
        if place.cluster:
            shard = _SHARD if item.columns[:2] == _RUN else ", 0"
            made.append(
                f"CREATE TABLE IF NOT EXISTS {place.database}.{name}{place.everywhere} AS {place.own(name)} ENGINE = "
                f"Distributed({quote(place.cluster)}, {place.database}, {name}_local{shard})"
            )
    return made + [
        f"CREATE VIEW IF NOT EXISTS {place.database}.{name}{place.everywhere} AS {_filled(select, place)}"
        for name, select in VIEWS.items()
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
    thinned = int(client.rows(
        "SELECT countIf(held != '') FROM (SELECT argMax(thinned, version) AS held FROM runs GROUP BY project, run)"
    )[0][0])  # fmt: skip
    size = client.rows(
        "SELECT sum(bytes), sumIf(bytes, table LIKE 'series%') FROM system.parts "
        f"WHERE active AND database = {quote(client.address.database)}"
    )[0]
    within = "GLOBAL IN" if client.address.cluster else "IN"
    points = int(client.rows(
        f"SELECT sum(held) FROM (SELECT max(rows) AS held FROM batches WHERE kind = 'points' AND batch {within} "
        "(SELECT batch FROM live_batches) GROUP BY project, run, batch)"
    )[0][0])  # fmt: skip
    per_point = f"{points}, {int(size[1]) / points:.2f} bytes each" if points else "none yet"
    free = client.rows("SELECT value FROM system.asynchronous_metrics WHERE metric = 'DiskAvailable_default'", False)
    late = behind(client)
    return {
        "server": f"ClickHouse {version[0]}.{version[1]} at {client.address.host}:{client.address.port}",
        "codecs": "by column" if version >= _CODECS else "the server's; from 20.1 on by column",
        "tables": f"version {VERSION}",
        "rights": "read" if readonly == 1 else f"read and write (needs {_GRANTS})",
        "runs": f"{runs}, {thinned} of them thinned" if thinned else str(runs),
        "points": per_point,
        **({"replica": f"behind: {late} INSERTs of other replicas have not come here yet"} if late else {}),
        "disk": f"{int(size[0]) / 1e6:.1f} MB used" + (f", {float(free[0][0]) / 1e9:.1f} GB free" if free else ""),
    }


def behind(client: Client) -> int:
    """INSERTs that other replicas of this server's tables have and it has not; 0 where there are no replicas. A table's
    very first is not counted before the server has heard of it: both numbers are 0, as where there is none."""
    unheard = "if(log_max_index = 0, 0, toInt64(log_max_index) + 1 - toInt64(log_pointer))"
    answer = client.rows(
        f"SELECT sum(inserts_in_queue + greatest(0, {unheard})) FROM system.replicas "
        f"WHERE database = {quote(client.address.database)}"
    )
    return int(answer[0][0])


def count_sql(kind: str) -> str:
    """How many points or histograms rows have."""
    return "toUInt64(sum(length(step)))" if kind == "points" else "count()"


def checksum_sql(kind: str, bits: str = "cityHash64(v)") -> str:
    """A sum over points or histograms that depends on every bit of each, and not on their order. bits: of a point's
    value, v."""
    place = "toUInt64(step * 1000003 + time * 31 + segment * 7 + rank) * 2 + 1"
    if kind == "points":
        # 18.16 finds no other column in a function of an array's elements: a row's part is added behind it
        of_point = f"arraySum(arrayMap((v, s, t) -> {bits} * toUInt64(s * 1000003 + t * 31), {VALUE}, step, time))"
        of_row = f"arraySum(arrayMap(v -> {bits}, {VALUE})) * (toUInt64(segment * 7 + rank) * 2 + 1)"
        return f"sum({of_point} * 2 + {of_row})"
    weighted = "arrayMap((v, i) -> reinterpretAsUInt64(reinterpretAsString(v)) * (2 * i + 1), {0}, arrayEnumerate({0}))"
    edges, counts = (f"arraySum({weighted.format(name)})" for name in ("edges", "counts"))
    return f"sum(({edges} * 3 + {counts}) * ({place}))"


def _definition(name: str, table: ServerTable, version: tuple[int, int], place: TablePlace) -> str:
    coded = version >= _CODECS
    columns = ", ".join(f"{item.name} {item.kind}{f' CODEC({item.codec})' if coded else ''}" for item in table.columns)
    settings = f" SETTINGS index_granularity = {table.granularity}" if "MergeTree" in table.engine else ""
    return f"({columns}) ENGINE = {place.engine(name, table.engine)} ORDER BY ({table.order}){settings}"


def _filled(select: str, place: TablePlace) -> str:
    names = {name: f"{place.database}.{name}" for name in (*TABLES, *VIEWS)}
    return select.format(**names, IN="GLOBAL IN" if place.cluster else "IN").strip()
