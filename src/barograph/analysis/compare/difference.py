"""What differs between runs, or groups of runs; and how many changes that is.

In:   the facts of every run of every side.
Out:  `Differences`: one entry per key that differs between sides, with what it means for a conclusion; what varies
      within a side; what is not known.

Seeds, names, folders, and numbers that follow from others (a count of parameters) are listed and are not changes. All
packages are one change, and so is the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from barograph.analysis.compare.facts import RunFacts, shapes_training
from barograph.query.keys import part_of, same, shown

ABSENT = "—"
PARTS = ("config", "code", "packages", "hardware", "environment", "data")


@dataclass(frozen=True)
class Difference:
    """One key. values: a side each, as text; `role`: what the key is about, as in `keys.part_of`, or its part.

    change: the name of the change that it is a part of, None where it changes nothing that is measured.
    """

    part: str
    key: str
    values: tuple[str, ...]
    role: str
    change: str | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "key": self.key,
            "values": list(self.values),
            "role": self.role,
            "change": self.change,
        }


@dataclass
class Differences:
    """between: what differs between sides, changes first. within: keys that vary among the runs of one side, without
    seeds and names. unknown: parts that some side says nothing of → the sides' places. same: the parts that are known
    on all sides and don't differ. files: files of the uncommitted diffs that differ.
    """

    between: list[Difference] = field(default_factory=list)
    within: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, list[int]] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    @property
    def changes(self) -> list[str]:
        """The names of all changes, in the order told."""
        return list(dict.fromkeys(item.change for item in self.between if item.change is not None))

    def roles(self) -> set[str]:
        """The roles of what changed."""
        return {item.role for item in self.between}


def differences(sides: Sequence[Sequence[RunFacts]]) -> Differences:
    """Compare the sides' facts. sides: for every side, those of its runs."""
    result = Differences()
    everyone = [facts for side in sides for facts in side]
    for part in PARTS:
        silent = [at for at, side in enumerate(sides) if not any(part in facts.known for facts in side)]
        if silent:
            result.unknown[part] = silent
    keys: dict[tuple[str, str], None] = {}
    for facts in everyone:
        keys.update(dict.fromkeys(facts.values))
    batch_is_same = _one_value([facts.batch_tokens for facts in everyone])
    for part, key in keys:
        if part in result.unknown:
            continue
        values = [_values(side, part, key) for side in sides]
        role = part_of(key) if part == "config" else part
        varies = any(len(value) > 1 for value in values) and role not in ("seed", "bookkeeping", "consequence")
        if varies and (part != "packages" or shapes_training(key)):
            result.within.setdefault(f"{part} {key}" if part != "config" else key, role)
        if not _differ(values):
            continue
        change = _change(part, key, role, batch_is_same)
        result.between.append(Difference(part, key, tuple(map(_words, values)), role, change))
    if any(item.part == "data" for item in result.between) and "data" in {
        part_of(item.key) for item in result.between if item.part == "config"
    }:
        # the configuration names the data already: one change
        result.between = [
            Difference(item.part, item.key, item.values, item.role, None) if item.part == "data" else item
            for item in result.between
        ]
    result.between.sort(key=lambda item: (item.change is None, PARTS.index(item.part), item.role != "plain"))
    differing = {item.part for item in result.between}
    result.same = [part for part in PARTS if part not in differing and part not in result.unknown]
    files: dict[str, set[str]] = {}
    for facts in everyone:
        for name, digest in facts.code_files.items():
            files.setdefault(name, set()).add(digest)
    holders = {name: sum(name in facts.code_files for facts in everyone) for name in files}
    result.files = sorted(name for name in files if len(files[name]) > 1 or holders[name] < len(everyone))
    return result


def _change(part: str, key: str, role: str, batch_is_same: bool) -> str | None:
    """The change that a difference belongs to."""
    if part == "config":
        if role in ("seed", "bookkeeping", "consequence", "speed", "machine"):
            return None
        if role in ("batch", "layout") and batch_is_same:
            return None  # the same tokens a step, cut up in another way
        return key
    if part == "code":
        return "the code"
    if part == "packages":
        return "packages" if shapes_training(key) else None
    if part == "data":
        return "the data"
    return None  # hardware and environment change speed, and losses by no more than rounding


def _values(side: Sequence[RunFacts], part: str, key: str) -> list[Any]:
    """The different values of one key on one side."""
    result: list[Any] = []
    for facts in side:
        if part not in facts.known:
            continue
        value = facts.values.get((part, key), ABSENT)
        if not any(same(value, other) for other in result):
            result.append(value)
    return result


def _differ(values: Sequence[list[Any]]) -> bool:
    first = values[0]
    return any(
        len(other) != len(first) or not all(any(same(item, two) for two in first) for item in other)
        for other in values[1:]
    )


def _words(values: list[Any]) -> str:
    if not values:
        return ABSENT
    if len(values) > 4:
        return f"{shown(values[0])}, {shown(values[1])}, … ({len(values)} values)"
    return ", ".join(map(shown, values))


def _one_value(values: Sequence[float | None]) -> bool:
    present = {value for value in values if value is not None}
    return None not in values and len(present) == 1
