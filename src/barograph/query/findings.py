"""The findings that stand: what a run's logs have recorded, as the doctor tells it.

In:   `finding` records, in the order written; of a run that no sidecar watched, the doctor.
Out:  one record for each incident, its last; how findings are shown: a headline, and info findings of a rule as one.

A sidecar records an incident when it comes and when its severity changes, and with `merged` when it has become part of
another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barograph.core.liveness import ALIVE
from barograph.core.providers import provider
from barograph.core.record import Record
from barograph.log.files import is_sidecar_name
from barograph.log.read import records_of

if TYPE_CHECKING:
    from barograph.query.stored import StoredRun

SEVERITIES = ("critical", "warning", "info")
"""critical: the training has failed or is about to. warning: it likely costs quality or time. info: for context."""

MERGED = "merged"  # the field of a record by which a finding stands no longer on its own


class Findings:
    """The findings that stand after the records so far."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._kept: dict[tuple[str, ...], Record] = {}
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """A `finding` record. Never raises on what a log may hold."""
        identity = (*(str(record.fields.get(name)) for name in ("rule", "key", "segment")), str(record.step))
        if record.fields.get(MERGED) is True:
            self._kept.pop(identity, None)
        else:
            self._kept[identity] = record

    def records(self) -> list[Record]:
        """The last record of each."""
        return list(self._kept.values())

    def counts(self) -> dict[str, int]:
        """How many of each severity."""
        said = [str(record.fields.get("severity")) for record in self.records()]
        return {severity: said.count(severity) for severity in SEVERITIES}

    def __bool__(self) -> bool:
        return bool(self._kept)


def recorded_findings(run: StoredRun) -> list[Record]:
    """The findings that stand by the records of a run's logs, in the order in which they came."""
    records = [record for path in run.log_files() for record, _ in records_of(path, {"finding"})]
    return Findings(sorted(records, key=lambda item: item.time)).records()


def findings_of(run: StoredRun) -> list[Record]:
    """The findings that stand; of a run that ended without a sidecar (too short for one, imported) the doctor's, now.

    The time of these is 0: nobody has recorded them.
    """
    recorded = recorded_findings(run)
    if recorded or run.status in ALIVE or any(is_sidecar_name(path.name) for path in run.log_files()):
        return recorded
    return [Record("finding", 0, int(item["step"]), item) for item in provider("diagnosis")(run)["findings"]]


def headline(
    findings: Sequence[Mapping[str, Any]], judged_by: str | None = "", reason: str = "no loss was found"
) -> str:
    """The worst finding's first sentence, with its step; of a run without a warning that no problems were found, or
    that there is no verdict (judged_by is None) and why (reason). findings: the worst first."""
    worst = findings[0] if findings else {"severity": "info"}
    if worst["severity"] == "info":
        return "No problems found" if judged_by is not None else f"No verdict: {reason}"
    sentence = re.split(r"[.;] |\.$", str(worst["message"]).strip(), maxsplit=1)[0]
    where = where_of(worst.get("evidence"), int(worst["step"]))
    return sentence if not where or re.search(r"\bsteps? \d", sentence) else f"{sentence}, {where}"


def where_of(evidence: object, step: int, last_step: int = 0) -> str:
    """Where a finding is: `step 10 to 20`; empty for what a log said before any step."""
    if isinstance(evidence, Mapping) and evidence.get("no_step"):
        return ""
    return f"step {step:,}" + (f" to {last_step:,}" if last_step > step else "")


def grouped(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Findings as they are shown: info findings of one rule as one, the surest of them (the first of equals), with
    `count` and the first and last step of all. findings: the worst first."""
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for at, finding in enumerate(findings):
        groups.setdefault(str(finding["rule"]) if finding["severity"] == "info" else at, []).append(finding)
    shown = []
    for members in groups.values():
        surest = max(members, key=lambda item: float(item.get("confidence") or 0))
        steps = [int(item[key]) for item in members for key in ("step", "last_step")]
        shown.append({**surest, "step": min(steps), "last_step": max(steps), "count": len(members)})
    return shown


def shown_findings(run: StoredRun) -> list[dict[str, Any]]:
    """The findings that stand as they are shown, the worst first."""
    fields = [
        {"rule": "", "message": "", "last_step": record.step} | record.fields | {"step": record.step}
        for record in findings_of(run)
        if record.fields.get("severity") in SEVERITIES
    ]
    return grouped(sorted(fields, key=lambda item: (SEVERITIES.index(item["severity"]), item["step"])))
