"""Whether a run on a server is as it was sent: sums over its rows, the digests of its files, the folder it came from.

In:   a client, a run, perhaps its folder.
Out:  a sentence about each difference.

The server adds up its own rows. What is fetched are the files; the folder's sealed columns are added up here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from barograph.log.spool import best_copy
from barograph.store.clickhouse.batches import PartRows, SentBatch, read_batches, where
from barograph.store.clickhouse.client import Client, ServerError, listed, quote
from barograph.store.clickhouse.files import FileState, fetch, is_log, local_files, origin_of, read_files
from barograph.store.clickhouse.schema import ONCE, TABLE_OF, checksum_sql, count_sql
from barograph.store.part import DamagedPart, GroupCache, Part
from barograph.store.run import RunStore
from barograph.store.schema import StoreFile, merge_spans

_ROWS_AT_ONCE = 50_000_000  # summed in one statement
_BATCHES_AT_ONCE = 1000
_COLUMNS = {"points": "single, double", "histograms": "edges, counts"}
_SUMS = 1 << 64


def differences(client: Client, project: str, run: str, folder: Path | None = None, is_open: bool = False) -> list[str]:
    """What is not as it was sent, or not as in the run's folder. is_open: the run is being written, so what the server
    lacks of it is left out. Raises ServerError."""
    batches, _ = read_batches(client, project, run)
    states = {file: state for file, state in read_files(client, project, run).items() if not state.gone}
    found = [*_of_rows(client, where(project, run), batches)]
    for file, state in sorted(states.items()):
        found += _of_file(client, project, run, file, state, folder, is_open)
    if folder is not None:
        if not is_open:
            found += [f"{file} is in the folder alone" for file in sorted(local_files(folder).keys() - states.keys())]
        found += _of_parts(folder, batches, is_open)
    return found


def _of_rows(client: Client, about: str, batches: Sequence[SentBatch]) -> Iterator[str]:
    for kind, table in TABLE_OF.items():
        sums = f"{count_sql(kind)}, {checksum_sql(kind)}"
        for group in _groups([batch for batch in batches if batch.file.table == kind]):
            answer = client.rows(
                f"SELECT batch, {sums} FROM {table} WHERE {about} AND batch IN "
                f"{listed([batch.number for batch in group])} GROUP BY batch"
            )
            there = {int(number): (int(count), int(checksum)) for number, count, checksum in answer}
            for batch in group:
                held = there.get(batch.number, (0, 0))
                if held[0] > batch.rows:  # repeated on its way, and read once
                    once = client.rows(
                        f"SELECT {sums} FROM (SELECT rank, segment, step, time, {_COLUMNS[kind]} FROM {table} "
                        f"WHERE {about} AND batch = {batch.number} {ONCE[table]})"
                    )[0]
                    held = int(once[0]), int(once[1])
                if held != (batch.rows, batch.checksum):
                    counted = "as many" if held[0] == batch.rows else f"{held[0]:,} of {batch.rows:,}"
                    part = _name(batch.log, batch.file)
                    yield f"{part}: the server has {counted} {kind}, not the values that were sent"


def _groups(batches: Iterable[SentBatch]) -> Iterator[list[SentBatch]]:
    group: list[SentBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.rows for each in group) >= _ROWS_AT_ONCE or len(group) == _BATCHES_AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def _of_file(
    client: Client, project: str, run: str, file: str, state: FileState, folder: Path | None, is_open: bool
) -> Iterator[str]:
    path = folder / file if folder is not None and state.origin == origin_of(folder) else None
    digest, size, same = hashlib.sha256(), 0, True
    try:
        with _opened(path) as local:
            for content in fetch(client, project, run, file, state):
                digest.update(content)
                if local >= 0:
                    same = same and os.pread(local, len(content), size) == content
                size += len(content)
            if local >= 0 and not state.grows:
                same = same and os.fstat(local).st_size == size
            missing = path is not None and local < 0
        if state.grows and size:
            answer = client.rows(
                f"SELECT max(start) FROM pieces WHERE {where(project, run)} AND file = {quote(file)} "
                f"AND version >= {state.epoch} AND version <= {state.version} AND start < {state.size}"
            )
            digest = hashlib.sha256(b"".join(fetch(client, project, run, file, state, int(answer[0][0]))))
    except (ServerError, OSError) as error:
        if isinstance(error, ServerError) and error.code:
            raise
        yield f"{file}: {error}"
        return
    if size and digest.hexdigest() != state.sha256:
        yield f"{file} is not as it was sent"
    elif missing and not is_open:
        yield f"{file} is on the server alone"
    elif not same and (state.grows or not is_open):
        yield f"{file} is another one in the folder"


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[int]:
    """A file's descriptor; -1 where there is none."""
    descriptor = -1
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(best_copy(path) if is_log(path.name) else path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _of_parts(folder: Path, batches: Sequence[SentBatch], is_open: bool) -> Iterator[str]:
    """Sealed columns of the folder against the server's: sums over the same bytes, however they were sealed."""
    store = RunStore(folder, rows=False)
    for log in store.find_logs():
        log.list_parts()
        for kind, parts in (("points", log.points), ("histograms", log.histograms)):
            there = [batch for batch in batches if (f"{batch.log}.json", batch.file.table) == (log.path.name, kind)]
            local, sent = _spans(part.header for part in parts), _spans(batch.header for batch in there)
            if local != sent:
                both = {name: merge_spans([*sent.get(name, []), *spans]) for name, spans in local.items()}
                if not is_open and both != {name: sent.get(name) for name in local}:
                    yield f"some {kind} of {log.path.name} are sealed in the folder alone"
                continue
            rows = total = 0
            try:
                for part in parts:
                    with contextlib.closing(Part(part.path, GroupCache(32 << 20))) as opened:
                        sums = PartRows(opened, kind, "", "", 0)
                        for _ in sums.bodies():
                            pass
                    rows, total = rows + sums.rows, (total + sums.checksum) % _SUMS
            except (DamagedPart, FileNotFoundError) as error:
                yield f"{part.path.name} can't be read in the folder ({error})"
                continue
            if (rows, total) != (sum(batch.rows for batch in there), sum(batch.checksum for batch in there) % _SUMS):
                yield f"the {kind} of {log.path.name} have other values in the folder"


def _spans(headers: Iterable[dict[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """Which bytes of a log, "", and of its block files sealed parts hold."""
    found: dict[str, list[tuple[int, int]]] = {}
    for header in headers:
        for name, spans in {"": header.get("log") or (), **(header.get("wide") or {})}.items():
            found.setdefault(name, []).extend((int(start), int(end)) for start, end in spans)
    return {name: merge_spans(spans) for name, spans in found.items() if spans}


def _name(log: str, file: StoreFile) -> str:
    return f"store/{log}/{file.name}"
