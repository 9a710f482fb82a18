"""A run's folder sent to a ClickHouse server, as far as the server does not have it.

In:   a run's folder, an address.
Out:  its files and its sealed columns on the server; `Sent`, what that was.

The run's own files are the spool: what could not be sent is sent the next time, and where that begins is asked of the
server. Each part's rows are confirmed by their number and a sum over all of their bits before they count.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from barograph.core import locks, manifest
from barograph.core.damage import Problems
from barograph.log.files import stores_of
from barograph.store.clickhouse.batches import PartRows, batch_row, covered, read_batches, where
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.files import LARGEST, MAIN, FileSender, is_log, local_files, origin_of, read_files
from barograph.store.clickhouse.registry import RegistrySender, SummaryTurns
from barograph.store.clickhouse.schema import TABLE_OF, checksum_sql, count_sql, require
from barograph.store.folder import Folder
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.schema import TABLES, StoreFile, parse_name
from barograph.store.seal import seal

LOCK = ".sending"  # in store/: locked while a process sends the run
_HEADER = {"points": ("log", "wide", "segments", "first"), "histograms": ("wide",)}


@dataclass
class Sent:
    """What a push has sent. left_out: files and parts that were not, a sentence each."""

    files: int = 0
    bytes: int = 0
    parts: int = 0
    points: int = 0
    histograms: int = 0
    left_out: list[str] = field(default_factory=list)


def identity(folder: Path) -> tuple[str, str]:
    """The project and the id that a run has on the server."""
    about = manifest.read(folder)
    resolved = folder.resolve()
    return str(about.get("project") or resolved.parent.name), resolved.name


def push(
    folder: Path,
    client: Client,
    *,
    final: bool = True,
    pace: Callable[[int], None] = lambda size: None,
    turns: SummaryTurns | None = None,
) -> Sent:
    """Send what the server lacks of a run. final: seal first what is in no part. pace: called with the bytes of each
    INSERT of rows before it is sent; it may wait. turns: kept by who pushes again and again.

    Raises ServerError; what was confirmed until then stays, and nothing else counts. Raises BlockingIOError where
    another process sends this run.
    """
    require(client)
    if final:
        seal(folder, final=True, wait=True)
    (folder / "store").mkdir(exist_ok=True)
    with _alone(folder):
        return _Push(folder, client, pace).run(turns or SummaryTurns(), final)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / "store" / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    stand_in = -1
    try:
        try:
            stand_in = locks.take(descriptor, wait=False)
        except OSError:
            raise BlockingIOError(f"another process is sending {folder.name}") from None
        yield
    finally:
        os.close(descriptor)
        if stand_in >= 0:
            os.close(stand_in)


def _next_version(version: int, origin: str) -> int:
    """A higher one, which no other folder of the run has: its last 20 bits are this folder's."""
    return ((version >> 20) + 1 << 20) | (zlib.crc32(origin.encode("utf-8", "surrogatepass")) & 0xFFFFF)


class _Push:
    def __init__(self, folder: Path, client: Client, pace: Callable[[int], None]):
        self._folder, self._client, self._pace = folder, client, pace
        self._project, self._run = identity(folder)
        self.sent = Sent()

    def run(self, turns: SummaryTurns, final: bool) -> Sent:
        # logs before columns: a part never holds what the log on the server does not
        parts = list(self._parts())
        held, highest = read_batches(self._client, self._project, self._run)
        files = read_files(self._client, self._project, self._run)
        origin = origin_of(self._folder)
        version = _next_version(max(time.time_ns(), highest, *(state.version for state in files.values())), origin)
        sender = FileSender(self._client, self._project, self._run, version, origin)
        here = local_files(self._folder)
        for file, path in sorted(here.items(), key=lambda item: (not is_log(item[0]), item[0])):
            try:
                if path.stat().st_size > LARGEST and not is_log(file):
                    self.sent.left_out.append(f"{file} is larger than {LARGEST >> 20} MiB")
                elif sender.send(file, path, files.get(file)):
                    self.sent.files += 1
            except FileNotFoundError:
                continue
        for file, state in files.items():
            if file not in here and not state.gone:
                sender.send_gone(file, state)
        self.sent.bytes = sender.bytes
        registry = RegistrySender(self._client, self._project, self._run, self._folder, origin == MAIN)
        registry.send_run(version)
        turns.owed |= registry.send_branch(version)
        for log, kind, part in parts:
            numbers = parse_name(part.path.name)
            there = [batch.file for batch in held if batch.log == log and batch.file.table == kind]
            if numbers is not None and not covered(numbers, there):
                version = _next_version(version, origin)
                self._send_part(log, kind, numbers, part, version)
                turns.owed |= kind == "points"
            part.close()
        if turns.is_due(final):
            began = time.monotonic()
            registry.send_summaries(version)
            turns.took(time.monotonic() - began)
        return self.sent

    def _parts(self) -> Iterator[tuple[str, str, Part]]:
        """The sealed parts, in the order of their logs and numbers."""
        cache, problems = GroupCache(32 << 20), Problems()
        for home in stores_of(self._folder):
            for kind in TABLES:
                for part in Folder(home, cache, problems).parts(kind):
                    yield home.name, kind, part
        self.sent.left_out += problems.values()

    def _send_part(self, log: str, kind: str, file: StoreFile, part: Part, number: int) -> None:
        rows = PartRows(part, kind, self._project, self._run, number)
        try:
            for body in rows.bodies():
                self._pace(len(body))
                self._client.run(f"INSERT INTO {TABLE_OF[kind]} FORMAT Native", body)
        except DamagedPart as error:
            self.sent.left_out.append(str(error))
            return
        self._confirm(kind, number, rows)
        header = {key: part.header[key] for key in _HEADER[kind] if key in part.header}
        row = batch_row(self._project, self._run, log, file, number, rows.rows, rows.checksum, header)
        self._client.run("INSERT INTO batches FORMAT Native", row)
        self.sent.parts += 1
        if kind == "points":
            self.sent.points += rows.rows
        else:
            self.sent.histograms += rows.rows

    def _confirm(self, kind: str, number: int, rows: PartRows) -> None:
        """Raises ServerError unless the server holds exactly the rows that were sent."""
        answer = self._client.rows(
            f"SELECT {count_sql(kind)}, {checksum_sql(kind)} FROM {TABLE_OF[kind]} "
            f"WHERE {where(self._project, self._run)} AND batch = {number}"
        )
        count, checksum = int(answer[0][0]), int(answer[0][1])
        if (count, checksum) != (rows.rows, rows.checksum):
            raise ServerError(
                f"the server holds {count} of {rows.rows} rows, or other ones; they don't count and will be sent again"
            )
