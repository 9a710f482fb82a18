"""Groups: runs that have the same values of some keys, and what a number comes to over them.

In:   runs or rows of any kind with their traits; keys: of the configuration, facts such as `project`, "all but seed".
Out:  groups in the order of their values, each with its runs; mean, deviation and best over them.

This is the one definition. The page's table and charts, `barograph ls --group`, `barograph.groups` and the sides of a
comparison are made of it.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from barograph.core import liveness
from barograph.query import curation
from barograph.query.given import GivenRun, stored_runs
from barograph.query.keys import flatten, normal, part_of, same, shown
from barograph.query.losses import RunLosses, all_told, losses_by_name, told_beside
from barograph.query.metrics import best_values, by_interest, direction, last_values
from barograph.query.stored import StoredRun

Item = TypeVar("Item")

ALL_BUT_SEED = "all but seed"
FACTS = ("project", "status", "tags")
CONFIG = "config."  # before a key of the configuration
FAILED = ("failed", "diverged", *liveness.LOST)  # ended otherwise than planned
_NOT_SETUP = ("seed", "bookkeeping", "consequence", "speed", "machine")
_LARGE = 1e290  # a sum of a billion such numbers is one
_LABEL_KEYS = 6  # keys in the label of a setup at most


@dataclass(eq=False)
class Traits:
    """What a run is grouped by. config: flat, plain values (`keys.flatten`). facts: those of `FACTS`, and commit."""

    config: Mapping[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def setup(self) -> dict[str, Any]:
        """The configuration that makes runs repeats of each other: without seeds, names, folders, and consequences."""
        return setup_of(self.config)

    @cached_property
    def setup_identity(self) -> Hashable:
        """Equal for runs of one setup."""
        return frozenset((key, _identity(value)) for key, value in self.setup.items())


@dataclass(frozen=True)
class GroupStatistics:
    """A number over the runs of a group. count: runs with a finite value. not_finite: those whose value is not finite.

    mean, deviation: of the finite values; deviation with count − 1, None for one run. best: None where it is not known
    whether larger or smaller is better.
    """

    count: int
    not_finite: int
    mean: float | None = None
    deviation: float | None = None
    best: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(eq=False)
class RunGroup(Generic[Item]):
    """values: key → plain value, None where the runs have none. runs: in the order given."""

    label: str
    values: dict[str, Any]
    runs: list[Item]


def setup_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """A flat configuration without what makes no other training: seeds, names, folders, consequences."""
    return {key: value for key, value in config.items() if part_of(key) not in _NOT_SETUP}


def group_runs(items: Iterable[Item], keys: Sequence[str], traits: Callable[[Item], Traits]) -> list[RunGroup[Item]]:
    """Groups by full keys, as `full_keys` has them, in the order of their values; what lacks a key stands last.

    A run with several tags is in the group of each.
    """
    if ALL_BUT_SEED in keys:
        return _by_setup(items, traits)
    found: dict[tuple[Hashable, ...], tuple[tuple[Any, ...], list[Item]]] = {}
    names = [key.removeprefix(CONFIG) for key in keys]
    places = [(key in FACTS, name) for key, name in zip(keys, names, strict=True)]
    for item in items:
        for values in _values_of(traits(item), places):
            found.setdefault(tuple([_identity(value) for value in values]), (values, []))[1].append(item)
    ordered = sorted(found.values(), key=lambda one: tuple(map(_order, one[0])))
    return [RunGroup(_label(names, values), dict(zip(names, values, strict=True)), runs) for values, runs in ordered]


def split_keys(text: str) -> list[str]:
    """Keys separated by commas, as commands and addresses have them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def full_keys(words: Iterable[str], everyone: Sequence[Traits]) -> list[str]:
    """The full keys that a person means. Raises KeyError with the nearest, or those that it may be."""
    return [word if word in (*FACTS, ALL_BUT_SEED) else CONFIG + find_key(everyone, word) for word in words]


def find_key(everyone: Iterable[Traits], word: str) -> str:
    """The full key of the configuration that is meant. Raises KeyError with the nearest, or those that it may be."""
    everyone = list(everyone)
    wanted = word.replace("/", ".")
    for exact in (wanted, wanted.removeprefix(CONFIG)):
        if any(exact in traits.config for traits in everyone):
            return exact
    wanted = wanted.removeprefix(CONFIG)
    keys = sorted({key for traits in everyone for key in traits.config})
    ending = [key for key in keys if normal(key) == normal(wanted) or key.endswith(f".{wanted}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise KeyError(f"{word!r} is {len(ending)} keys of the configuration: {', '.join(ending[:5])}")
    if not keys:
        raise KeyError(f"these runs have no configuration, so they can't be grouped by {word!r}")
    near = difflib.get_close_matches(wanted, keys, 1, 0.4)
    hint = f"; the nearest is {near[0]!r}" if near else f"; there are {', '.join(keys[:8])}"
    raise KeyError(f"no configuration has a key {word!r}{hint}")


def statistics(values: Iterable[float], better: int = 0) -> GroupStatistics:
    """A number over runs. better: 1 where larger is better, −1 where smaller is. The order makes no difference."""
    every = list(values)
    finite = [value for value in every if math.isfinite(value)]
    count, lost = len(finite), len(every) - len(finite)
    if not count:
        return GroupStatistics(0, lost)
    if count == 1:
        return GroupStatistics(1, lost, float(finite[0]), None, float(finite[0]) if better else None)
    # sums without rounding: whoever adds up in another order has the same digits. Sums and squares are of numbers
    # that are divided first, so that none of them is too large for one
    scale = max(1.0, max(map(abs, finite)) / _LARGE)
    mean = math.fsum(value / scale for value in finite) / count * scale
    gaps = [value / scale - mean / scale for value in finite]
    largest = max(map(abs, gaps)) or 1.0
    deviation = largest * math.sqrt(math.fsum((gap / largest) ** 2 for gap in gaps) / (count - 1)) * scale
    return GroupStatistics(count, lost, mean, deviation, max(finite) if better > 0 else min(finite) if better else None)


# -- stored runs -------------------------------------------------------------------------------------------


class GroupedRuns(RunGroup[StoredRun]):
    """A group of stored runs."""

    @property
    def failed(self) -> int:
        """How many ended otherwise than planned."""
        return sum(run.status in FAILED for run in self.runs)

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics that any of the runs has, those that matter first."""
        return by_interest({name for values in self._last for name in values}, self._told)

    @property
    def losses(self) -> RunLosses:
        """Which of the metrics are losses: by their names, or by the rows of the first run that tells one."""
        return losses_by_name(self.metrics).and_told(self._told)

    def last(self, metric: str) -> GroupStatistics:
        """The last value of a metric over the runs."""
        better = direction(metric, self._told)
        return statistics([values[metric] for values in self._last if metric in values], better)

    def best(self, metric: str) -> GroupStatistics:
        """The best value that each run had of a metric, over the runs."""
        better = direction(metric, self._told)
        return statistics([values[metric] for values in self._best if metric in values], better)

    @cached_property
    def _last(self) -> list[dict[str, float]]:
        return [last_values(run) for run in self.runs]

    @cached_property
    def _best(self) -> list[dict[str, float]]:
        return [best_values(run, last, self._told) for run, last in zip(self.runs, self._last, strict=True)]

    @cached_property
    def _told(self) -> RunLosses:
        return all_told(told_beside(run, last) for run, last in zip(self.runs, self._last, strict=True))

    def __repr__(self) -> str:
        return f"<{self.label}: {len(self.runs)} runs>"


def groups(
    given: GivenRun | Iterable[GivenRun],
    by: str | Sequence[str] = ALL_BUT_SEED,
    *,
    dir: str | os.PathLike[str] | None = None,
) -> list[GroupedRuns]:
    """Runs in groups that have the same values of some keys.

    given: runs, or a folder of them. by: one key or several: "model.width", a key's end such as "lr", "project",
    "status", "tags"; "all but seed" puts together runs whose configuration and commit differ in seeds, names and
    folders alone. Groups are in the order of their values; runs that lack a key are a group of their own, the last.
    Raises KeyError for a key that no run has, naming the nearest.
    """
    every = [(run, traits_of(run)) for run in stored_runs(given, dir)]
    keys = full_keys([by] if isinstance(by, str) else by, [traits for _, traits in every])
    found = group_runs(every, keys, lambda item: item[1])
    return [GroupedRuns(group.label, group.values, [run for run, _ in group.runs]) for group in found]


def traits_of(run: StoredRun) -> Traits:
    """What a stored run is grouped by."""
    about = curation.over(run.dir, run.manifest)
    return Traits(flatten(run.config), {**facts_of(about), "project": run.project, "status": run.status})


def facts_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """Tags and commit, as a manifest has them."""
    git, tags = about.get("git"), about.get("tags")
    commit = about.get("repo_commit") or (git.get("commit") if isinstance(git, Mapping) else None)
    tags = [str(tag) for tag in tags] if isinstance(tags, list) else []
    return {"tags": tags, "commit": str(commit)[:12] if commit else None}


# -- inside ------------------------------------------------------------------------------------------------


def _by_setup(items: Iterable[Item], traits: Callable[[Item], Traits]) -> list[RunGroup[Item]]:
    """Runs whose configuration is the same but for seeds, named by the keys that differ between the groups.

    Another commit is another group. A run whose commit is not known, as of one that was killed early, goes with those
    of the only commit that there is.
    """
    found: dict[Hashable, dict[str | None, list[int]]] = {}
    every = [(item, traits(item)) for item in items]
    for at, (_, of_run) in enumerate(every):
        commits = found.setdefault(of_run.setup_identity, {})
        commits.setdefault(of_run.facts.get("commit"), []).append(at)
    setups: list[tuple[dict[str, Any], str | None, list[int]]] = []
    for commits in found.values():
        if None in commits and len(commits) == 2:
            only = next(commit for commit in commits if commit is not None)
            commits = {only: sorted(at for places in commits.values() for at in places)}
        setups += [(every[places[0]][1].setup, commit, places) for commit, places in commits.items()]
    telling = _telling([setup for setup, _, _ in setups])
    many = len(telling) > 2 and len({_identities(setup, telling[:2]) for setup, _, _ in setups}) < len(setups)
    used = telling[: _LABEL_KEYS if many else 2]
    setups.sort(key=lambda one: tuple(_order(one[0].get(key)) for key in telling))
    alike = Counter(_identities(setup, used) for setup, _, _ in setups)
    result = []
    for number, (setup, commit, places) in enumerate(setups, 1):
        values = {key: setup.get(key) for key in used}
        words = [f"{normal(key)} = {shown(value)}" for key, value in values.items()]
        if words and alike[_identities(setup, used)] > 1:
            values["commit"] = commit
            words.append(f"commit = {commit or 'unknown'}")
        label = ", ".join(words) or (f"setup {number}" if len(setups) > 1 else "all runs")
        result.append(RunGroup(label, values, [every[at][0] for at in places]))
    return result


def _telling(setups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that differ between setups, those of the training first."""
    first = setups[0] if setups else {}
    keys = {key for setup in setups for key in setup}
    differing = [key for key in keys if any(not same(first.get(key), setup.get(key)) for setup in setups)]
    return sorted(differing, key=lambda key: (part_of(key) != "plain", key))


def _identities(setup: Mapping[str, Any], keys: Sequence[str]) -> tuple[Hashable, ...]:
    return tuple(_identity(setup.get(key)) for key in keys)


def _values_of(traits: Traits, places: Sequence[tuple[bool, str]]) -> list[tuple[Any, ...]]:
    """The values of some keys, each a fact or of the configuration: one tuple, or one for each tag."""
    facts, config = traits.facts, traits.config
    result: list[tuple[Any, ...]] = [()]
    for is_fact, name in places:
        if is_fact and name == "tags":
            result = [(*values, tag) for values in result for tag in facts.get("tags") or (None,)]
        else:
            value = (facts if is_fact else config).get(name)
            result = [(*values, value) for values in result]
    return result


def _identity(value: Any) -> Hashable:
    """Equal for plain values that `keys.same` finds equal."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ("number", "NaN" if math.isnan(value) else value)
    return (type(value).__name__, value)


def _order(value: Any) -> tuple[Any, ...]:
    """Numbers first, then words in natural order, then what is missing."""
    if value is None:
        return (3,)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (1,) if math.isnan(value) else (0, value)
    return (2, *natural(str(value)))


def natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """A key to sort texts by, in which 10 stands behind 9."""
    parts = re.split(r"(\d+)", text.lower())
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts if part)


def _label(names: Sequence[str], values: Sequence[Any]) -> str:
    words = ["none" if value is None else shown(value) for value in values]
    return ", ".join(f"{name} = {word}" for name, word in zip(names, words, strict=True))
