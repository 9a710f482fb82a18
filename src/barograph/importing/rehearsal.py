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


def rehearse(source: ImportSource, found: FoundRun, aliases: Mapping[str, Alias] | None = None) -> Rehearsal:
    """Read a run to its end and keep nothing but counts."""
    seen = Rehearsal()
    names = Names(source.kind, getattr(source, "aliases", None), aliases)
    try:
        for item in source.read(found, None):
            if isinstance(item, ImportedPoints):
                _points(seen, names, item)
            elif isinstance(item, Fact):
                seen.facts[item.kind] += 1
                record = Record(item.kind, 0, item.step, item.fields)
                for name, _ in numbers(record) if item.kind in HAS_NUMBERS else ():
                    seen.names.setdefault(name, (name, 1.0))
                    seen.counts[name] += 1
                    seen.points += 1
                    _steps(seen, item.step, item.step)
            elif isinstance(item, ImportedDistribution):
                seen.histograms += 1
            elif isinstance(item, Restart):
                seen.restarts += 1
            elif isinstance(item, Unread):
                seen.unread += 1
                if len(seen.examples) < _EXAMPLES:
                    text = {"file": str(item.file), "where": item.where, "text": item.text[:160]}
                    seen.examples.append(text | {"why": item.why})
    except Exception as error:  # a mistake of an importer must not hide what the others find
        seen.failure = f"{found.path}: the importer of {source.kind} failed ({type(error).__name__}: {error})"
    return seen


def _points(seen: Rehearsal, names: Names, item: ImportedPoints) -> None:
    rows = len(item.steps)
    if not rows:
        return
    for name in item.names:
        alias = names.of(name)
        seen.names.setdefault(name, (alias.name, alias.factor))
        seen.counts[name] += rows
    seen.rows += rows
    seen.points += rows * len(item.names)
    seen.x.add(item.x)
    steps = numpy.asarray(item.steps)
    _steps(seen, int(steps.min()), int(steps.max()))


def _steps(seen: Rehearsal, low: int, high: int) -> None:
    seen.first_step = low if seen.first_step is None else min(seen.first_step, low)
    seen.last_step = high if seen.last_step is None else max(seen.last_step, high)
