"""Runs on a server thinned: points that show what each bucket of steps had stay, the others go. Never by itself.

In:   a client; a run; the steps of a bucket.
Out:  what would go, in exact figures; the same without those rows.

The run is fetched, thinned by `store.thin`, and what is left is sent under new numbers, which count all at once. Cut
off anywhere, the run is as it was, or thinned and not yet smaller; the same again brings it to its end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from barograph.store.clickhouse import native
from barograph.store.clickhouse.batches import SentBatch, batch_rows, read_batches, where
from barograph.store.clickhouse.client import Client, ServerError, listed, quote
from barograph.store.clickhouse.files import MAIN, FileSender, FileState, is_log, read_files
from barograph.store.clickhouse.pull import StoredThere, pull
from barograph.store.clickhouse.push import next_version, send_part
from barograph.store.clickhouse.registry import RegistrySender, read_thinned
from barograph.store.clickhouse.schema import TABLES, TablePlace
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.run import RunStore
from barograph.store.schema import parse_name
from barograph.store.seal import seal
from barograph.store.thin import FILE, Bucket, Thinned, steps_of, thin, thinned_sentence


class RunSizes(NamedTuple):
    """Points and bytes of a run's compressed logs on the server, before and after; bytes of points: about."""

    points: int
    points_left: int
    log_bytes: int
    log_bytes_left: int
    point_bytes: int
    point_bytes_left: int


def thin_run(client: Client, project: str, run: str, steps: int, confirmed: bool) -> RunSizes:
    """Thin a run; steps: of a bucket, 0: each series is one. Without `confirmed` nothing is changed.

    Raises ServerError; ValueError for a run that is thinned, or that has no manifest.
    """
    if not client.rows(f"SELECT 1 FROM runs WHERE {where(project, run)} LIMIT 1"):
        raise ValueError(
            f"the manifest of {project}/{run} is not on the server, so nothing could say that it is thinned"
        )
    if sentence := read_thinned(client, project, run):
        raise ValueError(f"{project}/{run} is {sentence}")
    with tempfile.TemporaryDirectory(prefix="barograph-") as home:
        folder = pull(client, StoredThere(project, run, 1), Path(home))
        begun = steps_of(folder)
        if begun not in (None, steps):
            raise ValueError(
                f"{project}/{run} was begun to be thinned to buckets of {begun} steps; bring that to its end"
            )
        seal(folder, final=True)
        now = int(client.rows("SELECT toUnixTimestamp(now())", False)[0][0]) * 1_000_000
        try:
            done = thin(folder, steps, now)
        except DamagedPart as error:
            raise ServerError(f"{project}/{run} can't be thinned: {error}") from None
        return _Replacing(client, project, run, folder).run(done, confirmed)


class _Replacing:
    """Puts what is left of a run in the place of all of it."""

    def __init__(self, client: Client, project: str, run: str, folder: Path):
        self._client, self._project, self._run, self._folder = client, project, run, folder
        self._about = where(project, run)

    def run(self, done: Thinned, confirmed: bool) -> RunSizes:
        highest = [read_batches(self._client, self._project, self._run)[1], time.time_ns()]
        highest.append(int(self._client.rows(f"SELECT max(version) FROM runs WHERE {self._about}")[0][0]))
        files = read_files(self._client, self._project, self._run)
        version = next_version(max(*highest, *(state.version for state in files.values())), MAIN)
        logs = [file for file, state in files.items() if is_log(file) and not state.gone]
        held_bytes = self._log_bytes(logs)
        client = self._client if confirmed else _Nobody(self._client.address)
        sender = FileSender(client, self._project, self._run, version, MAIN)
        states: dict[str, FileState] = {}
        for file in logs:
            end, digest = sender.send_pieces(file, self._folder / file, 0)
            states[file] = files[file]._replace(version=version, epoch=version, size=end, sha256=digest)
        points = self._point_bytes()
        left = points * done.points_left // done.points if done.points else 0
        sizes = RunSizes(done.points, done.points_left, held_bytes, sender.packed_bytes, points, left)
        if not confirmed:
            return sizes
        sent, number = self._send_parts(done, version)
        # from here on answers say that the run is thinned; then it is
        mark = self._folder / FILE
        sender.send(FILE, mark, files.get(FILE))
        if sent:
            rows = batch_rows(self._project, self._run, sent)
            self._client.run("INSERT INTO batches FORMAT Native", rows)
        sender.say(states)
        registry = RegistrySender(self._client, self._project, self._run, RunStore(self._folder, rows=False), True)
        registry.say_thinned(next_version(number, MAIN), thinned_sentence(self._folder))
        self._remove_old(version, states)
        return sizes

    def _send_parts(self, done: Thinned, version: int) -> tuple[list[SentBatch], int]:
        """Rows of all parts, with the sums of what goes; the last number taken."""
        sent, number = [], version
        for log, _, path, buckets in done.parts:
            file = parse_name(path.name)
            assert file is not None
            number = next_version(number, MAIN)
            part = Part(path, GroupCache(1 << 20))
            sent.append(send_part(self._client, (self._project, self._run), log, file, part, number))
            part.close()
            if buckets is not None and buckets.name:
                self._send_buckets(buckets, number)
        return sent, number

    def _send_buckets(self, buckets: Bucket, number: int) -> None:
        rows = len(buckets.name)
        kinds = {column.name: column.kind for column in TABLES["bucket_rows"].columns}
        self._client.run("INSERT INTO bucket_rows FORMAT Native", native.block(rows, {
            "project": native.repeated([self._project], [rows]), "run": native.repeated([self._run], [rows]),
            "name": native.texts(buckets.name), "batch": native.constant("UInt64", number, rows),
            **{name: native.numbers(kinds[name], column) for name, column in buckets._asdict().items()
               if name != "name"},
        }))  # fmt: skip

    def _log_bytes(self, logs: Collection[str]) -> int:
        among = ", ".join(map(quote, logs)) or "NULL"
        held = self._client.rows(f"SELECT sum(length(content)) FROM pieces WHERE {self._about} AND file IN ({among})")
        return int(held[0][0])

    def _point_bytes(self) -> int:
        """Of the rows of the run, by what all rows of the table take."""
        database = quote(self._client.address.database)
        held = self._client.rows(
            "SELECT sum(bytes), sum(rows) FROM system.parts "
            f"WHERE active AND database = {database} AND table LIKE 'series%'"
        )[0]
        rows = int(self._client.rows(f"SELECT count() FROM series WHERE {self._about}")[0][0])
        return int(held[0]) * rows // max(int(held[1]), 1)

    def _remove_old(self, version: int, logs: Collection[str]) -> None:
        """Rows that no longer count. The server removes them in the background."""
        place = TablePlace.of(self._client)
        there = read_batches(self._client, self._project, self._run)[0]
        kept = listed([batch.number for batch in there])
        for table in ("series", "histograms", "batches", "bucket_rows"):
            self._delete(place, table, f"batch < {version} AND batch NOT IN {kept}")
        among = ", ".join(map(quote, logs)) or "NULL"
        self._delete(place, "pieces", f"version < {version} AND file IN ({among})")

    def _delete(self, place: TablePlace, table: str, condition: str) -> None:
        self._client.run(f"ALTER TABLE {place.own(table)}{place.everywhere} DELETE WHERE {self._about} AND {condition}")


class _Nobody(Client):
    """Takes what would be sent."""

    def run(self, statement: str, data: bytes | None = None, *, database: bool = True) -> bytes:
        return b""
