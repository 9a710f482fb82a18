"""The collector: what a source reads becomes a stored run, whatever interrupts it.

In:   a found run and its source.
Out:  a run's folder as the recorder makes it: manifest, segments, log file, store. What is read again adds only
      what is new.

Numbers go straight into the store, by the thousand. The log file gets the facts, the marks, and the rows too
while they are few, so that `barograph tail` shows them. `journal` says how both advance together.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from barograph.core import manifest, segments
from barograph.core.aliases import Alias, Names
from barograph.core.cycles import seldom_swept
from barograph.core.liveness import IMPORTED
from barograph.core.names import folder_name
from barograph.core.record import HAS_NUMBERS, KINDS, Record, format_time, numbers
from barograph.importing import about, folders, journal, media
from barograph.importing.files import RunFiles
from barograph.importing.rows import derive, records_of
from barograph.importing.source import (
    AS_STEPS,
    Fact,
    FoundRun,
    ImportedDistribution,
    ImportedPoints,
    ImportMark,
    ImportSource,
    Item,
    Restart,
    Unread,
)

COMMIT_POINTS = 1_000_000  # 8 MB of values; a commit costs two syncs of a file, some milliseconds
COMMIT_SECONDS = 2.0
# Rows of sources up to this size are records of the log file too (20 µs a row); what follows live always is. All
# or none: a log with a part of a run's steps would give wrong sums.
LOGGED_BYTES = 8 << 20
_WIDE = 200  # a row of more names is in the store alone
_EXAMPLES = 5
_EXAMPLE_LETTERS = 160


class SourceFailed(Exception):
    """A source raised: a mistake of ours, told as such. What was committed before stays."""


@dataclass
class Tally:
    """What was added since the collector was opened; `unread` and `examples` are of all imports of the run."""

    points: int = 0
    rows: int = 0
    facts: int = 0
    histograms: int = 0
    restarts: int = 0
    unread: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    last_step: int | None = None
    replaced: bool = False  # the path held something else when it was imported before
    failure: str = ""

    @property
    def added(self) -> int:
        return self.points + self.facts + self.histograms


class Collector:
    """Imports one run; `read` may be called again and again while the source grows.

    root: the folder of runs. project, name: instead of the source's own. live: the source is being followed.
    here: as for `collect`.
    Raises `folders.Busy` if another process imports the run now, OSError if the folder can't be written.
    """

    folder: Path
    tally: Tally
    _mark: dict[str, Any] | None
    _identity: dict[str, Any]
    _segment: int
    _first_time: int
    _last_time: int
    _described: bool
    _files: RunFiles
    _logged: bool  # rows are records of the log too, if they are not too many
    _read_before: bool
    _step: int
    _dirty: bool

    def __init__(
        self,
        source: ImportSource,
        found: FoundRun,
        root: str | os.PathLike[str],
        *,
        project: str = "",
        name: str = "",
        aliases: Mapping[str, Alias] | None = None,
        live: bool = False,
        logged: bool = True,
        here: bool = False,
    ):
        created = found.created if 0.0 < found.created < 1e11 else 0.0  # a clock gone mad
        self.source, self.found, self.live = source, found._replace(created=created), live
        self.project = project or found.project or "imported"
        self.name = name or found.name or found.path.stem
        self.tally = Tally()
        self._aliases = aliases
        self._row_records, self.here = logged, here
        self._root = Path(root) / folder_name(self.project)
        self._take_in(*self._newest())

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # -- reading ------------------------------------------------------------------------------------

    def read(self, advance: Callable[[Mapping[str, Any]], object] = lambda state: None) -> Tally:
        """Take in what the source has that is new; returns what all calls so far have added.

        advance: called with each mark's state, for a progress bar. Raises SourceFailed.
        """
        with seldom_swept():
            return self._read_all(advance)

    def _read_all(self, advance: Callable[[Mapping[str, Any]], object]) -> Tally:
        if self._read_before and self._is_replaced():
            self._begin_anew()
        since = ImportMark(self._mark) if self._mark is not None else None
        self._identity = folders.identity(self.found.path) or self._identity
        begun = False
        for item in self._items(since):
            if isinstance(item, ImportMark):
                if not item.state and since is not None and not begun:
                    self._begin_anew()  # the source finds something else than what was read before
                    self._identity = folders.identity(self.found.path)
                else:
                    self._mark = item.state
                    advance(item.state)
                    if self._is_due():
                        self._commit()
            else:
                self._take(item)
            begun = True
        if self._dirty or self._mark != self._committed:
            self._commit()
        self._read_before = True
        return self.tally

    def _items(self, since: ImportMark | None) -> Iterator[Item]:
        """The source's items; what it raises becomes SourceFailed, and what came behind its last mark is dropped."""
        last: Item | None = None
        reason = ""
        iterator = iter(self.source.read(self.found, since))
        while True:
            try:
                item = next(iterator)
            except StopIteration:
                break
            except MemoryError:
                raise
            except Exception as error:
                reason = (
                    error.strerror or str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                )
                break
            yield item
            last = item
        if not reason and last is not None and not isinstance(last, ImportMark):
            reason = "it ended without a mark"
        if reason:
            self._go_back()
            raise SourceFailed(f"{self.found.path}: the importer of {self.source.kind} failed ({reason})")

    def _take(self, item: Item) -> None:
        if isinstance(item, ImportedPoints):
            self._take_points(item)
        elif isinstance(item, Fact):
            self._take_fact(item)
        elif isinstance(item, ImportedDistribution):
            self._look_at_time(int(item.time))
            name = self._names.of(item.name).name
            self._files.add_histogram(name, item.step, item.time, item.edges, item.counts, self._segment)
            self.tally.histograms += 1
        elif isinstance(item, Restart):
            self._segment += 1
            segment = segments.Segment(self._segment, self._segment - 1, int(item.step), "resume", int(item.time))
            self._files.add_segment(segment)
            self._said.end = {}
            self._highest = 0
            self._last_steps.clear()
            self.tally.restarts += 1
        elif isinstance(item, Unread):
            self.tally.unread += 1
            if len(self.tally.examples) < _EXAMPLES:
                where = {"file": str(item.file), "where": item.where, "text": item.text[:_EXAMPLE_LETTERS]}
                self.tally.examples.append(where | {"why": item.why})
        self._dirty = True

    def _take_points(self, item: ImportedPoints) -> None:
        series, factors = self._names.take(item.names)
        values = numpy.asarray(item.values, numpy.float64)
        steps, times = numpy.asarray(item.steps, numpy.int64), numpy.asarray(item.times, numpy.int64)
        if not len(steps):
            return
        if factors is not None:
            values = values * factors
        series, values = derive(series, values)
        if item.x != "step":
            self._x.update(dict.fromkeys(series, item.x))
        self._look_at_times(times)
        self._step, highest = int(steps[-1]), int(steps.max())
        self.tally.last_step = max(self.tally.last_step or 0, highest)
        if len(series) <= _WIDE and (self._logged or (self.live and self._read_before)):
            for record in records_of(series, steps, times, values):
                self._files.add_record(record)
        self._files.add_block(series, self._segment, steps, times, values)
        self._note_last(series, highest, values[len(steps) - 1 - int(numpy.argmax(steps[::-1]))].tolist())
        if item.x in AS_STEPS:
            self._highest = max(self._highest, highest)
        self.tally.rows += len(steps)
        self.tally.points += values.size

    def _take_fact(self, item: Fact) -> None:
        kind, fields = item.kind, item.fields
        if kind == "media" and media.CONTENT in fields:
            fields = media.keep(self.folder, fields)
        if kind not in KINDS or kind == "segment":
            kind, fields = "info", {"type": item.kind, **fields}
        if kind == "option" and "name" in fields:
            self._said.options[str(fields["name"])] = fields.get("value")
        elif kind == "cmd" and isinstance(fields.get("cmd"), list):
            self._said.command = [str(word) for word in fields["cmd"]]
        elif kind == "end":
            self._said.end = fields
        record = Record(kind, int(item.time), int(item.step), fields)
        named = dict(numbers(record)) if kind in HAS_NUMBERS else {}
        if named:
            self._note_last(tuple(named), record.step, list(named.values()))
            self._highest = max(self._highest, record.step)
            self._files.add_row(tuple(named), self._segment, record.step, record.time, list(named.values()))
            self.tally.points += len(named)
            self._step = record.step
            self.tally.last_step = max(self.tally.last_step or 0, record.step)
        self._look_at_time(record.time)
        self._files.add_record(record)
        self.tally.facts += 1

    def _note_last(self, series: tuple[str, ...], step: int, values: list[float]) -> None:
        """Keep each series' value at its highest step."""
        for name, value in zip(series, values, strict=True):
            if step >= self._last_steps.get(name, step):
                self._last[name], self._last_steps[name] = value, step

    def _look_at_times(self, times: NDArray[Any]) -> None:
        known = times[times > 0]
        if len(known):
            self._look_at_time(int(known.min()))
            self._look_at_time(int(known.max()))

    def _look_at_time(self, time: int) -> None:
        if time > 0:
            self._first_time = min(self._first_time or time, time)
            self._last_time = max(self._last_time, time)

    # -- committing -----------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        waited = time.monotonic() - self._committed_at
        return self._dirty and (self._files.uncommitted >= COMMIT_POINTS or waited >= COMMIT_SECONDS)

    def _commit(self) -> None:
        """Numbers, facts and the mark become part of the run, all together."""
        if not self._described:
            about.begin(self.folder, self)
            self._described = True
        told = {name: original for name, original in self._names.owners.items() if self._told.get(name) != original}
        fields: dict[str, Any] = {"kind": self.source.kind, "mark": self._mark, "segment": self._segment}
        fields |= {"identity": self._identity, "unread": self.tally.unread}
        fields |= {"first_time": self._first_time, "last_time": self._last_time}
        fields |= {"examples": self.tally.examples} if self.tally.examples else {}
        fields |= {"names": told} if told else {}
        fields |= {"factors": self._names.factors} if self._names.factors else {}
        fields |= {"x": self._x} if self._x else {}
        self._files.commit(self._step, fields)
        self._told |= told
        self._committed, self._dirty = self._mark, False
        self._committed_at = time.monotonic()

    # -- the run's folder -----------------------------------------------------------------------------

    def _newest(self) -> tuple[int, Path, int]:
        """Number and folder of the newest import of this run, and what holds it; of its first if there is none."""
        print_ = folders.fingerprint(self.found)
        while True:
            known = folders.generations(self._root, print_)
            number, folder = known[-1] if known else (1, folders.folder_for(self._root, self.found, self.name, 1))
            lock = folders.hold(folder)
            if folders.generations(self._root, print_)[-1:] == [(number, folder)]:
                return number, folder, lock
            os.close(lock)

    def _take_in(self, number: int, folder: Path, lock: int) -> None:
        self._number, self.folder, self._lock = number, folder, lock
        try:
            state = journal.recover(folder)
        except journal.Damaged:
            state = None
        except BaseException:
            os.close(lock)
            raise
        self._resume(state or journal.State())
        if state is None:
            self._begin_anew()
            return
        if state.record.get("kind", self.source.kind) != self.source.kind or self._is_replaced():
            self._begin_anew()

    def _is_replaced(self) -> bool:
        """Whether another file stands at the path now; some sources find that out by themselves."""
        rewrites = getattr(self.source, "rewrites", False)
        return not rewrites and folders.is_replaced(self._identity, self.found.path)

    def _begin_anew(self) -> None:
        """Another folder: what is imported now replaces the import of before, which stays as it is."""
        before, old_lock = self.folder, self._lock
        self._files.discard()
        self._number += 1
        self.folder = folders.folder_for(self._root, self.found, self.name, self._number)
        self._lock = folders.hold(self.folder)
        facts: dict[str, Any] = {"superseded_by": self.folder.name}
        if manifest.read(before).get("status") == "running":  # as far as it was followed: no more is to come
            facts |= {"status": self._said.end.get("status") or IMPORTED}
            facts |= {"finished": format_time(self._last_time) if self._last_time else None}
        with contextlib.suppress(OSError):
            manifest.update(before, **facts)
        os.close(old_lock)
        self._resume(journal.recover(self.folder))
        self.tally.replaced = True

    def _go_back(self) -> None:
        """Forget what was read since the last commit."""
        before = self.tally
        self._files.discard()
        self._resume(journal.recover(self.folder))
        self.tally.rows, self.tally.points, self.tally.facts = before.rows, before.points, before.facts

    def _resume(self, state: journal.State) -> None:
        """Go on from what is committed."""
        record = state.record
        self._names = Names(self.source.kind, getattr(self.source, "aliases", None), self._aliases)
        self._names.restore(state.names, record.get("factors") or {})
        self._told = dict(state.names)
        self._mark = record.get("mark")
        self._committed = self._mark
        self._segment = int(record.get("segment", 1))
        self._first_time, self._last_time = int(record.get("first_time", 0)), int(record.get("last_time", 0))
        self._x: dict[str, str] = dict(record.get("x") or {})
        self._said = about.Said(dict(state.options), state.command, dict(state.end))
        final = manifest.read(self.folder).get("final_metrics") if record else None
        self._last: dict[str, float] = dict(final) if isinstance(final, dict) else {}
        self._highest = int(self._last.pop("step", 0))
        self._last_steps: dict[str, int] = {}
        self._logged = self._row_records and _size(self.found.path) <= LOGGED_BYTES
        self._read_before = False
        self._described = state.position > 0
        self._identity = dict(record.get("identity") or {})
        self._files = RunFiles(self.folder, state.position, self._last_time, int(self.found.created * 1e6), self.here)
        self._step = 0
        self._dirty = False
        self._committed_at = time.monotonic()
        self.tally = Tally(unread=int(record.get("unread", 0)), examples=list(record.get("examples") or ()))

    @property
    def ended(self) -> bool:
        """Whether the source says that its training is over."""
        return bool(self._said.end) or self.found.status not in ("", "running")

    # -- the end ----------------------------------------------------------------------------------------

    def finish(self, failure: str = "") -> Path:
        """Complete the manifest, seal the store and let go of the folder; returns the folder."""
        if self._dirty:  # interrupted amid a reading: what no mark stands behind comes again with the next import
            self._go_back()
        self.tally.failure = failure
        if not self._described:
            self._commit()  # a run without numbers is a run too
        self._files.close()
        self.tell()
        self.release()
        return self.folder

    def tell(self, status: str = "") -> None:
        """Bring the manifest up to date. status: instead of what the source says."""
        about.complete(
            self.folder,
            self,
            self._said,
            status=status,
            first_time=self._first_time,
            last_time=self._last_time,
            names=self._names,
            x=self._x,
            mark=self._committed,
            identity=self._identity,
            last=self._last,
            highest=self._highest or max(self._last_steps.values(), default=0),
        )

    def release(self) -> None:
        """Let go of the folder without a commit; harmless after `finish`."""
        self._files.discard()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _size(path: Path) -> int:
    """Bytes of a file, or of a folder's files as far as it matters here."""
    total = 0
    with contextlib.suppress(OSError):
        if not path.is_dir():
            return path.stat().st_size
        for folder, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.stat(os.path.join(folder, name)).st_size
            if total > LOGGED_BYTES:
                break
    return total


def collect(
    source: ImportSource,
    run: FoundRun,
    root: str | os.PathLike[str],
    *,
    project: str = "",
    name: str = "",
    aliases: Mapping[str, Alias] | None = None,
    advance: Callable[[Mapping[str, Any]], object] = lambda state: None,
    logged: bool = True,
    here: bool = False,
) -> tuple[Path, Tally]:
    """Import one run into the folder of runs; returns its folder and what was added.

    logged: False for rows as columns alone, without records in the log, as those of a large file are anyway.
    here: the run is for this process alone and goes with it: nothing need survive a power cut, rows may stay in memory.

    Raises `folders.Busy` if another process imports it now, OSError if the disk does not let it.
    """
    with Collector(
        source, run, root, project=project, name=name, aliases=aliases, logged=logged, here=here
    ) as collector:
        failure = ""
        try:
            collector.read(advance)
        except SourceFailed as error:
            failure = str(error)
        return collector.finish(failure), collector.tally
