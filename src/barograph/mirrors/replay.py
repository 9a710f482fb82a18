"""A run's folder as one stream of what happened, from a place on, while it is written or long after.

In:   log files, and the columnar store for what stands in no log file; a `Place`.
Out:  records with the byte at which each ends, and rows and histograms of the store, about in the order of time.

The store holds the log files' numbers too. A row of the store that is a record's is known by its time, step and
names, and left out; the stream runs a few seconds ahead in the log file, to know it in time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from barograph.logtext import records_from
from barograph.mirrors.position import Place, StorePlace
from barograph.mirrors.wide import Distribution, Numbers, WideRow, of_blocks, of_folder
from barograph.record import HAS_NUMBERS, Record, numbers
from barograph.spool import best_copy
from barograph.store.cursor import Arrivals

_AHEAD = 5_000_000  # µs that the stream reads ahead in the log file
_MOST_SHAPES = 1000
_MOST_KNOWN = 1_000_000  # records whose numbers are waited for from the store


class Logged(NamedTuple):
    """A record; it ends at byte `end` of the log file `log`."""

    record: Record
    log: str
    end: int


class Wide(NamedTuple):
    """A row or histogram that is in no log file."""

    row: WideRow
    writer: str


class Replay:
    """Reads on from `place`, and keeps it at what was handed out. Rank 0's files: the others' say the same.

    path: a run's folder, or a bare log file.
    """

    def __init__(self, path: Path, place: Place):
        self.place = place
        self.problems: dict[Path, str] = {}
        self._folder = path if path.is_dir() else path.parent
        self._bare = path if path.is_file() else None
        self._logs: dict[str, _Log] = {}
        self._stores: dict[str, _Store] = {}
        self._looked = False

    def close(self) -> None:
        for store in self._stores.values():
            store.arrivals.close()

    def size(self) -> int:
        """Bytes of the log files that are still to be read."""
        self._look()
        return sum(log.left() for log in self._logs.values())

    def read(self, most: int) -> list[Logged | Wide]:
        """The next items, at most about `most`; none if there is nothing for now."""
        if not self._looked:
            self._look()
        found: list[Logged | Wide] = []
        for name, log in self._logs.items():
            stores = [(writer, store) for writer, store in self._stores.items() if store.log is log]
            found += self._merged(name, log, stores, most - len(found))
            if len(found) >= most:
                return found
        if not found:
            self._looked = False  # everything there is has been given: look again next time
        return found

    def _merged(self, name: str, log: _Log, stores: list[tuple[str, _Store]], most: int) -> Iterator[Logged | Wide]:
        given = 0
        for writer, store in stores:  # one after the other, as they wrote the file
            for row in store.rows():
                while log.time <= row.key[0] + _AHEAD and (item := log.next()) is not None:
                    if item.end > log.start:
                        given += 1
                        self.place.offsets[name] = log.start = item.end
                        yield Logged(item.record, name, item.end)
                    if given >= most:
                        store.put_back(row)
                        return
                kept = log.without_known(row)
                (store.place.passed if kept is None else store.place.recent).add(row.key)
                if kept is not None:
                    given += 1
                    yield Wide(kept, writer)
                if given >= most:
                    return
        while given < most and (item := log.next()) is not None:
            if item.end > log.start:
                given += 1
                self.place.offsets[name] = log.start = item.end
                yield Logged(item.record, name, item.end)

    def settle(self) -> None:
        """All that was handed out has been sent."""
        last = {id(store.log): writer for writer, store in self._stores.items()}
        for writer, store in self._stores.items():
            if store.idle and last[id(store.log)] != writer:  # its process has ended: nothing is to come
                store.place.close()
                store.place.scan = store.log.offset
            else:
                store.place.settle()
                store.place.scan = store.log.offset_before(store.place.floor[0])

    # -- what there is -------------------------------------------------------------------------------

    def _look(self) -> None:
        """New log files, new writers, new blocks of the store."""
        self._looked = True
        if self._bare is not None:
            self._log(self._bare)
            return
        self._log(self._folder / "training.json")
        for path in sorted((self._folder / "store").glob("*/writer.json"), key=_started):
            writer = path.parent.name
            if writer not in self._stores:
                about = _about(path)
                if int(about.get("rank", 0)) == 0:
                    log = self._log(self._folder / str(about.get("log", "training.json")))
                    place = self.place.store(writer)
                    log.expect(place.scan)
                    self._stores[writer] = _Store(path.parent, place, log, self.problems)
        for store in self._stores.values():
            store.look()
        for log in self._logs.values():
            log.look_again()

    def _log(self, path: Path) -> _Log:
        name = path.name if path.parent == self._folder else str(path)
        found = self._logs.get(name)
        if found is None:
            found = self._logs[name] = _Log(path, self.place.offsets.get(name, 0))
        return found


class _Log:
    """A log file, read forward. `time`: of the record read last. Records up to `start` were handed out before."""

    def __init__(self, path: Path, start: int):
        self.path, self.start = path, start
        self.time = -(2**63)
        self.offset = start
        self._records: Iterator[tuple[Record, int]] | None = None
        self._ended = False
        self._known: dict[tuple[int, int], tuple[str, ...]] | None = None  # of records whose rows the store brings
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._marks = [(-(2**63), start)]  # a time, and a byte behind which all is younger

    def expect(self, scan: int) -> None:
        """A store will bring this file's numbers: read from an earlier byte on, to know them."""
        self._known = {} if self._known is None else self._known
        if scan < self.offset:
            self.offset = scan
            self._records, self._ended = None, False
            self._marks = [(-(2**63), scan)]

    def look_again(self) -> None:
        if self._ended:
            self._records, self._ended = None, False

    def left(self) -> int:
        with contextlib.suppress(OSError):
            return max(0, best_copy(self.path).stat().st_size - self.offset)
        return 0

    def next(self) -> Logged | None:
        """The next whole record; None if there is none for now."""
        if self._ended:
            return None
        if self._records is None:
            self._records = _read(best_copy(self.path), self.offset)
        found = next(self._records, None)
        if found is None:
            self._ended = True
            return None
        record, self.offset = found
        self.time = max(self.time, record.time)
        if self.time > self._marks[-1][0] + _AHEAD:
            self._marks.append((self.time, self.offset))
        known = self._known
        if known is not None and record.kind in HAS_NUMBERS:
            names = tuple(name for name, _ in numbers(record))
            if names:
                key = (record.time, record.step)
                names = self._names.setdefault(names, names) if len(self._names) < _MOST_SHAPES else names
                known[key] = (*known[key], *names) if key in known else names
                if len(known) > _MOST_KNOWN:
                    del known[next(iter(known))]
        return Logged(record, "", self.offset)

    def without_known(self, row: WideRow) -> WideRow | None:
        """The row without what a record of this file has said; None if nothing is left."""
        if isinstance(row, Distribution) or self._known is None:
            return row
        known = self._known.pop(row.key[:2], None)
        if known is None:
            return row
        if len(known) == len(row.names) and set(known) == set(row.names):
            return None
        left = set(row.names) - set(known)
        if later := tuple(name for name in known if name not in set(row.names)):
            self._known[row.key[:2]] = later  # of two records at one moment one is still to come
        pairs = [(name, value) for name, value in zip(row.names, row.values, strict=True) if name in left]
        return Numbers(row.key, tuple(name for name, _ in pairs), [value for _, value in pairs]) if pairs else None

    def offset_before(self, time: int) -> int:
        """A byte behind which all records younger than this time stand."""
        while len(self._marks) > 1 and self._marks[1][0] + _AHEAD < time:
            del self._marks[0]
        return self._marks[0][1]


class _Store:
    """A writer's store: what is there at first, then what arrives."""

    def __init__(self, path: Path, place: StorePlace, log: _Log, problems: dict[Path, str]):
        self.place, self.log = place, log
        self._path, self._problems = path, problems
        self.arrivals = Arrivals(path)
        self._anew = True  # read what stands in its files
        self._blocks: list[Any] = []
        self._rows: Iterator[WideRow] | None = None
        self._first: list[WideRow] = []  # put back

    def look(self) -> None:
        """Blocks that were flushed since the last look. What was there before the first is read from the files."""
        blocks, missed = self.arrivals.read()
        if not self._anew:
            self._blocks += blocks
            self._anew = missed

    @property
    def idle(self) -> bool:
        """There is nothing more for now."""
        return not (self._anew or self._blocks or self._first or self._rows)

    def put_back(self, row: WideRow) -> None:
        self._first.append(row)

    def rows(self) -> Iterator[WideRow]:
        """The rows for now, each once; they go on where they were left."""
        while True:
            while self._first:
                yield self._first.pop()
            fresh = False
            if self._rows is None:
                fresh = self._anew
                if self._anew:
                    self._anew, self._blocks = False, []
                    self._rows = of_folder(self._path, self.place, self._problems)
                elif self._blocks:
                    blocks, self._blocks = self._blocks, []
                    self._rows = of_blocks(blocks, self.place)
                else:
                    return
            try:
                row = next(self._rows, None)
            except OSError:  # sealed meanwhile: the same rows stand in another file
                self._rows, self._anew = None, True
                return
            if fresh:
                self.log.look_again()  # it has the records of all rows that the store had just now
            if row is None:
                self._rows = None
            elif not self.place.has(row.key):
                yield row


def _read(path: Path, offset: int) -> Iterator[tuple[Record, int]]:
    try:
        yield from records_from(path, offset)
    except OSError:  # not there yet, or no longer
        return


def _about(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    return {"rank": 1}  # being written


def _started(path: Path) -> tuple[int, str]:
    """Writers in the order in which they began: the number at the end of a writer's name is the time."""
    about = _about(path)
    return int(about.get("log_start", 0)), path.parent.name
