"""What a rule is.

In:   `RunHistory`, whenever rows have come.
Out:  findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from barograph.core.lazy import lazy
from barograph.doctor.kernel.channels import RunHistory
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.pace import has_times
from barograph.doctor.kernel.wording import Case, RunNumbers, filled

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")


class Rule:
    """One thing that may go wrong. An object follows one run.

    `examine` is called whenever rows have come, with any number of new ones; what it yields must not depend on how
    rows were cut into calls, so a rule remembers up to which row it has looked. It looks at no row twice, uses for a
    row nothing that came after it (a finding may be confirmed by later rows: `found` is then the later step), and is
    quick where nothing is new.

    prompt: whether it is asked whenever rows have come; the others may wait for more of them (`Examiner`), which
    changes nothing but when they speak. For what can't wait: values that are not finite, steps that do nothing. Names
    as in `needs` instead: it is, from when one of these series has had a value that is not finite, or one of these
    events came.
    name, family, kind: as in its findings. severity: the worst it may give. needs: roles (`loss`), series
    (`=model/param_norm`), tables of layers (`gradients/*/norm`), events (`!straggler`), facts (`config`) or the loss's
    times by Barograph's own clock (`pace`) without which it abstains; alternatives are joined by `|`. least: rows it
    needs of the first.
    about: one sentence, what it means. sources: where idea and thresholds come from: names of `sources.SOURCES`, with
    `: what is taken from it` behind where that says more; none where both are Barograph's own.
    thresholds: name → (value, where it comes from); `self.at[name]` is the value in force, which users may set.
    cases: what it says, by a name of its own: templates that `say` fills. causes, remedies: of a finding that gives
    none. proves: how what is made, where a finding has proof: the "training", from which anything may follow, or the
    "evaluation", from which evaluations alone do; empty of what happens once.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    kind: ClassVar[str]
    severity: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    least: ClassVar[int] = 1
    prompt: ClassVar[bool | tuple[str, ...]] = False
    about: ClassVar[str]
    sources: ClassVar[tuple[str, ...]] = ()
    thresholds: ClassVar[Mapping[str, tuple[float, str]]] = {}
    cases: ClassVar[Mapping[str, Case]] = {}
    causes: ClassVar[tuple[str, ...]] = ()
    remedies: ClassVar[tuple[str, ...]] = ()
    proves: ClassVar[str] = ""

    def __init__(self, **changed: float):
        strange = changed.keys() - self.thresholds.keys()
        if strange:
            near = difflib.get_close_matches(min(strange), self.thresholds, 1, 0.0)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise ValueError(f"rule {self.name} has no threshold {min(strange)!r}{hint}")
        self.changed = changed
        self.at = {name: value for name, (value, _) in self.thresholds.items()} | changed
        self._firsts: set[Any] = set()
        self.reset()

    def reset(self) -> None:
        """Forget what was seen: a run begins, or another series takes the place of the one that was followed."""

    def examine(self, history: RunHistory) -> Iterable[Finding]:
        """Findings in the rows that came since the last call, and earlier ones of which more is known now."""
        raise NotImplementedError

    def first(self, *what: Any) -> bool:
        """Whether this is asked for the first time; rules use it for what is said once in a segment or of a layer."""
        if what in self._firsts:
            return False
        self._firsts.add(what)
        return True

    def finding(self, step: int, message: str, **about: Any) -> Finding:
        """A finding of this rule; its kind, severity, causes and remedies unless others are given.

        found: the row with which it could be known, and up to which it was seen if `last_step` says nothing else.
        """
        about.setdefault("kind", self.kind)
        about.setdefault("severity", self.severity)
        about.setdefault("causes", list(self.causes))
        about.setdefault("remedies", list(self.remedies))
        about.setdefault("last_step", about.get("found", step))
        # what is not known is left out: JSON has no NaN
        about["evidence"] = {name: value for name, value in about.get("evidence", {}).items() if value == value}
        return Finding(rule=self.name, family=self.family, step=int(step), message=message, **about)

    def say(
        self,
        case: str,
        history: RunHistory,
        step: int,
        *,
        evidence: Mapping[str, Any] | None = None,
        also: Mapping[str, Any] | None = None,
        time: int = 1 << 62,
        **about: Any,
    ) -> Finding:
        """The finding of a case. Its templates are filled with `evidence`, with `also`, and with what `wording.Numbers`
        knows of the run at that step and time; a cause or remedy of which a number is not known is left out.
        """
        words = self.cases[case]
        given = {"step": step} | dict(evidence or {}) | dict(also or {})
        numbers = RunNumbers(history, step, time, about.get("segment", 0), given)
        for name in ("kind", "severity", "confidence"):
            value = getattr(words, name)
            if value:
                about.setdefault(name, value)
        about.setdefault("causes", filled(words.causes or self.causes, numbers))
        about.setdefault("remedies", filled(words.remedies or self.remedies, numbers))
        return self.finding(step, words.message.format_map(numbers), evidence=evidence or {}, **about)


def missing(rule: Rule, history: RunHistory) -> list[str]:
    """What a rule needs and the run doesn't have; empty if the rule can look."""
    return [need for need in rule.needs if not any(_there(item.strip(), history) for item in need.split("|"))]


_WORDS = {"lost": "a run that ended badly", "pace": "times of the loss's rows", "*": "any series"}


def in_words(need: str, quote: str = "") -> str:
    """What a rule needs, for people: `loss or a record hang`, names between quotation marks if given."""
    words, kind = [], ""
    for item in map(str.strip, need.split("|")):
        again = item[:1] in ("=", "!") and item[:1] == kind  # `the series a or b` says it once
        kind = item[:1]
        words.append(f"{quote}{item[1:]}{quote}" if again else _in_words(item, quote))
    return " or ".join(words)


def _in_words(need: str, quote: str) -> str:
    if need in _WORDS:
        return _WORDS[need]
    sign, name = ("", need) if need[:1] not in ("=", "!") else (need[0], need[1:])
    words = {"=": "the series {}", "!": "a record {}"}.get(sign, "{} of a layer" if "/*/" in need else "{}")
    return words.format(f"{quote}{name}{quote}")


def has_any(rule: Rule, history: RunHistory) -> bool:
    """Whether anything of what a rule needs is there, or it needs nothing."""
    return not rule.needs or any(_there(item.strip(), history) for need in rule.needs for item in need.split("|"))


def _there(need: str, history: RunHistory) -> bool:
    if need.startswith("="):
        channel = history.channel(need[1:])
        return channel is not None and channel.end > 0
    if need.startswith("!"):
        return need[1:] in history.kinds
    if "*" in need:
        family, _, quantity = need.partition("/*/")
        return (
            bool(history.layers(family, quantity))
            if quantity
            else any(name.startswith(need.split("*")[0]) for name in history.channels)
        )
    if need == "pace":
        return has_times(history)
    if need in history.facts:
        return True
    try:
        channel = history.role(need)
    except KeyError:
        return False
    return channel is not None and channel.end > 0
