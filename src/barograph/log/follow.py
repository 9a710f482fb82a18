"""What is new in a run's files since the last look: records, wide rows and histograms, as one stream.

In:   the run's folder, again and again, while any number of processes write to it or long after.
Out:  entries, each once, in the order in which they were logged; places at which a later process goes on.

Within one log the records come in the order of their bytes, and a block behind the record that the log ended with when
it was written. Between logs the order is by time, except that a sidecar's record with `at` comes behind the record of
the main log that ends at that byte. What `segment` and `sidecar` records say holds for what is below them.

Only the calling thread works, and only inside `read`: no lock, no clock, no waiting.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from barograph.core.record import BEGINNINGS, Record, decode_own
from barograph.log.array import has_hole
from barograph.log.blocks import SEALED, WideHistogram, WideRow
from barograph.log.files import MAIN, Owner, is_log_name, is_sidecar_name, rank_in
from barograph.log.parts import Joiner
from barograph.log.read import WHITE, read_stable, records_of, scan
from barograph.log.sequence import BlockSequence
from barograph.log.spool import best_copy

_CHUNK = 1 << 20
_PROBE = 8192  # what is new begins within two pages: a record may leave the rest of one blank
_CHECKED = 64  # bytes before a place by which its file is known again
_MARKS = 64  # record ends kept in memory, to find the place again in a log that was cut short


class Entry(NamedTuple):
    """source: name of the log file; end: byte of it up to which everything has been read with this entry."""

    source: str
    rank: int
    segment: int
    item: Record | WideRow | WideHistogram
    end: int


class Follower:
    """Follows one run. `places`: what a new Follower goes on with, plain data.

    folder: the run's, or a bare log file. places: an earlier Follower's. ranks: "main" leaves out the logs of all
    processes but rank 0's first one; the sidecars' logs come in either case.

    Block files that were sealed and deleted before they were read come as `store.sealed` puts them together again.

    missed: those files, with the byte up to which they were read, until the rest has come.
    restarted: logs that were replaced by other ones and are read from their beginning.
    problems: a sentence for each file that is damaged.
    """

    def __init__(
        self,
        folder: Path,
        places: Mapping[str, Any] | None = None,
        *,
        ranks: Literal["all", "main"] = "all",
    ):
        self.folder = folder if folder.is_dir() or not folder.is_file() else folder.parent
        self.missed: dict[str, int] = {}
        self.restarted: set[str] = set()
        self.problems: dict[str, str] = {}
        self._bare = folder if folder.is_file() else None
        self._ranks = ranks
        self._logs: dict[str, _Log] = {}
        self._places = dict(places or {})
        self.is_ours = Owner(self.folder, self._bare is not None)
        with contextlib.suppress(TypeError, ValueError):
            self.missed.update({str(name): int(end) for name, end in self._places.pop("missed", {}).items()})

    @property
    def places(self) -> dict[str, Any]:
        """Where each file stands: up to the last entry that `read` has given."""
        found = {name: log.place() for name, log in self._logs.items()}
        return {**self._places, **found, **({"missed": dict(self.missed)} if self.missed else {})}

    def read(self, limit_bytes: int = 8 << 20) -> list[Entry]:
        """The next entries, of about this many bytes of the files; [] if there is nothing new."""
        self._find_logs()
        # a sidecar's record is known by then to stand behind what the main log has when it is read afterwards
        logs = sorted(self._logs.values(), key=lambda log: (not log.is_sidecar, log.name != MAIN, log.name))
        for followed in logs:
            followed.exhausted = False
        entries: list[Entry] = []
        left = limit_bytes
        while (left > 0 or not entries) and (log := self._next(logs)) is not None:
            alone = all(other.is_read for other in logs if other is not log)
            left -= log.take_many(left, entries) if alone else log.take(entries)
        return entries

    def skip(self) -> None:
        """Leave out all that there is by now."""
        self._find_logs()
        for followed in self._logs.values():
            followed.skip()

    def close(self) -> None:
        """Let go of open files."""
        for followed in self._logs.values():
            followed.close()

    @property
    def main(self) -> _Log | None:
        """Rank 0's log."""
        return self._logs.get(MAIN)

    def _find_logs(self) -> None:
        if self._bare is not None:
            names = {self._bare.name}
        else:
            names = {MAIN}
            with contextlib.suppress(OSError):
                names.update(os.listdir(self.folder))
        for name in names:
            if name in self._logs:
                continue
            sidecar = is_sidecar_name(name)
            wanted = name == MAIN or sidecar or (self._ranks == "all" and is_log_name(name))
            if wanted or self._bare is not None:
                self._logs[name] = _Log(self, name, sidecar, self._places.pop(name, {}))

    def _next(self, logs: list[_Log]) -> _Log | None:
        """The log whose next entry comes next."""
        first: _Log | None = None
        main = self.main
        for log in logs:
            if not log.ready():
                continue
            if log.is_sidecar and main is not None and isinstance(log.at, int):
                if log.at <= main.end:
                    return log
                if main.ready():  # its turn comes behind a later record of the main log
                    continue
                if main.turn < log.turn:  # the main log was read before this record was there
                    main.exhausted = False
                    if main.ready():
                        continue
                return log
            if first is None or log.next_time < first.next_time:
                first = log
        return first


class _Log:
    """One log with its block files. `end`: of the last record given; `turn`: counts the reads of all logs."""

    turns = 0

    def __init__(self, follower: Follower, name: str, is_sidecar: bool, place: Mapping[str, Any]):
        self.name = name
        self.path = follower.folder / name
        self.is_sidecar = is_sidecar
        self.exhausted = False
        self.turn = 0
        self.time = self.next_time = -(1 << 63)
        self.end = 0
        self._follower = follower
        self._segment, self._rank = 1, rank_in(name)
        self._foreign = False  # the records are another run's
        self._record: tuple[Record, int, int] | None = None  # the next one, its end, and the check of that place
        self._records: Iterator[tuple[Record, int, int]] = iter(())
        self._beginning: tuple[int, int] = (0, 0)  # a place in the first record, and its check
        self._marks: deque[tuple[int, int]] = deque(maxlen=_MARKS)
        self._blocks = BlockSequence(follower, Path(name).stem, place)
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
            self._go_on(place)

    def _go_on(self, place: Mapping[str, Any]) -> None:
        if not place:
            return
        marks = [(int(end), int(check)) for end, check in place["marks"]]
        beginning = (int(place["beginning"][0]), int(place["beginning"][1]))
        self._segment, self._rank = int(place["segment"]), int(place["rank"])
        self._foreign, self.time = bool(place["foreign"]), int(place["time"])
        self._marks.extend(marks)
        self._beginning, self.end = beginning, int(place["end"])

    def place(self) -> dict[str, Any]:
        about = {"end": self.end, "time": self.time, "segment": self._segment, "rank": self._rank}
        marks = {"foreign": self._foreign, "beginning": self._beginning, "marks": list(self._marks)}
        return about | marks | self._blocks.place()

    @property
    def at(self) -> object:
        """What the next record says about its place in the main log."""
        return self._record[0].fields.get("at") if self._record is not None else None

    def close(self) -> None:
        self._blocks.close()

    # -- entries --------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether there is a next entry; `next_time` is its time, never earlier than the last one's."""
        if self._record is None and not self.exhausted:
            self._read_record()
        block = self._blocks.next()
        if block is not None and self._record is None and block.log > self.end:
            self._read_record()  # written after the log was read; if it was not, the log is damaged there
        if self._block_first():
            assert block is not None
            self.next_time = max(self.time, block.time)
        elif self._record is not None:
            self.next_time = max(self.time, self._record[0].time)
        else:
            return False
        return True

    def _block_first(self) -> bool:
        block = self._blocks.block
        if block is None or self._record is None:
            return block is not None
        record, end, _ = self._record
        return block.time < record.time if block.log == SEALED else block.log < end

    @property
    def is_read(self) -> bool:
        """Whether there was nothing more when it was read last."""
        return self.exhausted and self._blocks.block is None

    def take(self, entries: list[Entry]) -> int:
        """Add the next entry, which is ready, unless it is a record of another run; its bytes."""
        self.time = self.next_time
        if self._record is None or self._block_first():
            block, size = self._blocks.take()
            entries.append(Entry(self.name, self._rank, block.segment, block, self.end))
            return size
        record, end, check = self._record
        self._record = None
        size, self.end = end - self.end, end
        if not self._marks:
            self._beginning = (end, check)
        self._marks.append((end, check))
        if record.kind in BEGINNINGS:
            self._enter(record)
        if not self._foreign:
            entries.append(Entry(self.name, self._rank, self._segment_of(record), record, end))
        return size

    def take_many(self, limit: int, entries: list[Entry]) -> int:
        """Add the next entry and, where no other log has any, the records behind it up to the next block or beginning,
        of about this many bytes; their bytes. Most of what there is to read comes this way.
        """
        size = self.take(entries)
        apart = self._record is not None or self._blocks.next() is not None  # a block comes, or did
        if apart or self.is_sidecar or self._foreign or not self._marks:
            return size
        name, rank, segment, marks = self.name, self._rank, self._segment, self._marks
        begin = self.end - size
        for record, end, check in self._records:
            if record.kind in BEGINNINGS:
                self._record = record, end, check
                break
            if record.time > self.time:
                self.time = record.time
            marks.append((end, check))
            self.end = end
            entries.append(Entry(name, rank, segment, record, end))
            if end - begin >= limit:
                break
        return self.end - begin

    def _segment_of(self, record: Record) -> int:
        """A sidecar's record belongs to what the main log was at when it was written."""
        main = self._follower.main
        if self.is_sidecar and main is not None and isinstance(record.fields.get("at"), int):
            return main._segment
        return self._segment

    def _enter(self, record: Record) -> None:
        """A process begins: what is below is of that segment, rank and run."""
        fields = record.fields
        self._foreign = not self._follower.is_ours(fields.get("run"))
        with contextlib.suppress(TypeError, ValueError):
            self._segment = int(fields.get("segment", self._segment))
            self._rank = int(fields.get("rank", self._rank))

    # -- the log --------------------------------------------------------------------------------

    def skip(self) -> None:
        """Go to the end."""
        path = best_copy(self.path)
        with contextlib.suppress(OSError):
            for record, _ in records_of(path, BEGINNINGS):
                self._enter(record)
            with open(path, "rb") as file:
                start = max(0, os.fstat(file.fileno()).st_size - _CHUNK)
                chunk, _ = read_stable(file.fileno(), start, _CHUNK)
            last = deque(_scanned(chunk, start, b"", Joiner(), []), maxlen=1)
            for record, end, check in last:
                self.end, self.time = end, record.time
                self._beginning = (end, check)
                self._marks.append((end, check))
        self._record, self._records = None, iter(())
        self._blocks.skip()

    def _read_record(self) -> None:
        """The next record, out of a new chunk of the log if need be; `exhausted` if there is none."""
        self._record = next(self._records, None)
        if self._record is not None:
            return
        _Log.turns += 1
        self.turn = _Log.turns
        self._blocks.look_again()
        with contextlib.suppress(OSError):  # not there yet, or no longer
            descriptor = os.open(best_copy(self.path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._records = self._chunk(descriptor)
                self._record = next(self._records, None)
            finally:
                os.close(descriptor)
        self.exhausted = self._record is None

    def _chunk(self, descriptor: int) -> Iterator[tuple[Record, int, int]]:
        """Records behind the last one given; the file is read before the first of them."""
        if not self._find_place(descriptor):
            return iter(())
        offset = self.end
        lead = os.pread(descriptor, min(offset, _CHECKED), max(0, offset - _CHECKED))
        if not os.pread(descriptor, _PROBE, offset).strip(WHITE + b"],"):
            return iter(())
        joiner = Joiner()
        while True:
            chunk, more = read_stable(descriptor, offset, _CHUNK)
            seen: list[int] = []  # ends of what has been scanned, pieces of records too
            found = _scanned(chunk, offset, lead, joiner, seen)
            first = next(found, None)
            if first is not None:
                return chain((first,), found)
            if not more:
                return iter(())
            used = seen[-1] - offset if seen else len(chunk)  # a chunk without a whole record: not ours
            offset, lead = offset + used, chunk[max(0, used - _CHECKED) : used]

    def _find_place(self, descriptor: int) -> bool:
        """Whether there may be something new behind `end`, which is moved where the file is no longer the same."""
        if not self._marks or _is_same(descriptor, *self._marks[-1]):
            return True
        for place in range(len(self._marks) - 1, -1, -1):
            end, check = self._marks[place]
            if _is_same(descriptor, end, check):
                if not os.pread(descriptor, _PROBE, end).strip(WHITE + b"],"):
                    return False  # an old view of the file, perhaps: wait until there is something else
                self._marks = deque(list(self._marks)[: place + 1], maxlen=_MARKS)
                self.end = end
                return True
        if _is_same(descriptor, *self._beginning) and os.fstat(descriptor).st_size < self.end:
            return False
        self._marks.clear()
        self.end, self.time = 0, -(1 << 63)
        if not has_hole(descriptor):  # else the same process goes on
            self._segment, self._rank, self._foreign = 1, rank_in(self.name), False
        self._follower.restarted.add(self.name)
        return True


def _scanned(
    chunk: bytes, offset: int, lead: bytes, joiner: Joiner, seen: list[int]
) -> Iterator[tuple[Record, int, int]]:
    """Records of a chunk, each with its end in the file and the check of that place. lead: what is before the chunk."""
    for item, used in scan(chunk):
        seen[:] = (offset + used,)
        whole = joiner.add(item)
        if whole is not None:
            checked = chunk[used - _CHECKED : used] if used >= _CHECKED else (lead + chunk[:used])[-_CHECKED:]
            yield decode_own(whole), offset + used, zlib.crc32(checked)


def _is_same(descriptor: int, end: int, check: int) -> bool:
    """Whether the bytes before a place are those that were read there."""
    return zlib.crc32(os.pread(descriptor, min(end, _CHECKED), max(0, end - _CHECKED))) == check
