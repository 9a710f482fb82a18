"""Columns for tests of rules: fed whole, or cut at random, in the order in which a run would log them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy

from barograph.core.record import Record
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.rule import Rule

Column = Any  # values [n] at steps 0 to n-1, or (steps, values)


def findings(
    rules: Iterable[Rule],
    columns: Mapping[str, Column],
    *,
    facts: Mapping[str, Any] | None = None,
    events: Iterable[Record] = (),
    cuts: Iterable[int] = (),
    segments: Mapping[int, int] | None = None,
    seconds: float = 1.0,
    late: Mapping[str, int] | None = None,
) -> dict[tuple[Any, ...], Finding]:
    """What rules find by identity, the last word on each. cuts: steps before which they are asked too.

    segments: first step → segment. seconds: between two steps. late: by how many steps rows of a series come later.
    """
    made = list(rules)
    seen = RunHistory(dict(facts or {}))
    laid = {name: _column(column) for name, column in columns.items()}
    waiting = sorted(events, key=lambda event: event.step)
    last = max(
        [int(steps[-1]) + (late or {}).get(name, 0) for name, (steps, _) in laid.items() if len(steps)]
        + [event.step for event in waiting]
        + [0]
    )
    found: dict[tuple[Any, ...], Finding] = {}
    for low, high in _between([*sorted(set(cuts)), last + 1]):
        while waiting and waiting[0].step < high:
            event = waiting.pop(0)
            seen.events.append(event)
        for name, (steps, values) in laid.items():
            came = steps + (late or {}).get(name, 0)
            some = (came >= low) & (came < high)
            if some.any():
                step = steps[some]
                seen.add(name, step, values[some], _times(came[some], seconds), _segments(step, segments))
        for rule in made:
            for one in rule.examine(seen):
                found[one.identity] = msgspec.structs.replace(one, evidence=dict(one.evidence))
    seen.facts["finished"] = True
    for rule in made:
        for one in rule.examine(seen):
            found[one.identity] = one
    return found


def only(found: Mapping[tuple[Any, ...], Finding], rule: str) -> list[Finding]:
    """The findings of one rule, in the order of their steps."""
    return sorted((one for one in found.values() if one.rule == rule), key=lambda one: one.step)


def noisy(count: int, level: float = 1.0, noise: float = 0.05, seed: int = 0) -> Any:
    """A series around a level, log-normal."""
    return level * numpy.exp(noise * numpy.random.default_rng(seed).standard_normal(count))


def random_cuts(count: int, seed: int) -> list[int]:
    """Some steps to cut at."""
    dice = random.Random(seed)
    return sorted(dice.sample(range(1, max(2, count)), min(dice.randrange(0, 12), max(0, count - 1))))


STRANGE = (0.0, -1.0, float("nan"), float("inf"), 1e300, 1e-300, 500.0, 1e-9, 29.0, 1.0)


def random_columns(
    seed: int,
    names: Iterable[str],
    tables: Iterable[str] = (),
    zero: Iterable[str] = (),
    counts: tuple[int, ...] = (1, 2, 20, 100, 300),
    every: int = 10,
) -> dict[str, Column]:
    """Columns with strange values in them; tables come every tenth step or so, some with rows left out.

    zero: names whose usual value is 0.
    """
    dice = random.Random(seed)
    count = dice.choice(counts)
    columns: dict[str, Column] = {}
    for name in names:
        if dice.random() < 0.2:
            continue
        usual = 0.0 if name in set(zero) else dice.choice((1.0, 3.0, 1e-4, 100.0))
        values = noisy(count, 1.0, dice.choice((0.0, 0.05, 0.5)), seed) * usual
        for _ in range(dice.randrange(6)):
            place = dice.randrange(count)
            strange = dice.choice(STRANGE)
            times = dice.choice((1, 3, 30, 300))
            values[place : place + times] = strange if dice.random() < 0.7 else values[place : place + times] * 12
        columns[name] = values
    rounds = max(1, count // every)
    for name in tables:
        values = noisy(rounds, 0.5, 0.2, seed + len(name))
        for _ in range(dice.randrange(5)):
            values[dice.randrange(rounds) :] = dice.choice(STRANGE)
        there = numpy.arange(rounds)
        if dice.random() < 0.3:
            there = there[dice.randrange(rounds) :]
        elif dice.random() < 0.3:
            there = there[: dice.randrange(rounds) + 1]
        columns[name] = (there * every, values[there])
    return columns


def same_when_cut(
    rules: Iterable[type[Rule]], columns: Mapping[str, Column], seed: int, *, facts: Mapping[str, Any] | None = None,
    events: Iterable[Record] = (),
) -> None:  # fmt: skip
    """Rules give the same findings whole and in pieces, also over the border of a segment."""
    segments = {150: 2} if seed % 2 else None
    events = list(events)
    whole = findings([rule() for rule in rules], columns, facts=facts, segments=segments, events=events)
    cuts = range(300) if seed % 3 == 0 else random_cuts(300, seed)
    pieces = findings([rule() for rule in rules], columns, facts=facts, segments=segments, events=events, cuts=cuts)
    assert _plain(whole) == _plain(pieces)


def _plain(found: Mapping[tuple[Any, ...], Finding]) -> dict[Any, str]:
    return {key: repr(msgspec.to_builtins(one)) for key, one in sorted(found.items())}  # NaN equals itself as text


def _column(column: Column) -> tuple[Any, Any]:
    if isinstance(column, tuple):
        return numpy.asarray(column[0], numpy.int64), numpy.asarray(column[1], float)
    return numpy.arange(len(column)), numpy.asarray(column, float)


def _times(step: Any, seconds: float) -> Any:
    return (1_700_000_000_000_000 + step * seconds * 1e6).astype(numpy.int64)


def _segments(step: Any, segments: Mapping[int, int] | None) -> Any:
    made = numpy.ones(len(step), numpy.int32)
    for first, segment in sorted((segments or {}).items()):
        made[step >= first] = segment
    return made


def _between(edges: list[int]) -> Iterable[tuple[int, int]]:
    low = 0
    for high in edges:
        if high > low:
            yield low, high
        low = max(low, high)
