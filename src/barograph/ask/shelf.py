"""The runs that a question is about, and their series, read as few times as that takes.

In:   stored runs; a condition.
Out:  the runs and series that it lets through; what a run's last losses and step are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy

from barograph import manifest
from barograph.aliases import Names
from barograph.ask.pushdown import ANY, Condition
from barograph.ask.sealed import Sealed, open_sealed
from barograph.reading.query import StoredRun
from barograph.store.part import DamagedPart

if TYPE_CHECKING:
    from pathlib import Path

    from barograph.reading.tails import Columns

_MANY = 16  # series of one run, from which on all are read in one look …
_SMALL_BYTES = 64 << 20  # … if the run's store is no larger than this


class Entry:
    """A run and what its rows are labelled with; its manifest is read once."""

    def __init__(self, run: StoredRun):
        self.run = run
        self.key = run.id

    @cached_property
    def about(self) -> dict[str, Any]:
        return self.run.manifest

    @cached_property
    def project(self) -> str:
        try:  # a manifest is long and this is all that most queries want of it
            with open(f"{self.run.dir}/{manifest.FILE}", "rb", buffering=0) as file:
                said = _decode_project(file.read()).project
        except (OSError, msgspec.MsgspecError):
            said = None
        return self.run.project if said is None or not self.is_folder else said

    @property
    def is_folder(self) -> bool:
        """Whether the run is surely a folder, not a bare log file."""
        return self.run.id == self.run.dir.name


class _Named(msgspec.Struct):
    project: str | None = None


_decode_project = msgspec.json.Decoder(_Named).decode


class Shelf:
    """The runs that a query is about. `problems`: sentences about what could not be read whole."""

    def __init__(self, runs: Sequence[StoredRun]):
        self.entries = [Entry(run) for run in runs]
        self.problems: dict[str, None] = {}
        same = Counter(entry.key for entry in self.entries)
        for entry in self.entries:
            if same[entry.key] > 1:
                entry.key = f"{entry.project}/{entry.key}"

    def matching(self, condition: Condition) -> Iterator[Entry]:
        runs, projects = condition.exact("run"), condition.exact("project")
        for entry in self.entries:
            if runs is not None and entry.key not in runs:
                continue
            if projects is not None and entry.project not in projects:
                continue
            if condition is ANY or condition.allows({"run": entry.key, "project": entry.project}):
                yield entry

    def note(self, run: StoredRun, problems: Sequence[str]) -> None:
        self.problems.update((f"run {run.id}: {problem}", None) for problem in problems)


def series_of(shelf: Shelf, condition: Condition, every_branch: bool = False) -> Iterator[tuple[Entry, str, Columns]]:
    """Every series that the condition lets through, run by run."""
    for entry in shelf.matching(condition):
        labels = {"run": entry.key, "project": entry.project}
        exact = condition.exact("name")

        told: set[str] = set()

        def wants(name: str, labels: dict[str, str] = labels, told: set[str] = told) -> bool:
            return name not in told and condition.allows({"name": name, **labels})

        sealed = open_sealed(entry.run.dir) if entry.is_folder else None
        if sealed is not None:
            try:
                for name, columns in _of_sealed(sealed, exact, wants):
                    yield entry, name, columns
                    told.add(name)
                continue
            except (DamagedPart, OSError):  # the general way reads the rest, and says what is damaged
                pass
        branch = "all" if every_branch else "live"
        for name, columns in _of_run(entry.run, exact, wants, branch):
            yield entry, name, columns
        shelf.note(entry.run, entry.run.problems)


def _of_sealed(
    sealed: Sealed, exact: frozenset[str] | None, wants: Callable[[str], bool]
) -> Iterator[tuple[str, Columns]]:
    try:
        for name in sealed.names() if exact is None else sorted(exact):
            if wants(name):
                columns = sealed.columns(name)
                if len(columns[0]):
                    yield name, columns
    finally:
        sealed.close()


def _of_run(
    run: StoredRun, exact: frozenset[str] | None, wants: Callable[[str], bool], branch: str
) -> Iterator[tuple[str, Columns]]:
    names = [name for name in (run.names() if exact is None else sorted(exact)) if wants(name)]
    if len(names) > _MANY and _store_bytes(run.dir) <= _SMALL_BYTES:
        kept = set(names)
        yield from ((name, columns) for name, columns in run.all_columns(branch).items() if name in kept)
        return
    for name in names:
        columns = run.columns(name, branch)
        if len(columns[0]):
            yield name, columns


def _store_bytes(folder: Path) -> int:
    total = 0
    for path in (folder / "store").glob("*/*.*"):
        try:
            total += path.stat().st_size
        except OSError:  # sealed and gone in between
            continue
    return total


def latest(entry: Entry, names: Names | None = None) -> dict[str, Any]:
    """The last `loss` and `eval_loss` of a run, by whatever name it logs them, and its last `step`."""
    names = names or Names()
    source = (open_sealed(entry.run.dir) if entry.is_folder else None) or entry.run
    said: dict[str, Any] = {"loss": None, "eval_loss": None, "step": None}
    try:
        known = source.names()
        for key, series in (("loss", "train/loss"), ("eval_loss", "eval/loss")):
            same = [name for name in known if name == series or names.canonical(name).name == series]
            if same:
                step, time, value, _ = source.columns(series if series in same else same[0])
                if len(step):
                    last = int(numpy.lexsort((time, step))[-1])
                    said[key] = float(value[last])
                    said["step"] = max(int(step[last]), said["step"] or 0)
        if said["step"] is None and known:
            step = source.columns(known[0])[0]
            said["step"] = int(step.max()) if len(step) else None
    except (DamagedPart, OSError):  # a sentence about it comes with the points
        pass
    finally:
        if isinstance(source, Sealed):
            source.close()
    return said
