"""What stands in a run's log files and not yet in its store: the last second of a live run, the tail of a killed one.

In:   a run's folder, and up to which byte of each log file its store reaches.
Out:  those numbers, by series, as columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.logtext import records_from
from barograph.record import numbers
from barograph.spool import best_copy

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from barograph.store.reader import StoreReader

    # step, time (µs since 1970), value, segment
    Columns = tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.float64], NDArray[numpy.int32]]


class Tails:
    """The tails of one run's log files, read again only when a file has grown.

    bare_log: the run is this log file and nothing else. store: gives the reader of the run's store.
    """

    def __init__(self, folder: Path, bare_log: Path | None, store: Callable[[], StoreReader]):
        self._dir, self._bare_log, self._store = folder, bare_log, store
        self._known: dict[Path, tuple[tuple[int, int, int], Tail]] = {}

    def files(self) -> list[Path]:
        """The run's log files: rank 0's first."""
        if self._bare_log:
            return [self._bare_log]
        named = {path.resolve() for path in self._dir.glob("training*.json")}
        named.update((self._dir / str(writer.get("log", "training.json"))).resolve() for writer in self._writers())
        copies = map(best_copy, sorted(named, key=lambda path: (path.name != "training.json", path)))
        return [path for path in copies if path.is_file()]

    def _writers(self) -> list[dict[str, Any]]:
        """Every writing process: name, rank, its log file and the byte at which it began there."""
        found = []
        for path in sorted((self._dir / "store").glob("*/writer.json")) if not self._bare_log else ():
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=dict[str, Any]) | {"writer": path.parent.name})
        return found

    def covered(self) -> dict[str, int]:
        """Up to which byte of its log file each writer's store reaches now."""
        return {name: self._store().log_end(name) for name in self._store().writers()}

    def beyond(self, covered: dict[str, int]) -> Iterator[Tail]:
        """What stands in the log files and not yet in the store."""
        begun: dict[Path, list[tuple[int, int, int]]] = {}
        ranks: dict[Path, int] = {}
        for writer in self._writers():
            path = (self._dir / str(writer.get("log", "training.json"))).resolve()
            start = int(writer.get("log_start", 0))
            reached = max(start, covered.get(str(writer["writer"]), 0))
            begun.setdefault(best_copy(path).resolve(), []).append((start, reached, int(writer.get("segment", 1))))
            ranks[best_copy(path).resolve()] = int(writer.get("rank") or 0)
        for path in self.files():
            spans = sorted(begun.get(path.resolve(), []))
            if not spans or spans[0][0] > 1:
                spans.insert(0, (0, 0, 1))
            try:
                size = path.stat()
            except OSError:
                continue
            reach = 0
            for at, (start, reached, segment) in enumerate(spans):
                reach = max(reach, reached, start)
                stop = spans[at + 1][0] if at + 1 < len(spans) else size.st_size
                if stop > reach:
                    tail = self._tail(path, reach, stop, segment, (size.st_mtime_ns, size.st_size, reach))
                    tail.rank = ranks.get(path.resolve(), 0)
                    yield tail

    def _tail(self, path: Path, start: int, stop: int, segment: int, state: tuple[int, int, int]) -> Tail:
        key = path / str(start)
        known = self._known.get(key)
        if known is None or known[0] != state:
            if len(self._known) > 64:
                self._known.clear()
            known = self._known[key] = (state, Tail(path, start, stop, segment))
        return known[1]


class Tail:
    """Numbers of a stretch of a log file, by series."""

    rank = 0

    def __init__(self, path: Path, start: int, stop: int, segment: int):
        self.columns: dict[str, list[tuple[int, int, float, int]]] = {}
        if start <= 1:
            start = 0
        with contextlib.suppress(OSError):
            for record, end in records_from(path, start):
                if end > stop:
                    break
                if record.kind == "segment":
                    segment = int(record.fields.get("segment", segment))
                    continue
                for name, value in numbers(record):
                    self.columns.setdefault(name, []).append((record.step, record.time, value, segment))

    def arrays(self, name: str) -> Columns:
        import numpy

        step, time, value, segment = zip(*self.columns[name], strict=True)
        return (
            numpy.array(step, numpy.int64),
            numpy.array(time, numpy.int64),
            numpy.array(value, numpy.float64),
            numpy.array(segment, numpy.int32),
        )
