"""All rules over one run.

In:   rows and events, added to `seen`.
Out:  incidents; which rules could look, and what the others lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barograph.rules.channels import Seen
from barograph.rules.finding import Finding
from barograph.rules.registry import make_rules
from barograph.rules.rule import Rule, missing
from barograph.rules.story import tell

_MOST = 2000  # findings kept of one rule; later ones are counted
_PATIENT_FROM = 256  # rows from which on rules that may wait do
_WAIT = 128  # rows that they wait for at most


class Examiner:
    """Follows one run, live or in replay. A rule that fails is left out and named in `failed`; nothing is raised."""

    def __init__(self, rules: Iterable[Rule] | None = None, facts: Mapping[str, Any] | None = None):
        self.seen = Seen(dict(facts or {}))
        self.rules = list(make_rules() if rules is None else rules)
        self.failed: dict[str, str] = {}
        self._findings: dict[str, dict[tuple[str, str, int, int], Finding]] = {}
        self._prompt = [rule for rule in self.rules if rule.prompt]
        self._looked = 0  # rows at the last look of all rules

    def examine(self, urgent: bool = False) -> bool:
        """Let rules look at what is new; whether any finding came or changed.

        In a run of some length rules that may wait are asked when `Seen.patience` says, when it is over, and when it
        is urgent. A rule's findings don't depend on how rows are cut, so this saves work and changes no finding.
        """
        seen, rules = self.seen, self.rules
        patient = seen.rows > _PATIENT_FROM and not urgent and not seen.facts.get("finished")
        if patient and seen.rows - self._looked < seen.patience(_WAIT):
            rules = self._prompt
        else:
            self._looked = seen.rows
        changed = False
        for rule in rules:
            if rule.name in self.failed:
                continue
            known = self._findings.setdefault(rule.name, {})
            try:
                for finding in rule.examine(self.seen):
                    if known.get(finding.identity) != finding and (finding.identity in known or len(known) < _MOST):
                        known[finding.identity] = finding
                        changed = True
            except Exception as error:
                self.failed[rule.name] = f"{type(error).__name__}: {error}"
        return changed

    @property
    def findings(self) -> list[Finding]:
        """What the rules found, one by one."""
        return [finding for known in self._findings.values() for finding in known.values()]

    def incidents(self) -> list[Finding]:
        """What belongs together as one, the worst first."""
        longest = max(self.seen.channels.values(), key=len, default=None)
        if longest is None:
            return tell(self.findings)
        rows = longest.rows(longest.end - 256)
        spacing = max(1.0, (int(rows.step[-1]) - int(rows.step[0])) / max(1, len(rows) - 1))
        return tell(self.findings, spacing, longest.last_step)

    def checked(self) -> list[str]:
        """Rules that had what they need."""
        return [rule.name for rule in self.rules if rule.name not in self.failed and not missing(rule, self.seen)]

    def abstained(self) -> list[dict[str, str]]:
        """Rules that could not look, and what would have allowed it."""
        found = []
        for rule in self.rules:
            lacks = missing(rule, self.seen)
            if rule.name in self.failed:
                found.append({"rule": rule.name, "needs": f"a repair: it failed with {self.failed[rule.name]}"})
            elif lacks:
                found.append({"rule": rule.name, "needs": " and ".join(one.replace("=", "") for one in lacks)})
        return found
