"""The table of runs, kept up to date with as few looks at files as that takes.

In:   the runs that there are.
Out:  their rows; which rows changed since.

A row is built from the run's manifest in a fraction of a millisecond. What takes longer (best values, findings, last
values of runs that were killed) a thread fills in afterwards, the newest run first, and says so to `changed`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from barograph.core.segments import is_run
from barograph.query.stored import StoredRun
from barograph.views.server.kept import FEWEST, KeptRows
from barograph.views.server.places import Places, RunPlace, key_of, served_run
from barograph.views.server.rows import RunRow, signature

FRESH_SECONDS = 0.3  # a list asked for again within this is given as it is
_STATUS_SECONDS = 5.0  # how often it is looked whether the process of a run is still there …
_OLD_STATUS_SECONDS = 60.0  # … and of one that wrote nothing for an hour
_OLD_SECONDS = 3600.0
_QUIET_SECONDS = 0.3  # behind an answer the next request is often not far
_PATIENCE = 4  # runs are filled in for a fifth of the time, however many requests there are ...
_LEAST_PATIENCE_SECONDS = 0.1
_SHARE = 8  # a look at thousands of runs stays good for this many times what it took ...
_LONGEST_SECONDS = 2.0  # ... but no longer than this
_FEW = 200  # rows of fewer runs are not given before all are there


class Requests:
    """Those that wait for their answer: they go before what the table does by itself."""

    def __init__(self) -> None:
        self.working = 0
        self.closed = False
        self._answered = -math.inf

    def give_way(self, spent: float) -> None:
        """Requests go first: wait until there was none for a moment. spent: seconds on the last run."""
        until = time.monotonic() + max(_LEAST_PATIENCE_SECONDS, _PATIENCE * spent)
        while not self.closed and (now := time.monotonic()) < until:
            if not self.working and now - self._answered >= _QUIET_SECONDS:
                return
            time.sleep(0.02)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """While somebody waits for an answer, nothing is filled in. From the thread of the event loop."""
        self.working += 1
        try:
            yield
        finally:
            self.working -= 1
            self._answered = time.monotonic()


class RunTable:
    """All rows. Any thread may call.

    changed: called with the keys of rows that were filled in. diagnose: diagnoses a run that no sidecar watched, and
    says what it found to `diagnosed`.
    opened: a run that is written, opened for reading; it may have been read before.
    """

    def __init__(
        self,
        places: Places,
        changed: Callable[[list[str]], None] = lambda keys: None,
        diagnose: Callable[[RunPlace], Any] | None = None,
        opened: Callable[[RunPlace], contextlib.AbstractContextManager[StoredRun]] | None = None,
    ):
        self.places = places
        self._kept = KeptRows(places.root)
        self._diagnose = diagnose
        self._opened = opened
        self.changed = changed
        self.version = 0
        self.requests = Requests()
        self._rows: dict[str, RunRow] = {}
        self._ordered: list[RunRow] | None = None
        self._lock = threading.RLock()
        self._looking = threading.RLock()  # held while files are looked at; lists are given meanwhile
        self._waiting: dict[str, None] = {}
        self._undiagnosed: dict[str, None] = {}
        self._filler: threading.Thread | None = None
        self._looked = -math.inf
        self._cost = 0.0  # seconds that the last look took
        self.found = 0  # runs that there were at the last look
        self._closed = False

    def refresh(self, force: bool = False) -> list[str]:
        """Look at every run; the keys of those whose rows are new, changed or gone."""
        with self._looking:
            begun = time.monotonic()
            if not force and begun - self._looked < max(FRESH_SECONDS, min(_LONGEST_SECONDS, _SHARE * self._cost)):
                return []
            found = self.places.scan()
            self.found = len(found)
            if not self.is_ready and len(found) >= _FEW:  # the newest first: a page shows them meanwhile
                found = dict(sorted(found.items(), key=lambda item: -_changed_at(item[1])))
            changed = [key for key in self._rows if key not in found]
            for key in changed:
                self._rows.pop(key, None)
            new = []
            for key, place in found.items():
                if self._look(key, place):
                    changed.append(key)
                    if not (self._rows[key].is_filled and self._rows[key].is_diagnosed):
                        new.append(key)
            if changed:
                self._link(changed)
                self._changed()
            if not self.is_ready:
                self._kept.forget()
            self._looked = time.monotonic()
            self._cost = self._looked - begun
            self._fill_later(sorted(new, key=lambda key: -(self._rows[key].data["created"] or 0.0)))
            return changed

    @property
    def is_ready(self) -> bool:
        """Whether every run was looked at once."""
        return self._looked > -math.inf

    def rows(self) -> list[RunRow]:
        """Every row as it was seen last, the newest run last."""
        if not self.is_ready:
            with self._looking:  # the first look is not over
                pass
        with self._lock:
            if self._ordered is None:
                self._ordered = _by_creation(self._rows.values())
            return list(self._ordered)

    def first_rows(self, seconds: float) -> list[RunRow] | None:
        """The rows that there are this long after the first look at many runs began; None once it is over."""
        if self.is_ready:
            return None
        look = threading.Thread(target=self.refresh, name="barograph-first-look", daemon=True)
        look.start()
        until = time.monotonic() + seconds
        while look.is_alive():
            look.join(0.01)
            if time.monotonic() >= until and len(self._rows) >= _FEW:
                return _by_creation(list(self._rows.values()))
        return None

    def row(self, key: str) -> RunRow:
        """One run's row as it is now. Raises KeyError with a sentence."""
        place = self.places.find(key)
        with self._looking:
            if self._look(key, place):
                self._link([key])
                self._changed()
            return self._rows[key]

    def whole_row(self, key: str) -> RunRow:
        """The same with everything filled in, up to the last record."""
        row = self.row(key)
        self.advance([key])
        if not row.is_filled:
            self._fill(row)
        return row

    def advance(self, keys: Iterable[str]) -> list[str]:
        """Follow the logs of these runs; the keys of rows that changed."""
        changed = []
        for key in keys:
            row = self._rows.get(key)
            if row is not None and row.live and row.advance():
                changed.append(key)
                if row.may_be_told_more():
                    row.is_filled = False
                    self._fill_later([key])
        if changed:
            with self._lock:
                self.version += 1
        return changed

    def diagnosed(self, key: str, severities: list[str]) -> None:
        """A stored run was diagnosed: its row shows what its page shows."""
        row = self._rows.get(key)
        if row is None or (row.live and row.data["examined"]):  # its sidecar's findings come with its records
            return
        self._kept.stale += 1
        if row.diagnosed(severities):
            self._tell([key])

    def live(self) -> list[RunRow]:
        """The rows of runs that may still be written."""
        with self._lock:
            return [row for row in list(self._rows.values()) if row.live]

    def get(self, key: str) -> RunRow | None:
        """A row as it was seen last."""
        return self._rows.get(key)

    def key_of(self, folder: str) -> str | None:
        """The key of a run by its folder; None if it is not among them."""
        from pathlib import Path

        with contextlib.suppress(OSError, ValueError):
            path = Path(folder).resolve()
            if path.is_relative_to(self.places.root):
                key = key_of(path.relative_to(self.places.root).parts)
                return key if key in self._rows else None
        return None

    def wait_filled(self, seconds: float) -> bool:
        """Wait until every row is filled in, so long at most; whether they are."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self._lock:
                if not self._waiting and self._filler is None:
                    return True
            time.sleep(0.01)
        return False

    def close(self) -> None:
        """Fill in nothing more."""
        with self._lock:
            closed, self._closed = self._closed, True
            self.requests.closed = True
            self._waiting.clear()
            self._undiagnosed.clear()
        if self._kept.stale and self.is_ready and not closed:
            self._keep()

    # -- inside ---------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Rows came, went or were built again."""
        with self._lock:
            self._ordered = None
            self.version += 1

    def _look(self, key: str, place: RunPlace) -> bool:
        """Bring one row up to date; whether it changed."""
        row = self._rows.get(key)
        now = time.monotonic()
        if row is None:
            if not is_run(place.dir):
                return False
            seen = signature(place.dir)
            row = self._kept.take(place, seen)
            if row is None:
                row = RunRow(place)
                row.build(seen)
            self._rows[key] = row
            return True
        seen = signature(place.dir)
        if row.live and seen[:2] == row.signature[:2] and seen[2] is not None:
            row.signature = seen  # the log went on: `advance` follows it
            return self._status(row, now)
        if seen == row.signature:
            return row.live and self._status(row, now)
        row.build(seen)
        if row.live and row.progress is not None:
            row.data["last"] = {}
            row.advance()
        return True

    def _status(self, row: RunRow, now: float) -> bool:
        old = time.time() - row.written > _OLD_SECONDS
        if now - row.checked < (_OLD_STATUS_SECONDS if old else _STATUS_SECONDS):
            return False
        return row.look_at_status()

    def _link(self, keys: Iterable[str]) -> None:
        """Which run another was forked from, where it is one of these."""
        for key in keys:
            row = self._rows.get(key)
            if row is not None and row.data["source"]:
                parent = self.key_of(row.data["source"])
                if parent != key and parent != row.data["parent"]:
                    row.data["parent"] = parent
                    row.encode()

    def _fill_later(self, keys: Iterable[str]) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting.update(dict.fromkeys(keys))
            if self._waiting and self._filler is None:
                self._filler = threading.Thread(target=self._fill_all, name="barograph-rows", daemon=True)
                self._filler.start()

    def _fill_all(self) -> None:
        told, done = time.monotonic(), []
        while True:
            if not self._waiting and self._kept.stale >= max(FEWEST, len(self._rows) // 10):
                self._keep()
            with self._lock:
                queue = self._waiting or self._undiagnosed
                key = next(iter(queue), None)
                if key is None:
                    self._filler = None
                    break
                del queue[key]
                row = self._rows.get(key)
            began = time.monotonic()
            if row is not None and (not row.is_filled or queue is self._waiting):
                if not row.is_filled:
                    self._fill(row)
                    self._kept.stale += 1
                    done.append(key)
                if self._diagnose is not None and not row.is_diagnosed:  # after all that is quicker
                    self._undiagnosed[key] = None
            elif row is not None and self._diagnose is not None and not row.is_diagnosed:
                with contextlib.suppress(Exception):  # whatever a damaged run does, the list stays
                    self._diagnose(row.place)
            if done and time.monotonic() - told > 0.5:
                self._tell(done)
                told, done = time.monotonic(), []
            self.requests.give_way(time.monotonic() - began)
        self._tell(done)

    def _keep(self) -> None:
        """Keep the rows for the next server of the folder."""
        with self._looking:  # none is built meanwhile
            self._kept.write(self.rows())

    def _tell(self, keys: list[str]) -> None:
        if keys:
            with self._lock:
                self.version += 1
            self.changed(keys)

    def _fill(self, row: RunRow) -> None:
        try:
            if row.live and self._opened is not None:
                with self._opened(row.place) as run:
                    row.fill(run)
            else:
                row.fill(served_run(row.place, self.places.root))
        except Exception as error:  # whatever a damaged run does, the list stays
            row.is_filled = True
            row.data["problem"] = str(error.args[0] if error.args else error)[:300]
            row.encode()


def _by_creation(rows: Iterable[RunRow]) -> list[RunRow]:
    return sorted(rows, key=lambda row: (row.data["created"] or 0.0, row.data["key"]))


def _changed_at(place: RunPlace) -> float:
    try:
        return os.stat(place.dir).st_mtime
    except OSError:
        return 0.0


def rows_as_json(rows: Iterable[RunRow], stamp: str, left_out: Iterable[str], unread: int = 0) -> bytes:
    """The answer to the list of runs, put together from rows that are JSON already. unread: runs that no row is of
    yet."""
    import msgspec

    listed = list(rows)
    projects = sorted({str(row.data["project"]) for row in listed})
    rest: dict[str, Any] = {"projects": projects, "stamp": stamp, "left_out": list(left_out), "unread": unread}
    return b'{"runs":[' + b",".join(row.raw for row in listed) + b"]," + msgspec.json.encode(rest)[1:]
