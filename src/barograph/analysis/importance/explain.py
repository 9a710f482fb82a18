"""`barograph.importance`: which keys of the configuration explain a metric, and how sure that is.

In:   runs, or their flat configurations, and one value of the metric for each.
Out:  an `Importance`: for each key its share of the variation, an interval, p, what it can't be distinguished from.

Repeats (runs that differ in the seed alone) count as one configuration: ten seeds of two settings are two settings.
Keys are added one at a time: the surest first, the others then tested among configurations that agree in it. So a key
with a small effect is found beside one with a large effect, and one that only varies together with it is not.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.analysis.compare.member import preferred
from barograph.analysis.importance import statistics
from barograph.analysis.importance.statistics import Factor, Floats
from barograph.core import providers
from barograph.core.text import count, listed, number, percent
from barograph.query import filters, given
from barograph.query.groups import Traits
from barograph.query.keys import flatten, plain, shown
from barograph.query.losses import RunLosses, told_beside
from barograph.query.metrics import best_values, direction, last_values

LEVEL = 0.05
FEWEST = 8  # configurations: of fewer a single unusual one decides
_SPARE = 20  # a test is worth making where many arrangements are below the level, and not the best one alone
_MOST_LEVELS = 6  # of a key of numbers; more are put together, as many configurations in each
_EACH = 3  # configurations in a level of numbers, at least
_TOGETHER = 0.7  # from here on keys are said to vary together
_STRONG = 1e-12
_MOST_IN_GRID = 300
_MOST_FOUND = 5  # keys that are tested beside one another

EXPLAINS, TOGETHER, NOT_SHOWN, CANNOT_TELL = "explains", "varies with another", "not shown", "cannot tell"


@dataclass
class KeyImportance:
    """share: of the variation of the metric's ranks that the key explains by itself, less chance. low, high: its
    interval. p: corrected for the number of keys; of the last test that it took part in. beside: the keys that it was
    tested beside. together: other keys that vary with it, 0 to 1. best: the values where the metric is best. trend:
    how the metric goes with larger values, "rises", "falls" or "". lacking: runs that lack it.
    """

    key: str
    outcome: str
    share: float
    low: float
    high: float
    p: float | None
    levels: int
    lacking: int
    trend: str = ""
    best: str | None = None
    beside: list[str] = field(default_factory=list)
    together: dict[str, float] = field(default_factory=dict)
    sentence: str = ""


@dataclass
class Importance:
    """keys: those that vary, the surest first. runs: that have a value; configurations: of them that differ in more
    than the seed. diverged: that ended not finite, and count as the worst. repeats: the share of the variation between
    runs of one configuration, which no key explains; None without repeats. constant: keys with one value; apart: keys
    with another value in almost every run. sentences: the answer."""

    metric: str
    runs: int
    configurations: int
    diverged: int
    missing: int
    level: float
    keys: list[KeyImportance] = field(default_factory=list)
    repeats: float | None = None
    constant: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return asdict(self)

    def text(self, width: int = 100) -> str:
        """For a terminal of this many columns."""
        return str(providers.provider("importance as text")(self, width))

    def markdown(self) -> str:
        return str(providers.provider("importance as Markdown")(self))

    def __str__(self) -> str:
        return self.text()


def importance(
    *runs: Any,
    metric: str | None = None,
    value: str = "last",
    dir: str | os.PathLike[str] | None = None,
    where: str | None = None,
    level: float = LEVEL,
) -> Importance:
    """Which keys of the configuration explain a metric over these runs, and how sure that is.

    runs: stored runs, folders, ids, logs; without any all under `dir`. where: a condition that they must meet, such as
    `project = sweep`. metric: by default the evaluation's loss, or the training's. value: its "last" or its "best".
    level: of all keys together. Raises KeyError, ValueError and OSError with one sentence.
    """
    if not 0 < level < 1:
        raise ValueError(f"a level is between 0 and 1, such as 0.05, not {level}")
    if value not in ("last", "best"):
        raise ValueError(f"the value of a metric is its 'last' or its 'best', not {value!r}")
    found = given.stored_runs(runs, dir) if runs else filters.runs(dir)
    if where is not None:
        found = filters.select(found, where)
    last = [last_values(run) for run in found]
    told = [told_beside(run, values) for run, values in zip(found, last, strict=True)]
    chosen = metric or _usual(last, told)
    if value == "best":
        last = [best_values(run, [chosen], own) for run, own in zip(found, told, strict=True)]
    values = [item.get(chosen) for item in last]
    if found and all(item is None for item in values):
        raise KeyError(f"none of {count(len(found), 'run')} has a metric {chosen!r}")
    return explain([flatten(run.config) for run in found], values, chosen, level)


def _usual(owned: Sequence[Mapping[str, float]], told: Sequence[RunLosses]) -> str:
    """The loss that most of the runs have."""
    for name in preferred(dict.fromkeys(name for values in owned for name in values), told):
        if owned and 2 * sum(name in values for values in owned) > len(owned):
            return name
    raise KeyError("most of these runs have no loss: name a metric")


def explain(
    configs: Sequence[Mapping[str, Any]], values: Sequence[float | None], metric: str, level: float = LEVEL
) -> Importance:
    """The same of flat configurations and values, None where a run has none; what is not finite is the worst."""
    way = direction(metric) or -1
    kept = [at for at, value in enumerate(values) if value is not None]
    known = [float(value) for value in values if value is not None]
    settings = [{key: plain(value) for key, value in configs[at].items()} for at in kept]
    bad = [not math.isfinite(value) for value in known]
    ranks = statistics.ranked(
        np.array([math.inf if lost else -way * value for value, lost in zip(known, bad, strict=True)])
    )
    traits = [Traits(config) for config in settings]
    keys = list(dict.fromkeys(key for item in traits for key in item.setup))
    repeats: dict[Hashable, list[int]] = {}
    for at, item in enumerate(traits):
        repeats.setdefault(item.setup_identity, []).append(at)
    groups = list(repeats.values())
    found = Importance(metric, len(kept), len(groups), sum(bad), len(values) - len(kept), level)
    if len(groups) < 2:
        found.sentences = _sentences(found)
        return found
    means = np.array([ranks[group].mean() for group in groups])
    found.repeats = _within(ranks, groups)
    heads = [settings[group[0]] for group in groups]
    factors = _factors(heads, keys, found)
    if factors:
        weights = [len(group) for group in groups]
        _judge(found, factors, heads, statistics.ranked(means), weights, way)
    found.sentences = _sentences(found)
    return found


def _identity(value: Any) -> tuple[str, Any]:
    """1 and 1.0 are one value, True and 1 are not."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return type(value).__name__, value
    return "number", "nan" if math.isnan(value) else float(value)


def _within(ranks: Floats, groups: Sequence[Sequence[int]]) -> float | None:
    """The share of the variance of single runs that is between repeats of one configuration."""
    repeated = [ranks[group] for group in groups if len(group) > 1]
    dof = sum(len(group) - 1 for group in repeated)
    whole = float(ranks.var(ddof=1)) if len(ranks) > 1 else 0.0
    if not dof or whole <= _STRONG:
        return None
    inner = float(sum(((group - group.mean()) ** 2).sum() for group in repeated))
    return min(1.0, inner / dof / whole)


def _factors(heads: Sequence[Mapping[str, Any]], keys: Sequence[str], found: Importance) -> dict[str, Factor]:
    """The keys that vary, as levels; constants, and those that differ in almost every configuration, are listed."""
    factors: dict[str, Factor] = {}
    for key in keys:
        values = [config.get(key) for config in heads]
        identities = [_identity(value) if key in config else None
                      for value, config in zip(values, heads, strict=True)]  # fmt: skip
        distinct = dict.fromkeys(identities)
        if len(distinct) < 2:
            found.constant.append(key)
            continue
        if all(item is None or item[0] == "number" for item in distinct):
            factors[key] = _of_numbers([None if item is None or value is None else float(value)
                                        for item, value in zip(identities, values, strict=True)])  # fmt: skip
            continue
        if len(distinct) > len(heads) / 2 and len(distinct) > 2:
            found.apart.append(key)
            continue
        places = {item: at for at, item in enumerate(distinct)}
        factors[key] = Factor(np.array([places[item] for item in identities]))
    return factors


def _of_numbers(values: Sequence[float | None]) -> Factor:
    numbers = np.array([math.nan if value is None else value for value in values])
    ranks = statistics.ranked(numbers)
    good = ~np.isnan(ranks)
    distinct, codes = np.unique(numbers[good], return_inverse=True)
    many = int(good.sum())
    if len(distinct) > max(2, min(_MOST_LEVELS, many // 2)):
        most = max(2, min(_MOST_LEVELS, many // _EACH))
        # as many configurations in each, and equal values in one
        cuts = np.quantile(ranks[good], np.linspace(0, 1, most + 1)[1:-1])
        _, codes = np.unique(np.searchsorted(cuts, ranks[good], "left"), return_inverse=True)
    result = np.full(len(values), int(codes.max()) + 1 if len(codes) else 0)
    result[good] = codes
    return Factor(result, ranks)


def _judge(
    found: Importance, factors: dict[str, Factor], heads: Sequence[Mapping[str, Any]], ranks: Floats,
    weights: Sequence[int], way: int,
) -> None:  # fmt: skip
    """Fill `found.keys`."""
    random = np.random.default_rng(0)
    names, lots = list(factors), list(factors.values())
    alone = statistics.shares(lots, ranks[:, None])[:, 0]
    bounds = statistics.intervals(lots, ranks, found.level, random)
    made = {
        name: KeyImportance(
            name, CANNOT_TELL, max(0.0, float(alone[at])), float(bounds[at][0]), float(bounds[at][1]), None,
            len({_identity(config[name]) for config in heads if name in config}),
            sum(weight for weight, config in zip(weights, heads, strict=True) if name not in config),
        )
        for at, name in enumerate(names)
    }  # fmt: skip
    if found.configurations >= FEWEST:
        _test(found, made, factors, ranks, random)
    for name, item in made.items():
        item.together = {
            other: round(share, 3)
            for other in names
            if other != name and (share := statistics.association(factors[name], factors[other])) >= _TOGETHER
        }
        item.trend, item.best = _shape(factors[name], heads, name, ranks, way)
        item.sentence = _sentence(item, found)
    order = {EXPLAINS: 0, TOGETHER: 1, NOT_SHOWN: 2, CANNOT_TELL: 3}
    found.keys = sorted(made.values(), key=lambda item: (order[item.outcome], -item.share, item.key))


def _test(
    found: Importance, made: dict[str, KeyImportance], factors: dict[str, Factor], ranks: Floats,
    random: np.random.Generator,
) -> None:  # fmt: skip
    """Give each key its outcome: by itself, beside the others as in a grid, then beside those found so far."""
    names, none = list(factors), np.zeros(len(ranks), np.int64)
    # of many configurations a key is seen without holding the others
    grids = found.configurations <= _MOST_IN_GRID
    beside = {name: _beside(name, factors, ranks, found.level) for name in names} if grids else {}
    _, p = statistics.tests(list(factors.values()), ranks, none, random)
    alone = dict(zip(names, p.tolist(), strict=True))
    grid = {name: float(statistics.tests([factors[name]], ranks, _strata(others, factors, none), random)[1][0])
            for name, others in beside.items() if others}  # fmt: skip
    both = statistics.corrected([*alone.values(), *grid.values()])
    alone = dict(zip(names, both, strict=False))
    grid = dict(zip(grid, both[len(names) :], strict=True))
    for name, item in made.items():
        item.p = min(alone[name], grid.get(name, 1.0))
        item.beside = beside.get(name, []) if item.p < alone[name] else []
        able = statistics.smallest_p(factors[name], ranks, none) * len(both) <= found.level
        item.outcome = NOT_SHOWN if able or item.p <= found.level else CANNOT_TELL
        if item.p <= found.level:
            item.outcome = TOGETHER  # until it is found to hold by itself
    shown_in_grid = [name for name, value in grid.items() if value <= found.level]
    explained = [name for name in shown_in_grid if set(shown_in_grid) - {name} <= set(beside[name])]
    for name in explained:
        made[name].outcome = EXPLAINS
    while len(explained) < max(_MOST_FOUND, len(grid)):
        left = [name for name in names if name not in explained]
        if not left:
            break
        p = (
            np.array(statistics.corrected(
                statistics.tests([factors[name] for name in left], ranks, _strata(explained, factors, none), random)[1]
                .tolist()
            ))
            if explained
            else np.array([made[name].p for name in left])
        )  # fmt: skip
        best = min(range(len(left)), key=lambda at: (p[at], -made[left[at]].share))
        if p[best] > found.level:
            break
        item = made[left[best]]
        item.outcome, item.p, item.beside = EXPLAINS, float(p[best]), list(explained)
        explained.append(item.key)


def _strata(keys: Sequence[str], factors: Mapping[str, Factor], none: NDArray[np.int64]) -> NDArray[np.int64]:
    """Configurations that agree in these keys have one number."""
    result = none
    for key in keys:
        result = np.unique(result * factors[key].levels + factors[key].codes, return_inverse=True)[1].reshape(-1)
    return result


def _beside(name: str, factors: Mapping[str, Factor], ranks: Floats, level: float) -> list[str]:
    """The other keys that can be held while this one varies, as in a grid: as many as leave a test worth making.

    It goes by the design alone and not by the metric, so that it takes nothing from the level.
    """
    none = np.zeros(len(ranks), np.int64)
    held: list[str] = []
    for other in sorted(factors, key=lambda key: (factors[key].levels, key)):
        if other == name or len(held) == _MOST_FOUND:
            continue
        strata = _strata([*held, other], factors, none)
        if statistics.smallest_p(factors[name], ranks, strata) * 2 * len(factors) <= level / _SPARE:
            held.append(other)
    return held


def _shape(
    factor: Factor, heads: Sequence[Mapping[str, Any]], key: str, ranks: Floats, way: int
) -> tuple[str, str | None]:
    """How the metric goes with the key, and where it is best. Low ranks are good ones."""
    means = [float(ranks[factor.codes == level].mean()) for level in range(factor.levels)]
    at = int(np.argmin(means))
    chosen = [config[key] for config, code in zip(heads, factor.codes, strict=True) if code == at and key in config]
    best = "absent" if not chosen else shown(chosen[0])
    if chosen and factor.ranks is not None and min(chosen) != max(chosen):
        best = f"{shown(min(chosen))} to {shown(max(chosen))}"
    along = statistics.trend(factor, ranks) * -way
    if factor.ranks is None or 0 < at < len(means) - 1 or abs(along) < 0.5:
        return "", best
    return ("rises" if along > 0 else "falls"), best


def _sentence(item: KeyImportance, found: Importance) -> str:
    explains = f"{percent(item.share, 0)} of the variation ({percent(item.low, 0)} to {percent(item.high, 0)})"
    p = "" if item.p is None else f", p {'< 0.001' if item.p < 0.001 else f'= {number(item.p, 2)}'}"
    others = listed(list(item.together), 3)
    if item.outcome == EXPLAINS:
        text = f"{item.key} explains {explains}{p}"
        if item.beside:
            text += f" beside {listed(item.beside, 3)}"
        if item.best is not None:
            text += f"; best at {item.best}"
        return text + (f". It varies together with {others}: either may be the cause." if others else ".")
    if item.outcome == TOGETHER:
        keys = [other.key for other in found.keys if other.outcome == EXPLAINS] or list(item.together)
        apart = listed([name for name in item.together if name in keys] or list(item.together) or keys, 3)
        why = f": it varies together with {apart}" if apart else ": it shows nothing beside the keys above"
        return f"{item.key} alone would explain {explains}, and can't be distinguished{why}."
    if item.outcome == NOT_SHOWN:
        return f"{item.key}: no effect is shown{p}."
    return f"{item.key}: too few configurations to tell."


def _sentences(found: Importance) -> list[str]:
    """The answer, and what it rests on."""
    told = []
    explaining = [item for item in found.keys if item.outcome == EXPLAINS]
    if found.configurations < FEWEST:
        told.append(
            f"Cannot tell what explains {found.metric}: {count(found.configurations, 'configuration')} in "
            f"{count(found.runs, 'run')}, and at least {FEWEST} are needed."
        )
    elif not found.keys:
        told.append(f"No key of the configuration varies, so none explains {found.metric}.")
    elif explaining:
        told += [item.sentence for item in explaining]
    else:
        told.append(
            f"No key is shown to explain {found.metric} in {count(found.configurations, 'configuration')}: with so "
            "many keys and configurations a small effect may be there all the same."
        )
    told += [item.sentence for item in found.keys if item.outcome == TOGETHER]
    if found.diverged:
        told.append(f"{count(found.diverged, 'run')} ended with NaN or infinity, and count as the worst.")
    if found.missing:
        told.append(f"{count(found.missing, 'run')} without a value of {found.metric}: left out.")
    if found.repeats is not None:
        told.append(
            f"{percent(found.repeats, 0)} of the variation of single runs is between repeats of one configuration: "
            "no key explains that."
        )
    return told
