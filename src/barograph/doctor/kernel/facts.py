"""What is known of a run beside its columns.

In:   its configuration, and what else its folder or process says.
Out:  `Seen.facts`: flat names, and the few that rules ask for by one name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barograph.core.configuration import PLANNED_STEPS, VOCABULARY, Configuration
from barograph.core.patterns import expression
from barograph.core.record import Record

_TARGETS = ("target_loss", "loss_target", "target_train_loss")
EVENTS = ("segment", "checkpoint", "oom", "straggler", "stacks", "hang", "end")
"""Kinds of records without numbers that rules are given."""
RARE = {
    "ranks": (
        "absent",
        "same_batch",
        "batch_behind",
        "same_labels",
        "world_size_before",
        "apart",
        "never_equal",
        "modes_apart",
    ),
    "model": (
        "first_non_finite_gradient",
        "first_non_finite_weight",
        "frozen",
        "unreached",
        "untied_weights",
        "without_graph",
        "rateless",
        "unused",
        "idle",
        "shared",
        "repeated",
    ),
    "info": ("message",),
}
"""Kinds of which rules are given the records that have one of these fields."""


_TROUBLE = expression(
    r"retr(?:y|ies)|time[d -]?out|\bwarn|\berror|\bfail|stall|refused|reset by peer|unreachable|corrupt|i/o", re.I
)
"""Messages that a rule counts."""


class Outlook(NamedTuple):
    """A forecast: the final loss, its interval, and the chance that the target is reached within the plan."""

    final: float
    low: float
    high: float
    chance: float


def is_event(record: Record) -> bool:
    """Whether rules are given a record beside its numbers."""
    if record.kind in EVENTS:
        return True
    fields = RARE.get(record.kind)
    if (
        record.kind == "info"
        and "line" not in record.fields
        and _TROUBLE.search(str(record.fields.get("message", ""))) is None
    ):
        return False
    return fields is not None and any(name in record.fields for name in fields)


def with_rank(event: Record, rank: int) -> Record:
    """An event of that rank's log, where it does not say so itself: another rank's end is not the run's."""
    if not rank or "rank" in event.fields:
        return event
    return event._replace(fields={**event.fields, "rank": rank})


def facts_of(config: Mapping[str, Any], **known: Any) -> dict[str, Any]:
    """`config` flat, lower-case keys joined by dots; `vocabulary` and `planned_steps` if it tells them; `known`."""
    flat = dict(_flat(config))
    facts: dict[str, Any] = {"config": flat}
    if flat:
        facts["has_config"] = True
    options = Configuration(config)
    for name, keys in (("planned_steps", PLANNED_STEPS), ("vocabulary", VOCABULARY)):
        if (value := options.count(keys)) is not None and value > 1:
            facts[name] = value
    target = next((flat[name] for name in flat if name.rsplit(".", 1)[-1] in _TARGETS), None)
    if isinstance(target, (int, float)) and not isinstance(target, bool) and target > 0:
        facts["target_loss"] = float(target)
    return facts | {name: value for name, value in known.items() if value is not None}


def excluded_causes(facts: Mapping[str, Any]) -> frozenset[str]:
    """Causes, by the words before their colon, that the configuration rules out: half precision beside another."""
    said = [
        str(value).lower()
        for name, value in (facts.get("config") or {}).items()
        if value is not False and re.search(r"dtype|precision|amp|(?:^|[._])(?:bf16|fp16|fp32)$", name)
    ] + [
        name.rsplit(".", 1)[-1]
        for name, value in (facts.get("config") or {}).items()
        if value is True and name.rsplit(".", 1)[-1] in ("bf16", "fp16", "fp32")
    ]
    half = any(re.search(r"fp16|float16|(?<!b)16(?!\d)|half", item) and "bf" not in item for item in said)
    other = any(re.search(r"bf16|bfloat16|fp32|float32|(?<!\d)32(?!\d)", item) for item in said)
    return frozenset({"fp16 overflow"}) if other and not half else frozenset()


def _flat(config: Mapping[str, Any], prefix: str = "", depth: int = 8) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{str(key).lower().replace('-', '_')}"
        if isinstance(value, Mapping):
            if depth:
                yield from _flat(value, f"{name}.", depth - 1)
        else:
            yield name, value
