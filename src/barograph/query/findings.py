"""The findings that stand: what a run's logs have recorded, as the doctor tells it.

In:   `finding` records, in the order written; of a run that no sidecar watched, the doctor.
Out:  one record for each incident, its last.

A sidecar records an incident when it comes and when its severity changes, and with `merged` when it has become part of
another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

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
