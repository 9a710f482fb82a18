"""All rules there are.

In:   nothing, or a user's thresholds and the rules not wanted.
Out:  rule objects for one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from barograph.core.lazy import lazy
from barograph.doctor.kernel.rule import Rule
from barograph.doctor.kernel.thresholds import ALERT_THRESHOLDS

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")

MODULES = (
    "loss.loss", "loss.progress", "evaluation.evaluation", "evaluation.mode", "evaluation.units", "evaluation.ranking",
    "data.data", "data.crossed",
    "evaluation.reversed", "data.noising", "data.noised", "data.criteria", "data.finite", "data.texts", "data.outputs",
    "data.places", "data.leaks", "data.missing", "data.cut",
    "data.pictures", "data.prepared", "data.sides", "data.overlaps", "data.trained_rows",
    "run.resume", "run.replayed", "rl.rl", "rl.values", "rl.scaled",
    "rl.reference", "rl.preference_loss", "rl.columns", "loss.players", "gradient.gradient", "gradient.origin",
    "optimizer.early", "optimizer.optimizer", "activations.adapters", "activations.weights", "activations.groups",
    "activations.unfreezing", "activations.reach", "activations.activations", "activations.forward",
    "activations.dependence", "activations.paths", "activations.scores", "moe.moe", "moe.dead", "optimizer.schedule",
    "optimizer.accounts", "optimizer.decay", "optimizer.settings", "optimizer.steps", "optimizer.around",
    "optimizer.annealing", "optimizer.scheduled", "speed.speed", "memory.memory", "memory.graphs",
    "machine.machine", "ranks.ranks", "run.logging", "run.ending", "run.time", "loss.outlook", "loss.below_zero",
    "loss.absurd", "evaluation.by_heart",
    "loss.accumulated", "evaluation.accuracy", "evaluation.explained", "evaluation.best", "evaluation.terms",
    "loss.squares", "data.order", "data.lengths", "data.alike", "ranks.summed", "data.batches", "loss.divided",
    "evaluation.average_anew", "evaluation.average_moves", "evaluation.average_left", "evaluation.running",
    "evaluation.untrained", "gradient.undivided", "optimizer.held", "optimizer.declared", "optimizer.again",
    "evaluation.nothing", "optimizer.layered", "loss.hardest", "data.beginnings", "optimizer.longer", "run.raised",
    "loss.weighed", "ranks.shares", "ranks.modes", "ranks.losses", "ranks.classes", "data.prompts",
    "evaluation.compared", "rl.crossed", "rl.in_turn", "rl.beta", "data.agreed", "data.padded", "rl.begins", "rl.added",
    "gradient.swings", "rl.shared", "data.timed", "data.drawn", "data.template",
    "data.one_way", "evaluation.own_weights", "evaluation.average_named",
    "evaluation.with_gradients", "evaluation.alone", "evaluation.masks",
    "data.tables", "gradient.clipping", "gradient.after_step", "evaluation.smoothed", "loss.given_twice", "rl.pairs",
    "evaluation.saturates", "evaluation.multiplied", "activations.packed", "data.segments", "data.class_offsets",
    "data.groups", "evaluation.lengths", "evaluation.one_class", "optimizer.rounded", "data.labelled",
)  # fmt: skip
"""Files below `doctor/rules` with a list `RULES` of classes."""


def rule_classes() -> dict[str, type[Rule]]:
    """Every rule by name, in the order of their files."""
    result: dict[str, type[Rule]] = {}
    for module in MODULES:
        for rule in import_module(f"barograph.doctor.rules.{module}").RULES:
            result[rule.name] = rule
    return result


@cache
def _proofs() -> dict[str, str]:
    return {name: rule.proves for name, rule in rule_classes().items() if rule.proves}


def proves_of(rule: str) -> str:
    """`Rule.proves` of the rule of that name; empty if there is none."""
    return _proofs().get(rule, "")


def make_rules(changed: Mapping[str, float] | None = None, silenced: Iterable[str] = ()) -> list[Rule]:
    """Rule objects for one run.

    changed: `rule.threshold`, or a name of `ALERT_THRESHOLDS`, → value. silenced: names of rules that are not
    wanted. Raises ValueError with the nearest name for one that doesn't exist.
    """
    classes = rule_classes()
    values: dict[str, dict[str, float]] = {}
    for name, value in (changed or {}).items():
        rule, dot, threshold = name.partition(".")
        if not dot and name in ALERT_THRESHOLDS:
            _, rule, threshold = ALERT_THRESHOLDS[name]
        elif not dot:
            raise ValueError(_nearest(name, [*ALERT_THRESHOLDS, *classes]) + "; write rule.threshold")
        values.setdefault(_known(rule, classes), {})[threshold] = float(value)
    without = {_known(name, classes) for name in silenced}
    return [kind(**values.get(name, {})) for name, kind in classes.items() if name not in without]


def find_rule(name: str) -> type[Rule]:
    """The rule of that name. Raises ValueError with the nearest name for one that doesn't exist."""
    classes = rule_classes()
    return classes[_known(name.strip().replace("-", "_"), classes)]


def _known(name: str, classes: Mapping[str, type[Rule]]) -> str:
    if name not in classes:
        raise ValueError(_nearest(name, classes))
    return name


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.0)
    return f"there is no rule {name!r}; the nearest is {near[0]!r}" if near else f"there is no rule {name!r}"
