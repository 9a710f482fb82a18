"""A run's folder sent to a ClickHouse server, as far as the server does not have it.

In:   a run's folder, an address.
Out:  its files and its sealed columns on the server; `Sent`, what that was.

The run's own files are the spool: what could not be sent is sent the next time, and where that begins is asked of the
server. Each part's rows are confirmed by their number and a sum over all of their bits before they count.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barograph.core import locks
from barograph.store import thin
from barograph.store.clickhouse.batches import PartRows, SentBatch, batch_rows, covered, read_batches, where
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.files import LARGEST, MAIN, FileSender, is_log, local_files, origin_of, read_files
from barograph.store.clickhouse.registry import RegistrySender, SummaryTurns, identity, read_thinned, send_summaries
from barograph.store.clickhouse.schema import TABLE_OF, checksum_sql, count_sql, require
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.run import RunStore
from barograph.store.schema import StoreFile, parse_name
from barograph.store.seal import seal

LOCK = ".sending"  # in store/: locked while a process sends the run
_CACHE_BYTES = 32 << 20
_HEADER = {"points": ("log", "wide", "segments", "first", thin.MARK), "histograms": ("wide", thin.MARK)}


@dataclass
class Sent:
    """What a push has sent. left_out: files and parts that were not, a sentence each."""

    files: int = 0
    bytes: int = 0
    parts: int = 0
    points: int = 0
    histograms: int = 0
    left_out: list[str] = field(default_factory=list)


class PushState:
    """Kept by who pushes a run again and again: how far its logs were read for segments, when summaries are due."""

    def __init__(self, folder: Path):
        self.store, self.turns = RunStore(folder, rows=False), SummaryTurns()


def push(
    folder: Path,
    client: Client,
    *,
    final: bool = True,
    pace: Callable[[int], None] = lambda size: None,
    kept: PushState | None = None,
    whole: bool = False,
) -> Sent:
    """Send what the server lacks of a run. final: seal first what is in no part. pace: called with the bytes of each
    INSERT of rows before it is sent; it may wait. whole: send the points and logs too that were thinned on the server;
    else of such a run only the other files are sent.

    Raises ServerError; what was confirmed until then stays, and nothing else counts. Raises BlockingIOError where
    another process sends this run.
    """
    require(client)
    if final:
        seal(folder, final=True, wait=True)
    (folder / "store").mkdir(exist_ok=True)
    with _alone(folder):
        pushed = _Push(folder, client, pace, whole, kept or PushState(folder))
        while not pushed.run(final):
            pass
        return pushed.sent


@contextlib.contextmanager
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


def next_version(version: int, origin: str) -> int:
    """A higher one, which no other folder of the run has: its last 20 bits are this folder's."""
    return ((version >> 20) + 1 << 20) | (zlib.crc32(origin.encode("utf-8", "surrogatepass")) & 0xFFFFF)


class _Push:
    def __init__(self, folder: Path, client: Client, pace: Callable[[int], None], whole: bool, kept: PushState):
        self._folder, self._client, self._pace, self._whole = folder, client, pace, whole
        self._store, self._turns = kept.store, kept.turns
        self._project, self._run = identity(folder)
        self.sent = Sent()

    def run(self, final: bool) -> bool:
        """Send; False where parts were merged meanwhile, and what they are in now is to be sent."""
        # logs before columns: a part never holds what the log on the server does not
        parts = self._parts()
        held, highest = read_batches(self._client, self._project, self._run, {log for log, _ in parts})
        origin, here = origin_of(self._folder), local_files(self._folder)
        files = read_files(self._client, self._project, self._run, origin, {*here, thin.FILE})
        version = next_version(max(time.time_ns(), highest, *(state.version for state in files.values())), origin)
        mark = files.pop(thin.FILE, None) if thin.FILE not in here else None
        is_thin = mark is not None and not mark.gone
        registry = RegistrySender(self._client, self._project, self._run, self._store, origin == MAIN)
        if is_thin and not self._whole:
            thinned = read_thinned(self._client, self._project, self._run) or "thinned"
            self.sent.left_out.append(
                f"its points and logs: the server has it {thinned}; `push --whole` sends them again"
            )
            here = {file: path for file, path in here.items() if not is_log(file)}
            files = {file: state for file, state in files.items() if not is_log(file)}
            parts = []
        sender = FileSender(self._client, self._project, self._run, version, origin)
        for file, path in sorted(here.items(), key=lambda item: (not is_log(item[0]), item[0])):
            try:
                if path.stat().st_size > LARGEST and not is_log(file):
                    self.sent.left_out.append(f"{file} is larger than {LARGEST >> 20} MiB")
                elif sender.send(file, path, None if is_thin and is_log(file) else files.get(file)):
                    self.sent.files += 1
            except FileNotFoundError:
                continue
        for file, state in files.items():
            if file not in here and not state.gone:
                sender.send_gone(file, state)
        self.sent.bytes += sender.bytes
        registry.send_run(version)
        if is_thin and not self._whole:
            return True
        self._turns.owed |= registry.send_branch(version)
        for log, path in parts:
            sealed = parse_name(path.name)
            assert sealed is not None
            there = [batch.file for batch in held if (batch.log, batch.file.table) == (log, sealed.table)]
            if is_thin or not covered(sealed, there):
                version = next_version(version, origin)
                try:
                    self._send_part(log, path, sealed, version)
                except FileNotFoundError:
                    return False
        if mark is not None and is_thin:
            left = [
                batch
                for batch in read_batches(self._client, self._project, self._run)[0]
                if batch.header.get(thin.MARK)
            ]
            if not left:  # none of another host either
                version = next_version(version, origin)
                sender.say({thin.FILE: mark._replace(version=version, gone=True, size=0)})
                registry.say_thinned(version, "")
        if self._turns.is_due(final):
            began = time.monotonic()
            send_summaries(self._client, self._project, self._run, version)
            self._turns.took(time.monotonic() - began)
        return True

    def _parts(self) -> list[tuple[str, Path]]:
        """The sealed parts with the log of each, in the order of their logs and numbers."""
        logs = self._store.find_logs()
        for log in logs:
            log.list_parts()
        self.sent.left_out += [sentence for sentence in self._store.problems if sentence not in self.sent.left_out]
        return [(part.path.parent.name, part.path) for log in logs for part in (*log.points, *log.histograms)]

    def _send_part(self, log: str, path: Path, file: StoreFile, number: int) -> None:
        """Raises FileNotFoundError."""
        kind = file.table
        try:
            part = Part(path, GroupCache(_CACHE_BYTES))
            with contextlib.closing(part):
                batch = send_part(self._client, (self._project, self._run), log, file, part, number, self._pace)
        except DamagedPart as error:
            self.sent.left_out.append(str(error))
            return
        self._client.run("INSERT INTO batches FORMAT Native", batch_rows(self._project, self._run, [batch]))
        self.sent.parts += 1
        self._turns.owed |= kind == "points"
        if kind == "points":
            self.sent.points += batch.rows
        else:
            self.sent.histograms += batch.rows


def send_part(
    client: Client,
    run: tuple[str, str],
    log: str,
    file: StoreFile,
    part: Part,
    number: int,
    pace: Callable[[int], None] = lambda size: None,
) -> SentBatch:
    """Send a part's rows as a batch, which does not count yet. run: project and id.

    Raises DamagedPart, and ServerError unless the server holds exactly the rows that were sent.
    """
    kind = file.table
    rows = PartRows(part, kind, *run, number)
    for body in rows.bodies():
        pace(len(body))
        client.run(f"INSERT INTO {TABLE_OF[kind]} FORMAT Native", body)
    answer = client.rows(
        f"SELECT {count_sql(kind)}, {checksum_sql(kind)} FROM {TABLE_OF[kind]} WHERE {where(*run)} AND batch = {number}"
    )
    count, checksum = int(answer[0][0]), int(answer[0][1])
    if (count, checksum) != (rows.rows, rows.checksum):
        raise ServerError(
            f"the server holds {count} of {rows.rows} rows, or other ones; they don't count and will be sent again"
        )
    header = {key: part.header[key] for key in _HEADER[kind] if key in part.header}
    return SentBatch(log, file, number, rows.rows, rows.checksum, header)
