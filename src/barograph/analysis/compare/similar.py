"""Runs that a run can be compared with: its repeats, and those whose configuration differs in little.

In:   what a run is grouped by, and the same of others.
Out:  for each of the nearest the keys that differ, the fewest first. The command and the page ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barograph.query.groups import Traits
from barograph.query.keys import same, shown

MOST_KEYS = 3  # that differ: more is another experiment
MOST = 50


@dataclass(frozen=True)
class SimilarRun:
    """at: the place among the others. keys: those that differ, with its own values; none: a repeat."""

    at: int
    keys: dict[str, str]


def similar(run: Traits, others: Sequence[Traits]) -> list[SimilarRun]:
    """The runs of the same project that differ in at most three keys, repeats first. Without a configuration none."""
    found = []
    for at, other in enumerate(others):
        if not run.setup or not other.setup or run.facts.get("project") != other.facts.get("project"):
            continue
        keys = [key for key in dict.fromkeys([*run.setup, *other.setup])
                if (key in run.setup) != (key in other.setup)
                or not same(run.setup[key], other.setup[key])]  # fmt: skip
        if len(keys) <= MOST_KEYS:
            found.append(
                SimilarRun(at, {key: shown(other.setup[key]) if key in other.setup else "absent" for key in keys})
            )
    return sorted(found, key=lambda item: (len(item.keys), sorted(item.keys), item.at))[:MOST]
