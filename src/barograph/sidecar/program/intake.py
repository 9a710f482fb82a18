"""What a program prints and writes, taken into its run as it grows.

In:   files: the output that is kept, files that the program has open, files and folders that were named; each read by
      the importer of its kind.
Out:  records in the run's log.

A series belongs to the first file that has it, so numbers that are printed and written to a file count once; where
steps go back, the first file with numbers says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy

from barograph.core.aliases import Alias, Names
from barograph.core.record import KINDS
from barograph.importing import media
from barograph.importing.pursuit import be_patient, signature
from barograph.importing.registry import identify
from barograph.importing.rows import derive, records_of
from barograph.importing.source import (
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
from barograph.sidecar.program.files import goes_on_in
from barograph.training.run import Run

_SEARCH_SECONDS = 2.0  # between two looks at what kind a file is, while that is not known
_AGAIN_SECONDS = 30.0  # and afterwards, for another training in it
_OWN_KINDS = ("cmd", "end", "segment", "option")  # said by the run itself
_CLOCKS_APART = 3600 * 1_000_000  # µs: a time that is further from now is not one of this run


class FollowedRun:
    """One run in one file, as far as it was read."""

    def __init__(self, source: ImportSource, found: FoundRun, aliases: Mapping[str, Alias]):
        self.source, self.found = source, found
        self.names = Names(source.kind, getattr(source, "aliases", None), aliases)
        self._mark: ImportMark | None = None
        self._seen: Any = None

    def read(self, take: Callable[[Item], Any]) -> None:
        """What is new, up to the last mark. Raises what the importer raises."""
        now = signature(self.found.path)
        if now is not None and now == self._seen:
            return
        items: list[Item] = []
        for item in self.source.read(self.found, self._mark):
            if isinstance(item, ImportMark):
                self._mark = item if item.state else None
                for each in items:
                    take(each)
                items.clear()
            else:
                items.append(item)
        self._seen = now


class FollowedFile:
    """A file or folder that may hold runs, by and by."""

    def __init__(self, path: Path, before: FollowedFile | None = None):
        self.path, self.runs = path, dict[str, FollowedRun]()
        self._looked = -_AGAIN_SECONDS
        self._size = -1
        self._before = before  # the part of the output before this one: it goes on in the same form

    def search(self, aliases: Mapping[str, Alias], now: bool) -> None:
        """Look for runs in it. now: whenever it was done last."""
        since = time.monotonic() - self._looked
        if not now and since < (_AGAIN_SECONDS if self.runs else _SEARCH_SECONDS):
            return
        with contextlib.suppress(OSError):
            size = self.path.stat().st_size
            if size == self._size and not self.path.is_dir():
                return
            self._looked, self._size = time.monotonic(), size
            for source, found in identify(self.path):
                key = f"{found.path} {found.key}"
                if key not in self.runs:
                    be_patient(source, True)
                    self.runs[key] = FollowedRun(source, found, aliases)
            if not self.runs and self._before is not None and self._before.runs and size:
                last = list(self._before.runs.values())[-1]
                found = last.found._replace(path=self.path, key="", config={})
                self.runs[f"{self.path} "] = FollowedRun(last.source, found, aliases)


class Intake:
    """open_run: gives the run, which begins with the first number; None where nothing is wanted any more."""

    def __init__(self, open_run: Callable[[], Run | None], aliases: Mapping[str, Alias]):
        self._open_run, self._aliases = open_run, aliases
        self.files: dict[Path, FollowedFile] = {}
        self.rows = self.unread = 0
        self.problems: dict[str, str] = {}
        self._owners: dict[str, FollowedRun] = {}  # series → what it is read from
        self._first: FollowedRun | None = None
        self._anew: set[int] = set()  # runs in files that have begun
        self._until = self._looked = time.time_ns() // 1000  # times up to which rows without a time are placed

    def add(self, path: Path, before: FollowedFile | None = None) -> FollowedFile:
        """Follow a file or folder; it need not hold anything yet."""
        if path not in self.files:
            self.files[path] = FollowedFile(path, before)
        return self.files[path]

    def read(self, final: bool = False) -> None:
        """Take in what is new; final: the program has ended, so a last line without its break is whole."""
        self._until, self._looked = max(self._until, self._looked), time.time_ns() // 1000
        for file in list(self.files.values()):
            file.search(self._aliases, final)
            for followed in file.runs.values():
                be_patient(followed.source, not final)
                try:
                    followed.read(lambda item, followed=followed: self._take(followed, item))  # type: ignore[misc]
                except Exception as error:  # a mistake of an importer, or a file that went away
                    self.problems[str(file.path)] = f"{followed.source.kind}: {type(error).__name__}: {error}"

    def _take(self, followed: FollowedRun, item: Item) -> None:
        if isinstance(item, Unread):
            self.unread += 1
            return
        run = self._open_run()
        if run is None:
            return
        self._begin(run, followed)
        if isinstance(item, ImportedPoints):
            self._points(run, followed, item)
        elif isinstance(item, Fact):
            self._fact(run, item)
        elif isinstance(item, ImportedDistribution):
            name = followed.names.of(item.name).name
            run._out.wide.histogram(name, item.counts, int(item.step), edges=item.edges, advance=False)
        elif isinstance(item, Restart) and self._first in (None, followed):
            run.rewind(int(item.step))

    def _begin(self, run: Run, followed: FollowedRun) -> None:
        if id(followed) in self._anew:
            return
        self._anew.add(id(followed))
        config = {name: value for name, value in followed.found.config.items() if name not in run.config}
        if config:
            run.config.update(config)

    def _points(self, run: Run, followed: FollowedRun, item: ImportedPoints) -> None:
        series, factors = followed.names.take(item.names)
        values = numpy.asarray(item.values, numpy.float64)
        if not len(item.steps):
            return
        series, values = derive(series, values if factors is None else values * factors)
        series = tuple(self._apart(followed, name) for name in series)
        ours = [place for place, name in enumerate(series) if self._owners.setdefault(name, followed) is followed]
        if not ours:
            self._hand_over(run, followed, series, int(item.steps[0]))
            ours = [place for place, name in enumerate(series) if self._owners[name] is followed]
        if not ours:
            return
        if self._first is None:
            self._first = followed
        names, values = tuple(series[place] for place in ours), values[:, ours]
        now, most = time.time_ns() // 1000, run.about.settings.wide_threshold
        times = numpy.asarray(item.times)
        if not (abs(times - now) < _CLOCKS_APART).all():  # none that is of now: since the last look, evenly
            times = numpy.linspace(self._until, now, len(times) + 1).astype(numpy.int64)[1:]
            self._until = now
        for record in records_of(names, numpy.asarray(item.steps), times, values):
            if len(record.fields) > most:
                run.log(record.fields, record.step)
            else:
                run._out.emit(record.kind, record.step, record.fields, checked=True, moment=record.time)
        self.rows += len(item.steps)

    def _apart(self, followed: FollowedRun, name: str) -> str:
        """A series' name; with its folder, where another folder of event files has the same one."""
        owner, kind = self._owners.get(name, followed), followed.source.kind
        folder = followed.found.path.parent
        if kind != "tensorboard" or owner.source.kind != kind or owner.found.path.parent == folder:
            return name
        return f"{folder.name}/{name}"

    def _hand_over(self, run: Run, followed: FollowedRun, series: tuple[str, ...], step: int) -> None:
        """The same series from a further run in the same file, or from the next part of it: they go on."""
        owners = {id(self._owners[name]): self._owners[name] for name in series}
        if not all(goes_on_in(owner.found.path, followed.found.path) for owner in owners.values()):
            return
        for name, owner in list(self._owners.items()):
            if id(owner) in owners:
                self._owners[name] = followed
        if self._first is not None and id(self._first) in owners:
            self._first = followed
        if step < run.about.step:  # the program has begun a training anew
            run.rewind(step)

    def _fact(self, run: Run, item: Fact) -> None:
        kind, fields = item.kind, dict(item.fields)
        if kind == "option" and "name" in fields:
            name, value = str(fields["name"]), fields.get("value")
            run.config[name] = value
            if name == "total_steps" and isinstance(value, int):
                run.about.plan_steps(value)
        if kind in _OWN_KINDS:
            return
        if kind not in KINDS:
            kind, fields = "info", {"type": kind, **fields}
        if kind == "media" and media.CONTENT in fields:
            try:
                fields = media.keep(run.dir, fields)
            except OSError as error:  # the numbers beside it are kept all the same
                name = f"{fields.get('name')} at step {item.step}"
                self.problems[name] = f"{name} is not kept: {error.strerror or error}"
                return
        run._out.record(kind, int(item.step), fields)
