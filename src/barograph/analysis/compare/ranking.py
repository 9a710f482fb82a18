"""Which side is best, and from which it can't be distinguished.

In:   sides with their final values, and each one's contrast with the best.
Out:  a `Ranking`: the sides in their order, one sentence.

The best is chosen by its value. So that choosing adds no false verdict, every pair of sides counts as a test, and the
level is divided by their number: whoever is worse than the best would also be in a comparison of all with all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from barograph.analysis.compare import contrasts
from barograph.analysis.compare.contrasts import Contrast
from barograph.analysis.compare.ends import SharedStretch
from barograph.analysis.compare.measures import MeasureRow
from barograph.analysis.compare.sides import Side
from barograph.core.text import number

BEST, ALIKE, WORSE, UNDECIDED = "best", "not distinguishable", "worse", "cannot tell"
_MOST_NAMED = 4


@dataclass(frozen=True)
class Rank:
    """A side's place. value, low, high: its final value and the interval of the mean, None where there is none.
    difference, p: against the best. why: why it has no place among the others, "" where it has one."""

    side: int
    label: str
    value: float | None
    low: float | None
    high: float | None
    runs: int
    of: int
    outcome: str
    difference: float | None = None
    p: float | None = None
    why: str = ""


@dataclass
class Ranking:
    """ranks: the best first; those without a value stand last. level: a difference counts where p is below it."""

    metric: str
    level: float = math.nan
    ranks: list[Rank] = field(default_factory=list)
    sentence: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "level": self.level,
            "sentence": self.sentence,
            "ranks": [asdict(rank) for rank in self.ranks],
        }


def best_side(stretch: SharedStretch) -> int | None:
    """The side with the best final value; a side that lost a run to NaN can't be it. None where that is not known."""
    way = stretch.way
    values = {
        at: sum(item.curve.end(float(item.curve.x[-1]), stretch.window) for item in side) / len(side)
        for at, side in enumerate(stretch.sides)
        if side and not stretch.diverged[at]
    }
    values = {at: value for at, value in values.items() if math.isfinite(value)}
    if not way or len(values) < 2:
        return None
    return max(values, key=lambda at: way * values[at])


def rank(
    sides: Sequence[Side], stretch: SharedStretch, final: MeasureRow, made: Sequence[Contrast], level: float
) -> Ranking:
    """made: every side against the best one, which is their baseline. final: the row of final values. level: of each
    test."""
    by_side = {item.side: item for item in made}
    best = made[0].baseline
    way = stretch.way
    ranks = []
    for at, side in enumerate(sides):
        cell, item = final.cells[at], by_side.get(at)
        lost = len(stretch.diverged[at])
        why = f"{lost} of {len(side.members)} ended with NaN or infinity" if lost else ""
        if cell is None and not lost:
            why = "no final value"
        ranks.append(
            Rank(
                at, side.label,
                cell.value if cell is not None else None, cell.low if cell is not None else None,
                cell.high if cell is not None else None, cell.runs if cell is not None else 0,
                len(side.members), BEST if at == best else _outcome(item),
                None if item is None or math.isnan(item.difference) else item.difference,
                item.test.p if item is not None and item.test is not None else None,
                why,
            )
        )  # fmt: skip
    ranks.sort(key=lambda item: (item.side != best, item.value is None, bool(item.why), -way * (item.value or 0.0)))
    return Ranking(stretch.metric, level, ranks, _sentence(stretch, ranks))


def _outcome(item: Contrast | None) -> str:
    if item is None:
        return UNDECIDED
    return {contrasts.WORSE: WORSE, contrasts.NOT_SHOWN: ALIKE, contrasts.DIFFERENT: WORSE}.get(item.outcome, UNDECIDED)


def _sentence(stretch: SharedStretch, ranks: Sequence[Rank]) -> str:
    metric, (first, *rest) = stretch.metric, ranks
    value = number(first.value, 5)
    if first.low is not None and first.high is not None:
        value += f" ± {number((first.high - first.low) / 2, 2)}"
    alike = [item.label for item in rest if item.outcome == ALIKE]
    worse = sum(item.outcome == WORSE for item in rest)
    whole = sum(bool(item.why) and item.value is None for item in rest)
    some = sum(bool(item.why) and item.value is not None for item in rest)
    undecided = sum(item.outcome == UNDECIDED and not item.why for item in rest)
    parts = []
    if alike or worse:
        text = f"The best is {first.label}: {metric} {value}"
        if alike:
            more = f"; and {len(alike) - _MOST_NAMED} more" if len(alike) > _MOST_NAMED else ""
            text += f", not distinguishable from {'; '.join(alike[:_MOST_NAMED])}{more}"
        if worse:
            parts.append(f"{worse} {'is' if worse == 1 else 'are'} worse")
        if undecided:
            parts.append(f"of {undecided} nothing can be concluded")
    else:
        text = f"The {'highest' if stretch.way > 0 else 'lowest'} {metric} is that of {first.label}, {value}"
        single = all(item.runs == 1 for item in ranks if item.runs)
        parts.append(
            "whether the others are worse can't be concluded"
            + (": one run each does not show the variation between seeds" if single else "")
        )
    for of, failed in (("", whole), ("some runs of ", some)):
        if failed:
            parts.append(f"{of}{failed} ended with NaN, infinity or without a value")
    return text + "".join(f"; {part}" for part in parts) + "."
