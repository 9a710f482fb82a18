"""What a rule is.

In:   `Seen`, whenever rows have come.
Out:  findings.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from barograph.rules.channels import Seen
from barograph.rules.finding import Finding


class Rule:
    """One thing that may go wrong. An object follows one run.

    `examine` is called whenever rows have come, with any number of new ones; what it yields must not depend on how
    rows were cut into calls, so a rule remembers up to which row it has looked. It looks at no row twice, uses for a
    row nothing that came after it (a finding may be confirmed by later rows: `found` is then the later step), and is
    quick where nothing is new.

    prompt: whether it is asked whenever rows have come; the others may wait for more of them (`Examiner`), which
    changes nothing but when they speak. For what can't wait: numbers that are none, steps that do nothing.
    name, family, kind: as in its findings. severity: the worst it may give. needs: roles (`loss`), series
    (`=model/param_norm`), tables of layers (`gradients/*/norm`), events (`!straggler`) or facts (`config`) without
    which it abstains; alternatives are joined by `|`. least: rows it needs of the first.
    about: one sentence, what it means. source: where idea and threshold come from.
    thresholds: name → (value, where it comes from); `self.at[name]` is the value in force, which users may set.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    kind: ClassVar[str]
    severity: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    least: ClassVar[int] = 1
    prompt: ClassVar[bool] = False
    about: ClassVar[str]
    source: ClassVar[str]
    thresholds: ClassVar[Mapping[str, tuple[float, str]]] = {}

    def __init__(self, **changed: float):
        strange = changed.keys() - self.thresholds.keys()
        if strange:
            near = difflib.get_close_matches(min(strange), self.thresholds, 1, 0.0)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise ValueError(f"rule {self.name} has no threshold {min(strange)!r}{hint}")
        self.at = {name: value for name, (value, _) in self.thresholds.items()} | changed

    def examine(self, seen: Seen) -> Iterable[Finding]:
        """Findings in the rows that came since the last call, and earlier ones of which more is known now."""
        raise NotImplementedError

    def finding(self, step: int, message: str, **about: Any) -> Finding:
        """A finding of this rule; its kind and severity unless told otherwise."""
        about.setdefault("kind", self.kind)
        about.setdefault("severity", self.severity)
        # what is not known is left out: JSON has no NaN
        about["evidence"] = {name: value for name, value in about.get("evidence", {}).items() if value == value}
        return Finding(rule=self.name, family=self.family, step=int(step), message=message, **about)


def missing(rule: Rule, seen: Seen) -> list[str]:
    """What a rule needs and the run doesn't have; empty if the rule can look."""
    return [need for need in rule.needs if not any(_there(one.strip(), seen) for one in need.split("|"))]


def has_any(rule: Rule, seen: Seen) -> bool:
    """Whether anything of what a rule needs is there, or it needs nothing."""
    return not rule.needs or any(_there(one.strip(), seen) for need in rule.needs for one in need.split("|"))


def _there(need: str, seen: Seen) -> bool:
    if need.startswith("="):
        channel = seen.channel(need[1:])
        return channel is not None and channel.end > 0
    if need.startswith("!"):
        return need[1:] in seen.kinds
    if "*" in need:
        family, _, quantity = need.partition("/*/")
        return (
            bool(seen.layers(family, quantity))
            if quantity
            else any(name.startswith(need.split("*")[0]) for name in seen.channels)
        )
    if need in seen.facts:
        return True
    try:
        channel = seen.role(need)
    except KeyError:
        return False
    return channel is not None and channel.end > 0
