"""Tables of each older version are brought to today's, with all that they had, however often that is cut off."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from clickhouse_server import Server
from test_contract import STATES
from test_fleet_answers import compare
from test_fleet_push import CutOff, everything, pull_all, push_all
from written_runs import WrittenRun

from barograph.query.stored import StoredRun
from barograph.store.clickhouse import native, schema
from barograph.store.clickhouse.batches import where
from barograph.store.clickhouse.client import Client, ServerError, quote
from barograph.store.clickhouse.migrate import migrate
from barograph.store.clickhouse.push import push

POINTS = """CREATE TABLE points (project String, run String, name String, rank Int32, segment Int32, step Int64,
seq UInt32, time Int64, batch UInt64, value Float64) ENGINE = MergeTree
ORDER BY (project, run, name, rank, segment, step)"""
FORMER_SUM = """sum(reinterpretAsUInt64(reinterpretAsString(value))
* (toUInt64(step * 1000003 + time * 31 + segment * 7 + rank) * 2 + 1))"""


def make_older(client: Client, version: int) -> None:
    """Bring tables and what they have to an older version."""
    if version == 4:
        for name in ("schema_versions", *schema.VIEWS):
            client.run(f"DROP TABLE {name}")
        place = schema.TablePlace(client.address.database)
        for statement in schema.statements(place, client.version())[-len(schema.VIEWS) :]:
            for once in schema.ONCE.values():
                statement = statement.replace(once, "")
            client.run(statement)
        return say_version(client, version)
    client.run("DROP TABLE bucket_rows")
    for name, column in (("runs", "thinned"), ("runs", "origin"), ("branches", "history")):
        client.run(f"ALTER TABLE {name} DROP COLUMN {column}")
    if version == 3:
        for name in ("schema_versions", *schema.VIEWS):
            client.run(f"DROP TABLE {name}")
        return say_version(client, version)
    client.run(POINTS)
    client.run(
        "INSERT INTO points SELECT project, run, name, rank, segment, step, seq, time, batch, value FROM ("
        f"SELECT *, {schema.VALUE} AS value FROM series) ARRAY JOIN step, seq, time, value"
    )
    client.run("RENAME TABLE batches TO later")
    client.run(
        "CREATE TABLE batches AS later ENGINE = ReplacingMergeTree(batch) "
        "ORDER BY (project, run, log, kind, first, last)"
    )
    columns = "project, run, log, kind, first, last, batch, rows"
    client.run(
        f"INSERT INTO batches ({columns}, checksum, header) SELECT {columns}, if(kind = 'points', found, checksum), "
        f"header FROM later ANY LEFT JOIN (SELECT batch, {FORMER_SUM} AS found FROM points GROUP BY batch) "
        "USING (batch)"
    )
    for name in ("later", "series", "schema_versions", *schema.VIEWS):
        client.run(f"DROP TABLE {name}")
    client.run("RENAME TABLE pieces TO packed")
    columns = "project, run, file, start, version, size, content"
    client.run(
        f"CREATE TABLE pieces ENGINE = MergeTree ORDER BY (project, run) AS SELECT {columns} FROM packed WHERE 0"
    )
    for row in client.rows("SELECT project, run, file, start, version, size FROM packed"):
        project, run, file, start, piece, size = row
        about = f"{where(project, run)} AND file = {quote(file)} AND start = {start} AND version = {piece}"
        held = native.columns(client.run(f"SELECT content FROM packed WHERE {about} FORMAT Native"))["content"]
        content = pyarrow.Codec("zstd").decompress(held[0], int(size), asbytes=True)
        numbers = {"start": int(start), "version": int(piece), "size": int(size)}
        client.run("INSERT INTO pieces FORMAT Native", native.block(1, {
            **{name: native.texts([text]) for name, text in (("project", project), ("run", run), ("file", file))},
            **{name: native.constant("UInt64", number, 1) for name, number in numbers.items()},
            "content": native.texts([content]),
        }))  # fmt: skip
    client.run("DROP TABLE packed")
    if version == 1:
        for name in ("branches", "summaries", "runs"):
            client.run(f"DROP TABLE {name}")
        client.run("ALTER TABLE files DROP COLUMN origin")
    say_version(client, version)


def say_version(client: Client, version: int) -> None:
    client.run("CREATE TABLE schema_versions (version UInt32) ENGINE = TinyLog")
    client.run("INSERT INTO schema_versions VALUES", f"({version})".encode())


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_what_older_tables_had_is_there_whole(version: int, clickhouse: Server, tmp_path: Path) -> None:
    client = clickhouse.client()
    before = {}
    for name in ("sealed_many_times_and_merged", "many_ranks", "rewound_twice_and_sealed"):
        STATES[name](tmp_path / name)
        push_all(tmp_path / name, client)
        before[name] = everything(StoredRun(tmp_path / name / "r"))
    make_older(client, version)
    with pytest.raises(OSError, match="an older version"):
        schema.require(client)
    assert migrate(client) == [f"tables are at version {schema.VERSION}"]
    assert migrate(client) == []
    for folder in pull_all(client, tmp_path / "there"):
        assert everything(StoredRun(folder)) == before[folder.parent.name]
    for name in before:
        push_all(tmp_path / name, client)
    client.run("INSERT INTO series SELECT * FROM series")  # as a repeated INSERT leaves it
    for name in before:
        compare(client, StoredRun(tmp_path / name / "r"))


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_a_migration_that_is_cut_off_is_repeated(version: int, clickhouse: Server, tmp_path: Path) -> None:
    class Ends(CutOff):
        """Ends before a statement, or behind it."""

        def run(self, statement: str, data: bytes | None = None, *, database: bool = True) -> bytes:
            self._inserts += 1
            if self._inserts == 2 * self.after:
                raise ServerError("cut off")
            answer = Client.run(self, statement, data, database=database)
            if self._inserts == 2 * self.after + 1:
                raise ServerError("cut off")
            return answer

    run = WrittenRun(tmp_path / "p")
    for step in range(3000):
        run.rank().metrics(step, a=float(step), b=step / 3)
    run.end()
    wanted = everything(StoredRun(run.dir))
    client = clickhouse.client()
    push(run.dir, client)
    make_older(client, version)
    for after in range(1, 40):
        try:
            migrate(Ends(client.address, after))
        except ServerError as error:
            assert str(error) == "cut off"
        else:
            break
    migrate(client)
    push(run.dir, client)
    (pulled,) = pull_all(client, tmp_path / "there")
    assert everything(StoredRun(pulled)) == wanted
    compare(client, StoredRun(run.dir))
