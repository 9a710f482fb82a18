"""Sides: which runs stand against which, given one by one, in folders, or grouped by a key.

In:   words as typed, stored runs, lists of runs; a key of the configuration.
Out:  sides with their runs, the first one the baseline; sentences about runs that were left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barograph.analysis.compare.member import ComparedMember
from barograph.analysis.compare.similar import similar
from barograph.query import catalog
from barograph.query.given import GivenRun, stored_runs
from barograph.query.groups import ALL_BUT_SEED, Traits, full_keys, group_runs, split_keys, traits_of
from barograph.query.stored import StoredRun

_MOST_SIMILAR = 5
Given = GivenRun | Iterable[GivenRun]


@dataclass
class Side:
    """label: what the side is called. members: its runs, in the order given."""

    label: str
    members: list[ComparedMember] = field(default_factory=list)


def gather_sides(
    givens: Sequence[Given],
    *,
    dir: str | os.PathLike[str] | None = None,
    group: str | None = None,
    baseline: str | os.PathLike[str] | StoredRun | None = None,
    notes: list[str],
) -> list[Side]:
    """The sides of a comparison. Raises KeyError and ValueError with one sentence."""
    lots = [_lot(item, dir) for item in givens]
    seen: dict[Path, None] = {}
    for _, runs in lots:
        for run in list(runs):
            place = _place(run)
            if place in seen:
                runs.remove(run)
                notes.append(f"{run.id} was named twice; it counts once.")
            seen[place] = None
    lots = _short_labels([(label, runs) for label, runs in lots if runs])
    count = sum(len(runs) for _, runs in lots)
    if count < 2:
        raise ValueError(f"a comparison needs two runs; name another one, or a folder of them{_similar_runs(lots)}")
    head = (
        count <= 40
    )  # the beginning of a log is read for what the manifest lacks; of many runs it would take too long
    sides = [Side(label, [ComparedMember(run, head) for run in runs]) for label, runs in lots]
    everyone = [member for side in sides for member in side.members]
    if group is not None:
        sides = _by_key(everyone, group, notes)
    elif len(sides) == 1 or (len(everyone) > 2 and all(len(side.members) == 1 for side in sides)):
        sides = _by_setup(everyone) or [Side(member.name, [member]) for member in everyone]
    for side in sides:
        if len(side.members) == 1 and group is None:
            side.label = side.members[0].name
    if baseline is not None:
        sides.insert(0, sides.pop(_baseline(sides, baseline, dir)))
    return sides


def _similar_runs(lots: Sequence[tuple[str, list[StoredRun]]]) -> str:
    """Runs beside the only one that it could be compared with, as the end of a sentence."""
    for _, runs in lots:
        others = [run for run in catalog.runs(runs[0].dir.resolve().parent) if run.id != runs[0].id]
        found = similar(traits_of(runs[0]), [traits_of(run) for run in others])[:_MOST_SIMILAR]
        words = []
        for one in found:
            differs = ", ".join(f"{key} = {value}" for key, value in one.keys.items())
            words.append(f"{others[one.at].id} ({differs or 'a repeat'})")
        return f"; similar runs: {', '.join(words)}" if words else ""
    return ""


def _lot(one: Given, dir: str | os.PathLike[str] | None) -> tuple[str, list[StoredRun]]:
    runs = stored_runs(one, dir)
    if isinstance(one, (str, os.PathLike)):
        return str(one).rstrip("/"), runs
    return (runs[0].name if runs else ""), runs


def _short_labels(lots: list[tuple[str, list[StoredRun]]]) -> list[tuple[str, list[StoredRun]]]:
    """A folder's own name where no other lot has the same."""
    short = [Path(label).name or label for label, _ in lots]
    return [(name if short.count(name) == 1 else label, runs) for name, (label, runs) in zip(short, lots, strict=True)]


def _place(run: StoredRun) -> Path:
    files = run.log_files()
    return run.dir.resolve() if (run.dir / "segments").is_dir() or not files else files[0].resolve()


def _traits(member: ComparedMember) -> Traits:
    facts = {"project": member.project, "status": member.status, "tags": member.run.tags}
    return Traits(member.facts.config(), {**facts, "commit": member.facts.values.get(("code", "commit"))})


def _by_key(everyone: list[ComparedMember], group: str, notes: list[str]) -> list[Side]:
    """Runs with the same values of the keys that are named, separated by commas."""
    keys = full_keys(split_keys(group), [_traits(member) for member in everyone])
    sides, left_out = [], []
    for found in group_runs(everyone, keys, _traits):
        if ALL_BUT_SEED not in keys and None in found.values.values():
            left_out += [member.name for member in found.runs]
        else:
            sides.append(Side(found.label, found.runs))
    if left_out:
        shown_names = ", ".join(left_out[:3]) + ("" if len(left_out) <= 3 else f" and {len(left_out) - 3} more")
        notes.append(f"{shown_names}: no {group} in the configuration, so left out.")
    return sides


def _by_setup(everyone: list[ComparedMember]) -> list[Side] | None:
    """Runs whose configuration is the same but for seeds, the first one's group first; None if no two are, or some
    configuration is not known."""
    if any("config" not in member.facts.known for member in everyone):
        return None
    found = group_runs(everyone, [ALL_BUT_SEED], _traits)
    if len(found) == len(everyone):
        return None
    found.sort(key=lambda group: everyone.index(group.runs[0]))
    return [Side(group.label, group.runs) for group in found]


def _baseline(sides: list[Side], which: str | os.PathLike[str] | StoredRun, dir: str | os.PathLike[str] | None) -> int:
    word = which.name if isinstance(which, StoredRun) else str(which)
    for at, side in enumerate(sides):
        if word == side.label or side.label.endswith(f"= {word}"):
            return at
        if any(word in (member.name, member.run.id, f"{member.project}/{member.run.id}") for member in side.members):
            return at
    begun = [at for at, side in enumerate(sides) if any(member.run.id.startswith(word) for member in side.members)]
    if len(begun) == 1:
        return begun[0]
    if isinstance(which, StoredRun) or Path(word).exists():
        place = _place(which) if isinstance(which, StoredRun) else Path(word).resolve()
        for at, side in enumerate(sides):
            if any(place in (_place(member.run), member.run.dir.resolve()) for member in side.members):
                return at
    raise KeyError(f"the baseline {word!r} is not one of the sides: {', '.join(side.label for side in sides[:8])}")
