"""Named values of `run.log` as the step or the evaluations that they describe, so that they are drawn like these.

In:   the names in a row, then its values.
Out:  `step` and `eval` records with the typed calls' fields; none for a row without a loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from barograph.core.aliases import Names
from barograph.core.record import Record

_FIELDS = {
    "train/loss": "loss",
    "train/norm": "norm",
    "train/lr": "lr",
    "train/epoch": "epoch",
    "train/step_tokens": "step_tokens",
    "train/duration_ms": "duration_ms",
    "train/tokens_per_second": "tokens_per_second",
    "train/mfu": "mfu",
    "moe/aux_loss": "moe_aux_loss",
    "moe/load_imbalance": "moe_load_imbalance",
}  # canonical name → field of a step
_EVALUATED = {
    "eval/loss": "loss",
    "eval/bpb": "val_bpb",
    "eval/eval_tokens": "eval_tokens",
    "eval/duration_ms": "duration_ms",
    "eval/tokens_per_second": "tokens_per_second",
}
_NAMED = re.compile(r"(?:eval|val|valid|validation)/(.+)/(loss|bpb)")  # of one of several evaluations
_ELAPSED = "training_time_ms"  # speedrun-mup's rows have it, with or without a loss
_SHARED = frozenset({_ELAPSED, "step_avg_ms"})
_A_SECOND, _BURST = 10.0, 20.0
_MOST = 1000  # lists of names that are kept

Fields = tuple[tuple[str, str, float], ...]  # name in the row, field, factor


class RowPlan(NamedTuple):
    """What a row with certain names describes."""

    step: Fields
    evaluations: tuple[tuple[str, Fields], ...]  # by name; "" has none

    def __bool__(self) -> bool:
        return bool(self.step or self.evaluations)


class RowPace:
    """How often rows are drawn: a tight loop over `run.log` must not spend its time on lines that nobody can read."""

    def __init__(self) -> None:
        self._room, self._since = _BURST, 0.0

    def is_due(self, record: Record, now: float) -> bool:
        """Whether a row is a line: every evaluation, and ten steps a second."""
        found = plan(record.fields)
        if not found or found.evaluations:
            return bool(found)
        self._room = min(_BURST, self._room + (now - self._since) * _A_SECOND)
        self._since = now
        if self._room < 1:
            return False
        self._room -= 1
        return True


_plans: dict[tuple[str, ...], RowPlan] = {}


def plan(names: Iterable[str]) -> RowPlan:
    """What a row with these names describes; empty if it has no loss."""
    key = tuple(names)
    result = _plans.get(key)
    if result is None:
        if len(_plans) >= _MOST:
            _plans.clear()
        result = _plans[key] = _plan(key)
    return result


def described(record: Record) -> Iterator[Record]:
    """The step and the evaluations that a row of `run.log` describes. Values that are None are left out."""
    found = plan(record.fields)
    if found.step and (fields := _values(found.step, record.fields)):
        yield record._replace(kind="step", fields=fields)
    for name, columns in found.evaluations:
        if fields := _values(columns, record.fields):
            yield record._replace(kind="eval", fields=fields | ({"name": name} if name else {}))


def _values(columns: Fields, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields; none of them where the first, the one that makes the row worth a line, has no value."""
    if values[columns[0][0]] is None:
        return {}
    return {
        field: values[name] if factor == 1 or not isinstance(values[name], (int, float)) else values[name] * factor
        for name, field, factor in columns
        if values[name] is not None
    }


def _plan(names: tuple[str, ...]) -> RowPlan:
    table = Names()
    step: list[tuple[str, str, float]] = []
    evaluations: dict[str, list[tuple[str, str, float]]] = {}
    for name in names:
        if type(name) is not str:  # of a damaged log
            continue
        canonical = table.of(name)
        if field := _FIELDS.get(canonical.name):
            step.append((name, field, canonical.factor))
        elif field := _EVALUATED.get(canonical.name):
            evaluations.setdefault("", []).append((name, field, canonical.factor))
        elif match := _NAMED.fullmatch(name):
            evaluations.setdefault(match[1], []).append((name, match[2].replace("bpb", "val_bpb"), 1.0))
        elif "/" not in name:
            step.append((name, name, 1.0))
    shared = [item for item in step if item[1] in _SHARED]
    scored = {
        name: tuple(sorted([*columns, *shared], key=lambda item: item[1] not in ("loss", "val_bpb")))
        for name, columns in evaluations.items()
        if any(field in ("loss", "val_bpb") for _, field, _ in columns)
    }
    first = next((lead for lead in ("loss", _ELAPSED) if any(item[1] == lead for item in step)), None)
    if first is None or (first == _ELAPSED and scored):
        step = []
    return RowPlan(tuple(sorted(step, key=lambda item: item[1] != first)), tuple(scored.items()))
