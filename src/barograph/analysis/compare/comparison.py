"""`barograph.compare`: runs against runs, or groups of seeds against groups.

In:   stored runs, words that name them, folders, logs; what to compare, along which axis, grouped by what.
Out:  a `Comparison`: what differs, what was refused, the table, contrasts, the verdict; as text, Markdown, HTML, data.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare import contrasts, equality, statistics
from barograph.analysis.compare.axes import AXES
from barograph.analysis.compare.contrasts import Contrast
from barograph.analysis.compare.difference import Differences, differences
from barograph.analysis.compare.ends import SharedStretch, stretch
from barograph.analysis.compare.measures import MeasureRow, measure
from barograph.analysis.compare.member import ComparedMember, preferred
from barograph.analysis.compare.pooled import PooledDeviation, pooled_deviation
from barograph.analysis.compare.ranking import Ranking, best_side, rank
from barograph.analysis.compare.refusals import (
    Refusal,
    doubtful,
    metric_obstacle,
    obstacles,
    refused_axes,
    refused_metrics,
)
from barograph.analysis.compare.repeats import find_repeats
from barograph.analysis.compare.sides import Given, Side, gather_sides
from barograph.analysis.compare.verdict import NONE, Verdict, judge
from barograph.core import providers
from barograph.query.stored import StoredRun

# an evaluation is taken for the metric only if all have one in the last half of their steps
_LATE = 0.5


@dataclass
class Comparison:
    """sides: the first is the baseline: of three or more the best one, where none was asked for. metric,
    axis: compared, None if nothing could be. place: the stretch of
    the axis that the runs share.

    differences: what is not the same. refusals: what would have misled. cautions, notes: sentences. rows: the table.
    contrasts: every side against the baseline. ranking: the best of three sides or
    more, and who is as good. verdict: the conclusion. target: the target value.
    equal: of two runs that should be equal, series by series; None where that was not asked. level: of all tests
    together.
    """

    sides: list[Side]
    differences: Differences
    metric: str | None = None
    axis: str | None = None
    place: SharedStretch | None = None
    target: float | None = None
    level: float = statistics.LEVEL
    refusals: list[Refusal] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[MeasureRow] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)
    ranking: Ranking | None = None
    verdict: Verdict = field(default_factory=lambda: Verdict(NONE, []))
    equal: list[equality.Equality] | None = None
    tolerance: float = equality.TOLERANCE

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What Jupyter shows."""
        shown: dict[str, Any] = providers.provider("comparison in a notebook")(self)
        return shown

    @property
    def at(self) -> float | None:
        """The end that all runs have in common, on the axis."""
        return self.place.high if self.place is not None and self.place.is_whole else None

    def order(self) -> list[int]:
        """The sides as a table of many has them: the best first."""
        if self.ranking is not None:
            return [rank.side for rank in self.ranking.ranks]
        return list(range(len(self.sides)))

    def equality_sentences(self) -> list[str]:
        return [] if self.equal is None else equality.sentences(self.equal, self.tolerance)

    def curves(self, points: int = 200) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
        """x [k] and, a side each, the mean of its smoothed curves [k], NaN beyond its end; empty if
        nothing is shared."""
        place = self.place
        if place is None or not place.is_whole or place.high <= place.low:
            return np.empty(0), [np.empty(0) for _ in self.sides]
        high = max(
            [
                place.high,
                *(contrast.place.high for contrast in self.contrasts if contrast.place and contrast.place.is_whole),
            ]
        )
        x = np.linspace(place.low, high, points)
        found = []
        for side in place.sides:
            end = min((float(item.curve.x[-1]) for item in side), default=-math.inf)
            rows = [np.where(x <= end, item.curve.at(x, place.window, place.low, end), math.nan) for item in side]
            found.append(np.mean(rows, axis=0) if rows else np.full(points, math.nan))
        return x, found

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data; NaN is None."""
        place = self.place
        return {
            "sides": [
                {
                    "label": side.label,
                    "runs": [
                        {"project": member.project, "id": member.run.id, "name": member.name, "status": member.status,
                         "dir": str(member.run.dir), "seeds": member.facts.seeds}
                        for member in side.members
                    ],
                }
                for side in self.sides
            ],
            "verdict": asdict(self.verdict),
            "ranking": None if self.ranking is None else self.ranking.as_dict(),
            "differences": [item.as_dict() for item in self.differences.between],
            "varies_within_sides": self.differences.within,
            "same": self.differences.same,
            "not_known": self.differences.unknown,
            "code_files": self.differences.files,
            "refusals": [refusal.as_dict() for refusal in self.refusals],
            "cautions": self.cautions,
            "notes": self.notes,
            "metric": self.metric,
            "axis": self.axis,
            "at": self.at,
            "window": place.window if place is not None else None,
            "target": self.target,
            "level": self.level,
            "rows": [self._row(row) for row in self.rows],
            "contrasts": [_contrast_as_dict(contrast) for contrast in self.contrasts],
            "equality": None if self.equal is None else [item.as_dict() for item in self.equal],
            "equality_sentences": self.equality_sentences(),
        }  # fmt: skip

    def _row(self, row: MeasureRow) -> dict[str, Any]:
        return row.as_dict() | {"percent": [row.percent(at, 0) for at in range(len(self.sides))]}

    def text(self, width: int = 100, colour: bool = False) -> str:
        """For a terminal of this many columns."""
        return str(providers.provider("comparison as text")(self, width, colour))

    def markdown(self) -> str:
        return str(providers.provider("comparison as Markdown")(self))

    def html(self) -> str:
        """One file that needs nothing else."""
        return str(providers.provider("comparison as HTML")(self))

    def __str__(self) -> str:
        return self.text()


def _contrast_as_dict(contrast: Contrast) -> dict[str, Any]:
    curve = contrast.curve
    return {
        "side": contrast.side,
        "baseline": contrast.baseline,
        "runs": list(contrast.runs),
        "pairs": contrast.pairs,
        "at": contrast.place.high if contrast.place is not None and contrast.place.is_whole else None,
        "difference": None if math.isnan(contrast.difference) else contrast.difference,
        "percent": contrast.percent,
        "outcome": contrast.outcome,
        "sentence": contrast.sentence,
        "advice": contrast.advice,
        "test": None if contrast.test is None else asdict(contrast.test),
        "repeats": None if contrast.repeats is None else asdict(contrast.repeats),
        "noise_within_runs": contrast.noise,
        "unlike": contrast.unlike,
        "doubt": contrast.doubt,
        "curve": None
        if curve is None
        else {"kind": curve.kind}
        | {
            name: [None if math.isnan(value) else value for value in getattr(curve, name).tolist()]
            for name in ("x", "difference", "low", "high")
        },
    }


def compare(
    *runs: Given,
    dir: str | os.PathLike[str] | None = None,
    x: str | None = None,
    metric: str | None = None,
    group: str | None = None,
    baseline: str | os.PathLike[str] | StoredRun | None = None,
    target: float | None = None,
    level: float = statistics.LEVEL,
    equal: bool = False,
    tolerance: float = equality.TOLERANCE,
    anyway: bool = False,
) -> Comparison:
    """Compare runs, or groups of runs.

    runs: stored runs, their ids, names or folders, logs that import, lists of stored runs (a group each). More than
    two single runs are grouped by what their configurations have in common; folders are a group each.
    dir: where ids and names are looked for. x: "step", "tokens", "samples", "time" or "flops"; by default the first
    that does not mislead. metric: by default the evaluation's loss where all have one, else the training's.
    group: a key of the configuration; runs with the same value are a group. baseline: the run, its group or the
    group's value that the others are set against; by default the first, of three sides or
    more the best. target: the value whose reaching is timed.
    level: of all tests together (0.05: one false verdict in twenty comparisons of equals).
    equal: the runs should be equal; say where they begin not to be, beyond tolerance (relative) and in any bit.
    anyway: take an axis or a metric although it misleads; it is said that it does.
    Raises KeyError, ValueError and OSError with one sentence: for names that don't exist, a refused axis or metric that
    was asked for, and files that can't be read.
    """
    if x is not None and x not in AXES:
        near = difflib.get_close_matches(x, AXES, 1, 0.0)[0]
        raise ValueError(f"there is no axis {x!r}; the nearest is {near!r} (there are {', '.join(AXES)})")
    if not 0 < level < 1:
        raise ValueError(f"a level is between 0 and 1, such as 0.05, not {level}")
    notes: list[str] = []
    sides = gather_sides(runs, dir=dir, group=group, baseline=baseline, notes=notes)
    found = _differences(sides)
    comparison = Comparison(sides, found, level=level, notes=notes, tolerance=tolerance)
    _note_members(sides, found, notes)
    reason = obstacles(sides, found)
    comparison.cautions = list(reason.cautions)
    shared, partly = _shared_metrics(sides)
    chosen = _metric(sides, shared, partly, metric, comparison, reason, anyway)
    axis = _axis(sides, x, comparison, reason, anyway) if chosen is not None else None
    if chosen is not None and axis is not None:
        comparison.metric, comparison.axis = chosen, axis
        best = best_side(stretch(sides, chosen, axis, [])) if len(sides) > 2 else None
        if baseline is None and best:
            sides.insert(0, sides.pop(best))
            found = comparison.differences = _differences(sides)
            best = 0
        place = comparison.place = stretch(sides, chosen, axis, notes)
        pooled = pooled_deviation(place)
        ends = (pooled.spread, pooled.dof) if pooled is not None else None
        comparison.rows, comparison.target = measure(sides, place, target, ends)
        pairs = len(sides) * (len(sides) - 1) // 2  # the best was chosen among all
        others = pairs if best == 0 and baseline is None else len(sides) - 1
        comparison.contrasts = _contrasts(comparison, place, 0, others, pooled, anyway)
        if best is not None:
            against = comparison.contrasts
            if best != 0 or others != pairs:
                against = _contrasts(comparison, place, best, pairs, pooled, anyway, again=True)
            comparison.ranking = rank(sides, place, comparison.rows[0], against, level / max(1, pairs))
    comparison.verdict = judge(sides, found, comparison.contrasts, comparison.ranking)
    if chosen is None and comparison.refusals:
        comparison.verdict.sentences += [
            refusal.sentence for refusal in comparison.refusals if refusal.kind == "metric"
        ]
    pair = [member for side in sides for member in side.members]
    if equal and len(pair) != 2:
        raise ValueError(f"whether runs are equal is asked of two, not of {len(pair)}; name two runs")
    if equal or (len(pair) == 2 and len(sides) == 2 and comparison.verdict.attribution == NONE):
        names = None if equal else [*_preferred(shared, sides), *(item for item in ("train/norm",) if item in shared)]
        comparison.equal = equality.compare_values(pair[0], pair[1], names, tolerance)
    return comparison


def _differences(sides: Sequence[Side]) -> Differences:
    return differences([[member.facts for member in side.members] for side in sides])


def _note_members(sides: Sequence[Side], found: Differences, notes: list[str]) -> None:
    everyone = [member for side in sides for member in side.members]
    projects = list(dict.fromkeys(item.project for item in everyone))
    if len(projects) > 1:
        notes.append(f"The runs are from different projects: {', '.join(projects[:4])}.")
    for item in everyone:
        if item.main is None:
            notes.append(f"{item.name} has logged no step: there is nothing of it to compare.")
        elif len(item.main) == 1:
            notes.append(f"{item.name} has logged one step: it has no curve, so its single value is not smoothed.")
    silent = [item.name for item in everyone if "config" not in item.facts.known]
    if silent and "config" not in found.unknown:
        notes.append(f"{', '.join(silent[:3])}{' and more' if len(silent) > 3 else ''}: no configuration is known.")


def _preferred(names: Iterable[str], sides: Sequence[Side]) -> tuple[str, ...]:
    return preferred(names, (member.told for side in sides for member in side.members))


def _shared_metrics(sides: Sequence[Side]) -> tuple[list[str], list[str]]:
    """The metrics that every run with a step has, and those that only some have; in the order of preference."""
    names = [set(member.names) for side in sides for member in side.members if member.names]
    if not names:
        return [], []
    common, some = set.intersection(*names), set.union(*names)
    order = _preferred(some, sides)

    def place(name: str) -> tuple[int, str]:
        return (order.index(name) if name in order else len(order), name)

    return sorted(common, key=place), sorted(some - common, key=place)


def _metric(
    sides: Sequence[Side],
    shared: Sequence[str],
    partly: Sequence[str],
    asked: str | None,
    comparison: Comparison,
    reason: Any,
    anyway: bool,
) -> str | None:
    """The metric to compare; None if there is none, and why is in `comparison`."""
    if asked is not None:
        name = _named(asked, shared, partly, sides)
        why = metric_obstacle(name, reason)
        if why is None:
            return name
        refusal = refused_metrics([name, *_preferred(shared, sides)], reason)[name]
        if not anyway:
            raise ValueError(f"{refusal.sentence} (--anyway compares it all the same)")
        comparison.refusals.append(refusal)
        return name
    candidates = _preferred(shared, sides)
    refused = refused_metrics(candidates, reason)
    late = None
    for candidate in candidates:
        if candidate in refused and not anyway:
            comparison.refusals.append(refused[candidate])
        elif _is_late(sides, candidate):
            late = candidate
            break
    if late is not None:
        if late in refused:
            comparison.refusals.append(refused[late])
        return late
    if not candidates:
        own = [sorted({name for member in side.members for name in member.names}) for side in sides]
        if all(own):
            lists = "; ".join(
                f"{side.label} has {', '.join(names[:3])}" for side, names in zip(sides, own, strict=True)
            )
            comparison.notes.append(f"No loss is logged by all of them ({lists}): name what to compare with --metric.")
    elif not comparison.refusals:
        comparison.notes.append(
            f"No run's {candidates[0]} goes as far as its training: name what to compare with --metric."
        )
    return None


def _named(asked: str, shared: Sequence[str], partly: Sequence[str], sides: Sequence[Side]) -> str:
    """A metric that a person means. Raises KeyError with who lacks it, or the nearest."""
    for names in (shared, partly):
        if asked in names:
            found = [asked]
        else:
            owners = {own: name for side in sides for member in side.members for name, own in member.names.items()}
            found = [owners[asked]] if owners.get(asked) in names else []
            found = found or [name for name in names if name.endswith(f"/{asked}")]
        if f"train/{asked}" in found:
            found = [f"train/{asked}"]
        if len(found) == 1 and names is shared:
            return found[0]
        if len(found) == 1:
            lacks = [member.name for side in sides for member in side.members if found[0] not in member.names]
            raise KeyError(f"{', '.join(lacks[:3])} {'has' if len(lacks) == 1 else 'have'} no metric {found[0]!r}")
        if found:
            raise KeyError(f"{asked!r} is {len(found)} metrics: {', '.join(found[:5])}")
    near = difflib.get_close_matches(asked, shared, 1, 0.4)
    hint = f"; the nearest that all have is {near[0]!r}" if near else f"; all have {', '.join(shared[:6]) or 'none'}"
    raise KeyError(f"there is no metric {asked!r}{hint}")


def _is_late(sides: Sequence[Side], metric: str) -> bool:
    """Whether every run that trained has the metric in the last half of its steps."""
    for side in sides:
        for member in side.members:
            main, last = member.main, member.last_step(metric)
            if main is not None and (last is None or last < _LATE * float(main.step[-1])):
                return False
    return True


def _axis(sides: Sequence[Side], asked: str | None, comparison: Comparison, reason: Any, anyway: bool) -> str | None:
    """The axis; None if no run has a step. Raises ValueError for an axis asked for that misleads or isn't there."""
    everyone: list[ComparedMember] = [member for side in sides for member in side.members if member.axes is not None]
    if not everyone:
        return None
    wanted = AXES if asked is None and (reason.batch or reason.tokenizer) else (asked or "step",)
    usable = [
        axis for axis in wanted if all(item.axes is not None and item.axes.reason(axis) is None for item in everyone)
    ]
    if asked is not None and asked not in usable:
        lacking = next(item for item in everyone if item.axes is not None and item.axes.reason(asked) is not None)
        assert lacking.axes is not None
        raise ValueError(f"{lacking.name} has no axis {asked}: {lacking.axes.reason(asked)}")
    refused = refused_axes(reason, usable)
    if asked is not None:
        if asked in refused:
            others = [
                item for item in AXES if all(each.axes is not None and not each.axes.reason(item) for each in everyone)
            ]
            refusal = refused_axes(reason, others)[asked]
            if not anyway:
                raise ValueError(f"{refusal.sentence} (--anyway uses it all the same)")
            comparison.refusals.append(refusal)
        return asked
    comparison.refusals += refused.values()
    chosen = next(
        (axis for axis in ("step", "tokens", "samples", "flops", "time") if axis in usable and axis not in refused),
        None,
    )
    if chosen is None and anyway:
        return "step"
    return chosen


def _contrasts(
    comparison: Comparison, place: SharedStretch, baseline: int, tests: int, pooled: PooledDeviation | None,
    anyway: bool, again: bool = False,
) -> list[Contrast]:  # fmt: skip
    """Every side against one, each pair over the stretch that the two share. tests: that share the level (Bonferroni).
    again: what is said of the sides was said before."""
    sides = comparison.sides
    others = [at for at in range(len(sides)) if at != baseline]
    level = comparison.level / max(1, tests)
    same_plan = "config" not in comparison.differences.unknown and "length" not in comparison.differences.roles()
    result = []
    for at in others:
        shared = place if len(others) == 1 else place.between(baseline, at)
        pair = [item.member for side in (shared.sides[baseline], shared.sides[at]) for item in side]
        alone = min(len(shared.sides[baseline]), len(shared.sides[at])) == 1
        alone = alone and len(comparison.differences.changes) > 0
        repeats = find_repeats(pair, shared) if alone and len(pair) == 2 and pooled is None else None
        doubt = doubtful(place.metric, sides, comparison.differences, baseline, at)
        if doubt is not None and anyway and not again:
            comparison.cautions.append(f"{doubt[0].upper()}{doubt[1:]}.")
        doubt = None if anyway else doubt
        result.append(contrasts.contrast(shared, baseline, at, level, repeats, same_plan, doubt, pooled))
    return result
