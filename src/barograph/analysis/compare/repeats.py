"""What seeds do, from the repeats that a project has: how far runs of one setup lie apart.

In:   the runs of a comparison that have no repeats of their own; the project's other runs beside them.
Out:  the standard deviation from run to run, and where it is from; None if the project has no repeats.

The runs compared are not among the repeats, so that their difference and the spread are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barograph.analysis.compare import statistics
from barograph.analysis.compare.ends import SharedStretch
from barograph.analysis.compare.facts import RunFacts, gather
from barograph.analysis.compare.member import ComparedMember
from barograph.query import catalog
from barograph.query.keys import same

MOST_RUNS = 300
MOST_REPEATS = 40
_TO_THE_END = 0.98  # of the common stretch


@dataclass(frozen=True)
class Repeats:
    """spread: the standard deviation within setups, in the metric's unit; dof: its degrees of freedom.

    runs: how many. own: whether they are repeats of the setups compared, or of others of the project.
    """

    spread: float
    dof: float
    runs: int
    own: bool


def find_repeats(members: Sequence[ComparedMember], stretch: SharedStretch) -> Repeats | None:
    """Look for repeats beside these runs. Only manifests are read but for the repeats themselves."""
    if not stretch.is_whole or any("config" not in member.facts.known for member in members):
        return None
    setups: list[tuple[dict[str, Any], object, list[Any], bool]] = []
    for member in members:
        mine, commit = member.facts.setup(), member.facts.values.get(("code", "commit"))
        if not any(_is_same(mine, commit, setup) for setup in setups):
            setups.append((mine, commit, [], True))
    compared = {member.run.dir.resolve() for member in members}
    for folder in dict.fromkeys(member.run.dir.resolve().parent for member in members):
        for run in catalog.runs(folder)[-MOST_RUNS:]:
            if run.dir.resolve() in compared:
                continue
            facts: RunFacts = gather(run, head=False)
            if "config" not in facts.known:
                continue
            mine, commit = facts.setup(), facts.values.get(("code", "commit"))
            known = next((setup for setup in setups if _is_same(mine, commit, setup)), None)
            if known is None:
                known = (mine, commit, [], False)
                setups.append(known)
            known[2].append(run)
    for own in (True, False):
        groups = [runs for _, _, runs, is_own in setups if is_own is own and len(runs) > 1]
        values = [_values(runs[-MOST_REPEATS:], stretch) for runs in groups]
        pooled = statistics.pooled_spread(values)
        if pooled is not None and pooled[1] >= 2 and pooled[0] > 0:
            return Repeats(*pooled, sum(len(group) for group in values if len(group) > 1), own)
    return None


def _is_same(mine: dict[str, Any], commit: object, one: tuple[dict[str, Any], object, list[Any], bool]) -> bool:
    return mine.keys() == one[0].keys() and commit == one[1] and all(same(mine[key], one[0][key]) for key in mine)


def _values(runs: Sequence[Any], stretch: SharedStretch) -> list[float]:
    """The metric at the common end, of the runs that got there; one run a seed and value."""
    values: dict[tuple[Any, float], None] = {}
    for run in runs:
        member = ComparedMember(run, head=False)
        curve = member.curve(stretch.metric, stretch.axis)
        if curve is None or curve.x[-1] < _TO_THE_END * stretch.high or member.diverged_at(stretch.metric) is not None:
            continue
        value = curve.end(min(stretch.high, float(curve.x[-1])), stretch.window)
        values[(member.seeds() or run.id, value)] = None
    return [value for _, value in values]
