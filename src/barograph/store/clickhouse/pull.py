"""Runs fetched from a ClickHouse server: folders as `push` has sent them.

In:   a client, runs by project and id, a folder.
Out:  the runs' folders, or what was new of them: every reader sees there what it sees where the run was written.

A fetched folder has a file `.fetched.json`, which says from where, and which version of each file and part is there. It
is written last: what was cut off is fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.core import locks, manifest
from barograph.core.lazy import lazy
from barograph.log.blocks import SEALED_SUFFIX
from barograph.log.write import mend
from barograph.store.clickhouse import native
from barograph.store.clickhouse.address import MARK
from barograph.store.clickhouse.batches import SentBatch, checksum, read_batches, unfold, where
from barograph.store.clickhouse.client import Client, ServerError, quote
from barograph.store.clickhouse.files import FileState, fetch, is_log, read_files
from barograph.store.clickhouse.schema import ONCE, TABLE_OF, count_sql
from barograph.store.schema import TEMPORARY_PREFIX
from barograph.store.sort import Slice, rows_table
from barograph.store.write import write_part

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

_LOCK = ".fetching"
_WINDOW = {"points": 1_000, "histograms": 5_000}  # rows asked for at once
_WIDE_NUMBER = re.compile(r".+\.(\d{4,})\.wide")


class StoredThere(NamedTuple):
    """A run on the server. version: changes with each thing that was sent of it."""

    project: str
    run: str
    version: int

    def has_name(self, name: str) -> bool:
        """Whether a person means this one by project/id or id."""
        return name in (self.run, f"{self.project}/{self.run}")


def list_runs(client: Client) -> list[StoredThere]:
    """Every run on the server, by project and id."""
    # of all that counts, not of the newest alone: to a replica it comes in any order
    answer = client.rows(
        "SELECT project, run, sum(hashed) FROM ("
        "SELECT project, run, cityHash64(file, max(version)) AS hashed FROM files GROUP BY project, run, file "
        "UNION ALL SELECT project, run, cityHash64(log, kind, first, last, max(batch)) AS hashed FROM batches "
        "GROUP BY project, run, log, kind, first, last) GROUP BY project, run ORDER BY project, run"
    )
    return [StoredThere(project, run, int(version)) for project, run, version in answer]


def pull(client: Client, run: StoredThere, root: Path) -> Path:
    """Fetch a run, or what is new of it, into `root/project/run`; that folder.

    Raises ServerError; FileExistsError where there is a run in the folder that was not fetched from this server.
    """
    for part in (run.project, run.run):
        if part in ("", ".", "..") or "/" in part or "\0" in part:
            raise ServerError(f"{part!r} can't be the name of a folder")
    folder = root / run.project / run.run
    mark = manifest.read_json(folder / MARK)
    source = str(client.address)
    if mark.get("from", source) != source or (not mark and folder.exists() and any(folder.iterdir())):
        raise FileExistsError(f"{folder} has a run that was not fetched from {source}")
    if mark.get("version") == run.version:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        _Pull(client, run, folder, manifest.read_json(folder / MARK)).run()
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    stand_in = -1
    try:
        stand_in = locks.take(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)
        if stand_in >= 0:
            os.close(stand_in)


class _Pull:
    """mark: what the folder has. files: path → epoch, size, version. parts: log/file → batch."""

    def __init__(self, client: Client, run: StoredThere, folder: Path, mark: dict[str, Any]):
        self._client, self._there, self._folder = client, run, folder
        self._files: dict[str, list[int]] = dict(mark.get("files") or {})
        self._parts: dict[str, int] = dict(mark.get("parts") or {})

    def run(self) -> None:
        there = self._there
        self._save(0)  # from here on the folder is known to be a fetched one
        # columns are listed before logs: a part never holds what the log here does not
        batches, _ = read_batches(self._client, there.project, there.run)
        states = read_files(self._client, there.project, there.run)
        for file, state in sorted(states.items(), key=lambda item: (not is_log(item[0]), item[0])):
            self._fetch_file(file, state)
        for batch in batches:
            self._fetch_part(batch)
        self._drop_parts(batches)
        self._mark_sealed(batches)
        self._save(there.version)

    def _save(self, version: int) -> None:
        about = {"from": str(self._client.address), "version": version, "files": self._files, "parts": self._parts}
        _replace(self._folder / MARK, json.dumps(about).encode())

    # -- files ------------------------------------------------------------------------------------

    def _path(self, file: str) -> Path:
        parts = file.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in file or parts[-1] == MARK:
            raise ServerError(f"{file!r} can't be the name of a file")
        return self._folder.joinpath(*parts)

    def _fetch_file(self, file: str, state: FileState) -> None:
        path, held = self._path(file), self._files.get(file)
        if state.gone:
            path.unlink(missing_ok=True)
            self._files.pop(file, None)
            return
        if held == [state.epoch, state.size, state.version] and path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        there = self._there
        start = held[1] if held and state.grows and held[0] == state.epoch and path.exists() else 0
        content = fetch(self._client, there.project, there.run, file, state, start)
        if not state.grows:
            whole = b"".join(content)
            if hashlib.sha256(whole).hexdigest() != state.sha256:
                raise ServerError(f"{file} of the run {there.run} is not as it was sent")
            _replace(path, whole)
        else:
            with open(path, "r+b" if start else "wb") as log:
                log.seek(start)
                for piece in content:
                    log.write(piece)
                log.truncate()
            mend(path)
        os.utime(path, ns=(state.changed, state.changed))
        self._files[file] = [state.epoch, state.size, state.version]

    # -- columns ----------------------------------------------------------------------------------

    def _home(self, log: str) -> Path:
        home = self._path(f"store/{log}")
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _fetch_part(self, batch: SentBatch) -> None:
        key = f"{batch.log}/{batch.file.name}"
        home = self._home(batch.log)
        if self._parts.get(key) == batch.number and (home / batch.file.name).exists():
            return
        kind = batch.file.table
        condition = f"{where(self._there.project, self._there.run)} AND batch = {batch.number}"
        table = TABLE_OF[kind]
        series = self._client.run(
            f"SELECT name, {count_sql(kind)} AS rows FROM (SELECT name, step FROM {table} WHERE {condition} "
            f"{ONCE[table]}) GROUP BY name ORDER BY name FORMAT Native"
        )
        found = native.columns(series)
        names = [name.decode("utf-8", "surrogatepass") for name in found.get("name", [])]
        counts: list[int] = found["rows"].tolist() if names else []
        if sum(counts) != batch.rows:
            raise ServerError(f"{key} of the run {self._there.run} is not whole: {sum(counts)} of {batch.rows} rows")
        sums = [0]
        windows = self._windows(kind, condition, names, counts, sums)
        path = write_part(home, batch.file.name, kind, len(names), batch.rows, windows, batch.header)
        if sums[0] != batch.checksum:
            path.unlink()
            raise ServerError(f"{key} of the run {self._there.run} is not as it was sent")
        self._parts[key] = batch.number

    def _windows(
        self, kind: str, condition: str, names: list[str], counts: list[int], sums: list[int]
    ) -> Iterator[Slice]:
        """A batch's rows in the order of its part; adds to the sum of what has come."""
        order, stored, values = {
            "points": ("first, seq[1]", "single, double", ("value",)),
            "histograms": ("step, seq", "edges, counts", ("edges", "counts")),
        }[kind]
        ends = np.cumsum(counts)
        behind, done, total = "", 0, int(ends[-1]) if counts else 0
        while done < total:
            answer = native.columns(
                self._client.run(
                    f"SELECT segment, step, seq, time, rank, {stored} FROM {TABLE_OF[kind]} "
                    f"WHERE {condition}{behind} ORDER BY name, segment, {order} {ONCE[TABLE_OF[kind]]} "
                    f"LIMIT {_WINDOW[kind]} FORMAT Native"
                )
            )
            if not answer or not len(answer["step"]):
                raise ServerError(f"rows of the run {self._there.run} vanish while they are fetched")
            last = [np.atleast_1d(answer[name][-1])[0] for name in ("segment", "step", "seq")]
            if kind == "points":
                answer = unfold(answer)
            rows = len(answer["step"])
            low, high = (int(np.searchsorted(ends, place, "right")) for place in (done, done + rows - 1))
            edges = np.clip(np.concatenate([ends[low : high + 1] - counts[low : high + 1], ends[high : high + 1]]),
                            done, done + rows)  # fmt: skip
            name = quote(names[high])
            behind = f" AND name >= {name} AND (name, segment, {order}) > ({name}, {', '.join(map(str, last))})"
            held = {name: answer[name] for name in values}
            origin = {name: answer[name] for name in ("step", "time", "segment", "rank")}
            sums[0] = (sums[0] + checksum(**origin, **held)) % (1 << 64)
            yield Slice(names[low : high + 1], np.diff(edges).tolist(), rows_table(kind, **origin, **held))
            done += rows

    def _drop_parts(self, batches: list[SentBatch]) -> None:
        """Remove parts that others have taken the place of."""
        wanted = {f"{batch.log}/{batch.file.name}" for batch in batches}
        for key in sorted(self._parts.keys() - wanted):
            self._path(f"store/{key}").unlink(missing_ok=True)
            del self._parts[key]

    def _mark_sealed(self, batches: list[SentBatch]) -> None:
        """Say of block files that what they held is in the parts: they are not sent."""
        for log in {batch.log for batch in batches}:
            ends: dict[str, int] = {}
            for batch in batches:
                for name, spans in (batch.header.get("wide") or {}).items() if batch.log == log else ():
                    ends[name] = max(ends.get(name, 0), *(int(end) for _, end in spans))
            numbers = [int(match[1]) for match in map(_WIDE_NUMBER.fullmatch, ends) if match]
            if not numbers:
                continue
            path = self._home(log) / f"{max(numbers):04d}{SEALED_SUFFIX}"
            with contextlib.suppress(OSError, ValueError):
                ends |= json.loads(path.read_bytes())
            _replace(path, json.dumps(ends).encode())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
    temporary.write_bytes(content)
    os.replace(temporary, path)
