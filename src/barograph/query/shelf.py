"""The runs that a question is about, and their series, read as few times as that takes.

In:   stored runs; a condition.
Out:  the runs and series that it lets through; what a run's last losses and step are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from barograph.core import manifest
from barograph.core.lazy import lazy
from barograph.query.losses import run_losses
from barograph.query.pushdown import ANY, Condition
from barograph.query.stored import StoredRun

if TYPE_CHECKING:
    import numpy

    from barograph.store.branch import Branch
    from barograph.store.columns import Ranked
else:
    numpy = lazy("numpy")


class RunEntry:
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

    @cached_property
    def branch(self) -> Branch:
        return self.run.branch()

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
        self.entries = [RunEntry(run) for run in runs]
        self.problems: dict[str, None] = {}
        same = Counter(entry.key for entry in self.entries)
        for entry in self.entries:
            if same[entry.key] > 1:
                entry.key = f"{entry.project}/{entry.key}"

    def matching(self, condition: Condition) -> Iterator[RunEntry]:
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


def series_of(shelf: Shelf, condition: Condition, every_branch: bool = False) -> Iterator[tuple[RunEntry, str, Ranked]]:
    """Every series that the condition lets through, run by run. every_branch: with all ranks."""
    for entry in shelf.matching(condition):
        labels = {"run": entry.key, "project": entry.project}
        exact = condition.exact("name")

        def wants(name: str, labels: dict[str, str] = labels) -> bool:
            return condition.allows({"name": name, **labels})

        names = [name for name in (entry.run.names() if exact is None else sorted(exact)) if wants(name)]
        every = ("all", "all") if every_branch else ("live", None)
        for name, points in entry.run.points_of(names, *every):
            yield entry, name, points
        shelf.note(entry.run, entry.run.problems)


def latest(entry: RunEntry) -> dict[str, Any]:
    """The last `loss` and `eval_loss` of a run, by whatever name it logs them, and its last `step`."""
    run = entry.run
    result: dict[str, Any] = {"loss": None, "eval_loss": None, "step": None}
    known = run.names()
    found = run_losses(run, known)
    wanted = {name: key for key, name in (("loss", found.loss), ("eval_loss", found.evaluation)) if name}
    for name, (step, time, value, _, _) in run.points_of(wanted):
        last = int(numpy.lexsort((time, step))[-1])
        result[wanted[name]] = float(value[last])
        result["step"] = max(int(step[last]), result["step"] or 0)
    if result["step"] is None:
        for _, (step, *_) in run.points_of(known[:1]):
            result["step"] = int(step.max())
    return result
