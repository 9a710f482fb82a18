"""What happens, told to the pages that listen: rows that changed, points that arrived.

In:   the table of runs, listeners.
Out:  server-sent events.

Files are looked at only while somebody listens: the logs of runs in progress ten times a second, all others once a
second or, where there are many that it takes long, so rarely that it takes a fiftieth of the time. What waits for a
listener is at most one entry for each run, so one that does not read costs nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from barograph.log.files import MAIN, is_log_name
from barograph.log.spool import best_copy
from barograph.views.server.rows import RunRow
from barograph.views.server.table import RunTable

MOST_LISTENERS = 64
TICK_SECONDS = 0.1
_POINTS_SECONDS = 0.2  # between two events about points of one run
_ROWS_SECONDS = 1.0  # between two events about rows
_COMMENT_SECONDS = 15.0  # so that proxies keep a quiet connection
_REFRESH_SHARE = 50
_TICK_SHARE = 20
_MOST_ROWS = 500  # in one event


class TooMany(Exception):
    """The number of listeners is at its limit."""


class _Listener:
    def __init__(self, runs: frozenset[str] | None):
        self.runs = runs
        self.rows: dict[str, None] = {}
        self.points: dict[str, tuple[int | None, float]] = {}
        self.woken = asyncio.Event()


class Hub:
    """All listeners, and the one task that looks at files for them."""

    def __init__(self, table: RunTable):
        self._table = table
        self._listeners: set[_Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False
        self._seen: dict[str, Any] = {}
        self._told: dict[str, float] = {}
        self._owed: set[str] = set()
        self.looks = 0  # how many times files were looked at

    @property
    def listening(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def current_rows(self) -> list[RunRow]:
        """All rows. While somebody listens they are looked at again and again: these are the rows that a page has."""
        if not self._listeners or not self._table.is_ready:
            self._table.refresh()
        return self._table.rows()

    async def stream(self, runs: Iterable[str] | None = None) -> AsyncIterator[bytes]:
        """The events for one listener, until it goes or the server ends. runs: whose points, None for all runs'.

        Raises TooMany.
        """
        if len(self._listeners) >= MOST_LISTENERS:
            raise TooMany(f"{MOST_LISTENERS} pages are already open; close one of them")
        listener = _Listener(None if runs is None else frozenset(runs))
        self._loop = asyncio.get_running_loop()
        self._listeners.add(listener)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            yield b"retry: 2000\n: barograph\n\n"
            rows_sent = spoken = -_COMMENT_SECONDS
            spoken = time.monotonic()
            while not self._closed:
                now = time.monotonic()
                text = b"".join(_event("points", self._point(key, listener)) for key in list(listener.points))
                if listener.rows and now - rows_sent >= _ROWS_SECONDS:
                    text += self._rows_event(listener)
                    rows_sent = now
                if not text and now - spoken >= _COMMENT_SECONDS:
                    text = b": still here\n\n"
                if text:
                    spoken = now
                    yield text
                    continue
                listener.woken.clear()
                wait = _COMMENT_SECONDS - (now - spoken)
                if listener.rows:
                    wait = min(wait, _ROWS_SECONDS - (now - rows_sent))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(listener.woken.wait(), max(0.001, wait))
        finally:
            self._listeners.discard(listener)

    def rows_changed(self, keys: Iterable[str]) -> None:
        """From any thread: these rows are other ones now."""
        loop = self._loop
        if loop is not None and self._listeners and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(self._note_rows, list(keys))

    def close(self) -> None:
        """End all streams. From the loop's thread."""
        self._closed = True
        for listener in self._listeners:
            listener.woken.set()
        if self._watcher is not None:
            self._watcher.cancel()

    # -- inside ---------------------------------------------------------------------------------------

    def _note_rows(self, keys: list[str]) -> None:
        for listener in self._listeners:
            listener.rows.update(dict.fromkeys(keys))
            listener.woken.set()

    def _note_points(self, found: dict[str, tuple[int | None, float]]) -> None:
        for listener in self._listeners:
            mine = {key: item for key, item in found.items() if listener.runs is None or key in listener.runs}
            if mine:
                listener.points.update(mine)
                listener.woken.set()

    def _point(self, key: str, listener: _Listener) -> bytes:
        step, moment = listener.points.pop(key)
        return msgspec.json.encode({"run": key, "step": step, "time": moment})

    def _rows_event(self, listener: _Listener) -> bytes:
        keys = list(listener.rows)[:_MOST_ROWS]
        for key in keys:
            del listener.rows[key]
        rows = [(key, self._table.get(key)) for key in keys]
        raw = b",".join(row.raw for _, row in rows if row is not None)
        gone = msgspec.json.encode([key for key, row in rows if row is None])
        return _event("rows", b'{"rows":[' + raw + b'],"gone":' + gone + b"}")

    async def _watch(self) -> None:
        refreshed, took = 0.0, 0.0
        while self._listeners and not self._closed:
            began = time.monotonic()
            refresh = began - refreshed >= max(_ROWS_SECONDS, _REFRESH_SHARE * took)
            rows, points = await asyncio.to_thread(self._look, refresh)
            self.looks += 1
            if refresh:
                refreshed, took = time.monotonic(), time.monotonic() - began
            if rows:
                self._note_rows(rows)
            if points:
                self._note_points(points)
            spent = time.monotonic() - began
            await asyncio.sleep(max(TICK_SECONDS - spent, 0.0 if refresh else _TICK_SHARE * spent, 0.01))
        self._seen.clear()

    def _look(self, refresh: bool) -> tuple[list[str], dict[str, tuple[int | None, float]]]:
        """Rows that changed, and runs with new points: each its last step and when that was seen."""
        rows = self._table.refresh(force=True) if refresh else []
        live = self._table.live()
        now = time.time()
        for row in live:
            key = row.place.key
            stamp = _stamp(row)
            if self._seen.get(key) != stamp:
                if key in self._seen:
                    self._owed.add(key)
                self._seen[key] = stamp
        due = [key for key in self._owed if now - self._told.get(key, 0.0) >= _POINTS_SECONDS]
        points: dict[str, tuple[int | None, float]] = {}
        for key in due:
            self._owed.discard(key)
            self._told[key] = now
            self._table.advance([key])
            row_now = self._table.get(key)
            if row_now is not None:
                points[key] = row_now.data["step"], now
        if len(self._told) > 4 * len(live) + 1000:
            self._told = {key: moment for key, moment in self._told.items() if now - moment < 60.0}
            self._seen = {row.place.key: self._seen[row.place.key] for row in live if row.place.key in self._seen}
        return [*rows, *points], points


def _stamp(row: RunRow) -> tuple[Any, ...]:
    """What changes when a run has new points: its logs, their block files, and the sealed parts."""
    found: list[Any] = []
    with contextlib.suppress(OSError):
        status = os.stat(best_copy(row.place.dir / MAIN))
        # a clock that ticks slowly: while the file is young, two writes may have one time
        young = time.time_ns() - status.st_mtime_ns < 20_000_000
        found.append((status.st_mtime_ns, status.st_size, time.monotonic_ns() if young else 0))
    with contextlib.suppress(OSError), os.scandir(row.place.dir) as files:
        for file in files:
            if file.name != MAIN and (is_log_name(file.name) or file.name.endswith(".wide")):
                with contextlib.suppress(OSError):
                    stat = file.stat(follow_symlinks=False)
                    found.append((file.name, stat.st_mtime_ns, stat.st_size))
    with contextlib.suppress(OSError), os.scandir(row.place.dir / "store") as writers:
        for writer in writers:
            if not writer.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError), os.scandir(writer.path) as files:
                found += [
                    (file.name, file.stat().st_size) for file in files if not file.name.endswith((".json", ".tmp"))
                ]
    return tuple(found)


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
