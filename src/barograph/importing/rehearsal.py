"""What an import would read, without writing anything.

In:   a found run and its source.
Out:  counts, names with what they become, steps, and examples of what is not understood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy

from barograph.core.aliases import Alias, Names
from barograph.core.record import HAS_NUMBERS, Record, numbers
from barograph.importing.source import (
    Fact,
    FoundRun,
    ImportedDistribution,
    ImportedPoints,
    ImportSource,
    Restart,
    Unread,
)

_EXAMPLES = 5


@dataclass
class Rehearsal:
    """What was seen. names: original → series and the number of its points; facts: kind → how many."""

    points: int = 0
    rows: int = 0
    first_step: int | None = None
    last_step: int | None = None
    restarts: int = 0
    histograms: int = 0
    unread: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    facts: Counter[str] = field(default_factory=Counter)
    names: dict[str, tuple[str, float]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    x: set[str] = field(default_factory=set)
    failure: str = ""


def rehearse(source: ImportSource, run: FoundRun, aliases: Mapping[str, Alias] | None = None) -> Rehearsal:
    """Read a run to its end and keep nothing but counts."""
    rehearsal = Rehearsal()
    names = Names(source.kind, getattr(source, "aliases", None), aliases)
    try:
        for item in source.read(run, None):
            if isinstance(item, ImportedPoints):
                _points(rehearsal, names, item)
            elif isinstance(item, Fact):
                rehearsal.facts[item.kind] += 1
                record = Record(item.kind, 0, item.step, item.fields)
                for name, _ in numbers(record) if item.kind in HAS_NUMBERS else ():
                    rehearsal.names.setdefault(name, (name, 1.0))
                    rehearsal.counts[name] += 1
                    rehearsal.points += 1
                    _steps(rehearsal, item.step, item.step)
            elif isinstance(item, ImportedDistribution):
                rehearsal.histograms += 1
            elif isinstance(item, Restart):
                rehearsal.restarts += 1
            elif isinstance(item, Unread):
                rehearsal.unread += 1
                if len(rehearsal.examples) < _EXAMPLES:
                    text = {"file": str(item.file), "where": item.where, "text": item.text[:160]}
                    rehearsal.examples.append(text | {"why": item.why})
    except Exception as error:  # a mistake of an importer must not hide what the others find
        rehearsal.failure = f"{run.path}: the importer of {source.kind} failed ({type(error).__name__}: {error})"
    return rehearsal


def _points(rehearsal: Rehearsal, names: Names, item: ImportedPoints) -> None:
    rows = len(item.steps)
    if not rows:
        return
    for name in item.names:
        alias = names.of(name)
        rehearsal.names.setdefault(name, (alias.name, alias.factor))
        rehearsal.counts[name] += rows
    rehearsal.rows += rows
    rehearsal.points += rows * len(item.names)
    rehearsal.x.add(item.x)
    steps = numpy.asarray(item.steps)
    _steps(rehearsal, int(steps.min()), int(steps.max()))


def _steps(rehearsal: Rehearsal, low: int, high: int) -> None:
    rehearsal.first_step = low if rehearsal.first_step is None else min(rehearsal.first_step, low)
    rehearsal.last_step = high if rehearsal.last_step is None else max(rehearsal.last_step, high)
