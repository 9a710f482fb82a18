"""All rules over one run.

In:   rows and events, added to `seen`.
Out:  incidents; which rules could look, and what the others lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy

from barograph.doctor.kernel.channels import ROUNDS, RunHistory
from barograph.doctor.kernel.contradictions import ruled_out
from barograph.doctor.kernel.curve import has_vanished
from barograph.doctor.kernel.finding import Finding
from barograph.doctor.kernel.range_test import tempered
from barograph.doctor.kernel.registry import make_rules
from barograph.doctor.kernel.remedies import fitting
from barograph.doctor.kernel.rule import Rule, in_words, missing
from barograph.doctor.kernel.story import tell

_MOST = 2000  # findings kept of one rule; later ones are counted
_PATIENT_FROM = 256  # rows from which on rules that may wait do
_WAIT = 512  # rows that they wait for at most
_OF_THE_LOSS = frozenset({"loss", "gradient", "eval"})  # families that speak of a loss, or of what follows from it


class Examiner:
    """Follows one run, live or in replay. A rule that fails is left out and named in `failed`; nothing is raised."""

    def __init__(self, rules: Iterable[Rule] | None = None, facts: Mapping[str, Any] | None = None):
        self.seen = RunHistory(dict(facts or {}))
        self.rules = list(make_rules() if rules is None else rules)
        self.failed: dict[str, str] = {}
        self._findings: dict[str, dict[tuple[str, str, int, int], Finding]] = {rule.name: {} for rule in self.rules}
        self._asked: dict[str, set[str]] = {rule.name: set() for rule in self.rules}  # the roles each has asked for
        self._asleep = set(self.rules)  # those that lack something they need
        self._awake: list[Rule] = []
        self._prompt: list[Rule] = []  # of those that are awake; with it, series that must have had such a value
        self._prompt_for: list[tuple[str, ...]] = []
        self._there: tuple[int, ...] = ()  # how much there was when that was found out
        self._looked = self._rounds = 0  # rows, and rows of tables, at the last look

    def examine(self, urgent: bool = False) -> bool:
        """Let rules look at what is new; whether any finding came or changed.

        In a run of some length rules that may wait are asked when `RunHistory.patience` says, when it is over, and when
        it is urgent. A rule that lacks something it needs is not asked; from when all is there on it is, from the first
        row. A rule's findings don't depend on how rows are cut, so waiting saves work and changes no finding.
        Where another series turns out to play a role, the rules that asked for it begin anew, with its first row.
        """
        with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
            began, withdrawn = self._begin_anew()
            return self._ask(self._due(urgent or began)) or withdrawn

    def _begin_anew(self) -> tuple[bool, bool]:
        """Make the rules anew that asked for a role which another series plays now, and withdraw what they found.
        Whether there are any; whether any had found something.
        """
        began = withdrawn = False
        replaced = self.seen.played.replaced()
        if replaced:
            self._there = ()  # rules that lacked a role may have it now
        for at, rule in enumerate(self.rules if replaced else ()):
            if self._asked[rule.name].isdisjoint(replaced):
                continue
            self.rules[at] = type(rule)(**rule.changed)
            self._asleep = {self.rules[at] if one is rule else one for one in self._asleep}
            withdrawn |= bool(self._findings[rule.name])
            self._asked[rule.name], self._findings[rule.name], self._there = set(), {}, ()
            self.failed.pop(rule.name, None)
            began = True
        return began, withdrawn

    def _cannot_wait(self) -> list[Rule]:
        """The rules to ask although only a few rows have come."""
        seen = self.seen
        result = []
        for rule, names in zip(self._prompt, self._prompt_for, strict=True):
            due = not names
            for name in names:
                channel = seen.channel(name[1:]) if name[0] == "=" else None if name[0] == "!" else seen.role(name)
                due |= channel is not None and not channel.is_finite()
            if due:
                result.append(rule)
        return result

    def _waits_for(self, rule: Rule) -> tuple[str, ...]:
        """What must come before a rule is asked at once; nothing where it always is, or one of its events has come."""
        names = () if isinstance(rule.prompt, bool) else rule.prompt
        return () if any(name[1:] in self.seen.kinds for name in names if name[0] == "!") else names

    def _ask(self, rules: list[Rule]) -> bool:
        changed = False
        seen = self.seen
        for rule in rules:
            if rule.name in self.failed:
                continue
            seen.as_of(None)
            seen.asked = self._asked[rule.name]
            try:
                for finding in rule.examine(seen):
                    known, finding = self._findings[rule.name], self._with_a_floor(tempered(finding, seen))
                    if known.get(finding.identity) != finding and (finding.identity in known or len(known) < _MOST):
                        known[finding.identity] = finding
                        changed = True
            except Exception as error:
                self.failed[rule.name] = f"{type(error).__name__}: {error}"
        seen.as_of(None)
        seen.asked = set()
        return changed

    def _with_a_floor(self, finding: Finding) -> Finding:
        """Where the loss has all but vanished, a finding is at most an info finding, without a value to clip at."""
        of_loss = finding.family in _OF_THE_LOSS or finding.kind == "update_ratio"
        about_it = finding.severity != "info" and of_loss
        if not about_it or not has_vanished(self.seen, finding):
            return finding
        remedies = [remedy for remedy in finding.remedies if "clip" not in remedy.lower()]
        return msgspec.structs.replace(finding, severity="info", remedies=remedies)

    def catch_up(self) -> bool:
        """Let all rules look at all there is. What they have found then depends on the rows alone, not on when or how
        often they looked before; whether any finding came or changed.
        """
        self.seen.catching_up = True
        try:
            return self.examine(urgent=True)
        finally:
            self.seen.catching_up = False

    def _due(self, urgent: bool) -> list[Rule]:
        """The rules to ask now."""
        seen, finished = self.seen, self.seen.facts.get("finished")
        there = (len(seen.channels), len(seen.kinds), len(seen.facts))
        if there != self._there:
            self._there = there
            self._asleep = {rule for rule in self._asleep if missing(rule, seen)}
            self._awake = [rule for rule in self.rules if rule not in self._asleep]
            self._prompt = [rule for rule in self._awake if rule.prompt]
            self._prompt_for = [self._waits_for(rule) for rule in self._prompt]
        if finished or seen.catching_up:
            return self._all_awake()
        waits = seen.rows - self._looked < seen.patience(_WAIT) and seen.rounds - self._rounds < ROUNDS
        return self._cannot_wait() if waits and seen.rows > _PATIENT_FROM and not urgent else self._all_awake()

    def _all_awake(self) -> list[Rule]:
        self._looked, self._rounds = self.seen.rows, self.seen.rounds
        return self._awake

    @property
    def findings(self) -> list[Finding]:
        """What the rules found, one by one."""
        return [finding for known in self._findings.values() for finding in known.values()]

    def incidents(self) -> list[Finding]:
        """What belongs together as one, the worst first."""
        longest = max(self.seen.channels.values(), key=len, default=None)
        if longest is None:
            return tell(self.findings, impossible=ruled_out(self.seen))
        rows = longest.rows(longest.end - 256)
        spacing = max(1.0, (int(rows.step[-1]) - int(rows.step[0])) / max(1, len(rows) - 1))
        told = tell(self.findings, spacing, longest.last_step, ruled_out(self.seen))
        return [fitting(finding, self.seen) for finding in told]

    def checked(self) -> list[str]:
        """Rules that had what they need."""
        return [rule.name for rule in self.rules if rule.name not in self.failed and not missing(rule, self.seen)]

    def abstained(self) -> list[dict[str, str]]:
        """Rules that could not look, and what would have allowed it."""
        result = []
        for rule in self.rules:
            lacks = missing(rule, self.seen)
            if rule.name in self.failed:
                result.append({"rule": rule.name, "needs": f"a fix: it failed with {self.failed[rule.name]}"})
            elif lacks:
                result.append({"rule": rule.name, "needs": " and ".join(map(in_words, lacks))})
        return result
